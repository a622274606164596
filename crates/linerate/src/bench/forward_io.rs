//! Devices of `bench forward`: frames in a file, two `net_pcap` ports that replay it for ever, and whose turn it is.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use linerate_dpdk::{Device, Eal, Mbuf, Pool, Port, PortConfig, RxQueue, Started, TxQueue};
use linerate_pipeline::{Batch, PortId};
use linerate_tables::classifier::synthetic::Tuple;
use linerate_tester::flow::Flow;
use linerate_tester::ip::Ip;

use super::acl_forward::Listed;

/// Bytes of an Ethernet header.
const ETH: usize = 14;

/// MAC address of one of the two ports: the one that DPDK gives the n-th `net_pcap` device by default.
pub(super) fn port_mac(port: PortId) -> [u8; 6] {
    [0x02, 0x70, 0x63, 0x61, 0x70, port as u8]
}

/// Writes a capture file with one UDP frame per flow, `size` bytes each with the FCS that a file does not hold. Returns the
/// size with what the headers need at least.
pub(super) fn write_pcap<A: Ip>(path: &Path, flows: &[Flow<A>], size: u16, port: PortId) -> Result<u16> {
    let headers = ETH + A::HEADER + 8;
    let len = (usize::from(size) - 4).max(headers);
    write(path, flows, len, |frame, flow| fill(frame, flow, port))?;
    Ok(len as u16 + 4)
}

/// Writes a capture file with one frame per five-tuple, as small as they may be.
pub(super) fn write_tuples<A: Listed>(path: &Path, tuples: &[Tuple<A>], port: PortId) -> Result<()> {
    // Room for a TCP header, and for an Ethernet frame.
    let len = (ETH + A::HEADER + 20).max(60);
    write(path, tuples, len, |frame, tuple| {
        let flow = Flow { destination: tuple.dst, source_port: tuple.src_port, next_hop: 0 };
        fill(frame, &flow, port);
        let Some((ip, l4)) = frame.get_mut(ETH..).and_then(|l3| l3.split_at_mut_checked(A::HEADER)) else {
            return;
        };
        let source = tuple.src.octets();
        if A::BITS == 32 {
            ip[9] = tuple.protocol;
            ip[12..16].copy_from_slice(&source[12..]);
            checksum(ip);
        } else {
            ip[6] = tuple.protocol;
            ip[8..24].copy_from_slice(&source);
        }
        l4[2..4].copy_from_slice(&tuple.dst_port.to_be_bytes());
        if tuple.protocol == 6 {
            l4[4..14].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10]);
        }
    })
}

/// A capture file with one frame of `len` bytes for each item; `fill` writes into the frame before it.
fn write<T>(path: &Path, items: &[T], len: usize, fill: impl Fn(&mut [u8], &T)) -> Result<()> {
    let mut out = BufWriter::new(File::create(path).with_context(|| format!("{}", path.display()))?);
    // The classic format: magic, version 2.4, time zone, accuracy, longest frame, Ethernet.
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        out.write_all(&word.to_le_bytes())?;
    }
    let mut frame = vec![0; len];
    for item in items {
        for word in [0, 0, len as u32, len as u32] {
            out.write_all(&word.to_le_bytes())?;
        }
        fill(&mut frame, item);
        out.write_all(&frame)?;
    }
    out.flush()?;
    Ok(())
}

/// The link-layer address of a multicast group; `None` for other addresses.
fn group_mac<A: Ip>(destination: A) -> Option<[u8; 6]> {
    let octets = destination.octets();
    let [.., a, b, c, d] = octets;
    match A::BITS {
        32 if a >> 4 == 0xe => Some([1, 0, 0x5e, b & 0x7f, c, d]),
        128 if octets[0] == 0xff => Some([0x33, 0x33, a, b, c, d]),
        _ => None,
    }
}

fn fill<A: Ip>(frame: &mut [u8], flow: &Flow<A>, port: PortId) {
    frame[0..6].copy_from_slice(&group_mac(flow.destination).unwrap_or(port_mac(port)));
    frame[6..12].copy_from_slice(&[0x02, 0x11, 0x11, 0x11, 0x11, 0x10 + port as u8]);
    frame[12..ETH].copy_from_slice(&A::ETHERTYPE.to_be_bytes());
    let l3 = (frame.len() - ETH) as u16;
    let udp_len = l3 - A::HEADER as u16;
    let destination = flow.destination.octets();
    let ip = &mut frame[ETH..];
    if A::BITS == 32 {
        ip[..12].copy_from_slice(&[0x45, 0, (l3 >> 8) as u8, l3 as u8, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        ip[12..16].copy_from_slice(&[10, 1, (flow.source_port >> 8) as u8, flow.source_port as u8]);
        ip[16..20].copy_from_slice(&destination[12..]);
        checksum(ip);
    } else {
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, (udp_len >> 8) as u8, udp_len as u8, 17, 64]);
        ip[8..24].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip[24..40].copy_from_slice(&destination);
    }
    let udp = &mut ip[A::HEADER..];
    udp[0..2].copy_from_slice(&flow.source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&2152u16.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    // Routers do not look at it; IPv6 forbids zero.
    udp[6..8].copy_from_slice(if A::BITS == 32 { &[0, 0] } else { &[0xff, 0xff] });
}

/// Makes the checksum of an IPv4 header right.
fn checksum(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum: u32 = ip[..20].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Two ports that replay capture files for ever and drop what they are given to send.
pub(super) struct Pair {
    _ports: Vec<Port<Started>>,
    rx: Vec<Arc<Mutex<RxQueue>>>,
    tx: Vec<Arc<Mutex<TxQueue>>>,
    turn: Arc<AtomicUsize>,
}

impl Pair {
    /// Opens them; `serial` makes their names unique.
    pub(super) fn open(
        eal: &'static Eal,
        pool: &'static Pool,
        files: &[PathBuf; 2],
        serial: usize,
    ) -> Result<Self> {
        let (mut ports, mut rx, mut tx) = (Vec::new(), Vec::new(), Vec::new());
        for (i, file) in files.iter().enumerate() {
            let device = format!("net_pcap{serial}_{i},rx_pcap={},infinite_rx=1", file.display());
            let port = Port::configure(Device::open(eal, &device)?, &PortConfig::default(), pool)?;
            let (port, queues_rx, queues_tx) = port.start()?;
            let missing = || anyhow!("device {device} came without queues");
            let mut queue = queues_rx.into_iter().next().ok_or_else(missing)?;
            queue.set_rx_port(i as PortId);
            rx.push(Arc::new(Mutex::new(queue)));
            tx.push(Arc::new(Mutex::new(queues_tx.into_iter().next().ok_or_else(missing)?)));
            ports.push(port);
        }
        Ok(Pair { _ports: ports, rx, tx, turn: Arc::new(AtomicUsize::new(usize::MAX)) })
    }

    /// The queues as contender `me` sees them: they give packets only in its turn.
    pub(super) fn queues(&self, me: usize) -> (Vec<TurnRx>, Vec<SharedTx>) {
        let rx = self.rx.iter().map(|q| TurnRx { queue: q.clone(), turn: self.turn.clone(), me });
        (rx.collect(), self.tx.iter().map(|q| SharedTx(q.clone())).collect())
    }

    /// Gives contender `who` the turn; `usize::MAX` gives it to nobody.
    pub(super) fn turn(&self, who: usize) {
        self.turn.store(who, Relaxed);
    }
}

/// A receive queue that several workers have, of whom one at a time receives. All of them, the floor's too, pay the same for
/// that: a load and an uncontended lock per burst.
pub(super) struct TurnRx {
    queue: Arc<Mutex<RxQueue>>,
    turn: Arc<AtomicUsize>,
    me: usize,
}

impl linerate_pipeline::io::RxQueue<Mbuf> for TurnRx {
    #[inline]
    fn rx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        if self.turn.load(Relaxed) != self.me {
            return 0;
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).rx(batch)
    }
}

/// The transmit queue that goes with it.
pub(super) struct SharedTx(Arc<Mutex<TxQueue>>);

impl linerate_pipeline::io::TxQueue<Mbuf> for SharedTx {
    #[inline]
    fn tx(&mut self, batch: &mut Batch<Mbuf>) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tx(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_an_independent_reader_expects() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pcap");
        let flows = [Flow { destination: 0x0808_0404u32, source_port: 4000, next_hop: 1 }; 3];
        assert_eq!(write_pcap(&path, &flows, 64, 1).unwrap(), 64);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 24 + 3 * (16 + 60));
        let frame = &bytes[40..100];
        assert_eq!((&frame[..6], &frame[30..34]), (&port_mac(1)[..], &[8, 8, 4, 4][..]));
        let sum: u32 = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        let flows = [Flow { destination: 0x2606u128 << 112, source_port: 4000, next_hop: 1 }];
        assert_eq!(write_pcap(&path, &flows, 64, 0).unwrap(), 66, "the smallest IPv6/UDP frame");
        assert_eq!(write_pcap(&path, &flows, 512, 0).unwrap(), 512);
        assert_eq!(group_mac(0xef81_0203u32), Some([1, 0, 0x5e, 1, 2, 3]));
        assert_eq!(group_mac(0xff3e_u128 << 112 | 0x8000_0001), Some([0x33, 0x33, 0x80, 0, 0, 1]));
        assert_eq!((group_mac(0x0a00_0001u32), group_mac(0xfe80_u128 << 112)), (None, None));
    }
}
