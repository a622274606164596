//! The table to forward by: made up, or read from a file.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
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
        let rib = rib::read(file, rib::Select::First).map_err(|errors| {
            anyhow::anyhow!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
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

/// By address and length, one route per prefix (the first).
fn sorted<A: Ip>(mut routes: Routes<A>) -> Routes<A> {
    routes.sort_by_key(|(p, _)| (p.first(), p.len()));
    routes.dedup_by_key(|(p, _)| *p);
    routes
}
