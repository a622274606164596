//! `RTM_NEWROUTE`, `RTM_DELROUTE`: `struct rtmsg` and attributes (`linux/rtnetlink.h`).

use std::net::IpAddr;

use super::decode::Context;
use super::fault::Fault;
use super::model::{Encap, MulticastRoute, NextHop, Protocol, Route, RouteKind, Scope};
use super::wire::*;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_NH_ID: u16 = 30;
/// `RTA_FLOWLABEL`, the newest.
const RTA_KNOWN: u16 = 31;
const RTAX_MTU: u16 = 2;

const RTM_F_CLONED: u32 = 0x200;
const RTNH_F_DEAD: u32 = 1;
const RTNH_F_ONLINK: u32 = 4;
const RTNH_F_LINKDOWN: u32 = 16;

pub(super) enum RouteMessage {
    Route(Route),
    Multicast(MulticastRoute),
}

/// Decodes a route. `None`: a cache entry of the kernel.
pub(super) fn route(cx: &mut Context<'_>, body: &[u8]) -> Result<Option<RouteMessage>, Fault> {
    let (fixed, rest) = cx.fixed::<12>(body)?;
    let [family, dst_len, src_len, tos, table, protocol, scope, kind, flags @ ..] = *fixed;
    let flags = u32::from_ne_bytes(flags);
    if !matches!(family, AF_INET | AF_INET6 | IPMR | IP6MR) {
        return Err(cx.family(family));
    }
    if flags & RTM_F_CLONED != 0 {
        return Ok(None);
    }
    let a = Attributes::read(cx, family, rest)?;
    let table = a.table.unwrap_or(table.into());
    if matches!(family, IPMR | IP6MR) {
        return Ok(Some(RouteMessage::Multicast(a.multicast(family == IP6MR, table))));
    }
    // A default route has no destination; one of another length must have.
    let destination = match a.destination {
        Some(address) => address,
        None if dst_len == 0 => any_address(family),
        None => return Err(cx.missing(RTA_DST)),
    };
    let prefix = prefix_of(cx.message, destination, dst_len)?;
    let from = match a.source {
        Some(address) if src_len > 0 => Some(prefix_of(cx.message, address, src_len)?),
        _ => None,
    };
    let kind = RouteKind::from(kind);
    Ok(Some(RouteMessage::Route(Route {
        table,
        prefix,
        tos,
        metric: a.metric,
        protocol: Protocol(protocol),
        scope: Scope::from(scope),
        kind,
        from,
        preferred_source: a.preferred_source,
        mtu: a.mtu,
        nexthop: a.nexthop,
        // The kernel says that IPv6 routes that drop go out by the loopback.
        next_hops: if kind.drops() { Vec::new() } else { a.next_hops(flags) },
    })))
}

/// A route's attributes, as far as they matter.
#[derive(Default)]
struct Attributes {
    destination: Option<IpAddr>,
    source: Option<IpAddr>,
    input: Option<u32>,
    table: Option<u32>,
    metric: u32,
    preferred_source: Option<IpAddr>,
    mtu: Option<u32>,
    nexthop: Option<u32>,
    gateway: Option<IpAddr>,
    interface: Option<u32>,
    encap: Option<Encap>,
    multipath: Vec<(NextHop, u8)>,
}

impl Attributes {
    fn read(cx: &mut Context<'_>, family: u8, bytes: &[u8]) -> Result<Self, Fault> {
        let mut a = Attributes::default();
        for attribute in cx.attributes(bytes) {
            let (kind, v) = attribute?;
            match kind {
                RTA_DST => a.destination = Some(cx.value(kind, address_of(family, v))?),
                RTA_SRC => a.source = Some(cx.value(kind, address_of(family, v))?),
                RTA_IIF => a.input = Some(cx.value(kind, u32_of(v))?),
                RTA_OIF => a.interface = Some(cx.value(kind, u32_of(v))?),
                RTA_GATEWAY => a.gateway = Some(cx.value(kind, address_of(family, v))?),
                RTA_VIA => a.gateway = Some(cx.value(kind, via(v))?),
                RTA_PRIORITY => a.metric = cx.value(kind, u32_of(v))?,
                RTA_PREFSRC => a.preferred_source = Some(cx.value(kind, address_of(family, v))?),
                RTA_METRICS => a.mtu = mtu(cx, v)?,
                RTA_MULTIPATH => a.multipath = multipath(cx, family, v)?,
                RTA_TABLE => a.table = Some(cx.value(kind, u32_of(v))?),
                RTA_ENCAP_TYPE => a.encap = Some(cx.value(kind, u16_of(v).map(Encap))?),
                RTA_NH_ID => a.nexthop = Some(cx.value(kind, u32_of(v))?).filter(|id| *id != 0),
                other => cx.ignored(other, RTA_KNOWN),
            }
        }
        Ok(a)
    }

    fn next_hops(self, flags: u32) -> Vec<NextHop> {
        if !self.multipath.is_empty() {
            return self.multipath.into_iter().map(|(hop, _)| hop).collect();
        }
        if self.gateway.is_none() && self.interface.is_none() {
            return Vec::new();
        }
        let hop = NextHop {
            gateway: self.gateway,
            interface: self.interface,
            encap: self.encap,
            ..NextHop::default()
        };
        vec![flagged(hop, flags)]
    }

    fn multicast(self, v6: bool, table: u32) -> MulticastRoute {
        let outputs =
            self.multipath.into_iter().filter_map(|(hop, ttl)| Some((hop.interface?, ttl))).collect();
        let some = |a: Option<IpAddr>| a.filter(|a| !a.is_unspecified());
        MulticastRoute {
            v6,
            table,
            source: some(self.source),
            group: some(self.destination),
            input: self.input.filter(|i| *i != 0),
            outputs,
        }
    }
}

/// The next hops of `RTA_MULTIPATH` (`struct rtnexthop`), each with its `rtnh_hops`.
fn multipath(cx: &mut Context<'_>, family: u8, mut bytes: &[u8]) -> Result<Vec<(NextHop, u8)>, Fault> {
    let wrong = Fault::Value { message: cx.message, attribute: RTA_MULTIPATH };
    let mut hops = Vec::new();
    while !bytes.is_empty() {
        let [l0, l1, flags, weight, i0, i1, i2, i3] = *bytes.first_chunk().ok_or(wrong)?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let rest = bytes.get(8..length).ok_or(wrong)?;
        let a = Attributes::read_hop(cx, family, rest)?;
        let interface = u32::from_ne_bytes([i0, i1, i2, i3]);
        let hop = NextHop {
            gateway: a.gateway,
            interface: Some(interface).filter(|i| *i != 0),
            weight: u32::from(weight) + 1,
            encap: a.encap,
            ..NextHop::default()
        };
        hops.push((flagged(hop, flags.into()), weight));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(hops)
}

impl Attributes {
    /// The attributes of one next hop: no nested list of next hops, so that nothing recurses.
    fn read_hop(cx: &mut Context<'_>, family: u8, bytes: &[u8]) -> Result<Self, Fault> {
        let mut a = Attributes::default();
        for attribute in cx.attributes(bytes) {
            let (kind, v) = attribute?;
            match kind {
                RTA_GATEWAY => a.gateway = Some(cx.value(kind, address_of(family, v))?),
                RTA_VIA => a.gateway = Some(cx.value(kind, via(v))?),
                RTA_ENCAP_TYPE => a.encap = Some(cx.value(kind, u16_of(v).map(Encap))?),
                other => cx.ignored(other, RTA_KNOWN),
            }
        }
        Ok(a)
    }
}

/// `struct rtvia`: address family in host order, then the address, whole.
fn via(value: &[u8]) -> Option<IpAddr> {
    let (family, address) = value.split_first_chunk::<2>()?;
    address_of(u8::try_from(u16::from_ne_bytes(*family)).ok()?, address)
}

fn mtu(cx: &mut Context<'_>, value: &[u8]) -> Result<Option<u32>, Fault> {
    let mut mtu = None;
    for attribute in cx.attributes(value) {
        if let (RTAX_MTU, v) = attribute? {
            mtu = Some(cx.value(RTA_METRICS, u32_of(v))?);
        }
    }
    Ok(mtu)
}

/// Sets what `RTNH_F_*` bits say.
pub(super) fn flagged(hop: NextHop, flags: u32) -> NextHop {
    NextHop {
        onlink: flags & RTNH_F_ONLINK != 0,
        dead: flags & RTNH_F_DEAD != 0,
        link_down: flags & RTNH_F_LINKDOWN != 0,
        ..hop
    }
}
