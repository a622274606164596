//! TCP (RFC 9293): as far as a router looks at it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Header, U16, U32};

/// The TCP header without options, 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: U16,
    /// Destination port.
    pub dst_port: U16,
    /// Sequence number.
    pub seq: U32,
    /// Acknowledgement number.
    pub ack: U32,
    /// Data offset in 32-bit words (4 bits), reserved (4 bits).
    pub offset: u8,
    /// FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Checksum.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl Header for TcpHeader {}

impl TcpHeader {
    /// Header length in bytes, options included: 0 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.offset >> 4) * 4
    }
}
