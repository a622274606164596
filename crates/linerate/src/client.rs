//! What commands that talk to a running instance have in common: which one, and how answers are printed.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linerate_control::api::Client;
use linerate_control::config::default_socket;
use linerate_control::show::Text;
use serde::Serialize;

use crate::exit::Failure;

/// Which instance, and how to print.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// The instance's API socket [default: that of the instance named by --instance]
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,

    /// The instance's `dpdk.file_prefix`
    #[arg(long, value_name = "NAME", global = true, default_value = "linerate")]
    instance: String,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Target {
    /// A client of the instance.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let socket = self.socket.clone().unwrap_or_else(|| default_socket(&self.instance));
        Ok(Client::new(&socket)?)
    }

    /// Prints a message.
    pub(crate) fn print(&self, message: &(impl Text + Serialize)) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, message).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            out.write_all(message.text().as_bytes())?;
        }
        Ok(())
    }
}

/// Prints a message again and again; on a terminal in the same place. JSON comes as one line each time.
pub(crate) fn watch<M: Text + Serialize>(
    target: &Target,
    every: Duration,
    mut ask: impl FnMut() -> Result<M, Failure>,
) -> Result<(), Failure> {
    let terminal = io::stdout().is_terminal();
    loop {
        let message = ask()?;
        let mut out = io::stdout().lock();
        if target.json {
            serde_json::to_writer(&mut out, &message).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            // Home, then clear what is left of each line and below: no flicker.
            let text = message.text();
            match terminal {
                true => write!(out, "\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))?,
                false => writeln!(out, "{text}")?,
            }
        }
        out.flush()?;
        drop(out);
        std::thread::sleep(every);
    }
}
