//! VRFs in configurations, good and bad.

use super::tests::{bad, good, with};
use linerate_engine::desired::{IpPolicy, SourceValidation, VrfSpec};

/// Two customers with the same addresses, and every way from one VRF to another.
const VRFS: &str = r#"
[[vrf]]
name = "red"
[[vrf]]
name = "blue"

[[interface]]
name = "red0"
port = "lan"
vlan = 1
vrf = "red"
addresses = ["10.0.0.1/24"]
source_validation = "strict"
redirects = true
[[interface]]
name = "blue0"
port = "lan"
vlan = 2
vrf = "blue"
addresses = ["10.0.0.1/24"]

[[route]]
vrf = "red"
prefix = "203.0.113.0/24"
via = "10.0.0.9"
[[route]]
vrf = "blue"
prefix = "203.0.113.0/24"
via = [{ gateway = "198.18.0.9", gateway_vrf = "default" }, { lookup_vrf = "red" }]
[[route]]
prefix = "203.0.113.0/24"
via = { gateway = "10.0.0.9", interface = "blue0" }
"#;

#[test]
fn vrfs_arrive_with_their_routes_and_ways_between_them() {
    let desired = good(&with(VRFS)).desired;
    let named = |name: &str| VrfSpec { name: name.into(), table: None };
    assert_eq!(desired.vrfs, [named("red"), named("blue")]);
    let of: Vec<_> = desired.interfaces.iter().map(|i| i.vrf.as_deref()).collect();
    assert_eq!(of, [None, None, Some("red"), Some("blue")]);
    let red =
        IpPolicy { source_validation: SourceValidation::Strict, redirects: true, ..IpPolicy::default() };
    let policies: Vec<_> = desired.interfaces.iter().map(|i| i.policy).collect();
    assert_eq!(policies, [IpPolicy::default(), IpPolicy::default(), red, IpPolicy::default()]);
    let of: Vec<_> = desired.routes.iter().map(|r| r.vrf.as_deref()).collect();
    assert_eq!(of, [Some("red"), Some("blue"), None]);
    let linerate_engine::desired::RouteAction::Forward(paths) = &*desired.routes[1].action else { panic!() };
    let ways: Vec<_> = paths.iter().map(|p| (p.gateway.is_some(), p.vrf.as_deref())).collect();
    assert_eq!(ways, [(true, Some("default")), (false, Some("red"))]);
}

#[test]
fn wrong_vrfs_are_told_with_line_and_what_was_expected() {
    let route =
        |vrf: &str, via: &str| format!("{VRFS}\n[[route]]\n{vrf}prefix = \"192.88.99.0/24\"\nvia = {via}\n");
    let cases: [(String, &str); 10] = [
        (
            "[[vrf]]\nname = \"default\"\n".into(),
            "the VRF of all that names none is called \"default\": expected another name",
        ),
        (
            format!("{VRFS}\n[[vrf]]\nname = \"red\"\n"),
            "the name of the VRF of line 26 again: expected another",
        ),
        (route("vrf = \"rde\"\n", "\"10.0.0.9\""), "there is no vrf \"rde\": did you mean \"red\"?"),
        (
            route("vrf = \"red\"\n", "\"198.18.0.9\""),
            "the gateway 198.18.0.9 is on no connected network in VRF \"red\": expected one in 10.0.0.0/24",
        ),
        (
            route("vrf = \"red\"\n", "\"10.0.0.1\""),
            "the gateway 10.0.0.1 is this router's own address: expected a neighbour's",
        ),
        (
            route("", "{ gateway = \"10.0.0.9\", interface = \"red0\", gateway_vrf = \"red\" }"),
            "an interface has its VRF: expected no `gateway_vrf` beside `interface`",
        ),
        (route("", "{ gateway_vrf = \"red\" }"), "expected `gateway` too, which is looked up there"),
        (
            route("", "{ gateway = \"10.0.0.9\", lookup_vrf = \"red\" }"),
            "the destination itself is looked up there: expected no gateway and no interface",
        ),
        (
            route("vrf = \"red\"\n", "{ lookup_vrf = \"red\" }"),
            "the route leads back to its own VRF: expected another",
        ),
        (
            format!(
                "{VRFS}\n[[interface]]\nname = \"x\"\nport = \"wan\"\nvlan = 9\nsource_validation = \"on\"\n"
            ),
            "expected \"off\" or \"loose\" or \"strict\"",
        ),
    ];
    for (text, wanted) in cases {
        let found = bad(&with(&text));
        assert!(found.len() == 1 && found[0].contains(wanted), "{wanted}: {found:?}");
    }
    let many: String = (0..1024).map(|n| format!("[[vrf]]\nname = \"v{n}\"\n")).collect();
    assert!(bad(&with(&many))[0].contains("found 1024 VRFs: expected at most 1023"));
}

#[test]
fn the_routers_own_mac_address_is_no_neighbours() {
    let text = "[[interface]]\nname = \"x\"\nport = \"lan\"\nvlan = 3\nmac = \"02:00:00:00:00:05\"\naddresses = [\"10.3.0.1/24\"]\n\
                [[neighbor]]\ninterface = \"x\"\naddress = \"10.3.0.9\"\nmac = \"02:00:00:00:00:05\"\n";
    let found = bad(&with(text));
    assert!(
        found[0].contains("this is the MAC address of \"x\" itself: expected the neighbour's"),
        "{found:?}"
    );
}
