//! The engine's instance as the API sees it.

mod multicast;
mod router;

use linerate_engine::desired::{Desired, InterfaceSpec};
use linerate_engine::instance::{Instance, Product, StartError, StopError};
use linerate_engine::workers::MoveError;
use linerate_pipeline::PortId;
use linerate_pipeline::trace::Hop;

use crate::api::mac;
use crate::dataplane::{Dataplane, Moved, PortView, QueueView, Refused, WorkerView};
use crate::show::fib::Fib;
use crate::show::interfaces::Interface;
use crate::show::multicast::{MulticastQuery, MulticastRoutes};
use crate::show::neighbors::Neighbor;
use crate::show::router::Router;
use crate::show::routes::{RouteQuery, Routes};

/// A running router.
pub struct Running {
    instance: Instance,
    interfaces: Vec<InterfaceSpec>,
}

impl Running {
    /// Starts a router and returns when packets flow.
    pub fn start(desired: &Desired) -> Result<Self, StartError> {
        let instance = Instance::start(desired, Product::Router)?;
        Ok(Running { instance, interfaces: desired.interfaces.clone() })
    }

    /// Ends it and leaves nothing behind.
    pub fn stop(&self) -> Result<(), StopError> {
        self.instance.stop()
    }
}

impl Dataplane for Running {
    fn clock_hz(&self) -> u64 {
        self.instance.clock().hz()
    }

    fn workers(&self) -> Vec<WorkerView> {
        let view = |w: &linerate_engine::workers::WorkerView| WorkerView {
            cpu: w.cpu,
            thread: w.thread,
            counters: w.counters.clone(),
            nodes: w.nodes.clone(),
            description: w.description.clone(),
        };
        self.instance.workers().iter().map(view).collect()
    }

    fn ports(&self) -> Vec<PortView> {
        let view = |p: linerate_engine::instance::status::PortStatus| PortView {
            name: p.name,
            device: p.device,
            driver: p.driver,
            mac: p.mac,
            up: p.up,
            speed_mbps: p.speed_mbps,
            mtu: p.mtu,
            promiscuous: p.promiscuous,
            rx_queues: p.rx_queues,
            tx_queues: p.tx_queues,
            rx_missed: p.rx_missed,
            rx_errors: p.rx_errors,
            rx_no_buffer: p.rx_no_buffer,
            tx_errors: p.tx_errors,
            notes: p.notes,
        };
        self.instance.ports().into_iter().map(view).collect()
    }

    fn queues(&self) -> Vec<QueueView> {
        let view = |q: linerate_engine::workers::QueuePlace| QueueView {
            port: q.port,
            queue: q.queue,
            worker: q.worker,
            packets: q.counters.packets.get(),
        };
        self.instance.queues().into_iter().map(view).collect()
    }

    fn longest_gap(&self) -> u64 {
        self.instance.longest_gap()
    }

    fn interfaces(&self) -> Vec<Interface> {
        let ports = self.instance.ports();
        let view = |i: &InterfaceSpec| {
            let port = ports.iter().find(|p| p.name == i.port);
            Interface {
                name: i.name.clone(),
                port: i.port.clone(),
                vlan: i.vlan,
                inner_vlan: i.inner_vlan,
                mac: mac(i.mac.or(port.map(|p| p.mac)).unwrap_or_default()),
                mtu: i.mtu.or(port.map(|p| p.mtu)).unwrap_or_default(),
                admin_up: i.up,
                link_up: port.is_some_and(|p| p.up),
                addresses: i.addresses.iter().map(ToString::to_string).collect(),
            }
        };
        self.interfaces.iter().map(view).collect()
    }

    fn neighbors(&self) -> Vec<Neighbor> {
        self.instance.with_router(|router, _| router::neighbors(router)).unwrap_or_default()
    }

    fn multicast_routes(&self, query: &MulticastQuery) -> Result<MulticastRoutes, Refused> {
        self.instance
            .with_router(|router, now| multicast::routes(router, query, now))
            .unwrap_or_else(|| Ok(MulticastRoutes::default()))
    }

    fn router(&self) -> Router {
        let mut figures = self.instance.with_router(|router, _| router::figures(router)).unwrap_or_default();
        figures.lost.events = self.instance.lost_events();
        figures
    }

    fn fibs(&self) -> Vec<Fib> {
        self.instance.with_router(|router, _| router::fibs(router)).unwrap_or_default()
    }

    fn routes(&self, query: &RouteQuery) -> Result<Routes, Refused> {
        self.instance
            .with_router(|router, _| router::routes(router, query))
            .unwrap_or_else(|| Ok(Routes::default()))
    }

    fn move_queue(&self, port: PortId, queue: u16, worker: usize) -> Result<Moved, Refused> {
        let moved = self.instance.move_queue(port, queue, worker)?;
        Ok(Moved { from: moved.from, gap: moved.gap })
    }

    fn trace(&self, packets: u32, port: Option<PortId>) -> Result<(), Refused> {
        Ok(self.instance.trace(packets, port)?)
    }

    fn take_trace(&self) -> Vec<(usize, Hop)> {
        self.instance.take_trace()
    }
}

impl From<MoveError> for Refused {
    fn from(error: MoveError) -> Self {
        Refused(error.to_string())
    }
}
