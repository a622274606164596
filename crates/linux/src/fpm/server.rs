//! The TCP side: one session at a time.

use std::io;
use std::net::SocketAddr;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};

use super::frame::FrameDecoder;
use crate::route::{Event, Fault, Faults};

/// Why FPM cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FpmError {
    /// The port cannot be had.
    #[error("cannot listen for FRR on {address}: {source}; is another program there (ss -ltnp)?")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// Connections cannot be taken.
    #[error("cannot take FRR's connection: {0}")]
    Accept(io::Error),
}

/// What a session says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FpmEvent {
    /// FRR has connected; all its next-hop objects and routes follow.
    Connected(SocketAddr),
    /// A route or a next-hop object.
    Event(Event),
    /// The session has ended. Routes stay as they are until FRR has had time to come back.
    Disconnected(Disconnect),
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disconnect {
    /// FRR closed it.
    #[error("FRR closed the FPM session")]
    Closed,
    /// The connection broke.
    #[error("the FPM session broke: {0}")]
    Broken(io::ErrorKind),
    /// What came is not FPM.
    #[error("the FPM session made no sense: {0}")]
    Nonsense(Fault),
}

/// What has come so far, over all sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions begun.
    pub sessions: u64,
    /// Connections closed at once, because there was a session.
    pub refused: u64,
    /// Bytes.
    pub bytes: u64,
    /// FPM frames.
    pub frames: u64,
    /// Netlink messages.
    pub messages: u64,
    /// Events reported.
    pub events: u64,
}

/// Listens for FRR. Pull events with [`next`](Self::next).
#[derive(Debug)]
pub struct FpmServer {
    listener: TcpListener,
    session: Option<TcpStream>,
    decoder: FrameDecoder,
    counters: Counters,
}

impl FpmServer {
    /// Listens on an address, in the network namespace of the calling thread. FRR connects to 127.0.0.1:2620 by default.
    pub async fn bind(address: SocketAddr) -> Result<Self, FpmError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| FpmError::Bind { address, source })?;
        Ok(FpmServer { listener, session: None, decoder: FrameDecoder::new(), counters: Counters::default() })
    }

    /// Where it listens.
    pub fn local_address(&self) -> Result<SocketAddr, FpmError> {
        self.listener.local_addr().map_err(FpmError::Accept)
    }

    /// What has come so far.
    pub fn counters(&self) -> Counters {
        Counters { frames: self.decoder.frames(), messages: self.decoder.messages(), ..self.counters }
    }

    /// What was skipped.
    pub fn faults(&self) -> &Faults {
        self.decoder.faults()
    }

    /// Waits for something to happen and appends it: a connection, its end, or the events of one read (at most 256 KB,
    /// some thousands of routes). Can be dropped while waiting without losing anything. While events are not pulled FRR
    /// waits: TCP holds it back.
    pub async fn next(&mut self, events: &mut Vec<FpmEvent>) -> Result<(), FpmError> {
        let before = events.len();
        while events.len() == before {
            let Some(session) = &self.session else {
                let (stream, peer) = self.listener.accept().await.map_err(FpmError::Accept)?;
                keep_alive(&stream);
                info!("FRR has connected to FPM from {peer}");
                self.session = Some(stream);
                self.counters.sessions += 1;
                events.push(FpmEvent::Connected(peer));
                break;
            };
            tokio::select! {
                other = self.listener.accept() => {
                    let (_, peer) = other.map_err(FpmError::Accept)?;
                    warn!("FPM connection from {peer} refused: there is a session already");
                    self.counters.refused += 1;
                }
                ready = session.readable() => {
                    let end = match ready {
                        Ok(()) => self.read(events),
                        Err(error) => Some(Disconnect::Broken(error.kind())),
                    };
                    if let Some(end) = end {
                        self.session = None;
                        self.decoder.reset();
                        warn!("{end}");
                        events.push(FpmEvent::Disconnected(end));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads once. Returns why the session is over, if it is.
    fn read(&mut self, events: &mut Vec<FpmEvent>) -> Option<Disconnect> {
        let session = self.session.as_ref()?;
        match session.try_read(self.decoder.space()) {
            Ok(0) => Some(Disconnect::Closed),
            Ok(n) => {
                self.counters.bytes += n as u64;
                let before = events.len();
                let result = self.decoder.decode(n, |event| events.push(FpmEvent::Event(event)));
                self.counters.events += (events.len() - before) as u64;
                result.err().map(Disconnect::Nonsense)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                None
            }
            Err(error) => Some(Disconnect::Broken(error.kind())),
        }
    }
}

/// A peer that vanished without a word frees the place after a minute. Not having this is no reason to refuse FRR.
fn keep_alive(stream: &TcpStream) {
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &30);
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &10);
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &3);
}
