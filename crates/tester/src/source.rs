//! What the runtime needs of traffic: something that makes frames, something that knows them again, and something that answers for
//! the stations that the tester plays.

use crate::receive::Arrival;

/// Makes the frames of one stream, or of one worker's part of it.
pub trait FrameSource<P>: Send {
    /// Writes the next frames of the stream into empty packets, from the first on, in order. They will be handed to the device at
    /// tick `now`. Returns how many were written: fewer than there are packets where one has no room for its frame.
    fn fill(&mut self, packets: &mut [P], now: u64) -> usize;
}

/// Knows the frames of a run again.
pub trait FrameReader<P>: Send + Sync {
    /// What a received frame's signature says; `None`: it is none of this run's. `now`: the tick at which it was taken.
    fn read(&self, packet: &P, now: u64) -> Option<Arrival>;
}

/// Plays the stations on a port: answers for their addresses, asks for those of the device under test.
pub trait Responder<P>: Send {
    /// Takes a frame that is none of the run's. `true`: it was for the stations (neighbour discovery) and is no foreign frame.
    /// An answer, if any, is appended to `answers` as a whole frame without FCS.
    fn receive(&mut self, packet: &P, now: u64, answers: &mut Vec<Vec<u8>>) -> bool;

    /// Called every few milliseconds: what is to be sent by itself.
    fn tick(&mut self, now: u64, frames: &mut Vec<Vec<u8>>);
}
