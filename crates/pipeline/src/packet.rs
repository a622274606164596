//! The packet as nodes see it.
//!
//! Two implementations: the DPDK mbuf in `linerate-dpdk`, and [`crate::HeapPacket`] for tests and fuzzing. All
//! packet logic is generic over this trait, so that it runs without DPDK.

use crate::{Batch, Meta, PortId};

/// A packet buffer: one or more segments of bytes plus [`Meta`].
///
/// Offsets count from the first byte of the packet (the Ethernet destination on receive). No method panics: what does
/// not fit is refused by the return value. Only the first segment ([`head`](Self::head)) is a slice; headers that
/// may lie across segments are made contiguous by [`pull`](Self::pull).
///
/// **Sharing.** A packet owns its first segment alone, always. Later segments may be common to several packets
/// ([`share`](Self::share)): everybody reads them, nobody changes them, and the last of their owners frees them. Methods
/// that would have to change a segment which others have too refuse; received packets have none of those.
pub trait Packet: Sized + Send + 'static {
    /// The bytes of a former packet, to be put behind several others without copying.
    type Shared: Send;

    /// The packet's metadata.
    fn meta(&self) -> &Meta;

    /// The packet's metadata, to change.
    fn meta_mut(&mut self) -> &mut Meta;

    /// Port the packet came in by (also for packets generated in answer to it).
    fn rx_port(&self) -> PortId;

    /// Sets [`rx_port`](Self::rx_port).
    fn set_rx_port(&mut self, port: PortId);

    /// Which traced packet this is; 0 = it is not traced.
    fn trace_id(&self) -> u32;

    /// Sets [`trace_id`](Self::trace_id).
    fn set_trace_id(&mut self, id: u32);

    /// Bytes in all segments, without the FCS.
    fn len(&self) -> usize;

    /// Whether the packet has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the first segment.
    fn head(&self) -> &[u8];

    /// The bytes of the first segment, to change.
    fn head_mut(&mut self) -> &mut [u8];

    /// Bytes and metadata at once, for loops that need both.
    fn split_mut(&mut self) -> (&mut [u8], &mut Meta);

    /// Number of segments, at least 1.
    fn segments(&self) -> usize;

    /// Segment `i` of [`segments`](Self::segments); `None` past the last.
    fn segment(&self, i: usize) -> Option<&[u8]>;

    /// Segment `i`, to change; `None` past the last, and where other packets have it too.
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]>;

    /// Makes the first `n` bytes contiguous in the head and returns the head. `None` (and no change) where the packet
    /// is shorter than `n`, the first segment's buffer cannot hold them, or only a part of a segment that others have too
    /// would go there.
    fn pull(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Adds `n` bytes in front, from the headroom; returns the head, new bytes first (their content is undefined).
    /// `None` (and no change) where the headroom is too small.
    fn prepend(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Removes `n` bytes from the front of the first segment. `false` (and no change) where it has fewer.
    #[must_use]
    fn trim_front(&mut self, n: usize) -> bool;

    /// Adds `n` bytes at the end, within the last segment; returns the new bytes (content undefined). `None` (and no
    /// change) where the tailroom is too small or other packets have that segment too.
    fn append(&mut self, n: usize) -> Option<&mut [u8]>;

    /// Cuts the packet to `len` bytes, freeing segments that become empty. Longer than the packet: no change. `false` (and no
    /// change) where the cut falls into, or directly behind, a segment that other packets have too.
    fn truncate(&mut self, len: usize) -> bool;

    /// Joins the segments of `tail` behind those of `self`; its metadata is lost. Gives `tail` back (and no change) where
    /// there would be more than 65,535 segments, or other packets have the last segment of `self` too.
    fn chain(&mut self, tail: Self) -> Result<(), Self>;

    /// Gives the packet up so that its bytes can stand behind at most `uses` others ([`attach`](Self::attach)). From now
    /// on they are read-only. Bytes in front of the packet and its metadata are lost to it.
    fn share(self, uses: u16) -> Self::Shared;

    /// Puts shared bytes behind the packet's own without copying them. `false` (and no change) where the uses asked for are
    /// used up, there would be more than 65,535 segments, or other packets have the last segment of `self` too.
    #[must_use]
    fn attach(&mut self, shared: &mut Self::Shared) -> bool;

    /// Copies bytes from `offset` on into `out`, over segment borders; returns how many there were.
    fn copy_out(&self, offset: usize, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (offset, 0);
        for i in 0..self.segments() {
            let Some(segment) = self.segment(i) else { break };
            if skip >= segment.len() {
                skip -= segment.len();
                continue;
            }
            let from = &segment[skip..];
            let n = from.len().min(out.len() - done);
            out[done..done + n].copy_from_slice(&from[..n]);
            (skip, done) = (0, done + n);
            if done == out.len() {
                break;
            }
        }
        done
    }

    /// Asks the processor to fetch the first cache line of data. A hint: may do nothing.
    fn prefetch(&self) {}

    /// Moves the packets that `pick` names to the end of `to`, in order; the others stay, in order. What finds `to` full
    /// stays as well.
    fn split(batch: &mut Batch<Self>, to: &mut Batch<Self>, mut pick: impl FnMut(&Self) -> bool) {
        let mut rest = Batch::new();
        for packet in batch.drain(..) {
            let there = if !to.is_full() && pick(&packet) { &mut *to } else { &mut rest };
            there.push(packet);
        }
        *batch = rest;
    }

    /// Frees all packets of a batch at once.
    fn free_bulk(batch: &mut Batch<Self>) {
        batch.clear();
    }
}

/// Where new packets come from: a worker's packet pool.
pub trait PacketAlloc<P> {
    /// An empty packet with zeroed metadata and full headroom. `None` where the pool is exhausted; the caller counts
    /// that as a named drop.
    fn alloc(&mut self) -> Option<P>;

    /// Appends `n` such packets to `batch`, all or none: `false` where the pool or the batch has too little room.
    #[must_use]
    fn alloc_bulk(&mut self, batch: &mut Batch<P>, n: usize) -> bool {
        let old = batch.len();
        if n > batch.remaining_capacity() {
            return false;
        }
        batch.extend(std::iter::from_fn(|| self.alloc()).take(n));
        let all = batch.len() == old + n;
        if !all {
            batch.truncate(old);
        }
        all
    }
}
