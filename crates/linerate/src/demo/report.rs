//! The outcome as text, JSON and HTML.

use std::fmt::Write as _;

use linerate_tester::report::html::{Page, Table};
use linerate_tester::report::results::{Figure, Results};
use linerate_tester::report::svg::{Chart, Series, number};

use super::outcome::{Case, Outcome, thousands};

/// The columns of the table, as text and HTML show them.
const COLUMNS: [&str; 11] = [
    "size B",
    "Mpps",
    "Gbps L1",
    "floor Mpps",
    "ratio",
    "lost",
    "busy",
    "limit",
    "Mpps per busy s",
    "floor Mpps per busy s",
    "ratio",
];

/// One line as a size is done.
pub(crate) fn line(c: &Case) -> String {
    let r = row(c);
    format!(
        "{:5} {:>9} B  {:>7} Mpps  {:>7} Gbps L1  floor {:>7} Mpps  ratio {:>5}  lost {:>3}  busy {:>5}",
        c.family, r[0], r[1], r[2], r[3], r[4], r[5], r[6]
    )
}

fn row(c: &Case) -> [String; 11] {
    let (rate, capacity, floor_capacity) =
        (c.router.rate().median, c.router.capacity().median, c.floor.capacity().median);
    [
        c.size(),
        number(rate),
        number(c.gbps(rate)),
        number(c.floor.rate().median),
        format!("{:.2}", c.ratio()),
        thousands(c.router.trial.lost + c.floor.trial.lost),
        format!("{:.0} %", 100.0 * c.router.busy().median),
        c.limit().into(),
        number(capacity),
        number(floor_capacity),
        format!("{:.2}", c.capacity_ratio()),
    ]
}

/// What the columns mean, and what to keep in mind.
fn notes(o: &Outcome) -> Vec<String> {
    let mut notes = vec![
        "Sizes include the 4-byte FCS; Gbps L1 count preamble and gap as well (size + 20 bytes per frame). Medians of the windows."
            .to_string(),
        "Floor: the same rings, generator and checks with a worker that only moves packets from one ring to the next."
            .into(),
        "Limit: which end the rate by the clock stops at. Where it is the tester, the router could do more; \"per busy s\" is the rate per second in which the worker had packets in hand, which does not depend on the tester."
            .into(),
    ];
    if let Some(c) = o.cases.iter().find(|c| c.frame.grown_from.is_some()) {
        notes.push(format!(
            "{} at {} B is sent as {} B: headers and the 16-byte signature by which every packet is checked do not fit into less.",
            c.family, c.asked, c.frame.size
        ));
    }
    if o.one_cpu {
        notes.push(
            "This machine gave the demo one CPU: tester and router take turns on it, so rates by the clock are those of both together."
                .into(),
        );
    }
    if let Some(taken) = o.disturbed() {
        notes.push(format!(
            "Other programs took {:.0} % of the CPUs that the demo ran on: on an idle machine the rates are higher.",
            100.0 * taken
        ));
    }
    notes
}

/// The summary as text.
pub(crate) fn text(o: &Outcome) -> String {
    let mut s = String::new();
    for family in families(o) {
        let rows: Vec<_> = o.cases.iter().filter(|c| c.family == family).map(row).collect();
        let width =
            |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0).max(COLUMNS[i].len());
        let cells = |of: &dyn Fn(usize) -> String| {
            (0..COLUMNS.len()).map(|i| format!("{:>w$}", of(i), w = width(i))).collect::<Vec<_>>().join("  ")
        };
        let _ = writeln!(s, "\n{family}\n{}", cells(&|i| COLUMNS[i].to_string()));
        for r in &rows {
            let _ = writeln!(s, "{}", cells(&|i| r[i].clone()));
        }
    }
    s.push('\n');
    for note in notes(o) {
        let _ = writeln!(s, "{note}");
    }
    for d in o.total().tally.described {
        let _ = writeln!(s, "  {d}");
    }
    for (name, n) in &o.drops {
        let _ = writeln!(s, "  dropped by the router: {name} {n}");
    }
    let _ = write!(s, "\n{} {}", if o.passed() { "PASS:" } else { "FAIL:" }, o.verdict());
    s
}

/// The outcome as the object that every measurement prints.
pub(crate) fn results(o: &Outcome, mut r: Results) -> Results {
    for c in &o.cases {
        let id = |what: &str| format!("demo.{}.{}.{what}", c.id, c.asked);
        let (rate, floor) = (c.router.rate(), c.floor.rate());
        let gbps = |s: linerate_tester::stats::Summary| linerate_tester::stats::Summary {
            median: c.gbps(s.median),
            min: c.gbps(s.min),
            max: c.gbps(s.max),
            best_tenth: c.gbps(s.best_tenth),
            runs: s.runs,
        };
        r.results.push(Figure::measured(id("rate"), "Mpps", &rate).over_floor(floor.median));
        r.results.push(Figure::measured(id("l1"), "Gbps", &gbps(rate)).over_floor(c.gbps(floor.median)));
        let capacity = Figure::measured(id("capacity"), "Mpps per busy second", &c.router.capacity());
        r.results.push(capacity.over_floor(c.floor.capacity().median));
        r.results.push(Figure::measured(id("busy"), "share", &c.router.busy()));
        r.results.push(Figure::measured(id("cpu"), "share", &c.router.cpu()));
        r.results.push(Figure::counted(id("frame"), "bytes", f64::from(c.frame.size)));
        r.results.push(Figure::counted(id("sent"), "packets", c.router.trial.sent as f64));
        r.results.push(Figure::counted(id("lost"), "packets", c.router.trial.lost as f64));
        r.results.push(Figure::counted(id("wrong"), "packets", c.router.trial.tally.bad as f64));
        r.results.push(Figure::counted(id("tester"), "Mpps", c.ceiling));
    }
    let all = o.total();
    for (id, unit, value) in [
        ("demo.sent", "packets", all.sent as f64),
        ("demo.lost", "packets", all.lost as f64),
        ("demo.wrong", "packets", all.tally.bad as f64),
        ("demo.duplicates", "packets", all.tally.duplicates as f64),
        ("demo.reordered", "packets", all.tally.reordered as f64),
        ("demo.imbalance", "packets", o.imbalance as f64),
        ("demo.ipv4.routes", "routes", o.routes.0 as f64),
        ("demo.ipv6.routes", "routes", o.routes.1 as f64),
        ("demo.load", "seconds", o.load),
        ("demo.tester_cpu", "share", o.tester_cpu),
        ("demo.duration", "seconds", o.seconds),
        ("demo.passed", "yes or no", f64::from(u8::from(o.passed()))),
    ] {
        r.results.push(Figure::counted(id, unit, value));
    }
    r
}

/// The outcome as a page.
pub(crate) fn page(o: &Outcome, r: &Results) -> Page {
    let best = |family: &str, of: &dyn Fn(&Case) -> f64| {
        o.cases.iter().filter(|c| c.family == family).map(of).fold(0.0, f64::max)
    };
    let mut headline = Vec::new();
    for family in families(o) {
        headline.push((
            format!("{} Mpps", number(best(family, &|c| c.router.rate().median))),
            format!("{family}, best size"),
        ));
        headline.push((
            format!("{} Gbps", number(best(family, &|c| c.gbps(c.router.rate().median)))),
            format!("{family} on the line (L1), best size"),
        ));
    }
    headline.push((
        thousands((o.routes.0 + o.routes.1) as u64),
        format!("routes, loaded in {} s", number(o.load)),
    ));
    headline.push((thousands(o.total().lost), format!("of {} packets lost", thousands(o.total().sent))));
    Page {
        title: "linerate demo".into(),
        lead: format!(
            "A router with a full table of {} IPv4 and {} IPv6 routes, and a tester that sends to random destinations inside it and checks every packet it gets back: port, MAC addresses, TTL, checksum, payload. One worker on one CPU, joined to the tester by DPDK rings; no NIC, no hugepages.",
            thousands(o.routes.0 as u64),
            thousands(o.routes.1 as u64)
        ),
        verdict: (o.passed(), o.verdict()),
        faults: o
            .total()
            .tally
            .described
            .into_iter()
            .chain(o.drops.iter().map(|(name, n)| format!("dropped by the router: {name} {n}")))
            .collect(),
        headline,
        charts: vec![
            chart(o, "Packet rate by the clock", "Mpps", |_, side| side.rate().median),
            chart(o, "Line rate by the clock", "Gbps L1", |c, side| c.gbps(side.rate().median)),
            chart(o, "Packet rate per second the worker is busy", "Mpps", |_, side| side.capacity().median),
            chart(o, "Line rate per second the worker is busy", "Gbps L1", |c, side| {
                c.gbps(side.capacity().median)
            }),
        ],
        tables: families(o).into_iter().map(|f| table(o, f)).collect(),
        facts: vec![("Host".into(), r.host.clone()), ("Run".into(), r.config.clone())],
    }
}

fn table(o: &Outcome, family: &str) -> Table {
    let mut columns: Vec<String> = COLUMNS.iter().map(|c| c.to_string()).collect();
    columns.extend(["tester alone Mpps", "min … max Mpps", "sent", "wrong"].map(String::from));
    let rows = o.cases.iter().filter(|c| c.family == family).map(|c| {
        let rate = c.router.rate();
        let mut cells = row(c).to_vec();
        cells.push(number(c.ceiling));
        cells.push(format!("{} … {}", number(rate.min), number(rate.max)));
        cells.push(thousands(c.router.trial.sent));
        cells.push(thousands(c.router.trial.tally.bad));
        cells
    });
    let last = families(o).last() == Some(&family);
    Table {
        title: family.into(),
        columns,
        rows: rows.collect(),
        notes: if last { notes(o) } else { Vec::new() },
    }
}

fn chart(o: &Outcome, title: &str, unit: &str, value: impl Fn(&Case, &super::outcome::Side) -> f64) -> Chart {
    let mut sizes: Vec<u16> = o.cases.iter().map(|c| c.asked).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut series = Vec::new();
    for floor in [true, false] {
        for (family, class) in families(o).into_iter().zip([["a", "a floor"], ["b", "b floor"]]).rev() {
            let of = |size: &u16| {
                let c = o.cases.iter().find(|c| c.family == family && c.asked == *size)?;
                Some(value(c, if floor { &c.floor } else { &c.router }))
            };
            series.push(Series {
                name: if floor { format!("{family} I/O floor") } else { format!("{family} router") },
                class: class[usize::from(floor)],
                values: sizes.iter().map(of).collect(),
            });
        }
    }
    Chart {
        title: title.into(),
        y_label: unit.into(),
        x_label: "frame size in bytes, FCS included".into(),
        categories: sizes.iter().map(u16::to_string).collect(),
        series,
    }
}

fn families(o: &Outcome) -> Vec<&'static str> {
    let mut names: Vec<_> = o.cases.iter().map(|c| c.family).collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::outcome::tests::outcome;

    #[test]
    fn ids_are_stable() {
        let r = results(&outcome(), Results::default());
        let ids: Vec<_> = r.results.iter().map(|f| f.id.as_str()).collect();
        assert_eq!(
            ids[..10],
            ["rate", "l1", "capacity", "busy", "cpu", "frame", "sent", "lost", "wrong", "tester"]
                .map(|w| format!("demo.ipv4.64.{w}"))
        );
        for id in ["demo.ipv6.1518.rate", "demo.sent", "demo.lost", "demo.load", "demo.passed"] {
            assert!(ids.contains(&id), "{id}");
        }
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len());
        let rate = &r.results[0];
        assert_eq!((rate.runs, rate.unit), (4, "Mpps"));
        assert!(rate.min <= rate.value && rate.value <= rate.max && rate.ratio.is_some());
    }

    #[test]
    fn the_page_has_all_charts_lines_and_rows() {
        let o = outcome();
        let page = page(&o, &Results::default());
        assert_eq!(page.charts.len(), 4);
        for c in &page.charts {
            assert_eq!(c.series.len(), 4, "router and floor of both families");
            assert!(c.series.iter().all(|s| s.values.len() == 2 && s.values.iter().all(Option::is_some)));
        }
        assert_eq!(page.tables.iter().map(|t| t.rows.len()).sum::<usize>(), 4);
        let html = page.html();
        assert!(html.contains("64 → 82") && html.contains("612,927") && html.contains("verdict good"));
    }

    #[test]
    fn the_text_says_what_was_wrong() {
        let mut o = outcome();
        assert!(text(&o).ends_with(
            "PASS: 8,000,000 packets sent, every one of them came back and was right in every byte."
        ));
        o.cases[0].router.trial.tally.bad = 1;
        o.cases[0].router.trial.tally.described.push("packet 7 to 8.8.8.8: TTL 64".into());
        o.tester_cpu = 0.7;
        assert!(text(&o).contains("Other programs took 30 %"), "{}", text(&o));
        o.one_cpu = true;
        let t = text(&o);
        assert!(t.contains("FAIL:") && t.contains("TTL 64") && t.contains("one CPU"), "{t}");
        assert!(line(&o.cases[2]).contains("64 → 82 B"));
    }
}
