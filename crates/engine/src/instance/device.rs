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
    /// Reads a device string.
    pub fn parse(device: &str) -> Result<Self, DeviceError> {
        let Some(name) = device.strip_prefix("ring:") else { return Ok(DeviceSpec::Dpdk(device.into())) };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        match (1..=20).contains(&name.len()) && name.bytes().all(plain) {
            true => Ok(DeviceSpec::Ring(name.into())),
            false => Err(DeviceError(device.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_told_from_devices() {
        assert_eq!(DeviceSpec::parse("ring:a_1"), Ok(DeviceSpec::Ring("a_1".into())));
        assert_eq!(DeviceSpec::parse("net_ring0"), Ok(DeviceSpec::Dpdk("net_ring0".into())));
        for wrong in ["ring:", "ring:a b", "ring:abcdefghijklmnopqrstu", "ring:ä"] {
            assert_eq!(DeviceSpec::parse(wrong), Err(DeviceError(wrong.into())));
        }
    }
}
