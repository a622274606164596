//! Text and JSON of every message, as a user sees them: through the API's own views.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::routes::RouteQuery;
use super::trace::{TracedHop, TracedPacket};
use super::*;
use crate::api::test_views as views;

/// Checks both forms, and that the JSON form reads back as the same message.
fn both<T: Text + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(name: &str, message: &T) {
    insta::assert_snapshot!(format!("{name}.text"), message.text());
    insta::assert_json_snapshot!(format!("{name}.json"), message);
    let json = serde_json::to_string(message).unwrap();
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), *message);
}

#[test]
fn ports() {
    both("ports", &views::ports());
}

#[test]
fn workers() {
    both("workers", &views::workers());
}

#[test]
fn queues() {
    both("queues", &views::queues());
    let moved = QueueMoved { port: "wan".into(), queue: 1, from: 0, to: 1, gap_ns: 12_345 };
    both("queue_moved", &moved);
    assert_eq!(QueueMoved { from: 1, ..moved }.text(), "queue 1 of wan was on worker 1 already\n");
}

#[test]
fn interfaces() {
    both("interfaces", &views::interfaces());
}

#[test]
fn linux() {
    both("linux", &views::linux());
    both("punt", &views::punt());
    assert!(Linux::default().text().contains("no [linux]") && Punt::default().text().contains("no [linux]"));
}

#[test]
fn neighbors() {
    both("neighbors", &views::neighbors());
    both("conflicts", &views::conflicts());
}

#[test]
fn acls() {
    both("acls", &views::acls());
    both("acl_log", &views::acl_log());
}

#[test]
fn multicast_routes() {
    both("multicast_routes", &views::multicast_routes());
    let more = MulticastRoutes { left_out: 7, ..MulticastRoutes::default() };
    assert!(more.text().ends_with("7 more are not shown: name a group, a source or an interface\n"));
}

#[test]
fn drops() {
    let mut drops = views::drops();
    // The wording is the pipeline's own affair.
    assert!(drops.drops.iter().all(|d| d.explanation.ends_with('.')));
    drops.drops.iter_mut().for_each(|d| d.explanation = "One sentence.".into());
    both("drops", &drops);
    assert!(drops.unaccounted.is_empty() || drops.text().contains("not accounted for: wan "));
    let off = Drops {
        unaccounted: vec![drops::Unaccounted { port: "wan".into(), packets: -3 }],
        ..Drops::default()
    };
    assert_eq!(
        off.text(),
        "nothing was dropped\nnot accounted for: wan -3 (none at rest; under load the bursts in hand)\n"
    );
}

#[test]
fn router() {
    both("router", &views::router());
}

#[test]
fn graph() {
    both("graph", &views::graph());
}

#[test]
fn fib() {
    both("fib", &views::fibs());
    both("vrfs", &views::vrfs());
}

#[test]
fn trace() {
    both("trace", &views::trace());
    assert_eq!(Trace::default().text(), "no packet was received in that time\n");
    let hop = TracedHop {
        node: "output".into(),
        exit: "queued".into(),
        text: "port 1".into(),
        ..TracedHop::default()
    };
    let packet = TracedPacket { worker: 0, packet: 7, hops: vec![hop] };
    let text = Trace { packets: vec![packet], lost: 0 }.text();
    assert_eq!(text.lines().last().map(str::trim_end), Some("  output  queued  port 1"), "{text}");
}

#[test]
fn status() {
    both(
        "status",
        &Status {
            version: "0.1.0".into(),
            pid: 42,
            uptime_seconds: 3661,
            config: "/etc/linerate.toml".into(),
            resident_bytes: Some(123_456_789),
        },
    );
}

#[test]
fn routes() {
    both("routes", &views::routes(&RouteQuery::default()));
    both("routes_page", &views::routes(&RouteQuery { limit: Some(2), ..RouteQuery::default() }));
}

#[test]
fn nothing_to_show_is_said() {
    let texts = [
        Ports::default().text(),
        Workers::default().text(),
        Queues::default().text(),
        Interfaces::default().text(),
        Neighbors::default().text(),
        MulticastRoutes::default().text(),
        Drops::default().text(),
        Graph::default().text(),
        Fibs::default().text(),
        Routes::default().text(),
    ];
    assert!(texts.iter().all(|t| t.lines().count() == 1 && !t.trim().is_empty()), "{texts:?}");
}
