//! `show interfaces`: the router's logical interfaces.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, or_dash};

/// All interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interfaces {
    /// In the order of the configuration.
    pub interfaces: Vec<Interface>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Name of its port.
    pub port: String,
    /// VLAN id; absent for untagged frames.
    pub vlan: Option<u16>,
    /// Inner VLAN id of a double-tagged interface.
    pub inner_vlan: Option<u16>,
    /// MAC address.
    pub mac: String,
    /// Layer-3 MTU in bytes.
    pub mtu: u16,
    /// Administratively up.
    pub admin_up: bool,
    /// Link of the port.
    pub link_up: bool,
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Access list for what comes in.
    pub acl_in: Option<String>,
    /// Access list for what leaves.
    pub acl_out: Option<String>,
    /// Name of its VRF; absent in the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

impl Text for Interfaces {
    fn text(&self) -> String {
        let mut t = Table::new(&[
            "<interface",
            "<port",
            "<vlan",
            "<admin",
            "<link",
            "mtu",
            "<mac",
            "<acl in",
            "<acl out",
            "<addresses",
        ]);
        for i in &self.interfaces {
            let vlan = match (i.vlan, i.inner_vlan) {
                (Some(v), Some(inner)) => format!("{v}.{inner}"),
                (Some(v), None) => v.to_string(),
                _ => "-".into(),
            };
            let up = |up| if up { "up" } else { "down" }.to_owned();
            t.row([
                i.name.clone(),
                i.port.clone(),
                vlan,
                up(i.admin_up),
                up(i.link_up),
                i.mtu.to_string(),
                i.mac.clone(),
                or_dash(i.acl_in.as_ref()),
                or_dash(i.acl_out.as_ref()),
                i.addresses.join(" "),
            ]);
        }
        t.finish("there is no interface")
    }
}
