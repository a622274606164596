//! Memory: how much the machine could give.

use std::path::Path;

/// Bytes of ordinary memory that can be had without swapping; `None` where `/proc/meminfo` does not say.
pub fn available(proc: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

/// Bytes in free hugepages of all sizes over all NUMA nodes. 0 where the kernel has none.
pub fn free_hugepages(sysfs: &Path) -> u64 {
    let Ok(sizes) = std::fs::read_dir(sysfs.join("kernel/mm/hugepages")) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let kb: u64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = std::fs::read_to_string(entry.path().join("free_hugepages")).ok()?;
        Some(kb * 1024 * free.trim().parse::<u64>().ok()?)
    };
    sizes.flatten().filter_map(bytes).sum()
}

/// Bytes of this process in memory (its resident set); `None` where `/proc` does not say.
pub fn resident(proc: &Path) -> Option<u64> {
    of_status(proc, "VmRSS:")
}

/// The most bytes that this process ever had in memory, or since it wrote `5` to `/proc/self/clear_refs`.
pub fn peak(proc: &Path) -> Option<u64> {
    of_status(proc, "VmHWM:")
}

fn of_status(proc: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join("self/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_the_kernel_files() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!((available(root.path()), free_hugepages(root.path())), (None, 0));
        std::fs::write(root.path().join("meminfo"), "MemTotal: 9 kB\nMemAvailable:    2048 kB\n").unwrap();
        for (size, free) in [(2048, 3), (1_048_576, 1)] {
            let dir = root.path().join(format!("kernel/mm/hugepages/hugepages-{size}kB"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("free_hugepages"), format!("{free}\n")).unwrap();
        }
        assert_eq!(available(root.path()), Some(2 << 20));
        assert_eq!(free_hugepages(root.path()), (3 * 2048 + 1_048_576) * 1024);
    }

    #[test]
    fn this_process_has_a_size() {
        assert!(resident(Path::new("/proc")).unwrap() > 100_000);
    }
}
