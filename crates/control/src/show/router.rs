//! `show router`: what the control logic counts about itself. What is lost here costs time, not packets without a name.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{Table, thousands};

/// Figures of the router's control logic since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Router {
    /// What happened to neighbours.
    pub neighbors: NeighborFigures,
    /// Room taken in the tables that workers read.
    pub tables: TableFigures,
    /// What did not fit into the queues between workers and control.
    pub lost: LostFigures,
}

/// What happened to neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborFigures {
    /// Neighbours known now.
    pub known: u64,
    /// Answered for the first time, or again after being given up.
    pub resolved: u64,
    /// Given up.
    pub failed: u64,
    /// MAC addresses that changed.
    pub mac_changes: u64,
    /// Messages that claimed an address of this router.
    pub duplicates: u64,
    /// Messages that contradicted a static neighbour.
    pub static_conflicts: u64,
    /// Messages and requests about addresses that cannot be neighbours.
    pub ignored: u64,
    /// Not taken in because the table was full.
    pub refused: u64,
    /// Questions not asked because too many waited.
    pub probes_lost: u64,
    /// Neighbours or paths left out because a table that workers read was full.
    pub tables_full: u64,
}

/// Room taken in the tables that workers read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableFigures {
    /// Distinct actions of routes.
    pub actions: u64,
    /// Next hops.
    pub next_hops: u64,
    /// Adjacencies.
    pub adjacencies: u64,
    /// Hash buckets of multipath routes.
    pub buckets: u64,
    /// Given back, but workers may still look at them.
    pub retired: u64,
}

/// What did not fit into the queues between workers and control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFigures {
    /// Events that control did not fetch in time.
    pub events: u64,
    /// Hops of traced packets that nobody took in time.
    pub trace_hops: u64,
}

impl Text for Router {
    fn text(&self) -> String {
        let (n, t, l) = (&self.neighbors, &self.tables, &self.lost);
        let mut table = Table::new(&["<figure", "count", "<what it means"]);
        for (figure, count, meaning) in [
            ("neighbors known", n.known, "neighbours in the table now"),
            ("neighbors resolved", n.resolved, "answered for the first time, or again after being given up"),
            ("neighbors failed", n.failed, "did not answer and were given up"),
            ("mac changes", n.mac_changes, "neighbours that told another MAC address than before"),
            (
                "duplicates",
                n.duplicates,
                "messages that claimed an address of this router: an address conflict",
            ),
            ("static conflicts", n.static_conflicts, "messages that contradicted a static neighbour"),
            ("ignored", n.ignored, "about addresses that cannot be neighbours on that interface"),
            ("refused", n.refused, "neighbours not taken in because the table was full"),
            ("probes lost", n.probes_lost, "questions not asked because too many waited"),
            ("tables full", n.tables_full, "neighbours or paths left out because a table below was full"),
            ("actions", t.actions, "distinct actions of routes"),
            ("next hops", t.next_hops, "in the table that workers read"),
            ("adjacencies", t.adjacencies, "Ethernet headers ready for use"),
            ("buckets", t.buckets, "hash buckets of multipath routes"),
            ("retired", t.retired, "given back, but workers may still look at them"),
            ("events lost", l.events, "told by workers and not fetched in time: resolution asks again"),
            ("trace hops lost", l.trace_hops, "of traced packets, not taken in time"),
        ] {
            table.row([figure.into(), thousands(count), meaning.into()]);
        }
        table.finish("")
    }
}
