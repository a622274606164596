//! Route table files: `prefix nexthop` text and MRT TABLE_DUMP_V2 (RFC 6396, RFC 8050), plain, gzip or bzip2.
//!
//! The format is told from the first bytes, never from the file name. Reading is streaming: memory grows with the
//! routes that are really there, not with what a length field claims or what a compressed file unfolds to.

mod mrt;
mod text;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;

use ipnet::IpNet;

/// Most routes taken from one file: twice what the largest planned table holds. Keeps a hostile compressed file from
/// filling the memory.
pub const MAX_ROUTES: usize = 16 << 20;

/// Most distinct next hops in one file.
pub const MAX_NEXT_HOPS: usize = 1 << 20;

/// Most errors reported for one text file before reading it is given up.
const MAX_ERRORS: usize = 10;

/// A table as a file says it: routes point into the list of distinct next hops.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rib {
    /// What the file is, for messages.
    pub format: Format,
    /// Distinct next hops in the order of their first use, each with the place of that.
    pub next_hops: Vec<(NextHop, Place)>,
    /// Routes in file order, one per prefix: prefix and index into [`Self::next_hops`].
    pub routes: Vec<(IpNet, u32)>,
    /// Further routes to prefixes the file had before. The first one counts.
    pub duplicates: usize,
    /// MRT only: prefixes without a usable entry (not from the selected peer, or without next hop).
    pub skipped: usize,
}

/// How a file was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Lines of `prefix nexthop`.
    #[default]
    Text,
    /// MRT TABLE_DUMP_V2.
    Mrt,
}

/// A next hop as a file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// A number that stands for a gateway.
    Id(u32),
    /// The gateway's address.
    Address(IpAddr),
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::Id(id) => write!(f, "{id}"),
            NextHop::Address(a) => write!(f, "{a}"),
        }
    }
}

/// Where in a file something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Line, counted from 1.
    Line(u64),
    /// Byte offset in the unpacked file.
    Offset(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(n) => write!(f, "line {n}"),
            Place::Offset(n) => write!(f, "byte {n}"),
        }
    }
}

/// Which of a prefix's entries in an MRT file counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// The first entry with a next hop.
    #[default]
    First,
    /// The first entry from the peer with this address.
    Peer(IpAddr),
    /// The first entry from the peer at this position of the file's peer index table.
    PeerIndex(u16),
}

/// What is wrong in a table file.
#[derive(Debug, thiserror::Error)]
pub enum RibError {
    /// Something in the file is not what it should be.
    #[error("{place}: {what}")]
    Malformed {
        /// Where.
        place: Place,
        /// What was found and what was expected.
        what: String,
    },
    /// The file could not be read or unpacked.
    #[error("cannot read on after {place}: {error}")]
    Read {
        /// How far reading got.
        place: Place,
        /// Why it stopped.
        error: io::Error,
    },
    /// The file has no route.
    #[error("the file holds no route: expected lines of `prefix nexthop`, or MRT TABLE_DUMP_V2 records")]
    Empty,
}

impl RibError {
    pub(crate) fn at(place: Place, what: impl Into<String>) -> Self {
        RibError::Malformed { place, what: what.into() }
    }

    /// Where in the file, as far as that is known.
    pub fn place(&self) -> Option<Place> {
        match self {
            RibError::Malformed { place, .. } | RibError::Read { place, .. } => Some(*place),
            RibError::Empty => None,
        }
    }

    /// The message without the place.
    pub fn what(&self) -> String {
        match self {
            RibError::Malformed { what, .. } => what.clone(),
            RibError::Read { error, .. } => format!("cannot read on after this: {error}"),
            RibError::Empty => self.to_string(),
        }
    }
}

/// Reads a table in any of the formats. All errors of a text file are reported, up to ten.
pub fn read(input: impl Read, select: Select) -> Result<Rib, Vec<RibError>> {
    let mut raw = BufReader::with_capacity(1 << 16, input);
    let start = |error| vec![RibError::Read { place: Place::Offset(0), error }];
    let magic = peek(&mut raw).map_err(start)?;
    match magic {
        [0x1f, 0x8b, ..] => read_plain(flate2::bufread::MultiGzDecoder::new(raw), select),
        [b'B', b'Z', b'h', ..] => read_plain(bzip2::bufread::MultiBzDecoder::new(raw), select),
        _ => read_plain(raw, select),
    }
}

/// Reads whatever the bytes are, for fuzzing: nothing in them may make it panic or run away.
pub fn fuzz(data: &[u8]) {
    let _ = read(data, Select::First);
    let _ = read(data, Select::PeerIndex(0));
}

fn read_plain(input: impl Read, select: Select) -> Result<Rib, Vec<RibError>> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let start = |error| vec![RibError::Read { place: Place::Offset(0), error }];
    let magic = peek(&mut input).map_err(start)?;
    // An MRT record has its type in bytes 4 and 5, below 256 for all types there are; text has no NUL byte.
    let rib = match magic {
        [_, _, _, _, 0, ..] => mrt::read(input, select).map_err(|e| vec![e])?,
        _ => text::read(input)?,
    };
    if rib.routes.is_empty() && rib.skipped == 0 {
        return Err(vec![RibError::Empty]);
    }
    Ok(rib)
}

/// The first bytes of a stream (up to six), left in it.
fn peek(input: &mut impl BufRead) -> io::Result<[u8; 6]> {
    let head = input.fill_buf()?;
    let mut magic = [0xff; 6];
    let n = head.len().min(magic.len());
    magic[..n].copy_from_slice(&head[..n]);
    Ok(magic)
}

/// Collects routes: gives each next hop one index and each prefix one route.
struct Collector {
    rib: Rib,
    index: HashMap<NextHop, u32>,
    last_index: Option<(NextHop, u32)>,
    /// Prefixes seen, filled only once the file turns out not to be sorted.
    seen: Option<HashSet<IpNet>>,
}

impl Collector {
    fn new(format: Format) -> Self {
        let rib = Rib { format, ..Rib::default() };
        Collector { rib, index: HashMap::new(), last_index: None, seen: None }
    }

    fn add(&mut self, prefix: IpNet, next_hop: NextHop, place: Place) -> Result<(), RibError> {
        if self.is_duplicate(prefix) {
            self.rib.duplicates += 1;
            return Ok(());
        }
        if self.rib.routes.len() >= MAX_ROUTES {
            return Err(RibError::at(place, format!("more than {MAX_ROUTES} routes, the most one file may hold")));
        }
        let index = self.index_of(next_hop, place)?;
        self.rib.routes.push((prefix, index));
        Ok(())
    }

    fn index_of(&mut self, next_hop: NextHop, place: Place) -> Result<u32, RibError> {
        if let Some((last, index)) = self.last_index
            && last == next_hop
        {
            return Ok(index);
        }
        let index = match self.index.get(&next_hop) {
            Some(index) => *index,
            None if self.index.len() >= MAX_NEXT_HOPS => {
                let what = format!("more than {MAX_NEXT_HOPS} distinct next hops, the most one file may hold");
                return Err(RibError::at(place, what));
            }
            None => {
                let index = self.index.len() as u32;
                self.index.insert(next_hop, index);
                self.rib.next_hops.push((next_hop, place));
                index
            }
        };
        self.last_index = Some((next_hop, index));
        Ok(index)
    }

    /// Sorted files, which most are, need no set.
    fn is_duplicate(&mut self, prefix: IpNet) -> bool {
        if let Some(seen) = &mut self.seen {
            return !seen.insert(prefix);
        }
        let Some((last, _)) = self.rib.routes.last() else { return false };
        if prefix > *last {
            return false;
        }
        let mut seen: HashSet<IpNet> = self.rib.routes.iter().map(|r| r.0).collect();
        let new = seen.insert(prefix);
        self.seen = Some(seen);
        !new
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
