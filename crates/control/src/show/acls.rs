//! `show acl`: access lists and what their rules have matched.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, or_dash, thousands};

/// Access lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Acls {
    /// In the order of the configuration.
    pub acls: Vec<Acl>,
}

/// An access list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Acl {
    /// Name.
    pub name: String,
    /// Interfaces whose incoming packets it filters.
    pub inputs: Vec<String>,
    /// Interfaces whose outgoing packets it filters.
    pub outputs: Vec<String>,
    /// Rules in order; those that every list ends with are in brackets.
    pub rules: Vec<AclRule>,
    /// Bytes that lookups may touch.
    pub lookup_bytes: u64,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AclRule {
    /// As in a file of rules.
    pub rule: String,
    /// The operator's remark about it; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Packets it has matched.
    pub packets: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

/// Which lists to show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AclQuery {
    /// Only this one.
    pub name: Option<String>,
}

/// Samples of what rules with `log` have matched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AclLog {
    /// Oldest first.
    pub samples: Vec<AclSample>,
}

/// A packet that a rule with `log` has matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AclSample {
    /// Seconds ago.
    pub seconds_ago: f64,
    /// Name of the list.
    pub acl: String,
    /// The rule.
    pub rule: String,
    /// `permit`, `deny` or `reject`.
    pub action: String,
    /// `in` or `out`.
    pub direction: String,
    /// Name of the interface.
    pub interface: String,
    /// IP protocol.
    pub protocol: u8,
    /// Source.
    pub source: IpAddr,
    /// Source port, where there is one.
    pub source_port: Option<u16>,
    /// Destination.
    pub destination: IpAddr,
    /// Destination port, where there is one.
    pub destination_port: Option<u16>,
    /// Bytes, without FCS.
    pub bytes: u32,
}

impl Text for Acls {
    fn text(&self) -> String {
        if self.acls.is_empty() {
            return "there is no access list\n".into();
        }
        let mut out = String::new();
        for (i, acl) in self.acls.iter().enumerate() {
            let on = |way: &str, of: &[String]| match of {
                [] => String::new(),
                of => format!(", {way} {}", of.join(" ")),
            };
            let bound = match (acl.inputs.is_empty(), acl.outputs.is_empty()) {
                (true, true) => ", not in use".into(),
                _ => on("in on", &acl.inputs) + &on("out on", &acl.outputs),
            };
            out += if i > 0 { "\n" } else { "" };
            out += &format!("access list {}{bound}\n", acl.name);
            let mut t = Table::new(&["packets", "bytes", "<rule"]);
            for r in &acl.rules {
                let remark =
                    if r.description.is_empty() { String::new() } else { format!("  ! {}", r.description) };
                t.row([thousands(r.packets), thousands(r.bytes), format!("{}{remark}", r.rule)]);
            }
            out += &t.finish("it has no rule");
        }
        out
    }
}

impl Text for AclLog {
    fn text(&self) -> String {
        let mut t = Table::new(&[
            "seconds ago",
            "<acl",
            "<action",
            "<way",
            "<interface",
            "protocol",
            "<source",
            "<port",
            "<destination",
            "<port",
            "bytes",
            "<rule",
        ]);
        for s in &self.samples {
            t.row([
                format!("{:.1}", s.seconds_ago),
                s.acl.clone(),
                s.action.clone(),
                s.direction.clone(),
                s.interface.clone(),
                s.protocol.to_string(),
                s.source.to_string(),
                or_dash(s.source_port),
                s.destination.to_string(),
                or_dash(s.destination_port),
                s.bytes.to_string(),
                s.rule.clone(),
            ]);
        }
        t.finish("no rule with `log` has matched")
    }
}
