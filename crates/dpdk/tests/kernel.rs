//! Devices of the kernel: tap, AF_PACKET and AF_XDP on a veth pair, in a network namespace of the test's own. Need root:
//! without it each test says that it was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod common;

use common::{Fixture, content, output_of, packet, pattern};
use linerate_dpdk::{Port, PortConfig};
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, Packet};
use nix::sched::{CloneFlags, unshare};

/// Moves this test, and the threads DPDK will start, into an empty network namespace.
fn namespace(test: &str) -> bool {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => true,
        Err(errno) => {
            eprintln!("SKIPPED {test}: no network namespace ({errno}); run as root");
            false
        }
    }
}

fn ip(args: &str) {
    let args: Vec<&str> = args.split(' ').collect();
    output_of("ip", &args).expect("iproute2");
}

/// Sends frames of a private ethertype over a veth pair, from one DPDK device to another.
fn cross_veth(test: &str, device: impl Fn(u32, &str) -> String) {
    if !namespace(test) {
        return;
    }
    ip("link add ta type veth peer name tb");
    for end in ["ta", "tb"] {
        // Without this the kernel's own neighbour discovery is in the way.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
        ip(&format!("link set {end} up"));
    }
    let fixture = Fixture::new();
    // AF_XDP takes no buffer larger than a page.
    let pool = fixture.pool("p", 16_383, 2048);
    let open = |n, end| {
        let device = device(n, end);
        match Port::open(fixture.eal, &device, &PortConfig::default(), pool) {
            Ok(port) => Some(port.start().unwrap()),
            Err(error) => {
                eprintln!("SKIPPED {test}: {error}");
                None
            }
        }
    };
    let (Some((a, _arx, mut atx)), Some((b, mut brx, _btx))) = (open(0, "ta"), open(1, "tb")) else { return };
    let frame = |i: u32, len| {
        let mut bytes = pattern(i, len);
        bytes[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        bytes
    };
    let mut got = Vec::new();
    let start = std::time::Instant::now();
    for i in 0..50 {
        let len = 60 + 29 * i as usize;
        let mut p = packet(pool, i, len);
        p.head_mut()[..14].copy_from_slice(&frame(i, len)[..14]);
        let mut out = Batch::new();
        out.push(p);
        while !out.is_empty() || got.len() <= i as usize {
            assert!(start.elapsed().as_secs() < 20, "{test}: {} of 50 frames came", got.len());
            if !out.is_empty() {
                atx[0].tx(&mut out);
            }
            let mut batch = Batch::new();
            brx[0].rx(&mut batch);
            got.extend(batch.iter().map(content).filter(|bytes| bytes[12..14] == [0x88, 0xb5]));
        }
    }
    assert_eq!(got, (0..50).map(|i| frame(i, 60 + 29 * i as usize)).collect::<Vec<_>>());
    assert!(a.stats().unwrap().tx_packets >= 50 && b.stats().unwrap().rx_packets >= 50);
}

#[test]
fn frames_cross_a_veth_pair_by_af_packet() {
    cross_veth("af_packet", |n, end| format!("net_af_packet{n},iface={end}"));
}

#[test]
fn frames_cross_a_veth_pair_by_af_xdp() {
    cross_veth("af_xdp", |n, end| format!("net_af_xdp{n},iface={end}"));
}

#[test]
fn a_tap_device_appears_in_the_kernel_with_the_mtu_asked_for_and_goes_again() {
    if !namespace("tap") {
        return;
    }
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 4095, 2048);
    let config = PortConfig { mtu: 1400, ..PortConfig::default() };
    let port = Port::open(fixture.eal, "net_tap0,iface=lrtest", &config, pool).unwrap();
    let (port, _rx, _tx) = port.start().unwrap();
    let show = || std::process::Command::new("ip").args(["-o", "link", "show", "lrtest"]).output().unwrap();
    let text = String::from_utf8_lossy(&show().stdout).into_owned();
    assert!(text.contains("mtu 1400"), "{text} {:?}", port.notes());
    drop((port, _rx, _tx));
    assert!(!show().status.success(), "the tap is left");
}
