//! What control and workers say to each other, through bounded rings: commands are taken between two bursts, so none
//! ever finds a worker with packets in hand. Everything a command needs is allocated by control and everything left over
//! goes back with the report: workers neither allocate nor free memory for it.

use arrayvec::ArrayVec;
use linerate_pipeline::PortId;
use rtrb::{Consumer, Producer};

use super::ring::Mark;
use super::worker::RxSlot;

/// Queue moves that one worker can expect at the same time.
pub const MAX_ARRIVALS: usize = 8;

/// From control to a worker.
pub enum Command<P> {
    /// A receive queue will arrive here: stay awake until it does. Polling starts when all marks have been passed.
    Expect(Consumer<Transfer<P>>),
    /// Stop polling a receive queue and give it away. `marks` is empty, with room for one mark per ring that leads out
    /// of the worker.
    Give {
        /// The queue's port.
        port: PortId,
        /// Its number on the port.
        queue: u16,
        /// Where it goes.
        to: Producer<Transfer<P>>,
        /// Room for marks.
        marks: Vec<Mark>,
    },
    /// A port's link is up or down: packets for a port that is down are dropped by that name.
    PortUp(PortId, bool),
    /// Trace the next packets received, on one port or on any.
    Trace(u32, Option<PortId>),
    /// One step towards the end.
    Stop(Stop),
}

/// The end comes in three steps, each reported by every worker before the next begins, so that no packet is stranded
/// between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Receive no more.
    Receiving,
    /// Finish what other workers hand over for processing.
    Processing,
    /// Finish what other workers hand over for transmission, and end.
    Sending,
}

/// A receive queue on its way from one worker to another.
pub struct Transfer<P> {
    /// The queue.
    pub(super) slot: RxSlot<P>,
    /// How far the rings out of the old worker must be finished before the new one may start.
    pub(super) marks: Vec<Mark>,
    /// When the old worker polled it last, in cycles.
    pub(super) stopped: u64,
}

/// From a worker to control.
pub enum Report<P> {
    /// A queue was given away; the producer comes back to be freed.
    Given(Producer<Transfer<P>>),
    /// There is no such queue here; nothing was given away.
    NotHere(Producer<Transfer<P>>, Vec<Mark>),
    /// A queue has arrived and is polled.
    Arrived {
        /// Cycles in which nobody polled it.
        gap: u64,
        /// To be freed.
        from: Consumer<Transfer<P>>,
        /// To be freed.
        marks: Vec<Mark>,
    },
    /// The worker that should have given a queue did not.
    NothingArrived(Consumer<Transfer<P>>),
    /// A step towards the end is done.
    Stopped(Stop),
}

/// A queue that this worker waits for.
pub(super) enum Arrival<P> {
    /// Not here yet.
    Expected(Consumer<Transfer<P>>),
    /// Here, but packets received from it by the old worker are still on their way.
    Waiting(Transfer<P>, Consumer<Transfer<P>>),
}

/// All queues that a worker waits for.
pub(super) type Arrivals<P> = ArrayVec<Arrival<P>, MAX_ARRIVALS>;
