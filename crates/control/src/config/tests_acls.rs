//! Access lists: good ones, and bad ones against the exact text a user sees.

use linerate_router::acl::{AclAction, TcpMatch};
use linerate_tables::classifier::Vlan;

use super::tests::{bad, good, host, with};
use super::*;

/// The base configuration with a list; line 1 of `more` is line 25.
fn list(more: &str) -> String {
    with(&format!("[[acl]]\nname = \"edge\"\n{more}"))
}

fn with_file(text: &str, content: &'static str) -> Result<Config, Vec<String>> {
    let open = |_: &Path| -> io::Result<Box<dyn Read>> { Ok(Box::new(content.as_bytes())) };
    parse("t.toml", text, &host(), &open).map_err(|r| r.0.iter().map(ToString::to_string).collect())
}

#[test]
fn lists_arrive_whole_and_in_order() {
    let text = list(
        r#"
default = "reject"
rules = [
  "remark web",
  "permit tcp any 10.0.0.0/24 eq 80 443",
  { action = "deny", protocol = "tcp", src = "any", dst = "10.0.0.0/8", src_port = "1024-65535", dst_port = [22, "telnet"], tcp_flags = "syn,!ack", log = true, description = "no shells" },
  { action = "permit", icmp = "echo" },
  { action = "permit", protocol = "icmp6", icmp = "1 4" },
  { action = "permit", protocol = 47, vlan = 7, dscp = "ef" },
  { action = "permit", vlan = "untagged", fragments = true },
]
rules_file = "more"
[[interface]]
name = "v7"
port = "lan"
vlan = 7
acl_in = "edge"
acl_out = "edge"
"#,
    );
    let config = with_file(&text, "10 permit udp any any eq ntp\n! and\n20 deny ipv6 any any\n").unwrap();
    let acl = &config.desired.acls[0];
    assert_eq!((acl.name.as_str(), acl.default, config.warnings.len()), ("edge", AclAction::Reject, 0));
    let rules: Vec<String> = acl.rules.iter().map(ToString::to_string).collect();
    assert_eq!(
        rules,
        [
            "permit tcp any 10.0.0.0/24 eq www 443".replace("443", "https"),
            "deny tcp any range 1024 65535 10.0.0.0/8 eq ssh telnet match-all -ack +syn log".into(),
            "permit icmp any any echo".into(),
            "permit icmp6 any any port-unreachable".into(),
            "permit gre any any vlan 7 dscp ef".into(),
            "permit ip any any fragments vlan untagged".into(),
            "permit udp any any eq ntp".into(),
            "deny ipv6 any any".into(),
        ]
    );
    assert_eq!((acl.rules[0].remark.as_str(), acl.rules[1].remark.as_str()), ("web", "no shells"));
    assert_eq!(acl.rules[1].tcp, Some(TcpMatch::All { set: 0x02, unset: 0x10 }));
    assert_eq!(acl.rules[5].vlan, Some(Vlan::Untagged));
    let interface = &config.desired.interfaces[2];
    assert_eq!((interface.acl_in.as_deref(), interface.acl_out.as_deref()), (Some("edge"), Some("edge")));
}

#[test]
fn a_list_that_cuts_off_a_family_is_odd() {
    let config = good(&list("rules = [\"permit ip 10.0.0.0/8 any\"]"));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "t.toml:25:1: acl[0]: no rule of this list is for IPv6: where it is bound, all IPv6 packets meet its end (deny)"
        ]
    );
    assert_eq!(good(&list("default = \"permit\"\nrules = [\"deny ip 10.0.0.0/8 any\"]")).warnings, []);
    assert_eq!(good(&list("rules = []")).warnings, []);
}

#[test]
fn what_is_wrong_with_a_list_is_said() {
    let cases = [
        ("", "t.toml:25:1: acl[0]: the list says nothing: expected `rules`, `rules_file` or a `default`"),
        (
            "rules = [\"permit tcp any any eq 443\", \"permit tcp any\"]",
            "t.toml:27:39: acl[0].rules[1]: character 15: the rule ends here: expected a destination: any, host ADDRESS, or a prefix such as 198.51.100.0/24",
        ),
        (
            "rules = [\"\"]",
            "t.toml:27:10: acl[0].rules[0]: found \"\": expected a rule such as \"permit tcp any any eq 443\", or a table with an `action`",
        ),
        (
            "rules = [{ action = \"allow\" }]",
            "t.toml:27:21: acl[0].rules[0].action: found \"allow\": expected \"permit\" or \"deny\" or \"reject\"",
        ),
        (
            "rules = [{ protocol = \"tcp\" }]",
            "t.toml:27:10: acl[0].rules[0]: the key `action` is missing: expected \"permit\", \"deny\" or \"reject\"",
        ),
        (
            "rules = [{ action = \"permit\", dst_port = 80 }]",
            "t.toml:27:10: acl[0].rules[0]: ports need a protocol that has them: expected tcp, udp, sctp, dccp or udplite",
        ),
        (
            "rules = [{ action = \"permit\", src = \"10.0.0.1/8\" }]",
            "t.toml:27:37: acl[0].rules[0].src: found \"10.0.0.1/8\": expected \"any\", an address, or a prefix such as \"198.51.100.0/24\" without host bits",
        ),
        (
            "rules = [{ action = \"permit\", dport = 80 }]",
            "t.toml:27:31: acl[0].rules[0].dport: unknown key `dport`: expected one of action, protocol, src, dst, src_port, dst_port, tcp_flags, icmp, fragments, vlan, dscp, log, description",
        ),
        (
            "default = \"drop\"",
            "t.toml:27:11: acl[0].default: found \"drop\": expected \"permit\" or \"deny\" or \"reject\"",
        ),
        (
            "default = \"deny\"\n[[acl]]\nname = \"edge\"\ndefault = \"deny\"",
            "t.toml:28:1: acl[1]: the name of the access list of line 25 again: expected each name once",
        ),
        (
            "default = \"deny\"\n[[interface]]\nname = \"x\"\nport = \"lan\"\nvlan = 3\nacl_in = \"egde\"",
            "t.toml:32:10: interface[2].acl_in: there is no acl \"egde\": did you mean \"edge\"?",
        ),
        (
            "rules_file = \"x\"",
            "t.toml:27:14: acl[0].rules_file: cannot read the rules in \"x\": entity not found",
        ),
    ];
    for (more, message) in cases {
        assert_eq!(bad(&list(more)), [message], "{more}");
    }
}

#[test]
fn files_are_named_with_line_and_column() {
    let content = "permit ip any any\n\npermit tcp any any eq\nallow\n";
    let errors = with_file(&list("rules_file = \"x.acl\""), content).unwrap_err();
    assert_eq!(
        errors,
        [
            "x.acl:3:22: the rule ends here: expected a port: a number to 65535 or a name such as https",
            "x.acl:4:1: found `allow`: expected permit, deny or reject",
        ]
    );
}
