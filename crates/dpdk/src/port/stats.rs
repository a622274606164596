//! A port's counters and link.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use super::device::Inner;
use super::error::PortError;
use crate::errno::check;
use crate::ffi;

/// Counters since the port was opened or its statistics reset. 64 bits; the driver's own count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Packets the device dropped because its receive queue was full.
    pub rx_missed: u64,
    /// Malformed frames received.
    pub rx_errors: u64,
    /// Packets the device failed to send; software drivers count what did not fit here.
    pub tx_errors: u64,
    /// Packets lost because the pool had no buffer.
    pub rx_no_buffer: u64,
}

/// State of a port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether there is a link.
    pub up: bool,
    /// Mbit/s; `None` where unknown or down.
    pub mbps: Option<u32>,
    /// Full duplex.
    pub full_duplex: bool,
    /// Speed was negotiated.
    pub autoneg: bool,
}

pub(super) fn stats(inner: &Inner) -> Result<PortStats, PortError> {
    let mut raw = MaybeUninit::<ffi::rte_eth_stats>::zeroed();
    // SAFETY: the port is open; the call fills a struct of this type; all-zero is a valid value of it.
    let raw = unsafe {
        let code = ffi::rte_eth_stats_get(inner.id, raw.as_mut_ptr());
        inner.done("statistics", "rte_eth_stats_get", code)?;
        raw.assume_init()
    };
    Ok(PortStats {
        rx_packets: raw.ipackets,
        tx_packets: raw.opackets,
        rx_bytes: raw.ibytes,
        tx_bytes: raw.obytes,
        rx_missed: raw.imissed,
        rx_errors: raw.ierrors,
        tx_errors: raw.oerrors,
        rx_no_buffer: raw.rx_nombuf,
    })
}

pub(super) fn reset(inner: &Inner) -> Result<(), PortError> {
    // SAFETY: the port is open.
    unsafe {
        inner.done("resetting statistics", "rte_eth_stats_reset", ffi::rte_eth_stats_reset(inner.id))?;
        inner.done("resetting statistics", "rte_eth_xstats_reset", ffi::rte_eth_xstats_reset(inner.id))
    }
}

pub(super) fn xstats(inner: &Inner) -> Result<Vec<(String, u64)>, PortError> {
    let failed = |call| move |errno| inner.failed(call, errno);
    // SAFETY: the port is open; a null array of length 0 asks for the number.
    let count = unsafe { ffi::rte_eth_xstats_get_names(inner.id, std::ptr::null_mut(), 0) };
    let count = check(count).map_err(failed("rte_eth_xstats_get_names"))?;
    let mut names = vec![ffi::rte_eth_xstat_name { name: [0; 64] }; count as usize];
    let mut values = vec![ffi::rte_eth_xstat { id: 0, value: 0 }; count as usize];
    // SAFETY: both arrays have `count` elements.
    let (named, valued) = unsafe {
        (
            ffi::rte_eth_xstats_get_names(inner.id, names.as_mut_ptr(), count),
            ffi::rte_eth_xstats_get(inner.id, values.as_mut_ptr(), count),
        )
    };
    let named = check(named).map_err(failed("rte_eth_xstats_get_names"))?.min(count) as usize;
    let valued = check(valued).map_err(failed("rte_eth_xstats_get"))?.min(count) as usize;
    let names = &names[..named];
    let text = |name: &ffi::rte_eth_xstat_name| {
        let bytes = name.name.map(|c| c as u8);
        CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let pair = |x: &ffi::rte_eth_xstat| Some((text(names.get(usize::try_from(x.id).ok()?)?), x.value));
    Ok(values[..valued].iter().filter_map(pair).collect())
}

pub(super) fn link(inner: &Inner) -> Result<Link, PortError> {
    let mut raw = ffi::lr_link { mbps: 0, up: 0, full_duplex: 0, autoneg: 0 };
    // SAFETY: the port is open; `raw` lives during the call.
    inner.done("link state", "rte_eth_link_get", unsafe { ffi::lr_link_get(inner.id, &raw mut raw) })?;
    let up = raw.up != 0;
    let known = up && raw.mbps != 0 && raw.mbps != u32::MAX;
    Ok(Link {
        up,
        mbps: known.then_some(raw.mbps),
        full_duplex: raw.full_duplex != 0,
        autoneg: raw.autoneg != 0,
    })
}
