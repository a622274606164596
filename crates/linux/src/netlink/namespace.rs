//! Doing something in another network namespace.

use std::fs::File;
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use super::socket::NetlinkError;

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
