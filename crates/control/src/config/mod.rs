//! The configuration file: strict TOML, validated as far as that is possible without touching a device, turned into
//! the engine's desired state.
//!
//! One file per section, which decodes and validates it: [`dpdk`] with [`eal_args`], [`workers`], [`ports`], [`vrfs`],
//! [`interfaces`], [`routes`] with [`resolve`], [`ribs`], [`neighbors`], [`acls`] with [`acl_rules`], [`multicast`], [`linux`], [`api`]. [`decode`]
//! is what they are written with. Nothing stops at the
//! first problem: one run reports all of them. The order of sections and keys never matters.

mod acl_rules;
mod acls;
mod api;
mod decode;
mod dpdk;
mod eal_args;
mod interfaces;
mod linux;
mod multicast;
mod neighbors;
mod ports;
mod problem;
mod resolve;
mod ribs;
mod routes;
mod vrfs;
mod workers;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use linerate_engine::desired::Desired;
use linerate_engine::instance::check::check_routes;
use toml::de::{DeTable, DeValue};

pub(crate) use api::shared_directory;
pub use api::{ApiSpec, ROOT_SOCKETS, default_socket};
pub use problem::{Problem, Report};

use decode::{Item, Section, Source};

/// Largest configuration file read: a quarter million static routes.
const MAX_FILE: u64 = 16 << 20;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What the engine is told.
    pub desired: Desired,
    /// How the API is served.
    pub api: ApiSpec,
    /// What is allowed but odd.
    pub warnings: Vec<Problem>,
}

/// What validation knows about the host.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// CPUs that this process may run on; `None`: not known, nothing is checked against it.
    pub cpus: Option<BTreeSet<usize>>,
}

impl Host {
    /// This host, as the kernel tells this process.
    pub fn current() -> Self {
        let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok();
        let cpus = |s: nix::sched::CpuSet| {
            (0..nix::sched::CpuSet::count()).filter(|c| s.is_set(*c).unwrap_or(false)).collect()
        };
        Host { cpus: set.map(cpus) }
    }
}

/// How route table files are opened: the path is as configured, relative ones are relative to the configuration file.
pub type Open<'a> = &'a dyn Fn(&Path) -> io::Result<Box<dyn Read>>;

/// Reads and validates a configuration file and the route tables it names.
pub fn load(path: &Path, host: &Host) -> Result<Config, Report> {
    let name = path.display().to_string();
    let whole = |message: String| {
        Report(vec![Problem { file: name.clone(), line: None, column: None, key: String::new(), message }])
    };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|f| f.take(MAX_FILE + 1).read_to_end(&mut bytes));
    read.map_err(|e| whole(format!("cannot read the configuration: {e}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(whole(format!(
            "the file is over {} MiB: expected a configuration; large route tables belong into a [[rib]] file",
            MAX_FILE >> 20
        )));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..at].iter().filter(|b| **b == b'\n').count();
        let mut report = whole("the file is not UTF-8 from here on: expected TOML".into());
        report.0[0].line = Some(line as u64);
        report
    })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    parse(&name, &text, host, &|file| Ok(Box::new(File::open(directory.join(file))?))).map_err(
        |mut report| {
            // Route tables are named as the user can open them from here.
            for p in report.0.iter_mut().filter(|p| p.file != name) {
                p.file = directory.join(&p.file).display().to_string();
            }
            report
        },
    )
}

/// Validates a configuration given as text; `name` is what messages call the file.
pub fn parse(name: &str, text: &str, host: &Host, open: Open<'_>) -> Result<Config, Report> {
    let source = Source::new(name, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for e in &errors {
        source.problem(
            e.span().map_or(0, |s| s.start),
            "",
            format!("not valid TOML: {}", one_line(e.message())),
        );
    }
    if !errors.is_empty() {
        return Err(Report(source.finish().0));
    }
    let root = DeValue::Table(table.into_inner());
    let config =
        Item::new(String::new(), 0, &root, &source).section("").map(|s| build(s, &source, host, open));
    let (problems, warnings) = source.finish();
    match config {
        Some(config) if problems.is_empty() => Ok(Config { warnings, ..config }),
        _ => Err(Report(problems)),
    }
}

/// Validates whatever the bytes are, for fuzzing: nothing in them may make it panic.
pub fn fuzz(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let table = |_: &Path| -> io::Result<Box<dyn Read>> {
            Ok(Box::new(&b"10.9.0.0/16 1\n2001:db8:9::/48 2\n"[..]))
        };
        let _ = parse("fuzz", text, &Host { cpus: Some(BTreeSet::from([0, 1])) }, &table);
    }
}

fn build(mut root: Section<'_>, source: &Source<'_>, host: &Host, open: Open<'_>) -> Config {
    let dpdk = root.take("dpdk");
    let api = root.take("api");
    let router = root.take("router");
    let linux = root.take("linux");
    let workers = workers::read(tables(&mut root, "worker"), source, host);
    let ports = ports::read(tables(&mut root, "port"), source, &workers);
    let vrfs = vrfs::read(tables(&mut root, "vrf"), source);
    let interfaces = interfaces::read(tables(&mut root, "interface"), source, &ports, &vrfs);
    let raw_routes = tables(&mut root, "route");
    let raw_ribs = tables(&mut root, "rib");
    let tables_at = raw_ribs.last().map(|s| s.at);
    let raw_neighbors = tables(&mut root, "neighbor");
    let raw_acls = tables(&mut root, "acl");
    let raw_multicast = tables(&mut root, "multicast_route");
    root.finish();
    let linux = linux::read(linux, source);
    for name in
        interfaces.iter().map(|i| &i.spec.name).filter(|n| linux.is_some() && !linux::can_name_a_tap(n))
    {
        source.problem(
            0,
            "linux",
            format!("interface `{name}` has a name of over 15 bytes, which no tap in Linux can have"),
        );
    }

    let dpdk = dpdk::read(dpdk, source, host, &workers, &ports);
    let acls = acls::read(raw_acls, source, open);
    acls::bind(&interfaces, &acls, source);
    let net = resolve::Network::new(&interfaces, &vrfs);
    let (mut routes, net) = routes::read(raw_routes, source, net);
    let neighbors = neighbors::read(raw_neighbors, source, &net);
    let multicast_routes = multicast::read(raw_multicast, source, &net);
    ribs::read(raw_ribs, source, &net, open, &mut routes);
    if let Err(limit) = check_routes(&routes, interfaces.len()) {
        source.problem(
            tables_at.unwrap_or(0),
            if tables_at.is_some() { "rib" } else { "route" },
            limit.to_string(),
        );
    }
    let interfaces = interfaces.into_iter().map(|i| i.spec).collect();
    Config {
        api: api::read(api, source, &dpdk.file_prefix),
        desired: Desired {
            icmp_errors_per_second: router_section(router),
            dpdk,
            workers: workers.into_iter().map(|w| w.spec).collect(),
            ports: ports.into_iter().map(|p| p.spec).collect(),
            vrfs: vrfs.specs(),
            interfaces,
            routes,
            neighbors,
            acls,
            multicast_routes,
            linux,
        },
        warnings: Vec::new(),
    }
}

/// `[router]`.
fn router_section(item: Option<Item<'_>>) -> u32 {
    const DEFAULT: u32 = 1000;
    let Some(mut s) = item.and_then(|i| i.section("a table [router]")) else { return DEFAULT };
    let rate = s.number("icmp_errors_per_second", 0..=1_000_000, "a rate per worker", DEFAULT);
    s.finish();
    rate
}

/// The tables of `[[key]]`; a single `[key]` counts as one.
fn tables<'a>(root: &mut Section<'a>, key: &'static str) -> Vec<Section<'a>> {
    let Some(item) = root.take(key) else { return Vec::new() };
    let what = format!("tables, each headed [[{key}]]");
    let items = if item.is_table() { vec![item] } else { item.list(&what).unwrap_or_default() };
    items.iter().filter_map(|i| i.section(&what)).collect()
}

/// A name as users may choose it.
fn name(section: &mut Section<'_>, most: usize) -> Option<decode::At<String>> {
    let name = section.need("name", "a name")?.string("a name")?;
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts = name.value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if name.value.len() > most || !starts || !name.value.chars().all(good) {
        let expected =
            format!("1 to {most} letters, digits, `.`, `_` or `-`, beginning with a letter or digit");
        name.problem(section.source, format!("found \"{}\": expected {expected}", name.value.escape_debug()));
        return None;
    }
    Some(name)
}

/// A unicast MAC address.
fn mac(item: &Item<'_>) -> Option<decode::At<[u8; 6]>> {
    const WHAT: &str = "a unicast MAC address such as 02:00:00:00:00:01";
    let text = item.string(WHAT)?;
    let mut octets = [0u8; 6];
    let mut parts = text.value.split(':');
    let good = octets.iter_mut().all(|o| {
        let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
        part.and_then(|p| u8::from_str_radix(p, 16).ok()).map(|v| *o = v).is_some()
    });
    if !good || parts.next().is_some() || octets[0] & 1 == 1 || octets == [0; 6] {
        item.expected(WHAT);
        return None;
    }
    Some(text.map(|_| octets))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(test)]
#[path = "tests_acls.rs"]
mod tests_acls;

#[cfg(test)]
#[path = "tests_limits.rs"]
mod tests_limits;

#[cfg(test)]
#[path = "tests_vrf.rs"]
mod tests_vrf;
