//! Bytes that several packets have: the chain of a former packet, counted.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use linerate_pipeline::Packet;

use super::{Mbuf, refcnt};
use crate::ffi::{self, rte_mbuf};

/// The most references to a segment: well below what the 16-bit counter holds.
const MOST: u16 = 60_000;

/// The bytes of a packet that was given up ([`Packet::share`]), to be put behind others ([`Packet::attach`]). Dropping it
/// gives back the uses that are left.
#[derive(Debug)]
pub struct Shared {
    first: NonNull<rte_mbuf>,
    bytes: u32,
    segments: u16,
    /// References that this holds to each segment of the chain.
    left: u16,
}

// SAFETY: the chain is read-only, the references to it are counted; pools may be used from any thread.
unsafe impl Send for Shared {}

impl Shared {
    /// All references are taken at once, so that handing them out costs no atomic operation.
    #[inline]
    pub(super) fn of(packet: Mbuf, uses: u16) -> Self {
        let packet = ManuallyDrop::new(packet);
        let (bytes, segments) = (packet.header().pkt_len, packet.header().nb_segs);
        let mut uses = uses.clamp(1, MOST);
        if segments > 1 {
            uses = uses.min(room(&packet));
        }
        let mut at = Some(packet.0);
        while let Some(segment) = at {
            // SAFETY: a segment of the chain that the packet owned. The first is its alone, so a plain store counts the
            // references; to others there may be references elsewhere.
            unsafe {
                if segment == packet.0 {
                    (*segment.as_ptr()).nb_segs = 1;
                    refcnt(segment.as_ptr()).store(uses, Relaxed);
                } else {
                    refcnt(segment.as_ptr()).fetch_add(uses - 1, Relaxed);
                }
                at = NonNull::new((*segment.as_ptr()).next);
            }
        }
        Shared { first: packet.0, bytes, segments, left: uses }
    }

    /// Puts the chain behind the segments of a packet; see [`Packet::attach`].
    #[inline(always)]
    pub(super) fn put_behind(&mut self, packet: &mut Mbuf) -> bool {
        let last = if packet.header().nb_segs == 1 { packet.0 } else { packet.last() };
        let Some(segments) = packet.header().nb_segs.checked_add(self.segments) else { return false };
        let Some(bytes) = packet.header().pkt_len.checked_add(self.bytes) else { return false };
        if self.left == 0 || !packet.has_alone(last) {
            return false;
        }
        self.left -= 1;
        // SAFETY: the packet alone has `last`, its last segment; one of the references held here goes over to it.
        unsafe { (*last.as_ptr()).next = self.first.as_ptr() };
        let header = packet.header_mut();
        (header.nb_segs, header.pkt_len) = (segments, bytes);
        true
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        if self.left > 0 {
            self.give_back();
        }
    }
}

impl Shared {
    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        let mut at = Some(self.first);
        // SAFETY: as long as one reference is held here, no segment of the chain is freed; the last one goes by DPDK's
        // function, which frees what nobody else has.
        unsafe {
            while let Some(segment) = at {
                refcnt(segment.as_ptr()).fetch_sub(self.left - 1, AcqRel);
                at = NonNull::new((*segment.as_ptr()).next);
            }
            ffi::lr_mbuf_free(self.first.as_ptr());
        }
        self.left = 0;
    }
}

/// How many uses the counters of all segments have room for; at least one, which the packet itself has.
fn room(packet: &Mbuf) -> u16 {
    let mut most = 1;
    for i in 1..packet.segments() {
        // SAFETY: a segment of the owned chain.
        let count = packet.nth(i).map_or(1, |s| unsafe { refcnt(s.as_ptr()).load(Relaxed) });
        most = most.max(count);
    }
    MOST.saturating_sub(most).max(1)
}
