//! Which worker polls which receive queue, and who has a transmit queue of its own.

use crate::desired::PortSpec;

/// Worker of each receive queue, by port. Queues without a configured worker are dealt out in turn, over all ports, so
/// that no worker gets more than one queue above another.
pub(super) fn receive(ports: &[PortSpec], workers: usize) -> Vec<Vec<usize>> {
    let mut next = 0;
    let mut deal = || {
        next += 1;
        (next - 1) % workers.max(1)
    };
    ports
        .iter()
        .map(|p| match p.queue_workers.is_empty() {
            true => (0..p.rx_queues).map(|_| deal()).collect(),
            false => p.queue_workers.clone(),
        })
        .collect()
}

/// Transmit queues to ask a device for: one per worker where it has as many. Workers without one hand over.
pub(super) fn transmit_queues(workers: usize, device_has: u16) -> u16 {
    u16::try_from(workers).unwrap_or(u16::MAX).min(device_has).max(1)
}

/// Rings between workers at most: for flow spreading one for each pair of workers, for transmission one for each worker
/// without a queue of a port.
pub(super) fn rings(ports: &[PortSpec], workers: usize) -> usize {
    let spread = ports.iter().any(|p| !p.spread.is_empty());
    let pairs = workers.saturating_sub(1);
    (if spread { workers * pairs } else { 0 }) + ports.len() * pairs
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::port;
    use super::*;

    #[test]
    fn queues_are_dealt_evenly_unless_configured() {
        let ports = |queues: &[u16]| -> Vec<_> {
            queues.iter().map(|q| PortSpec { rx_queues: *q, ..port("p", "net_null0") }).collect()
        };
        assert_eq!(receive(&ports(&[1, 1]), 2), [[0], [1]]);
        assert_eq!(receive(&ports(&[3, 2]), 2), [vec![0, 1, 0], vec![1, 0]]);
        let mut set = ports(&[2, 2]);
        set[0].queue_workers = vec![1, 1];
        assert_eq!(receive(&set, 2), [[1, 1], [0, 1]]);
        assert_eq!((transmit_queues(4, 2), transmit_queues(2, 16), transmit_queues(1, 0)), (2, 2, 1));
        assert_eq!(rings(&set, 3), 4);
        set[1].spread = vec![0, 1, 2];
        assert_eq!((rings(&set, 3), rings(&set, 1)), (10, 0));
    }
}
