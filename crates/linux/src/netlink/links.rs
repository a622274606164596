//! The states of links and nothing else, read without waiting.

use super::socket::{NLMSG_DONE, NLMSG_ERROR, NetlinkError, Read, Socket, refusal};
use crate::route::wire::{AF_UNSPEC, Messages, RTM_GETLINK};
use crate::route::{Change, Decoder, Event};

/// `RTNLGRP_LINK`.
const GROUP: u32 = 1;
/// Bytes that the kernel may queue: thousands of messages.
const QUEUE: usize = 1 << 20;
/// Datagrams read at once: whoever calls has other things to do.
const AT_ONCE: usize = 256;

/// A link as it was listed.
pub(crate) struct Seen<'a> {
    pub(crate) index: u32,
    pub(crate) name: &'a str,
    pub(crate) running: bool,
}

/// Listens to links.
pub(crate) struct Links {
    changes: Socket,
    listings: Socket,
    decoder: Decoder,
}

impl Links {
    /// In the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        // Changes are heard before anything is listed, so that none is missed.
        let changes = Socket::open(&[GROUP], QUEUE)?;
        let listings = Socket::open(&[], QUEUE)?;
        Ok(Links { changes, listings, decoder: Decoder::new("netlink") })
    }

    /// Lists all links. The kernel answers as it is read.
    pub(crate) fn list(&mut self, mut each: impl FnMut(Seen<'_>)) -> Result<(), NetlinkError> {
        let what = || "list interfaces".to_owned();
        let sequence = self.listings.ask_for_all(RTM_GETLINK, AF_UNSPEC, 16)?;
        loop {
            let Read::Datagram(datagram) = self.listings.read()? else {
                return Err(NetlinkError::NoAnswer(what()));
            };
            for message in Messages::new(datagram).flatten().filter(|m| m.sequence == sequence) {
                let refused = match message.kind {
                    NLMSG_DONE => refusal(message.body, 4),
                    NLMSG_ERROR => refusal(message.body, 4 + 16),
                    _ => {
                        if let Some(Event::Link(_, link)) = self.decoder.message(message) {
                            each(Seen { index: link.index, name: &link.name, running: link.running });
                        }
                        continue;
                    }
                };
                return match refused {
                    Some(refused) => Err(NetlinkError::Refused {
                        what: what(),
                        errno: refused.errno,
                        detail: refused.detail,
                    }),
                    None => Ok(()),
                };
            }
        }
    }

    /// Tells what has been said since the last call: index, and whether that link carries frames. `false`: messages were
    /// lost.
    pub(crate) fn changes(&mut self, mut each: impl FnMut(u32, bool)) -> Result<bool, NetlinkError> {
        for _ in 0..AT_ONCE {
            let datagram = match self.changes.read()? {
                Read::Datagram(datagram) => datagram,
                Read::Empty => return Ok(true),
                Read::Lost => {
                    // What is still queued is older than the loss.
                    while !matches!(self.changes.read()?, Read::Empty) {}
                    return Ok(false);
                }
            };
            for message in Messages::new(datagram).flatten() {
                if let Some(Event::Link(change, link)) = self.decoder.message(message) {
                    each(link.index, link.running && change != Change::Delete);
                }
            }
        }
        Ok(true)
    }
}
