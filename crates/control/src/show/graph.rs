//! `show graph`: nodes, what they cost, and where their exits lead.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, thousands};

/// The graph; counters are sums over the workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// In the order they run.
    pub nodes: Vec<Node>,
    /// The graph in the DOT language.
    pub dot: String,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Packets processed.
    pub packets: u64,
    /// Batches processed.
    pub batches: u64,
    /// TSC cycles spent.
    pub cycles: u64,
    /// Packets per batch; absent before the first.
    pub packets_per_batch: Option<f64>,
    /// Cycles per packet; absent before the first batch that was timed.
    pub cycles_per_packet: Option<f64>,
    /// Its exits.
    pub exits: Vec<Exit>,
}

/// An exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Name.
    pub name: String,
    /// Where it leads.
    #[serde(flatten)]
    pub leads_to: Target,
}

/// Where an exit leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// To the node of this name.
    Node(String),
    /// The packet is dropped for this reason.
    Drop(String),
}

impl Text for Graph {
    fn text(&self) -> String {
        let mut t = Table::new(&["<node", "packets", "batches", "packets/batch", "cycles/packet", "<exits"]);
        let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.1}"));
        for n in &self.nodes {
            let exits = n.exits.iter().filter_map(|e| match &e.leads_to {
                Target::Node(to) if *to == e.name => Some(to.clone()),
                Target::Node(to) => Some(format!("{}→{to}", e.name)),
                Target::Drop(_) => None,
            });
            let drops = n.exits.iter().filter(|e| matches!(e.leads_to, Target::Drop(_))).count();
            let drops = (drops > 0).then(|| format!("{drops} {}", if drops == 1 { "drop" } else { "drops" }));
            t.row([
                n.name.clone(),
                thousands(n.packets),
                thousands(n.batches),
                ratio(n.packets_per_batch),
                ratio(n.cycles_per_packet),
                exits.chain(drops).collect::<Vec<_>>().join(", "),
            ]);
        }
        t.finish("the graph is empty")
    }
}
