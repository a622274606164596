//! `linerate shell`: the commands that look at and change a running instance, with completion, history, abbreviations and
//! the words that users of FRR and IOS know.
//!
//! A line becomes the arguments of this very program ([`words`]), which is run for it: what a command prints and how it
//! fails is the same here and on the command line, and Ctrl-C ends the command and not the shell. [`complete`] knows what
//! may come next from the command line's own description.

mod complete;
mod words;

use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use clap::Args;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::exit::Failure;
use complete::Helper;
use words::{Filter, Line};

/// An interactive shell on a running instance
///
/// The commands of `linerate`, and those that FRR and IOS have for the same (`show ip route`, `show interface`); words may be
/// abbreviated as long as they are unique, `?` or Tab says what may come next. `| include TEXT`, `| exclude TEXT`, `| begin TEXT`
/// and `| count` filter what is printed. Where standard input is no terminal, commands are read from it.
#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// Run this command and end; may be given several times
    #[arg(short, value_name = "COMMAND")]
    command: Vec<String>,

    /// The instance's API socket [default: that of the instance named by --instance]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// The instance's `dpdk.file_prefix`
    #[arg(long, value_name = "NAME", default_value = "linerate")]
    instance: String,
}

/// Commands of the program that make sense in a shell.
const COMMANDS: [&str; 3] = ["show", "trace", "queue"];

pub(crate) fn run(args: &ShellArgs, program: &clap::Command) -> Result<(), Failure> {
    let commands = words::Commands::new(program, &COMMANDS);
    let shell = Shell { args, commands: &commands };
    if !args.command.is_empty() {
        return shell.read(args.command.iter().cloned().map(Ok));
    }
    if !io::stdin().is_terminal() {
        return shell.read(io::stdin().lock().lines());
    }
    shell.talk()
}

/// What follows a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    GoOn,
    /// The command failed, and has said why.
    Failed,
    End,
}

impl After {
    fn of(status: ExitStatus) -> Self {
        if status.success() { After::GoOn } else { After::Failed }
    }
}

struct Shell<'a> {
    args: &'a ShellArgs,
    commands: &'a words::Commands,
}

impl Shell<'_> {
    /// Obeys line by line, as far as there are any; fails in the end where any command did.
    fn read(&self, lines: impl Iterator<Item = io::Result<String>>) -> Result<(), Failure> {
        let mut failed = 0;
        for line in lines {
            match self.obey(&line?)? {
                After::GoOn => {}
                After::Failed => failed += 1,
                After::End => break,
            }
        }
        match failed {
            0 => Ok(()),
            n => Err(anyhow::anyhow!("{n} of the commands failed").into()),
        }
    }

    fn talk(&self) -> Result<(), Failure> {
        let failed = |e: ReadlineError| Failure::Other(e.into());
        let config = Config::builder().auto_add_history(true).max_history_size(1000).map_err(failed)?.build();
        let mut editor: Editor<Helper<'_>, FileHistory> = Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(Helper::new(self.commands)));
        let history = history();
        if let Some(path) = &history {
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        let prompt = format!("{}> ", self.args.instance);
        loop {
            match editor.readline(&prompt) {
                Ok(line) => match self.obey(&line) {
                    Ok(After::End) => break,
                    Ok(After::GoOn | After::Failed) => {}
                    Err(failure) => drop(crate::exit::code(Err(failure))),
                },
                // Ctrl-C gives a line up.
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        if let Some(path) = history {
            let _ = path.parent().map(std::fs::create_dir_all);
            // A history that cannot be kept is no reason to fail.
            let _ = editor.save_history(&path);
        }
        Ok(())
    }

    /// Does what a line says. A command that fails has said why.
    fn obey(&self, line: &str) -> Result<After, Failure> {
        match self.commands.understand(line) {
            Ok(Line::Nothing) => {}
            Ok(Line::End) => return Ok(After::End),
            Ok(Line::Help(text)) => io::stdout().write_all(text.as_bytes())?,
            Ok(Line::Command(words, filter)) => return self.run(&words, filter.as_ref()),
            Err(message) => {
                writeln!(io::stderr(), "% {message}")?;
                return Ok(After::Failed);
            }
        }
        Ok(After::GoOn)
    }

    fn run(&self, words: &[String], filter: Option<&Filter>) -> Result<After, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(words).args(["--instance", &self.args.instance]);
        if let Some(socket) = &self.args.socket {
            command.arg("--socket").arg(socket);
        }
        let Some(filter) = filter else {
            return Ok(After::of(command.status()?));
        };
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        if let Some(out) = child.stdout.take() {
            filter.pass(BufReader::new(out), &mut io::stdout().lock())?;
        }
        Ok(After::of(child.wait()?))
    }
}

/// Where the lines of earlier sessions are kept.
fn history() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("linerate").join("history"))
}
