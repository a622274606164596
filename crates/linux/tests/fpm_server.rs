//! The FPM server over real TCP, and with a real zebra where Debian's frr is installed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may panic"
)]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{ip, new_namespace, wire};
use linerate_linux::fpm::{Disconnect, FpmError, FpmEvent, FpmServer};
use linerate_linux::route::{Change, Event, Fault, NexthopAction, Protocol, RouteKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn run(body: impl AsyncFnOnce()) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body());
}

fn stream(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.fpm"))).unwrap()
}

/// Waits for the next event; all that come with it are returned.
async fn next(server: &mut FpmServer) -> Vec<FpmEvent> {
    let mut events = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), server.next(&mut events)).await.expect("an event").unwrap();
    events
}

#[test]
fn sessions_come_and_go() {
    run(async || {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut server = FpmServer::bind(any).await.unwrap();
        let address = server.local_address().unwrap();
        let error = FpmServer::bind(address).await.unwrap_err();
        assert!(
            matches!(error, FpmError::Bind { .. }) && error.to_string().contains("another program"),
            "{error}"
        );

        let bytes = stream("static");
        let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
        assert!(
            matches!(next(&mut server).await[..], [FpmEvent::Connected(from)] if from == peer.local_addr().unwrap())
        );
        // Half a frame too many.
        peer.write_all(&bytes).await.unwrap();
        peer.write_all(&bytes[..30]).await.unwrap();
        let mut routes = 0;
        while routes < 50 {
            routes += next(&mut server).await.len();
        }
        assert_eq!(routes, 50);

        // A second connection is turned away and the first one stays.
        let mut second = tokio::net::TcpStream::connect(address).await.unwrap();
        let refused = tokio::time::timeout(Duration::from_millis(300), server.next(&mut Vec::new())).await;
        assert!(refused.is_err() && server.counters().refused == 1);
        assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 0);

        drop(peer);
        assert_eq!(next(&mut server).await, [FpmEvent::Disconnected(Disconnect::Closed)]);
        assert_eq!(server.faults().iter().collect::<Vec<_>>(), [(Fault::CutOff, 1)]);

        // The rest of that frame is not expected from the next session.
        let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
        assert!(matches!(next(&mut server).await[..], [FpmEvent::Connected(_)]));
        peer.write_all(&bytes[..64]).await.unwrap();
        assert!(matches!(&next(&mut server).await[..], [FpmEvent::Event(Event::Nexthop(..))]));
        let counters = server.counters();
        assert_eq!(
            (counters.sessions, counters.events, counters.bytes),
            (2, 51, bytes.len() as u64 + 30 + 64)
        );
        assert!(counters.messages > counters.frames && counters.frames > 50);

        // Another protocol on this port.
        peer.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let nonsense = Fault::Frame { version: b'G', length: u16::from_be_bytes(*b"T ") };
        assert_eq!(next(&mut server).await, [FpmEvent::Disconnected(Disconnect::Nonsense(nonsense))]);
        assert_eq!(peer.read(&mut [0; 1]).await.unwrap_or(0), 0);

        let peer = TcpStream::connect(address).unwrap();
        assert!(matches!(next(&mut server).await[..], [FpmEvent::Connected(_)]));
        socket_reset(peer);
        assert!(matches!(next(&mut server).await[..], [FpmEvent::Disconnected(Disconnect::Broken(_))]));
    });
}

/// Closes with a reset, as a host does that has lost the connection.
fn socket_reset(peer: TcpStream) {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&peer, nix::sys::socket::sockopt::Linger, &linger).unwrap();
}

/// FRR's daemons of one test, in a folder of their own.
struct Frr {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Frr {
    /// `None` where FRR is not installed.
    fn new() -> Option<Self> {
        if !Path::new("/usr/lib/frr/zebra").exists() {
            eprintln!("SKIPPED: FRR is not installed (Debian package frr)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // The daemons give up root before they write here.
        common::run("chown", &format!("frr:frr {}", folder.path().display()));
        Some(Frr { folder, daemons: Vec::new() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, daemon: &str, config: &str, more: &[&str]) {
        let file = self.file(&format!("{daemon}.conf"));
        std::fs::File::create(&file).unwrap().write_all(config.as_bytes()).unwrap();
        let socket = self.file(&format!("{daemon}.vty"));
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(format!("/usr/lib/frr/{daemon}"));
        command.arg("-f").arg(file).arg("-i").arg(self.file(&format!("{daemon}.pid")));
        command.arg("-z").arg(self.file("zserv.api")).arg("--vty_socket").arg(self.folder.path()).args(more);
        self.daemons.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(10);
        while !socket.exists() {
            assert!(Instant::now() < end, "{daemon} does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        for mut daemon in self.daemons.drain(..).rev() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What FRR has told: prefix to kind and gateways.
#[derive(Default)]
struct Told {
    routes: BTreeMap<String, String>,
    objects: BTreeMap<u32, NexthopAction>,
}

impl Told {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Nexthop(Change::Delete, n) => drop(self.objects.remove(&n.id)),
            Event::Nexthop(_, n) => drop(self.objects.insert(n.id, n.action.unwrap())),
            Event::Route(_, r) if r.protocol == Protocol::KERNEL => {}
            Event::Route(Change::Delete, r) => drop(self.routes.remove(&r.prefix.to_string())),
            Event::Route(change, r) => {
                assert_eq!(change, Change::Replace);
                let text = match r.nexthop {
                    Some(id) => self.gateways(id),
                    None if r.kind == RouteKind::Unicast => panic!("{r:?}"),
                    None => format!("{:?}", r.kind),
                };
                self.routes.insert(r.prefix.to_string(), text);
            }
            other => panic!("{other:?}"),
        }
    }

    fn gateways(&self, id: u32) -> String {
        match &self.objects[&id] {
            NexthopAction::Forward(hop) => hop.gateway.unwrap().to_string(),
            NexthopAction::Group(g) => {
                g.members.iter().map(|(id, _)| self.gateways(*id)).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads until these are the routes.
    async fn wait(&mut self, server: &mut FpmServer, expected: &[(&str, &str)]) {
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect();
        let mut events = Vec::new();
        let end = tokio::time::Instant::now() + Duration::from_secs(15);
        while self.routes != expected {
            let next = tokio::time::timeout_at(end, server.next(&mut events)).await;
            assert!(next.is_ok(), "{:?} and not {expected:?}", self.routes);
            for event in events.drain(..) {
                if let FpmEvent::Event(event) = event {
                    self.apply(event);
                }
            }
        }
    }
}

const STATIC: &str = "
ip route 10.1.0.0/16 198.18.0.2
ip route 10.1.0.0/16 198.18.0.3
ip route 10.3.0.0/16 Null0
ip route 10.4.0.0/16 reject
ip route 10.5.0.0/16 10.1.0.1
ipv6 route 2001:db8:1::/48 2001:db8::2
ipv6 route 2001:db8:2::/48 fe80::2 eth0
";

#[test]
fn a_real_zebra_is_killed_and_comes_back_with_less() {
    let Some(mut frr) = Frr::new() else { return };
    if !new_namespace() {
        return;
    }
    run(async || {
        wire();
        let mut server = FpmServer::bind("127.0.0.1:2620".parse().unwrap()).await.unwrap();
        frr.start("zebra", "fpm address 127.0.0.1\n", &["-M", "dplane_fpm_nl"]);
        frr.start("staticd", STATIC, &[]);
        assert!(matches!(next(&mut server).await[..], [FpmEvent::Connected(_)]));
        let mut told = Told::default();
        let both = "198.18.0.2 198.18.0.3";
        let all = [
            ("10.1.0.0/16", both),
            ("10.3.0.0/16", "Blackhole"),
            ("10.4.0.0/16", "Unreachable"),
            ("10.5.0.0/16", both),
            ("2001:db8:1::/48", "2001:db8::2"),
            ("2001:db8:2::/48", "fe80::2"),
        ];
        told.wait(&mut server, &all).await;

        // The kernel loses the address without a word about IPv4 routes; zebra withdraws them.
        ip("addr del 198.18.0.1/24 dev eth0");
        told.wait(&mut server, &[all[1], all[2], all[4], all[5]]).await;
        ip("addr add 198.18.0.1/24 dev eth0");
        told.wait(&mut server, &all).await;

        let killed = Instant::now();
        frr.kill();
        while !matches!(next(&mut server).await.last(), Some(FpmEvent::Disconnected(_))) {}
        assert!(killed.elapsed() < Duration::from_secs(1));
        // A killed zebra leaves its routes in the kernel, and the next one takes over those of them that drop.
        ip("route del blackhole 10.3.0.0/16");
        ip("route del unreachable 10.4.0.0/16");
        frr.start("zebra", "fpm address 127.0.0.1\n", &["-M", "dplane_fpm_nl"]);
        frr.start("staticd", "ip route 10.1.0.0/16 198.18.0.3\n", &[]);
        assert!(matches!(next(&mut server).await[..], [FpmEvent::Connected(_)]));
        Told::default().wait(&mut server, &[("10.1.0.0/16", "198.18.0.3")]).await;
        assert_eq!((server.counters().sessions, server.faults().total()), (2, 0), "{:?}", server.faults());
    });
}
