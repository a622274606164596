//! `RTM_*RULE`: fixed part and attributes (`linux/fib_rules.h`).

use super::decode::Context;
use super::decode_interface::text;
use super::fault::Fault;
use super::model::RuleSeen;
use super::wire::*;

const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
/// `FRA_DSCP` and a few that came after.
const FRA_KNOWN: u16 = 32;
const FR_ACT_TO_TBL: u8 = 1;

/// Decodes a rule. `None`: of a family that routes nothing here.
pub(super) fn rule(cx: &mut Context<'_>, body: &[u8]) -> Result<Option<RuleSeen>, Fault> {
    let (fixed, rest) = cx.fixed::<12>(body)?;
    let [family, _, from_length, _, table, _, _, action, ..] = *fixed;
    if !matches!(family, AF_INET | AF_INET6 | IPMR | IP6MR) {
        return Ok(None);
    }
    let (mut rule, mut table) = (
        RuleSeen {
            v6: matches!(family, AF_INET6 | IP6MR),
            multicast: matches!(family, IPMR | IP6MR),
            priority: 0,
            table: None,
            from: None,
            input: None,
            output: None,
        },
        u32::from(table),
    );
    for attribute in cx.attributes(rest) {
        let (kind, v) = attribute?;
        match kind {
            FRA_SRC => {
                let address = cx.value(kind, address_of(family, v))?;
                rule.from = Some(prefix_of(cx.message, address, from_length)?);
            }
            FRA_IIFNAME => rule.input = Some(text(v)),
            FRA_OIFNAME => rule.output = Some(text(v)),
            FRA_PRIORITY => rule.priority = cx.value(kind, u32_of(v))?,
            FRA_TABLE => table = cx.value(kind, u32_of(v))?,
            other => cx.ignored(other, FRA_KNOWN),
        }
    }
    rule.table = Some(table).filter(|_| action == FR_ACT_TO_TBL);
    Ok(Some(rule))
}
