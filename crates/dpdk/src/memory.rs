//! How much memory the host has to give, read before DPDK tries to take it.

use std::fs;

/// MiB of ordinary memory that can be had without swapping; `None` where the kernel does not say.
pub(crate) fn available_mib() -> Option<u64> {
    meminfo_kib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable").map(|kib| kib / 1024)
}

/// MiB of free hugepages of all sizes.
pub(crate) fn free_hugepages_mib() -> u64 {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    sizes
        .filter_map(|size| {
            let kib: u64 =
                size.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let free: u64 =
                fs::read_to_string(size.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
            Some(kib * free / 1024)
        })
        .sum()
}

fn meminfo_kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_read_by_key() {
        let text = "MemTotal:  100 kB\nMemAvailable:   2048 kB\nMemAvailableX: 1 kB\n";
        assert_eq!(meminfo_kib(text, "MemAvailable"), Some(2048));
        assert_eq!(meminfo_kib(text, "Mem"), None);
        assert_eq!(meminfo_kib("MemAvailable: x", "MemAvailable"), None);
    }
}
