//! From TOML to typed values, key by key: strict, and every problem is noted with its place instead of ending the
//! reading, so that one run reports all of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::de::DeValue;

use super::problem::{Problem, suggest};

/// The file being read: turns offsets into lines and collects what is wrong.
pub(super) struct Source<'a> {
    name: &'a str,
    text: &'a str,
    /// Where each line begins: places are asked for once per item and problem, in files of up to 16 MiB.
    lines: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Problem>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(i, _)| i + 1)).collect();
        Source { name, text, lines, problems: RefCell::default(), warnings: RefCell::default() }
    }

    /// Line of an offset, counted from 1.
    pub(super) fn line(&self, at: usize) -> u64 {
        self.place(at).0
    }

    pub(super) fn problem(&self, at: usize, key: impl Display, message: impl Into<String>) {
        self.problems.borrow_mut().push(self.make(at, key, message));
    }

    pub(super) fn warning(&self, at: usize, key: impl Display, message: impl Into<String>) {
        self.warnings.borrow_mut().push(self.make(at, key, message));
    }

    /// A problem in another file.
    pub(super) fn foreign(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Number of problems so far.
    pub(super) fn failed(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Problems and warnings, in file order.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Problem>) {
        let order = |mut all: Vec<Problem>| {
            // The order of other files' problems among each other is kept (the sort is stable).
            all.sort_by_key(|p| (p.file != self.name, (p.file == self.name).then_some((p.line, p.column))));
            all
        };
        (order(self.problems.into_inner()), order(self.warnings.into_inner()))
    }

    fn make(&self, at: usize, key: impl Display, message: impl Into<String>) -> Problem {
        let (line, column) = self.place(at);
        Problem {
            file: self.name.into(),
            line: Some(line),
            column: Some(column),
            key: key.to_string(),
            message: message.into(),
        }
    }

    fn place(&self, at: usize) -> (u64, u64) {
        let at = at.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= at);
        let start = line.checked_sub(1).and_then(|i| self.lines.get(i)).copied().unwrap_or_default();
        let before = self.text.get(start..at).unwrap_or_default();
        (line as u64, before.chars().count() as u64 + 1)
    }
}

/// A value together with its key and place, for problems that show only later.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) key: String,
    pub(super) at: usize,
}

impl<T> At<T> {
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At { value: f(self.value), key: self.key, at: self.at }
    }

    pub(super) fn problem(&self, source: &Source<'_>, message: impl Into<String>) {
        source.problem(self.at, &self.key, message);
    }

    pub(super) fn warning(&self, source: &Source<'_>, message: impl Into<String>) {
        source.warning(self.at, &self.key, message);
    }
}

/// A value of any type.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) key: String,
    pub(super) at: usize,
    value: &'a DeValue<'a>,
    pub(super) source: &'a Source<'a>,
}

impl<'a> Item<'a> {
    pub(super) fn new(key: String, at: usize, value: &'a DeValue<'a>, source: &'a Source<'a>) -> Self {
        Item { key, at, value, source }
    }

    /// Notes that something else was expected.
    pub(super) fn expected(&self, what: impl Display) {
        self.source.problem(self.at, &self.key, format!("found {}: expected {what}", show(self.value)));
    }

    fn give<T>(&self, value: T) -> Option<At<T>> {
        Some(At { value, key: self.key.clone(), at: self.at })
    }

    pub(super) fn is_string(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn string(&self, what: &str) -> Option<At<String>> {
        match self.value.as_str() {
            Some(s) if !s.is_empty() => self.give(s.into()),
            _ => {
                self.expected(what);
                None
            }
        }
    }

    pub(super) fn bool(&self) -> Option<At<bool>> {
        match self.value.as_bool() {
            Some(b) => self.give(b),
            None => {
                self.expected("true or false");
                None
            }
        }
    }

    /// An integer in `range`; `what` names it: "an MTU".
    pub(super) fn number<T>(&self, range: RangeInclusive<T>, what: &str) -> Option<At<T>>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let number = self.value.as_integer().and_then(|i| i64::from_str_radix(i.as_str(), i.radix()).ok());
        match number.and_then(|n| T::try_from(n).ok()).filter(|n| range.contains(n)) {
            Some(n) => self.give(n),
            None => {
                self.expected(format_args!("{what} from {} to {}", range.start(), range.end()));
                None
            }
        }
    }

    /// A string that parses.
    pub(super) fn parse<T: FromStr>(&self, what: &str) -> Option<At<T>> {
        match self.value.as_str().and_then(|s| s.parse().ok()) {
            Some(v) => self.give(v),
            None => {
                self.expected(what);
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<At<T>> {
        let found = self.value.as_str();
        if let Some((_, value)) = words.iter().find(|(w, _)| Some(*w) == found) {
            return self.give(*value);
        }
        let list = words.iter().map(|(w, _)| format!("\"{w}\"")).collect::<Vec<_>>().join(" or ");
        self.expected(list);
        None
    }

    pub(super) fn list(&self, what: &str) -> Option<Vec<Item<'a>>> {
        let Some(array) = self.value.as_array() else {
            self.expected(what);
            return None;
        };
        let item = |(i, v): (usize, &'a toml::Spanned<DeValue<'a>>)| {
            Item::new(format!("{}[{i}]", self.key), v.span().start, v.get_ref(), self.source)
        };
        Some(array.iter().enumerate().map(item).collect())
    }

    pub(super) fn section(&self, what: &str) -> Option<Section<'a>> {
        let Some(table) = self.value.as_table() else {
            self.expected(what);
            return None;
        };
        let fields = table.iter().map(|(k, v)| {
            let name: &'a str = k.get_ref();
            let key = if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) };
            (name, (k.span().start, Item::new(key, v.span().start, v.get_ref(), self.source)))
        });
        Some(Section {
            key: self.key.clone(),
            at: self.at,
            fields: fields.collect(),
            known: Vec::new(),
            source: self.source,
        })
    }
}

/// A table whose keys are taken one by one; what is left at the end is unknown.
pub(super) struct Section<'a> {
    pub(super) key: String,
    pub(super) at: usize,
    fields: BTreeMap<&'a str, (usize, Item<'a>)>,
    known: Vec<&'static str>,
    pub(super) source: &'a Source<'a>,
}

impl<'a> Section<'a> {
    /// The value of a key that may be absent.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Item<'a>> {
        self.known.push(key);
        self.fields.remove(key).map(|(_, item)| item)
    }

    /// The value of a key that must be there.
    pub(super) fn need(&mut self, key: &'static str, what: &str) -> Option<Item<'a>> {
        let item = self.take(key);
        if item.is_none() {
            // A misspelled key is reported once, as that.
            let misspelled = self.fields.keys().any(|k| suggest(k, [key]).is_some());
            if !misspelled {
                self.source.problem(
                    self.at,
                    &self.key,
                    format!("the key `{key}` is missing: expected {what}"),
                );
            }
        }
        item
    }

    /// Takes a number, or the default.
    pub(super) fn number<T>(
        &mut self,
        key: &'static str,
        range: RangeInclusive<T>,
        what: &str,
        default: T,
    ) -> T
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        self.take(key).and_then(|i| i.number(range, what)).map_or(default, |n| n.value)
    }

    /// Takes true or false, or the default.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.take(key).and_then(|i| i.bool()).map_or(default, |b| b.value)
    }

    /// Takes all entries, whatever their keys: for tables that map names chosen by the user.
    pub(super) fn entries(mut self) -> impl Iterator<Item = (At<&'a str>, Item<'a>)> {
        std::mem::take(&mut self.fields)
            .into_iter()
            .map(|(name, (at, item))| (At { value: name, key: item.key.clone(), at }, item))
    }

    /// Reports the keys that nothing took.
    pub(super) fn finish(self) {
        for (name, (at, item)) in &self.fields {
            let known = self.known.join(", ");
            let message = match suggest(name, self.known.iter().copied()) {
                Some(meant) => format!("unknown key `{name}`: did you mean `{meant}`?"),
                None => format!("unknown key `{name}`: expected one of {known}"),
            };
            self.source.problem(*at, &item.key, message);
        }
    }
}

/// A value as a message shows it.
fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(s) if s.chars().count() > 60 => {
            format!("\"{}…\"", s.chars().take(60).collect::<String>().escape_debug())
        }
        DeValue::String(s) => format!("\"{}\"", s.escape_debug()),
        DeValue::Integer(i) => {
            let base =
                [(2, "0b"), (8, "0o"), (16, "0x")].iter().find(|(r, _)| *r == i.radix()).map_or("", |b| b.1);
            format!("{base}{}", i.as_str())
        }
        DeValue::Float(f) => f.as_str().into(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
    }
}
