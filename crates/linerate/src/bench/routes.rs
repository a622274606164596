//! Route tables for benchmarks: from files, or generated.

use super::{
    keys::{Drawn, inside},
    stats::Rng,
};
use crate::demo::tables::first;
use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use linerate_control::rib::{self, NextHop};
use linerate_tables::prefix::Prefix;
use std::{collections::HashSet, fs::File, io::Read, path::Path};

/// Routes of one family.
pub(super) type Routes<A> = Vec<(Prefix<A>, u32)>;

/// Families that route files hold.
pub(super) trait Parsed: Drawn {
    fn prefix(net: IpNet) -> Option<Prefix<Self>>;
}

impl Parsed for u32 {
    fn prefix(net: IpNet) -> Option<Prefix<Self>> {
        if let IpNet::V4(net) = net { Some(net.into()) } else { None }
    }
}

impl Parsed for u128 {
    fn prefix(net: IpNet) -> Option<Prefix<Self>> {
        if let IpNet::V6(net) = net { Some(net.into()) } else { None }
    }
}

/// Reads the routes of one family from any file that a configuration takes: text or MRT, compressed or not.
pub(super) fn read<A: Parsed>(path: &Path) -> Result<Routes<A>> {
    let file =
        File::open(path).with_context(|| format!("the route file {} cannot be opened", path.display()))?;
    parse(file).with_context(|| format!("the route file {}", path.display()))
}

fn parse<A: Parsed>(file: impl Read) -> Result<Routes<A>> {
    let rib = rib::read(file, rib::Select::First).map_err(|e| anyhow!(first(&e)))?;
    if let Some((_, place)) = rib.next_hops.iter().find(|(nh, _)| *nh == NextHop::Id(0)) {
        bail!("{place}: next hop 0 stands for no route here: expected a number of at least 1");
    }
    // Numbers stay as they are; addresses are numbered by their first use.
    let addresses = rib.next_hops.iter().any(|(nh, _)| matches!(nh, NextHop::Address(_)));
    let id = |index: u32| match rib.next_hops.get(index as usize) {
        Some((NextHop::Id(id), _)) if !addresses => *id,
        _ => 1 + index,
    };
    let routes: Routes<A> =
        rib.routes.iter().filter_map(|&(net, index)| Some((A::prefix(net)?, id(index)))).collect();
    if routes.is_empty() {
        bail!("there is no IPv{} route in it", A::FAMILY);
    }
    Ok(routes)
}

/// How many of 10,000 routes have each length, as in a full table; neighbours share one of 64 next hops.
const LENGTHS_4: &[(u8, u32)] = &[
    (8, 1),
    (12, 3),
    (13, 6),
    (14, 12),
    (15, 21),
    (16, 150),
    (17, 90),
    (18, 155),
    (19, 265),
    (20, 470),
    (21, 540),
    (22, 1_190),
    (23, 1_090),
    (24, 5_996),
    (27, 2),
    (30, 2),
    (32, 7),
];

/// The same for IPv6.
const LENGTHS_6: &[(u8, u32)] = &[
    (20, 1),
    (24, 2),
    (28, 12),
    (29, 273),
    (30, 41),
    (32, 1_408),
    (33, 183),
    (34, 163),
    (36, 374),
    (40, 838),
    (42, 144),
    (44, 897),
    (46, 190),
    (47, 197),
    (48, 5_255),
    (56, 2),
    (64, 12),
    (127, 3),
    (128, 5),
];

/// A deterministic table of `n` routes with the lengths of a full one, clustered as allocations are.
pub(super) fn synthetic<A: Drawn>(n: usize) -> Routes<A> {
    let lengths = if A::FAMILY == 4 { LENGTHS_4 } else { LENGTHS_6 };
    let (block, parent_len) = if A::FAMILY == 4 { (11, 16) } else { (20, 32) };
    let mut rng = Rng(0x7ab1e);
    let total: u32 = lengths.iter().map(|&(_, weight)| weight).sum();
    let mut seen = HashSet::with_capacity(n);
    let mut routes = Vec::with_capacity(n);
    let mut parents: Vec<Prefix<A>> = Vec::new();
    while routes.len() < n {
        let mut pick = rng.below(total as usize) as u32;
        let Some(&(len, _)) = lengths.iter().find(|&&(_, w)| {
            let here = pick < w;
            pick = pick.wrapping_sub(w);
            here
        }) else {
            continue;
        };
        // Long routes mostly lie under allocations that are there already.
        let near = !parents.is_empty() && len > parent_len && rng.below(20) != 0;
        let addr =
            if near { inside(parents[rng.below(parents.len())], &mut rng) } else { allocated::<A>(&mut rng) };
        let Some(prefix) = Prefix::new(addr, len) else { continue };
        if seen.insert(prefix) {
            if !near && let Some(parent) = Prefix::new(addr, parent_len) {
                parents.push(parent);
            }
            let owner = Prefix::new(addr, block + 8).map_or(0, |p| hash(&p));
            let nh = if rng.below(4) == 0 { hash(&prefix) } else { owner };
            routes.push((prefix, 1 + (nh % 64) as u32));
        }
    }
    routes.sort_unstable();
    routes
}

/// Adds random /24s (IPv6: /48s) that are not in the table until it has `n` routes.
pub(super) fn extended<A: Drawn>(routes: &[(Prefix<A>, u32)], n: usize) -> Routes<A> {
    let len = if A::FAMILY == 4 { 24 } else { 48 };
    let mut rng = Rng(0xadd);
    let mut seen: HashSet<Prefix<A>> = routes.iter().map(|&(p, _)| p).collect();
    let mut all = routes.to_vec();
    while all.len() < n {
        if let Some(prefix) = Prefix::new(allocated::<A>(&mut rng), len)
            && seen.insert(prefix)
        {
            all.push((prefix, 1 + (rng.next() % 64) as u32));
        }
    }
    all
}

/// An address in space that is allocated: 1/8 to 223/8, or the blocks the registries hold.
fn allocated<A: Drawn>(rng: &mut Rng) -> A {
    loop {
        let addr = A::any(rng);
        let top = A::mask(8);
        let text = addr.and(top).to_ip();
        let fits = match text {
            std::net::IpAddr::V4(v4) => (1..224).contains(&v4.octets()[0]) && v4.octets()[0] != 127,
            std::net::IpAddr::V6(v6) => matches!(v6.octets()[0], 0x20 | 0x24 | 0x26 | 0x28 | 0x2a | 0x2c),
        };
        if fits {
            return addr;
        }
    }
}

fn hash<A: Drawn>(prefix: &Prefix<A>) -> u64 {
    prefix.first().mixed() ^ u64::from(prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_family_are_read_and_errors_name_the_line() {
        let text = &b"# table\n10.0.0.0/8 5\n2001:db8::/32 9\n198.18.0.0/15\t7\n"[..];
        let hops = |routes: &Routes<u32>| routes.iter().map(|r| r.1).collect::<Vec<_>>();
        assert_eq!(hops(&parse(text).unwrap()), [5, 7], "numbers stay as they are");
        assert_eq!(parse::<u128>(text).unwrap().len(), 1);
        let addresses = &b"10.0.0.0/8 198.18.0.2\n10.1.0.0/16 198.18.0.3\n10.2.0.0/16 198.18.0.2\n"[..];
        assert_eq!(hops(&parse(addresses).unwrap()), [1, 2, 1]);
        for (bad, message) in [
            ("10.0.0.0/8 0", "line 1: next hop 0"),
            ("10.0.0.0/8 5\nfe80::/10", "line 2: "),
            ("10.0.0.0/33 1", "line 1: "),
            ("fe80::/10 1", "there is no IPv4 route in it"),
        ] {
            let error = parse::<u32>(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn generated_tables_have_the_size_asked_for_and_repeat() {
        let four = synthetic::<u32>(5_000);
        assert_eq!(four, synthetic::<u32>(5_000));
        assert_eq!(extended(&four, 6_000).len(), 6_000);
        let six = synthetic::<u128>(5_000);
        assert!(six.iter().all(|(p, nh)| p.len() >= 20 && (1..=64).contains(nh)));
    }
}
