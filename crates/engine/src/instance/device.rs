//! Device strings: what DPDK understands, and `ring:NAME` for a port whose other end is in this process.

/// Where a port's packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A device of DPDK: a PCI address, or `net_…` with its arguments. DPDK says whether it exists.
    Dpdk(String),
    /// One half of a pair of ring ports; the other half is handed to the program that runs the instance.
    Ring(String),
}

/// A device string that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a ring: expected ring:NAME with 1 to 20 letters, digits or `_`")]
pub struct DeviceError(String);

impl DeviceSpec {
    /// Reads a device string. PCI addresses become what DPDK wants: see [`normal`].
    pub fn parse(device: &str) -> Result<Self, DeviceError> {
        let Some(name) = device.strip_prefix("ring:") else { return Ok(DeviceSpec::Dpdk(normal(device))) };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        match (1..=20).contains(&name.len()) && name.bytes().all(plain) {
            true => Ok(DeviceSpec::Ring(name.into())),
            false => Err(DeviceError(device.into())),
        }
    }
}

/// The name of a device without its arguments: two devices of one name are the same.
pub fn name(device: &str) -> &str {
    device.split(',').next().unwrap_or_default()
}

/// The interface of Linux that a device sends and receives by, where its driver takes no notice of that interface's state.
pub fn kernel_interface(device: &str) -> Option<&str> {
    let mut parts = device.split(',');
    let driver = parts.next()?;
    let silent = ["net_af_packet", "net_af_xdp"].iter().any(|name| driver.starts_with(name));
    parts.find_map(|argument| argument.trim().strip_prefix("iface=")).filter(|_| silent)
}

/// The PCI address that a name is, in full and in lower case; the domain may be left out where it is 0.
pub fn pci_address(name: &str) -> Option<String> {
    let hex = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit());
    let (rest, function) = name.split_once('.')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let (domain, bus, slot) = match parts[..] {
        [bus, slot] => ("0000", bus, slot),
        [domain, bus, slot] => (domain, bus, slot),
        _ => return None,
    };
    let good = hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1);
    good.then(|| format!("{domain}:{bus}:{slot}.{function}").to_ascii_lowercase())
}

/// A device string as DPDK and comparisons want it: a PCI address in full, everything else as it is.
pub fn normal(device: &str) -> String {
    let name = name(device);
    match pci_address(name) {
        Some(address) => address + &device[name.len()..],
        None => device.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_below_devices() {
        let of = kernel_interface;
        assert_eq!(of("net_af_packet0,iface=eth1,framesz=4096"), Some("eth1"));
        assert_eq!(of("net_af_xdp3,force_copy=1,iface=eth2"), Some("eth2"));
        assert_eq!(of("net_af_packet0"), None);
        assert_eq!(of("net_tap0,iface=wire"), None, "it knows by itself");
        assert_eq!(of("0000:01:00.0,iface=eth1"), None);
    }

    #[test]
    fn pci_addresses_are_made_what_dpdk_opens() {
        for (given, normal_form) in [
            ("01:00.0", Some("0000:01:00.0")),
            ("0000:01:00.0", Some("0000:01:00.0")),
            ("0001:fF:1f.7", Some("0001:ff:1f.7")),
            ("+1:00.0", None),
            ("1:00.0", None),
            ("00:01:00.0", None),
            ("0000:01:00", None),
            ("01:00.00", None),
            ("net_null0", None),
        ] {
            assert_eq!(pci_address(given).as_deref(), normal_form, "{given}");
            let with_arguments = |name: &str| format!("{name},a=01:00.0,b=X");
            let expected = with_arguments(normal_form.unwrap_or(given));
            assert_eq!(DeviceSpec::parse(&with_arguments(given)), Ok(DeviceSpec::Dpdk(expected)));
        }
    }

    #[test]
    fn rings_are_told_from_devices() {
        assert_eq!(DeviceSpec::parse("ring:a_1"), Ok(DeviceSpec::Ring("a_1".into())));
        assert_eq!(DeviceSpec::parse("net_ring0"), Ok(DeviceSpec::Dpdk("net_ring0".into())));
        for wrong in ["ring:", "ring:a b", "ring:abcdefghijklmnopqrstu", "ring:ä"] {
            assert_eq!(DeviceSpec::parse(wrong), Err(DeviceError(wrong.into())));
        }
    }
}
