//! `rte_acl` as a contender.

use super::{
    acl::{Run, Traces},
    report::{Measured, Report},
    stats::timed,
};
use anyhow::Result;
use linerate_dpdk::peers::{AclKernel, AclRule, RteAcl};
use linerate_tables::classifier::{
    Rule,
    synthetic::{Drawn, Tuple},
};

/// What DPDK's tables may take: without a limit, a large set has it use gigabytes.
const MAX_BYTES: usize = 512 << 20;

/// For IPv4.
pub(super) fn ip4<'a>(
    prefix: &str,
    rules: &[Rule<u32>],
    keys: &'a Traces<u32>,
    to: &mut Vec<(String, Run<'a>)>,
    report: &mut Report,
) -> Result<()> {
    let tuples = keys.tuples.each_ref().map(|tuples| tuples.iter().map(tuple4).collect());
    add::<u32, 1, 16>(prefix, rules, |a| [a], tuples, to, report)
}

/// For IPv6.
pub(super) fn ip6<'a>(
    prefix: &str,
    rules: &[Rule<u128>],
    keys: &'a Traces<u128>,
    to: &mut Vec<(String, Run<'a>)>,
    report: &mut Report,
) -> Result<()> {
    let tuples = keys.tuples.each_ref().map(|tuples| tuples.iter().map(tuple6).collect());
    let words = |a: u128| [96, 64, 32, 0].map(|shift| (a >> shift) as u32);
    add::<u128, 4, 40>(prefix, rules, words, tuples, to, report)
}

fn add<'a, A: Drawn, const WORDS: usize, const BYTES: usize>(
    prefix: &str,
    rules: &[Rule<A>],
    words: impl Fn(A) -> [u32; WORDS],
    keys: [Vec<[u8; BYTES]>; 3],
    to: &mut Vec<(String, Run<'a>)>,
    report: &mut Report,
) -> Result<()> {
    let theirs: Vec<AclRule<WORDS>> = rules
        .iter()
        .map(|rule| AclRule {
            userdata: rule.action,
            protocol: rule.protocol,
            addresses: [words(rule.src.first()), words(rule.dst.first())],
            lens: [rule.src.len(), rule.dst.len()],
            ports: [
                *rule.src_ports.start(),
                *rule.src_ports.end(),
                *rule.dst_ports.start(),
                *rule.dst_ports.end(),
            ],
        })
        .collect();
    let name: String = prefix.chars().rev().take(30).collect();
    let (ns, acl) = timed(|| RteAcl::new(&name, &theirs, MAX_BYTES));
    report.results.push(Measured::new(format!("{prefix}.rte_acl.build"), "ms", &[ns / 1e6]));
    let mut acl = acl?;
    // The widest that the CPU has: DPDK's own choice.
    let mut kernel = "scalar";
    for (wider, name) in
        [(AclKernel::Avx2, "avx2"), (AclKernel::Avx512x16, "avx512x16"), (AclKernel::Avx512x32, "avx512x32")]
    {
        if acl.select(wider).is_ok() {
            kernel = name;
        }
    }
    let run = move |trace: usize| {
        let mut out = [0; 64];
        let mut sum = 0;
        for keys in keys[trace].chunks(64) {
            acl.lookup(keys, &mut out);
            sum += out[..keys.len()].iter().map(|&id| u64::from(id)).sum::<u64>();
        }
        sum
    };
    to.push((format!("rte_acl_{kernel}"), Box::new(run)));
    Ok(())
}

fn tuple4(tuple: &Tuple<u32>) -> [u8; 16] {
    let mut key = [0; 16];
    key[0] = tuple.protocol;
    key[4..8].copy_from_slice(&tuple.src.to_be_bytes());
    key[8..12].copy_from_slice(&tuple.dst.to_be_bytes());
    key[12..14].copy_from_slice(&tuple.src_port.to_be_bytes());
    key[14..16].copy_from_slice(&tuple.dst_port.to_be_bytes());
    key
}

fn tuple6(tuple: &Tuple<u128>) -> [u8; 40] {
    let mut key = [0; 40];
    key[0] = tuple.protocol;
    key[4..20].copy_from_slice(&tuple.src.to_be_bytes());
    key[20..36].copy_from_slice(&tuple.dst.to_be_bytes());
    key[36..38].copy_from_slice(&tuple.src_port.to_be_bytes());
    key[38..40].copy_from_slice(&tuple.dst_port.to_be_bytes());
    key
}
