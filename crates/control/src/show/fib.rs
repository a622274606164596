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
    /// Prefixes in the table.
    pub routes: u64,
    /// Routes by who contributed them; several may stand by for one prefix.
    pub sources: Vec<SourceCount>,
    /// Bytes that lookups touch.
    pub lookup_bytes: u64,
    /// Bytes that only updates need.
    pub control_bytes: u64,
    /// Bytes replaced that wait until no worker can see them.
    pub retired_bytes: u64,
}

/// Routes of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceCount {
    /// `local`, `connected`, `static`, `learned` or `neighbor`.
    pub source: String,
    /// Its routes.
    pub routes: u64,
}

impl Text for Fibs {
    fn text(&self) -> String {
        let mut t = Table::new(&["<table", "routes", "lookup", "control", "retired", "<sources"]);
        for f in &self.fibs {
            t.row([
                f.family.clone(),
                thousands(f.routes),
                bytes(f.lookup_bytes),
                bytes(f.control_bytes),
                bytes(f.retired_bytes),
                f.sources
                    .iter()
                    .map(|s| format!("{} {}", s.source, thousands(s.routes)))
                    .collect::<Vec<_>>()
                    .join(", "),
            ]);
        }
        t.finish("there is no forwarding table")
    }
}
