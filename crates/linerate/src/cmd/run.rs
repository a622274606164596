//! `linerate run`.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Context;
use clap::Args;
use linerate_control::api::{About, Listeners, Server};
use linerate_control::config::{self, Host};
use linerate_control::instance::Running;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use tracing_subscriber::EnvFilter;

use super::check::summary;
use crate::exit::Failure;

/// Least number of files a process that serves must be allowed to open: below it libraries end the process.
const MIN_FILES: u64 = 64;

/// Run the data plane in the foreground until SIGTERM or SIGINT.
///
/// The configuration is checked completely before anything is touched. Logs go to standard error. Under systemd it reports
/// when packets flow (Type=notify). A second signal ends it at once.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The configuration file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// What to log: error, warn, info, debug, or a filter such as `info,linerate_control=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = filter)]
    log: String,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    // Before there is any thread: all of them leave these signals to the wait below.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block().context("cannot block signals")?;
    let touched = Arc::new(AtomicBool::new(false));
    let told = wait(signals, touched.clone()).context("cannot wait for signals")?;
    allow_files()?;
    let filter = EnvFilter::new(&args.log);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    log.with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr).init();

    let config = config::load(&args.config, &Host::current())?;
    config.warnings.iter().for_each(|w| tracing::warn!("{w}"));
    tracing::info!("{}: {}", args.config.display(), summary(&config));
    touched.store(true, Ordering::Relaxed);
    let listeners = Listeners::bind(&config.api).map_err(anyhow::Error::from)?;
    let socket = listeners.path().to_owned();
    let running = Arc::new(Running::start(&config.desired).map_err(anyhow::Error::from)?);
    let about =
        About { version: env!("CARGO_PKG_VERSION").into(), config: args.config.display().to_string() };
    let cpu = config.desired.dpdk.control_cpu;
    drop(config);
    let server =
        Server::start(listeners, running.clone(), about, Some(cpu)).context("cannot serve the API")?;
    tracing::info!("forwarding; API at {}", socket.display());
    // Fails only where systemd asked for it and its socket is gone: nothing to be done about that.
    let _ = sd_notify::notify(&[NotifyState::Ready]);

    let signal = told.recv().context("cannot wait for signals")?;
    tracing::info!("{signal}: stopping");
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    server.stop();
    running.stop().map_err(anyhow::Error::from)?;
    tracing::info!("stopped");
    Ok(())
}

/// Waits for signals in a thread of its own from the first moment on, also while a file or a device does not come. The first
/// is told to whoever receives, or ends the program where nothing is `touched` yet; a second ends it in any case.
fn wait(signals: SigSet, touched: Arc<AtomicBool>) -> io::Result<mpsc::Receiver<Signal>> {
    let (tell, told) = mpsc::sync_channel(1);
    let wait = move || {
        let Ok(first) = signals.wait() else { return };
        if !touched.load(Ordering::Relaxed) {
            std::process::exit(128 + first as i32);
        }
        if tell.send(first).is_ok() && signals.wait().is_ok() {
            std::process::exit(1);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(told)
}

/// Takes all open files that this process may have; an error where those are too few to serve.
fn allow_files() -> anyhow::Result<()> {
    let (now, most) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    if most < MIN_FILES {
        anyhow::bail!("this process may open {most} files: expected at least {MIN_FILES} (see ulimit -n)");
    }
    if now < most {
        setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

/// A filter that parses; kept as text, which is small.
fn filter(text: &str) -> Result<String, String> {
    text.parse::<EnvFilter>().map(|_| text.to_owned()).map_err(|e| e.to_string())
}
