//! Columns and numbers for people.

use std::fmt::Write as _;

/// A table: the first column and those marked so are aligned left, numbers right.
pub(super) struct Table {
    left: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Column headings; a heading that begins with `<` makes its column aligned left.
    pub(super) fn new(headings: &[&str]) -> Self {
        let left = headings.iter().map(|h| h.starts_with('<')).collect();
        let row = headings.iter().map(|h| h.trim_start_matches('<').to_owned()).collect();
        Table { left, rows: vec![row] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines; only `none` where there is no row.
    pub(super) fn finish(self, none: &str) -> String {
        if self.rows.len() < 2 {
            return format!("{none}\n");
        }
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.left.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let gap = if i == 0 { "" } else { "  " };
                let (width, left) = (widths.get(i).copied().unwrap_or(0), self.left.get(i) == Some(&true));
                let _ = if left { write!(line, "{gap}{cell:<width$}") } else { write!(line, "{gap}{cell:>width$}") };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// `1,234,567`.
pub(super) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

/// A rate with a unit of thousands: `14.88 M`, `950`; `-` where it is not known.
pub(super) fn rate(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".into() };
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= unit {
            return format!("{:.2} {name}", value / unit);
        }
    }
    format!("{value:.0}")
}

/// Bytes: `1.9 MB`.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..1_000 => format!("{n} B"),
        1_000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.1} GB", n as f64 / 1e9),
    }
}

/// A share as per cent.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |s| format!("{:.1} %", s * 100.0))
}

/// Microseconds with one digit.
pub(super) fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{}", thousands(nanoseconds / 1000), nanoseconds % 1000 / 100)
}

/// A value or `-`.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |v| v.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 12_345_678].map(thousands), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([None, Some(12.4), Some(14_880_952.0), Some(1e10)].map(rate), ["-", "12", "14.88 M", "10.00 G"]);
        assert_eq!([5, 1_900_000, 2_400_000_000].map(bytes), ["5 B", "1.9 MB", "2.4 GB"]);
        assert_eq!(microseconds(1_234_567), "1,234.5");
    }
}
