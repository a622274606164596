//! What every test on DPDK shares: one EAL per test process, and the check that no buffer is left in use.

#![allow(dead_code, reason = "each test file uses a part")]

use linerate_dpdk::{Eal, EalConfig, Mbuf, Memory, Pool, PoolConfig, RxQueue, TxQueue, kept_buffers, pools};
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, Packet};

/// A running EAL; on drop, every pool must be full and DPDK must end.
pub(crate) struct Fixture {
    pub(crate) eal: &'static Eal,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with_memory(256)
    }

    pub(crate) fn with_memory(mb: u32) -> Self {
        let config = EalConfig { memory: Memory::NoHuge { mb }, ..EalConfig::default() };
        Self { eal: Eal::init(&config).unwrap() }
    }

    pub(crate) fn pool(&self, name: &str, size: u32, data_room: u16) -> &'static Pool {
        Pool::create(self.eal, &PoolConfig { name: name.into(), size, data_room, socket: None }).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for pool in pools() {
            // AF_XDP's driver is the one that keeps some.
            assert!(pool.in_use() <= kept_buffers(), "pool '{}' leaks {}", pool.name(), pool.in_use());
        }
        self.eal.cleanup().unwrap();
    }
}

/// A packet of `len` bytes: a counter and a pattern that depends on it. Takes segments as needed.
pub(crate) fn packet(pool: &'static Pool, number: u32, len: usize) -> Mbuf {
    let mut packet: Option<Mbuf> = None;
    let bytes = pattern(number, len);
    for part in bytes.chunks(pool.data_room()) {
        let mut segment = pool.alloc().unwrap();
        segment.append(part.len()).unwrap().copy_from_slice(part);
        match &mut packet {
            None => packet = Some(segment),
            Some(first) => first.chain(segment).unwrap(),
        }
    }
    packet.unwrap()
}

pub(crate) fn pattern(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u32 * 7 + number * 13) as u8).collect();
    let n = len.min(4);
    bytes[..n].copy_from_slice(&number.to_be_bytes()[..n]);
    bytes
}

pub(crate) fn content(packet: &Mbuf) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    assert_eq!(packet.copy_out(0, &mut bytes), packet.len());
    bytes
}

pub(crate) fn send(tx: &mut TxQueue, packet: Mbuf) {
    let mut batch = Batch::new();
    batch.push(packet);
    assert_eq!(tx.tx(&mut batch), 1);
}

/// Receives until `n` packets have come or ten seconds have passed.
pub(crate) fn receive(rx: &mut RxQueue, n: usize) -> Vec<Mbuf> {
    let start = std::time::Instant::now();
    let mut all = Vec::new();
    while all.len() < n && start.elapsed().as_secs() < 10 {
        let mut batch = Batch::new();
        rx.rx(&mut batch);
        all.extend(batch);
    }
    all
}

/// Runs a command and returns its standard output; `None` where it does not exist.
pub(crate) fn output_of(command: &str, args: &[&str]) -> Option<String> {
    let output = std::process::Command::new(command).args(args).output().ok()?;
    assert!(output.status.success(), "{command} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
