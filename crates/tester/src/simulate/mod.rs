//! Simulated devices under a virtual clock: a suite of an hour takes milliseconds, and the right answer is known beforehand.
//!
//! A [`Device`] forwards by what its [`Behaviour`] says: frames enter a queue of `buffer` frames that is served at the lower of the
//! device's own rate and its line's. Frames are a fluid while they are queued and whole when they are counted. Everything random is
//! seeded, so that a run can be repeated.

mod behaviour;
mod device;
mod fluid;
mod random;

pub use behaviour::{Behaviour, StallPattern};
pub use device::{Device, DeviceError};
