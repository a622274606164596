//! CPUs: lists as the kernel writes them, which are online, and which NUMA node each belongs to.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The highest CPU number accepted plus one: what an affinity mask of Linux' C library holds.
pub const MAX_CPUS: usize = 1024;

/// A set of CPUs. Text form: the kernel's, `0-3,8,10-11`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

/// Why a text is no CPU list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{text}` is not a CPU list: `{part}` should be a CPU number below {MAX_CPUS} or a range such as 2-5"
)]
pub struct CpuListError {
    text: String,
    part: String,
}

impl CpuList {
    /// Whether the CPU is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        CpuList(cpus.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let error = || CpuListError { text: text.trim().into(), part: part.into() };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |s: &str| s.trim().parse().ok().filter(|n| *n < MAX_CPUS).ok_or_else(error);
            let (first, last): (usize, usize) = (number(first)?, number(last)?);
            if first > last {
                return Err(error());
            }
            cpus.extend(first..=last);
        }
        Ok(CpuList(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        for (i, (first, last)) in runs.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// Why the CPUs of the machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CpusError {
    /// A file is not there or not readable.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A file has other content than the kernel writes.
    #[error("{path}: {source}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CpuListError,
    },
}

/// The machine's CPUs as sysfs describes them.
#[derive(Clone, Debug)]
pub struct Cpus {
    sysfs: PathBuf,
}

impl Default for Cpus {
    fn default() -> Self {
        Cpus::at("/sys")
    }
}

impl Cpus {
    /// Reads below another directory than `/sys`.
    pub fn at(sysfs: impl Into<PathBuf>) -> Self {
        Cpus { sysfs: sysfs.into() }
    }

    /// CPUs that are there and online.
    pub fn online(&self) -> Result<CpuList, CpusError> {
        self.list("devices/system/cpu/online")
    }

    /// CPUs that are there, online or not.
    pub fn present(&self) -> Result<CpuList, CpusError> {
        self.list("devices/system/cpu/present")
    }

    /// NUMA node of a CPU: `None` on machines (or kernels) without NUMA, and for CPUs that do not exist.
    pub fn numa_node(&self, cpu: usize) -> Option<usize> {
        let dir = self.sysfs.join(format!("devices/system/cpu/cpu{cpu}"));
        std::fs::read_dir(dir)
            .ok()?
            .flatten()
            .find_map(|e| e.file_name().to_str()?.strip_prefix("node")?.parse().ok())
    }

    /// CPUs that share the core of this one, itself included (hyper-threads). Just itself where unknown.
    pub fn siblings(&self, cpu: usize) -> CpuList {
        self.list(&format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
            .unwrap_or_else(|_| [cpu].into_iter().collect())
    }

    fn list(&self, file: &str) -> Result<CpuList, CpusError> {
        let path = self.sysfs.join(file);
        read(&path)?.parse().map_err(|source| CpusError::Content { path, source })
    }
}

fn read(path: &Path) -> Result<String, CpusError> {
    std::fs::read_to_string(path).map_err(|source| CpusError::Read { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_and_write_as_the_kernel_does() {
        for text in ["", "0", "0-3", "0-1,4,6-7", "1023"] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
        }
        let list: CpuList = " 3, 1-2,2\n".parse().unwrap();
        assert_eq!((list.to_string().as_str(), list.len(), list.contains(2)), ("1-3", 3, true));
        for text in ["x", "3-1", "1-", "-1", "1024", "0-9999999999", "1;2"] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(error.to_string().contains("CPU number below 1024"), "{error}");
        }
    }

    #[test]
    fn a_machine_is_what_its_sysfs_says() {
        let root = tempfile::tempdir().unwrap();
        let cpu = root.path().join("devices/system/cpu");
        std::fs::create_dir_all(cpu.join("cpu5/node1")).unwrap();
        std::fs::create_dir_all(cpu.join("cpu5/topology")).unwrap();
        std::fs::write(cpu.join("online"), "0,5\n").unwrap();
        std::fs::write(cpu.join("present"), "0-5\n").unwrap();
        std::fs::write(cpu.join("cpu5/topology/thread_siblings_list"), "1,5\n").unwrap();
        let cpus = Cpus::at(root.path());
        assert_eq!(cpus.online().unwrap().to_string(), "0,5");
        assert_eq!(cpus.present().unwrap().len(), 6);
        assert_eq!((cpus.numa_node(5), cpus.numa_node(4)), (Some(1), None));
        assert_eq!((cpus.siblings(5).to_string(), cpus.siblings(3).to_string()), ("1,5".into(), "3".into()));
        std::fs::write(cpu.join("online"), "zero").unwrap();
        assert!(matches!(cpus.online(), Err(CpusError::Content { .. })));
        std::fs::remove_file(cpu.join("online")).unwrap();
        assert!(cpus.online().unwrap_err().to_string().starts_with("cannot read "));
    }

    #[test]
    fn this_machine_has_an_online_cpu() {
        assert!(!Cpus::default().online().unwrap().is_empty());
    }
}
