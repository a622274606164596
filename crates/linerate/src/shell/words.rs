//! What a line of the shell means.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

/// What users of FRR and IOS type, and what it is here. The longest that matches counts; what follows it is kept.
const ALIASES: &[(&str, &str)] = &[
    ("show access-lists", "show acl"),
    ("show arp", "show neighbors"),
    ("show interface", "show interfaces"),
    ("show ip access-lists", "show acl"),
    ("show ip arp", "show neighbors"),
    ("show ip conflicts", "show conflicts"),
    ("show ip fib", "show fib"),
    ("show ip interface", "show interfaces"),
    ("show ip mroute", "show multicast routes"),
    ("show ip route", "show routes"),
    ("show ip route vrf", "show routes --vrf"),
    ("show ip vrf", "show vrfs"),
    ("show ipv6 access-lists", "show acl"),
    ("show ipv6 conflicts", "show conflicts"),
    ("show ipv6 interface", "show interfaces"),
    ("show ipv6 mroute", "show multicast routes"),
    ("show ipv6 neighbors", "show neighbors"),
    ("show ipv6 route", "show routes"),
    ("show ipv6 route vrf", "show routes --vrf"),
    ("show mroute", "show multicast routes"),
    ("show policing", "show punt"),
    ("show processes cpu", "show workers"),
    ("show version", "show status"),
    ("show vrf", "show vrfs"),
    ("show zebra fpm", "show linux"),
];

/// The commands of the shell, as a tree of words.
#[derive(Debug)]
pub(super) struct Commands {
    root: Word,
}

/// A word that may come, and what may follow it.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) next: Vec<Word>,
    /// Long options, with their dashes.
    pub(super) options: Vec<String>,
    /// It is a word of other systems, not of the program.
    alias: bool,
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing: empty, or a comment.
    Nothing,
    /// The end of the shell.
    End,
    /// A list of what may come next.
    Help(String),
    /// The program with these arguments, filtered.
    Command(Vec<String>, Option<Filter>),
}

/// What is kept of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Lines with the text.
    Include(String),
    /// Lines without it.
    Exclude(String),
    /// Everything from the first line with it on.
    Begin(String),
    /// The number of lines.
    Count,
}

impl Commands {
    /// Those of the program's commands that are named.
    pub(super) fn new(program: &clap::Command, names: &[&str]) -> Self {
        let mut root = Word::new("", "");
        for command in program.get_subcommands().filter(|c| names.contains(&c.get_name())) {
            root.next.push(Word::of(command));
        }
        root.next.push(Word::new("help", "What can be done here"));
        root.next.push(Word::new("exit", "End the shell"));
        root.next.push(Word::new("quit", "End the shell"));
        for (alias, meaning) in ALIASES {
            root.add(&alias.split(' ').collect::<Vec<_>>(), &format!("the same as `{meaning}`"));
        }
        Commands { root }
    }

    /// The word that a line has led to, with what follows it; the words after it that are none of the tree's are skipped.
    pub(super) fn follow<'w>(&self, words: impl Iterator<Item = &'w str>) -> &Word {
        let mut at = &self.root;
        for word in words {
            match at.find(word) {
                Ok(next) => at = next,
                Err(_) => break,
            }
        }
        at
    }

    /// What a line means; an error is a sentence on what is wrong with it.
    pub(super) fn understand(&self, line: &str) -> Result<Line, String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            return Ok(Line::Nothing);
        }
        if let Some(before) = line.strip_suffix('?') {
            return Ok(Line::Help(self.follow(before.split_whitespace()).help()));
        }
        let (line, filter) = match line.split_once('|') {
            Some((line, filter)) => (line, Some(Filter::read(filter.trim())?)),
            None => (line, None),
        };
        let mut words = shlex::split(line).ok_or("a quotation is not closed")?;
        let mut at = &self.root;
        let mut known = 0;
        for word in &mut words {
            if at.next.is_empty() || word.starts_with('-') {
                break;
            }
            match at.find(word) {
                Ok(next) => {
                    word.clone_from(&next.name);
                    at = next;
                    known += 1;
                }
                // What is no word here may be a value: a prefix, a name.
                Err(problem) if known == 0 || !at.takes_values() => return Err(problem),
                Err(_) => break,
            }
        }
        match words.first().map(String::as_str) {
            Some("exit" | "quit") => return Ok(Line::End),
            Some("help") => return Ok(Line::Help(self.root.help())),
            _ => {}
        }
        if !at.next.is_empty() && known == words.len() && !at.takes_values() {
            return Err(format!("`{line}` is not a whole command: `{} ?` says what may follow", line.trim()));
        }
        Ok(Line::Command(translate(words), filter))
    }
}

/// Puts the program's words in place of other systems'.
fn translate(words: Vec<String>) -> Vec<String> {
    let matches = |alias: &str| {
        let n = alias.split(' ').count();
        (words.len() >= n && alias.split(' ').eq(words.iter().take(n).map(String::as_str))).then_some(n)
    };
    let best = ALIASES.iter().filter_map(|(alias, meaning)| Some((matches(alias)?, meaning))).max();
    match best {
        Some((n, meaning)) => {
            meaning.split(' ').map(str::to_owned).chain(words.into_iter().skip(n)).collect()
        }
        None => words,
    }
}

impl Word {
    fn new(name: &str, about: &str) -> Self {
        Word { name: name.into(), about: about.into(), next: Vec::new(), options: Vec::new(), alias: false }
    }

    fn of(command: &clap::Command) -> Self {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let about = about.lines().next().unwrap_or_default();
        Word {
            name: command.get_name().into(),
            about: about.into(),
            next: command.get_subcommands().filter(|c| c.get_name() != "help").map(Word::of).collect(),
            options: command
                .get_arguments()
                .filter_map(|a| a.get_long())
                .filter(|l| !matches!(*l, "help" | "version" | "socket" | "instance"))
                .map(|l| format!("--{l}"))
                .collect(),
            alias: false,
        }
    }

    fn add(&mut self, words: &[&str], about: &str) {
        let [word, rest @ ..] = words else { return };
        let at = match self.next.iter().position(|w| w.name == *word) {
            Some(at) => at,
            None => {
                self.next.push(Word { alias: true, ..Word::new(word, "") });
                self.next.len() - 1
            }
        };
        let Some(next) = self.next.get_mut(at) else { return };
        if rest.is_empty() && next.about.is_empty() {
            next.about = about.into();
        }
        next.add(rest, about);
    }

    /// The word that `typed` is, or abbreviates. The program's own words come before other systems'.
    fn find(&self, typed: &str) -> Result<&Word, String> {
        if let Some(exact) = self.next.iter().find(|w| w.name == typed) {
            return Ok(exact);
        }
        let like =
            |alias: bool| self.next.iter().filter(move |w| w.alias == alias && w.name.starts_with(typed));
        for alias in [false, true] {
            let mut found = like(alias);
            match (found.next(), found.next()) {
                (Some(one), None) => return Ok(one),
                (Some(_), Some(_)) => {
                    let names: Vec<&str> = like(alias).map(|w| w.name.as_str()).collect();
                    return Err(format!("`{typed}` may be {}", names.join(" or ")));
                }
                (None, _) => {}
            }
        }
        let names: Vec<&str> = self.next.iter().map(|w| w.name.as_str()).collect();
        Err(format!("`{typed}` is no command here: expected {}", names.join(", ")))
    }

    /// Whether something that is no word may follow: a word that means something by itself.
    fn takes_values(&self) -> bool {
        self.next.is_empty() || !self.about.is_empty() && self.alias
    }

    fn help(&self) -> String {
        let mut text = String::new();
        let width = self.next.iter().map(|w| w.name.len()).max().unwrap_or(0);
        for word in &self.next {
            let _ = writeln!(text, "  {:<width$}  {}", word.name, word.about);
        }
        if !self.options.is_empty() {
            let _ = writeln!(text, "  options: {}", self.options.join(" "));
        }
        if text.is_empty() {
            text = "  <Enter>\n".into();
        }
        text
    }
}

impl Filter {
    fn read(text: &str) -> Result<Self, String> {
        let (word, text) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let text = text.trim().trim_matches('"').to_owned();
        let is = |name: &str| !word.is_empty() && name.starts_with(word);
        match () {
            () if is("count") => Ok(Filter::Count),
            () if text.is_empty() => {
                Err("expected `include`, `exclude` or `begin` with a text, or `count`".into())
            }
            () if is("include") || word == "grep" => Ok(Filter::Include(text)),
            () if is("exclude") => Ok(Filter::Exclude(text)),
            () if is("begin") => Ok(Filter::Begin(text)),
            () => Err(format!("`{word}` is no filter: expected include, exclude, begin or count")),
        }
    }

    /// Copies what is kept.
    pub(super) fn pass(&self, input: impl BufRead, out: &mut impl Write) -> io::Result<()> {
        let (mut lines, mut begun) = (0u64, false);
        for line in input.lines() {
            let line = line?;
            lines += 1;
            let keep = match self {
                Filter::Include(text) => line.contains(text.as_str()),
                Filter::Exclude(text) => !line.contains(text.as_str()),
                Filter::Begin(text) => {
                    begun |= line.contains(text.as_str());
                    begun
                }
                Filter::Count => false,
            };
            if keep {
                writeln!(out, "{line}")?;
            }
        }
        match self {
            Filter::Count => writeln!(out, "{lines}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let show = clap::Command::new("show").about("Look").subcommands([
            clap::Command::new("routes").about("Routes").arg(clap::Arg::new("vrf").long("vrf")),
            clap::Command::new("interfaces").about("Interfaces"),
            clap::Command::new("acl").about("Access lists"),
            clap::Command::new("neighbors").about("Neighbours"),
            clap::Command::new("conflicts").about("Conflicts"),
            clap::Command::new("multicast").about("Multicast").subcommand(clap::Command::new("routes")),
        ]);
        Commands::new(
            &clap::Command::new("linerate").subcommand(show).subcommand(clap::Command::new("run")),
            &["show"],
        )
    }

    fn words(line: &str) -> Result<String, String> {
        commands().understand(line).map(|l| match l {
            Line::Command(words, filter) => {
                format!("{}{}", words.join(" "), filter.map_or(String::new(), |f| format!(" {f:?}")))
            }
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn lines_become_arguments() {
        for (line, wanted) in [
            ("show routes", "show routes"),
            ("sh ro 10.0.0.0/8 --longer", "show routes 10.0.0.0/8 --longer"),
            ("show ip route", "show routes"),
            ("sh ip ro 198.18.0.0/16", "show routes 198.18.0.0/16"),
            ("show ip route vrf red", "show routes --vrf red"),
            ("show ipv6 neighbors", "show neighbors"),
            ("sho int", "show interfaces"),
            ("show ip conflicts", "show conflicts"),
            ("show ip mroute", "show multicast routes"),
            ("show multicast routes 239.1.1.1", "show multicast routes 239.1.1.1"),
            ("show acl \"my list\" | include tcp", "show acl my list Include(\"tcp\")"),
            ("show routes | c", "show routes Count"),
            ("  ", "Nothing"),
            ("! a comment", "Nothing"),
            ("quit", "End"),
        ] {
            assert_eq!(words(line).as_deref(), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn what_is_no_command_is_said() {
        for (line, wanted) in [
            ("run x.toml", "`run` is no command here: expected show, help, exit, quit"),
            ("show", "`show` is not a whole command: `show ?` says what may follow"),
            ("show ip", "`show ip` is not a whole command: `show ip ?` says what may follow"),
            (
                "show colours",
                "`colours` is no command here: expected routes, interfaces, acl, neighbors, conflicts, multicast,",
            ),
            ("show routes | sort", "expected `include`, `exclude` or `begin` with a text, or `count`"),
            ("show acl \"x", "a quotation is not closed"),
        ] {
            let found = words(line).unwrap_err();
            assert!(found.starts_with(wanted), "{line}: {found}");
        }
        let Ok(Line::Help(help)) = commands().understand("show ?") else { unreachable!() };
        assert!(help.contains("routes") && help.contains("Access lists"), "{help}");
    }

    #[test]
    fn filters_keep_what_they_say() {
        let kept = |filter: &str| {
            let mut out = Vec::new();
            Filter::read(filter).unwrap().pass("a 1\nb 2\na 3\n".as_bytes(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(kept("include a"), "a 1\na 3\n");
        assert_eq!(kept("exc a"), "b 2\n");
        assert_eq!(kept("begin 2"), "b 2\na 3\n");
        assert_eq!(kept("count"), "3\n");
    }
}
