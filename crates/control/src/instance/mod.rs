//! The engine's instance as the API sees it.

mod linux;
mod multicast;
mod router;

use linerate_engine::desired::{Desired, InterfaceSpec};
use linerate_engine::instance::{Instance, Product, StartError, StopError};
use linerate_engine::workers::MoveError;
use linerate_pipeline::trace::Hop;
use linerate_pipeline::{IfIndex, PortId};

use crate::api::mac;
use crate::dataplane::{Dataplane, Moved, PortView, QueueView, Refused, WorkerView};
use crate::show::acls::{Acl, AclSample};
use crate::show::conflicts::Conflict;
use crate::show::fib::Fib;
use crate::show::interfaces::Interface;
use crate::show::linux::{Linux, Punt};
use crate::show::multicast::{MulticastQuery, MulticastRoutes};
use crate::show::neighbors::Neighbor;
use crate::show::router::Router;
use crate::show::routes::{RouteQuery, Routes};
use crate::show::vrfs::Vrf;

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
        let admin_up: Vec<bool> =
            (0..self.interfaces.len()).map(|at| self.instance.is_admin_up(at as IfIndex)).collect();
        // As the router has them: Linux may have changed MAC address, MTU and addresses since the start.
        let view = |(at, i): (usize, &InterfaceSpec), own: Option<&linerate_pipeline::Interface>| Interface {
            name: i.name.clone(),
            port: i.port.clone(),
            vlan: i.vlan,
            inner_vlan: i.inner_vlan,
            mac: mac(own.map(|o| o.mac).unwrap_or_default()),
            mtu: own.map_or(0, |o| o.mtu),
            admin_up: admin_up.get(at).copied().unwrap_or(i.up),
            link_up: ports.iter().find(|p| p.name == i.port).is_some_and(|p| p.up),
            addresses: own.map_or(Vec::new(), |o| {
                o.ip4.iter().map(ToString::to_string).chain(o.ip6.iter().map(ToString::to_string)).collect()
            }),
            acl_in: i.acl_in.clone(),
            acl_out: i.acl_out.clone(),
            vrf: i.vrf.clone(),
        };
        let all = self.instance.with_router(|router, _| {
            let of = |(at, i)| view((at, i), router.interfaces().get(at as IfIndex));
            self.interfaces.iter().enumerate().map(of).collect()
        });
        all.unwrap_or_default()
    }

    fn linux(&self) -> Linux {
        let name = |at: usize| self.interfaces.get(at).map(|i| i.name.clone());
        self.instance.linux().map(|view| linux::linux(view, name)).unwrap_or_default()
    }

    fn punt(&self) -> Punt {
        self.instance.linux().map(linux::punt).unwrap_or_default()
    }

    fn neighbors(&self) -> Vec<Neighbor> {
        self.instance.with_router(|router, _| router::neighbors(router)).unwrap_or_default()
    }

    fn conflicts(&self) -> Vec<Conflict> {
        self.instance.with_router(router::conflicts).unwrap_or_default()
    }

    fn acls(&self, name: Option<&str>) -> Result<Vec<Acl>, Refused> {
        self.instance.with_router(|router, _| router::acls(router, name)).unwrap_or_else(|| Ok(Vec::new()))
    }

    fn acl_log(&self) -> Vec<AclSample> {
        self.instance.with_router(|router, now| router::acl_log(router, now)).unwrap_or_default()
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

    fn vrfs(&self) -> Vec<Vrf> {
        self.instance.with_router(|router, _| router::vrfs(router)).unwrap_or_default()
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
