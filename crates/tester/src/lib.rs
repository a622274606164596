//! The tester: traffic that can be verified packet by packet, the verification, and the reports about it.
//!
//! Read [`frame`] for what a test packet looks like, [`sink`] for what is checked when it comes back, and
//! [`closed_loop`] for how the two are joined so that a rate is measured without losing a packet on the way. Measuring begins with
//! [`trial`]; [`pace`] says when frames leave, [`receive`] keeps the books of what arrives, [`station`] answers for the tester's own
//! addresses, [`source`] is what the runtime in the engine needs of all this; [`search`] chooses loads, [`procedure`] has the tests of the RFCs, and [`simulate`] devices to try both on.
//!
//! Depends on `wire`, `tables` and `pipeline`, and never on the router it tests nor on DPDK: what it expects is computed by
//! itself. Pure: no sockets, threads, files or clocks. Time is a parameter, packets are anything that implements
//! [`linerate_pipeline::Packet`], queues anything that implements [`linerate_pipeline::io`]'s traits.

#![forbid(unsafe_code)]

pub mod closed_loop;
pub mod flow;
pub mod frame;
pub mod ip;
pub mod oracle;
pub mod pace;
pub mod procedure;
pub mod receive;
pub mod report;
pub mod rng;
pub mod search;
pub mod sequence;
pub mod simulate;
pub mod sink;
pub mod source;
pub mod station;
pub mod stats;
pub mod table;
pub mod trial;
pub mod wire_rate;
