//! `linerate check`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use linerate_control::config::{self, Config, Host};

use crate::exit::Failure;

/// Check a configuration without touching a device.
///
/// Everything that can be told without devices is checked: keys and values, names, CPUs of this host, addresses, gateways, and
/// the route tables the configuration names. All problems are printed at once, one per line, as
/// FILE:LINE:COLUMN: KEY: WHAT WAS FOUND AND WHAT WAS EXPECTED.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The configuration file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Do not check CPUs: the configuration is for another host
    #[arg(long)]
    other_host: bool,
}

const OTHER_HOST: &str =
    "hint: to check a configuration of another host, whose CPUs are not known here, use --other-host";

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let host = if args.other_host { Host::default() } else { Host::current() };
    let config = config::load(&args.config, &host).map_err(|report| {
        let hint = report.misses_cpus().then_some(OTHER_HOST);
        Failure::Config(report, hint)
    })?;
    for warning in &config.warnings {
        writeln!(io::stderr(), "{warning} (warning)")?;
    }
    writeln!(io::stdout(), "{}: {}", args.config.display(), summary(&config))?;
    Ok(())
}

/// What a valid configuration describes.
pub(crate) fn summary(config: &Config) -> String {
    let d = &config.desired;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let parts = [
        count(d.workers.len(), "worker"),
        count(d.ports.len(), "port"),
        count(d.interfaces.len(), "interface"),
        count(d.routes.len(), "route"),
        count(d.neighbors.len(), "static neighbour"),
        count(d.acls.len(), "access list"),
    ];
    let multicast = count(d.multicast_routes.len(), "multicast route");
    let more = (!d.multicast_routes.is_empty()).then_some(multicast);
    format!("valid: {}", parts.into_iter().chain(more).collect::<Vec<_>>().join(", "))
}
