//! What DPDK shall be started with, and the arguments that this becomes.

/// Where DPDK takes its memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Hugepages, allocated without files (`--in-memory`), so nothing is left behind whatever happens.
    Hugepages {
        /// MiB reserved at start; more is taken on demand.
        mb: u32,
    },
    /// Ordinary pages (`--no-huge`): works everywhere, root or not, at some cost in TLB misses. No hardware ports.
    NoHuge {
        /// MiB in all: it cannot grow.
        mb: u32,
    },
}

/// Which PCI devices DPDK looks at during start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pci {
    /// None: software devices only.
    #[default]
    Off,
    /// Those that are opened by address later, and no other.
    Named(Vec<String>),
    /// All that are bound to a driver of DPDK's.
    All,
}

/// How DPDK shall be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalConfig {
    /// Names the runtime directory; unique among processes that use DPDK on this host. Letters, digits, `_`, `-`, `.`.
    pub file_prefix: String,
    /// Memory for packets and device rings.
    pub memory: Memory,
    /// Whether to serve DPDK's own telemetry on a Unix socket (`dpdk-telemetry.py`).
    pub telemetry: bool,
    /// PCI devices.
    pub pci: Pci,
    /// Software devices to make at start, `net_NAME,ARG=VALUE,…`; others may follow at any time.
    pub vdevs: Vec<String>,
    /// The CPU that DPDK's own threads (interrupts, alarms, telemetry) run on; `None` = the lowest allowed one.
    pub control_cpu: Option<usize>,
    /// Widest vector registers that drivers may use: 64, 128, 256 or 512 bits; `None` = DPDK's choice.
    pub max_simd_bits: Option<u16>,
    /// Further arguments for `rte_eal_init`, unchecked.
    pub extra_args: Vec<String>,
}

impl Default for EalConfig {
    /// No root, no hugepages, no PCI, no telemetry, 256 MiB.
    fn default() -> Self {
        Self {
            file_prefix: format!("linerate-{}", std::process::id()),
            memory: Memory::NoHuge { mb: 256 },
            telemetry: false,
            pci: Pci::Off,
            vdevs: Vec::new(),
            control_cpu: None,
            max_simd_bits: None,
            extra_args: Vec::new(),
        }
    }
}

impl EalConfig {
    /// The arguments for `rte_eal_init` with `cpu` as the control CPU. Two sets, because `--no-huge` and
    /// `--in-memory` exclude each other in DPDK 22.11.
    #[must_use]
    pub fn args(&self, cpu: usize) -> Vec<String> {
        let mut args: Vec<String> = vec!["linerate".into(), format!("--file-prefix={}", self.file_prefix)];
        args.push(format!("--lcores=0@{cpu}"));
        match self.memory {
            Memory::Hugepages { mb } => args.extend(["--in-memory".into(), "-m".into(), mb.to_string()]),
            Memory::NoHuge { mb } => {
                args.extend(["--no-huge".into(), "--no-shconf".into(), "-m".into(), mb.to_string()]);
            }
        }
        if !self.telemetry {
            args.push("--no-telemetry".into());
        }
        match &self.pci {
            Pci::Off => args.push("--no-pci".into()),
            Pci::Named(devices) => {
                for device in devices {
                    args.extend(["-a".into(), device.clone()]);
                }
            }
            Pci::All => {}
        }
        for vdev in &self.vdevs {
            args.push(format!("--vdev={vdev}"));
        }
        if let Some(bits) = self.max_simd_bits {
            args.push(format!("--force-max-simd-bitwidth={bits}"));
        }
        args.extend(self.extra_args.iter().cloned());
        args
    }

    /// What is wrong with the settings themselves, before anything is touched.
    pub(crate) fn problem(&self) -> Option<String> {
        let prefix = &self.file_prefix;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
        if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(plain) || prefix.starts_with('.') {
            return Some(format!(
                "the file prefix '{prefix}' must be 1 to 64 letters, digits, '_', '-' or '.', not starting with '.'"
            ));
        }
        if let Memory::Hugepages { mb: 0 } | Memory::NoHuge { mb: 0 } = self.memory {
            return Some("the amount of memory must be at least 1 MiB".into());
        }
        if let Some(bits) = self.max_simd_bits
            && ![64, 128, 256, 512].contains(&bits)
        {
            return Some(format!("vector registers have 64, 128, 256 or 512 bits, not {bits}"));
        }
        if let Pci::Named(devices) = &self.pci
            && devices.is_empty()
        {
            return Some("a list of PCI devices names at least one; use 'off' for none".into());
        }
        let all = self.vdevs.iter().chain(&self.extra_args);
        all.clone()
            .find(|arg| arg.contains('\0'))
            .map(|arg| format!("the argument {arg:?} holds a NUL character"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_argument_sets_never_mix() {
        let ordinary = EalConfig { file_prefix: "t".into(), ..EalConfig::default() };
        assert_eq!(
            ordinary.args(3).join(" "),
            "linerate --file-prefix=t --lcores=0@3 --no-huge --no-shconf -m 256 --no-telemetry --no-pci"
        );
        let production = EalConfig {
            memory: Memory::Hugepages { mb: 1024 },
            telemetry: true,
            pci: Pci::Named(vec!["0000:01:00.0".into()]),
            vdevs: vec!["net_null0".into()],
            max_simd_bits: Some(512),
            extra_args: vec!["--huge-worker-stack".into()],
            ..ordinary
        };
        assert_eq!(
            production.args(0).join(" "),
            "linerate --file-prefix=t --lcores=0@0 --in-memory -m 1024 -a 0000:01:00.0 --vdev=net_null0 \
             --force-max-simd-bitwidth=512 --huge-worker-stack"
        );
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let with = |change: fn(&mut EalConfig)| {
            let mut config = EalConfig::default();
            change(&mut config);
            config.problem()
        };
        assert_eq!(with(|_| ()), None);
        for (change, word) in [
            (with(|c| c.file_prefix = "../x".into()), "prefix"),
            (with(|c| c.file_prefix = String::new()), "prefix"),
            (with(|c| c.memory = Memory::NoHuge { mb: 0 }), "memory"),
            (with(|c| c.max_simd_bits = Some(100)), "not 100"),
            (with(|c| c.pci = Pci::Named(Vec::new())), "at least one"),
            (with(|c| c.vdevs = vec!["net_null\0".into()]), "NUL"),
        ] {
            assert!(change.as_deref().is_some_and(|text| text.contains(word)), "{change:?} lacks {word:?}");
        }
    }
}
