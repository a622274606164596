//! Devices, links and tables at the edge of what is possible: what `check` finds of that, and how soon.

use super::tests::{good, host, with};
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
