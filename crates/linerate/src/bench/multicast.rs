//! `linerate bench multicast`: what a copy of a multicast packet costs beside the forwarding of a unicast packet.
//!
//! Everything is as in `bench forward`: `net_pcap` ports that replay frames for ever and drop what they send, workers that
//! share one CPU and take turns. One worker only moves packets (the I/O floor), one forwards unicast between the two ports
//! by 16 routes, the others replicate to eight interfaces, four VLANs on each of the two ports: one stream by port, or a
//! thousand streams whose packets alternate. The cost is CPU time of the worker's thread per packet *sent*, which is what a
//! copy is; the ratio is taken round by round.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::Args;
use ipnet::IpNet;
use linerate_engine::graphs::{io, router as router_graph};
use linerate_pipeline::{IfIndex, Interface, PortId};
use linerate_router::neighbor::NeighborOptions;
use linerate_router::{Mroute, MrouteKey, MrouteOutput, Router, RouterConfig};
use linerate_tables::fib::ip4::Ip4Fib;
use linerate_tables::fib::ip6::Ip6Fib;
use linerate_tables::qsbr::Domain;
use linerate_tester::flow::{Flow, Flows};
use linerate_tester::ip::Ip;
use serde_json::json;

use super::forward::{Bench, Contender, Table, few, hops, router as unicast_router};
use super::forward_io::{Pair, port_mac, write_pcap};
use super::report::{Host, Measured, Report};

/// Interfaces that each stream goes to.
const COPIES: u16 = 8;

/// Frames in each port's file.
const FRAMES: usize = 4096;

/// Streams per port where they alternate.
const MANY: usize = 1000;

/// What a copy may cost, in unicast packets.
const BAR: f64 = 1.0;

/// What `linerate bench multicast` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct MulticastBenchArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Rounds of every measurement; each contender has its turn once per round
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Milliseconds per window; a turn has two
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(10..))]
    window: u16,
    /// CPU of the worker; the last allowed one by default
    #[arg(long)]
    cpu: Option<usize>,
    /// The smallest frames only
    #[arg(long)]
    quick: bool,
}

/// Runs the benchmark.
pub(crate) fn run(args: MulticastBenchArgs) -> Result<()> {
    let _leaving = crate::interrupt::leave_nothing()?;
    let mut bench = Bench::start(args.cpu, args.rounds, args.window)?;
    let sizes: &[u16] = if args.quick { &[64] } else { &[64, 512, 1518] };
    for size in sizes {
        group(&mut bench, 0xc612_0000u32, 0xe801_0000u32, 24, *size)?;
    }
    for size in sizes {
        group(&mut bench, 0x2001_0db8u128 << 96, 0xff3e_u128 << 112, 64, *size)?;
    }
    finish(bench, &args)
}

/// One family and size of frame: floor, unicast, one stream, many streams, in turn.
fn group<A: Ip + Table>(bench: &mut Bench, unicast: A, groups: A, len: u8, size: u16) -> Result<()> {
    bench.serial += 1;
    let _ = writeln!(std::io::stderr(), "{}, {size} bytes: floor, unicast, multicast in turn", A::NAME);
    let routes = few(unicast, len);
    let streams = |port: PortId, n: usize| -> Vec<Flow<A>> {
        // Groups of different ports are different ones.
        let group = |i: usize| groups.step(A::BITS, 1 + u64::from(port) * 0x4000 + (i % n) as u64);
        let flow = |i| Some(Flow { destination: group(i)?, source_port: 4000, next_hop: 1 });
        (0..FRAMES).filter_map(flow).collect()
    };
    let mut real = size;
    let mut pairs = Vec::new();
    for kind in ["unicast", "one", "many"] {
        let mut files = Vec::new();
        for port in 0..2 {
            let file = bench.dir.path().join(format!("{}-{kind}-{port}.pcap", bench.serial));
            let flows = match kind {
                "unicast" => Flows::pick(&routes, hops(), FRAMES, &[], 1 + u64::from(port))?.list.to_vec(),
                "one" => streams(port, 1),
                _ => streams(port, MANY),
            };
            real = write_pcap(&file, &flows, size, port)?;
            files.push(file);
        }
        let files: [PathBuf; 2] = files.try_into().map_err(|_| anyhow!("two ports have two files"))?;
        pairs.push(Pair::open(bench.eal, bench.pool, &files, bench.serial * 10 + pairs.len())?);
    }
    let [by_unicast, by_one, by_many] = &pairs[..] else { return Err(anyhow!("three kinds of traffic")) };

    let floor = bench.contender("io", by_unicast, 0, Domain::new(), io::graph(&[1, 0])?)?;
    let domain = Domain::new();
    let mut unicast = unicast_router(domain.clone(), A::routes(&routes))?;
    let built = router_graph::graph(&parts(&unicast))?;
    unicast.tick(bench.clock.now());
    let mut all: Vec<(&Pair, usize, Contender)> = vec![(by_unicast, 0, floor)];
    all.push((by_unicast, 1, bench.contender("unicast", by_unicast, 1, domain, built.graph)?));
    let mut routers = vec![unicast];
    for (name, pair, n) in [("one stream", by_one, 1), ("many streams", by_many, MANY)] {
        let domain = Domain::new();
        let mut router = multicast_router(domain.clone())?;
        let route = |(port, flow): (PortId, Flow<A>)| {
            let (group, source) = (address(flow.destination), Some(source::<A>()));
            (MrouteKey { vrf: 0, group, source }, to_all(port))
        };
        let flows = (0..2).flat_map(|port| streams(port, n).into_iter().map(move |flow| (port, flow)));
        router.set_static_mroutes(1, flows.map(route).collect())?;
        let built = router_graph::graph(&parts(&router))?;
        all.push((pair, 0, bench.contender(name, pair, 0, domain, built.graph)?));
        routers.push(router);
    }
    for _ in 0..bench.rounds {
        for (pair, me, contender) in &mut all {
            pair.turn(*me);
            bench.measure(contender);
            pair.turn(usize::MAX);
        }
    }
    note::<A>(bench, real, &all);
    all.into_iter().try_for_each(|(_, _, contender)| contender.stop())
}

/// Takes the figures of a group down.
fn note<A: Ip>(bench: &mut Bench, size: u16, all: &[(&Pair, usize, Contender)]) {
    let [floor, unicast, streams @ ..] = all else { return };
    let costs = |c: &(&Pair, usize, Contender)| -> Vec<f64> { c.2.rates.iter().map(|r| 1e3 / r).collect() };
    let id = |what: &str| format!("multicast.{}.{size}.{what}", A::ID);
    let floor = Measured::new(id("floor"), "ns/packet", &costs(floor));
    let unicast_costs = costs(unicast);
    let mut reference = Measured::new(id("unicast"), "ns/packet", &unicast_costs);
    reference.floor = Some(floor.value);
    bench.results.extend([floor.clone(), reference]);
    for (name, contender) in ["one", "many"].iter().zip(streams) {
        let costs = costs(contender);
        let shares: Vec<f64> = costs.iter().zip(&unicast_costs).map(|(copy, packet)| copy / packet).collect();
        let mut cost = Measured::new(id(&format!("{name}.copy")), "ns/copy", &costs);
        cost.floor = Some(floor.value);
        cost.peer = Some(id("unicast"));
        let share = Measured::new(id(&format!("{name}.ratio")), "unicast packets", &shares);
        cost.ratio = Some(1.0 / share.value);
        bench.results.extend([cost, share]);
    }
}

fn finish(bench: Bench, args: &MulticastBenchArgs) -> Result<()> {
    let mut report = Report {
        host: Host::here(bench.memory.into()),
        config: json!({
            "rounds": args.rounds,
            "window_ms": args.window,
            "cpu": bench.cpu,
            "copies": COPIES,
            "streams": { "one": 1, "many": MANY },
            "devices": "two net_pcap ports, infinite_rx, transmit drops; four VLAN interfaces on each",
            "cost": "CPU time of the worker's thread per packet sent; floor is unicast with nothing in between",
        }),
        results: bench.results,
        targets: Vec::new(),
    };
    let ratios: Vec<(String, f64)> = report
        .results
        .iter()
        .filter(|r| r.id.ends_with(".one.ratio"))
        .map(|r| (format!("{}: a copy, in unicast packets", r.id), r.value))
        .collect();
    for (what, ratio) in ratios {
        report.target(&what, Some(ratio), BAR, false, "");
    }
    let mut out = std::io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => write!(out, "{}", report.text())?,
    }
    Ok(())
}

fn parts<F4, F6>(router: &Router<F4, F6>) -> router_graph::RouterParts<F4::Reader, F6::Reader>
where
    F4: linerate_tables::fib::Fib<u32>,
    F6: linerate_tables::fib::Fib<u128>,
{
    router_graph::RouterParts { plane: router.plane(), seed: 7, icmp_errors_per_second: 10, punt: None }
}

/// Two ports where streams come in, four VLANs on each where they leave.
fn multicast_router(domain: Domain) -> Result<Router<Ip4Fib, Ip6Fib>> {
    let (fib4, fib6) = (Ip4Fib::new(&domain)?, Ip6Fib::new(&domain)?);
    let mut router = Router::new(domain, fib4, fib6, NeighborOptions::default())?;
    let interface = |index: IfIndex| {
        let port: PortId = index % 2;
        let address = IpAddr::from([10, 2, index as u8, 1]);
        let nets: Vec<IpNet> = IpNet::new(address, 24).into_iter().collect();
        let vlan = (index >= 2).then_some(100 + index);
        (index, Interface { vlan, ..Interface::new(&format!("i{index}"), port, port_mac(port), 1500, &nets) })
    };
    let interfaces = (0..2 + COPIES).map(interface).collect();
    router.apply(0, RouterConfig { interfaces, ..RouterConfig::default() })?;
    Ok(router)
}

fn to_all(input: PortId) -> Mroute {
    let outputs = (2..2 + COPIES).map(|interface| MrouteOutput { interface, threshold: 0 }).collect();
    Mroute { input, outputs, to_host: false }
}

/// The source that [`write_pcap`] gives packets with source port 4000.
fn source<A: Ip>() -> IpAddr {
    match A::BITS {
        32 => IpAddr::from([10, 1, (4000u16 >> 8) as u8, 4000u16 as u8]),
        _ => IpAddr::from([0x2001, 0xdb8, 0x10, 0, 0, 0, 0, 2]),
    }
}

fn address<A: Ip>(of: A) -> IpAddr {
    let octets = of.octets();
    match A::BITS {
        32 => IpAddr::from([octets[12], octets[13], octets[14], octets[15]]),
        _ => IpAddr::from(octets),
    }
}
