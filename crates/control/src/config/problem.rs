//! What is wrong with a configuration, and where.

use std::fmt;

/// One thing that is wrong (or, as a warning, odd): where, at which key, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File name as it was given.
    pub file: String,
    /// Line, counted from 1; absent where the problem is with the file as a whole or the file is not text.
    pub line: Option<u64>,
    /// Column in characters, counted from 1.
    pub column: Option<u64>,
    /// The key, such as `port[1].mtu`; empty where no key is concerned.
    pub key: String,
    /// What was found and what was expected.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration, in file order. Displays as one line per problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(pub Vec<Problem>);

/// What is said of a CPU that this host does not have.
pub(super) const NO_SUCH_CPU: &str = "is not there: expected one of the CPUs this process may use";

impl Report {
    /// Whether it names CPUs that this host does not have: the configuration may be another host's.
    pub fn misses_cpus(&self) -> bool {
        self.0.iter().any(|p| p.message.contains(NO_SUCH_CPU))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, p) in self.0.iter().enumerate() {
            write!(f, "{}{p}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// The word of `known` that was probably meant: the nearest one, when it is near.
pub(super) fn suggest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = (word.chars().count() / 3).clamp(1, 3);
    known.into_iter().map(|k| (distance(word, k), k)).filter(|(d, _)| *d <= most).min().map(|(_, k)| k)
}

/// Edit distance; a swap of neighbouring letters counts as one edit.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut d = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                d = d.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = d;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_what_was_meant_and_nothing_far_fetched() {
        let known = ["name", "device", "mtu", "promiscuous"];
        assert_eq!(suggest("mttu", known), Some("mtu"));
        assert_eq!(suggest("devcie", known), Some("device"));
        assert_eq!(suggest("promiscous", known), Some("promiscuous"));
        assert_eq!(suggest("colour", known), None);
        assert_eq!(suggest("", known), None);
    }
}
