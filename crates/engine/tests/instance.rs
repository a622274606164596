//! Whole instances on DPDK's software devices. DPDK starts once per process: run these with nextest, which gives each
//! test a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Random, frame, label, wait_for};
use linerate_dpdk::{Eal, Mbuf, Pool, PoolConfig, RxQueue, TxQueue};
use linerate_engine::desired::{Desired, DpdkSpec, IdleSpec, MemorySpec, PortSpec, WorkerSpec};
use linerate_engine::instance::{Instance, Product, StartError, StopError};
use linerate_linux::thread as os;
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, DropReason, Packet};

fn cpus() -> Vec<usize> {
    os::allowed_cpus().unwrap().iter().collect()
}

fn port(name: &str, device: &str) -> PortSpec {
    PortSpec {
        name: name.into(),
        device: device.into(),
        rx_queues: 1,
        queue_workers: vec![],
        spread: vec![],
        rx_descriptors: 512,
        tx_descriptors: 512,
        mtu: 1500,
        promiscuous: false,
    }
}

fn desired(workers: usize, ports: Vec<PortSpec>) -> Desired {
    let cpus = cpus();
    let cpu = |i: usize| cpus[cpus.len() - 1 - i];
    Desired {
        dpdk: DpdkSpec {
            file_prefix: format!("engine-test-{}", std::process::id()),
            memory: MemorySpec::NoHuge { megabytes: 128 },
            control_cpu: cpus[0],
            ..DpdkSpec::default()
        },
        workers: (0..workers).map(|i| WorkerSpec { cpu: cpu(i), idle: IdleSpec::default() }).collect(),
        ports,
        ..Desired::default()
    }
}

fn io() -> Product {
    Product::Io { to: vec![1, 0] }
}

fn tester_pool() -> &'static Pool {
    let config = PoolConfig { name: "tester".into(), size: 4095, ..PoolConfig::default() };
    Pool::create(Eal::get().unwrap(), &config).unwrap()
}

/// Nothing of an instance is left: no thread of it, no runtime directory, no socket. (DPDK keeps a thread for interrupts
/// until the process ends.)
fn assert_nothing_left(prefix: &str) {
    let ours = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        name.starts_with("worker-") || name.trim() == "control"
    };
    wait_for("threads end", || !std::fs::read_dir("/proc/self/task").unwrap().any(ours));
    let dirs = ["/var/run/dpdk", "/tmp/dpdk", "/run/user/0/dpdk"].map(PathBuf::from);
    let xdg = std::env::var_os("XDG_RUNTIME_DIR").map(|d| Path::new(&d).join("dpdk"));
    for dir in dirs.into_iter().chain(xdg) {
        assert!(!dir.join(prefix).exists(), "{} is left", dir.join(prefix).display());
    }
}

/// A frame as an mbuf.
fn mbuf(pool: &Pool, flow: u32, sequence: u32) -> Option<Mbuf> {
    let bytes = frame(flow, sequence).bytes();
    let mut m = pool.alloc()?;
    m.append(bytes.len())?.copy_from_slice(&bytes);
    Some(m)
}

/// Sends `flows` in turn and checks what comes back until `until` says so (given how many came back), never more
/// than 400 packets under way. Returns how many were sent, all of which came back in order.
fn exchange(
    pool: &'static Pool,
    tx: &mut [TxQueue],
    rx: &mut [RxQueue],
    flows: u32,
    until: impl Fn(u64) -> bool,
) -> u64 {
    let (mut sent, mut seen) = (0u64, 0u64);
    let (mut out, mut next) = (vec![0u32; flows as usize], vec![0u32; flows as usize]);
    let mut last = Instant::now();
    while !until(seen) || seen < sent {
        if !until(seen) && sent - seen < 400 {
            let flow = (sent % u64::from(flows)) as u32;
            let queue = flow as usize % tx.len();
            let mut batch = Batch::new();
            batch.push(mbuf(pool, flow, out[flow as usize]).unwrap());
            while tx[queue].tx(&mut batch) == 0 {}
            out[flow as usize] += 1;
            sent += 1;
        }
        for queue in rx.iter_mut() {
            let mut batch = Batch::new();
            if queue.rx(&mut batch) > 0 {
                last = Instant::now();
            }
            for m in batch {
                let (flow, sequence) = read(&m);
                assert_eq!(sequence, next[flow as usize], "flow {flow}: lost, doubled or out of order");
                next[flow as usize] += 1;
                seen += 1;
            }
        }
        assert!(last.elapsed() < Duration::from_secs(10), "{} packets did not come back", sent - seen);
        if sent - seen == 400 {
            std::thread::yield_now();
        }
    }
    sent
}

fn read(m: &Mbuf) -> (u32, u32) {
    label(&linerate_pipeline::HeapPacket::new(m.head()))
}

#[test]
fn ring_ports_forward_everything_and_stop_leaves_nothing() {
    let d = desired(1, vec![port("left", "ring:left"), port("right", "ring:right")]);
    let instance = Instance::start(&d, io()).unwrap();
    let pool = tester_pool();
    let (left, _, mut tx) = instance.take_peer("left").unwrap().start(1500, pool).unwrap();
    let (right, mut rx, _) = instance.take_peer("right").unwrap().start(1500, pool).unwrap();
    assert!(instance.take_peer("left").is_none() && instance.take_peer("x").is_none());
    let sent = exchange(pool, &mut tx, &mut rx, 10, |seen| seen >= 50_000);
    assert_eq!(instance.imbalance(), []);
    let counters = &instance.workers()[0].counters;
    assert_eq!((counters.port(0).received.get(), counters.port(0).sent.get()), (sent, sent));
    assert_eq!(counters.port(1).tx_packets.get(), sent);
    let status = instance.ports();
    assert_eq!((status[0].name.as_str(), status[0].up, status[0].mtu), ("left", true, 1500));
    assert_eq!(
        (status[0].rx_packets, status[1].tx_packets, status[0].driver.as_str()),
        (sent, sent, "net_ring")
    );
    assert_eq!(instance.queues().iter().map(|q| q.counters.packets.get()).collect::<Vec<_>>(), [sent, 0]);
    assert_eq!((instance.port_id("right"), instance.port_id("none")), (Some(1), None));
    assert_eq!(instance.drops(), []);
    let nodes = &instance.workers()[0];
    assert_eq!((nodes.description.nodes[0].name, nodes.nodes[0].packets.get()), ("io_cross", sent));
    drop((left, right, tx, rx));
    instance.stop().unwrap();
    instance.stop().unwrap();
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn queues_move_between_workers_on_rings() {
    if cpus().len() < 2 {
        eprintln!("SKIPPED: two workers need two CPUs");
        return;
    }
    let mut ports = vec![port("left", "ring:left"), port("right", "ring:right")];
    // One queue on the way out: the second worker hands over to the first, which keeps the order visible.
    ports[0].rx_queues = 3;
    ports[0].spread = vec![0, 1];
    let d = desired(2, ports);
    let instance = Instance::start(&d, io()).unwrap();
    let pool = tester_pool();
    let (left, left_rx, mut tx) = instance.take_peer("left").unwrap().start(1500, pool).unwrap();
    let (right, mut rx, right_tx) = instance.take_peer("right").unwrap().start(1500, pool).unwrap();
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|s| {
        s.spawn(|| {
            let mut random = Random(7);
            for _ in 0..300 {
                instance.move_queue(0, random.below(3) as u16, random.below(2) as usize).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        exchange(pool, &mut tx, &mut rx, 50, |seen| done.load(Ordering::Relaxed) && seen > 10_000)
    });
    assert_eq!(instance.imbalance(), []);
    assert_eq!(instance.drops(), []);
    let handed: u64 = instance.workers().iter().map(|w| w.counters.port(0).handed_over.get()).sum();
    assert!(handed > sent / 4, "{handed} of {sent} handed over");
    assert!(instance.longest_gap() > 0);
    drop((left, right, left_rx, right_tx, tx, rx));
    instance.stop().unwrap();
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn null_devices_keep_a_worker_busy_and_every_packet_is_accounted_for() {
    let d = desired(1, vec![port("a", "net_null0"), port("b", "net_null1")]);
    let instance = Instance::start(&d, io()).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let load = instance.loads()[0];
    assert!(load.busy > 0.9, "{load:?}");
    assert!((1.0..10_000.0).contains(&load.cycles_per_packet), "{load:?}");
    // Both ports deliver full bursts in each loop.
    assert!((load.packets_per_burst - 64.0).abs() < 0.5, "{load:?}");
    assert!(load.packets_per_second > 100_000.0, "{load:?}");
    instance.stop().unwrap();
    assert_eq!(instance.imbalance(), []);
    let c = &instance.workers()[0].counters;
    assert_eq!(c.port(0).received.get(), c.port(1).tx_packets.get());
    assert_eq!(c.drops(DropReason::TxFull), 0);
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn captured_frames_replay_for_ever_through_pcap_devices() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in.pcap");
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for i in 0..100 {
        bytes.extend([0; 8]);
        bytes.extend([60u32.to_le_bytes(), 60u32.to_le_bytes()].concat());
        bytes.extend(frame(i, 0).bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    let device = |n: u8| format!("net_pcap{n},rx_pcap={},infinite_rx=1,tx_drop=1", file.display());
    let drop_tx = |n: u8| device(n).replace(",tx_drop=1", "");
    let d = desired(1, vec![port("a", &drop_tx(0)), port("b", &drop_tx(1))]);
    let instance = Instance::start(&d, io()).unwrap();
    let received = || instance.workers()[0].counters.port(0).received.get();
    wait_for("replaying", || received() > 10_000);
    instance.stop().unwrap();
    assert_eq!(instance.imbalance(), []);
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn what_cannot_start_is_said_before_anything_is_touched() {
    type Change = fn(&mut Desired);
    let cases: &[(Change, &str)] = &[
        (|d| d.workers[0].cpu = 1000, "worker 0 shall run on CPU 1000, but this machine has CPUs "),
        (|d| d.workers.push(d.workers[0].clone()), "workers 0 and 1 shall both run on CPU "),
        (|d| d.ports[1].device = "net_null0".into(), "ports `a` and `b` are both device `net_null0`"),
        (|d| d.ports.clear(), "no port is configured"),
        (
            |d| d.dpdk.memory = MemorySpec::NoHuge { megabytes: 16 },
            "4095 packet buffers of 2048 bytes for 4 queues need ",
        ),
        (
            |d| d.dpdk.memory = MemorySpec::NoHuge { megabytes: u32::MAX },
            "DPDK shall have 4294967295 MiB of ordinary ",
        ),
        (|d| d.dpdk.file_prefix = "../x".into(), "DPDK cannot start: the file prefix '../x' must be "),
    ];
    let good = desired(1, vec![port("a", "net_null0"), port("b", "net_null1")]);
    for (change, sentence) in cases {
        let mut wrong = good.clone();
        change(&mut wrong);
        let error = Instance::start(&wrong, io()).err().unwrap();
        assert!(error.to_string().starts_with(sentence), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    // DPDK can start only once per process: that it can now shows that none of the attempts above started it.
    Instance::start(&good, io()).unwrap().stop().unwrap();
    let again = Instance::start(&good, io()).err().unwrap();
    assert!(matches!(again, StartError::Eal(_)), "{again}");
    assert_nothing_left(&good.dpdk.file_prefix);
}

#[test]
fn a_device_that_does_not_exist_ends_the_start_cleanly() {
    let d = desired(1, vec![port("a", "net_null0"), port("b", "net_nonsense0")]);
    let error = Instance::start(&d, io()).err().unwrap();
    assert!(error.to_string().starts_with("port `b`: device 'net_nonsense0' cannot be opened: "), "{error}");
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn more_queues_than_a_device_has_end_the_start_cleanly() {
    let mut d = desired(1, vec![port("a", "net_null0"), port("b", "net_null1")]);
    d.ports[1].rx_queues = 1025;
    d.ports[1].rx_descriptors = 1;
    d.dpdk.packet_buffers = Some(1023);
    let error = Instance::start(&d, io()).err().unwrap();
    assert!(error.to_string().starts_with("port `b`: "), "{error}");
    assert_nothing_left(&d.dpdk.file_prefix);
}

#[test]
fn a_peer_kept_beyond_the_stop_is_reported() {
    let d = desired(1, vec![port("left", "ring:left"), port("right", "ring:right")]);
    let instance = Instance::start(&d, io()).unwrap();
    let peer = instance.take_peer("left").unwrap();
    let error = instance.stop().unwrap_err();
    assert!(matches!(error, StopError::Cleanup(_)), "{error}");
    assert_eq!(error.to_string(), "DPDK cannot end while 1 port(s) are open");
    drop(peer);
}

#[test]
fn starts_and_stops_again_and_again_in_processes_of_their_own() {
    if std::env::var_os("ONE_ROUND").is_some() {
        let d = desired(1, vec![port("a", "net_null0"), port("b", "ring:b")]);
        let instance = Instance::start(&d, io()).unwrap();
        wait_for("packets", || instance.workers()[0].counters.port(0).received.get() > 1000);
        // Packets lie unread in the ring of port b when the instance stops.
        instance.stop().unwrap();
        assert_eq!(instance.imbalance(), []);
        return assert_nothing_left(&d.dpdk.file_prefix);
    }
    let me = std::env::current_exe().unwrap();
    for round in 0..6 {
        let output = Command::new(&me)
            .args(["--exact", "starts_and_stops_again_and_again_in_processes_of_their_own", "--nocapture"])
            .env("ONE_ROUND", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "round {round}: {text}");
    }
}
