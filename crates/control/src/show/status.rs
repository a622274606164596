//! `show status`: the instance itself.

use serde::{Deserialize, Serialize};

use super::Text;
use super::text::{bytes, or_dash, thousands};

/// The instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The configuration file it was started with.
    pub config: String,
    /// Resident memory in bytes; absent where the system does not tell.
    pub resident_bytes: Option<u64>,
}

impl Text for Status {
    fn text(&self) -> String {
        format!(
            "linerate {}, process {}, up {} s, {} resident, {}\n",
            self.version,
            self.pid,
            thousands(self.uptime_seconds),
            or_dash(self.resident_bytes.map(bytes)),
            self.config
        )
    }
}
