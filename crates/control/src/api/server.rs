//! The thread that serves: one current-thread runtime on the control CPU, with bounds on everything a client decides.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::listen::Listeners;
use super::routes;
use super::sample::Rates;
use crate::dataplane::Dataplane;

/// Connections served at a time of the Unix socket, and as many of TCP; more wait. Each has its own, so that strangers who
/// hold TCP connections open, for which no token is needed, do not shut out the operator on the host.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may last: a client that does not read its answer is cut off.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;
/// How often counters are sampled.
const SAMPLING: Duration = Duration::from_secs(1);
/// How long requests in progress may go on when the server stops.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What the server says about the instance.
#[derive(Clone, Debug)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// The configuration file it was started with.
    pub config: String,
}

/// What handlers share.
pub(super) struct App {
    pub(super) plane: Arc<dyn Dataplane>,
    pub(super) about: About,
    pub(super) started: Instant,
    pub(super) rates: Mutex<Rates>,
    /// One trace at a time.
    pub(super) tracing: tokio::sync::Mutex<()>,
}

impl App {
    fn sample(&self) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.sample(self.plane.as_ref(), self.started.elapsed());
    }
}

/// The serving thread. Dropping it stops it.
pub struct Server {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves until it is stopped. `cpu`: where to run; where that is impossible it runs anywhere.
    pub fn start(
        listeners: Listeners,
        plane: Arc<dyn Dataplane>,
        about: About,
        cpu: Option<usize>,
    ) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
        listeners.unix.set_nonblocking(true)?;
        if let Some((tcp, _)) = &listeners.tcp {
            tcp.set_nonblocking(true)?;
        }
        let app = Arc::new(App {
            plane,
            about,
            started: Instant::now(),
            rates: Mutex::default(),
            tracing: tokio::sync::Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new().name("api".into()).spawn(move || {
            if let Some(cpu) = cpu {
                let mut set = CpuSet::new();
                let _ = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
            }
            if let Err(error) = runtime.block_on(serve(&listeners, app, stopped)) {
                tracing::error!(%error, "the API has ended");
            }
            runtime.shutdown_timeout(LAST_WORDS);
        })?;
        Ok(Server { stop, thread: Some(thread) })
    }

    /// Ends serving and removes the socket.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listeners: &Listeners, app: Arc<App>, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    let unix = tokio::net::UnixListener::from_std(listeners.unix.try_clone()?)?;
    let tcp = match &listeners.tcp {
        Some((tcp, token)) => Some((tokio::net::TcpListener::from_std(tcp.try_clone()?)?, token.clone())),
        None => None,
    };
    let unix_permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let tcp_permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let open = routes::router(app.clone());
    let guarded = tcp.as_ref().map(|(_, token)| routes::with_token(routes::router(app.clone()), token));
    let mut sampling = tokio::time::interval(SAMPLING);
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            _ = sampling.tick() => app.sample(),
            (permit, accepted) = admit(&unix_permits, unix.accept()) => match accepted {
                Ok((stream, _)) => connection(stream, open.clone(), permit),
                Err(error) => pause_after(error).await,
            },
            (permit, accepted) = admit(&tcp_permits, accept_tcp(tcp.as_ref().map(|t| &t.0))) => match (accepted, &guarded) {
                (Ok(stream), Some(router)) => connection(stream, router.clone(), permit),
                (Ok(_), None) => {}
                (Err(error), _) => pause_after(error).await,
            },
        }
    }
    Ok(())
}

/// The next connection, once there is room for one more.
async fn admit<T>(
    permits: &Arc<Semaphore>,
    accept: impl Future<Output = io::Result<T>>,
) -> (Option<OwnedSemaphorePermit>, io::Result<T>) {
    let permit = permits.clone().acquire_owned().await.ok();
    (permit, accept.await)
}

async fn accept_tcp(listener: Option<&tokio::net::TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listener {
        Some(l) => l.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Out of file descriptors, mostly: accepting again at once would spin.
async fn pause_after(error: io::Error) {
    tracing::warn!(%error, "the API cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Serves one connection in the background; its permit is free again when it ends.
fn connection<S>(stream: S, router: Router, permit: Option<OwnedSemaphorePermit>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let serving = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let _: Result<Result<(), hyper::Error>, _> = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await;
        drop(permit);
    });
}
