//! `docs/graph-router.md` is the router's graph as it is built. `LINERATE_WRITE_DOCS=1` writes the file anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use linerate_engine::graphs::router::description;
use linerate_pipeline::graph::{GraphDescription, NodeDescription, Target};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/graph-router.md");

const HEAD: &str = "\
# The router's graph

Written from the graph that the program builds (`linerate_engine::graphs::router::description`, the same description that
`linerate show graph` prints); do not edit. A test fails where this page and the code differ:

```text
cargo nextest run -p linerate-engine --test picture                           # compares
LINERATE_WRITE_DOCS=1 cargo nextest run -p linerate-engine --test picture     # writes this page anew
```

Joins are in [`crates/router/src/graph.rs`](../crates/router/src/graph.rs). Nodes run in the order of the table below. Received
packets enter at `express`, which sends nearly all of them itself; what is not plain, and every burst that a packet is traced of,
takes the regular way from `eth_input` on. `output` gives packets to a transmit queue. A label names the exits that lead along an arrow; arrows without
one are the way of ordinary packets (`Unicast`, `Forward`, `Output`). Exits that drop are in the table.
";

/// Exits that are the common case of their node: drawn without a label.
const PLAIN: &[&str] = &["Output", "Forward", "Unicast"];

fn edges(node: &NodeDescription) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut to: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for exit in &node.exits {
        if let Target::Node(name) = exit.leads_to {
            to.entry(name).or_default().push(exit.name);
        }
    }
    to
}

fn page(graph: &GraphDescription) -> String {
    let mut s = format!("{HEAD}\n```mermaid\nflowchart LR\n");
    for node in &graph.nodes {
        let _ = writeln!(s, "    {}", node.name);
        for (to, exits) in edges(node) {
            let label: Vec<_> = exits.iter().filter(|e| !PLAIN.contains(e)).copied().collect();
            let label = if label.is_empty() { String::new() } else { format!("|{}|", label.join("<br/>")) };
            let _ = writeln!(s, "    {} -->{label} {to}", node.name);
        }
    }
    s += "```\n\n| node | exits to nodes | exits that drop, with the counter |\n|---|---|---|\n";
    for node in &graph.nodes {
        let (mut on, mut drops) = (Vec::new(), Vec::new());
        for exit in &node.exits {
            match exit.leads_to {
                Target::Node(to) => on.push(format!("{} → `{to}`", exit.name)),
                Target::Drop(reason) => drops.push(format!("{} `{}`", exit.name, reason.name())),
            }
        }
        let or_none = |v: Vec<String>| if v.is_empty() { "–".into() } else { v.join(", ") };
        let _ = writeln!(s, "| `{}` | {} | {} |", node.name, or_none(on), or_none(drops));
    }
    s
}

#[test]
fn the_picture_in_the_docs_is_the_graph_that_is_built() {
    let wanted = page(&description().unwrap());
    if std::env::var_os("LINERATE_WRITE_DOCS").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(Path::new(PAGE)).unwrap_or_default();
    let differs = written.lines().zip(wanted.lines()).position(|(a, b)| a != b);
    assert!(
        written == wanted,
        "docs/graph-router.md is out of date from line {}: write it anew with LINERATE_WRITE_DOCS=1",
        differs.unwrap_or(written.lines().count().min(wanted.lines().count())) + 1
    );
}
