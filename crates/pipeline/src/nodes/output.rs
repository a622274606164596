//! Output: hands packets to the transmit buffers.

use std::fmt;

use crate::node::NoExit;
use crate::{Batch, Cx, Exits, Node, Packet};

/// Sends each packet by the port in its metadata. A batch that leaves by one port goes to the device in one call.
///
/// Missing, full and downed ports are drops that [`crate::tx::TxBuffers`] counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output;

impl<P: Packet> Node<P> for Output {
    type Exit = NoExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, _: &mut Exits<'_, P, NoExit>) {
        cx.tx.send_each(batch, cx.counters);
    }

    fn trace(&self, packet: &P, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "port {}", packet.meta().tx_port)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::heap::HeapAlloc;
    use crate::io::TxQueue;
    use crate::node::run_alone;
    use crate::{DropReason, HeapPacket, PortId, TxBuffers, WorkerCounters};

    /// Notes the size of each burst and the packets' first bytes.
    #[derive(Clone, Default)]
    struct Device(Arc<Mutex<Vec<Vec<u8>>>>);

    impl TxQueue<HeapPacket> for Device {
        fn tx(&mut self, batch: &mut Batch<HeapPacket>) -> usize {
            let burst: Vec<u8> = batch.drain(..).map(|p| p.bytes()[0]).collect();
            let n = burst.len();
            self.0.lock().unwrap().push(burst);
            n
        }
    }

    fn send(ports: &[PortId]) -> ([Device; 2], Arc<WorkerCounters>) {
        let devices = [Device::default(), Device::default()];
        let counters = WorkerCounters::new();
        let (mut alloc, mut tx) = (HeapAlloc::default(), TxBuffers::new());
        devices.iter().enumerate().for_each(|(i, d)| drop(tx.attach(i as PortId, Box::new(d.clone()))));
        let packets = ports.iter().enumerate().map(|(i, port)| {
            let mut p = HeapPacket::new(&[i as u8]);
            p.meta_mut().tx_port = *port;
            counters.port(0).received.add(1);
            p
        });
        let packets = packets.collect();
        let mut cx = Cx { now: 0, cycles: || 0, counters: &counters, alloc: &mut alloc, tx: &mut tx };
        let left = run_alone(&mut Output, &mut cx, packets);
        assert!(left.passed.is_empty() && left.emitted.is_empty());
        cx.tx.flush(&counters);
        assert_eq!(counters.port(0).imbalance(), 0);
        (devices, counters)
    }

    #[test]
    fn one_port_takes_the_batch_in_one_call() {
        let (devices, counters) = send(&[1; 40]);
        assert_eq!(*devices[1].0.lock().unwrap(), [(0..40).collect::<Vec<u8>>()]);
        assert_eq!(counters.port(1).tx_packets.get(), 40);
    }

    #[test]
    fn a_mixed_batch_keeps_order_per_port_and_counts_missing_ports() {
        let (devices, counters) = send(&[0, 1, 1, 5, 0]);
        assert_eq!(devices[0].0.lock().unwrap().concat(), [0, 4]);
        assert_eq!(devices[1].0.lock().unwrap().concat(), [1, 2]);
        assert_eq!(counters.drops(DropReason::TxNoPort), 1);
    }
}
