//! How commands end: what is printed, and the exit code, which scripts may rely on.

use std::io::{self, Write};
use std::process::ExitCode;

use linerate_control::api::ClientError;
use linerate_control::config::Report;

/// The policy, for `--help`.
pub(crate) const HELP: &str = "\
Exit codes: 0 done; 1 it failed, or the instance refused; 2 wrong command line; 3 the configuration is not valid; \
4 no instance answers.";

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration is not valid: 3. With what else there is to say about it.
    Config(Report, Option<&'static str>),
    /// No instance answers: 4.
    NoInstance(ClientError),
    /// Anything else: 1.
    Other(anyhow::Error),
    /// Whoever read the output has gone: nothing is wrong.
    OutputClosed,
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Failure::Config(report, None)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NoInstance { .. } | ClientError::NotAllowed(_) => Failure::NoInstance(error),
            other => Failure::Other(other.into()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Other(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Other(error.into()),
        }
    }
}

/// Prints what went wrong and gives the exit code.
pub(crate) fn code(result: Result<(), Failure>) -> ExitCode {
    let (code, message) = match result {
        Ok(()) | Err(Failure::OutputClosed) => return ExitCode::SUCCESS,
        Err(Failure::Config(report, None)) => (3, report.to_string()),
        Err(Failure::Config(report, Some(hint))) => (3, format!("{report}\n{hint}")),
        Err(Failure::NoInstance(error)) => (4, format!("linerate: {error}")),
        Err(Failure::Other(error)) => (1, format!("linerate: {}", sentence(&error))),
    };
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::from(code)
}

/// An error with its causes, those left out that it tells itself.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let error =
            anyhow::anyhow!("no such device").context("port `a`: no such device").context("cannot start");
        assert_eq!(sentence(&error), "cannot start: port `a`: no such device");
    }
}
