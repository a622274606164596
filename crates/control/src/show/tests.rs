//! Text and JSON of every message, as a user sees them: through the API's own views.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::routes::RouteQuery;
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
fn neighbors() {
    both("neighbors", &views::neighbors());
}

#[test]
fn drops() {
    both("drops", &views::drops());
}

#[test]
fn graph() {
    both("graph", &views::graph());
}

#[test]
fn fib() {
    both("fib", &views::fibs());
}

#[test]
fn trace() {
    both("trace", &views::trace());
    assert_eq!(Trace::default().text(), "no packet was received in that time\n");
}

#[test]
fn status() {
    both("status", &Status {
        version: "0.1.0".into(),
        pid: 42,
        uptime_seconds: 3661,
        config: "/etc/linerate.toml".into(),
        resident_bytes: Some(123_456_789),
    });
}

#[test]
fn routes() {
    both("routes", &views::routes(&RouteQuery::default()));
    both("routes_page", &views::routes(&RouteQuery { offset: 1, limit: Some(2), ..RouteQuery::default() }));
}

#[test]
fn nothing_to_show_is_said() {
    let texts = [
        Ports::default().text(),
        Workers::default().text(),
        Queues::default().text(),
        Interfaces::default().text(),
        Neighbors::default().text(),
        Drops::default().text(),
        Graph::default().text(),
        Fibs::default().text(),
        Routes::default().text(),
    ];
    assert!(texts.iter().all(|t| t.lines().count() == 1 && !t.trim().is_empty()), "{texts:?}");
}

#[test]
fn routes_are_filtered() {
    let prefixes = |query: RouteQuery| -> Vec<String> {
        views::routes(&query).routes.iter().map(|r| r.prefix.to_string()).collect()
    };
    let net = |t: &str| Some(t.parse().unwrap());
    let address = |t: &str| Some(t.parse().unwrap());
    let q = RouteQuery::default;
    assert_eq!(prefixes(RouteQuery { prefix: net("10.0.0.0/8"), ..q() }), ["10.0.0.0/8"]);
    let longer = RouteQuery { prefix: net("10.0.0.0/8"), longer: true, ..q() };
    assert_eq!(prefixes(longer), ["10.0.0.0/8", "10.0.0.0/24", "10.9.0.0/16"]);
    assert_eq!(prefixes(RouteQuery { prefix: net("10.0.0.0/9"), ..q() }), [""; 0]);
    assert_eq!(prefixes(RouteQuery { longest: address("10.9.1.1"), ..q() }), ["10.9.0.0/16"]);
    assert_eq!(prefixes(RouteQuery { longest: address("10.8.1.1"), ..q() }), ["10.0.0.0/8"]);
    assert_eq!(prefixes(RouteQuery { longest: address("8.8.8.8"), ..q() }), ["0.0.0.0/0"]);
    assert_eq!(prefixes(RouteQuery { longest: address("2001:db8::1"), ..q() }), [""; 0]);
    assert_eq!(prefixes(RouteQuery { via: address("198.18.0.3"), ..q() }), ["10.9.0.0/16"]);
    assert_eq!(prefixes(RouteQuery { source: Some("connected".into()), ..q() }), ["10.0.0.0/24"]);
}

#[test]
fn pages_follow_each_other_without_gap_or_overlap() {
    let all: Vec<_> = views::routes(&RouteQuery::default()).routes;
    let mut seen = Vec::new();
    let mut offset = Some(0);
    while let Some(at) = offset {
        let page = views::routes(&RouteQuery { offset: at, limit: Some(2), ..RouteQuery::default() });
        assert_eq!(page.matching, all.len());
        seen.extend(page.routes);
        offset = page.next;
    }
    assert_eq!(seen, all);
}
