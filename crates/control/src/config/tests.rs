//! Configurations, good and bad: each bad one against the exact text a user sees.

use linerate_engine::desired::{
    DpdkSpec, IdleSpec, MemorySpec, Path as RoutePath, PortSpec, RouteAction, RouteSpec, WorkerSpec,
};
use proptest::prelude::*;

use super::*;

const BASE: &str = r#"
[[worker]]
cpu = 1

[[port]]
name = "wan"
device = "net_null0"

[[port]]
name = "lan"
device = "net_null1"

[[interface]]
name = "wan0"
port = "wan"
addresses = ["198.18.0.1/24", "2001:db8:f::1/64"]

[[interface]]
name = "lan0"
port = "lan"
addresses = ["10.0.0.1/24"]
"#;

pub(super) fn host() -> Host {
    Host { cpus: Some((0..4).collect()) }
}

fn no_file(_: &Path) -> io::Result<Box<dyn Read>> {
    Err(io::ErrorKind::NotFound.into())
}

pub(super) fn good(text: &str) -> Config {
    parse("t.toml", text, &host(), &no_file).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn bad(text: &str) -> Vec<String> {
    let report = parse("t.toml", text, &host(), &no_file).expect_err(text);
    report.0.iter().map(ToString::to_string).collect()
}

/// The base configuration with more below it: line 1 of `more` is line 25.
pub(super) fn with(more: &str) -> String {
    format!("{BASE}{}{more}", "\n".repeat(24 - BASE.lines().count()))
}

#[test]
fn everything_said_arrives_and_the_rest_has_its_default() {
    let config = good(&with(
        r#"
[dpdk]
file_prefix = "r1"
memory = "no-huge"
memory_mb = 256
telemetry = true
packet_buffers = 8192
buffer_size = 2176
control_cpu = 2
eal_args = ["--log-level=lib.eal:debug"]

[router]
icmp_errors_per_second = 50

[api]
socket = "/run/r1.sock"
listen = "127.0.0.1:8080"
token_file = "/etc/token"

[[worker]]
cpu = 3
idle = "spin"

[[port]]
name = "core"
device = "0000:01:00.0,rxq_comp_en=1"
workers = [1, 0]
spread = [0, 1]
descriptors = { rx = 2048, tx = 512 }
mtu = 9000
promiscuous = true

[[interface]]
name = "core.100"
port = "core"
vlan = 100
inner_vlan = 7
mac = "02:00:00:00:00:Aa"
mtu = 1500
addresses = ["10.1.0.0/31"]
up = false

[[route]]
prefix = "0.0.0.0/0"
via = "198.18.0.2"

[[route]]
prefix = "10.9.0.0/16"
via = ["198.18.0.2", { gateway = "10.0.0.2", weight = 3 }]

[[route]]
prefix = "2001:db8:1::/48"
via = { gateway = "fe80::1", interface = "lan0" }

[[route]]
prefix = "10.8.0.0/16"
action = "prohibit"

[[route]]
prefix = "10.7.0.0/16"
via = { interface = "lan0" }

[[neighbor]]
interface = "lan0"
address = "10.0.0.2"
mac = "02:00:00:00:00:02"
"#,
    ));
    let d = &config.desired;
    assert_eq!(
        d.dpdk,
        DpdkSpec {
            file_prefix: "r1".into(),
            memory: MemorySpec::NoHuge { megabytes: 256 },
            telemetry: true,
            pci: true,
            control_cpu: 2,
            eal_args: vec!["--log-level=lib.eal:debug".into()],
            packet_buffers: Some(8192),
            buffer_size: 2176,
        }
    );
    assert_eq!(d.icmp_errors_per_second, 50);
    assert_eq!(
        d.workers,
        [
            WorkerSpec { cpu: 1, idle: IdleSpec::Sleep { max_microseconds: 50 } },
            WorkerSpec { cpu: 3, idle: IdleSpec::Spin },
        ]
    );
    assert_eq!(
        d.ports[0],
        PortSpec {
            name: "wan".into(),
            device: "net_null0".into(),
            rx_queues: 1,
            queue_workers: vec![],
            spread: vec![],
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: 1500,
            promiscuous: false,
        }
    );
    let core = &d.ports[2];
    assert_eq!((core.rx_queues, core.rx_descriptors, core.tx_descriptors, core.mtu), (2, 2048, 512, 9000));
    assert_eq!((&core.queue_workers, &core.spread, core.promiscuous), (&vec![1, 0], &vec![0, 1], true));
    let vlan = &d.interfaces[2];
    assert_eq!((vlan.vlan, vlan.inner_vlan, vlan.mtu, vlan.up), (Some(100), Some(7), Some(1500), false));
    assert_eq!(vlan.mac, Some([2, 0, 0, 0, 0, 0xaa]));
    let path = |gateway: Option<&str>, interface: Option<&str>, weight| RoutePath {
        gateway: gateway.map(|g| g.parse().unwrap()),
        interface: interface.map(Into::into),
        weight,
        vrf: None,
    };
    let actions: Vec<RouteAction> = d.routes.iter().map(|r| (*r.action).clone()).collect();
    assert_eq!(
        actions,
        [
            RouteAction::Forward(vec![path(Some("198.18.0.2"), None, 1)]),
            RouteAction::Forward(vec![path(Some("198.18.0.2"), None, 1), path(Some("10.0.0.2"), None, 3)]),
            RouteAction::Forward(vec![path(Some("fe80::1"), Some("lan0"), 1)]),
            RouteAction::Prohibit,
            RouteAction::Forward(vec![path(None, Some("lan0"), 1)]),
        ]
    );
    assert_eq!(d.neighbors.len(), 1);
    assert_eq!(config.api.listen, Some(("127.0.0.1:8080".parse().unwrap(), "/etc/token".into())));
    assert_eq!(config.warnings, []);
}

#[test]
fn defaults_need_little() {
    let d = good(BASE).desired;
    assert!(!d.dpdk.pci, "no PCI device, no scan");
    assert_eq!(d.dpdk.control_cpu, 0, "the first CPU without a worker");
    assert_eq!(d.dpdk.memory, MemorySpec::Hugepages { megabytes: 1024 });
}

/// (what follows the base configuration, what the user sees)
const ERRORS: &[(&str, &str)] = &[
    // TOML and keys
    ("[dpdk", "t.toml:25:6: not valid TOML: unclosed table, expected `]`"),
    ("[dpdk]\nmemory_mb = 1\nmemory_mb = 2", "t.toml:27:1: not valid TOML: duplicate key"),
    ("[dpkd]", "t.toml:25:2: dpkd: unknown key `dpkd`: did you mean `dpdk`?"),
    (
        "[colours]",
        "t.toml:25:2: colours: unknown key `colours`: expected one of dpdk, api, router, linux, worker, port, vrf, interface, route, rib, neighbor, acl, multicast_route",
    ),
    (
        "[dpdk]\nmemmory = \"no-huge\"",
        "t.toml:26:1: dpdk.memmory: unknown key `memmory`: did you mean `memory`?",
    ),
    ("dpdk = 3", "t.toml:25:1: not valid TOML"),
    ("[[dpdk]]", "t.toml:25:1: dpdk: found a list: expected a table [dpdk]"),
    // dpdk
    (
        "[dpdk]\nmemory = \"huge\"",
        "t.toml:26:10: dpdk.memory: found \"huge\": expected \"hugepages\" or \"no-huge\"",
    ),
    (
        "[dpdk]\nmemory_mb = 0x10",
        "t.toml:26:13: dpdk.memory_mb: found 0x10: expected an amount of memory in MiB from 32 to 1048576",
    ),
    (
        "[dpdk]\nmemory_mb = \"1G\"",
        "t.toml:26:13: dpdk.memory_mb: found \"1G\": expected an amount of memory in MiB from 32 to 1048576",
    ),
    ("[dpdk]\ntelemetry = 1", "t.toml:26:13: dpdk.telemetry: found 1: expected true or false"),
    (
        "[dpdk]\ncontrol_cpu = 9",
        "t.toml:26:15: dpdk.control_cpu: CPU 9 is not there: expected one of the CPUs this process may use, 0-3",
    ),
    (
        "[dpdk]\nfile_prefix = \"a/b\"",
        "t.toml:26:15: dpdk.file_prefix: found \"a/b\": expected 1 to 32 letters, digits, `_` or `-`",
    ),
    (
        "[dpdk]\neal_args = [\"--no-huge\"]",
        "t.toml:26:13: dpdk.eal_args[0]: --no-huge is set by the program: expected the key `dpdk.memory` instead",
    ),
    (
        "[dpdk]\neal_args = [\"-l0-3\"]",
        "t.toml:26:13: dpdk.eal_args[0]: -l is set by the program: expected the key `worker.cpu` instead",
    ),
    (
        "[dpdk]\neal_args = [\"-vm512\"]",
        "t.toml:26:13: dpdk.eal_args[0]: -m is set by the program: expected the key `dpdk.memory_mb` instead",
    ),
    (
        "[dpdk]\neal_args = [\"--lcore=0@1\"]",
        "t.toml:26:13: dpdk.eal_args[0]: --lcores is set by the program: expected the key `worker.cpu` instead",
    ),
    (
        "[dpdk]\neal_args = [\"--file-pre=x\"]",
        "t.toml:26:13: dpdk.eal_args[0]: --file-prefix is set by the program: expected the key `dpdk.file_prefix` instead",
    ),
    (
        "[dpdk]\neal_args = [\"--log-levle=7\"]",
        "t.toml:26:13: dpdk.eal_args[0]: DPDK has no argument \"--log-levle\": did you mean \"--log-level\"?",
    ),
    (
        "[dpdk]\neal_args = [\"--help\"]",
        "t.toml:26:13: dpdk.eal_args[0]: DPDK has no argument \"--help\": expected one such as \"--log-level=lib.eal:debug\"",
    ),
    (
        "[dpdk]\neal_args = [\"--log-level=7\", \"8\"]",
        "t.toml:26:30: dpdk.eal_args[1]: DPDK has no argument \"8\": expected one such as \"--log-level=lib.eal:debug\"",
    ),
    // workers
    (
        "[[worker]]\ncpu = 1",
        "t.toml:26:7: worker[1].cpu: CPU 1 already runs worker 0 (line 3): expected a CPU of its own",
    ),
    (
        "[[worker]]\ncpu = 64",
        "t.toml:26:7: worker[1].cpu: CPU 64 is not there: expected one of the CPUs this process may use, 0-3",
    ),
    ("[[worker]]", "t.toml:25:1: worker[1]: the key `cpu` is missing: expected the CPU it runs on"),
    (
        "[[worker]]\ncpu = 2\nidle = \"doze\"",
        "t.toml:27:8: worker[1].idle: found \"doze\": expected \"spin\" or \"sleep\"",
    ),
    (
        "[[worker]]\ncpu = 2\nidle = \"spin\"\nmax_sleep_us = 5",
        "t.toml:28:16: worker[1].max_sleep_us: a worker with idle = \"spin\" never sleeps: expected idle = \"sleep\", or no `max_sleep_us`",
    ),
    // ports
    (
        "[[port]]\nname = \"x\"",
        "t.toml:25:1: port[2]: the key `device` is missing: expected a PCI address such as 0000:01:00.0, or a virtual device such as net_af_packet0,iface=eth0",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"eth0\"",
        "t.toml:27:10: port[2].device: found \"eth0\": expected a PCI address such as 0000:01:00.0, or a virtual device such as net_af_packet0,iface=eth0",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null0,size=64\"",
        "t.toml:27:10: port[2].device: the device of port \"wan\" (line 6) again: expected another device",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_af_paket0,iface=eth0\"",
        "t.toml:27:10: port[2].device: DPDK has no driver \"net_af_paket\": did you mean \"net_af_packet\"?",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"+1:00.0\"",
        "t.toml:27:10: port[2].device: found \"+1:00.0\": expected a PCI address such as 0000:01:00.0, or a virtual device such as net_af_packet0,iface=eth0",
    ),
    (
        "[[port]]\nname = \"wan\"\ndevice = \"net_null5\"",
        "t.toml:26:8: port[2].name: the name of port \"wan\" (line 6) again: expected another",
    ),
    (
        "[[port]]\nname = \"a b\"\ndevice = \"net_null5\"",
        "t.toml:26:8: port[2].name: found \"a b\": expected 1 to 31 letters, digits, `.`, `_` or `-`, beginning with a letter or digit",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nmtu = 9217",
        "t.toml:28:7: port[2].mtu: found 9217: expected an MTU from 68 to 9216",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nmtu = 15.5",
        "t.toml:28:7: port[2].mtu: found 15.5: expected an MTU from 68 to 9216",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nworkers = [1]",
        "t.toml:28:12: port[2].workers[0]: found 1: expected a worker's position, counted from 0, from 0 to 0",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nrx_queues = 2\nworkers = [0]",
        "t.toml:28:13: port[2].rx_queues: 2 receive queues, but `workers` names 1: expected one worker per queue",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nspread = [0, 0]",
        "t.toml:28:14: port[2].spread[1]: worker 0 is in the list twice: expected each worker once",
    ),
    (
        "[[port]]\nname = \"x\"\ndevice = \"net_null5\"\nmttu = 1500",
        "t.toml:28:1: port[2].mttu: unknown key `mttu`: did you mean `mtu`?",
    ),
    // interfaces
    (
        "[[interface]]\nname = \"i\"\nport = \"wann\"",
        "t.toml:27:8: interface[2].port: there is no port \"wann\": did you mean \"wan\"?",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"zzzzz\"",
        "t.toml:27:8: interface[2].port: there is no port \"zzzzz\": expected one of \"wan\", \"lan\"",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"",
        "t.toml:25:1: interface[2]: interface \"wan0\" (line 13) already has the untagged frames of port \"wan\": expected another VLAN or port",
    ),
    (
        "[[interface]]\nname = \"wan0\"\nport = \"wan\"\nvlan = 1",
        "t.toml:26:8: interface[2].name: the name of interface \"wan0\" (line 13) again: expected another",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 4095",
        "t.toml:28:8: interface[2].vlan: found 4095: expected a VLAN id from 1 to 4094",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\ninner_vlan = 5",
        "t.toml:28:14: interface[2].inner_vlan: an inner VLAN needs an outer one: expected `vlan` too",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\nmtu = 1501",
        "t.toml:29:7: interface[2].mtu: found 1501: expected at most 1500, the MTU of the port",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\nmtu = 1200\naddresses = [\"2001:db8::1/64\"]",
        "t.toml:30:14: interface[2].addresses[0]: an IPv6 address on a link with MTU 1200: expected at least 1280 (RFC 8200)",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\nmac = \"01:00:5e:00:00:01\"",
        "t.toml:29:7: interface[2].mac: found \"01:00:5e:00:00:01\": expected a unicast MAC address such as 02:00:00:00:00:01",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\naddresses = [\"10.0.0.1/24\"]",
        "t.toml:29:14: interface[2].addresses[0]: 10.0.0.1 is an address of interface \"lan0\" (line 18) already: expected another",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\naddresses = [\"10.5.0.0/24\"]",
        "t.toml:29:14: interface[2].addresses[0]: 10.5.0.0/24 is the network itself: expected a host address in it such as 10.5.0.1/24",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\naddresses = [\"10.5.0.255/24\"]",
        "t.toml:29:14: interface[2].addresses[0]: 10.5.0.255/24 is the broadcast address: expected a host address such as 10.5.0.1/24",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\naddresses = [\"10.5.0.1\"]",
        "t.toml:29:14: interface[2].addresses[0]: found \"10.5.0.1\": expected an address with its prefix length such as 198.51.100.1/24 or 2001:db8::1/64",
    ),
    (
        "[[interface]]\nname = \"i\"\nport = \"wan\"\nvlan = 5\naddresses = [\"ff02::1/64\"]",
        "t.toml:29:14: interface[2].addresses[0]: found a multicast address, ff02::1: expected a unicast address",
    ),
    // routes
    (
        "[[route]]\nprefix = \"10.1.2.3/8\"\nvia = \"10.0.0.2\"",
        "t.toml:26:10: route[0].prefix: 10.1.2.3/8 has host bits set: expected 10.0.0.0/8",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0\"\nvia = \"10.0.0.2\"",
        "t.toml:26:10: route[0].prefix: found \"10.1.0.0\": expected a prefix such as 198.51.100.0/24 or 2001:db8::/32",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"203.0.113.1\"",
        "t.toml:27:7: route[0].via: the gateway 203.0.113.1 is on no connected network: expected one in 198.18.0.0/24, 10.0.0.0/24",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.0.0.1\"",
        "t.toml:27:7: route[0].via: the gateway 10.0.0.1 is this router's own address: expected a neighbour's",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.0.0.255\"",
        "t.toml:27:7: route[0].via: the gateway 10.0.0.255 is the network or broadcast address of 10.0.0.0/24: expected a host",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.1.0.1\"",
        "t.toml:27:7: route[0].via: the gateway 10.1.0.1 leads back to itself: 10.1.0.0/16 → 10.1.0.0/16",
    ),
    (
        "[[route]]\nprefix = \"2001:db8:1::/48\"\nvia = \"10.0.0.2\"",
        "t.toml:27:7: route[0].via: the gateway 10.0.0.2 for 2001:db8:1::/48: expected an IPv6 gateway",
    ),
    (
        "[[route]]\nprefix = \"2001:db8:1::/48\"\nvia = \"fe80::1\"",
        "t.toml:27:7: route[0].via: the gateway fe80::1 is link-local: expected { gateway, interface }",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = [{ gateway = \"10.0.0.2\", weight = 257 }]",
        "t.toml:27:41: route[0].via[0].weight: found 257: expected a weight from 1 to 256",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = [{ gateway = \"10.0.0.2\", interface = \"lam0\" }]",
        "t.toml:27:44: route[0].via[0].interface: there is no interface \"lam0\": did you mean \"lan0\"?",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = []",
        "t.toml:27:7: route[0].via: found 0 gateways: expected 1 to 64",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = [\"10.0.0.2\", \"10.0.0.2\"]",
        "t.toml:27:20: route[0].via[1]: the same path twice: expected it once, with a `weight`",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"",
        "t.toml:25:1: route[0]: the route says nothing to do: expected `via` with a gateway, or `action`",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\naction = \"drop\"",
        "t.toml:27:10: route[0].action: found \"drop\": expected \"blackhole\" or \"prohibit\" or \"unreachable\"",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.0.0.2\"\naction = \"blackhole\"",
        "t.toml:28:10: route[0].action: a route either forwards or discards: expected `via` or `action`, not both",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = \"10.0.0.2\"\n[[route]]\nprefix = \"10.1.0.0/16\"\naction = \"blackhole\"",
        "t.toml:29:10: route[1].prefix: 10.1.0.0/16 again, after line 25: expected each prefix once",
    ),
    (
        "[[route]]\nprefix = \"224.0.0.0/4\"\nvia = \"10.0.0.2\"",
        "t.toml:26:10: route[0].prefix: 224.0.0.0/4 is multicast: expected a unicast prefix",
    ),
    (
        "[[route]]\nprefix = \"10.1.0.0/16\"\nvia = { gateway = \"10.0.0.255\", interface = \"lan0\" }",
        "t.toml:27:7: route[0].via: the gateway 10.0.0.255 is the network or broadcast address of 10.0.0.0/24: expected a host",
    ),
    // neighbours
    (
        "[[neighbor]]\ninterface = \"lan0\"\naddress = \"10.7.0.1\"\nmac = \"02:00:00:00:00:02\"",
        "t.toml:27:11: neighbor[0].address: 10.7.0.1 is on no network of interface \"lan0\": expected an address in 10.0.0.0/24",
    ),
    (
        "[[neighbor]]\ninterface = \"lan0\"\naddress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:02\"",
        "t.toml:27:11: neighbor[0].address: 10.0.0.1 is an address of this router: expected a neighbour's",
    ),
    (
        "[[neighbor]]\ninterface = \"lan0\"\naddress = \"10.0.0.2\"\nmac = \"02:00:00:00:00\"",
        "t.toml:28:7: neighbor[0].mac: found \"02:00:00:00:00\": expected a unicast MAC address such as 02:00:00:00:00:01",
    ),
    (
        "[[neighbor]]\ninterface = \"lam0\"\naddress = \"10.0.0.2\"\nmac = \"02:00:00:00:00:02\"",
        "t.toml:26:13: neighbor[0].interface: there is no interface \"lam0\": did you mean \"lan0\"?",
    ),
    // api
    (
        "[api]\nlisten = \"127.0.0.1:80\"",
        "t.toml:26:10: api.listen: TCP needs a token: expected `token_file` too",
    ),
    (
        "[api]\nlisten = \"localhost\"",
        "t.toml:26:10: api.listen: found \"localhost\": expected an address and port such as 127.0.0.1:8080",
    ),
    (
        "[api]\nsocket = \"x.sock\"",
        "t.toml:26:10: api.socket: expected an absolute path of at most 107 bytes",
    ),
    (
        "[router]\nicmp_errors_per_second = -1",
        "t.toml:26:26: router.icmp_errors_per_second: found -1: expected a rate per worker from 0 to 1000000",
    ),
    // rib
    (
        "[[rib]]\nfile = \"no.txt\"",
        "t.toml:26:8: rib[0].file: cannot open the route table \"no.txt\": entity not found",
    ),
    (
        "[[rib]]\nfile = \"no.txt\"\nnext_hop = { one = \"10.0.0.2\" }",
        "t.toml:27:14: rib[0].next_hop.one: found \"one\": expected a next hop of the file: a number, a range such as \"1-32\", or an address",
    ),
    (
        "[[rib]]\nfile = \"no.txt\"\npeer = true",
        "t.toml:27:8: rib[0].peer: found true: expected a peer: its address, or its position in the file's peer table from 0 to 65535",
    ),
];

#[test]
fn errors_name_file_line_column_key_what_was_found_and_what_was_expected() {
    let mut wrong = String::new();
    for (more, message) in ERRORS {
        let found = bad(&with(more));
        if found.len() != 1
            || (found[0] != *message && !(message.ends_with("TOML") && found[0].starts_with("t.toml:")))
        {
            wrong += &format!("{more}\n  expected {message}\n  found    {}\n\n", found.join("\n           "));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn nothing_at_all_says_what_a_configuration_needs() {
    assert_eq!(
        bad(""),
        [
            "t.toml:1:1: worker: there is no worker: expected at least one [[worker]] with a `cpu`",
            "t.toml:1:1: port: there is no port: expected at least one [[port]] with `name` and `device`",
        ]
    );
}

#[test]
fn all_problems_are_reported_at_once_in_file_order() {
    let found = bad(&with(
        "[[route]]\nprefix = \"10.0.0.0/33\"\nvia = \"10.0.0.2\"\n[[port]]\nname = \"wan\"\ndevice = \"net_null0\"\nmtu = 1\n[dpdk]\npci = 3\n",
    ));
    let lines: Vec<&str> = found.iter().map(|f| f.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["t.toml:26:10", "t.toml:29:8", "t.toml:30:10", "t.toml:31:7", "t.toml:33:7"]);
}

#[test]
fn the_same_linux_interface_twice_is_the_same_port_twice() {
    let port = |n: u8| format!("[[port]]\nname = \"p{n}\"\ndevice = \"net_af_packet{n},iface=veth0\"\n");
    let found = bad(&with(&(port(0) + &port(1))));
    assert_eq!(
        found,
        [
            "t.toml:30:10: port[3].device: the Linux interface of port \"p0\" (line 26) again: expected another `iface=`"
        ]
    );
    let pci = |n: u8, d: &str| format!("[[port]]\nname = \"p{n}\"\ndevice = \"{d}\"\n");
    assert_eq!(bad(&with(&(pci(0, "01:00.0") + &pci(1, "0000:01:00.0,x=1")))).len(), 1);
}

#[test]
fn odd_things_are_warnings() {
    let config = good(&with(
        "[[interface]]\nname = \"i\"\nport = \"lan\"\nvlan = 9\naddresses = [\"10.0.0.9/28\"]\n\
         [[port]]\nname = \"x\"\ndevice = \"net_null5\"\n\
         [[route]]\nprefix = \"10.0.0.0/24\"\nvia = { gateway = \"10.44.0.1\", interface = \"wan0\" }\n\
         [dpdk]\ncontrol_cpu = 1\n",
    ));
    let found: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "t.toml:29:14: interface[2].addresses[0]: 10.0.0.0/28 overlaps 10.0.0.0/24 of interface \"lan0\" (line 18): the longer prefix wins, then the first",
            "t.toml:31:8: port[2].name: no [[interface]] uses this port: what it receives is dropped",
            "t.toml:34:10: route[0].prefix: 10.0.0.0/24 is a connected network, which counts before this route",
            "t.toml:35:44: route[0].via.interface: 10.44.0.1 is on no network of \"wan0\": it is asked for on that link all the same",
            "t.toml:37:15: dpdk.control_cpu: CPU 1 also runs a worker, which the control threads will interrupt",
        ]
    );
}

#[test]
fn gateways_may_be_reached_through_static_routes_and_ipv4_by_ipv6() {
    let config = good(&with(
        r#"
[[route]]
prefix = "172.16.0.0/12"
via = "203.0.113.7"

[[route]]
prefix = "203.0.113.0/24"
via = [{ gateway = "198.18.0.2", weight = 2 }, "10.0.0.2"]

[[route]]
prefix = "192.168.0.0/16"
via = "2001:db8:f::2"
"#,
    ));
    let paths = |i: usize| match &*config.desired.routes[i].action {
        RouteAction::Forward(paths) => {
            paths.iter().map(|p| (p.gateway.unwrap().to_string(), p.weight)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    // As configured: the router follows the routes to a gateway itself.
    assert_eq!(paths(0), [("203.0.113.7".into(), 1)]);
    assert_eq!(paths(1), [("198.18.0.2".into(), 2), ("10.0.0.2".into(), 1)]);
    assert_eq!(paths(2), [("2001:db8:f::2".into(), 1)]);
}

/// Four levels of routes over 64 gateways each: followed one by one they are 16 million ways.
#[test]
fn gateways_behind_many_paths_over_many_levels_are_followed_once() {
    let mut text = String::new();
    for level in 0..4 {
        let on = |n: usize| {
            if level == 3 { format!("\"10.0.0.{}\"", n + 2) } else { format!("\"100.{}.0.{n}\"", level + 1) }
        };
        let via: Vec<_> = (0..64).map(on).collect();
        text += &format!("[[route]]\nprefix = \"100.{level}.0.0/16\"\nvia = [{}]\n", via.join(", "));
    }
    text += "[[route]]\nprefix = \"20.0.0.0/8\"\nvia = \"100.0.0.1\"\n";
    assert_eq!(good(&with(&text)).desired.routes.len(), 5);
}

#[test]
fn a_neighbour_may_be_where_a_route_by_an_interface_says() {
    let neighbor = |a: &str| {
        let route = "[[route]]\nprefix = \"198.51.100.0/24\"\nvia = { interface = \"lan0\" }\n";
        let mac = "mac = \"02:00:00:00:00:02\"";
        with(&format!("{route}[[neighbor]]\ninterface = \"lan0\"\naddress = \"{a}\"\n{mac}\n"))
    };
    assert_eq!(good(&neighbor("198.51.100.7")).desired.neighbors.len(), 1);
    assert!(bad(&neighbor("198.51.101.7"))[0].contains("is on no network of interface \"lan0\""));
}

#[test]
fn gateways_that_lead_in_a_circle_or_nowhere_are_errors() {
    let route = |prefix: &str, what: &str| format!("[[route]]\nprefix = \"{prefix}\"\n{what}\n");
    let circle = route("10.1.0.0/16", "via = \"10.2.0.1\"") + &route("10.2.0.0/16", "via = \"10.1.0.1\"");
    let found = bad(&with(&circle));
    assert!(
        found[0]
            .ends_with("the gateway 10.2.0.1 leads back to itself: 10.2.0.0/16 → 10.1.0.0/16 → 10.2.0.0/16"),
        "{found:?}"
    );
    let default = route("0.0.0.0/0", "via = \"10.0.0.2\"") + &route("10.2.0.0/16", "via = \"10.1.0.1\"");
    assert!(
        bad(&with(&default))[0].contains("10.1.0.1 is on no connected network"),
        "a default route hides no typo"
    );
    let hole = route("10.1.0.0/16", "action = \"blackhole\"") + &route("10.2.0.0/16", "via = \"10.1.0.1\"");
    assert!(bad(&with(&hole))[0].contains("discarded by the route 10.1.0.0/16"));
}

fn with_table(table: &'static str, more: &str) -> Result<Config, Report> {
    let open = move |_: &Path| -> io::Result<Box<dyn Read>> { Ok(Box::new(table.as_bytes())) };
    parse("t.toml", &with(more), &host(), &open)
}

#[test]
fn route_tables_map_their_next_hops_to_gateways() {
    let config = with_table(
        "10.1.0.0/16 1\n10.2.0.0/16 2\n10.3.0.0/16 40\n2001:db8:1::/48 2\n10.4.0.0/16 10.0.0.7\n10.5.0.0/16 9\n10.6.0.0/16 1\n",
        r#"
[[route]]
prefix = "10.6.0.0/16"
action = "unreachable"

[[rib]]
file = "t.txt"
default = "blackhole"

[rib.next_hop]
1 = "10.0.0.2"
2 = ["198.18.0.2", "198.18.0.3", "2001:db8:f::2"]
"32-63" = "10.0.0.3"
"10.0.0.7" = "10.0.0.8"
"#,
    )
    .unwrap();
    let show = |r: &RouteSpec| match &*r.action {
        RouteAction::Forward(paths) => {
            let gateways: Vec<String> = paths.iter().map(|p| p.gateway.unwrap().to_string()).collect();
            format!("{} {}", r.prefix, gateways.join(","))
        }
        other => format!("{} {other:?}", r.prefix),
    };
    let routes: Vec<String> = config.desired.routes.iter().map(show).collect();
    assert_eq!(
        routes,
        [
            "10.6.0.0/16 Unreachable",
            "10.1.0.0/16 10.0.0.2",
            "10.2.0.0/16 198.18.0.2,198.18.0.3",
            "10.3.0.0/16 10.0.0.3",
            "2001:db8:1::/48 2001:db8:f::2",
            "10.4.0.0/16 10.0.0.8",
            "10.5.0.0/16 Blackhole",
        ]
    );
}

#[test]
fn route_table_errors_name_the_table_and_its_line() {
    let rib = "[[rib]]\nfile = \"full.txt\"\nnext_hop = { 1 = \"10.0.0.2\" }";
    let cases = [
        ("10.1.0.0/16 1\nnonsense\n", "full.txt:2: found only `nonsense`"),
        ("10.1.0.0/16 1\n10.1.0.1/16 1\n", "full.txt:2: 10.1.0.1/16 has host bits set: expected 10.1.0.0/16"),
        (
            "10.1.0.0/16 2\n",
            "full.txt:1: next hop 2: it stands for no gateway: expected an entry in `next_hop` or a `default`",
        ),
        (
            "2001:db8:1::/48 1\n",
            "full.txt:1: next hop 1: it stands for no IPv6 gateway, and IPv6 routes use it: expected one more",
        ),
        (
            "10.1.0.0/16 203.0.113.1\n",
            "full.txt:1: next hop 203.0.113.1: the gateway 203.0.113.1 is on no connected network: expected one in 198.18.0.0/24, 10.0.0.0/24",
        ),
        ("", "full.txt: the file holds no route: expected lines"),
    ];
    for (table, message) in cases {
        let report = with_table(table, rib).expect_err(table);
        assert!(report.0[0].to_string().starts_with(message) || message.contains("found only"), "{report}");
        assert!(report.0[0].to_string().starts_with(message.split(": ").next().unwrap()), "{report}");
    }
}

#[test]
fn files_are_read_relative_to_the_configuration_and_faults_of_reading_are_sentences() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.toml");
    std::fs::write(dir.path().join("t.txt"), "10.1.0.0/16 10.0.0.2\n").unwrap();
    std::fs::write(&path, with("[[rib]]\nfile = \"t.txt\"\n")).unwrap();
    assert_eq!(load(&path, &host()).unwrap().desired.routes.len(), 1);
    std::fs::write(dir.path().join("t.txt"), "10.1.0.0/16 none\n").unwrap();
    let report = load(&path, &host()).unwrap_err().to_string();
    assert!(
        report.starts_with(&format!("{}:1: found `none`", dir.path().join("t.txt").display())),
        "{report}"
    );
    std::fs::write(&path, b"# caf\xe9\n").unwrap();
    let report = load(&path, &host()).unwrap_err().to_string();
    assert!(report.ends_with("r.toml:1: the file is not UTF-8 from here on: expected TOML"), "{report}");
    let report = load(&dir.path().join("none"), &host()).unwrap_err().to_string();
    assert!(
        report.ends_with("none: cannot read the configuration: No such file or directory (os error 2)"),
        "{report}"
    );
}

#[test]
fn the_examples_are_valid() {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let config =
                load(&path, &Host { cpus: Some((0..8).collect()) }).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(config.warnings, [], "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 5, "only {seen} examples found");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any text, and any damage to a valid one, is survived.
    #[test]
    fn any_text_is_survived(text in ".{0,200}", at in 0usize..600, junk in "[\\[\\]{}\"=.,#\\n a-z0-9:/-]{0,12}") {
        fuzz(text.as_bytes());
        let mut damaged = with("[[route]]\nprefix = \"10.9.0.0/16\"\nvia = [{ gateway = \"10.0.0.2\", weight = 3 }]\n[[rib]]\nfile = \"t\"\ndefault = [\"10.0.0.2\", \"2001:db8:f::2\"]\n");
        let at = at % damaged.len();
        damaged.insert_str(at, &junk);
        fuzz(damaged.as_bytes());
        damaged.truncate(at);
        fuzz(damaged.as_bytes());
    }
}

/// The fuzzer's first inputs, to which those that once broke something are added.
#[test]
fn the_inputs_of_the_fuzzer_do_no_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/config");
    let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(inputs.len() >= 6);
    for input in inputs {
        fuzz(&std::fs::read(input).unwrap());
    }
}
