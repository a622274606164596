//! The API over real sockets: every view, every refusal, and clients that misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::config::ApiSpec;
use crate::fake::Fake;
use crate::show::routes::RouteQuery;
use crate::show::{self, MoveQueue, QueueMoved, Trace, TraceRequest};

struct Api {
    _dir: tempfile::TempDir,
    spec: ApiSpec,
    fake: Arc<Fake>,
    server: Option<Server>,
}

impl Api {
    fn start() -> Self {
        Self::start_with(|_, _| {})
    }

    fn start_with(change: impl Fn(&mut ApiSpec, &std::path::Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = ApiSpec { socket: dir.path().join("run/api.sock"), listen: None };
        change(&mut spec, dir.path());
        let mut api = Api { _dir: dir, spec, fake: Fake::new(), server: None };
        api.serve(Listeners::bind(&api.spec).unwrap());
        api
    }

    fn serve(&mut self, listeners: Listeners) {
        let about = About { version: "0.1.0".into(), config: "t.toml".into() };
        self.server = Some(Server::start(listeners, self.fake.clone(), about, Some(0)).unwrap());
    }

    fn client(&self) -> Client {
        Client::new(&self.spec.socket).unwrap()
    }

    /// Sends raw bytes and returns all that comes back.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.spec.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server may refuse and close before it has read everything.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn refused(&self, head: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let answer = self.raw(
            format!("{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
                .as_bytes(),
        );
        parts(&answer)
    }
}

fn parts(answer: &str) -> (u16, String) {
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| panic!("no status: {answer}"));
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    (
        status,
        serde_json::from_str::<ErrorBody>(body)
            .map(|e| e.error)
            .unwrap_or_else(|_| panic!("no JSON error: {answer}")),
    )
}

#[test]
fn every_view_is_served() {
    let api = Api::start();
    let client = api.client();
    let status: show::Status = client.get("/v1/status").unwrap();
    assert_eq!(
        (status.version.as_str(), status.config.as_str(), status.pid),
        ("0.1.0", "t.toml", std::process::id())
    );
    assert!(status.resident_bytes.unwrap() > 1 << 20);
    assert_eq!(client.get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2);
    assert_eq!(client.get::<show::Workers>("/v1/workers").unwrap().workers[1].queues, ["wan:1", "lan:0"]);
    assert_eq!(client.get::<show::Queues>("/v1/queues").unwrap().queues.len(), 3);
    assert_eq!(client.get::<show::Interfaces>("/v1/interfaces").unwrap().interfaces.len(), 2);
    assert_eq!(client.get::<show::Neighbors>("/v1/neighbors").unwrap().neighbors[0].state, "static");
    assert_eq!(client.get::<show::Conflicts>("/v1/conflicts").unwrap().conflicts[0].count, 4_711);
    let figures = client.get::<show::Router>("/v1/router").unwrap();
    assert_eq!((figures.neighbors.duplicates, figures.lost.events, figures.lost.trace_hops), (12_345, 9, 5));
    assert_eq!(client.get::<show::Drops>("/v1/drops").unwrap().total, 3000);
    api.fake.workers[0].counters.port(0).received.add(3);
    let off = client.get::<show::Drops>("/v1/drops").unwrap().unaccounted;
    assert_eq!(off, [show::drops::Unaccounted { port: "wan".into(), packets: 3 }]);
    assert_eq!(client.get::<show::Graph>("/v1/graph").unwrap().nodes[0].packets, 2_000_000);
    assert_eq!(client.get::<show::Fibs>("/v1/fib").unwrap().fibs[0].routes, 901_899);
    assert_eq!(client.get::<show::Routes>("/v1/routes").unwrap().routes.len(), 6);
}

#[test]
fn pages_of_routes_follow_each_other_without_gap_or_overlap() {
    let api = Api::start();
    let client = api.client();
    let mut query = RouteQuery { limit: Some(4), ..RouteQuery::default() };
    let first: show::Routes = client.get(&query.to_path()).unwrap();
    query.after = first.next;
    let second: show::Routes = client.get(&query.to_path()).unwrap();
    assert_eq!(second.next, None);
    let all: show::Routes = client.get("/v1/routes").unwrap();
    assert_eq!([first.routes, second.routes].concat(), all.routes);
    let wrong = RouteQuery { interface: Some("x&y".into()), ..RouteQuery::default() };
    let error = client.get::<show::Routes>(&wrong.to_path()).unwrap_err();
    assert_eq!(error.to_string(), "there is no such interface");
}

#[test]
fn rates_appear_after_two_samples() {
    let api = Api::start();
    let client = api.client();
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        api.fake.workers[0].counters.port(0).received.add(1000);
        let ports: show::Ports = client.get("/v1/ports").unwrap();
        if ports.ports[0].rx.pps.is_some_and(|p| p > 0.0) {
            break;
        }
        assert!(Instant::now() < end, "no rate after ten seconds");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn queues_move_and_refusals_say_why() {
    let api = Api::start();
    let client = api.client();
    let ask = |port: &str, queue, worker| {
        client.post::<QueueMoved>("/v1/queues/move", &MoveQueue { port: port.into(), queue, worker })
    };
    let moved = ask("wan", 1, 0).unwrap();
    assert_eq!((moved.from, moved.to, moved.gap_ns), (1, 0, 12_300));
    assert_eq!(client.get::<show::Queues>("/v1/queues").unwrap().queues[1].worker, 0);
    assert_eq!(
        ask("wan", 7, 0).unwrap_err().to_string(),
        "port `wan` has no receive queue 7: expected one of 0, 1"
    );
    assert_eq!(ask("lan", 1, 0).unwrap_err().to_string(), "port `lan` has no receive queue 1: expected 0");
    assert_eq!(ask("wen", 0, 0).unwrap_err().to_string(), "there is no port `wen`: expected one of wan, lan");
}

#[test]
fn traces_are_armed_taken_and_disarmed() {
    let api = Api::start();
    let request = TraceRequest { packets: 1, port: Some("wan".into()), wait_ms: 500 };
    let trace: Trace = api.client().post("/v1/trace", &request).unwrap();
    assert_eq!(trace.packets.len(), 3);
    assert_eq!(trace.packets[0].hops[1].to, "drop:no_route");
    assert_eq!(*api.fake.armed.lock().unwrap(), [(1, Some(0)), (0, None)]);
}

#[test]
fn bad_requests_are_answered_in_one_sentence() {
    let api = Api::start();
    let cases = [
        ("GET /v1/nothing", "", 404, "there is nothing at this path: expected /v1/ and status, ports"),
        ("POST /v1/ports", "", 405, "this path takes another method"),
        ("GET /v1/routes?prefix=10.0.0.1/8", "", 400, "the prefix has host bits set"),
        (
            "GET /v1/routes?prefix=ten",
            "",
            400,
            "Failed to deserialize query string: prefix: invalid IP address syntax",
        ),
        ("GET /v1/routes?longer=true", "", 400, "`longer` needs a `prefix`"),
        ("GET /v1/routes?limit=10001", "", 400, "expected a limit from 1 to 10000"),
        ("GET /v1/routes?colour=red", "", 400, "unknown field `colour`"),
        ("POST /v1/queues/move", "{", 400, "Failed to parse the request body as JSON"),
        (
            "POST /v1/queues/move",
            "{\"port\":\"wan\",\"queue\":-1,\"worker\":0}",
            422,
            "queue: invalid value: integer `-1`, expected u16",
        ),
        (
            "POST /v1/queues/move",
            "{\"port\":\"wan\",\"queue\":1,\"worker\":0,\"x\":1}",
            422,
            "unknown field `x`",
        ),
        ("POST /v1/trace", "{\"packets\":0}", 400, "expected 1 to 100 packets"),
        ("POST /v1/trace", "{\"packets\":1,\"wait_ms\":60000}", 400, "expected a wait of at most 5000 ms"),
    ];
    for (head, body, status, message) in cases {
        let (found, error) = api.refused(head, body);
        assert!(found == status && error.contains(message), "{head} {body}: {found} {error}");
    }
}

#[test]
fn every_path_that_is_served_is_named_to_those_who_ask_for_another() {
    let api = Api::start();
    let (_, error) = api.refused("GET /", "");
    let (_, names) = error.split_once("/v1/ and ").unwrap();
    for name in names.replace(" or ", ", ").split(", ") {
        let head = format!("GET /v1/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = api.raw(head.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.1 405"), "{name}: {answer}");
    }
}

#[test]
fn a_body_without_its_content_type_is_answered_with_what_to_send() {
    let answer = Api::start().raw(
        b"POST /v1/trace HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"packets\":1}",
    );
    let (status, error) = parts(&answer);
    assert!(status == 415 && error.contains("`Content-Type: application/json`"), "{status} {error}");
}

#[test]
fn oversized_and_broken_requests_do_no_harm() {
    let api = Api::start();
    let (status, error) = api.refused("POST /v1/trace", &"x".repeat(100_000));
    assert!(status == 413 && error.contains("length limit"), "{status} {error}");
    let head = format!("GET /v1/ports HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    assert!(api.raw(head.as_bytes()).starts_with("HTTP/1.1 431"));
    assert!(api.raw(b"\0\xff\x16\x03\x01garbage\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert_eq!(api.client().get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2);
}

#[test]
fn slow_clients_are_cut_off_and_keep_nobody_waiting_for_long() {
    let api = Api::start();
    // As many as are served at a time, none of which ever finishes its request.
    let mut slow: Vec<UnixStream> = (0..64).map(|_| UnixStream::connect(&api.spec.socket).unwrap()).collect();
    slow.iter_mut().for_each(|s| s.write_all(b"GET /v1/po").unwrap());
    let start = Instant::now();
    assert_eq!(api.client().get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2);
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

#[test]
fn the_socket_is_for_owner_and_group_and_gone_afterwards() {
    let mut api = Api::start();
    let mode = std::fs::metadata(&api.spec.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    api.server.take().unwrap().stop();
    assert!(!api.spec.socket.exists());
    assert!(!api.spec.socket.parent().unwrap().exists(), "the directory made for it is gone too");
    let error = api.client().get::<show::Ports>("/v1/ports").unwrap_err();
    assert!(matches!(error, ClientError::NoInstance { .. }), "{error}");
}

#[test]
fn who_asks_for_a_wrong_instance_is_told_which_ones_run() {
    let api = Api::start();
    let directory = api.spec.socket.parent().unwrap();
    // Left behind by one that died: not worth naming, and said to have ended where it is asked for.
    drop(UnixListener::bind(directory.join("dead.sock")).unwrap());
    let ask = |name: &str| {
        let client = Client::new(&directory.join(name)).unwrap();
        client.get::<show::Ports>("/v1/ports").unwrap_err().to_string()
    };
    let none = directory.join("linerate.sock");
    assert_eq!(
        ask("linerate.sock"),
        format!("no instance serves {}: name one that runs with --instance: api", none.display())
    );
    assert!(ask("dead.sock").contains("dead.sock (its process has ended): name one"), "{}", ask("dead.sock"));
}

#[test]
fn a_live_socket_is_an_error_and_a_stale_one_is_replaced() {
    let mut api = Api::start();
    let error = Listeners::bind(&api.spec).unwrap_err();
    assert!(matches!(error, ListenError::InUse(_)), "{error}");
    assert_eq!(api.client().get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2, "the live one goes on");
    drop(api.server.take());
    std::fs::create_dir(api.spec.socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&api.spec.socket).unwrap());
    assert!(api.spec.socket.exists(), "left behind by a process that died");
    let listeners = Listeners::bind(&api.spec).unwrap();
    api.serve(listeners);
    assert_eq!(api.client().get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2);
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    let error = Listeners::bind(&ApiSpec { socket: path.clone(), listen: None }).unwrap_err();
    assert!(matches!(error, ListenError::NotASocket(_)), "{error}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "data");
}

/// Serves TCP too, on a port of this host that is free now.
fn with_tcp(spec: &mut ApiSpec, dir: &std::path::Path) {
    let token = dir.join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    spec.listen = Some((free, token));
}

#[test]
fn strangers_on_tcp_do_not_keep_the_socket_busy() {
    let api = Api::start_with(with_tcp);
    let address = api.spec.listen.as_ref().unwrap().0;
    let mut slow: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    slow.iter_mut().for_each(|s| s.write_all(b"GET /v1/po").unwrap());
    let start = Instant::now();
    for _ in 0..70 {
        assert_eq!(api.client().get::<show::Ports>("/v1/ports").unwrap().ports.len(), 2);
    }
    // Well under the time after which the first of the slow ones is cut off.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn tcp_needs_the_token() {
    let api = Api::start_with(with_tcp);
    let address = api.spec.listen.as_ref().unwrap().0;
    let ask = |authorization: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /v1/ports HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("Authorization: Bearer 0123456789abcdef\r\n").starts_with("HTTP/1.1 200"));
    for wrong in
        ["", "Authorization: Bearer 0123456789abcdeF\r\n", "Authorization: Basic 0123456789abcdef\r\n"]
    {
        let (status, error) = parts(&ask(wrong));
        assert_eq!(status, 401);
        assert!(error.contains("Authorization: Bearer"), "{error}");
    }
}

#[test]
fn tokens_are_checked_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api.sock");
    let spec = |token: PathBuf| ApiSpec {
        socket: socket.clone(),
        listen: Some(("127.0.0.1:0".parse().unwrap(), token)),
    };
    let short = dir.path().join("short");
    std::fs::write(&short, "secret\n").unwrap();
    let error = Listeners::bind(&spec(short)).unwrap_err().to_string();
    assert!(error.ends_with("has 6 bytes: expected at least 16"), "{error}");
    assert!(matches!(Listeners::bind(&spec(dir.path().join("none"))).unwrap_err(), ListenError::Token(..)));
    assert!(!socket.exists());
}

#[test]
fn tracing_ends_when_its_client_has_gone() {
    let api = Api::start();
    let body = r#"{"packets":1,"wait_ms":5000}"#;
    let mut stream = UnixStream::connect(&api.spec.socket).unwrap();
    let head = "POST /v1/trace HTTP/1.1\r\nHost: x\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let armed = || api.fake.armed.lock().unwrap().clone();
    let until = |expected: &[(u32, Option<u16>)]| {
        let end = Instant::now() + Duration::from_secs(3);
        while armed() != expected {
            assert!(Instant::now() < end, "{:?}", armed());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until(&[(1, None)]);
    drop(stream);
    until(&[(1, None), (0, None)]);
}

#[test]
fn a_directory_that_others_can_make_must_be_the_users_own() {
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("linerate-1");
    let socket = shared.join("a.sock");
    let not_ours = || super::listen::not_ours(&socket, &shared);
    assert_eq!(not_ours(), None, "it can be made");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o750)).unwrap();
    assert_eq!(not_ours(), None);
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o770)).unwrap();
    assert_eq!(not_ours(), Some(shared.clone()), "others may write");
    assert_eq!(super::listen::not_ours(&socket, dir.path()), None, "only that directory is meant");
    std::fs::rename(&shared, dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", &shared).unwrap();
    assert_eq!(not_ours(), Some(shared.clone()), "a link");
    std::fs::remove_file(&shared).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::fs::create_dir(&shared).unwrap();
        std::os::unix::fs::chown(&shared, Some(12_345), None).unwrap();
        assert_eq!(not_ours(), Some(shared.clone()), "another user's");
    }
}
