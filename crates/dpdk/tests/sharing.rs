//! Packets that have bytes in common: nobody changes those, everybody may let go in any order on any thread, and every
//! buffer comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Fixture, content, packet, pattern, receive};
use linerate_dpdk::{Mbuf, Pool, Port, PortConfig, register_worker_thread};
use linerate_pipeline::io::TxQueue as _;
use linerate_pipeline::{Batch, Packet};

/// Copies of a packet, each with one byte in front that tells which it is.
fn copies(pool: &'static Pool, number: u32, len: usize, n: u8) -> Vec<Mbuf> {
    let mut shared = packet(pool, number, len).share(n.into());
    let copy = |i: u8| {
        let mut head = pool.alloc().unwrap();
        head.append(1).unwrap()[0] = i;
        assert!(head.attach(&mut shared));
        head
    };
    (0..n).map(copy).collect()
}

fn expected(i: u8, number: u32, len: usize) -> Vec<u8> {
    [&[i][..], &pattern(number, len)].concat()
}

#[test]
fn copies_take_one_small_buffer_each_and_all_comes_back() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 255, 1024);
    for (len, segments) in [(1, 1), (1024, 1), (1500, 2), (9200, 9)] {
        let mut all = copies(pool, 5, len, 8);
        assert_eq!(pool.in_use() as usize, 8 + segments);
        for (i, copy) in all.iter().enumerate() {
            assert_eq!((copy.len(), copy.segments()), (1 + len, 1 + segments));
            assert_eq!(content(copy), expected(i as u8, 5, len));
        }
        while all.len() > 1 {
            all.swap_remove(all.len() / 2);
            all.iter().for_each(|copy| assert_eq!(content(copy)[1..], pattern(5, len)));
        }
        assert_eq!(pool.in_use() as usize, 1 + segments);
        let mut last = all.pop().unwrap();
        assert!((1..last.segments()).all(|s| last.segment_mut(s).is_some()), "its own again");
        drop(last);
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn what_others_have_too_is_not_changed() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 63, 1024);
    let mut whole = packet(pool, 1, 800);
    whole.chain(packet(pool, 2, 700)).unwrap();
    let mut shared = whole.share(2);
    let [mut one, mut other] = [1, 2].map(|i| packet(pool, i, 1));
    assert!(one.attach(&mut shared) && other.attach(&mut shared));
    let body = [pattern(1, 800), pattern(2, 700)].concat();
    assert!(one.segment_mut(1).is_none() && one.segment_mut(2).is_none());
    assert!(one.append(1).is_none() && one.chain(packet(pool, 2, 10)).is_err());
    assert!([2, 800, 801, 802, 1200, 1500].iter().all(|len| !one.truncate(*len)));
    assert!(one.pull(2).is_none() && one.pull(800).is_none() && one.pull(802).is_none(), "parts of segments");
    let mut nothing = packet(pool, 3, 9).share(0);
    assert!(!one.attach(&mut nothing), "behind a segment that another has too");
    drop(nothing);
    assert_eq!((one.len(), &content(&one)[1..]), (1501, &body[..]));
    // What is in the first segment is its own.
    one.head_mut()[0] = 9;
    one.prepend(3).unwrap()[..3].fill(7);
    assert!(one.trim_front(2));
    assert_eq!(content(&one)[..2], [7, 9]);
    // A whole segment goes over, and the other copy does not notice.
    assert!(one.pull(2 + 800).is_some());
    assert_eq!((one.segments(), &content(&one)[2..]), (2, &body[..]));
    assert_eq!(content(&other)[1..], body);
    assert!(one.truncate(5));
    drop(other);
    assert_eq!((pool.in_use(), one.segments()), (1, 1));
}

#[test]
fn uses_that_are_left_are_given_back() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 63, 512);
    for used in 0..4usize {
        for shared_first in [true, false] {
            let mut shared = packet(pool, 7, 1200).share(3);
            let mut heads: Vec<Mbuf> = (0..4).map(|_| pool.alloc().unwrap()).collect();
            let done: Vec<bool> = heads.iter_mut().take(used).map(|h| h.attach(&mut shared)).collect();
            assert_eq!(done.iter().filter(|d| **d).count(), used.min(3));
            if shared_first {
                drop(shared);
                heads.iter().take(used).for_each(|h| assert_eq!(content(h), pattern(7, 1200)));
                drop(heads);
            } else {
                drop(heads);
                drop(shared);
            }
            assert_eq!(pool.in_use(), 0, "{used} {shared_first}");
        }
    }
    // A copy can be given up once more: its tail has more owners then.
    let mut all = copies(pool, 2, 1200, 2);
    let mut again = all.pop().unwrap().share(5);
    let mut heads: Vec<Mbuf> = (0..5).map(|_| pool.alloc().unwrap()).collect();
    assert!(heads.iter_mut().all(|h| h.attach(&mut again)));
    heads.iter().for_each(|h| assert_eq!(content(h), expected(1, 2, 1200)));
    drop(all);
    heads.truncate(1);
    drop(again);
    assert_eq!(content(&heads[0]), expected(1, 2, 1200));
    drop(heads);
    assert_eq!(pool.in_use(), 0);
    let mut many = packet(pool, 1, 100).share(u16::MAX);
    let mut head = pool.alloc().unwrap();
    assert!(head.attach(&mut many));
    drop(many);
    assert!(head.segment_mut(1).is_some());
}

#[test]
fn every_thread_may_be_the_last() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 512);
    let (to, from): (Vec<_>, Vec<_>) = (0..2).map(|_| std::sync::mpsc::sync_channel::<Vec<Mbuf>>(4)).unzip();
    let workers: Vec<_> = from
        .into_iter()
        .map(|from| {
            std::thread::spawn(move || {
                let _worker = register_worker_thread().unwrap();
                for mut copies in from {
                    for copy in &copies {
                        assert_eq!(content(copy)[1..5], pattern(copies.len() as u32, 1200)[..4]);
                    }
                    // Some by one, some in bulk.
                    copies.pop();
                    let mut batch: Batch<Mbuf> = copies.into_iter().collect();
                    Packet::free_bulk(&mut batch);
                }
            })
        })
        .collect();
    for round in 0..2000u32 {
        let n = 2 + (round % 7) as u8;
        let mut ours = copies(pool, n.into(), 1200, 2 * n);
        for to in &to {
            to.send(ours.split_off(ours.len() - usize::from(n))).unwrap();
        }
    }
    drop(to);
    workers.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_full_ring_and_a_receiver_that_shares_nothing() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 511, 1024);
    let config = PortConfig::default();
    let (a, b) = Port::ring_pair(fixture.eal, "x", 64, 1, &config, pool).unwrap();
    let ((a, _, mut tx), (b, mut rx, _)) = (a.start().unwrap(), b.start().unwrap());
    for len in [60, 1500] {
        let (mut batch, mut sent) = (Batch::new(), 0);
        for number in 0..12 {
            batch.extend(copies(pool, number, len, 8));
            sent += tx[0].tx(&mut batch);
            // What the ring did not take is dropped, as a worker does.
            Packet::free_bulk(&mut batch);
        }
        assert!((63..12 * 8).contains(&sent), "{sent}");
        let mut received = receive(&mut rx[0], sent);
        assert_eq!(received.len(), sent);
        for (i, copy) in received.iter_mut().enumerate() {
            assert_eq!(content(copy), expected(i as u8 % 8, i as u32 / 8, len));
            assert!((0..copy.segments()).all(|s| copy.segment_mut(s).is_some()), "{i}: received, so its own");
        }
        drop(received);
        assert_eq!(pool.in_use(), 0);
    }
    drop((tx, rx, a, b));
}
