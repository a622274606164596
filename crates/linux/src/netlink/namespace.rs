//! Doing something in another network namespace.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};

use super::socket::NetlinkError;
use super::writer::{LinkSettings, Writer};

/// Index of the loopback in every namespace.
const LOOPBACK: u32 = 1;

/// Runs `f` in the network namespace at `path` (`/run/netns/NAME`, `/proc/PID/ns/net`), on a thread of its own: no other
/// thread moves. Sockets and taps opened by `f` stay in that namespace.
pub fn in_namespace<T: Send>(path: &Path, f: impl FnOnce() -> T + Send) -> Result<T, NetlinkError> {
    let failed = |source| NetlinkError::Namespace { path: path.to_owned(), source };
    let namespace = File::open(path).map_err(failed)?;
    let run = || {
        setns(&namespace, CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))?;
        Ok(f())
    };
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Moves the calling thread, for good, to a network namespace of its own with nothing in it but a loopback that is up. The
/// namespace is there for as long as a thread or a socket is in it; returns its path, good for as long as this thread lives.
pub fn enter_new() -> Result<PathBuf, NetlinkError> {
    let path = PathBuf::from(format!("/proc/{}/task/{}/ns/net", std::process::id(), crate::thread::id()));
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|errno| NetlinkError::Namespace { path: path.clone(), source: errno.into() })?;
    Writer::open()?.set_link(LOOPBACK, &LinkSettings { up: Some(true), ..LinkSettings::default() })?;
    Ok(path)
}
