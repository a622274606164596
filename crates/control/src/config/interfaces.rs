//! `[[interface]]`: the router's logical interfaces, each a port or a VLAN on a port.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use linerate_engine::desired::{InterfaceSpec, IpPolicy, SourceValidation};
use linerate_pipeline::VrfId;

use super::decode::{At, Item, Section, Source};
use super::ports::Port;
use super::problem::suggest;
use super::vrfs::Vrfs;

/// Least MTU of a link that carries IPv6 (RFC 8200 section 5).
const IPV6_MTU: u16 = 1280;

pub(super) struct Interface {
    pub(super) spec: InterfaceSpec,
    /// Number of its VRF.
    pub(super) vrf: VrfId,
    name: Option<At<String>>,
    addresses: Vec<At<IpNet>>,
    /// Names of access lists, in and out.
    lists: [Option<At<String>>; 2],
    at: usize,
    key: String,
    /// Whether port and VLANs are valid, so that comparing them with others means something.
    placed: bool,
}

pub(super) fn read(
    sections: Vec<Section<'_>>,
    source: &Source<'_>,
    ports: &[Port],
    vrfs: &Vrfs,
) -> Vec<Interface> {
    let mut all: Vec<Interface> = Vec::new();
    for section in sections {
        let interface = one(section, source, ports, vrfs);
        for other in &all {
            clashes(&interface, other, source);
        }
        all.push(interface);
    }
    for port in ports {
        let named = port.name.as_ref().filter(|n| !all.iter().any(|i| i.spec.port == n.value));
        if let Some(name) = named {
            name.warning(source, "no [[interface]] uses this port: what it receives is dropped");
        }
    }
    all
}

impl Interface {
    /// The access lists it names.
    pub(super) fn lists(&self) -> impl Iterator<Item = &At<String>> {
        self.lists.iter().flatten()
    }
}

fn one(mut s: Section<'_>, source: &Source<'_>, ports: &[Port], vrfs: &Vrfs) -> Interface {
    let (at, key) = (s.at, s.key.clone());
    // 15 characters: an interface appears in Linux under its name.
    let name = super::name(&mut s, 15);
    let port = s.need("port", "the name of a [[port]]").and_then(|i| port(&i, ports));
    let vlan_item = s.take("vlan");
    let inner_item = s.take("inner_vlan");
    let vlan = vlan_item.as_ref().and_then(|i| i.number(1..=4094, "a VLAN id"));
    let inner = inner_item.as_ref().and_then(|i| i.number(1..=4094, "a VLAN id"));
    if let (None, Some(inner)) = (&vlan_item, &inner) {
        inner.problem(source, "an inner VLAN needs an outer one: expected `vlan` too");
    }
    let mac = s.take("mac").and_then(|i| super::mac(&i)).map(|m| m.value);
    let mtu = s.take("mtu").and_then(|i| i.number(68..=9216u16, "an MTU"));
    let port_mtu = port.map_or(9216, |p| p.spec.mtu);
    if let Some(mtu) = mtu.as_ref().filter(|m| m.value > port_mtu) {
        mtu.problem(source, format!("found {}: expected at most {port_mtu}, the MTU of the port", mtu.value));
    }
    let list = s.take("addresses").and_then(|i| i.list("a list of addresses such as [\"198.51.100.1/24\"]"));
    let addresses: Vec<At<IpNet>> = list.unwrap_or_default().iter().filter_map(address).collect();
    for (i, a) in addresses.iter().enumerate() {
        if addresses[..i].iter().any(|o| o.value.addr() == a.value.addr()) {
            a.problem(source, format!("{} is in the list twice: expected each address once", a.value.addr()));
        }
    }
    let layer3_mtu = mtu.as_ref().map_or(port_mtu, |m| m.value);
    if let Some(a) = addresses.iter().find(|a| a.value.addr().is_ipv6() && layer3_mtu < IPV6_MTU) {
        let message = format!(
            "an IPv6 address on a link with MTU {layer3_mtu}: expected at least {IPV6_MTU} (RFC 8200)"
        );
        a.problem(source, message);
    }
    if layer3_mtu < IPV6_MTU && addresses.iter().all(|a| a.value.addr().is_ipv4()) {
        let message = format!(
            "IPv6 needs an MTU of {IPV6_MTU} (RFC 8200), this link has {layer3_mtu}: IPv6 packets that are larger are \
             lost, as hosts ignore what they are told about smaller links"
        );
        match &mtu {
            Some(mtu) => mtu.warning(source, message),
            None => source.warning(at, &key, message),
        }
    }
    let up = s.flag("up", true);
    let lists = ["acl_in", "acl_out"].map(|key| s.take(key).and_then(|i| i.string("the name of an [[acl]]")));
    let [acl_in, acl_out] = lists.each_ref().map(|l| l.as_ref().map(|l| l.value.clone()));
    let vrf = vrfs.of(s.take("vrf").as_ref()).unwrap_or_default();
    let policy = policy(&mut s);
    s.finish();
    let placed =
        port.is_some() && vlan.is_some() == vlan_item.is_some() && inner.is_some() == inner_item.is_some();
    let spec = InterfaceSpec {
        name: name.as_ref().map(|n| n.value.clone()).unwrap_or_default(),
        port: port.map(|p| p.spec.name.clone()).unwrap_or_default(),
        vlan: vlan.map(|v| v.value),
        inner_vlan: inner.map(|v| v.value),
        mac,
        mtu: mtu.map(|m| m.value),
        addresses: addresses.iter().map(|a| a.value).collect(),
        up,
        acl_in,
        acl_out,
        vrf: vrfs.name(vrf).map(Into::into),
        policy,
    };
    Interface { spec, vrf, name, addresses, lists, at, key, placed }
}

/// What is left to the operator about IP.
fn policy(s: &mut Section<'_>) -> IpPolicy {
    const VALIDATION: &[(&str, SourceValidation)] = &[
        ("off", SourceValidation::Off),
        ("loose", SourceValidation::Loose),
        ("strict", SourceValidation::Strict),
    ];
    let source_validation = s.take("source_validation").and_then(|i| i.word(VALIDATION));
    IpPolicy {
        source_validation: source_validation.map(|w| w.value).unwrap_or_default(),
        directed_broadcast: s.flag("directed_broadcast", false),
        redirects: s.flag("redirects", false),
        learn_gratuitous: s.flag("learn_gratuitous", false),
    }
}

fn port<'p>(item: &Item<'_>, ports: &'p [Port]) -> Option<&'p Port> {
    let wanted = item.string("the name of a [[port]]")?;
    let names = || ports.iter().filter_map(|p| p.name.as_ref()).map(|n| n.value.as_str());
    let found = ports.iter().find(|p| p.name.as_ref().is_some_and(|n| n.value == wanted.value));
    if found.is_none() {
        wanted.problem(item.source, no_such("port", &wanted.value, names()));
    }
    found
}

/// "There is no port "wan": did you mean …?"
pub(super) fn no_such<'n>(kind: &str, wanted: &str, names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let found = format!("there is no {kind} \"{}\"", wanted.escape_debug());
    match suggest(wanted, names.iter().copied()) {
        Some(meant) => format!("{found}: did you mean \"{meant}\"?"),
        None if names.is_empty() => format!("{found}: expected the name of a [[{kind}]], and there is none"),
        None => {
            let list = names.iter().take(8).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
            let more = if names.len() > 8 { " …" } else { "" };
            format!("{found}: expected one of {list}{more}")
        }
    }
}

fn address(item: &Item<'_>) -> Option<At<IpNet>> {
    let what = "an address with its prefix length such as 198.51.100.1/24 or 2001:db8::1/64";
    let net = item.parse::<IpNet>(what)?;
    match usable(net.value) {
        Ok(()) => Some(net),
        Err(message) => {
            net.problem(item.source, message);
            None
        }
    }
}

/// Whether a router can have this address.
fn usable(net: IpNet) -> Result<(), String> {
    let kind = match net.addr() {
        a if a.is_unspecified() => Some("the unspecified address"),
        a if a.is_loopback() => Some("a loopback address"),
        a if a.is_multicast() => Some("a multicast address"),
        IpAddr::V4(a) if a.octets()[0] == 0 || a.octets()[0] >= 240 => Some("a reserved address"),
        _ => None,
    };
    if let Some(kind) = kind {
        return Err(format!("found {kind}, {}: expected a unicast address", net.addr()));
    }
    if net.prefix_len() == 0 {
        return Err(format!("found {net}: expected the prefix length of a link, not a default route"));
    }
    if let IpNet::V4(v4) = net
        && v4.prefix_len() < 31
    {
        let first = Ipv4Addr::from(u32::from(v4.network()) + 1);
        let length = v4.prefix_len();
        if v4.addr() == v4.network() {
            return Err(format!(
                "{net} is the network itself: expected a host address in it such as {first}/{length}"
            ));
        }
        if v4.addr() == v4.broadcast() {
            return Err(format!(
                "{net} is the broadcast address: expected a host address such as {first}/{length}"
            ));
        }
    }
    Ok(())
}

fn clashes(new: &Interface, old: &Interface, source: &Source<'_>) {
    // Made for problems only: every pair of interfaces comes by here.
    let first = || format!("interface \"{}\" (line {})", old.spec.name, source.line(old.at));
    if let (Some(a), Some(b)) = (&new.name, &old.name)
        && a.value == b.value
    {
        a.problem(source, format!("the name of {} again: expected another", first()));
    }
    let same_place = |a: &InterfaceSpec, b: &InterfaceSpec| {
        (a.vlan, a.inner_vlan) == (b.vlan, b.inner_vlan) && a.port == b.port
    };
    if new.placed && old.placed && same_place(&new.spec, &old.spec) {
        let vlan = match (new.spec.vlan, new.spec.inner_vlan) {
            (Some(v), Some(i)) => format!("VLAN {v}.{i}"),
            (Some(v), None) => format!("VLAN {v}"),
            _ => "the untagged frames".into(),
        };
        let message = format!(
            "{} already has {vlan} of port \"{}\": expected another VLAN or port",
            first(),
            new.spec.port
        );
        source.problem(new.at, &new.key, message);
    }
    for a in &new.addresses {
        for b in &old.addresses {
            let link_local = is_link_local(a.value.addr()) && is_link_local(b.value.addr());
            if link_local || new.vrf != old.vrf {
                continue;
            }
            let (lower, upper) = (a.value.trunc(), b.value.trunc());
            if a.value.addr() == b.value.addr() {
                a.problem(
                    source,
                    format!("{} is an address of {} already: expected another", a.value.addr(), first()),
                );
            } else if lower.contains(&upper) || upper.contains(&lower) {
                a.warning(
                    source,
                    format!(
                        "{lower} overlaps {upper} of {}: the longer prefix wins, then the first",
                        first()
                    ),
                );
            }
        }
    }
}

/// An IPv6 address that means something on its link only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(a) if a.is_unicast_link_local())
}
