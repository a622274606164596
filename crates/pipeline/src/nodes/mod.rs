//! Nodes that several products share.

pub mod eth_input;
pub mod output;

pub use eth_input::{EthInput, EthInputExit};
pub use output::Output;
