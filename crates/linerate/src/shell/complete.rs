//! What may come next, for the Tab key.

use rustyline::Context;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;

use super::words::Commands;

/// Completes words and options of the commands.
pub(super) struct Helper<'c> {
    commands: &'c Commands,
}

impl<'c> Helper<'c> {
    pub(super) fn new(commands: &'c Commands) -> Self {
        Helper { commands }
    }

    /// Where the last word begins, and what it may become.
    fn candidates(&self, line: &str) -> (usize, Vec<&str>) {
        let start = line.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let (before, typed) = line.split_at(start);
        let at = self.commands.follow(before.split_whitespace());
        let names = at.next.iter().map(|w| w.name.as_str());
        let options = at.options.iter().map(String::as_str).filter(|_| typed.starts_with('-'));
        (start, names.chain(options).filter(|name| name.starts_with(typed)).collect())
    }
}

impl Completer for Helper<'_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, names) = self.candidates(line.get(..pos).unwrap_or(line));
        let pair = |name: &str| Pair { display: name.into(), replacement: format!("{name} ") };
        Ok((start, names.into_iter().map(pair).collect()))
    }
}

impl Hinter for Helper<'_> {
    type Hint = String;
}

impl Highlighter for Helper<'_> {}
impl Validator for Helper<'_> {}
impl rustyline::Helper for Helper<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_options_are_completed() {
        let routes = clap::Command::new("routes").arg(clap::Arg::new("vrf").long("vrf"));
        let show = clap::Command::new("show").subcommand(routes).subcommand(clap::Command::new("router"));
        let commands = Commands::new(&clap::Command::new("linerate").subcommand(show), &["show"]);
        let helper = Helper::new(&commands);
        assert_eq!(helper.candidates("sh"), (0, vec!["show"]));
        assert_eq!(helper.candidates("show ro"), (5, vec!["routes", "router"]));
        assert_eq!(helper.candidates("show routes --"), (12, vec!["--vrf"]));
        assert_eq!(helper.candidates("show ip m"), (8, vec!["mroute"]));
    }
}
