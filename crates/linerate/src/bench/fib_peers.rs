//! `rte_fib` and `rte_fib6` as contenders.

use super::{
    race::{BATCH, Contender, KeySet, Work},
    routes::Routes,
};
use anyhow::{Context, Result};
use linerate_dpdk::peers::{self, Kernel, RteFib, RteFib6, Width};
use std::{ops::Range, sync::Arc};

/// Starts DPDK with room for tables of this many routes.
pub(super) fn start(routes4: usize, routes6: usize, cpu: usize) -> Result<()> {
    // Measured: 0.28 MB per thousand routes and table for the RIB, besides the tables proper.
    let ip4 = if routes4 > 0 { 400 + routes4 * 4 * 3 / 10_000 } else { 0 };
    let ip6 = if routes6 > 0 { 300 + groups(routes6) as usize / 512 + routes6 * 2 * 3 / 10_000 } else { 0 };
    let megabytes = 64 + ip4 + ip6;
    peers::start(megabytes as u32, cpu).context("no comparison with DPDK's FIBs")
}

/// Both entry sizes with both lookup functions.
pub(super) fn ip4(routes: &Routes<u32>, keys: &Arc<KeySet<u32>>) -> Result<Vec<Contender<'static>>> {
    let mut contenders = Vec::new();
    for (width, name) in [(Width::Two, "rte_fib2b"), (Width::Four, "rte_fib4b")] {
        for (kernel, suffix) in [(Kernel::Scalar, "scalar"), (Kernel::Avx512, "avx512")] {
            // One table for each lookup function: selecting is per table.
            let mut fib = RteFib::new(&format!("{name}_{suffix}"), width, routes.len() + 1, 8_192)?;
            if fib.select(kernel).is_err() {
                continue;
            }
            for &(prefix, nh) in routes {
                fib.add(prefix.first(), prefix.len(), nh)?;
            }
            let keys = Arc::clone(keys);
            let run = move |trace, range: Range<usize>, work: &mut Work| {
                let mut out = [0u64; BATCH];
                let mut sum = 0u64;
                for batch in keys.of(trace)[range].chunks(BATCH) {
                    fib.lookup(batch, &mut out);
                    sum += out.iter().sum::<u64>();
                    work.touch(batch.len());
                }
                sum
            };
            contenders.push(Contender { name: format!("{name}_{suffix}"), run: Box::new(run) });
        }
    }
    Ok(contenders)
}

/// Four-byte entries (two bytes cannot number the table's groups) with both lookup functions. The keys are in network
/// byte order, as DPDK wants them; ours are in host order. Neither pays for the conversion.
pub(super) fn ip6(routes: &Routes<u128>, keys: &Arc<KeySet<u128>>) -> Result<Vec<Contender<'static>>> {
    let bytes: [Arc<Vec<[u8; 16]>>; 3] =
        super::keys::Trace::ALL.map(|t| Arc::new(keys.of(t).iter().map(|key| key.to_be_bytes()).collect()));
    let mut contenders = Vec::new();
    for (kernel, suffix) in [(Kernel::Scalar, "scalar"), (Kernel::Avx512, "avx512")] {
        let mut fib = RteFib6::new(&format!("rte_fib6_{suffix}"), routes.len() + 1, groups(routes.len()))?;
        if fib.select(kernel).is_err() {
            continue;
        }
        for &(prefix, nh) in routes {
            fib.add(prefix.first().to_be_bytes(), prefix.len(), nh)?;
        }
        let bytes = bytes.clone();
        let run = move |trace: super::keys::Trace, range: Range<usize>, work: &mut Work| {
            let mut out = [0u64; BATCH];
            let mut sum = 0u64;
            for batch in bytes[trace as usize][range].chunks(BATCH) {
                fib.lookup(batch, &mut out);
                sum += out.iter().sum::<u64>();
                work.touch(batch.len());
            }
            sum
        };
        contenders.push(Contender { name: format!("rte_fib6_{suffix}"), run: Box::new(run) });
    }
    Ok(contenders)
}

/// How many 256-entry groups `rte_fib6` wants for so many routes: it reserves by an estimate above what it uses.
fn groups(routes6: usize) -> u32 {
    (routes6 * 3 / 2).next_power_of_two() as u32
}

/// Puts everything on transparent 2 MiB pages where the kernel can; returns how many MiB it moved.
pub(super) fn large_pages() -> usize {
    linerate_dpdk::large_pages() >> 20
}
