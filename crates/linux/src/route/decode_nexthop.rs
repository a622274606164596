//! `RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP`: `struct nhmsg` and attributes (`linux/nexthop.h`).

use super::decode::Context;
use super::decode_route::flagged;
use super::fault::Fault;
use super::model::{Encap, Members, NextHop, Nexthop, NexthopAction, Protocol, Resilience};
use super::wire::*;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_FDB: u16 = 11;
const NHA_RES_GROUP: u16 = 12;
/// `NHA_HW_STATS_USED`, the newest.
const NHA_KNOWN: u16 = 17;

const NHA_RES_GROUP_BUCKETS: u16 = 1;
const NHA_RES_GROUP_IDLE_TIMER: u16 = 2;
const NHA_RES_GROUP_UNBALANCED_TIMER: u16 = 3;

const NEXTHOP_GRP_TYPE_RES: u16 = 1;

/// Decodes a next-hop object.
pub(super) fn nexthop(cx: &mut Context<'_>, body: &[u8], delete: bool) -> Result<Nexthop, Fault> {
    let (fixed, rest) = cx.fixed::<8>(body)?;
    let [family, _scope, protocol, _, flags @ ..] = *fixed;
    let mut id = None;
    let mut hop = NextHop::default();
    let (mut blackhole, mut fdb, mut resilient) = (false, false, false);
    let mut members = Vec::new();
    let mut resilience = Resilience { buckets: 0, idle_timer: 0, unbalanced_timer: 0 };
    for attribute in cx.attributes(rest) {
        let (kind, v) = attribute?;
        match kind {
            NHA_ID => id = Some(cx.value(kind, u32_of(v))?),
            NHA_GROUP => members = cx.value(kind, group(v))?,
            NHA_GROUP_TYPE => resilient = cx.value(kind, u16_of(v))? == NEXTHOP_GRP_TYPE_RES,
            NHA_BLACKHOLE => blackhole = true,
            NHA_OIF => hop.interface = Some(cx.value(kind, u32_of(v))?),
            NHA_GATEWAY => hop.gateway = Some(cx.value(kind, address_of(family, v))?),
            NHA_ENCAP_TYPE => hop.encap = Some(cx.value(kind, u16_of(v).map(Encap))?),
            NHA_FDB => fdb = true,
            NHA_RES_GROUP => resilience = resilient_group(cx, v)?,
            other => cx.ignored(other, NHA_KNOWN),
        }
    }
    let id = id.filter(|id| *id != 0).ok_or(cx.missing(NHA_ID))?;
    let action = if delete {
        None
    } else if fdb {
        Some(NexthopAction::Fdb)
    } else if !members.is_empty() {
        Some(NexthopAction::Group(Members { members, resilience: resilient.then_some(resilience) }))
    } else if blackhole {
        Some(NexthopAction::Blackhole)
    } else if hop.gateway.is_none() && hop.interface.is_none() {
        return Err(cx.missing(NHA_OIF));
    } else {
        Some(NexthopAction::Forward(flagged(hop, u32::from_ne_bytes(flags))))
    };
    Ok(Nexthop { id, protocol: Protocol(protocol), action })
}

/// `struct nexthop_grp`: number, weight less 1 in two bytes (the high one since Linux 6.12), 2 bytes reserved.
fn group(value: &[u8]) -> Option<Vec<(u32, u32)>> {
    let (members, rest) = value.as_chunks::<8>();
    rest.is_empty().then(|| {
        members
            .iter()
            .map(|[a, b, c, d, low, high, _, _]| {
                (u32::from_ne_bytes([*a, *b, *c, *d]), u32::from(u16::from_le_bytes([*low, *high])) + 1)
            })
            .collect()
    })
}

fn resilient_group(cx: &mut Context<'_>, value: &[u8]) -> Result<Resilience, Fault> {
    let mut r = Resilience { buckets: 0, idle_timer: 0, unbalanced_timer: 0 };
    for attribute in cx.attributes(value) {
        let (kind, v) = attribute?;
        match kind {
            NHA_RES_GROUP_BUCKETS => r.buckets = cx.value(NHA_RES_GROUP, u16_of(v))?,
            NHA_RES_GROUP_IDLE_TIMER => r.idle_timer = cx.value(NHA_RES_GROUP, u32_of(v))?,
            NHA_RES_GROUP_UNBALANCED_TIMER => r.unbalanced_timer = cx.value(NHA_RES_GROUP, u32_of(v))?,
            _ => {}
        }
    }
    Ok(r)
}
