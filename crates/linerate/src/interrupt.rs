//! Programs that end by themselves (`demo`, `bench forward`) and are interrupted: they leave nothing behind either.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use linerate_dpdk::remove_stale_runtime_dirs;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Words in the file prefixes of these programs, `linerate-WORD-PID`.
const WORDS: [&str; 2] = ["demo", "bench"];

/// Directories of this process that are to go with it.
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes what DPDK leaves of this process when it is dropped.
pub(crate) struct Leaving(());

impl Drop for Leaving {
    fn drop(&mut self) {
        remove_stale_runtime_dirs(&WORDS, Some(std::process::id()));
    }
}

/// Removes what earlier runs that were killed left behind, and sees to it that this one leaves nothing: neither when it ends,
/// well or not, nor when SIGINT or SIGTERM end it (exit code 128 and the signal's number, as from a shell). Called before
/// there is any other thread.
pub(crate) fn leave_nothing() -> Result<Leaving> {
    remove_stale_runtime_dirs(&WORDS, None);
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals")?;
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        drop(Leaving(()));
        let directories = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        directories.iter().for_each(|d| drop(std::fs::remove_dir_all(d)));
        std::process::exit(128 + signal as i32);
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot wait for signals")?;
    Ok(Leaving(()))
}

/// Also removes a directory when the process is interrupted.
pub(crate) fn remove(directory: &Path) {
    DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner).push(directory.into());
}
