//! Graphs, one file per product: which nodes there are and where each exit leads.

pub mod io;
pub mod router;
