//! The subcommands.

pub(crate) mod check;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod trace;
