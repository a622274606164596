//! Waiting on tokio for a file descriptor that another type reads from.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Wakes a task when there is something to read (a netlink socket, a tap).
#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Watches what `fd` refers to, by a descriptor of its own. Must be called within a tokio runtime with I/O enabled.
    #[expect(
        deprecated,
        reason = "AsyncFd asks that the descriptor stays open and the same; an OwnedFd does"
    )]
    pub fn new(fd: impl AsFd) -> io::Result<Self> {
        let own = fd.as_fd().try_clone_to_owned()?;
        Ok(Readiness(AsyncFd::with_interest(own, Interest::READABLE)?))
    }

    /// Returns when there may be something to read. To be called only after a read that found nothing; then nothing is
    /// missed, whatever comes in between.
    pub async fn readable(&self) -> io::Result<()> {
        // What arrives after this point sets readiness anew; what arrived before is found by the read that follows.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
