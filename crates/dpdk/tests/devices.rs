//! Software devices other than rings: net_null, net_pcap, net_memif; wrong devices; opening and closing many times.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Fixture, content, output_of, packet, pattern, receive, send};
use linerate_dpdk::{Device, MAX_FRAME, Mbuf, Note, Port, PortConfig, pools};
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, Packet};

#[test]
fn a_wrong_device_is_one_sentence_with_advice() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let open = |device: &str| Port::open(fixture.eal, device, &PortConfig::default(), pool).map(|_| ());
    for (device, texts) in [
        ("eth0", ["'eth0' is not a device: expected a PCI address", "net_NAME"]),
        ("", ["'' is not a device", "PCI address"]),
        ("net_nonsense3", ["DPDK has no driver 'net_nonsense'", "librte-meta-net"]),
        ("0000:ff:1f.7", ["this host has no such PCI device", "lspci"]),
        ("net_pcap0,rx_pcap=/nonexistent/x.pcap", ["'/nonexistent/x.pcap' cannot be read", "No such file"]),
        ("net_pcap0,rx_pcap=/proc/self/maps", ["its driver refuses it", "/proc/self/maps"]),
        ("net_pcap0,tx_pcap=/nonexistent/y.pcap", ["its driver refuses it", "/nonexistent/y.pcap"]),
        ("net_af_packet0,iface=nonexistent0", ["no Linux interface 'nonexistent0'", "ip link"]),
        ("net_af_xdp0,iface=nonexistent0", ["no Linux interface 'nonexistent0'", "ip link"]),
        ("net_af_packet0", ["names no Linux interface", "net_af_packet0,iface=NAME"]),
        ("net_null0,nonsense=1", ["device 'net_null0,nonsense=1' cannot be opened", "nonsense"]),
    ] {
        let error = open(device).unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)) && !error.contains('\n'), "{device}: {error}");
        assert!(!error.contains("permission"), "{device}: {error}");
    }
    let one = Device::open(fixture.eal, "net_null0").unwrap();
    assert_eq!(
        Device::open(fixture.eal, "net_null0,size=128").unwrap_err().to_string(),
        "device 'net_null0,size=128' is open already: give each port its own device"
    );
    drop(one);
    open("net_null0").unwrap();
}

#[test]
fn settings_beyond_the_device_are_refused_with_its_limits() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let open = |config: PortConfig| {
        Port::open(fixture.eal, "net_null0", &config, pool).map(|_| ()).map_err(|e| e.to_string())
    };
    let ok = PortConfig::default();
    for (config, text) in [
        (PortConfig { rx_queues: 0, ..ok.clone() }, "0 receive queues asked for: net_null takes 1 to "),
        (PortConfig { tx_queues: 0, ..ok.clone() }, "0 transmit queues asked for"),
        (PortConfig { rx_queues: u16::MAX, ..ok.clone() }, "65535 receive queues"),
        (PortConfig { mtu: 67, ..ok.clone() }, "MTU 67 is out of range: net_null takes 68 to 9216"),
        (PortConfig { mtu: 9217, ..ok.clone() }, "MTU 9217 is out of range"),
    ] {
        let error = open(config).unwrap_err();
        assert!(error.contains(text), "{error:?} lacks {text:?}");
    }
    open(PortConfig { mtu: 9216, ..ok.clone() }).unwrap();
    open(PortConfig { mtu: 68, ..ok }).unwrap();
}

#[test]
fn net_null_sources_and_sinks_on_all_queues() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 2047, 2048);
    let config = PortConfig { rx_queues: 2, tx_queues: 2, ..PortConfig::default() };
    let port = Port::open(fixture.eal, "net_null0,size=128", &config, pool).unwrap();
    let (mut port, mut rx, mut tx) = port.start().unwrap();
    for (rx, tx) in rx.iter_mut().zip(&mut tx) {
        for _ in 0..100 {
            let mut batch: Batch<Mbuf> = Batch::new();
            assert!(rx.rx(&mut batch) > 0);
            assert!(batch.iter().all(|p| p.len() == 128 && p.rx_port() == port.id()));
            let n = batch.len();
            assert_eq!(tx.tx(&mut batch), n);
        }
    }
    let stats = port.stats().unwrap();
    assert_eq!(stats.rx_packets, stats.tx_packets);
    assert!(stats.rx_packets >= 200);
    let sum: u64 = port
        .xstats()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with("rx_q") && name.ends_with("_packets"))
        .map(|(_, value)| value)
        .sum();
    assert_eq!(sum, stats.rx_packets);
    port.reset_stats().unwrap();
    assert_eq!(port.stats().unwrap().rx_packets, 0);
    assert!(port.link().unwrap().up);
    port.set_mac([2, 0, 0, 0, 0, 9]).unwrap();
    assert_eq!(port.mac().unwrap(), [2, 0, 0, 0, 0, 9]);
    assert!(port.set_mac([1, 0, 0, 0, 0, 0]).unwrap_err().to_string().contains("not a unicast MAC address"));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_exhausted_pool_stops_reception_and_nothing_else() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 127, 2048);
    let port = Port::open(fixture.eal, "net_null0", &PortConfig::default(), pool).unwrap();
    let (_port, mut rx, _tx) = port.start().unwrap();
    let mut all = Vec::new();
    for _ in 0..10 {
        let mut batch: Batch<Mbuf> = Batch::new();
        rx[0].rx(&mut batch);
        all.extend(batch);
    }
    assert!(pool.available() < 64);
    all.clear();
    let mut batch: Batch<Mbuf> = Batch::new();
    assert_eq!(rx[0].rx(&mut batch), 64);
}

#[test]
fn rss_is_reported_and_its_table_set_where_there_is_one() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 2047, 2048);
    let config = PortConfig { rx_queues: 2, tx_queues: 2, ..PortConfig::default() };
    let null = Port::open(fixture.eal, "net_null0", &config, pool).unwrap();
    assert!(null.info().has_rss, "net_null announces RSS");
    let (mut null, _rx, _tx) = null.start().unwrap();
    null.set_reta(&[1, 0]).unwrap();
    let table = null.reta().unwrap();
    assert_eq!(table.len(), usize::from(null.info().reta_size));
    assert!(table.iter().enumerate().all(|(i, &queue)| queue == 1 - (i as u16 % 2)));
    assert!(null.set_reta(&[2]).unwrap_err().to_string().contains("names queue 2, but there are 2"));
    let (ring, _) = Port::ring_pair(fixture.eal, "x", 64, 2, &PortConfig::default(), pool).unwrap();
    assert!(!ring.info().has_rss);
    assert!(ring.notes().contains(&Note::NoRss { driver: "net_ring".into() }), "{:?}", ring.notes());
    assert!(ring.reta().unwrap_err().to_string().contains("does not support an RSS redirection table"));
}

/// Writes a capture with Python's struct module: lengths 60, 1514, 9014 and a byte pattern that depends on both.
const WRITE_PCAP: &str = "
import struct, sys
with open(sys.argv[1], 'wb') as f:
    f.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    for number, length in enumerate([60, 1514, 9014]):
        data = struct.pack('>I', number) + bytes((i * 7 + number * 13) % 256 for i in range(4, length))
        f.write(struct.pack('<IIII', number, 0, length, length) + data)
";

#[test]
fn captures_written_by_others_are_read_and_ours_are_read_by_others() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.pcap"), dir.path().join("out.pcap"));
    output_of("python3", &["-c", WRITE_PCAP, input.to_str().unwrap()]).expect("python3");
    let lengths = [60, 1514, 9014];
    for (name, data_room, segments) in [("small", 2048, 5), ("big", MAX_FRAME as u16, 1)] {
        let pool = fixture.pool(name, 255, data_room);
        let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
        let config = PortConfig { mtu: 9000, promiscuous: true, ..PortConfig::default() };
        let (port, mut rx, mut tx) =
            Port::open(fixture.eal, &device, &config, pool).unwrap().start().unwrap();
        let got = receive(&mut rx[0], 3);
        for (i, p) in got.iter().enumerate() {
            assert_eq!(content(p), pattern(i as u32, lengths[i]));
        }
        assert_eq!(got[2].segments(), segments);
        let bytes: usize = lengths.iter().sum();
        for p in got {
            send(&mut tx[0], p);
        }
        let stats = port.stats().unwrap();
        assert_eq!((stats.rx_packets, stats.tx_packets), (3, 3));
        assert_eq!((stats.rx_bytes, stats.tx_bytes), (bytes as u64, bytes as u64));
        drop((port, rx, tx));
        assert_eq!(pool.in_use(), 0);
        assert_eq!(
            frames(&output),
            lengths.iter().enumerate().map(|(i, &n)| pattern(i as u32, n)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn too_few_and_too_small_buffers_are_named() {
    let fixture = Fixture::new();
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("many.pcap");
    let mut file =
        [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0].to_vec();
    for _ in 0..300 {
        file.extend([0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
        file.extend([0; 60]);
    }
    std::fs::write(&input, file).unwrap();
    let open = |device: &str, pool| {
        Port::open(fixture.eal, device, &PortConfig::default(), pool).map(|_| ()).map_err(|e| e.to_string())
    };
    let device = format!("net_pcap0,rx_pcap={},infinite_rx=1", input.display());
    let error = open(&device, fixture.pool("few", 255, 2048)).unwrap_err();
    assert!(
        error.contains("more packet buffers than the 255 of pool 'few': raise packet_buffers"),
        "{error}"
    );
    assert!(error.contains("At least 300 mbufs"), "{error}");
    open(&device, fixture.pool("many", 511, 2048)).unwrap();
}

/// The frames in a capture, as tshark sees them; as Python does where tshark is not installed.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    const READ_PCAP: &str = "
import struct, sys
data = open(sys.argv[1], 'rb').read()[24:]
while data:
    length = struct.unpack('<IIII', data[:16])[2]
    print(data[16:16 + length].hex())
    data = data[16 + length:]
";
    let path = path.to_str().unwrap();
    let text = output_of("tshark", &["-r", path, "-T", "json", "-x"])
        .map(|json| {
            // "frame_raw": ["<hex>", 0, …
            json.split("\"frame_raw\":")
                .skip(1)
                .filter_map(|part| part.split('"').nth(1))
                .collect::<Vec<_>>()
                .join("\n")
        })
        .or_else(|| output_of("python3", &["-c", READ_PCAP, path]))
        .expect("tshark or python3");
    let byte = |hex: &[u8]| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
    text.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

#[test]
fn a_memif_pair_in_one_process_carries_packets_both_ways() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 8191, 2048);
    let dir = tempfile::tempdir().unwrap();
    let device = |role: &str, n: u32| {
        let socket = dir.path().join("memif.sock");
        format!("net_memif{n},role={role},id=0,socket-abstract=no,socket={}", socket.display())
    };
    let config = PortConfig { mtu: 9000, ..PortConfig::default() };
    let server = Port::open(fixture.eal, &device("server", 0), &config, pool).unwrap();
    let (server, mut srx, mut stx) = server.start().unwrap();
    let client = Port::open(fixture.eal, &device("client", 1), &config, pool).unwrap();
    let (client, mut crx, mut ctx) = client.start().unwrap();
    let start = std::time::Instant::now();
    while !(server.link().unwrap().up && client.link().unwrap().up) {
        assert!(start.elapsed().as_secs() < 10, "memif does not connect");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for (tx, rx) in [(&mut stx[0], &mut crx[0]), (&mut ctx[0], &mut srx[0])] {
        for (i, len) in [60, 1514, 9014].into_iter().enumerate() {
            // The client lends the server its buffers in its own receive calls: the first one makes sending possible.
            assert!(rx.rx(&mut Batch::new()) == 0);
            send(tx, packet(pool, i as u32, len));
            let got = receive(rx, 1);
            assert_eq!(got.len(), 1);
            assert_eq!(content(&got[0]), pattern(i as u32, len));
        }
    }
}

#[test]
fn a_thousand_devices_come_and_go_without_a_trace() {
    let fixture = Fixture::with_memory(96);
    let pool = fixture.pool("p", 4095, 2048);
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let mut settled = 0;
    for i in 0..1000 {
        if i == 200 {
            settled = resident();
        }
        let device = format!("net_null{}", i % 3);
        let (_port, mut rx, _tx) =
            Port::open(fixture.eal, &device, &PortConfig::default(), pool).unwrap().start().unwrap();
        let mut batch: Batch<Mbuf> = Batch::new();
        assert_eq!(rx[0].rx(&mut batch), 64);
        if i % 4 == 0 {
            let (a, b) = Port::ring_pair(fixture.eal, "x", 64, 2, &PortConfig::default(), pool).unwrap();
            let (_a, _arx, mut atx) = a.start().unwrap();
            let (_b, _brx, _btx) = b.start().unwrap();
            assert_eq!(atx[1].tx(&mut batch), 63);
        }
    }
    let grown = resident().saturating_sub(settled);
    assert!(grown < 1 << 20, "{grown} bytes more after 800 devices");
    assert!(pools().iter().all(|pool| pool.in_use() == 0));
}

#[test]
fn more_ports_than_dpdk_allows_is_an_error_not_a_crash() {
    let fixture = Fixture::new();
    let mut open = Vec::new();
    let error = loop {
        match Device::open(fixture.eal, &format!("net_null{}", open.len())) {
            Ok(device) => open.push(device),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(open.len(), 32);
    assert!(error.contains("DPDK has no port left, this build allows 32"), "{error}");
    let error = Device::ring_pair(fixture.eal, "x", 64, 1).unwrap_err().to_string();
    assert!(error.contains("DPDK has no port left"), "{error}");
    open.pop();
    let error = Device::ring_pair(fixture.eal, "x", 64, 1).unwrap_err().to_string();
    assert!(error.contains("DPDK has no port left"), "{error}");
    open.pop();
    Device::ring_pair(fixture.eal, "x", 64, 1).unwrap();
}
