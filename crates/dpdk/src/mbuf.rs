//! The packet buffer: DPDK's mbuf as an owned, bounds-checked [`Packet`].
//!
//! Every access to a field of `struct rte_mbuf` in this crate is in this file and in `mbuf/shared.rs`; `shim.c` asserts
//! the offsets.
//!
//! **The invariant.**
//!
//! 1. An [`Mbuf`] owns its *first* segment alone: reference count one, its own buffer (neither indirect nor external), a
//!    [`Meta`] in the private area; its segment count and packet length describe the chain.
//! 2. Each later segment has its own buffer and one reference for each chain it is in. A count of one means: this chain's
//!    alone. Greater: *shared* with other chains, and then nobody writes to its header or its bytes, whoever owns them.
//! 3. Behind a shared segment there are shared segments only: whole tails are shared ([`Shared`]).
//!
//! Counts grow in [`Packet::share`] only, where the packet is given up; so a count that was seen to be one stays one as
//! long as its owner does not give the packet up itself. What is read is acquired: the reads of those who let go are
//! over. DPDK's own functions free a chain segment by segment, the last owner of each gives it back, on any thread.
//!
//! Buffers enter in two places only, allocation and receive; receive checks ([`admit`]) and copies what does not
//! conform, what another chain still shares included. So packets that were received or allocated share nothing, and
//! methods that change first segments only need not look at reference counts.

mod shared;

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Acquire;

use linerate_pipeline::{Batch, Meta, Packet, PortId};

use crate::ffi::{self, rte_mbuf};

pub use shared::Shared;

/// Bytes of the private area behind each mbuf header: one cache line, for [`Meta`].
pub(crate) const PRIVATE: usize = 64;

/// Offset of the upper half of the 64-bit hash union (`hash.fdir.hi`).
const TRACE: usize = 48;

/// Flags that mark a buffer as not the mbuf's own: `RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL`.
const FOREIGN: u64 = 0b11 << 61;

const _: () = assert!(size_of::<rte_mbuf>() == 128 && align_of::<rte_mbuf>() == 64);
const _: () = assert!(size_of::<Meta>() <= PRIVATE && align_of::<Meta>() <= 64);

/// An owned DPDK packet buffer of one or more segments. Dropping it gives the segments back to their pools.
#[repr(transparent)]
pub struct Mbuf(NonNull<rte_mbuf>);

// SAFETY: an Mbuf is the only owner of its first segment; later ones it owns too, or has a counted reference to what is
// read-only (see the module's invariant). Pools may be used from any thread.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes ownership.
    ///
    /// # Safety
    /// `raw` must meet the module's invariant and have no other owner; its private area must hold a [`Meta`].
    pub(crate) unsafe fn from_raw(raw: NonNull<rte_mbuf>) -> Self {
        Self(raw)
    }

    /// Bytes free in front of the packet, for [`Packet::prepend`].
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().data_off)
    }

    /// Bytes free behind the last segment, for [`Packet::append`].
    #[must_use]
    pub fn tailroom(&self) -> usize {
        // SAFETY: a segment of the owned chain.
        unsafe { tailroom(self.last().as_ptr()) }
    }

    #[inline(always)]
    fn header(&self) -> &rte_mbuf {
        // SAFETY: owned and alive.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut rte_mbuf {
        // SAFETY: owned and alive.
        unsafe { self.0.as_mut() }
    }

    #[inline(always)]
    fn meta_ptr(&self) -> *mut Meta {
        meta_of(self.0.as_ptr())
    }

    /// Segment `i`; `None` past the last.
    fn nth(&self, i: usize) -> Option<NonNull<rte_mbuf>> {
        let mut segment = self.0;
        for _ in 0..i {
            // SAFETY: a segment of the owned chain.
            segment = NonNull::new(unsafe { (*segment.as_ptr()).next })?;
        }
        Some(segment)
    }

    fn last(&self) -> NonNull<rte_mbuf> {
        let mut segment = self.0;
        // SAFETY: `next` is null or another segment of the owned chain.
        while let Some(next) = NonNull::new(unsafe { (*segment.as_ptr()).next }) {
            segment = next;
        }
        segment
    }

    /// Whether this packet alone has a segment of its chain, so that it may change it.
    #[inline(always)]
    fn has_alone(&self, segment: NonNull<rte_mbuf>) -> bool {
        // SAFETY: a segment of the owned chain.
        segment == self.0 || unsafe { refcnt(segment.as_ptr()).load(Acquire) } == 1
    }

    /// Cuts the chain behind `segment` and frees what follows.
    ///
    /// # Safety
    /// `segment` must be a segment of the chain, and `self` [`has_alone`](Self::has_alone) it.
    unsafe fn cut_behind(&mut self, segment: NonNull<rte_mbuf>, segments: u16) {
        // SAFETY: owned by `self` through the chain; the tail is unlinked before it is freed.
        unsafe {
            let tail = (*segment.as_ptr()).next;
            (*segment.as_ptr()).next = ptr::null_mut();
            self.header_mut().nb_segs = segments;
            ffi::lr_mbuf_free(tail);
        }
    }
}

impl Packet for Mbuf {
    type Shared = Shared;

    #[inline(always)]
    fn meta(&self) -> &Meta {
        // SAFETY: the private area holds a Meta (invariant), borrowed as long as `self`.
        unsafe { &*self.meta_ptr() }
    }

    #[inline(always)]
    fn meta_mut(&mut self) -> &mut Meta {
        // SAFETY: as above, uniquely.
        unsafe { &mut *self.meta_ptr() }
    }

    #[inline(always)]
    fn rx_port(&self) -> PortId {
        self.header().port
    }

    #[inline(always)]
    fn set_rx_port(&mut self, port: PortId) {
        self.header_mut().port = port;
    }

    #[inline(always)]
    fn trace_id(&self) -> u32 {
        // SAFETY: inside the owned header.
        unsafe { trace_of(self.0.as_ptr()).read() }
    }

    #[inline(always)]
    fn set_trace_id(&mut self, id: u32) {
        // SAFETY: as above, uniquely.
        unsafe { trace_of(self.0.as_ptr()).write(id) }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.header().pkt_len as usize
    }

    #[inline(always)]
    fn head(&self) -> &[u8] {
        // SAFETY: a segment of the owned chain, borrowed as long as `self`.
        unsafe { bytes(self.0) }
    }

    #[inline(always)]
    fn head_mut(&mut self) -> &mut [u8] {
        // SAFETY: `self` owns the segment and its buffer alone.
        unsafe { bytes_mut(self.0) }
    }

    #[inline(always)]
    fn split_mut(&mut self) -> (&mut [u8], &mut Meta) {
        // SAFETY: the buffer starts behind the private area, so the two do not overlap; both are owned.
        unsafe { (bytes_mut(self.0), &mut *self.meta_ptr()) }
    }

    #[inline(always)]
    fn segments(&self) -> usize {
        usize::from(self.header().nb_segs)
    }

    fn segment(&self, i: usize) -> Option<&[u8]> {
        // SAFETY: a segment of the owned chain, borrowed as long as `self`.
        self.nth(i).map(|segment| unsafe { bytes(segment) })
    }

    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        let segment = self.nth(i).filter(|s| self.has_alone(*s))?;
        // SAFETY: as above, uniquely: no other chain has it.
        Some(unsafe { bytes_mut(segment) })
    }

    #[inline(always)]
    fn pull(&mut self, n: usize) -> Option<&mut [u8]> {
        if usize::from(self.header().data_len) < n && !self.gather(n) {
            return None;
        }
        Some(self.head_mut())
    }

    #[inline(always)]
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        let header = self.header_mut();
        if n > usize::from(header.data_off) {
            return None;
        }
        // data_off + data_len <= buf_len, so the sum fits in 16 bits.
        header.data_off -= n as u16;
        header.data_len += n as u16;
        header.pkt_len += n as u32;
        Some(self.head_mut())
    }

    #[inline(always)]
    fn trim_front(&mut self, n: usize) -> bool {
        let header = self.header_mut();
        if n > usize::from(header.data_len) {
            return false;
        }
        header.data_off += n as u16;
        header.data_len -= n as u16;
        header.pkt_len -= n as u32;
        true
    }

    fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        let last = self.last();
        if !self.has_alone(last) {
            return None;
        }
        // SAFETY: a segment of this chain alone; no other reference to it is alive.
        unsafe {
            if n > tailroom(last.as_ptr()) {
                return None;
            }
            let old = usize::from((*last.as_ptr()).data_len);
            (*last.as_ptr()).data_len += n as u16;
            (*self.0.as_ptr()).pkt_len += n as u32;
            bytes_mut(last).get_mut(old..)
        }
    }

    fn truncate(&mut self, len: usize) -> bool {
        if len >= self.len() {
            return true;
        }
        let (mut segment, mut left, mut segments) = (self.0, len, 1);
        // SAFETY: `segment` walks the owned chain; the lengths of its segments sum to more than `len`, so the walk
        // ends before the chain does, and an inconsistent sum ends it at the last segment. What is changed is this
        // chain's alone.
        unsafe {
            while left > usize::from((*segment.as_ptr()).data_len) {
                let Some(next) = NonNull::new((*segment.as_ptr()).next) else { return true };
                left -= usize::from((*segment.as_ptr()).data_len);
                (segment, segments) = (next, segments + 1);
            }
            if !self.has_alone(segment) {
                return false;
            }
            (*segment.as_ptr()).data_len = left as u16;
            self.header_mut().pkt_len = len as u32;
            if !(*segment.as_ptr()).next.is_null() {
                self.cut_behind(segment, segments);
            }
        }
        true
    }

    fn chain(&mut self, tail: Mbuf) -> Result<(), Mbuf> {
        let last = self.last();
        let Ok(segments) = u16::try_from(self.segments() + tail.segments()) else { return Err(tail) };
        if !self.has_alone(last) {
            return Err(tail);
        }
        let tail = ManuallyDrop::new(tail);
        let bytes = tail.header().pkt_len;
        // SAFETY: `last` is a segment of this chain alone; `tail` hands its chain over, of which it has the first
        // segment alone.
        unsafe {
            (*last.as_ptr()).next = tail.0.as_ptr();
            (*tail.0.as_ptr()).nb_segs = 1;
        }
        let header = self.header_mut();
        header.nb_segs = segments;
        header.pkt_len += bytes;
        Ok(())
    }

    #[inline]
    fn share(self, uses: u16) -> Shared {
        Shared::of(self, uses)
    }

    #[inline(always)]
    fn attach(&mut self, shared: &mut Shared) -> bool {
        shared.put_behind(self)
    }

    // Always: what `pick` counts stays in registers then.
    #[inline(always)]
    fn split(batch: &mut Batch<Self>, to: &mut Batch<Self>, mut pick: impl FnMut(&Self) -> bool) {
        let (n, start, room) = (batch.len(), to.len(), to.remaining_capacity());
        if n > room {
            // Rare: the caller makes room first.
            let mut rest = Batch::new();
            for packet in batch.drain(..) {
                let there = if !to.is_full() && pick(&packet) { &mut *to } else { &mut rest };
                there.push(packet);
            }
            *batch = rest;
            return;
        }
        // SAFETY: both lengths are zero while elements are moved, so each packet has one owner even if `pick` unwinds
        // (packets leak then). Every element read lies in 0..n of `batch`; `stay <= i` and `start + gone < capacity`
        // hold at each write because n <= room; a write past the final length is never read. At the end the first
        // `stay` and `start + gone` elements are the packets moved there, each once.
        unsafe {
            batch.set_len(0);
            to.set_len(0);
            let (from, into) = (batch.as_mut_ptr(), to.as_mut_ptr().add(start));
            let (mut stay, mut gone) = (0, 0);
            for i in 0..n {
                let packet = ManuallyDrop::new(ptr::read(from.add(i)));
                let picked = pick(&packet);
                // Both places are written and one of them counts: the choice is as good as random, and a branch on it
                // would be mispredicted half the time.
                ptr::copy_nonoverlapping(&raw const *packet, into.add(gone), 1);
                ptr::copy_nonoverlapping(&raw const *packet, from.add(stay), 1);
                gone += usize::from(picked);
                stay += usize::from(!picked);
            }
            batch.set_len(stay);
            to.set_len(start + gone);
        }
    }

    #[inline(always)]
    fn prefetch(&self) {
        // SAFETY: alive.
        unsafe { prefetch_data(self.0.as_ptr()) };
    }

    #[inline]
    fn free_bulk(batch: &mut Batch<Self>) {
        let n = batch.len();
        // SAFETY: the length is set to zero first, so the batch gives up the packets that the call frees; Mbuf is a
        // transparent pointer.
        unsafe {
            batch.set_len(0);
            ffi::rte_pktmbuf_free_bulk(batch.as_mut_ptr().cast(), n as u32);
        }
    }
}

impl Mbuf {
    /// The slow part of [`Packet::pull`]: moves bytes from later segments into the first.
    #[cold]
    #[inline(never)]
    fn gather(&mut self, n: usize) -> bool {
        let have = usize::from(self.header().data_len);
        // SAFETY: the first segment of the owned chain.
        if n > self.len() || n - have > unsafe { tailroom(self.0.as_ptr()) } || !self.ends_well(n - have) {
            return false;
        }
        let mut want = n - have;
        while want > 0 {
            let Some(next) = NonNull::new(self.header().next) else { return false };
            // SAFETY: `next` is the second segment of the owned chain, its buffer distinct from the first one's, which
            // has room for `want` more bytes (checked above). It is changed only where this chain alone has it;
            // where others have it too, the chain gives up its reference after it has read what it needs.
            unsafe {
                let (head, from) = (self.0.as_ptr(), next.as_ptr());
                let take = want.min(usize::from((*from).data_len));
                let end = data(head).add(usize::from((*head).data_len));
                ptr::copy_nonoverlapping(data(from), end, take);
                (*head).data_len += take as u16;
                want -= take;
                if take == usize::from((*from).data_len) {
                    (*head).next = (*from).next;
                    (*head).nb_segs -= 1;
                    ffi::lr_mbuf_free_segment(from);
                } else {
                    (*from).data_off += take as u16;
                    (*from).data_len -= take as u16;
                }
            }
        }
        true
    }

    /// Whether the `want` bytes behind the first segment end with a segment, or in one that this chain alone has.
    fn ends_well(&self, mut want: usize) -> bool {
        let mut segment = self.0;
        while want > 0 {
            // SAFETY: segments of the owned chain.
            let Some(next) = NonNull::new(unsafe { (*segment.as_ptr()).next }) else { return false };
            // SAFETY: as above.
            let len = usize::from(unsafe { (*next.as_ptr()).data_len });
            if want < len {
                return self.has_alone(next);
            }
            (segment, want) = (next, want - len);
        }
        true
    }
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the chain is owned and not used again.
        unsafe { ffi::lr_mbuf_free(self.0.as_ptr()) }
    }
}

impl std::fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("segments", &self.segments())
            .field("head", &self.head().len())
            .finish()
    }
}

/// Brings a received burst under the module's invariant: notes the port in each header and replaces what the driver
/// does not own alone by a copy. Returns how many remain at the front of `burst`, their bytes, and how many were freed
/// because no copy could be made.
///
/// # Safety
/// `burst` holds mbufs received from a driver, each owned by the caller and from a pool with our private area.
#[inline(always)]
pub(crate) unsafe fn admit(burst: &mut [*mut rte_mbuf], rx_port: PortId) -> Admitted {
    // One owner, one segment, received by this port: the upper three quarters of what `rearm` gives.
    let wanted = (1 | 1 << 16 | u64::from(rx_port) << 32) << 16;
    let (mut odd, mut foreign, mut bytes) = (0, 0, 0u64);
    for &raw in burst.iter() {
        // SAFETY: live mbufs; the private area belongs to whoever owns the mbuf.
        unsafe {
            // One test for the burst instead of one per packet: anything else leaves a bit.
            odd |= rearm(raw) ^ wanted;
            foreign |= (*raw).ol_flags;
            bytes += u64::from((*raw).pkt_len);
            trace_of(raw).write(0);
            prefetch_data(raw);
        }
    }
    if odd >> 48 != 0 {
        // Drivers note DPDK's number of the port, if any.
        for &raw in burst.iter() {
            // SAFETY: as above.
            unsafe { (*raw).port = rx_port };
        }
    }
    if odd as u32 >> 16 == 0 && (odd >> 32) as u16 == 0 && foreign & FOREIGN == 0 {
        return Admitted { kept: burst.len(), bytes, lost: 0 };
    }
    // SAFETY: as above.
    unsafe { admit_slow(burst, rx_port) }
}

/// What [`admit`] did.
pub(crate) struct Admitted {
    pub(crate) kept: usize,
    /// Bytes of those kept.
    pub(crate) bytes: u64,
    /// Packets freed because the pool had no buffer for a copy.
    pub(crate) lost: u64,
}

#[cold]
#[inline(never)]
unsafe fn admit_slow(burst: &mut [*mut rte_mbuf], rx_port: PortId) -> Admitted {
    let (mut kept, mut bytes, mut lost) = (0, 0, 0);
    for i in 0..burst.len() {
        let raw = burst[i];
        // SAFETY: live, owned mbufs; `copy` is a fresh chain from the same pool, the original is freed once.
        unsafe {
            if is_owned_chain(raw) {
                burst[kept] = raw;
                bytes += u64::from((*raw).pkt_len);
                kept += 1;
                continue;
            }
            let copy = ffi::rte_pktmbuf_copy(raw, (*raw).pool, 0, u32::MAX);
            ffi::lr_mbuf_free(raw);
            if copy.is_null() {
                lost += 1;
                continue;
            }
            set_received(copy, rx_port);
            burst[kept] = copy;
            bytes += u64::from((*copy).pkt_len);
            kept += 1;
        }
    }
    Admitted { kept, bytes, lost }
}

/// Whether every segment is the chain's own and the header describes the chain.
unsafe fn is_owned_chain(first: *mut rte_mbuf) -> bool {
    // SAFETY: the caller passes a live mbuf; `next` is null or a live segment.
    unsafe {
        let (mut segment, mut count, mut bytes) = (first, 0u32, 0u32);
        while !segment.is_null() {
            if refcnt(segment).load(Acquire) != 1 || (*segment).ol_flags & FOREIGN != 0 {
                return false;
            }
            count += 1;
            bytes += u32::from((*segment).data_len);
            segment = (*segment).next;
        }
        count == u32::from((*first).nb_segs) && bytes == (*first).pkt_len
    }
}

/// Writes fresh metadata into a newly allocated mbuf.
///
/// # Safety
/// `raw` must be owned by the caller and come from a pool with our private area.
#[inline(always)]
pub(crate) unsafe fn reset_meta(raw: *mut rte_mbuf) {
    // SAFETY: see above.
    unsafe {
        meta_of(raw).write(Meta::default());
        set_received(raw, 0);
    }
}

/// Notes the port that a packet came in by, in the field that the driver filled with DPDK's number, and that it is not
/// traced. The trace id lies in the upper half of the hash union, where only drivers that mark flows put anything; the
/// lower half keeps the RSS hash. Both are on the header's first cache line.
///
/// # Safety
/// `raw` must be owned by the caller.
#[inline(always)]
unsafe fn set_received(raw: *mut rte_mbuf, rx_port: PortId) {
    // SAFETY: see above.
    unsafe {
        (*raw).port = rx_port;
        trace_of(raw).write(0);
    }
}

/// The upper 32 bits of the 64-bit hash union.
#[inline(always)]
fn trace_of(raw: *mut rte_mbuf) -> *mut u32 {
    raw.cast::<u32>().wrapping_add(TRACE / 4)
}

/// Frees a chain that is not wrapped in an [`Mbuf`].
///
/// # Safety
/// `raw` must be owned by the caller.
pub(crate) unsafe fn free_raw(raw: *mut rte_mbuf) {
    // SAFETY: see above.
    unsafe { ffi::lr_mbuf_free(raw) }
}

/// The reference count of a segment. Owners of other chains change it at any time, so it is never read or written
/// otherwise.
///
/// # Safety
/// `raw` must be alive for `'a`.
#[inline(always)]
unsafe fn refcnt<'a>(raw: *mut rte_mbuf) -> &'a AtomicU16 {
    // SAFETY: inside a live header, aligned (offset 18), and changed by atomic operations only.
    unsafe { AtomicU16::from_ptr(&raw mut (*raw).refcnt) }
}

/// Data offset, reference count, number of segments and port, in this order from the lowest bits (DPDK's `rearm_data`), with
/// one load.
///
/// # Safety
/// `raw` must be alive.
#[inline(always)]
unsafe fn rearm(raw: *mut rte_mbuf) -> u64 {
    const { assert!(std::mem::offset_of!(rte_mbuf, data_off) == 16 && cfg!(target_endian = "little")) };
    #[cfg(target_arch = "x86_64")]
    {
        let word: u64;
        // SAFETY: inside a live header; the instruction only reads. Written out because the load may meet an atomic change of
        // the reference count by another owner, for which the language has no mixed-size access: an aligned load of eight
        // bytes is one access on this machine (AMD APM vol. 2, 7.3.2; Intel SDM vol. 3A, 9.1.1), and either value of the
        // count is fine.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [{1} + 16]",
                out(reg) word,
                in(reg) raw,
                options(readonly, nostack, preserves_flags)
            );
        }
        word
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: alive; the reference count is loaded as its owners change it.
    unsafe {
        let references = u64::from(refcnt(raw).load(std::sync::atomic::Ordering::Relaxed));
        let (offset, segments, port) = ((*raw).data_off, (*raw).nb_segs, (*raw).port);
        u64::from(offset) | references << 16 | u64::from(segments) << 32 | u64::from(port) << 48
    }
}

/// The private area: directly behind the header, on a cache line of its own.
#[inline(always)]
fn meta_of(raw: *mut rte_mbuf) -> *mut Meta {
    raw.wrapping_add(1).cast()
}

/// # Safety
/// `segment` must be alive, like in all that follow. They read single fields: another owner may be changing the reference
/// count beside them.
#[inline(always)]
unsafe fn prefetch_data(segment: *const rte_mbuf) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: prefetching any address has no effect but on caches.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(data(segment).cast()) }
}

#[inline(always)]
unsafe fn data(segment: *const rte_mbuf) -> *mut u8 {
    // SAFETY: alive.
    unsafe { (*segment).buf_addr.cast::<u8>().wrapping_add(usize::from((*segment).data_off)) }
}

/// # Safety
/// The segment must be alive, and nobody change it, for `'a`.
#[inline(always)]
unsafe fn bytes<'a>(segment: NonNull<rte_mbuf>) -> &'a [u8] {
    // SAFETY: data_off + data_len <= buf_len in every mbuf (kept by all methods here and by drivers), and the bytes of
    // a pool are initialised memory.
    unsafe {
        let segment = segment.as_ptr();
        slice::from_raw_parts(data(segment), usize::from((*segment).data_len))
    }
}

/// # Safety
/// The caller holds the segment uniquely for `'a`.
#[inline(always)]
unsafe fn bytes_mut<'a>(segment: NonNull<rte_mbuf>) -> &'a mut [u8] {
    // SAFETY: as `bytes`; unique by the caller's promise.
    unsafe {
        let segment = segment.as_ptr();
        slice::from_raw_parts_mut(data(segment), usize::from((*segment).data_len))
    }
}

#[inline(always)]
unsafe fn tailroom(segment: *const rte_mbuf) -> usize {
    // SAFETY: alive.
    unsafe {
        usize::from((*segment).buf_len)
            .saturating_sub(usize::from((*segment).data_off))
            .saturating_sub(usize::from((*segment).data_len))
    }
}
