//! Devices, links and tables at the edge of what is possible: what `check` finds of that, and how soon.

use super::tests::{bad, good, host, with};
use super::*;

#[test]
fn pci_addresses_arrive_in_full_and_own_drivers_may_have_any_name() {
    let d = good(&with("[[port]]\nname = \"p\"\ndevice = \"C1:00.0,x=Y\"")).desired;
    assert_eq!((d.ports[2].device.as_str(), d.dpdk.pci), ("0000:c1:00.0,x=Y", true));
    let own = "[[port]]\nname = \"p\"\ndevice = \"net_mine0\"\n[dpdk]\neal_args = [\"-d\", \"/opt/mine.so\", \"-n\", \"4\"]";
    let d = good(&with(own)).desired;
    assert_eq!((d.ports[2].device.as_str(), d.dpdk.eal_args.len()), ("net_mine0", 4));
}

#[test]
fn a_small_link_warns_of_what_ipv6_loses_there() {
    let config = good(&with("[[interface]]\nname = \"i\"\nport = \"lan\"\nvlan = 9\nmtu = 576\n"));
    let found: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "t.toml:29:7: interface[2].mtu: IPv6 needs an MTU of 1280 (RFC 8200), this link has 576: IPv6 packets that are larger are lost, as hosts ignore what they are told about smaller links"
        ]
    );
}

#[test]
fn a_table_with_more_next_hops_than_can_be_forwarded_by_is_refused_by_check() {
    let lines: String = (0..66_000u32)
        .map(|i| {
            let address = |base: u32| std::net::Ipv4Addr::from_bits(base + i);
            format!("{}/32 {}\n", address(0x6440_0000), address(0x0b00_0001))
        })
        .collect();
    let open = move |_: &Path| -> io::Result<Box<dyn Read>> { Ok(Box::new(io::Cursor::new(lines.clone()))) };
    let text = with(
        "[[interface]]\nname = \"i\"\nport = \"lan\"\nvlan = 9\naddresses = [\"11.255.255.1/8\"]\n[[rib]]\nfile = \"t\"",
    );
    let report = parse("t.toml", &text, &host(), &open).unwrap_err();
    assert_eq!(
        report.to_string(),
        "t.toml:30:1: rib: the IPv4 routes have 66000 distinct sets of next hops: expected at most 65532, the most that a forwarding table tells apart"
    );
}

#[test]
fn a_port_full_of_vlans_is_checked_at_once_and_problems_at_its_end_have_their_line() {
    let vlan = |i: u32| {
        let [_, _, hi, lo] = i.to_be_bytes();
        format!(
            "[[interface]]\nname = \"v{i}\"\nport = \"lan\"\nvlan = {i}\naddresses = [\"172.{}.{lo}.1/24\"]\n",
            16 + hi
        )
    };
    let all: String = (1..=4094).map(vlan).collect();
    let start = std::time::Instant::now();
    assert_eq!(good(&with(&all)).desired.interfaces.len(), 4096);
    let again = vlan(4094);
    let problems = bad(&with(&(all + &again)));
    let (old, new) = (25 + 4093 * 5, 25 + 4094 * 5);
    assert_eq!(
        problems,
        [
            format!(
                "t.toml:{new}:1: interface[4096]: interface \"v4094\" (line {old}) already has VLAN 4094 of port \"lan\": \
                 expected another VLAN or port"
            ),
            format!(
                "t.toml:{}:8: interface[4096].name: the name of interface \"v4094\" (line {old}) again: expected another",
                new + 1
            ),
            format!(
                "t.toml:{}:14: interface[4096].addresses[0]: 172.31.254.1 is an address of interface \"v4094\" (line {old}) \
                 already: expected another",
                new + 4
            ),
        ]
    );
    // Under a second on an idle machine; minutes where each pair of interfaces counts the lines of the file.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}
