//! The sending side of a port on one worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrayvec::ArrayVec;
use linerate_pipeline::io::TxQueue;
use linerate_pipeline::{BURST, Batch, Packet, PacketAlloc};
use linerate_tester::pace::Pacer;
use linerate_tester::source::FrameSource;
use rtrb::Consumer;

use super::trial::{Job, Sent};

/// A transmit queue, and what leaves by it.
pub(super) struct Outlet<P: Packet> {
    /// The port, by its place in the tester.
    pub(super) port: usize,
    queue: Box<dyn TxQueue<P>>,
    /// Frames that others want sent by this port: answers of the stations on it.
    asides: Vec<Consumer<P>>,
    /// Frames that are made and not taken by the device, and whose they are.
    pending: Batch<P>,
    owners: ArrayVec<Owner, BURST>,
    jobs: Vec<Running<P>>,
    /// Jobs by when they want to send next.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Whose a pending frame is: job, and length; answers have no job.
#[derive(Clone, Copy)]
struct Owner {
    job: Option<usize>,
    bytes: u16,
}

struct Running<P> {
    stream: usize,
    source: Box<dyn FrameSource<P>>,
    pacer: Pacer,
    sent: Sent,
}

impl<P: Packet> Outlet<P> {
    pub(super) fn new(port: usize, queue: Box<dyn TxQueue<P>>, asides: Vec<Consumer<P>>) -> Self {
        Outlet {
            port,
            queue,
            asides,
            pending: Batch::new(),
            owners: ArrayVec::new(),
            jobs: Vec::new(),
            next: BinaryHeap::new(),
        }
    }

    /// A trial begins.
    pub(super) fn begin(&mut self, jobs: Vec<Job<P>>) {
        self.next.clear();
        self.jobs = jobs
            .into_iter()
            .map(|job| Running {
                stream: job.stream,
                source: job.source,
                pacer: job.pacer,
                sent: Sent { stream: job.stream, port: self.port, ..Sent::default() },
            })
            .collect();
        for (i, job) in self.jobs.iter().enumerate() {
            self.next.extend(job.pacer.next_at().map(|at| Reverse((at, i))));
        }
    }

    /// The trial has ended: what was due and did not leave is missed.
    pub(super) fn finish(&mut self, now: u64) {
        for job in &mut self.jobs {
            job.pacer.finish(now);
        }
        self.next.clear();
    }

    /// Frames made that the device has not taken.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Closes the books: what is still pending never left.
    pub(super) fn collect(&mut self) -> Vec<Sent> {
        for owner in std::mem::take(&mut self.owners) {
            if let Some(job) = owner.job.and_then(|j| self.jobs.get_mut(j)) {
                job.sent.refused += 1;
            }
        }
        P::free_bulk(&mut self.pending);
        let close = |job: Running<P>| Sent {
            intended: job.pacer.intended(),
            missed: job.pacer.missed(),
            largest_burst: job.pacer.largest_burst(),
            latest: job.pacer.latest(),
            stream: job.stream,
            ..job.sent
        };
        self.next.clear();
        std::mem::take(&mut self.jobs).into_iter().map(close).collect()
    }

    /// Sends what is due; returns how many frames of streams the device took, and their bytes.
    #[inline]
    pub(super) fn send(&mut self, clock: fn() -> u64, alloc: &mut dyn PacketAlloc<P>) -> (u64, u64) {
        if self.pending.is_empty() {
            self.take_asides();
            let now = clock();
            while let Some(Reverse((at, job))) = self.next.peek().copied() {
                if at > now || self.pending.is_full() {
                    break;
                }
                self.next.pop();
                if !self.make(job, now, alloc) {
                    break;
                }
            }
            if self.pending.is_empty() {
                return (0, 0);
            }
        }
        self.flush(clock)
    }

    /// Makes the frames of a job that are due. `false`: nothing more can be made now.
    fn make(&mut self, index: usize, now: u64, alloc: &mut dyn PacketAlloc<P>) -> bool {
        let Some(job) = self.jobs.get_mut(index) else { return true };
        let old = self.pending.len();
        let n = job.pacer.due(now, self.pending.remaining_capacity() as u32) as usize;
        self.next.extend(job.pacer.next_at().map(|at| Reverse((at, index))));
        if n == 0 {
            return true;
        }
        if !alloc.alloc_bulk(&mut self.pending, n) {
            job.sent.no_buffer += n as u64;
            return false;
        }
        let made = job.source.fill(&mut self.pending[old..], now);
        if made < n {
            job.sent.unfit += (n - made) as u64;
            self.pending.truncate(old + made);
        }
        let owner = |p: &P| Owner { job: Some(index), bytes: p.len() as u16 };
        self.owners.extend(self.pending[old..].iter().map(owner));
        true
    }

    fn flush(&mut self, clock: fn() -> u64) -> (u64, u64) {
        let taken = self.queue.tx(&mut self.pending);
        let (mut frames, mut bytes) = (0, 0);
        let now = if taken > 0 { clock() } else { 0 };
        for owner in self.owners.drain(..taken) {
            let Some(job) = owner.job.and_then(|j| self.jobs.get_mut(j)) else { continue };
            job.sent.frames += 1;
            job.sent.bytes += u64::from(owner.bytes);
            if job.sent.first == 0 {
                job.sent.first = now;
            }
            job.sent.last = now;
            frames += 1;
            bytes += u64::from(owner.bytes);
        }
        (frames, bytes)
    }

    fn take_asides(&mut self) {
        for aside in &mut self.asides {
            while !self.pending.is_full() {
                let Ok(packet) = aside.pop() else { break };
                self.owners.push(Owner { job: None, bytes: packet.len() as u16 });
                self.pending.push(packet);
            }
        }
    }
}
