//! What was wrong with what came, counted by kind.

use std::collections::BTreeMap;

use tracing::warn;

/// A reason for which a message, an attribute or a frame was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Fault {
    /// The rest of a buffer is no netlink message.
    #[error(
        "a netlink message is cut off or its length is impossible; what follows in the buffer is skipped"
    )]
    Header,
    /// A message of another kind.
    #[error("netlink messages of type {0} are not understood; they are skipped")]
    MessageType(u16),
    /// A message of another address family.
    #[error(
        "netlink messages of type {message} for address family {family} are not understood; they are skipped"
    )]
    Family {
        /// Message type.
        message: u16,
        /// Address family.
        family: u8,
    },
    /// A message without its fixed part.
    #[error("a netlink message of type {0} is too short; it is skipped")]
    Short(u16),
    /// Attribute lengths that do not add up.
    #[error("the attributes of a netlink message of type {0} do not fit in it; it is skipped")]
    Attributes(u16),
    /// An attribute of the wrong size or content.
    #[error(
        "attribute {attribute} of a netlink message of type {message} has an impossible value; the message is skipped"
    )]
    Value {
        /// Message type.
        message: u16,
        /// Attribute type.
        attribute: u16,
    },
    /// A message that lacks an attribute.
    #[error("a netlink message of type {message} lacks attribute {attribute}; it is skipped")]
    Missing {
        /// Message type.
        message: u16,
        /// Attribute type.
        attribute: u16,
    },
    /// A prefix longer than its address.
    #[error(
        "a netlink message of type {message} has a prefix of length {length}, longer than an address; it is skipped"
    )]
    PrefixLength {
        /// Message type.
        message: u16,
        /// The length.
        length: u8,
    },
    /// An attribute that is newer than this program.
    #[error("attribute {attribute} of netlink messages of type {message} is not known; it is ignored")]
    UnknownAttribute {
        /// Message type.
        message: u16,
        /// Attribute type.
        attribute: u16,
    },
    /// An FPM frame that cannot be right: the stream cannot be followed any further.
    #[error(
        "an FPM frame has version {version} and length {length}; expected version 1 and a length of 4 or more: the session is closed"
    )]
    Frame {
        /// Version.
        version: u8,
        /// Length of the frame in bytes, header included.
        length: u16,
    },
    /// An FPM session that ended within a frame.
    #[error("an FPM session ended in the middle of a frame; the frame is lost")]
    CutOff,
    /// An FPM frame whose content is not netlink.
    #[error(
        "FPM frames of type {0} are not understood (expected 1, netlink; use FRR's module dplane_fpm_nl); they are skipped"
    )]
    FrameType(u8),
}

/// Counters per kind of fault. A kind is logged once, when it first occurs.
#[derive(Clone, Debug)]
pub struct Faults {
    source: &'static str,
    counts: BTreeMap<Fault, u64>,
    more: u64,
}

/// Kinds counted apart. Nonsense can have as many kinds as there are numbers; what goes beyond is summed up.
const MAX_KINDS: usize = 256;

impl Faults {
    /// None so far. `source` is what the log says it came from.
    pub fn new(source: &'static str) -> Self {
        Faults { source, counts: BTreeMap::new(), more: 0 }
    }

    /// Counts one.
    pub fn note(&mut self, fault: Fault) {
        if let Some(count) = self.counts.get_mut(&fault) {
            *count += 1;
        } else if self.counts.len() < MAX_KINDS {
            warn!("{}: {fault}. Further ones are counted, not logged.", self.source);
            self.counts.insert(fault, 1);
        } else {
            self.more += 1;
        }
    }

    /// Kinds and how often each occurred.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        self.counts.iter().map(|(fault, count)| (*fault, *count))
    }

    /// Faults of kinds beyond the 256 that are counted apart.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// All faults.
    pub fn total(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_bounded() {
        let mut faults = Faults::new("test");
        for i in 0..1000 {
            faults.note(Fault::MessageType(i));
            faults.note(Fault::Header);
        }
        assert_eq!((faults.iter().count(), faults.total()), (MAX_KINDS, 2000));
        assert_eq!(faults.more(), 1000 - (MAX_KINDS as u64 - 1));
        assert!(faults.iter().any(|f| f == (Fault::Header, 1000)));
    }
}
