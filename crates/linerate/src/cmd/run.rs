//! `linerate run`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use linerate_control::api::{About, Listeners, Server};
use linerate_control::config::{self, Host};
use linerate_control::instance::Running;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use tracing_subscriber::EnvFilter;

use super::check::summary;
use crate::exit::Failure;

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
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: EnvFilter,
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    // Before there is any thread: all of them leave these signals to the wait below.
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block().context("cannot block signals")?;
    let filter = EnvFilter::new(args.log.to_string());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();

    let config = config::load(&args.config, &Host::current())?;
    config.warnings.iter().for_each(|w| tracing::warn!("{w}"));
    tracing::info!("{}: {}", args.config.display(), summary(&config));
    let listeners = Listeners::bind(&config.api).map_err(anyhow::Error::from)?;
    let socket = listeners.path().to_owned();
    let running = Arc::new(Running::start(&config.desired).map_err(anyhow::Error::from)?);
    let about = About { version: env!("CARGO_PKG_VERSION").into(), config: args.config.display().to_string() };
    let cpu = config.desired.dpdk.control_cpu;
    drop(config);
    let server = Server::start(listeners, running.clone(), about, Some(cpu)).context("cannot serve the API")?;
    tracing::info!("forwarding; API at {}", socket.display());
    // Fails only where systemd asked for it and its socket is gone: nothing to be done about that.
    let _ = sd_notify::notify(&[NotifyState::Ready]);

    let signal = signals.wait().context("cannot wait for signals")?;
    tracing::info!("{signal}: stopping");
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    let again = std::thread::Builder::new().name("impatience".into()).spawn(move || {
        if signals.wait().is_ok() {
            std::process::exit(1);
        }
    });
    again.context("cannot wait for signals")?;
    server.stop();
    let running = Arc::into_inner(running).ok_or_else(|| anyhow!("the API still uses the instance"))?;
    running.stop().map_err(anyhow::Error::from)?;
    tracing::info!("stopped");
    Ok(())
}
