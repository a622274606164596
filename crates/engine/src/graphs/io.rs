//! The raw graph: what comes in by a port goes out by another, and nothing in between. It is the I/O floor that `demo`
//! and `bench forward` compare the router with, on the same ports and queues.

use linerate_pipeline::graph::GraphError;
use linerate_pipeline::{Batch, Cx, DropReason, Exits, Graph, GraphBuilder, Node, Packet, PortId, exits};

/// The floor's graph. `to[port]` is where packets received by `port` leave; a port beyond the table is unknown to the
/// transmit side and its packets are dropped by that name.
pub fn graph<P: Packet>(to: &[PortId]) -> Result<Graph<P>, GraphError> {
    let mut g = GraphBuilder::new();
    let cross = g.declare("io_cross");
    g.define(cross, IoCross { to: to.into() }, |exit| match exit {
        IoCrossExit::Unused => DropReason::TxNoPort.into(),
    });
    g.build()
}

/// Ports joined in pairs: 0 with 1, 2 with 3 and so on. The last of an odd number sends back what it receives.
pub fn pairs(ports: usize) -> Vec<PortId> {
    (0..ports).map(|p| if p ^ 1 < ports { p ^ 1 } else { p }).map(|p| p as PortId).collect()
}

exits! {
    /// Every packet is sent, so none leaves by an exit.
    pub enum IoCrossExit {
        /// Never taken: a node has at least one exit.
        Unused,
    }
}

/// Sends each packet by the port that belongs to the one it came by.
#[derive(Debug)]
struct IoCross {
    to: Box<[PortId]>,
}

impl<P: Packet> Node<P> for IoCross {
    type Exit = IoCrossExit;

    fn process(&mut self, cx: &mut Cx<'_, P>, batch: &mut Batch<P>, _: &mut Exits<'_, P, IoCrossExit>) {
        let way = |p: &P| self.to.get(usize::from(p.rx_port())).copied().unwrap_or(PortId::MAX);
        let Some(first) = batch.first().map(way) else { return };
        if batch.iter().all(|p| way(p) == first) {
            return cx.tx.send_batch(first, batch, cx.counters);
        }
        for packet in batch.drain(..) {
            cx.tx.send(way(&packet), packet, cx.counters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_pair_up_and_the_odd_one_reflects() {
        assert_eq!(pairs(0), []);
        assert_eq!(pairs(1), [0]);
        assert_eq!(pairs(4), [1, 0, 3, 2]);
        assert_eq!(pairs(5), [1, 0, 3, 2, 4]);
    }
}
