//! The thread between taps and workers: packets for Linux out of the workers' queues to the tap of their interface, frames
//! that Linux sends from its taps into rings to the workers that transmit.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_dpdk::{Mbuf, Pool, WorkerThread, register_worker_thread};
use linerate_linux::tap::{Sent, Tap, TapError};
use linerate_linux::taps::TapSet;
use linerate_pipeline::interface::InterfaceTable;
use linerate_pipeline::{Batch, IfIndex, Packet, PortId, VrfId};
use linerate_router::plane::Adjacency;
use linerate_wire::ip4::Ip4Header;
use linerate_wire::ip6::Ip6Header;
use linerate_wire::{Header, eth};
use tracing::{debug, warn};

use super::HostError;
use crate::graphs::router::PuntLine;
use crate::workers::ring::Giver;

/// How long packets from workers wait at most before they are looked for.
const WAIT: Duration = Duration::from_millis(1);
/// Packets taken from one worker, and frames from one tap, before the next one's turn.
const TURN: usize = 64;
/// The longest frame: the largest MTU with an Ethernet header and two tags.
const LONGEST: usize = 9216 + 22 + 4;

/// What went between one interface and its tap.
#[derive(Debug, Default)]
pub struct TapCounters {
    /// Frames given to Linux.
    pub to_linux: AtomicU64,
    /// Frames that Linux did not take: its interface is down or gone, or it has no memory.
    pub refused: AtomicU64,
    /// Frames from Linux given to a worker.
    pub from_linux: AtomicU64,
    /// Frames from Linux dropped: no packet buffer was free, the ring to the worker was full, or the frame was not for the
    /// wire.
    pub dropped: AtomicU64,
}

/// What the thread has to know of an interface.
struct Line {
    port: PortId,
    vrf: VrfId,
    /// VLAN tags of its frames, as they stand behind the MAC addresses.
    tags: Vec<u8>,
    counters: Arc<TapCounters>,
}

/// What is told to the thread.
pub(super) enum Order {
    /// This is the tap of an interface from now on.
    Use(IfIndex, Tap),
}

/// What the thread is made of.
pub(super) struct Setup {
    pub(super) pool: &'static Pool,
    pub(super) punts: Vec<PuntLine<Mbuf>>,
    /// Rings to workers that transmit, by port.
    pub(super) rings: Vec<Option<Giver<Mbuf>>>,
    /// Flows that Linux's copies of are not for the wire.
    pub(super) forwarded: Forwarded,
    /// Counters by interface.
    pub(super) counters: Vec<Arc<TapCounters>>,
}

/// The running thread. Dropping it ends the thread.
pub(super) struct Packets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Packets {
    pub(super) fn start(
        setup: Setup,
        interfaces: &InterfaceTable,
        orders: mpsc::Receiver<Order>,
    ) -> Result<Self, HostError> {
        let stop = Arc::<AtomicBool>::default();
        let lines = lines(interfaces, &setup.counters);
        let taps = TapSet::new().map_err(HostError::Thread)?;
        let (ended, (ready, is_ready)) = (stop.clone(), mpsc::channel());
        let thread = std::thread::Builder::new()
            .name("punt".into())
            .spawn(move || {
                let registered = register_worker_thread();
                let _ = ready.send(registered.as_ref().map(|_| ()).map_err(ToString::to_string));
                if let Ok(registered) = registered {
                    Pump { taps, lines, setup, orders, buffer: vec![0; LONGEST], ready: Vec::new() }
                        .run(&ended, registered);
                }
            })
            .map_err(HostError::Thread)?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Packets { stop, thread: Some(thread) }),
            Ok(Err(why)) => Err(HostError::Thread(std::io::Error::other(why))),
            Err(_) => Err(HostError::Thread(std::io::Error::other("it ended before it began"))),
        }
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lines(interfaces: &InterfaceTable, counters: &[Arc<TapCounters>]) -> Vec<Option<Line>> {
    let mut lines: Vec<Option<Line>> = Vec::new();
    for (index, interface) in interfaces.iter() {
        let at = usize::from(index);
        lines.resize_with(lines.len().max(at + 1), || None);
        let header = Adjacency::new(index, interface, None);
        let tags = header.header.get(12..usize::from(header.header_len) - 2).unwrap_or_default().to_vec();
        let counters = counters.get(at).cloned().unwrap_or_default();
        lines[at] = Some(Line { port: interface.port, vrf: interface.vrf, tags, counters });
    }
    lines
}

struct Pump {
    taps: TapSet,
    /// By interface.
    lines: Vec<Option<Line>>,
    setup: Setup,
    orders: mpsc::Receiver<Order>,
    buffer: Vec<u8>,
    ready: Vec<u64>,
}

impl Pump {
    fn run(mut self, stop: &AtomicBool, registered: WorkerThread) {
        let mut wait = Duration::ZERO;
        while !stop.load(Ordering::Acquire) {
            while let Ok(Order::Use(index, tap)) = self.orders.try_recv() {
                if let Err(error) = self.taps.insert(index.into(), tap) {
                    warn!("a tap cannot be waited for: {error}");
                }
            }
            self.ready.clear();
            if let Err(error) = self.taps.wait(wait, &mut self.ready) {
                warn!("taps cannot be waited for: {error}");
                std::thread::sleep(WAIT);
            }
            for key in std::mem::take(&mut self.ready) {
                self.read_all(key);
            }
            wait = if self.write_all() { Duration::ZERO } else { WAIT };
        }
        // Packets go back to their pool by this thread's cache, which is given up last.
        drop(self);
        drop(registered);
    }

    /// A turn of packets from each worker. Returns whether there may be more.
    fn write_all(&mut self) -> bool {
        let mut more = false;
        for at in 0..self.setup.punts.len() {
            for turn in 0.. {
                let Some((packet, index)) = self.setup.punts.get_mut(at).and_then(PuntLine::take) else {
                    break;
                };
                self.write(&packet, index);
                more |= turn == TURN;
                if turn == TURN {
                    break;
                }
            }
        }
        more
    }

    /// Writes a packet to the tap of its interface, without VLAN tags.
    fn write(&mut self, packet: &Mbuf, index: IfIndex) {
        let Some(Some(line)) = self.lines.get(usize::from(index)) else { return };
        let l3 = usize::from(packet.meta().l3);
        let mut n = packet.copy_out(0, self.buffer.get_mut(..12).unwrap_or_default());
        n += packet.copy_out(l3.saturating_sub(2), self.buffer.get_mut(12..).unwrap_or_default());
        let sent = self.taps.get(index.into()).map(|tap| tap.send(self.buffer.get(..n).unwrap_or_default()));
        let counter = match sent {
            Some(Ok(Sent::Yes)) => &line.counters.to_linux,
            Some(Err(error)) => {
                self.failed(index, &error);
                return;
            }
            Some(Ok(Sent::Refused)) | None => &line.counters.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A tap is of no more use: it is given up. The watcher sees that it is gone as well and makes a new one.
    fn failed(&mut self, index: IfIndex, error: &TapError) {
        debug!("{error}");
        if let Some(Some(line)) = self.lines.get(usize::from(index)) {
            line.counters.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.taps.remove(index.into());
    }

    /// A turn of frames from a tap to the worker that transmits by its port.
    fn read_all(&mut self, key: u64) {
        let index = key as IfIndex;
        let Some(Some(line)) = self.lines.get(usize::from(index)) else { return };
        let mut batch = Batch::<Mbuf>::new();
        let (mut lost, mut failed) = (0, None);
        while !batch.is_full() {
            let Some(tap) = self.taps.get(key) else { return };
            match tap.receive(&mut self.buffer) {
                Ok(Some(n)) => {
                    let frame = self.buffer.get(..n).unwrap_or_default();
                    let forwarded = &self.setup.forwarded;
                    let forwarded = frame.get(12..).is_some_and(|r| is_forwarded(forwarded, line.vrf, r));
                    match packet(self.setup.pool, frame, line).filter(|_| !forwarded) {
                        Some(packet) => batch.push(packet),
                        None => lost += 1,
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(Some(ring)) = self.setup.rings.get_mut(usize::from(line.port)) {
            let given = ring.give(&mut batch) as u64;
            line.counters.from_linux.fetch_add(given, Ordering::Relaxed);
        }
        line.counters.dropped.fetch_add(lost + batch.len() as u64, Ordering::Relaxed);
        if let Some(error) = failed {
            self.failed(index, &error);
        }
    }
}

/// A frame from Linux as a packet to transmit, with its interface's tags.
fn packet(pool: &'static Pool, frame: &[u8], line: &Line) -> Option<Mbuf> {
    let (addresses, rest) = frame.split_at_checked(12)?;
    let mut parts = [addresses, &line.tags, rest];
    let mut packet = pool.alloc()?;
    fill(&mut packet, &mut parts)?;
    while parts.iter().any(|p| !p.is_empty()) {
        let mut next = pool.alloc()?;
        fill(&mut next, &mut parts)?;
        packet.chain(next).ok()?;
    }
    packet.set_rx_port(line.port);
    Some(packet)
}

/// Moves as many bytes from the front of `parts` as the packet has room for.
fn fill(packet: &mut Mbuf, parts: &mut [&[u8]; 3]) -> Option<()> {
    let wanted = parts.iter().map(|p| p.len()).sum::<usize>().min(packet.tailroom());
    let mut room = packet.append(wanted)?;
    for part in parts {
        let n = part.len().min(room.len());
        let (now, later) = part.split_at(n);
        let (to, left) = room.split_at_mut(n);
        to.copy_from_slice(now);
        (*part, room) = (later, left);
    }
    Some(())
}

/// Flows by VRF, source and group that the data plane forwards by routes of Linux.
pub(super) type Forwarded = Arc<Mutex<HashSet<(VrfId, IpAddr, IpAddr)>>>;

/// Whether this is a multicast packet that Linux forwards and the data plane has forwarded already: of these flows Linux
/// gets samples only, so that its counters and daemons know that the source is alive.
fn is_forwarded(forwarded: &Forwarded, vrf: VrfId, rest: &[u8]) -> bool {
    let Some((source, group)) = multicast_flow(rest) else { return false };
    forwarded.lock().unwrap_or_else(PoisonError::into_inner).contains(&(vrf, source, group))
}

/// Source and group of a multicast packet, from its ethertype on.
fn multicast_flow(rest: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (ethertype, l3) = rest.split_first_chunk::<2>()?;
    match u16::from_be_bytes(*ethertype) {
        eth::ETHERTYPE_IP4 => {
            let h = Ip4Header::view(l3)?;
            let (source, group) = (Ipv4Addr::from_bits(h.src.get()), Ipv4Addr::from_bits(h.dst.get()));
            group.is_multicast().then_some((source.into(), group.into()))
        }
        eth::ETHERTYPE_IP6 => {
            let h = Ip6Header::view(l3)?;
            let (source, group) = (Ipv6Addr::from(h.src), Ipv6Addr::from(h.dst));
            group.is_multicast().then_some((source.into(), group.into()))
        }
        _ => None,
    }
}
