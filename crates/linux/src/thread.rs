//! Threads: which CPUs they may use, where they run, what they have used.

use std::path::Path;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

use crate::cpus::CpuList;

/// Why a thread could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// Pinning was refused.
    #[error("cannot run on CPUs {cpus}: {source}")]
    Pin {
        /// Where it should have run.
        cpus: CpuList,
        /// What the kernel said.
        source: Errno,
    },
    /// The affinity mask cannot be read.
    #[error("cannot read which CPUs this process may use: {0}")]
    Allowed(Errno),
    /// The timer slack cannot be set.
    #[error("cannot make short sleeps precise: {0}")]
    TimerSlack(Errno),
}

/// CPUs the calling thread may use: what `taskset`, cgroups and containers leave it.
pub fn allowed_cpus() -> Result<CpuList, ThreadError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(ThreadError::Allowed)?;
    Ok((0..CpuSet::count()).filter(|c| set.is_set(*c).unwrap_or(false)).collect())
}

/// Lets the calling thread run on these CPUs only.
pub fn pin(cpus: &CpuList) -> Result<(), ThreadError> {
    let failed = |source| ThreadError::Pin { cpus: cpus.clone(), source };
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        set.set(cpu).map_err(failed)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(failed)
}

/// Lets the kernel end the calling thread's sleeps at most 1 µs late (its default is 50 µs).
pub fn precise_sleeps() -> Result<(), ThreadError> {
    nix::sys::prctl::set_timerslack(1000).map_err(ThreadError::TimerSlack)
}

/// The kernel's id of the calling thread, as `top -H` shows it.
pub fn id() -> u32 {
    gettid().as_raw().unsigned_abs()
}

/// CPU time in nanoseconds that a thread of this process has used; `None` where it has ended.
pub fn cpu_time(proc: &Path, id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(proc.join(format!("self/task/{id}/schedstat"))).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_and_the_others_are_left_alone() {
        let before = allowed_cpus().unwrap();
        let cpu = before.iter().last().unwrap();
        std::thread::spawn(move || {
            pin(&[cpu].into_iter().collect()).unwrap();
            precise_sleeps().unwrap();
            assert_eq!(allowed_cpus().unwrap().to_string(), cpu.to_string());
            let error = pin(&[crate::cpus::MAX_CPUS - 1].into_iter().collect()).unwrap_err();
            assert!(error.to_string().starts_with("cannot run on CPUs 1023: "), "{error}");
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    fn cpu_time_grows_with_work_and_ends_with_the_thread() {
        let (tx, rx) = std::sync::mpsc::channel();
        let proc = Path::new("/proc");
        let busy = std::thread::spawn(move || {
            tx.send(id()).unwrap();
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 30 {
                std::hint::spin_loop();
            }
            cpu_time(Path::new("/proc"), id()).unwrap()
        });
        let id = rx.recv().unwrap();
        assert!(busy.join().unwrap() > 1_000_000);
        for _ in 0..1000 {
            if cpu_time(proc, id).is_none() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("thread {id} is still there");
    }
}
