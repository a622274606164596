//! A netlink socket: requests and their answers, and reading without blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket as Raw, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use socket2::SockFilter;

use crate::route::Protocol;
use crate::route::wire::{Messages, attributes};

/// Why Linux could not be asked or would not do something.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No socket.
    #[error("cannot open a netlink socket: {0}")]
    Open(io::Error),
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A request could not be sent or its answer read.
    #[error("cannot talk to the kernel by netlink: {0}")]
    Io(io::Error),
    /// The kernel refused a request.
    #[error("the kernel refused to {what}: {errno}{}", detail.as_deref().map(|d| format!(" ({d})")).unwrap_or_default())]
    Refused {
        /// What was asked for.
        what: String,
        /// The error number.
        errno: Errno,
        /// What the kernel adds in words.
        detail: Option<String>,
    },
    /// No answer.
    #[error("the kernel did not answer the request to {0}")]
    NoAnswer(String),
}

impl NetlinkError {
    /// Whether what was to be added is there already.
    pub fn exists(&self) -> bool {
        matches!(self, NetlinkError::Refused { errno: Errno::EEXIST, .. })
    }

    /// Whether what was to be changed or deleted is not there.
    pub fn absent(&self) -> bool {
        use Errno::{EADDRNOTAVAIL, ENODEV, ENOENT, ESRCH};
        matches!(self, NetlinkError::Refused { errno: EADDRNOTAVAIL | ENODEV | ENOENT | ESRCH, .. })
    }
}

/// Longest datagram: dumps use 32 KB at most.
const BUFFER: usize = 1 << 16;

/// Makers of routes that can be left out: what a jump reaches.
const MOST_MAKERS: usize = 200;

/// Where a message (`nlmsghdr`, `rtmsg`) has its type's lower byte and the route's maker.
const TYPE: u32 = if cfg!(target_endian = "little") { 4 } else { 5 };
const MAKER: u32 = 16 + 5;

/// A program of the kernel's packet filter that passes everything but routes, and their withdrawals, of these makers.
fn program(makers: &[u8]) -> Vec<SockFilter> {
    // Load a byte; jump if it equals; return, with as many bytes as may pass.
    const LOAD: u16 = 0x30;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NEW_ROUTE: u32 = 24;
    const DELETE_ROUTE: u32 = 25;
    let count = makers.len() as u8;
    let mut program = vec![
        SockFilter::new(LOAD, 0, 0, TYPE),
        SockFilter::new(EQUAL, 1, 0, NEW_ROUTE),
        SockFilter::new(EQUAL, 0, count + 1, DELETE_ROUTE),
        SockFilter::new(LOAD, 0, 0, MAKER),
    ];
    // Behind the last of these is "pass", behind that "drop".
    let equal = |(i, maker): (u8, &u8)| SockFilter::new(EQUAL, count - i, 0, u32::from(*maker));
    program.extend((0..count).zip(makers).map(equal));
    program.extend([SockFilter::new(RETURN, 0, 0, u32::MAX), SockFilter::new(RETURN, 0, 0, 0)]);
    program
}

/// What reading gave.
pub(super) enum Read<'a> {
    /// Messages of the kernel.
    Datagram(&'a [u8]),
    /// Nothing there.
    Empty,
    /// Messages were lost: the socket's buffer overflowed, or a message is longer than ours.
    Lost,
}

pub(super) struct Socket {
    raw: Raw,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

impl Socket {
    /// Opens a socket that hears these multicast groups and holds at least `buffer` bytes, or what the kernel allows.
    pub(super) fn open(groups: &[u32], buffer: usize) -> Result<Self, NetlinkError> {
        let open = || {
            let mut raw = Raw::new(NETLINK_ROUTE)?;
            // The limit of net.core.rmem_max is for those without CAP_NET_ADMIN; they get what there is.
            if setsockopt(&raw, sockopt::RcvBufForce, &buffer).is_err() {
                let _ = setsockopt(&raw, sockopt::RcvBuf, &buffer);
            }
            raw.bind_auto()?;
            raw.set_non_blocking(true)?;
            raw.set_ext_ack(true)?;
            raw.set_cap_ack(true)?;
            raw.set_netlink_get_strict_chk(true)?;
            for group in groups {
                raw.add_membership(*group)?;
            }
            Ok(raw)
        };
        let raw = open().map_err(NetlinkError::Open)?;
        Ok(Socket { raw, sequence: 0, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Has the kernel leave out what it tells of routes of these makers: a full table of FRR's is told to everyone who
    /// listens to routes, message by message. Where the kernel refuses, they are to be left out by who reads them.
    pub(super) fn leave_out(&self, makers: impl Iterator<Item = Protocol>) {
        let makers: Vec<u8> = makers.map(|maker| maker.0).take(MOST_MAKERS).collect();
        let _ = socket2::SockRef::from(self).attach_filter(&program(&makers));
    }

    /// Reads one datagram of the kernel. Others may send here, too: theirs are left out.
    pub(super) fn read(&mut self) -> Result<Read<'_>, NetlinkError> {
        loop {
            let mut space = &mut self.buffer[..];
            return match self.raw.recv_from(&mut space, MsgFlags::MSG_TRUNC.bits()) {
                Ok((_, from)) if from.port_number() != 0 => continue,
                Ok((length, _)) => Ok(self.buffer.get(..length).map_or(Read::Lost, Read::Datagram)),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => Ok(Read::Empty),
                    Some(Errno::EINTR) => continue,
                    Some(Errno::ENOBUFS) => Ok(Read::Lost),
                    _ => Err(NetlinkError::Io(error)),
                },
            };
        }
    }

    /// Asks for all objects of a kind: `fixed` bytes of fixed part, of which the first is the address family. Returns the
    /// number that the answers have.
    pub(super) fn ask_for_all(&mut self, kind: u16, family: u8, fixed: usize) -> Result<u32, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let mut message = Vec::with_capacity(16 + fixed);
        message.extend((16 + fixed as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.push(family);
        message.resize(16 + fixed, 0);
        self.send(&message)?;
        Ok(self.sequence)
    }

    /// Has the kernel do something. It does so before the call returns.
    pub(super) fn request(
        &mut self,
        what: &str,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sequence = self.sequence;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.send(&bytes)?;
        loop {
            match self.read()? {
                Read::Datagram(datagram) => {
                    if let Some(outcome) = outcome(datagram, sequence) {
                        return outcome.map_err(|Refusal { errno, detail }| NetlinkError::Refused {
                            what: what.to_owned(),
                            errno,
                            detail,
                        });
                    }
                }
                Read::Empty | Read::Lost => return Err(NetlinkError::NoAnswer(what.to_owned())),
            }
        }
    }

    fn send(&self, message: &[u8]) -> Result<(), NetlinkError> {
        self.raw.send_to(message, &SocketAddr::new(0, 0), 0).map(drop).map_err(NetlinkError::Io)
    }
}

pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The kernel said no.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) detail: Option<String>,
}

/// The answer to a request, if it is in this datagram.
fn outcome(datagram: &[u8], sequence: u32) -> Option<Result<(), Refusal>> {
    Messages::new(datagram)
        .flatten()
        .find(|m| m.kind == NLMSG_ERROR && m.sequence == sequence)
        .map(|m| refusal(m.body, 4 + 16).map_or(Ok(()), Err))
}

/// What an error or the end of a dump says; `None`: no error. Attributes begin at `at`.
pub(super) fn refusal(body: &[u8], at: usize) -> Option<Refusal> {
    let code = i32::from_ne_bytes(*body.first_chunk()?);
    let detail = attributes(body.get(at..).unwrap_or_default())
        .filter_map(Result::ok)
        .find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG)
        .map(|(_, text)| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned());
    (code != 0).then(|| Refusal { errno: Errno::from_raw(code.wrapping_neg()), detail })
}
