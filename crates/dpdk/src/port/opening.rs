//! Why a device cannot be opened: what can be seen before DPDK is asked, and what its answer means.

use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::path::Path;

use nix::unistd::geteuid;

use super::error::PortError;
use crate::errno::Errno;

/// `DDDD:BB:DD.F` in hexadecimal.
pub(super) fn is_pci(name: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((rest, function)) = name.split_once('.') else { return false };
    let parts: Vec<&str> = rest.split(':').collect();
    matches!(parts[..], [domain, bus, device]
        if hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1))
}

/// What can be seen about a device without DPDK, whose drivers tell little.
pub(super) fn check_present(device: &str, name: &str) -> Result<(), PortError> {
    let found = if is_pci(name) {
        check_pci(name)
    } else if name.starts_with("net_af_packet") || name.starts_with("net_af_xdp") {
        check_interface(device, name)
    } else if name.starts_with("net_pcap") {
        check_files(device)
    } else {
        Ok(())
    };
    found.map_err(|why| PortError::Open { device: device.into(), why, log: String::new() })
}

fn check_pci(name: &str) -> Result<(), String> {
    let path = Path::new("/sys/bus/pci/devices").join(name.to_ascii_lowercase());
    if !path.exists() {
        return Err("this host has no such PCI device (see lspci -D)".into());
    }
    let driver =
        fs::read_link(path.join("driver")).ok().and_then(|d| Some(d.file_name()?.to_str()?.to_owned()));
    match driver.as_deref() {
        // Mellanox and Microsoft devices share the kernel's driver; the others must be taken from it.
        Some("vfio-pci" | "uio_pci_generic" | "igb_uio" | "mlx5_core" | "mlx4_core" | "mana" | "nfp") => {
            Ok(())
        }
        Some(other) => Err(format!(
            "it is bound to the kernel driver {other}: bind it to vfio-pci (dpdk-devbind.py --bind=vfio-pci {name})"
        )),
        None => Err(format!(
            "it is bound to no driver: bind it to vfio-pci (dpdk-devbind.py --bind=vfio-pci {name})"
        )),
    }
}

fn check_interface(device: &str, name: &str) -> Result<(), String> {
    let Some(interface) = argument(device, "iface") else {
        return Err(format!("it names no Linux interface: expected {name},iface=NAME"));
    };
    let there = CString::new(interface).is_ok_and(|name| {
        // SAFETY: a C string that lives during the call.
        unsafe { nix::libc::if_nametoindex(name.as_ptr()) != 0 }
    });
    if there { Ok(()) } else { Err(format!("this host has no Linux interface '{interface}' (see ip link)")) }
}

/// Sets the MTU of a Linux interface that has another one.
pub(super) fn set_linux_mtu(port: &str, interface: &str, mtu: u16) -> Result<(), PortError> {
    let path = Path::new("/sys/class/net").join(interface).join("mtu");
    if fs::read_to_string(&path).is_ok_and(|now| now.trim() == mtu.to_string()) {
        return Ok(());
    }
    fs::write(&path, mtu.to_string()).map_err(|error| PortError::Config {
        port: port.into(),
        what: format!("the MTU of Linux interface '{interface}' cannot be set to {mtu}: {error}"),
    })
}

fn check_files(device: &str) -> Result<(), String> {
    for path in arguments(device, "rx_pcap") {
        File::open(path).map_err(|error| format!("'{path}' cannot be read: {error}"))?;
    }
    Ok(())
}

/// The values that a device string gives an argument.
fn arguments<'d>(device: &'d str, key: &'d str) -> impl Iterator<Item = &'d str> {
    device.split(',').skip(1).filter_map(move |a| a.strip_prefix(key)?.strip_prefix('='))
}

/// The value that a device string gives an argument first.
pub(super) fn argument<'d>(device: &'d str, key: &'d str) -> Option<&'d str> {
    arguments(device, key).next()
}

/// What DPDK's answer to a device means.
pub(super) fn explain(device: &str, name: &str, errno: Errno, log: &str) -> PortError {
    let lower = log.to_ascii_lowercase();
    let no_driver = lower.contains("failed to parse device") || lower.contains("no driver");
    let why = match errno.0 {
        nix::libc::EEXIST => return PortError::InUse { device: device.into() },
        _ if no_driver && !is_pci(name) => {
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let why = format!(
                "DPDK has no driver '{stem}': check the name and that its package is installed (Debian: \
                 librte-meta-net)"
            );
            return PortError::Open { device: device.into(), why, log: String::new() };
        }
        // Drivers return -1, which is EPERM, for whatever goes wrong.
        nix::libc::EPERM if !lower.contains("permi") && geteuid().is_root() => {
            "its driver refuses it: check its arguments".into()
        }
        nix::libc::EPERM if !lower.contains("permi") => {
            "its driver refuses it: check its arguments, and whether it \
                                                         needs root or capabilities"
                .into()
        }
        nix::libc::EPERM | nix::libc::EACCES => {
            "permission denied: run as root or with the capabilities that the device needs".into()
        }
        nix::libc::ENOMEM => "out of memory: give DPDK more memory".into(),
        _ => errno.to_string(),
    };
    PortError::Open { device: device.into(), why, log: quote(log) }
}

/// What DPDK logged, as an addition to a sentence.
pub(super) fn quote(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (DPDK: {log})") }
}
