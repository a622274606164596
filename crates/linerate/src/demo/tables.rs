//! The table to forward by: made up, or read from a file.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use linerate_control::rib;
use linerate_tables::prefix::Prefix;
use linerate_tester::ip::Ip;
use linerate_tester::table::{self, Routes};

use super::plan::NEXT_HOPS;

/// Routes of both families, sorted, with next hops of the demo's network.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) ipv4: Routes<u32>,
    pub(crate) ipv6: Routes<u128>,
}

impl Tables {
    /// Reads `file`, or makes the built-in table from `seed`.
    pub(crate) fn make(file: Option<&Path>, seed: u64) -> Result<Self> {
        match file {
            Some(path) => Self::read(path).with_context(|| format!("routing table {}", path.display())),
            None => Ok(Tables {
                ipv4: table::ipv4(seed, table::IPV4_ROUTES, NEXT_HOPS),
                ipv6: table::ipv6(seed, table::IPV6_ROUTES, NEXT_HOPS),
            }),
        }
    }

    /// The file's next hops are dealt out to those of the demo: what shares one there shares one here.
    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let rib = rib::read(file, rib::Select::First).map_err(|e| anyhow!(first(&e)))?;
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        let mut dealt = HashMap::new();
        for (net, next_hop) in rib.routes {
            let n = dealt.len() as u32;
            let next_hop = *dealt.entry(next_hop).or_insert(1 + n % NEXT_HOPS);
            match net {
                IpNet::V4(n) => ipv4.push((Prefix::from(n), next_hop)),
                IpNet::V6(n) => ipv6.push((Prefix::from(n), next_hop)),
            }
        }
        let tables = Tables { ipv4: sorted(ipv4), ipv6: sorted(ipv6) };
        if tables.ipv4.is_empty() && tables.ipv6.is_empty() {
            bail!("there is no route in it");
        }
        Ok(tables)
    }
}

/// What is wrong in a file of routes, in one line: the first error, and whether there are more.
pub(crate) fn first(errors: &[rib::RibError]) -> String {
    match errors {
        [] => String::new(),
        [one] => one.to_string(),
        [first, ..] => format!("{first} (the first of several errors)"),
    }
}

/// By address and length, one route per prefix (the first).
fn sorted<A: Ip>(mut routes: Routes<A>) -> Routes<A> {
    routes.sort_by_key(|(p, _)| (p.first(), p.len()));
    routes.dedup_by_key(|(p, _)| *p);
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_are_told_by_the_first() {
        let wrong = |text: &str| first(&rib::read(text.as_bytes(), rib::Select::First).unwrap_err());
        assert!(wrong("8.0.0.0/8 1\nx 1\n").ends_with("or 2001:db8::/32"), "{}", wrong("x 1\n"));
        let many = wrong("x 1\n8.0.0.0/8 1\ny 1\nz 1\n");
        assert!(many.starts_with("line 1: ") && many.ends_with(" (the first of several errors)"), "{many}");
    }
}
