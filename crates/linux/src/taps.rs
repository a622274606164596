//! Many taps, waited for at once.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::tap::Tap;

/// Taps that have frames reported by one call.
const MOST_READY: usize = 64;

/// Taps by a number of the caller's.
pub struct TapSet {
    epoll: Epoll,
    taps: HashMap<u64, Tap>,
    events: Vec<EpollEvent>,
}

impl TapSet {
    /// No taps.
    pub fn new() -> io::Result<Self> {
        Ok(TapSet {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            taps: HashMap::new(),
            events: vec![EpollEvent::empty(); MOST_READY],
        })
    }

    /// Takes a tap in, in place of one with the same number.
    pub fn insert(&mut self, key: u64, tap: Tap) -> io::Result<()> {
        self.remove(key);
        self.epoll.add(&tap, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        self.taps.insert(key, tap);
        Ok(())
    }

    /// Gives a tap up: it is closed.
    pub fn remove(&mut self, key: u64) {
        if let Some(tap) = self.taps.remove(&key) {
            // One that was deleted in Linux has left the set already.
            let _ = self.epoll.delete(&tap);
        }
    }

    /// A tap.
    pub fn get(&self, key: u64) -> Option<&Tap> {
        self.taps.get(&key)
    }

    /// Waits until some tap has frames, or for `timeout` (whole milliseconds); appends the numbers of those that have. One
    /// that was deleted in Linux counts as having some: reading says what is wrong.
    pub fn wait(&mut self, timeout: Duration, ready: &mut Vec<u64>) -> io::Result<()> {
        let timeout = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        match self.epoll.wait(&mut self.events, EpollTimeout::from(timeout)) {
            Ok(n) => ready.extend(self.events.iter().take(n).map(EpollEvent::data)),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
