//! `[[multicast_route]]`: static multicast routes.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_engine::desired::{MulticastOutputSpec, MulticastRouteSpec};
use linerate_router::MrouteKey;

use super::decode::{At, Item, Section, Source};
use super::interfaces::no_such;
use super::resolve::Network;

const INTERFACE: &str = "the name of an [[interface]]";
const OUTPUTS: &str = "a list of interfaces, each a name or { interface, ttl_threshold }";

pub(super) fn read(
    sections: Vec<Section<'_>>,
    source: &Source<'_>,
    net: &Network<'_>,
) -> Vec<MulticastRouteSpec> {
    let mut seen: HashMap<MrouteKey, usize> = HashMap::new();
    let mut out = Vec::new();
    for section in sections {
        let (at, key) = (section.at, section.key.clone());
        let Some(route) = one(section, source, net) else { continue };
        let vrf = net.vrf_of(&route.input);
        let stream = MrouteKey { vrf, group: route.group, source: route.source };
        if let Some(first) = seen.insert(stream, at) {
            let line = source.line(first);
            source.problem(at, key, format!("{stream} again, after line {line}: expected each once"));
            continue;
        }
        out.push(route);
    }
    out
}

fn one(mut s: Section<'_>, source: &Source<'_>, net: &Network<'_>) -> Option<MulticastRouteSpec> {
    let group = s.need("group", "a multicast group").and_then(|i| i.parse::<IpAddr>("a multicast group"));
    let sender = s.take("source").map(|i| i.parse::<IpAddr>("the address of a sender"));
    let input = s.need("input", INTERFACE).and_then(|i| interface(&i, source, net));
    let outputs = s.need("outputs", OUTPUTS).and_then(|i| outputs(&i, source, net));
    s.finish();
    let (group, input, outputs) = (group?, input?, outputs?);
    // A sender that is there and wrong has been told of.
    let sender = match sender {
        Some(sender) => Some(sender?.value),
        None => None,
    };
    if let Err(error) = (MrouteKey { vrf: 0, group: group.value, source: sender }).check() {
        group.problem(source, error.to_string());
        return None;
    }
    if let Some(back) = outputs.iter().find(|o| o.value.interface == input.value) {
        back.problem(source, format!("\"{}\" is the input: packets never go back", input.value));
    }
    Some(MulticastRouteSpec {
        source: sender,
        group: group.value,
        input: input.value,
        outputs: outputs.into_iter().map(|o| o.value).collect(),
    })
}

fn interface(item: &Item<'_>, source: &Source<'_>, net: &Network<'_>) -> Option<At<String>> {
    let name = item.string(INTERFACE)?;
    if net.interface(&name.value).is_none() {
        name.problem(source, no_such("interface", &name.value, net.interface_names()));
        return None;
    }
    Some(name)
}

fn outputs(item: &Item<'_>, source: &Source<'_>, net: &Network<'_>) -> Option<Vec<At<MulticastOutputSpec>>> {
    let mut out: Vec<At<MulticastOutputSpec>> = Vec::new();
    let mut all = true;
    for item in item.list(OUTPUTS)? {
        let Some(output) = output(&item, source, net) else {
            all = false;
            continue;
        };
        if out.iter().any(|o| o.value.interface == output.value.interface) {
            output
                .problem(source, format!("\"{}\" again: expected each output once", output.value.interface));
        }
        out.push(output);
    }
    all.then_some(out)
}

fn output(item: &Item<'_>, source: &Source<'_>, net: &Network<'_>) -> Option<At<MulticastOutputSpec>> {
    if !item.is_table() {
        let name = interface(item, source, net)?;
        return Some(name.map(|interface| MulticastOutputSpec { interface, ttl_threshold: 0 }));
    }
    let mut s = item.section(OUTPUTS)?;
    let name = s.need("interface", INTERFACE).and_then(|i| interface(&i, source, net));
    let ttl_threshold = s.number("ttl_threshold", 0..=255u8, "a TTL that packets must exceed,", 0);
    s.finish();
    Some(name?.map(|interface| MulticastOutputSpec { interface, ttl_threshold }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bad, good, with};
    use super::*;

    #[test]
    fn streams_and_groups_with_their_outputs() {
        let config = good(&with(
            r#"
[[multicast_route]]
source = "10.0.0.9"
group = "232.1.1.1"
input = "lan0"
outputs = ["wan0"]
[[multicast_route]]
group = "232.1.1.1"
input = "lan0"
outputs = []
[[multicast_route]]
group = "ff3e::1"
input = "wan0"
outputs = [{ interface = "lan0", ttl_threshold = 16 }]
"#,
        ));
        let output = |interface: &str, ttl_threshold| MulticastOutputSpec {
            interface: interface.into(),
            ttl_threshold,
        };
        let route = |source: Option<&str>, group: &str, input: &str, outputs| MulticastRouteSpec {
            source: source.map(|s| s.parse().unwrap()),
            group: group.parse().unwrap(),
            input: input.into(),
            outputs,
        };
        assert_eq!(
            config.desired.multicast_routes,
            [
                route(Some("10.0.0.9"), "232.1.1.1", "lan0", vec![output("wan0", 0)]),
                route(None, "232.1.1.1", "lan0", vec![]),
                route(None, "ff3e::1", "wan0", vec![output("lan0", 16)]),
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let route = |more: &str| with(&format!("[[multicast_route]]\ninput = \"lan0\"\n{more}\n"));
        for (more, message) in [
            (
                "group = \"10.0.0.1\"\noutputs = []",
                "t.toml:27: multicast_route.group: 10.0.0.1 is no multicast group: IPv4 groups are in 224.0.0.0/4, IPv6 groups in ff00::/8",
            ),
            (
                "group = \"224.0.0.5\"\noutputs = []",
                "t.toml:27: multicast_route.group: 224.0.0.5 is never forwarded: packets to it stay on their link (224.0.0.0/24, and ff00::/8 of scope 0 to 2)",
            ),
            (
                "group = \"239.0.0.5\"\nsource = \"fd00::1\"\noutputs = []",
                "t.toml:27: multicast_route.group: source fd00::1 and group 239.0.0.5 are of different address families",
            ),
            (
                "group = \"239.0.0.5\"\nsource = \"x\"\noutputs = []",
                "t.toml:28: multicast_route.source: found \"x\": expected the address of a sender",
            ),
            (
                "group = \"239.0.0.5\"",
                "t.toml:25: multicast_route: the key `outputs` is missing: expected a list of interfaces, each a name or { interface, ttl_threshold }",
            ),
            (
                "group = \"239.0.0.5\"\noutputs = [\"wan1\"]",
                "t.toml:28: multicast_route.outputs[0]: there is no interface \"wan1\": did you mean \"wan0\"?",
            ),
            (
                "group = \"239.0.0.5\"\noutputs = [\"lan0\"]",
                "t.toml:28: multicast_route.outputs[0]: \"lan0\" is the input: packets never go back",
            ),
            (
                "group = \"239.0.0.5\"\noutputs = [\"wan0\", { interface = \"wan0\" }]",
                "t.toml:28: multicast_route.outputs[1].interface: \"wan0\" again: expected each output once",
            ),
            (
                "group = \"239.0.0.5\"\noutputs = [{ interface = \"wan0\", ttl_threshold = 256 }]",
                "t.toml:28: multicast_route.outputs[0].ttl_threshold: found 256: expected a TTL that packets must exceed, from 0 to 255",
            ),
        ] {
            let problems = bad(&route(more));
            let (place, text) = message.split_once(": multicast_route").unwrap_or_default();
            let is_it = |p: &String| {
                p.starts_with(&format!("{place}:")) && p.ends_with(&format!(" multicast_route[0]{text}"))
            };
            assert!(problems.len() == 1 && problems.iter().all(is_it), "{problems:?} are not {message}");
        }
        let twice = route(
            "group = \"239.0.0.5\"\noutputs = []\n[[multicast_route]]\ninput = \"wan0\"\ngroup = \"239.0.0.5\"\noutputs = []",
        );
        let problems = bad(&twice);
        let again = "multicast_route[1]: (*, 239.0.0.5) again, after line 25: expected each once";
        assert!(problems.len() == 1 && problems[0].ends_with(again), "{problems:?}");
    }
}
