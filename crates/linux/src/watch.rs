//! A thread that listens to Linux and FRR and tells a [`Watcher`] what they say.
//!
//! The thread enters a network namespace for good, so that everything the watcher opens or writes (taps, sockets,
//! `/proc/sys/net`) is that namespace's; the rest of the process stays where it is.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use tokio::sync::oneshot;
use tracing::warn;

use crate::fpm::{FpmError, FpmEvent, FpmServer};
use crate::netlink::{Filter, Monitor, MonitorEvent, NetlinkError};
use crate::route::Faults;

/// What to listen to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the network namespace (`/run/netns/NAME`); `None`: the caller's.
    pub namespace: Option<PathBuf>,
    /// Which of the kernel's routes are told.
    pub filter: Filter,
    /// Where FRR's zebra connects to; `None`: it does not.
    pub fpm: Option<SocketAddr>,
    /// Between two calls of [`Watcher::tick`].
    pub tick: Duration,
}

/// Who is told. All calls come from the one thread.
pub trait Watcher {
    /// What the kernel said. The watcher empties the vector.
    fn kernel(&mut self, events: &mut Vec<MonitorEvent>);

    /// What FRR said. The watcher empties the vector.
    fn fpm(&mut self, events: &mut Vec<FpmEvent>);

    /// Time passes.
    fn tick(&mut self, now: Instant, status: &Status<'_>);
}

/// What the sockets counted.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// FPM; `None` where it is not served.
    pub fpm: Option<crate::fpm::Counters>,
    /// What FRR sent that was skipped.
    pub fpm_faults: Option<&'a Faults>,
    /// What the kernel sent that was skipped.
    pub kernel_faults: Option<&'a Faults>,
    /// How often the kernel's messages were lost and everything was listed again.
    pub kernel_resyncs: u64,
}

/// Why listening cannot begin. `E` is the watcher's own reason.
#[derive(Debug, thiserror::Error)]
pub enum WatchError<E: std::error::Error + 'static> {
    /// No thread or no event loop.
    #[error("the thread that follows Linux cannot be started: {0}")]
    Thread(std::io::Error),
    /// The namespace.
    #[error(
        "cannot enter network namespace {path}: {source}; does it exist (ip netns list), and is this process allowed to \
         (CAP_SYS_ADMIN)?", path = path.display()
    )]
    Namespace {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel cannot be followed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// FPM cannot be served.
    #[error(transparent)]
    Fpm(#[from] FpmError),
    /// The watcher is not ready.
    #[error(transparent)]
    Watcher(E),
}

/// A running thread. Dropping it ends the thread and waits for that.
#[derive(Debug)]
pub struct Watch {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Between two attempts to follow the kernel again after its socket failed.
const RETRY: Duration = Duration::from_secs(1);

impl Watch {
    /// Starts the thread. `make` runs on it, in the namespace, before anything is listened to; this returns when all
    /// sockets are open.
    pub fn start<W, E>(
        options: Options,
        make: impl FnOnce() -> Result<W, E> + Send + 'static,
    ) -> Result<Watch, WatchError<E>>
    where
        W: Watcher,
        E: std::error::Error + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("linux".into())
            .spawn(move || run(&options, make, stopped, &ready))
            .map_err(WatchError::Thread)?;
        let watch = Watch { stop: Some(stop), thread: Some(thread) };
        match is_ready.recv() {
            Ok(Ok(())) => Ok(watch),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WatchError::Thread(std::io::Error::other("it ended before it began"))),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<W, E>(
    options: &Options,
    make: impl FnOnce() -> Result<W, E>,
    stopped: oneshot::Receiver<()>,
    ready: &mpsc::Sender<Result<(), WatchError<E>>>,
) where
    W: Watcher,
    E: std::error::Error + 'static,
{
    if let Err(error) = enter(options) {
        let _ = ready.send(Err(error));
        return;
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(WatchError::Thread(error)));
            return;
        }
    };
    let begin = async {
        let watcher = make().map_err(WatchError::Watcher)?;
        let fpm = match options.fpm {
            Some(address) => Some(FpmServer::bind(address).await?),
            None => None,
        };
        let monitor = Monitor::open(options.filter.clone())?;
        Ok((watcher, monitor, fpm))
    };
    let task = async {
        match begin.await {
            Ok((mut watcher, monitor, fpm)) => {
                let _ = ready.send(Ok(()));
                tokio::select! {
                    // Being told to stop and the sender being gone mean the same.
                    _ = stopped => {}
                    () = listen(options, &mut watcher, monitor, fpm) => {}
                }
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    };
    runtime.block_on(task);
}

fn enter<E: std::error::Error>(options: &Options) -> Result<(), WatchError<E>> {
    let Some(path) = &options.namespace else { return Ok(()) };
    let failed = |source| WatchError::Namespace { path: path.clone(), source };
    let namespace = File::open(path).map_err(failed)?;
    setns(&namespace, CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))
}

/// Listens for ever.
async fn listen(options: &Options, watcher: &mut impl Watcher, monitor: Monitor, mut fpm: Option<FpmServer>) {
    let mut monitor = Some(monitor);
    let (mut kernel_events, mut fpm_events) = (Vec::new(), Vec::new());
    let mut ticks = tokio::time::interval(options.tick);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut retry_at = Instant::now();
    loop {
        tokio::select! {
            result = next_kernel(&mut monitor, &mut kernel_events) => {
                if let Err(error) = result {
                    warn!("{error}; following the kernel anew");
                    monitor = None;
                    retry_at = Instant::now() + RETRY;
                }
                watcher.kernel(&mut kernel_events);
                kernel_events.clear();
            }
            result = next_fpm(&mut fpm, &mut fpm_events) => {
                if let Err(error) = result {
                    // What keeps a connection from being taken (no descriptors left) does not go away at once.
                    warn!("{error}");
                    tokio::time::sleep(RETRY).await;
                }
                watcher.fpm(&mut fpm_events);
                fpm_events.clear();
            }
            _ = ticks.tick() => {
                let now = Instant::now();
                if monitor.is_none() && now >= retry_at {
                    retry_at = now + RETRY;
                    monitor = Monitor::open(options.filter.clone()).inspect_err(|e| warn!("{e}")).ok();
                }
                let status = Status {
                    fpm: fpm.as_ref().map(FpmServer::counters),
                    fpm_faults: fpm.as_ref().map(FpmServer::faults),
                    kernel_faults: monitor.as_ref().map(Monitor::faults),
                    kernel_resyncs: monitor.as_ref().map_or(0, Monitor::resyncs),
                };
                watcher.tick(now, &status);
            }
        }
    }
}

async fn next_kernel(
    monitor: &mut Option<Monitor>,
    events: &mut Vec<MonitorEvent>,
) -> Result<(), NetlinkError> {
    match monitor {
        Some(monitor) => monitor.next(events).await,
        None => std::future::pending().await,
    }
}

async fn next_fpm(server: &mut Option<FpmServer>, events: &mut Vec<FpmEvent>) -> Result<(), FpmError> {
    match server {
        Some(server) => server.next(events).await,
        None => std::future::pending().await,
    }
}
