//! A page that needs nothing but itself: charts, tables, verdict.

use std::fmt::Write as _;

use super::svg::{Chart, escape};

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Heading above it.
    pub title: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows; cells beyond the columns are left out.
    pub rows: Vec<Vec<String>>,
    /// Sentences below it.
    pub notes: Vec<String>,
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Title of the page.
    pub title: String,
    /// A sentence that says what this is.
    pub lead: String,
    /// The verdict in a sentence, and whether it is a good one.
    pub verdict: (bool, String),
    /// What went wrong, in words.
    pub faults: Vec<String>,
    /// Figures worth showing large: value, what it is.
    pub headline: Vec<(String, String)>,
    /// Charts.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Pairs about host and run.
    pub facts: Vec<(String, Vec<(String, String)>)>,
}

impl Page {
    /// The page as one HTML document.
    pub fn html(&self) -> String {
        let mut s = String::with_capacity(64 << 10);
        let title = escape(&self.title);
        let _ = write!(
            s,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n<p class=\"lead\">{}</p>\n",
            escape(&self.lead)
        );
        let (good, verdict) = &self.verdict;
        let class = if *good { "good" } else { "bad" };
        let mark = if *good { "✓" } else { "✗" };
        let _ = writeln!(s, "<p class=\"verdict {class}\"><b>{mark}</b> {}</p>", escape(verdict));
        if !self.faults.is_empty() {
            s.push_str("<ul class=\"faults\">\n");
            self.faults.iter().for_each(|f| {
                let _ = writeln!(s, "<li>{}</li>", escape(f));
            });
            s.push_str("</ul>\n");
        }
        if !self.headline.is_empty() {
            s.push_str("<div class=\"headline\">\n");
            for (value, what) in &self.headline {
                let _ = writeln!(s, "<div><b>{}</b><span>{}</span></div>", escape(value), escape(what));
            }
            s.push_str("</div>\n");
        }
        s.push_str("<div class=\"charts\">\n");
        for c in &self.charts {
            let _ = writeln!(
                s,
                "<figure>\n<figcaption>{}</figcaption>\n{}{}</figure>",
                escape(&c.title),
                c.legend(),
                c.svg()
            );
        }
        s.push_str("</div>\n");
        self.tables.iter().for_each(|t| t.write(&mut s));
        s.push_str("<div class=\"facts\">\n");
        for (heading, pairs) in &self.facts {
            let _ = writeln!(s, "<section>\n<h2>{}</h2>\n<dl>", escape(heading));
            for (key, value) in pairs {
                let _ = writeln!(s, "<dt>{}</dt><dd>{}</dd>", escape(key), escape(value));
            }
            s.push_str("</dl>\n</section>\n");
        }
        s.push_str("</div>\n</main>\n</body>\n</html>\n");
        s
    }
}

impl Table {
    fn write(&self, s: &mut String) {
        let _ = writeln!(
            s,
            "<section>\n<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>",
            escape(&self.title),
            self.columns.iter().map(|c| format!("<th>{}</th>", escape(c))).collect::<String>()
        );
        for row in &self.rows {
            let cells = row.iter().take(self.columns.len());
            let _ = writeln!(
                s,
                "<tr>{}</tr>",
                cells.map(|c| format!("<td>{}</td>", escape(c))).collect::<String>()
            );
        }
        s.push_str("</tbody></table></div>\n");
        self.notes.iter().for_each(|n| {
            let _ = writeln!(s, "<p class=\"note\">{}</p>", escape(n));
        });
        s.push_str("</section>\n");
    }
}

const STYLE: &str = "
:root { --ink: #1d2733; --soft: #5a6775; --paper: #ffffff; --panel: #f5f7f9; --grid: #dfe5ea; --a: #0b66c3; --b: #c2410c;
  --good: #166534; --good-bg: #e7f6ec; --bad: #991b1b; --bad-bg: #fdeaea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --soft: #9fb0c0; --paper: #12171d; --panel: #1a212a; --grid: #2e3945; --a: #6bb2ff; --b: #ff9d66;
    --good: #86efac; --good-bg: #12301e; --bad: #fca5a5; --bad-bg: #3a1719; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto,
  'Noto Sans', 'DejaVu Sans', sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 8px; }
h2 { font-size: 18px; margin: 36px 0 10px; }
.lead { color: var(--soft); max-width: 86ch; margin: 0 0 20px; }
.verdict { padding: 12px 16px; border-radius: 8px; margin: 0 0 16px; }
.verdict b { margin-right: 6px; }
.good { background: var(--good-bg); color: var(--good); }
.bad { background: var(--bad-bg); color: var(--bad); }
.faults { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 13px; }
.headline { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 0 0 24px; }
.headline div { background: var(--panel); border-radius: 8px; padding: 12px 16px; }
.headline b { display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.headline span { color: var(--soft); font-size: 14px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 20px; }
figure { margin: 0; padding: 16px; background: var(--panel); border-radius: 8px; }
figcaption { font-weight: 600; margin-bottom: 4px; }
figure > svg { width: 100%; height: auto; display: block; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 8px; font-size: 13px; color: var(--soft); }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.grid { stroke: var(--grid); stroke-width: 1; }
.tick { fill: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
.label { fill: var(--soft); font-size: 13px; }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.line.a { stroke: var(--a); } .line.b { stroke: var(--b); }
.line.floor { stroke-width: 1.75; stroke-dasharray: 6 5; opacity: .75; }
.dot.a { fill: var(--a); } .dot.b { fill: var(--b); }
.dot.floor { opacity: .6; r: 2.5px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--grid); padding: 6px 10px;
  vertical-align: bottom; }
td { text-align: right; border-bottom: 1px solid var(--grid); padding: 5px 10px; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.note { color: var(--soft); font-size: 14px; max-width: 100ch; margin: 8px 0 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 40px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Series;

    fn page() -> Page {
        Page {
            title: "Demo <1>".into(),
            lead: "What it is.".into(),
            verdict: (false, "3 packets were lost".into()),
            faults: vec!["packet 7 to 10.0.0.1: TTL 64 instead of 63".into()],
            headline: vec![("9.3 Mpps".into(), "IPv4, 64 B".into())],
            charts: vec![Chart {
                title: "Rate".into(),
                y_label: "Mpps".into(),
                x_label: "bytes".into(),
                categories: vec!["64".into()],
                series: vec![Series { name: "IPv4".into(), class: "a", values: vec![Some(1.0)] }],
            }],
            tables: vec![Table {
                title: "All".into(),
                columns: vec!["size".into(), "Mpps".into()],
                rows: vec![vec!["64".into(), "9.3".into(), "beyond".into()]],
                notes: vec!["A note.".into()],
            }],
            facts: vec![("Host".into(), vec![("cpu".into(), "x & y".into())])],
        }
    }

    #[test]
    fn the_page_is_self_contained_and_its_elements_are_closed() {
        let html = page().html();
        for outside in ["http:", "https:", "src=", "href=", "@import", "url(", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
        let body = &html[html.find("<body>").unwrap()..];
        for tag in [
            "main", "section", "table", "tr", "td", "th", "figure", "svg", "dl", "div", "ul", "li", "p",
            "span",
        ] {
            let open = body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
            assert_eq!(open, body.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(html.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn everything_given_is_on_the_page_and_escaped() {
        let html = page().html();
        for text in [
            "Demo &lt;1&gt;",
            "3 packets were lost",
            "TTL 64 instead of 63",
            "9.3 Mpps",
            "A note.",
            "x &amp; y",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(html.contains("class=\"verdict bad\"") && !html.contains("beyond"));
    }
}
