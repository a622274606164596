//! Ports joined by rings: sending, receiving, backpressure, queues, shutdown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Fixture, content, packet, pattern, receive, send};
use linerate_dpdk::{Mbuf, Port, PortConfig, register_worker_thread};
use linerate_pipeline::io::{RxQueue as _, TxQueue as _};
use linerate_pipeline::{Batch, Packet};

#[test]
fn packets_cross_a_pair_in_order_and_know_where_they_came_in() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 256, 1, &PortConfig::default(), pool).unwrap();
    let (a, _arx, mut atx) = a.start().unwrap();
    let (b, mut brx, _btx) = b.start().unwrap();
    for i in 0..100 {
        let mut p = packet(pool, i, 60 + i as usize);
        p.set_rx_port(77);
        p.set_trace_id(7);
        send(&mut atx[0], p);
    }
    let got = receive(&mut brx[0], 100);
    assert_eq!(got.len(), 100);
    for (i, p) in got.iter().enumerate() {
        assert_eq!(content(p), pattern(i as u32, 60 + i));
        assert_eq!((p.rx_port(), p.trace_id()), (b.id(), 0));
    }
    assert_eq!(a.stats().unwrap().tx_packets, 100);
    assert_eq!(b.stats().unwrap().rx_packets, 100);
    assert_eq!(pool.in_use(), 100);
}

#[test]
fn a_full_ring_keeps_the_unsent_tail_in_order() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 64, 1, &PortConfig::default(), pool).unwrap();
    let (_a, _arx, mut atx) = a.start().unwrap();
    let (_b, mut brx, _btx) = b.start().unwrap();
    // The ring takes 63: 40 go at once, 23 of the next 40.
    let mut batch: Batch<Mbuf> = (0..40).map(|i| packet(pool, i, 64)).collect();
    assert_eq!(atx[0].tx(&mut batch), 40);
    assert!(batch.is_empty());
    batch.extend((40..80).map(|i| packet(pool, i, 64)));
    assert_eq!(atx[0].tx(&mut batch), 23);
    let left: Vec<Vec<u8>> = batch.iter().map(content).collect();
    assert_eq!(left, (63..80).map(|i| pattern(i, 64)).collect::<Vec<_>>());
    assert_eq!(atx[0].tx(&mut batch), 0);
    assert_eq!(batch.len(), 17);
    assert_eq!(pool.in_use(), 80);
    // Room again: the tail follows in order, nothing twice, nothing lost.
    assert_eq!(receive(&mut brx[0], 63).len(), 63);
    assert_eq!(atx[0].tx(&mut batch), 17);
    let rest = receive(&mut brx[0], 17);
    assert_eq!(rest.iter().map(content).collect::<Vec<_>>(), left);
}

#[test]
fn what_is_left_in_rings_is_freed_with_the_ports() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 64, 1, &PortConfig::default(), pool).unwrap();
    let (a, arx, mut atx) = a.start().unwrap();
    let (b, brx, btx) = b.start().unwrap();
    let mut batch: Batch<Mbuf> = (0..64).map(|i| packet(pool, i, 64)).collect();
    atx[0].tx(&mut batch);
    assert_eq!(pool.in_use(), 64);
    Packet::free_bulk(&mut batch);
    assert!(batch.is_empty());
    assert_eq!(pool.in_use(), 63);
    drop((a.stop(arx, atx).unwrap(), b.stop(brx, btx).unwrap()));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn each_of_several_queues_carries_its_own_packets() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 4095, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 256, 4, &PortConfig::default(), pool).unwrap();
    let (_a, _arx, atx) = a.start().unwrap();
    let (_b, brx, _btx) = b.start().unwrap();
    assert_eq!((atx.len(), brx.len()), (4, 4));
    let workers: Vec<_> = atx
        .into_iter()
        .zip(brx)
        .map(|(mut tx, mut rx)| {
            std::thread::spawn(move || {
                let _worker = register_worker_thread().unwrap();
                let base = u32::from(tx.index()) * 1000;
                for i in 0..1000 {
                    send(&mut tx, packet(pool, base + i, 64));
                    let got = receive(&mut rx, 1);
                    assert_eq!(content(&got[0]), pattern(base + i, 64));
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_port_does_not_stop_while_a_queue_is_out_and_queues_survive_the_port() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 64, 1, &PortConfig::default(), pool).unwrap();
    let (a, arx, mut atx) = a.start().unwrap();
    let (b, mut brx, btx) = b.start().unwrap();
    let refused = a.stop(arx, Vec::new()).unwrap_err();
    assert_eq!(refused.to_string(), "port 'net_ring_x_a' cannot be stopped while 1 of its queues are in use");
    drop(refused);
    drop((b, btx));
    send(&mut atx[0], packet(pool, 1, 64));
    assert_eq!(receive(&mut brx[0], 1).len(), 1);
}

#[test]
fn a_stopped_port_starts_again() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (mut a, mut b) = Port::ring_pair(fixture.eal, "x", 64, 2, &PortConfig::default(), pool).unwrap();
    for round in 0..10 {
        let (ra, arx, mut atx) = a.start().unwrap();
        let (rb, mut brx, btx) = b.start().unwrap();
        send(&mut atx[1], packet(pool, round, 64));
        assert_eq!(content(&receive(&mut brx[1], 1)[0]), pattern(round, 64));
        a = ra.stop(arx, atx).unwrap();
        b = rb.stop(brx, btx).unwrap();
    }
}

#[test]
fn a_receive_only_fills_the_room_left_in_the_batch() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1023, 2048);
    let (a, b) = Port::ring_pair(fixture.eal, "x", 256, 1, &PortConfig::default(), pool).unwrap();
    let (_a, _arx, mut atx) = a.start().unwrap();
    let (_b, mut brx, _btx) = b.start().unwrap();
    let mut batch: Batch<Mbuf> = (0..64).map(|i| packet(pool, i, 64)).collect();
    atx[0].tx(&mut batch);
    batch.extend((100..160).map(|i| packet(pool, i, 64)));
    assert_eq!(brx[0].rx(&mut batch), 4);
    assert_eq!(batch.len(), 64);
    assert_eq!(content(&batch[0]), pattern(100, 64));
    assert_eq!(content(&batch[60]), pattern(0, 64));
    assert_eq!(brx[0].rx(&mut batch), 0);
}
