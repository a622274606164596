//! DPDK's environment: started once per process.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::args::{EalConfig, Memory};
use crate::errno::Errno;
use crate::ffi;
use crate::life;
use crate::log;
use crate::memory;
use crate::pool;

/// Why DPDK does not start.
#[derive(Debug, thiserror::Error)]
pub enum EalError {
    /// A second start.
    #[error("DPDK was started in this process before: it starts once and cannot restart")]
    AlreadyStarted,
    /// A setting out of range.
    #[error("DPDK cannot start: {0}")]
    Config(String),
    /// The control CPU.
    #[error(
        "DPDK cannot run on CPU {cpu}: {errno}; choose one of the CPUs that this process may use ({allowed})"
    )]
    Cpu {
        /// The CPU asked for.
        cpu: usize,
        /// The kernel's reason.
        errno: Errno,
        /// The CPUs allowed, as a list.
        allowed: String,
    },
    /// More memory than there is.
    #[error(
        "DPDK shall have {asked} MiB of ordinary memory but this host has {available} MiB free: ask for less"
    )]
    Memory {
        /// MiB asked for.
        asked: u32,
        /// MiB free.
        available: u64,
    },
    /// Too few hugepages.
    #[error(
        "DPDK shall have {asked} MiB of hugepages but this host has {available} MiB of them free: reserve more \
         (sysctl vm.nr_hugepages={pages}) or use ordinary memory (no-huge)"
    )]
    Hugepages {
        /// MiB asked for.
        asked: u32,
        /// MiB free.
        available: u64,
        /// 2 MiB pages that would do.
        pages: u64,
    },
    /// DPDK itself refused.
    #[error("DPDK does not start: {errno}{log}{advice}")]
    Init {
        /// DPDK's reason.
        errno: Errno,
        /// ": " and the telling lines of its log, or nothing.
        log: String,
        /// "; " and what to do about it, or nothing.
        advice: &'static str,
    },
}

/// Why DPDK cannot be ended now.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// Twice.
    #[error("DPDK has ended already")]
    NotRunning,
    /// Another thread than the one that started.
    #[error("DPDK must be ended by the thread that started it")]
    WrongThread,
    /// Worker threads.
    #[error("DPDK cannot end while {0} worker thread(s) are registered")]
    Workers(usize),
    /// Ports.
    #[error("DPDK cannot end while {0} port(s) are open")]
    Ports(usize),
    /// Packets.
    #[error("DPDK cannot end while {packets} packet buffer(s) of pool '{pool}' are in use")]
    Packets {
        /// The pool.
        pool: &'static str,
        /// Buffers in use.
        packets: u32,
    },
    /// DPDK itself refused.
    #[error("DPDK does not end cleanly: {0}")]
    Refused(Errno),
}

/// DPDK's environment, running. Everything else of this crate is made from it.
#[derive(Debug)]
pub struct Eal {
    starter: ThreadId,
    runtime_dir: PathBuf,
    config: EalConfig,
}

static EAL: OnceLock<Eal> = OnceLock::new();

/// Whether `rte_eal_init` has been called: it cannot be called again even after a failure.
static TRIED: Mutex<bool> = Mutex::new(false);

impl Eal {
    /// Starts DPDK, which takes 0.1 to 0.2 s. The calling thread keeps its CPU affinity; DPDK's own threads go to the
    /// control CPU. Settings, memory and CPU are checked first: an error from those checks touches nothing and leaves
    /// a second attempt possible.
    pub fn init(config: &EalConfig) -> Result<&'static Eal, EalError> {
        let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
        if *tried {
            return Err(EalError::AlreadyStarted);
        }
        if let Some(problem) = config.problem() {
            return Err(EalError::Config(problem));
        }
        check_memory(config.memory)?;
        let affinity = Affinity::save()?;
        let cpu = config.control_cpu.unwrap_or_else(|| affinity.lowest());
        affinity.move_to(cpu)?;
        *tried = true;
        log::capture().map_err(|errno| EalError::Init { errno, log: String::new(), advice: "" })?;
        let mark = log::mark();
        start(&config.args(cpu)).map_err(|errno| explain(errno, config, &log::since(mark)))?;
        let eal = EAL.get_or_init(|| Eal {
            starter: thread::current().id(),
            runtime_dir: runtime_dir(),
            config: config.clone(),
        });
        *life::exclusive() = true;
        Ok(eal)
    }

    /// The running environment, if DPDK was started.
    #[must_use]
    pub fn get() -> Option<&'static Eal> {
        EAL.get()
    }

    /// What DPDK was started with.
    #[must_use]
    pub fn config(&self) -> &EalConfig {
        &self.config
    }

    /// DPDK's version, such as "DPDK 22.11.11".
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: returns a static string.
        unsafe { CStr::from_ptr(ffi::rte_version()) }.to_string_lossy().into_owned()
    }

    /// Ends DPDK: its threads stop, its memory, sockets and runtime directory are gone. Refused while ports are open,
    /// workers registered or packets alive. Afterwards pools are empty for good and nothing of DPDK can be used.
    pub fn cleanup(&'static self) -> Result<(), CleanupError> {
        if thread::current().id() != self.starter {
            return Err(CleanupError::WrongThread);
        }
        let mut running = life::exclusive();
        if !*running {
            return Err(CleanupError::NotRunning);
        }
        if life::workers() > 0 {
            return Err(CleanupError::Workers(life::workers()));
        }
        if life::devices() > 0 {
            return Err(CleanupError::Ports(life::devices()));
        }
        if let Some((pool, packets)) = pool::busy_pools() {
            return Err(CleanupError::Packets { pool, packets });
        }
        *running = false;
        // SAFETY: DPDK runs; no device, worker or packet uses it (checked above, and nothing can start using it while
        // `running` is held for writing).
        let code = unsafe { ffi::rte_eal_cleanup() };
        remove_runtime_dir(&self.runtime_dir);
        if code < 0 { Err(CleanupError::Refused(Errno::from_return(code))) } else { Ok(()) }
    }
}

/// Calls `rte_eal_init`.
fn start(args: &[String]) -> Result<(), Errno> {
    let invalid = Errno(nix::libc::EINVAL);
    let mut argv: Vec<*mut c_char> = Vec::with_capacity(args.len() + 1);
    for arg in args {
        // DPDK keeps pointers into its arguments, so these live for ever; start-up happens once.
        argv.push(CString::new(arg.as_str()).map_err(|_| invalid)?.into_raw());
    }
    argv.push(std::ptr::null_mut());
    let argc = i32::try_from(args.len()).map_err(|_| invalid)?;
    let argv = Box::leak(argv.into_boxed_slice());
    // SAFETY: a NULL-terminated array of `argc` C strings that live for ever.
    if unsafe { ffi::lr_eal_init(argc, argv.as_mut_ptr()) } < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// The calling thread's CPU affinity, given back on drop.
struct Affinity(CpuSet);

impl Affinity {
    fn save() -> Result<Self, EalError> {
        sched_getaffinity(Pid::from_raw(0))
            .map(Self)
            .map_err(|errno| EalError::Config(format!("the CPUs of this process cannot be read: {errno}")))
    }

    fn cpus(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CpuSet::count()).filter(|&cpu| self.0.is_set(cpu).unwrap_or(false))
    }

    fn lowest(&self) -> usize {
        self.cpus().next().unwrap_or(0)
    }

    /// Moves the thread, and with it the threads that DPDK starts, to one CPU.
    fn move_to(&self, cpu: usize) -> Result<(), EalError> {
        let mut set = CpuSet::new();
        set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|errno| EalError::Cpu {
            cpu,
            errno: Errno(errno as i32),
            allowed: self.cpus().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(","),
        })
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // A mask that the kernel reported is one that it accepts; there is nobody to tell if not.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.0);
    }
}

fn check_memory(asked: Memory) -> Result<(), EalError> {
    match asked {
        Memory::NoHuge { mb } => match memory::available_mib() {
            Some(available) if available < u64::from(mb) => Err(EalError::Memory { asked: mb, available }),
            _ => Ok(()),
        },
        Memory::Hugepages { mb } => match memory::free_hugepages_mib() {
            available if available < u64::from(mb) => {
                Err(EalError::Hugepages { asked: mb, available, pages: u64::from(mb).div_ceil(2) })
            }
            _ => Ok(()),
        },
    }
}

fn explain(errno: Errno, config: &EalConfig, log: &str) -> EalError {
    let has = |word: &str| log.to_ascii_lowercase().contains(word);
    let advice = match errno.0 {
        nix::libc::EACCES | nix::libc::EPERM => "; run it as root or with the capabilities the devices need",
        nix::libc::ENOMEM => "; give it more memory",
        _ if has("permission") => "; run it as root or with the capabilities the devices need",
        _ if !config.extra_args.is_empty() && errno.0 != nix::libc::ENODEV && !has("driver") => {
            "; check the further EAL arguments (dpdk.eal_args)"
        }
        _ if has("hugepage") => "; check the reserved hugepages (/proc/meminfo)",
        _ if has("driver") || has("vdev") || !config.vdevs.is_empty() => {
            "; check the device strings and that the driver packages are installed (Debian: librte-meta-net)"
        }
        _ => "",
    };
    let log = if log.is_empty() { String::new() } else { format!(": {log}") };
    EalError::Init { errno, log, advice }
}

/// Removes the runtime directories that programs of this project left behind when they were killed: those named
/// `linerate-WORD-PID` with a word of `words`, whose process has ended or is `ending`. Directories under other names, such as
/// those of configured instances, are left alone: their names do not tell whether somebody uses them.
pub fn remove_stale_runtime_dirs(words: &[&str], ending: Option<u32>) {
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for base in [Some(PathBuf::from("/var/run")), user, Some(PathBuf::from("/tmp"))].into_iter().flatten() {
        remove_stale_in(&base.join("dpdk"), words, &|pid| {
            ending != Some(pid) && Path::new("/proc").join(pid.to_string()).exists()
        });
    }
}

fn remove_stale_in(base: &Path, words: &[&str], alive: &dyn Fn(u32) -> bool) {
    let pid = |name: &str| {
        let (word, pid) = name.strip_prefix("linerate-")?.rsplit_once('-')?;
        words.contains(&word).then(|| pid.parse::<u32>().ok()).flatten()
    };
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().and_then(pid).is_some_and(|pid| !alive(pid)) {
            remove_runtime_dir(&entry.path());
        }
    }
}

fn runtime_dir() -> PathBuf {
    // SAFETY: returns a static buffer, filled in during start.
    let dir = unsafe { CStr::from_ptr(ffi::rte_eal_get_runtime_dir()) };
    PathBuf::from(dir.to_string_lossy().into_owned())
}

/// Removes what DPDK leaves in its runtime directory, and the directory if nothing else is in it.
fn remove_runtime_dir(dir: &Path) {
    const OURS: [&str; 5] = ["config", "hugepage_info", "mp_socket", "fbarray", "dpdk_telemetry"];
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if OURS.iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
            // Best effort: a file that is gone already is as good as removed.
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_ended_processes_of_ours_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let gone = ["linerate-demo-7", "linerate-bench-7"];
        let kept = [
            "linerate-demo-8",
            "linerate-7",
            "linerate-edge-7",
            "linerate-demo-x",
            "demo-7",
            "linerate-demo-",
        ];
        for name in gone.iter().chain(&kept) {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        fs::write(base.path().join("linerate-demo-7/config"), "").unwrap();
        fs::write(base.path().join("linerate-demo-8/config"), "").unwrap();
        remove_stale_in(base.path(), &["demo", "bench"], &|pid| pid == 8);
        assert!(gone.iter().all(|name| !base.path().join(name).exists()));
        assert!(kept.iter().all(|name| base.path().join(name).exists()));
        assert!(base.path().join("linerate-demo-8/config").exists());
    }
}
