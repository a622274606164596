//! `linerate bench acl --forward`: what access lists cost a router that forwards.
//!
//! As `bench forward`: two ports that replay preloaded frames for ever, and workers that take turns on one CPU. Here all are
//! routers with the same full table; one has no list, the others have one on both interfaces. Rules are generated in the
//! manner of ClassBench, one in four denies; the traffic is spread over all rules that permit, each alike, so that every
//! packet is forwarded, whoever has the turn.

use anyhow::{Result, anyhow};
use ipnet::IpNet;
use linerate_engine::graphs::{io, router as router_graph};
use linerate_pipeline::IfIndex;
use linerate_router::acl::{Acl, AclAction, AclBinding, AclRule};
use linerate_tables::classifier::synthetic::{self, Drawn, Profile, Rng, Tuple};
use linerate_tables::classifier::{ALL_PORTS, Rule};
use linerate_tables::prefix::Prefix;
use linerate_tables::qsbr::Domain;
use linerate_tester::ip::Ip;
use linerate_tester::table::{self, NEXT_HOPS, Routes};
use serde_json::json;

use super::acl::AclBenchArgs;
use super::forward::{Bench, Table, router};
use super::forward_io::{Pair, write_tuples};
use super::report::Measured;

/// Frames per port: beyond the L2 cache, as the rules and the table are spread.
const FRAMES: usize = 32_768;

/// One rule in so many denies.
const DENIES: usize = 4;

/// Where a list is bound.
const SIDES: [(&str, bool, bool); 2] = [("in", true, false), ("in-out", true, true)];

/// What lists of so many rules may cost: their share of the rate without a list is at least this.
const BARS: [(usize, f64); 2] = [(1_000, 0.75), (10_000, 0.65)];

/// Runs the benchmark.
pub(super) fn run(args: &AclBenchArgs) -> Result<()> {
    let _leaving = crate::interrupt::leave_nothing()?;
    let mut bench = Bench::start(args.cpu, args.rounds, args.window)?;
    let routes4 = with_default(table::ipv4(1, table::IPV4_ROUTES, NEXT_HOPS));
    let routes6 = with_default(table::ipv6(1, table::IPV6_ROUTES, NEXT_HOPS));
    for profile in Profile::ALL.into_iter().filter(|p| args.profiles.contains(&p.name().to_owned())) {
        for n in &args.sizes {
            group(&mut bench, &routes4, profile, *n)?;
            if !args.ip4_only {
                group(&mut bench, &routes6, profile, *n)?;
            }
        }
    }
    let config = json!({
        "routes4": routes4.len(), "routes6": routes6.len(), "sizes": args.sizes, "profiles": args.profiles,
        "rounds": args.rounds, "window_ms": args.window, "frames": 2 * FRAMES,
        "rate": "packets sent per second of CPU time of the worker's thread; share: of the rate without a list in the same rounds",
    });
    bench.report(config, args.json, |report| {
        for (rules, bar) in BARS {
            for profile in Profile::ALL {
                for family in ["ipv4", "ipv6"] {
                    let id = format!("acl.forward.{family}.{}.{rules}.in.rate", profile.name());
                    let share = report.results.iter().find(|r| r.id == id).and_then(|r| r.ratio);
                    let what =
                        format!("{family}, {rules} rules ({}): share of the rate without", profile.name());
                    report.target(&what, share, bar, true, "");
                }
            }
        }
    })
}

/// Every destination is routed.
fn with_default<A: Ip>(mut routes: Routes<A>) -> Routes<A> {
    routes.extend(Prefix::new(Prefix::<A>::all().first(), 0).map(|p| (p, 1)));
    routes
}

/// One set of rules and its traffic.
fn group<A: Table + Listed>(bench: &mut Bench, routes: &Routes<A>, profile: Profile, n: usize) -> Result<()> {
    let rules = synthetic::rules::<A>(profile, n, 1, false);
    let list = Acl {
        name: "edge".into(),
        rules: rules.iter().enumerate().map(|(i, rule)| written(i, rule)).collect(),
        default: AclAction::Deny,
    };
    let mut rng = Rng::new(7);
    let traffic = [permitted(&rules, &mut rng)?, permitted(&rules, &mut rng)?];
    let title = format!("{}, {} {n}", <A as Ip>::NAME, profile.name());
    let files = bench.files(&title, |path, port| {
        write_tuples(path, traffic.get(usize::from(port)).map_or(&[], |t| t), port)
    })?;
    let pair = Pair::open(bench.eal, bench.pool, &files, bench.serial)?;
    let mut contenders = vec![bench.contender("io", &pair, 0, Domain::new(), io::graph(&[1, 0])?)?];
    let mut routers = Vec::new();
    let sides = std::iter::once(("none", false, false)).chain(SIDES);
    for (i, (name, input, output)) in sides.enumerate() {
        let domain = Domain::new();
        let mut router = router(domain.clone(), A::routes(routes))?;
        let of = |bound: bool| bound.then(|| list.name.clone());
        let bind = |interface: IfIndex| AclBinding { interface, input: of(input), output: of(output) };
        router.set_acls(vec![list.clone()], &[bind(0), bind(1)])?;
        let parts = router_graph::RouterParts {
            plane: router.plane(),
            seed: 7,
            icmp_errors_per_second: 10,
            punt: None,
        };
        let built = router_graph::graph(&parts)?;
        contenders.push(bench.contender(name, &pair, i + 1, domain, built.graph)?);
        router.tick(bench.clock.now());
        routers.push((router, built.line));
    }
    bench.race(&pair, &mut contenders);
    let [io, none, lists @ ..] = &contenders[..] else { return Ok(()) };
    let id = |name: &str, what: &str| format!("acl.forward.{}.{}.{n}.{name}.{what}", A::ID, profile.name());
    let (none_id, io_id) = (id("none", "rate"), id("io", "rate"));
    let mut base = Measured::new(&none_id, "Mpps", &none.rates);
    let floor = Measured::new(&io_id, "Mpps", &io.rates);
    base.floor = Some(floor.value);
    bench.results.extend([floor, base.clone()]);
    for c in lists {
        let mut rate = Measured::new(id(c.name, "rate"), "Mpps", &c.rates);
        // Window by window, for what else the host does changes from one second to the next.
        let shares: Vec<f64> =
            c.rates.iter().zip(&none.rates).map(|(with, without)| with / without).collect();
        let share = Measured::new(id(c.name, "share"), "of none", &shares);
        rate.peer = Some(none_id.clone());
        rate.ratio = Some(share.value);
        let cost = Measured::new(id(c.name, "cost"), "ns", &[1e3 / rate.value - 1e3 / base.value]);
        bench.results.extend([rate, share, cost]);
    }
    Bench::end(contenders)
}

/// As an operator writes it.
fn written<A: Listed>(i: usize, rule: &Rule<A>) -> AclRule {
    let ports = |range: &std::ops::RangeInclusive<u16>| {
        if *range == ALL_PORTS { Vec::new() } else { vec![range.clone()] }
    };
    AclRule {
        action: if i % DENIES == DENIES - 1 { AclAction::Deny } else { AclAction::Permit },
        src: A::net(rule.src),
        dst: A::net(rule.dst),
        protocol: rule.protocol,
        src_ports: ports(&rule.src_ports),
        dst_ports: ports(&rule.dst_ports),
        ..AclRule::default()
    }
}

/// Packets that rules permit, each of the rules alike.
fn permitted<A: Listed>(rules: &[Rule<A>], rng: &mut Rng) -> Result<Vec<Tuple<A>>> {
    let mut found = Vec::with_capacity(FRAMES);
    for _ in 0..FRAMES * 200 {
        let tuple = synthetic::tuple_in(&rules[rng.below(rules.len())], rng);
        if !tuple.src.sendable() || !tuple.dst.sendable() || tuple.protocol == 0 {
            continue;
        }
        let key = match tuple.protocol {
            6 | 17 | 132 => tuple.key(),
            other => linerate_tables::classifier::Key::new(tuple.src, tuple.dst, other),
        };
        let decides = rules.iter().position(|rule| rule.matches(&key));
        if decides.is_some_and(|i| i % DENIES != DENIES - 1) {
            found.push(tuple);
            if found.len() == FRAMES {
                return Ok(found);
            }
        }
    }
    Err(anyhow!("too few packets are permitted by {} rules", rules.len()))
}

/// Addresses as rules and frames have them.
pub(super) trait Listed: Drawn + Ip {
    /// As a prefix of a rule.
    fn net(prefix: Prefix<Self>) -> Option<IpNet>;
    /// Whether plain packets may have it.
    fn sendable(self) -> bool;
}

impl Listed for u32 {
    fn net(prefix: Prefix<u32>) -> Option<IpNet> {
        IpNet::new(std::net::Ipv4Addr::from_bits(prefix.first()).into(), prefix.len()).ok()
    }
    fn sendable(self) -> bool {
        // Not 0/8, 127/8, 224/4 and above, and not where the bench's own neighbours are.
        !matches!(self >> 24, 0 | 127 | 224..) && self >> 16 != 0xac1f
    }
}

impl Listed for u128 {
    fn net(prefix: Prefix<u128>) -> Option<IpNet> {
        IpNet::new(std::net::Ipv6Addr::from_bits(prefix.first()).into(), prefix.len()).ok()
    }
    fn sendable(self) -> bool {
        self >> 125 == 1 && self >> 80 != 0x2001_0db8_fffe
    }
}
