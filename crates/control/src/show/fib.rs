//! `show fib`: the forwarding tables and what they occupy.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, bytes, thousands};

/// All forwarding tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fibs {
    /// IPv4, then IPv6.
    pub fibs: Vec<Fib>,
}

/// A forwarding table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fib {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Routes.
    pub routes: u64,
    /// Bytes that lookups touch.
    pub lookup_bytes: u64,
    /// Bytes that only updates need.
    pub control_bytes: u64,
    /// Bytes replaced that wait until no worker can see them.
    pub retired_bytes: u64,
}

impl Text for Fibs {
    fn text(&self) -> String {
        let mut t = Table::new(&["<table", "routes", "lookup", "control", "retired"]);
        for f in &self.fibs {
            t.row([
                f.family.clone(),
                thousands(f.routes),
                bytes(f.lookup_bytes),
                bytes(f.control_bytes),
                bytes(f.retired_bytes),
            ]);
        }
        t.finish("there is no forwarding table")
    }
}
