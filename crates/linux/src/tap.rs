//! Taps: Ethernet interfaces of Linux whose wire is this program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tun_rs::{DeviceBuilder, DeviceBuilderGuard, Layer, SyncDevice};

use crate::netlink::{LinkSettings, NetlinkError, Writer};

/// Why a tap cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name is none.
    #[error("{0:?} cannot be the name of an interface: 1 to 15 characters without /, : and white space")]
    Name(String),
    /// It cannot be made.
    #[error(
        "cannot make tap {name}: {source}; it needs CAP_NET_ADMIN, /dev/net/tun, and that no other program has that tap"
    )]
    Create {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// It cannot be changed.
    #[error("tap {name}: {source}")]
    Change {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// It is gone: someone deleted it.
    #[error("tap {0} was deleted")]
    Deleted(String),
    /// A frame cannot be read or written.
    #[error("cannot move frames over tap {name}: {source}")]
    Io {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What became of a frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Linux has it.
    Yes,
    /// Linux does not take it: the tap is down, or its memory is short.
    Refused,
}

/// A tap. Frames are Ethernet without FCS and without any header before them; offloads are off, so that what is read is
/// what goes on a wire. Reading and writing never wait.
///
/// The tap is gone when this is dropped, unless it was made persistent by someone else before (`ip tuntap add`).
pub struct Tap {
    device: SyncDevice,
    name: String,
    index: u32,
}

impl Tap {
    /// Makes a tap in the network namespace of the calling thread, or takes one that is there and that no program has.
    /// It is down; a new one has a random MAC.
    pub fn open(name: &str) -> Result<Self, TapError> {
        let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        // The kernel would take a % for a pattern.
        if name.is_empty()
            || name.len() > 15
            || name.contains(bad)
            || name.contains('%')
            || matches!(name, "." | "..")
        {
            return Err(TapError::Name(name.to_owned()));
        }
        let create = || {
            let plain = |b: &mut DeviceBuilderGuard<'_>| {
                b.packet_information(false).offload(false);
            };
            let device = DeviceBuilder::new()
                .name(name)
                .layer(Layer::L2)
                .inherit_enable_state()
                .with(plain)
                .build_sync()?;
            device.set_nonblocking(true)?;
            let index = device.if_index()?;
            Ok(Tap { device, name: name.to_owned(), index })
        };
        create().map_err(|source| TapError::Create { name: name.to_owned(), source })
    }

    /// Its name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface index in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Sets MAC, MTU, up or down, carrier. `writer` must be of the tap's namespace.
    pub fn configure(&self, writer: &mut Writer, settings: &LinkSettings) -> Result<(), TapError> {
        let failed = |source| TapError::Change { name: self.name.clone(), source };
        // Not every driver takes all at once, and the MAC is best set before the interface is up, the carrier after.
        let LinkSettings { up, mtu, mac, carrier, master, name } = settings.clone();
        for settings in [
            LinkSettings { mtu, mac, master, name, ..LinkSettings::default() },
            LinkSettings { up, ..LinkSettings::default() },
            LinkSettings { carrier, ..LinkSettings::default() },
        ] {
            if settings != LinkSettings::default() {
                writer.set_link(self.index, &settings).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Reads a frame that Linux sends. Returns its length, or `None` if there is none. A frame longer than `buffer` is cut.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, TapError> {
        match self.device.recv(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Hands a frame to Linux, as if it had come in by the tap's wire.
    pub fn send(&self, frame: &[u8]) -> Result<Sent, TapError> {
        match self.device.send(frame) {
            Ok(_) => Ok(Sent::Yes),
            Err(error) => match error.raw_os_error().map(nix::errno::Errno::from_raw) {
                // EIO: the interface is down. EINVAL: shorter than an Ethernet header.
                Some(nix::errno::Errno::EIO | nix::errno::Errno::EAGAIN | nix::errno::Errno::ENOMEM) => {
                    Ok(Sent::Refused)
                }
                Some(nix::errno::Errno::EINVAL) if frame.len() < 14 => Ok(Sent::Refused),
                _ => Err(self.failed(error)),
            },
        }
    }

    fn failed(&self, source: io::Error) -> TapError {
        match source.raw_os_error().map(nix::errno::Errno::from_raw) {
            Some(nix::errno::Errno::EBADFD | nix::errno::Errno::ENODEV) => {
                TapError::Deleted(self.name.clone())
            }
            _ => TapError::Io { name: self.name.clone(), source },
        }
    }
}

/// For waiting until a frame can be read (`poll`, [`Readiness`](crate::readiness::Readiness)).
impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
