//! `RTM_*LINK`, `RTM_*ADDR`, `RTM_*NEIGH`: fixed parts and attributes (`linux/if_link.h`, `if_addr.h`, `neighbour.h`).

use ipnet::IpNet;

use super::decode::Context;
use super::fault::Fault;
use super::interface::{Address, Link, LinkDetail, Mac, Neighbor, NeighborState};
use super::wire::*;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
/// `IFLA_DPLL_PIN` and a few that came after.
const IFLA_KNOWN: u16 = 72;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_VRF_TABLE: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
const IFF_RUNNING: u32 = 0x40;
const IFF_LOWER_UP: u32 = 1 << 16;

/// Decodes an interface. `None`: a message of another family, which says something about bridging or IPv6 on it; a
/// delete of that kind does not mean that the interface is gone.
pub(super) fn link(cx: &mut Context<'_>, body: &[u8]) -> Result<Option<Link>, Fault> {
    let (fixed, rest) = cx.fixed::<16>(body)?;
    let [family, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fixed;
    if family != AF_UNSPEC {
        return Ok(None);
    }
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let mut link = Link {
        index: u32::from_ne_bytes([i0, i1, i2, i3]),
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        running: flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING,
        loopback: flags & IFF_LOOPBACK != 0,
        master: None,
        parent: None,
        detail: LinkDetail::Plain,
    };
    for attribute in cx.attributes(rest) {
        let (kind, v) = attribute?;
        match kind {
            IFLA_ADDRESS => link.mac = mac(v),
            IFLA_IFNAME => link.name = text(v),
            IFLA_MTU => link.mtu = cx.value(kind, u32_of(v))?,
            IFLA_LINK => link.parent = Some(cx.value(kind, u32_of(v))?).filter(|i| *i != 0),
            IFLA_MASTER => link.master = Some(cx.value(kind, u32_of(v))?).filter(|i| *i != 0),
            IFLA_LINKINFO => link.detail = detail(cx, v)?,
            other => cx.ignored(other, IFLA_KNOWN),
        }
    }
    Ok(Some(link))
}

fn detail(cx: &mut Context<'_>, value: &[u8]) -> Result<LinkDetail, Fault> {
    let (mut name, mut data) = (String::new(), &[][..]);
    for attribute in cx.attributes(value) {
        match attribute? {
            (IFLA_INFO_KIND, v) => name = text(v),
            (IFLA_INFO_DATA, v) => data = v,
            _ => {}
        }
    }
    let wrong = Fault::Value { message: cx.message, attribute: IFLA_LINKINFO };
    let find = |wanted: u16| {
        cx.attributes(data)
            .filter_map(Result::ok)
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, v)| v)
            .ok_or(wrong)
    };
    Ok(match name.as_str() {
        "" => LinkDetail::Plain,
        "vlan" => LinkDetail::Vlan {
            id: u16_of(find(IFLA_VLAN_ID)?).ok_or(wrong)?,
            ethertype: u16_of(find(IFLA_VLAN_PROTOCOL)?).map(u16::from_be).ok_or(wrong)?,
        },
        "vrf" => LinkDetail::Vrf { table: u32_of(find(IFLA_VRF_TABLE)?).ok_or(wrong)? },
        _ => LinkDetail::Other(name),
    })
}

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// `IFA_PROTO`, the newest.
const IFA_KNOWN: u16 = 11;
const IFA_F_SECONDARY: u32 = 0x01;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_TENTATIVE: u32 = 0x40;

/// Decodes an address. `IFA_LOCAL` is the host's own where it is given, `IFA_ADDRESS` then the other end of a
/// point-to-point link (or the same again).
pub(super) fn address(cx: &mut Context<'_>, body: &[u8]) -> Result<Address, Fault> {
    let (fixed, rest) = cx.fixed::<8>(body)?;
    let [family, length, flags, _scope, index @ ..] = *fixed;
    if !matches!(family, AF_INET | AF_INET6) {
        return Err(cx.family(family));
    }
    let (mut local, mut other, mut flags) = (None, None, u32::from(flags));
    for attribute in cx.attributes(rest) {
        let (kind, v) = attribute?;
        match kind {
            IFA_ADDRESS => other = Some(cx.value(kind, address_of(family, v))?),
            IFA_LOCAL => local = Some(cx.value(kind, address_of(family, v))?),
            IFA_FLAGS => flags = cx.value(kind, u32_of(v))?,
            other => cx.ignored(other, IFA_KNOWN),
        }
    }
    let own = local.or(other).ok_or(cx.missing(IFA_LOCAL))?;
    Ok(Address {
        interface: u32::from_ne_bytes(index),
        address: IpNet::new(own, length).map_err(|_| Fault::PrefixLength { message: cx.message, length })?,
        peer: other.filter(|a| *a != own),
        tentative: flags & IFA_F_TENTATIVE != 0,
        duplicate: flags & IFA_F_DADFAILED != 0,
        secondary: flags & IFA_F_SECONDARY != 0,
    })
}

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// `NDA_NDM_FLAGS_MASK`, the newest.
const NDA_KNOWN: u16 = 17;
const NTF_PROXY: u8 = 1 << 3;
const NTF_EXT_LEARNED: u8 = 1 << 4;
const NTF_ROUTER: u8 = 1 << 7;

/// Decodes a neighbour. `None`: an entry of a bridge's forwarding database.
pub(super) fn neighbor(cx: &mut Context<'_>, body: &[u8]) -> Result<Option<Neighbor>, Fault> {
    let (fixed, rest) = cx.fixed::<12>(body)?;
    let [family, _, _, _, i0, i1, i2, i3, s0, s1, flags, _kind] = *fixed;
    if !matches!(family, AF_INET | AF_INET6) {
        return Ok(None);
    }
    let (mut destination, mut lladdr) = (None, None);
    for attribute in cx.attributes(rest) {
        let (kind, v) = attribute?;
        match kind {
            NDA_DST => destination = Some(cx.value(kind, address_of(family, v))?),
            NDA_LLADDR => lladdr = mac(v),
            other => cx.ignored(other, NDA_KNOWN),
        }
    }
    Ok(Some(Neighbor {
        interface: u32::from_ne_bytes([i0, i1, i2, i3]),
        address: destination.ok_or(cx.missing(NDA_DST))?,
        mac: lladdr,
        state: NeighborState::from(u16::from_ne_bytes([s0, s1])),
        router: flags & NTF_ROUTER != 0,
        proxy: flags & NTF_PROXY != 0,
        external: flags & NTF_EXT_LEARNED != 0,
    }))
}

/// An Ethernet address; link-layer addresses of other sizes (tunnels have IP addresses there) are none.
fn mac(value: &[u8]) -> Option<Mac> {
    value.try_into().ok().map(Mac)
}

/// A C string; names of Linux are ASCII by custom, and shown with replacement characters where they are not.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}
