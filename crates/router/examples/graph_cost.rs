//! What the router's graph costs per packet without any I/O: for callgrind (instructions, repeatable to the digit) and
//! for the clock.
//!
//! ```text
//! cargo build --release -p linerate-router --example graph_cost
//! valgrind --tool=callgrind --toggle-collect='*Graph*run*' target/release/examples/graph_cost ip4 200
//! target/release/examples/graph_cost ip4 100000
//! ```
//!
//! Arguments: `ip4`, `ip6` or `vlan`, and how many batches of 64 packets. Packets are recycled, so neither allocation
//! nor copying counts; the FIB is one array load, so that what is measured is the nodes.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use linerate_pipeline::interface::{Interface, InterfaceTable};
use linerate_pipeline::io::TxQueue;
use linerate_pipeline::{BURST, Batch, Cx, Graph, Meta, Packet, PortId, TxBuffers, WorkerCounters};
use linerate_router::acl::AclWriter;
use linerate_router::graph::{Events, Parts, assemble};
use linerate_router::multicast::control::MulticastControl;
use linerate_router::plane::{Adjacency, FibSet, NextHop, Plane, PlaneWriter};
use linerate_tables::fib::{Lookup, NextHopId};
use linerate_tables::qsbr::Domain;
use linerate_tables::snapshot::Publisher;
use linerate_wire::ip4::{self, Ip4Header};
use linerate_wire::ip6::Ip6Header;
use linerate_wire::{Mac, eth};
use zerocopy::IntoBytes;

/// A packet in one fixed buffer, its accessors as cheap as an mbuf's.
struct Frame(Box<Inner>);

#[repr(align(64))]
struct Inner {
    meta: Meta,
    rx_port: PortId,
    trace_id: u32,
    start: u16,
    len: u16,
    buffer: [u8; 256],
}

const HEADROOM: u16 = 64;

impl Frame {
    fn bounds(&self) -> std::ops::Range<usize> {
        let start = usize::from(self.0.start);
        start..start + usize::from(self.0.len)
    }
}

impl Packet for Frame {
    type Shared = Self;
    fn meta(&self) -> &Meta {
        &self.0.meta
    }
    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.0.meta
    }
    fn rx_port(&self) -> PortId {
        self.0.rx_port
    }
    fn set_rx_port(&mut self, port: PortId) {
        self.0.rx_port = port;
    }
    fn trace_id(&self) -> u32 {
        self.0.trace_id
    }
    fn set_trace_id(&mut self, id: u32) {
        self.0.trace_id = id;
    }
    #[inline(always)]
    fn len(&self) -> usize {
        usize::from(self.0.len)
    }
    #[inline(always)]
    fn head(&self) -> &[u8] {
        self.0.buffer.get(self.bounds()).unwrap_or_default()
    }
    #[inline(always)]
    fn head_mut(&mut self) -> &mut [u8] {
        let bounds = self.bounds();
        self.0.buffer.get_mut(bounds).unwrap_or_default()
    }
    #[inline(always)]
    fn split_mut(&mut self) -> (&mut [u8], &mut Meta) {
        let bounds = self.bounds();
        let inner = &mut *self.0;
        (inner.buffer.get_mut(bounds).unwrap_or_default(), &mut inner.meta)
    }
    fn segments(&self) -> usize {
        1
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        (i == 0).then(|| self.head())
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        (i == 0).then(|| self.head_mut())
    }
    fn pull(&mut self, n: usize) -> Option<&mut [u8]> {
        (n <= self.len()).then(|| self.head_mut())
    }
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        self.0.start = self.0.start.checked_sub(n as u16)?;
        self.0.len += n as u16;
        Some(self.head_mut())
    }
    fn trim_front(&mut self, n: usize) -> bool {
        let fits = n <= self.len();
        if fits {
            self.0.start += n as u16;
            self.0.len -= n as u16;
        }
        fits
    }
    fn append(&mut self, _: usize) -> Option<&mut [u8]> {
        None
    }
    fn truncate(&mut self, len: usize) -> bool {
        self.0.len = self.0.len.min(len as u16);
        true
    }
    fn chain(&mut self, tail: Self) -> Result<(), Self> {
        Err(tail)
    }
    fn share(self, _: u16) -> Self {
        self
    }
    fn attach(&mut self, _: &mut Self) -> bool {
        false
    }
}

/// The upper bits of the address are the next hop.
#[derive(Clone)]
struct Direct;

impl Lookup<u32> for Direct {
    fn lookup_batch(&self, addrs: &[u32], out: &mut [NextHopId]) {
        addrs.iter().zip(out).for_each(|(a, o)| *o = (a >> 8 & 15) + 1);
    }
}

impl Lookup<u128> for Direct {
    fn lookup_batch(&self, addrs: &[u128], out: &mut [NextHopId]) {
        addrs.iter().zip(out).for_each(|(a, o)| *o = (*a as u32 >> 8 & 15) + 1);
    }
}

/// Keeps what is sent, so that it can be received again.
struct Loop(Arc<Mutex<Batch<Frame>>>);

impl TxQueue<Frame> for Loop {
    fn tx(&mut self, batch: &mut Batch<Frame>) -> usize {
        let n = batch.len();
        std::mem::swap(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), batch);
        n
    }
}

const US: [Mac; 2] = [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]];

fn frame(kind: &str, i: u32) -> Vec<u8> {
    let l3 = match kind {
        "ip6" => {
            let mut dst = [0x20; 16];
            dst[14] = i as u8 & 15;
            [Ip6Header::new([0x20; 16], dst, ip4::UDP, 64, 8).as_bytes(), &[0; 8]].concat()
        }
        _ => [Ip4Header::new(0x0a00_0009, 0xc612_0000 | i << 8, ip4::UDP, 64, 26).as_bytes(), &[0; 26]]
            .concat(),
    };
    let ethertype = if kind == "ip6" { eth::ETHERTYPE_IP6 } else { eth::ETHERTYPE_IP4 };
    let tag: &[u8] = if kind == "vlan" { &[0x81, 0, 0xa0, 7] } else { &[] };
    [&US[0][..], &[2, 0, 0, 0, 9, 9], tag, &ethertype.to_be_bytes(), &l3].concat()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_else(|| "ip4".into());
    let batches: u64 = args.next().map_or(Ok(100_000), |n| n.parse())?;

    let nets = |i: u8| [format!("10.0.{i}.1/24"), format!("2001:db8:{i}::1/64")];
    let interface = |i: u8, vlan| -> Result<Interface, Box<dyn std::error::Error>> {
        let nets = nets(i).iter().map(|n| n.parse()).collect::<Result<Vec<_>, _>>()?;
        Ok(Interface {
            vlan,
            ..Interface::new("x", u16::from(i.min(1)), US[usize::from(i.min(1))], 1500, &nets)
        })
    };
    let vlan = interface(2, Some(7)).map(|i| Interface { port: 0, mac: US[0], ..i })?;
    let table = InterfaceTable::build([(0, interface(0, None)?), (1, interface(1, None)?), (2, vlan)])?;
    let mut next_hops = PlaneWriter::new(Domain::new())?;
    for i in 0..16 {
        let out = table.get(1).ok_or("no interface")?;
        let a = Adjacency::new(1, out, Some([2, 0, 0, 0, 9, i]));
        let a = next_hops.add_adjacency(&a, None)?;
        next_hops.add(NextHop::Forward(a))?;
    }
    let interfaces = Publisher::new(table);
    let vrfs = Publisher::new(FibSet::new([Some(Direct), Some(Direct)]));
    let plane = Plane {
        fib4: Direct,
        fib6: Direct,
        vrfs4: vrfs.reader(),
        vrfs6: vrfs.reader(),
        next_hops: next_hops.reader(),
        interfaces: interfaces.reader(),
        acls: AclWriter::default().reader(),
        multicast: MulticastControl::default().reader(),
    };
    let mut graph: Graph<Frame> = assemble(Parts {
        plane,
        seed: 1,
        icmp_errors_per_second: 0,
        hold: Default::default(),
        events: Events {
            arp: Box::new(|_| ()),
            nd: Box::new(|_| ()),
            resolve: Box::new(|_| ()),
            acl: Box::new(|_| ()),
        },
        punt: None,
    })?;

    let sent = Arc::new(Mutex::new(Batch::new()));
    let mut tx = TxBuffers::new();
    tx.attach(1, Box::new(Loop(sent.clone())));
    let counters = WorkerCounters::new();
    let frames: Vec<_> = (0..BURST as u32).map(|i| frame(&kind, i)).collect();
    let mut batch: Box<Batch<Frame>> = Box::default();
    for bytes in &frames {
        let mut inner = Inner {
            meta: Meta::default(),
            rx_port: 0,
            trace_id: 0,
            start: HEADROOM,
            len: bytes.len() as u16,
            buffer: [0; 256],
        };
        inner.buffer[usize::from(HEADROOM)..][..bytes.len()].copy_from_slice(bytes);
        batch.push(Frame(Box::new(inner)));
    }

    let mut alloc = NoAlloc;
    let start = Instant::now();
    for _ in 0..batches {
        for (packet, bytes) in batch.iter_mut().zip(&frames) {
            let inner = &mut *packet.0;
            (inner.meta, inner.start, inner.len) = (Meta::default(), HEADROOM, bytes.len() as u16);
            inner.buffer[usize::from(HEADROOM)..][..bytes.len()].copy_from_slice(bytes);
        }
        let mut cx = Cx { now: 0, cycles: || 0, counters: &counters, alloc: &mut alloc, tx: &mut tx };
        graph.run(&mut cx, &mut batch);
        tx.flush(&counters);
        std::mem::swap(&mut *batch, &mut *sent.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let took = start.elapsed();
    let packets = batches * BURST as u64;
    assert_eq!(
        counters.port(1).tx_packets.get(),
        packets,
        "every packet is forwarded: {:?}",
        counters.port(0)
    );
    println!(
        "{kind}: {packets} packets, {:.2} ns each (reset included)",
        took.as_nanos() as f64 / packets as f64
    );
    Ok(())
}

struct NoAlloc;

impl linerate_pipeline::PacketAlloc<Frame> for NoAlloc {
    fn alloc(&mut self) -> Option<Frame> {
        None
    }
}
