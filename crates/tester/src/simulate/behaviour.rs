//! What a simulated device does.

use serde::{Deserialize, Serialize};

/// A device that stands still now and then: an interrupt, a busy neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallPattern {
    /// Seconds from one to the next.
    pub period: f64,
    /// Seconds it stands still, at the end of each period.
    pub seconds: f64,
}

/// What a device does. [`Behaviour::default`] forwards everything; fields are added to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Directions traffic takes at once: 1, or 2 for bidirectional.
    pub directions: u8,
    /// Line of each port in bits per second, by the tester's clock.
    pub line: u64,
    /// Frames per second and direction that the device itself can do; `None`: as many as the line.
    pub capacity: Option<f64>,
    /// The device's clock is slower by this, in parts per million: so is what its ports send.
    pub skew_ppm: f64,
    /// Frames that wait for the output at most.
    pub buffer: f64,
    /// Beyond `capacity` the share of frames lost grows by this for each 100 % of overload, instead of all the excess being lost.
    pub slope: Option<f64>,
    /// Share of frames lost at random, whatever the load.
    pub random_loss: f64,
    /// Stands still now and then.
    pub stall: Option<StallPattern>,
    /// Loses half of the frames for so many seconds after an overload.
    pub recovery: f64,
    /// Is silent for so many seconds after a reset.
    pub reset: f64,
    /// Loses so many frames at the beginning of each trial.
    pub first_lost: u64,
    /// Every so many trials a few frames get lost: 0 never.
    pub transient_every: u32,
    /// Nanoseconds that a frame takes at least.
    pub delay: u64,
    /// Nanoseconds by which `delay` varies from trial to trial.
    pub jitter: u64,
    /// Frames per second that the tester itself sends at most.
    pub tester_ceiling: Option<f64>,
    /// Stops answering after so many trials.
    pub dies_after: Option<u32>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            directions: 1,
            line: 10_000_000_000,
            capacity: None,
            skew_ppm: 0.0,
            buffer: 0.0,
            slope: None,
            random_loss: 0.0,
            stall: None,
            recovery: 0.0,
            reset: 0.0,
            first_lost: 0,
            transient_every: 0,
            delay: 5_000,
            jitter: 0,
            tester_ceiling: None,
            dies_after: None,
        }
    }
}

impl Behaviour {
    /// Names of [`Behaviour::named`].
    pub const NAMES: [&str; 9] =
        ["wire", "step", "slope", "random", "stall", "skew", "buffer", "recovery", "reset"];

    /// A device by name.
    pub fn named(name: &str) -> Option<Behaviour> {
        let d = Behaviour::default();
        Some(match name {
            "wire" => d,
            "step" => Behaviour { capacity: Some(5_000_000.0), ..d },
            "slope" => Behaviour { capacity: Some(5_000_000.0), slope: Some(0.1), ..d },
            "random" => Behaviour { random_loss: 1e-5, ..d },
            "stall" => Behaviour {
                capacity: Some(8_000_000.0),
                buffer: 4096.0,
                stall: Some(StallPattern { period: 1.25, seconds: 0.001 }),
                ..d
            },
            "skew" => Behaviour { skew_ppm: 30.0, buffer: 1024.0, ..d },
            "buffer" => Behaviour { capacity: Some(5_000_000.0), buffer: 30_000.0, ..d },
            "recovery" => Behaviour { capacity: Some(5_000_000.0), recovery: 0.25, ..d },
            "reset" => Behaviour { capacity: Some(5_000_000.0), reset: 3.5, ..d },
            _ => return None,
        })
    }
}
