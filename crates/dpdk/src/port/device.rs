//! Devices: opening, asking, closing.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use linerate_pipeline::BURST;

use super::error::PortError;
use super::opening::{argument, check_present, explain, is_pci, quote};
use crate::eal::Eal;
use crate::errno::{Errno, check};
use crate::ffi;
use crate::life::{self, DeviceCount};
use crate::log;
use crate::mbuf;
use crate::pool::MAX_FRAME;

/// Ports opened by this process: DPDK would hand one out twice.
static OPEN: Mutex<u32> = Mutex::new(0);

/// What a device is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// DPDK's port number, dense from 0, reused after closing.
    pub id: u16,
    /// The device's name: PCI address or vdev name.
    pub name: String,
    /// Its driver, such as `net_ring` or `mlx5_pci`.
    pub driver: String,
    /// NUMA node; `None` for software devices and unknown ones.
    pub socket: Option<u32>,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Smallest MTU in bytes.
    pub min_mtu: u16,
    /// Largest MTU in bytes.
    pub max_mtu: u16,
    /// Whether the device spreads packets over queues by a hash (RSS).
    pub has_rss: bool,
    /// Entries of the RSS redirection table; 0 = none.
    pub reta_size: u16,
    /// Bytes of the RSS key; 0 = unknown.
    pub rss_key_len: u8,
    /// Whether frames longer than a buffer are received into several.
    pub scatter: bool,
    /// Whether packets of several segments are sent as they are.
    pub multi_segment: bool,
    /// Extra unicast MAC addresses the device filters, its own included.
    pub max_macs: u32,
}

/// An open device that is not configured yet. Closed when dropped.
#[derive(Debug)]
pub struct Device {
    pub(super) inner: Arc<Inner>,
}

impl Device {
    /// Opens a device: a PCI address (`0000:01:00.0`, further arguments after commas) or a software device
    /// (`net_pcap0,rx_pcap=a.pcap,tx_pcap=b.pcap`). A device given to [`Eal::init`] is opened by its name.
    pub fn open(_eal: &'static Eal, device: &str) -> Result<Self, PortError> {
        let running = life::running().ok_or(PortError::NotRunning)?;
        let _control = life::control();
        let name = check_syntax(device)?;
        if let Some(id) = by_name(name) {
            return Inner::claim(id, device, DeviceCount::new(&running), None);
        }
        check_present(device, name)?;
        let before = valid_ports();
        if before.count_ones() == u32::from(max_ports()) {
            return Err(PortError::TooMany { device: device.into(), max: max_ports() });
        }
        let args = CString::new(device).map_err(|_| PortError::Syntax { device: device.into() })?;
        let mark = log::mark();
        // SAFETY: EAL runs; the control lock is held; `args` lives during the call.
        let code = unsafe { ffi::rte_dev_probe(args.as_ptr()) };
        check(code).map_err(|errno| explain(device, name, errno, &log::since(mark)))?;
        let id = by_name(name).or_else(|| first(valid_ports() & !before)).ok_or_else(|| PortError::Open {
            device: device.into(),
            why: "its driver made no network port of it".into(),
            log: quote(&log::since(mark)),
        })?;
        Inner::claim(id, device, DeviceCount::new(&running), None)
    }

    /// Makes two devices joined by rings in this process: what one sends, the other receives, queue by queue, without
    /// copying. `size` is the capacity of each ring in packets, a power of two. `name`: 1 to 20 letters, digits, `_`.
    pub fn ring_pair(
        _eal: &'static Eal,
        name: &str,
        size: u32,
        queues: u16,
    ) -> Result<(Self, Self), PortError> {
        let running = life::running().ok_or(PortError::NotRunning)?;
        let config = |what: &str| PortError::Config { port: name.into(), what: what.into() };
        if !(1..=20).contains(&name.len()) || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(config("the name of a ring pair must be 1 to 20 letters, digits or '_'"));
        }
        if !size.is_power_of_two() || !(2..=1 << 20).contains(&size) {
            return Err(config("the size of a ring must be a power of two from 2 to 1,048,576"));
        }
        if queues == 0 || queues > 16 {
            return Err(config("a ring pair has 1 to 16 queues"));
        }
        let rings = Arc::new(Rings::create(name, size, queues)?);
        let (there, back) = rings.0.split_at(usize::from(queues));
        let a = ring_device(&format!("{name}_a"), back, there, &rings, &running)?;
        let b = ring_device(&format!("{name}_b"), there, back, &rings, &running)?;
        Ok((a, b))
    }

    /// What the device is and can do.
    pub fn info(&self) -> Result<PortInfo, PortError> {
        self.inner.info()
    }
}

/// An open port. Shared by the port and its queues; stopped, closed and removed when the last of them goes.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) driver: String,
    device: *mut ffi::rte_device,
    /// The largest MTU, where the driver carries more than it announces.
    pub(super) carries: Option<u16>,
    /// The Linux interface it is on.
    pub(super) interface: Option<String>,
    rings: Option<Arc<Rings>>,
    _count: DeviceCount,
}

// SAFETY: `device` is used once, on drop, under the control lock.
unsafe impl Send for Inner {}
// SAFETY: as above; all else is plain data.
unsafe impl Sync for Inner {}

impl Inner {
    fn claim(
        id: u16,
        device: &str,
        count: DeviceCount,
        rings: Option<Arc<Rings>>,
    ) -> Result<Device, PortError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if *open & 1 << id != 0 {
            return Err(PortError::InUse { device: device.into() });
        }
        let name = device.split(',').next().unwrap_or(device).to_owned();
        let info = raw_info(id, &name)?;
        *open |= 1 << id;
        let driver = driver(&info);
        let carries = carries(&driver, device);
        let interface = argument(device, "iface").map(str::to_owned);
        let inner = Inner { id, name, driver, device: info.device, carries, interface, rings, _count: count };
        Ok(Device { inner: Arc::new(inner) })
    }

    pub(super) fn info(&self) -> Result<PortInfo, PortError> {
        let info = self.raw_info()?;
        // SAFETY: constants of the shim; the port is open.
        let (scatter, segments, socket) = unsafe {
            (ffi::lr_rx_offload_scatter, ffi::lr_tx_offload_multi_segs, ffi::rte_eth_dev_socket_id(self.id))
        };
        Ok(PortInfo {
            id: self.id,
            name: self.name.clone(),
            driver: self.driver.clone(),
            socket: u32::try_from(socket).ok(),
            max_rx_queues: info.max_rx_queues,
            max_tx_queues: info.max_tx_queues,
            min_mtu: info.min_mtu,
            max_mtu: self.carries.unwrap_or_else(|| announced_mtu(&info)),
            has_rss: info.flow_type_rss_offloads != 0,
            reta_size: info.reta_size,
            rss_key_len: info.hash_key_size,
            scatter: info.rx_offload_capa & scatter != 0,
            multi_segment: info.tx_offload_capa & segments != 0 || self.sends_chains(),
            max_macs: info.max_mac_addrs,
        })
    }

    fn sends_chains(&self) -> bool {
        CHAINS.contains(&self.driver.as_str())
    }

    pub(super) fn raw_info(&self) -> Result<ffi::rte_eth_dev_info, PortError> {
        raw_info(self.id, &self.name)
    }

    pub(super) fn failed(&self, call: &'static str, errno: Errno) -> PortError {
        PortError::Call { port: self.name.clone(), call, errno }
    }

    /// The result of a call that a device may lack.
    pub(super) fn done(&self, what: &'static str, call: &'static str, code: i32) -> Result<(), PortError> {
        match check(code) {
            Ok(_) => Ok(()),
            Err(errno) if errno.is_unsupported() => {
                Err(PortError::Unsupported { port: self.name.clone(), what, driver: self.driver.clone() })
            }
            Err(errno) => Err(self.failed(call, errno)),
        }
    }
}

/// Buffers that DPDK's AF_XDP driver does not give back for each receive queue: the fill ring's 2,048, and a burst in each
/// direction.
const XDP_KEEPS: u32 = 2048 + 2 * BURST as u32;

impl Drop for Inner {
    fn drop(&mut self) {
        if self.driver == "net_af_xdp" {
            let queues = self.raw_info().map_or(0, |info| u32::from(info.nb_rx_queues));
            life::keep(XDP_KEEPS * queues);
        }
        let _control = life::control();
        // SAFETY: the port is open and this is its last user: port and queues hold the other references. Errors
        // cannot be acted upon; a device that refuses to go stays unused.
        unsafe {
            ffi::rte_eth_dev_stop(self.id);
            ffi::rte_eth_dev_close(self.id);
            ffi::rte_dev_remove(self.device);
        }
        if self.driver == "net_memif" {
            // The driver crashes when DPDK's interrupt thread handles a peer's disconnection while the same process
            // closes that peer: give it time to finish before the control lock lets the next device go.
            thread::sleep(SETTLE);
        }
        *OPEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.id);
        self.rings = None;
    }
}

/// The rings of a pair: those from a to b, then those from b to a.
#[derive(Debug)]
struct Rings(Vec<NonNull<ffi::rte_ring>>);

// SAFETY: the rings are used by the two devices only, and freed when both are closed.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

impl Rings {
    fn create(name: &str, size: u32, queues: u16) -> Result<Self, PortError> {
        let mut rings = Self(Vec::new());
        // Names are unique in the process, also while an older pair of the same name is being closed.
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        for i in 0..2 * queues {
            let failed = |errno| PortError::Call { port: name.into(), call: "rte_ring_create", errno };
            let ring =
                CString::new(format!("lr{serial}_{i}")).map_err(|_| failed(Errno(nix::libc::EINVAL)))?;
            // One queue has one owner, so one producer and one consumer at a time. A ring holds size - 1.
            let _control = life::control();
            // SAFETY: EAL runs; the name lives during the call.
            let raw = unsafe { ffi::rte_ring_create(ring.as_ptr(), size, -1, ffi::lr_ring_single) };
            rings.0.push(NonNull::new(raw).ok_or_else(|| failed(Errno::last()))?);
        }
        Ok(rings)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        for ring in &self.0 {
            let mut left = [ptr::null_mut(); 64];
            // SAFETY: both devices are closed, so nothing else uses the ring; what it holds are mbufs that a transmit
            // queue gave it and that nobody else owns.
            unsafe {
                loop {
                    let n = ffi::lr_ring_drain(ring.as_ptr(), left.as_mut_ptr(), 64) as usize;
                    for &object in &left[..n] {
                        mbuf::free_raw(object.cast());
                    }
                    if n == 0 {
                        break;
                    }
                }
                ffi::rte_ring_free(ring.as_ptr());
            }
        }
    }
}

fn ring_device(
    name: &str,
    rx: &[NonNull<ffi::rte_ring>],
    tx: &[NonNull<ffi::rte_ring>],
    rings: &Arc<Rings>,
    running: &life::Running,
) -> Result<Device, PortError> {
    let full = format!("net_ring_{name}");
    // Held by no caller: where the second device of a pair fails, the first is closed, which takes this lock.
    let _control = life::control();
    if by_name(&full).is_some() {
        return Err(PortError::InUse { device: full });
    }
    let c_name = CString::new(name).map_err(|_| PortError::Syntax { device: name.into() })?;
    let count = rx.len() as u32;
    let mark = log::mark();
    // SAFETY: EAL runs; NonNull is a transparent pointer, the arrays hold `count` each and are copied by the call.
    let id = unsafe {
        ffi::rte_eth_from_rings(c_name.as_ptr(), rx.as_ptr().cast(), count, tx.as_ptr().cast(), count, 0)
    };
    let Ok(id) = u16::try_from(id) else {
        if valid_ports().count_ones() == u32::from(max_ports()) {
            return Err(PortError::TooMany { device: full, max: max_ports() });
        }
        return Err(explain(&full, &full, Errno::last(), &log::since(mark)));
    };
    Inner::claim(id, &full, DeviceCount::new(running), Some(rings.clone()))
}

fn raw_info(id: u16, name: &str) -> Result<ffi::rte_eth_dev_info, PortError> {
    let mut info = MaybeUninit::<ffi::rte_eth_dev_info>::zeroed();
    // SAFETY: the call fills a struct of this type; all-zero is a valid value of it.
    let info = unsafe {
        let code = ffi::rte_eth_dev_info_get(id, info.as_mut_ptr());
        check(code).map(|_| info.assume_init())
    };
    info.map_err(|errno| PortError::Call { port: name.into(), call: "rte_eth_dev_info_get", errno })
}

fn driver(info: &ffi::rte_eth_dev_info) -> String {
    if info.driver_name.is_null() {
        return "unknown driver".into();
    }
    // SAFETY: a static string of the driver.
    unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned()
}

/// How long DPDK's interrupt thread may take to handle a disconnection.
const SETTLE: Duration = Duration::from_millis(100);

/// Drivers that send packets of several segments as they are without announcing it.
const CHAINS: [&str; 3] = ["net_pcap", "net_memif", "net_null"];

/// AF_PACKET's frame size where the device string names none.
const PACKET_FRAME: usize = 2048;

/// What AF_PACKET's frames hold besides the network-layer packet: the kernel's header and address (66 bytes) and up to
/// 22 bytes of Ethernet header and tags.
const PACKET_OVERHEAD: usize = 88;

/// The largest MTU of the drivers that announce 1,518-byte frames and carry longer ones.
fn carries(driver: &str, device: &str) -> Option<u16> {
    let most = match driver {
        "net_memif" => MAX_FRAME,
        "net_af_packet" => {
            let frame = argument(device, "framesz").map_or(Some(PACKET_FRAME), |size| size.parse().ok())?;
            frame.saturating_sub(PACKET_OVERHEAD).min(MAX_FRAME)
        }
        _ => return None,
    };
    u16::try_from(most).ok()
}

/// The largest MTU that the driver lets itself be configured with: what it says, but no more than its longest frame less
/// the Ethernet header and CRC.
pub(super) fn announced_mtu(info: &ffi::rte_eth_dev_info) -> u16 {
    let by_frame = u16::try_from(info.max_rx_pktlen.saturating_sub(18)).unwrap_or(u16::MAX);
    if by_frame == 0 { info.max_mtu } else { info.max_mtu.min(by_frame) }
}

fn max_ports() -> u16 {
    // SAFETY: a constant of the shim. The bit sets here have 32 bits; a DPDK built for more ports uses 32 of them.
    unsafe { ffi::lr_max_ports }.min(32)
}

fn valid_ports() -> u32 {
    // SAFETY: accepts any number.
    (0..max_ports())
        .filter(|&id| unsafe { ffi::rte_eth_dev_is_valid_port(id) } != 0)
        .fold(0, |set, id| set | 1 << id)
}

fn first(set: u32) -> Option<u16> {
    (set != 0).then(|| set.trailing_zeros() as u16)
}

fn by_name(name: &str) -> Option<u16> {
    let name = CString::new(name).ok()?;
    let mut id = 0;
    // SAFETY: EAL runs; both arguments live during the call.
    let code = unsafe { ffi::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut id) };
    (code == 0).then_some(id)
}

/// The name part of a device string.
fn check_syntax(device: &str) -> Result<&str, PortError> {
    let name = device.split(',').next().unwrap_or_default();
    let vdev = name.len() > 4
        && name.len() < 64
        && (name.starts_with("net_") || name.starts_with("eth_"))
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let clean = !device.contains(|c: char| c.is_control());
    if clean && (vdev || is_pci(name)) { Ok(name) } else { Err(PortError::Syntax { device: device.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_strings_are_told_apart() {
        for good in
            ["0000:01:00.0", "0000:ff:1f.7,mprq_en=1", "net_ring0", "net_pcap0,rx_pcap=a b.pcap", "eth_x1"]
        {
            assert!(check_syntax(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "eth0",
            "01:00.0",
            "0000:01:00",
            "0000:01:00.0.0",
            "net_",
            "net_ring 0",
            "net_a\n",
            "net_a\0",
        ] {
            assert!(matches!(check_syntax(bad), Err(PortError::Syntax { .. })), "{bad:?}");
        }
    }
}
