//! What a port shall be, and what it became.

use std::fmt;

/// Which headers the device's receive-side scaling hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// Source and destination address.
    pub ip: bool,
    /// TCP ports as well.
    pub tcp: bool,
    /// UDP ports as well.
    pub udp: bool,
    /// SCTP ports as well.
    pub sctp: bool,
    /// The hash key, of the length the device wants ([`PortInfo::rss_key_len`](super::PortInfo)); `None` = its own.
    pub key: Option<Vec<u8>>,
}

impl Default for Rss {
    fn default() -> Self {
        Self { ip: true, tcp: true, udp: true, sctp: false, key: None }
    }
}

/// What a port shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues, at least 1.
    pub rx_queues: u16,
    /// Transmit queues, at least 1.
    pub tx_queues: u16,
    /// Receive descriptors per queue; moved into the device's limits.
    pub rx_descriptors: u16,
    /// Transmit descriptors per queue; moved into the device's limits.
    pub tx_descriptors: u16,
    /// Largest network-layer packet in bytes, 68 to 9,216. The frame is 14 bytes longer (18 or 22 with VLAN tags).
    pub mtu: u16,
    /// Receive frames for any MAC address.
    pub promiscuous: bool,
    /// Receive frames for any multicast MAC address.
    pub all_multicast: bool,
    /// The port's MAC address; `None` = the device's own.
    pub mac: Option<[u8; 6]>,
    /// Spread received packets over the queues in the device, where it can and there are several queues.
    pub rss: Option<Rss>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: 1500,
            promiscuous: false,
            all_multicast: false,
            mac: None,
            rss: Some(Rss::default()),
        }
    }
}

/// Something asked for that the device does otherwise, harmlessly. To be shown to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Descriptors moved into the device's limits.
    Descriptors {
        /// "receive" or "transmit".
        direction: &'static str,
        /// Asked for.
        asked: u16,
        /// In effect.
        used: u16,
    },
    /// A function that the driver does not have.
    Unsupported {
        /// The function, as "promiscuous mode".
        what: &'static str,
        /// The driver.
        driver: String,
    },
    /// Frames longer than a buffer are received in several segments.
    Scatter {
        /// Bytes of data per buffer.
        buffer: usize,
    },
    /// The driver does not promise to receive frames longer than a buffer.
    NoScatter {
        /// Bytes of data per buffer.
        buffer: usize,
        /// The driver.
        driver: String,
    },
    /// Packets of several segments are copied into one before transmission, up to a buffer's size.
    Linearise {
        /// The driver.
        driver: String,
    },
    /// Several receive queues, no spreading in the device.
    NoRss {
        /// The driver.
        driver: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors { direction, asked, used } => {
                write!(f, "{used} {direction} descriptors instead of {asked}: the device's limit")
            }
            Self::Unsupported { what, driver } => write!(f, "{driver} does not support {what}"),
            Self::Scatter { buffer } => {
                write!(f, "frames longer than {buffer} bytes are received in several segments")
            }
            Self::NoScatter { buffer, driver } => write!(
                f,
                "{driver} does not announce reception into several buffers: frames longer than {buffer} bytes may be \
                 lost; make the pool's data room larger"
            ),
            Self::Linearise { driver } => write!(
                f,
                "{driver} sends single-segment packets only: others are copied into one buffer, or dropped where they \
                 do not fit"
            ),
            Self::NoRss { driver } => {
                write!(f, "{driver} does not spread packets over several receive queues by itself")
            }
        }
    }
}
