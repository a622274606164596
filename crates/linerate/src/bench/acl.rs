//! `linerate bench acl`: the wildcard classifier against DPDK's `rte_acl` and a linear scan, one process, one core, in turn.
//!
//! Times are CPU time of the one thread that measures, per key, keys in batches of 64 as a worker has them. Each round takes
//! everyone in turn on the same keys, beginning with another one each time; figures are medians over the rounds. Before
//! anything is timed, answers are compared with the rules looked at one after the other.

use super::{
    report::{Host, Measured, Report},
    stats::{median, timed},
};
use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_tables::{
    classifier::{
        Classifier, Kernel, Key, Rule,
        synthetic::{self, Drawn, Profile, Rng},
    },
    prefix::Prefix,
};
use serde_json::json;
use std::{hint::black_box, path::PathBuf};

/// Keys of one trace: 32 or 64 bytes each, more than a second-level cache holds.
const KEYS: usize = 1 << 17;

/// Keys of one call.
const BATCH: usize = 64;

/// What a key gets that no rule matches; `rte_acl` has no other choice.
pub(super) const NO_MATCH: u32 = 0;

/// What `linerate bench acl` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct AclBenchArgs {
    /// IPv4 rules as ClassBench writes them, instead of the generated sets
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
    /// Numbers of rules of the generated sets
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    pub(super) sizes: Vec<usize>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(super) json: bool,
    /// Rounds of every measurement; figures are medians over them
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// Measure without DPDK's library
    #[arg(long)]
    no_peers: bool,
    /// IPv4 only
    #[arg(long)]
    pub(super) ip4_only: bool,
    /// Measure what lists cost a router that forwards, instead of the classifier alone
    #[arg(long)]
    pub(super) forward: bool,
    /// With --forward: families of rules
    #[arg(long, value_delimiter = ',', default_values_t = ["acl".to_owned()], value_parser = ["acl", "fw", "ipc"], requires = "forward")]
    pub(super) profiles: Vec<String>,
    /// With --forward: milliseconds per window; a turn has two
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u16).range(10..), requires = "forward")]
    pub(super) window: u16,
    /// With --forward: CPU of the worker; the last allowed one by default
    #[arg(long, requires = "forward")]
    pub(super) cpu: Option<usize>,
}

/// The keys of a set of rules.
pub(super) struct Traces<A: Drawn> {
    /// Inside a rule, each rule alike; inside rules, 65,536 flows by Zipf's law; anywhere.
    pub(super) traces: [Vec<Key<A>>; 3],
    /// The same as five-tuples, for DPDK.
    pub(super) tuples: [Vec<synthetic::Tuple<A>>; 3],
}

const LETTERS: [&str; 3] = ["R", "Z", "U"];

/// Classifies a trace; returns the sum of the answers.
pub(super) type Run<'a> = Box<dyn FnMut(usize) -> u64 + 'a>;

/// Runs the benchmark and prints its report. An error where an answer was wrong.
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output and its progress")]
pub(crate) fn run(args: AclBenchArgs) -> Result<()> {
    if args.forward {
        return super::acl_forward::run(&args);
    }
    let host = Host::here("4 KiB".into());
    let cpu = super::fib::pin()?;
    let peers = !args.no_peers && cfg!(feature = "peers");
    #[cfg(feature = "peers")]
    if peers {
        linerate_dpdk::peers::start(3_000, cpu).context("no comparison with DPDK's rte_acl")?;
        super::fib::pin()?;
    }
    let config = json!({
        "sizes": args.sizes, "rounds": args.rounds, "keys": KEYS, "batch": BATCH, "cpu": cpu, "peers": peers,
        "files": args.rules.iter().map(|f| f.display().to_string()).collect::<Vec<_>>(),
    });
    let mut report = Report { host, config, results: Vec::new(), targets: Vec::new() };
    let mut wrong = 0;
    for file in &args.rules {
        let rules = read(file)?;
        let name = file.file_name().map_or("rules".into(), |name| name.to_string_lossy());
        eprintln!("{name}: {} rules", rules.len());
        wrong += set(&rules, &format!("acl.v4.{name}"), peers, args.rounds.into(), &mut report)?;
    }
    for &n in args.sizes.iter().filter(|_| args.rules.is_empty()) {
        for profile in Profile::ALL {
            eprintln!("{} {n}", profile.name());
            let rounds = args.rounds.into();
            let rules = synthetic::rules::<u32>(profile, n, 1, false);
            wrong += set(&rules, &format!("acl.v4.{}.{n}", profile.name()), peers, rounds, &mut report)?;
            if !args.ip4_only {
                let rules = synthetic::rules::<u128>(profile, n, 1, false);
                wrong += set(&rules, &format!("acl.v6.{}.{n}", profile.name()), peers, rounds, &mut report)?;
            }
        }
    }
    report.results.push(Measured::new("acl.wrong_answers", "answers", &[wrong as f64]));
    report.target("wrong answers", Some(wrong as f64), 0.0, false, "");
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    if wrong > 0 {
        bail!("{wrong} answers differ from the rules looked at one after the other");
    }
    Ok(())
}

/// One set of rules: build, check, race.
fn set<A: Contended>(
    rules: &[Rule<A>],
    prefix: &str,
    peers: bool,
    rounds: usize,
    report: &mut Report,
) -> Result<usize> {
    let mut classifier = Classifier::new(NO_MATCH);
    let mut builds = Vec::new();
    for _ in 0..rounds {
        let (ns, replaced) = timed(|| classifier.replace(rules, NO_MATCH));
        replaced.context("the rules do not compile")?;
        builds.push(ns / 1e6);
    }
    report.results.push(Measured::new(format!("{prefix}.build"), "ms", &builds));
    let bytes = classifier.lookup_bytes() as f64;
    report.results.push(Measured::new(format!("{prefix}.bytes"), "bytes", &[bytes]));
    let keys = traces(rules);
    let wrong: usize =
        Kernel::available().into_iter().map(|kernel| mistakes(&classifier, kernel, rules, &keys)).sum();
    let mut contenders: Vec<(String, Run<'_>)> = Vec::new();
    for kernel in Kernel::available().into_iter().rev() {
        let mut reader = classifier.reader().with_kernel(kernel);
        let keys = &keys;
        let run = move |trace: usize| {
            let mut out = [0; BATCH];
            let mut sum = 0;
            for keys in keys.traces[trace].chunks(BATCH) {
                reader.lookup_batch(keys, &mut out);
                sum += out[..keys.len()].iter().map(|&id| u64::from(id)).sum::<u64>();
            }
            sum
        };
        contenders.push((kernel.name().into(), Box::new(run)));
    }
    let ours = contenders.len();
    if peers {
        A::add_peers(prefix, rules, &keys, &mut contenders, report)?;
    }
    // The scan takes microseconds a key: a part of the keys will do.
    let linear = |trace: usize| {
        let keys = keys.traces[trace].iter().take(256);
        keys.map(|key| scan(rules, key)).map(u64::from).sum::<u64>()
    };
    let mut sums = vec![[0; 3]; contenders.len()];
    let mut times = vec![vec![Vec::new(); contenders.len() + 1]; 3];
    for round in 0..rounds {
        for trace in 0..3 {
            for i in 0..contenders.len() {
                let i = (i + round) % contenders.len();
                black_box((contenders[i].1)(trace));
                let (ns, sum) = timed(|| (contenders[i].1)(trace));
                sums[i][trace] = sum;
                times[trace][i].push(ns / KEYS as f64);
            }
            let (ns, sum) = timed(|| linear(trace));
            black_box(sum);
            times[trace][contenders.len()].push(ns / 256.0);
        }
    }
    for (trace, letter) in LETTERS.iter().enumerate() {
        for (i, times_of) in times[trace].iter().enumerate() {
            let name = contenders.get(i).map_or("linear", |c| c.0.as_str());
            let mut figure = Measured::new(format!("{prefix}.{letter}.{name}"), "ns", times_of);
            if i >= ours {
                let ratios: Vec<f64> = times_of.iter().zip(&times[trace][0]).map(|(a, b)| a / b).collect();
                figure.peer = Some(format!("{prefix}.{letter}.{}", contenders[0].0));
                figure.ratio = Some(median(&ratios));
            }
            report.results.push(figure);
        }
    }
    let differ = sums.iter().filter(|sum| **sum != sums[0]).count();
    Ok(wrong + differ)
}

/// Address families with peers.
trait Contended: Drawn {
    /// Adds DPDK's classifiers for these rules.
    fn add_peers<'a>(
        prefix: &str,
        rules: &[Rule<Self>],
        keys: &'a Traces<Self>,
        to: &mut Vec<(String, Run<'a>)>,
        report: &mut Report,
    ) -> Result<()>;
}

macro_rules! contended {
    ($address:ty, $peers:ident) => {
        impl Contended for $address {
            #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "nobody to race"))]
            fn add_peers<'a>(
                prefix: &str,
                rules: &[Rule<Self>],
                keys: &'a Traces<Self>,
                to: &mut Vec<(String, Run<'a>)>,
                report: &mut Report,
            ) -> Result<()> {
                #[cfg(feature = "peers")]
                {
                    super::acl_peers::$peers(prefix, rules, keys, to, report)?;
                }
                Ok(())
            }
        }
    };
}

contended!(u32, ip4);
contended!(u128, ip6);

fn scan<A: Drawn>(rules: &[Rule<A>], key: &Key<A>) -> u32 {
    rules.iter().find(|rule| rule.matches(key)).map_or(NO_MATCH, |rule| rule.action)
}

/// Answers that differ from the scan's, over a part of each trace.
fn mistakes<A: Drawn>(
    classifier: &Classifier<A>,
    kernel: Kernel,
    rules: &[Rule<A>],
    keys: &Traces<A>,
) -> usize {
    let mut reader = classifier.reader().with_kernel(kernel);
    let part = |keys: &[Key<A>]| keys.get(..1_000).unwrap_or(keys).to_vec();
    keys.traces.iter().map(|keys| part(keys)).fold(0, |wrong, keys| {
        let mut out = vec![0; keys.len()];
        reader.lookup_batch(&keys, &mut out);
        wrong + keys.iter().zip(&out).filter(|(key, got)| scan(rules, key) != **got).count()
    })
}

fn traces<A: Drawn>(rules: &[Rule<A>]) -> Traces<A> {
    let mut rng = Rng::new(2);
    let inside = |rng: &mut Rng| synthetic::tuple_in(&rules[rng.below(rules.len())], rng);
    let each = (0..KEYS).map(|_| inside(&mut rng)).collect();
    let flows: Vec<_> = (0..1 << 16).map(|_| inside(&mut rng)).collect();
    let hot = (0..KEYS).map(|_| flows[rng.zipf(flows.len())]).collect();
    let anywhere = (0..KEYS).map(|_| synthetic::tuple_anywhere(&mut rng)).collect();
    let tuples: [Vec<synthetic::Tuple<A>>; 3] = [each, hot, anywhere];
    let keys = tuples.each_ref().map(|tuples| tuples.iter().map(|tuple| tuple.key()).collect());
    Traces { traces: keys, tuples }
}

/// Reads rules as ClassBench's generator writes them: `@src dst first : last first : last protocol/mask ...`.
fn read(file: &PathBuf) -> Result<Vec<Rule<u32>>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut rules = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let rule = parse(line, number)
            .with_context(|| format!("{}, line {number}: not a ClassBench rule: {line}", file.display()))?;
        rules.push(rule);
    }
    if rules.is_empty() {
        bail!("{} has no rules", file.display());
    }
    Ok(rules)
}

fn parse(line: &str, action: u32) -> Option<Rule<u32>> {
    let mut words = line.trim_start_matches('@').split_whitespace();
    let mut next = || words.next();
    let prefix = |word: &str| -> Option<Prefix<u32>> { Some(word.parse::<ipnet::Ipv4Net>().ok()?.into()) };
    let (src, dst) = (prefix(next()?)?, prefix(next()?)?);
    let mut range = || {
        let first = next()?.parse().ok()?;
        (next()? == ":").then_some(())?;
        Some(first..=next()?.parse().ok()?)
    };
    let (src_ports, dst_ports) = (range()?, range()?);
    let (protocol, mask) = next()?.split_once('/')?;
    let hex = |word: &str| u8::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let protocol = if hex(mask)? == 0 { None } else { Some(hex(protocol)?) };
    Some(Rule { src, dst, src_ports, dst_ports, protocol, ..Rule::any(action) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classbench_lines_are_read() {
        let rule =
            parse("@10.1.0.0/16\t198.18.0.1/32\t0 : 65535\t80 : 90\t0x06/0xFF\t0x0000/0x0200\t", 7).unwrap();
        assert_eq!((rule.src.to_string(), rule.dst.len(), rule.action), ("10.1.0.0/16".into(), 32, 7));
        assert_eq!((rule.src_ports, rule.dst_ports, rule.protocol), (0..=65_535, 80..=90, Some(6)));
        assert!(parse("@10.1.0.0/33 1.1.1.1/32 0 : 1 2 : 3 0x06/0xFF", 1).is_none());
        assert!(parse("@10.1.0.0/8 1.1.1.1/32 0 1 2 : 3 0x06/0xFF", 1).is_none());
    }

    #[test]
    fn a_small_race_finds_no_mistakes() {
        let mut report = Report {
            host: Host::here("4 KiB".into()),
            config: json!({}),
            results: Vec::new(),
            targets: Vec::new(),
        };
        let rules = synthetic::rules::<u32>(Profile::Acl, 50, 1, false);
        assert_eq!(set(&rules, "acl.v4.test", false, 1, &mut report).unwrap(), 0);
        assert!(report.value("acl.v4.test.R.portable").is_some_and(|ns| ns > 0.0));
    }
}
