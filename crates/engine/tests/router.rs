//! The router in an instance on ring ports: forwarding, neighbour resolution, links, and route changes under load.
//! DPDK starts once per process: run these with nextest.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_dpdk::{Eal, Mbuf, Pool, PoolConfig, Port, RxQueue, Started, TxQueue};
use linerate_engine::desired::{
    Desired, DpdkSpec, IdleSpec, InterfaceSpec, IpPolicy, MemorySpec, NeighborSpec, Path, PortSpec,
    RouteAction, RouteSpec, WorkerSpec,
};
use linerate_engine::instance::{Instance, Product};
use linerate_linux::thread as os;
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, DropReason, Packet};
use linerate_router::Source;
use linerate_router::neighbor::NeighborState;
use linerate_router::show::RouteFilter;

const TESTER: [u8; 6] = [2, 0, 0, 0, 9, 9];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 1, 2];

fn interface(n: u8, up: bool) -> InterfaceSpec {
    InterfaceSpec {
        name: format!("if{n}"),
        port: format!("p{n}"),
        vlan: None,
        inner_vlan: None,
        mac: Some([2, 0, 0, 0, 0, n]),
        mtu: None,
        addresses: vec![
            format!("10.0.{n}.1/24").parse().unwrap(),
            format!("2001:db8:{n}::1/64").parse().unwrap(),
        ],
        up,
        acl_in: None,
        acl_out: None,
        vrf: None,
        policy: IpPolicy::default(),
    }
}

fn via(gateway: &str) -> Arc<RouteAction> {
    let gateway = Some(gateway.parse().unwrap());
    Arc::new(RouteAction::Forward(vec![Path { gateway, interface: None, weight: 1, vrf: None }]))
}

/// Two ports, two networks, a static gateway behind the second, and some routes by it.
fn desired(workers: usize) -> Desired {
    let cpus: Vec<usize> = os::allowed_cpus().unwrap().iter().collect();
    let port = |n: u8| PortSpec {
        name: format!("p{n}"),
        device: format!("ring:p{n}"),
        rx_queues: 1,
        queue_workers: vec![],
        spread: if workers > 1 { (0..workers).collect() } else { vec![] },
        rx_descriptors: 1024,
        tx_descriptors: 1024,
        mtu: 1500,
        promiscuous: false,
    };
    let route = |prefix: &str, action: &Arc<RouteAction>| RouteSpec {
        vrf: None,
        prefix: prefix.parse().unwrap(),
        action: action.clone(),
    };
    let gateway = via("10.0.1.2");
    Desired {
        multicast_routes: Vec::new(),
        linux: None,
        vrfs: Vec::new(),
        dpdk: DpdkSpec {
            file_prefix: format!("router-test-{}", std::process::id()),
            memory: MemorySpec::NoHuge { megabytes: 192 },
            control_cpu: cpus[0],
            ..DpdkSpec::default()
        },
        workers: (0..workers)
            .map(|i| WorkerSpec { cpu: cpus[cpus.len() - 1 - i], idle: IdleSpec::default() })
            .collect(),
        ports: vec![port(0), port(1)],
        interfaces: vec![interface(0, true), interface(1, true)],
        routes: vec![
            route("198.18.0.0/15", &gateway),
            route("198.18.7.0/24", &Arc::new(RouteAction::Blackhole)),
            route("2001:db8:100::/40", &via("2001:db8:1::2")),
        ],
        neighbors: ["10.0.1.2", "2001:db8:1::2"]
            .map(|a| NeighborSpec { interface: "if1".into(), address: a.parse().unwrap(), mac: GATEWAY })
            .into(),
        acls: Vec::new(),
        icmp_errors_per_second: 100,
    }
}

struct Lab {
    instance: Instance,
    pool: &'static Pool,
    ends: Vec<(Port<Started>, RxQueue, TxQueue)>,
}

impl Lab {
    fn new(desired: &Desired) -> Self {
        let instance = Instance::start(desired, Product::Router).unwrap();
        let config = PoolConfig { name: "tester".into(), size: 4095, ..PoolConfig::default() };
        let pool = Pool::create(Eal::get().unwrap(), &config).unwrap();
        let ends = ["p0", "p1"].map(|name| {
            let (port, mut rx, mut tx) = instance.take_peer(name).unwrap().start(1500, pool).unwrap();
            (port, rx.remove(0), tx.remove(0))
        });
        Lab { instance, pool, ends: ends.into() }
    }

    fn send(&mut self, port: usize, frame: &[u8]) {
        let mut m = self.pool.alloc().unwrap();
        m.append(frame.len()).unwrap().copy_from_slice(frame);
        let mut batch = Batch::<Mbuf>::new();
        batch.push(m);
        while self.ends[port].2.tx(&mut batch) == 0 {}
    }

    fn receive(&mut self, port: usize) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.ends[port].1.rx(&mut batch);
        batch.iter().map(|m| m.head().to_vec()).collect()
    }

    /// What comes out of a port within ten seconds, at least one frame.
    fn wait(&mut self, port: usize) -> Vec<Vec<u8>> {
        let start = Instant::now();
        loop {
            let frames = self.receive(port);
            if !frames.is_empty() {
                return frames;
            }
            assert!(start.elapsed().as_secs() < 10, "nothing came out of port {port}");
            std::thread::yield_now();
        }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.instance.drops().iter().filter(|d| d.reason == reason).map(|d| d.packets).sum()
    }

    fn end(self) {
        let Lab { instance, ends, .. } = self;
        drop(ends);
        instance.stop().unwrap();
        assert_eq!(instance.imbalance(), []);
    }
}

/// A UDP/IPv4 frame to router port 0, checksum right.
fn udp(destination: Ipv4Addr, id: u16) -> Vec<u8> {
    let mut f = vec![0u8; 60];
    f[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0]);
    f[6..12].copy_from_slice(&TESTER);
    f[12..14].copy_from_slice(&[8, 0]);
    f[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    f[18..20].copy_from_slice(&id.to_be_bytes());
    f[26..30].copy_from_slice(&[10, 0, 0, 9]);
    f[30..34].copy_from_slice(&destination.octets());
    f[34..38].copy_from_slice(&[0x13, 0x88, 0x17, 0x70]);
    let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

fn id(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[18], frame[19]])
}

#[test]
fn packets_are_routed_and_drops_have_names() {
    let mut lab = Lab::new(&desired(1));
    lab.send(0, &udp(Ipv4Addr::new(198, 18, 1, 1), 7));
    let out = lab.wait(1);
    let (frame, sent) = (&out[0], udp(Ipv4Addr::new(198, 18, 1, 1), 7));
    assert_eq!((&frame[..6], &frame[6..12]), (&GATEWAY[..], &[2, 0, 0, 0, 0, 1][..]));
    assert_eq!((frame[22], &frame[26..]), (63, &sent[26..]));
    lab.send(0, &udp(Ipv4Addr::new(198, 18, 7, 1), 8));
    common::wait_for("the blackhole", || lab.drops(DropReason::RouteBlackhole) == 1);
    let routes = lab.instance.with_router(|r, _| r.routes(&RouteFilter::default())).unwrap();
    assert!(routes.iter().any(|r| r.prefix.to_string() == "198.18.0.0/15" && r.best));
    assert_eq!(lab.instance.workers()[0].description.nodes[0].name, "express");
    lab.end();
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_no_packet_is_lost() {
    let mut lab = Lab::new(&desired(1));
    for i in 0..5 {
        lab.send(0, &udp(Ipv4Addr::new(10, 0, 1, 77), i));
    }
    let request = lab.wait(1).remove(0);
    assert_eq!((&request[..6], &request[12..14]), (&[0xff; 6][..], &[8, 6][..]));
    assert_eq!(&request[38..42], &[10, 0, 1, 77]);
    let host = [2, 0, 0, 0, 1, 77];
    let mut reply = vec![0u8; 60];
    reply[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    reply[6..12].copy_from_slice(&host);
    reply[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    reply[22..28].copy_from_slice(&host);
    reply[28..32].copy_from_slice(&[10, 0, 1, 77]);
    reply[32..38].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    reply[38..42].copy_from_slice(&[10, 0, 1, 1]);
    lab.send(1, &reply);
    let mut out = Vec::new();
    let start = Instant::now();
    while out.len() < 5 {
        out.extend(lab.receive(1).into_iter().filter(|f| f[12..14] == [8, 0]));
        assert!(start.elapsed().as_secs() < 10, "{} of 5 packets came out", out.len());
    }
    assert_eq!(out.iter().map(|f| id(f)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(out.iter().all(|f| f[..6] == host));
    let state = lab.instance.with_router(|r, _| {
        r.neighbors().find(|n| n.address.to_string() == "10.0.1.77").map(|n| (n.mac, n.state))
    });
    assert_eq!(state.flatten(), Some((Some(host), NeighborState::Reachable)));
    lab.end();
}

#[test]
fn control_asks_for_gateways_of_routes_through_a_worker() {
    let mut d = desired(1);
    d.routes.push(RouteSpec {
        vrf: None,
        prefix: "203.0.113.0/24".parse().unwrap(),
        action: via("10.0.1.50"),
    });
    let mut lab = Lab::new(&d);
    // Nobody has sent a packet: the route alone makes control ask, in a probe that a worker sends.
    let start = Instant::now();
    loop {
        let frames = lab.wait(1);
        if frames.iter().any(|f| f[12..14] == [8, 6] && f[38..42] == [10, 0, 1, 50]) {
            break;
        }
        assert!(start.elapsed().as_secs() < 10, "no ARP request for the gateway");
    }
    assert_eq!(lab.instance.lost_events(), 0);
    lab.end();
}

#[test]
fn packets_that_wait_for_a_neighbour_are_given_back_at_the_end() {
    let mut lab = Lab::new(&desired(1));
    for i in 0..20 {
        lab.send(0, &udp(Ipv4Addr::new(10, 0, 1, 99), i));
    }
    lab.wait(1);
    let counters = lab.instance.workers()[0].counters.clone();
    common::wait_for("all packets wait", || counters.port(0).held.get() == 20);
    lab.end();
    assert_eq!(counters.port(0).held.get(), 0);
    assert_eq!(counters.drops(DropReason::Shutdown), 20);
}

/// Ends the other thread of a test.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn flapping_routes_lose_no_packet_of_others() {
    let workers = os::allowed_cpus().unwrap().len().min(2);
    let lab = Lab::new(&desired(workers));
    let done = AtomicBool::new(false);
    let Lab { instance, pool, mut ends } = lab;
    let flaps = std::thread::scope(|s| {
        let churn = s.spawn(|| {
            let mut random = common::Random(11);
            let mut flaps = 0u64;
            let gateway = linerate_router::RouteAction::via("10.0.1.2".parse().unwrap());
            while !done.load(Ordering::Relaxed) {
                // Half of 198.18.0.0/15 changes all the time; 198.19.0.0/16 is covered by the /15 throughout.
                let prefix = ipnet::Ipv4Net::new(
                    Ipv4Addr::from_bits(0xc612_0000 | random.below(1 << 16) as u32),
                    17 + random.below(16) as u8,
                )
                .unwrap()
                .trunc();
                let insert = random.below(2) == 0;
                instance.with_router(|r, now| {
                    match insert {
                        true => r.insert(now, 0, Source::Learned, prefix.into(), &gateway).map(|()| true),
                        false => r.withdraw(now, 0, Source::Learned, prefix.into()),
                    }
                    .unwrap()
                });
                flaps += 1;
            }
            flaps
        });
        // Also where a check below fails: else the scope would wait for ever.
        let _ends = SetOnDrop(&done);
        let (mut sent, mut seen) = (0u32, 0u32);
        let start = Instant::now();
        let more = |sent| start.elapsed() < Duration::from_secs(3) || sent < 5000;
        while more(sent) || seen < sent {
            if more(sent) && sent - seen < 256 {
                let mut batch = Batch::<Mbuf>::new();
                for _ in 0..32 {
                    let destination =
                        Ipv4Addr::from_bits(0xc613_0000 | (sent.wrapping_mul(2_654_435_761) >> 16));
                    let frame = udp(destination, sent as u16);
                    let mut m = pool.alloc().unwrap();
                    m.append(frame.len()).unwrap().copy_from_slice(&frame);
                    batch.push(m);
                    sent += 1;
                }
                while !batch.is_empty() {
                    ends[0].2.tx(&mut batch);
                }
            }
            let mut batch = Batch::new();
            seen += ends[1].1.rx(&mut batch) as u32;
            for m in &batch {
                assert_eq!(m.head()[..6], GATEWAY, "a packet went another way");
            }
            assert!(start.elapsed().as_secs() < 60, "{} of {sent} packets lost", sent - seen);
        }
        done.store(true, Ordering::Relaxed);
        churn.join().unwrap()
    });
    assert!(flaps > 200, "hardly any change: {flaps}");
    assert_eq!(instance.drops(), []);
    Lab { instance, pool, ends }.end();
}

#[test]
fn what_the_router_cannot_be_is_said_before_anything_is_touched() {
    type Change = fn(&mut Desired);
    let cases: &[(Change, &str)] = &[
        (
            |d| {
                let action = Arc::new(RouteAction::Forward(vec![]));
                d.routes.push(RouteSpec { vrf: None, prefix: "203.0.113.0/24".parse().unwrap(), action });
            },
            "203.0.113.0/24",
        ),
        (|d| d.interfaces[1].port = "p7".into(), "interface `if1` is on port `p7`, which does not exist"),
        (|d| d.interfaces[1].port = "p0".into(), "if1"),
        (
            |d| d.neighbors[0].interface = "if9".into(),
            "a route or neighbour names interface `if9`, which does not exist",
        ),
    ];
    for (change, words) in cases {
        let mut wrong = desired(1);
        change(&mut wrong);
        let error = Instance::start(&wrong, Product::Router).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    // DPDK starts once per process: that it still can shows that nothing was touched.
    assert!(Eal::get().is_none());
    Lab::new(&desired(1)).end();
}
