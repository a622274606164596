//! Pools and packet buffers: exhaustion, bounds, segments, caches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Fixture, content, packet, pattern, receive, send};
use linerate_dpdk::{HEADROOM, MAX_FRAME, Mbuf, Pool, PoolConfig, Port, PortConfig, register_worker_thread};
use linerate_pipeline::{Batch, Meta, Packet, PacketAlloc};

#[test]
fn an_exhausted_pool_gives_none_and_recovers() {
    let fixture = Fixture::new();
    let mut pool = fixture.pool("p", 100, 256);
    let mut all: Vec<Mbuf> = Vec::new();
    while let Some(p) = PacketAlloc::alloc(&mut pool) {
        all.push(p);
    }
    assert_eq!((all.len(), pool.available(), pool.in_use()), (100, 0, 100));
    let mut batch = Batch::new();
    assert!(!pool.alloc_bulk(&mut batch, 1));
    assert!(batch.is_empty());
    all.truncate(70);
    assert!(!pool.alloc_bulk(&mut batch, 31));
    assert_eq!((batch.len(), pool.available()), (0, 30));
    assert!(pool.alloc_bulk(&mut batch, 30));
    assert!(!pool.alloc_bulk(&mut batch, 64), "no room in the batch");
    assert_eq!((batch.len(), pool.available()), (30, 0));
    Packet::free_bulk(&mut batch);
    drop(all);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn fresh_packets_are_empty_whatever_the_buffer_held() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 1, 2048);
    for _ in 0..3 {
        let mut p = pool.alloc().unwrap();
        assert_eq!((p.len(), p.segments(), p.headroom(), p.tailroom()), (0, 1, HEADROOM, 2048));
        assert!(p.is_empty() && p.head().is_empty());
        assert_eq!(*p.meta(), Meta::default());
        *p.meta_mut() = Meta { user: 9, flags: 0xffff, ..Meta::default() };
        p.append(100).unwrap().fill(0xff);
        assert!(p.trim_front(50));
        drop(p);
        let mut batch = Batch::new();
        assert!(pool.alloc_bulk(&mut batch, 1));
        assert_eq!((*batch[0].meta(), batch[0].len(), batch[0].headroom()), (Meta::default(), 0, HEADROOM));
        batch[0].set_trace_id(1);
    }
}

#[test]
fn every_byte_of_the_buffer_is_reachable_and_none_beyond() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 3, 512);
    let mut p = pool.alloc().unwrap();
    assert!(p.prepend(HEADROOM + 1).is_none());
    assert!(p.append(513).is_none());
    assert!(p.append(usize::MAX).is_none() && p.prepend(usize::MAX).is_none());
    assert_eq!(p.len(), 0);
    p.append(512).unwrap().fill(1);
    assert!(p.append(1).is_none());
    p.prepend(HEADROOM).unwrap()[..HEADROOM].fill(2);
    assert!(p.prepend(1).is_none());
    assert_eq!((p.len(), p.head().len(), p.headroom(), p.tailroom()), (640, 640, 0, 0));
    assert_eq!(content(&p), [[2; 128].as_slice(), &[1; 512]].concat());
    // Metadata and bytes are apart.
    let (bytes, meta) = p.split_mut();
    bytes.fill(0xaa);
    assert_eq!(*meta, Meta::default());
    meta.hash = u32::MAX;
    assert!(bytes.iter().all(|&b| b == 0xaa));
    assert!(!p.trim_front(641));
    assert!(p.trim_front(640));
    assert_eq!((p.len(), p.headroom(), p.tailroom()), (0, 640, 0));
    assert!(p.append(1).is_none(), "what was trimmed in front is headroom, not tailroom");
    assert!(p.pull(1).is_none());
    assert_eq!(p.pull(0).map(|head| head.len()), Some(0));
}

#[test]
fn segments_are_reached_one_by_one() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 63, 1024);
    let mut p = packet(pool, 5, 9000);
    assert_eq!((p.len(), p.segments(), p.head().len()), (9000, 9, 1024));
    assert_eq!(pool.in_use(), 9);
    let bytes = pattern(5, 9000);
    for i in 0..9 {
        let from = i * 1024;
        assert_eq!(p.segment(i), Some(&bytes[from..9000.min(from + 1024)]));
    }
    assert!(p.segment(9).is_none() && p.segment_mut(9).is_none() && p.segment(usize::MAX).is_none());
    p.segment_mut(8).unwrap()[0] ^= 0xff;
    let mut out = [0; 3];
    assert_eq!(p.copy_out(8191, &mut out), 3);
    assert_eq!(out, [bytes[8191], bytes[8192] ^ 0xff, bytes[8193]]);
    // Appending goes to the last segment.
    assert_eq!(p.tailroom(), 1024 - 808);
    p.append(216).unwrap().fill(3);
    assert!(p.append(1).is_none());
    assert_eq!((p.len(), p.segment(8).map(<[u8]>::len)), (9216, Some(1024)));
}

#[test]
fn truncation_frees_the_segments_it_empties() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 63, 1000);
    let bytes = pattern(1, 9000);
    for (len, segments) in
        [(8999, 9), (8001, 9), (8000, 8), (7999, 8), (1001, 2), (1000, 1), (999, 1), (1, 1), (0, 1)]
    {
        let mut p = packet(pool, 1, 9000);
        p.truncate(9001);
        assert_eq!(p.len(), 9000);
        p.truncate(len);
        assert_eq!((p.len(), p.segments(), pool.in_use()), (len, segments, segments as u32), "to {len}");
        assert_eq!(content(&p), bytes[..len]);
    }
}

#[test]
fn pull_gathers_headers_that_lie_across_segments() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 63, 1000);
    // Segments of 1, 2, 3, … bytes: the worst that a sender can do to a header.
    let bytes = pattern(3, 55);
    let split = || {
        let mut at = 0;
        let mut whole: Option<Mbuf> = None;
        for n in 1..=10 {
            let mut s = pool.alloc().unwrap();
            s.append(n).unwrap().copy_from_slice(&bytes[at..at + n]);
            at += n;
            match &mut whole {
                None => whole = Some(s),
                Some(first) => first.chain(s).unwrap(),
            }
        }
        whole.unwrap()
    };
    for n in 0..=55 {
        let mut p = split();
        p.meta_mut().user = 1;
        let head = p.pull(n).unwrap();
        assert!(head.len() >= n && head == &bytes[..head.len()]);
        assert_eq!((p.len(), content(&p), p.meta().user), (55, bytes.clone(), 1));
        assert_eq!(p.segments() as u32, pool.in_use());
    }
    let mut p = split();
    assert!(p.pull(56).is_none());
    assert_eq!((p.segments(), content(&p)), (10, bytes.clone()));
    // A first segment without room for what is asked: no change.
    let mut p = packet(pool, 4, 1500);
    assert!(p.pull(1001).is_none());
    assert_eq!((p.segments(), content(&p)), (2, pattern(4, 1500)));
    assert_eq!(p.pull(1000).map(|head| head.len()), Some(1000));
}

#[test]
fn jumbo_frames_cross_a_pair_in_segments_and_in_one_piece() {
    let fixture = Fixture::new();
    for (name, data_room, segments) in [("small", 2048, 5), ("big", MAX_FRAME as u16, 1)] {
        let pool = fixture.pool(name, 255, data_room);
        let config = PortConfig { mtu: 9000, ..PortConfig::default() };
        let (a, b) = Port::ring_pair(fixture.eal, name, 64, 1, &config, pool).unwrap();
        let (_a, _arx, mut atx) = a.start().unwrap();
        let (_b, mut brx, _btx) = b.start().unwrap();
        send(&mut atx[0], packet(pool, 1, 9014));
        let got = receive(&mut brx[0], 1);
        assert_eq!((got[0].segments(), got[0].len()), (segments, 9014));
        assert_eq!(content(&got[0]), pattern(1, 9014));
        assert_eq!(pool.in_use(), segments as u32);
    }
}

#[test]
fn packets_of_several_pools_are_freed_to_their_own() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.pool("one", 200, 512), fixture.pool("two", 200, 1024));
    let mut batch: Batch<Mbuf> =
        (0..20).map(|i| packet(if i % 2 == 0 { one } else { two }, i, 1500)).collect();
    batch[0].chain(packet(two, 99, 100)).unwrap();
    assert_eq!((one.in_use(), two.in_use()), (30, 21));
    Packet::free_bulk(&mut batch);
    assert!(batch.is_empty());
    assert_eq!((one.in_use(), two.in_use()), (0, 0));
}

#[test]
fn a_worker_that_ends_returns_its_cache() {
    let fixture = Fixture::new();
    let pool = fixture.pool("p", 2047, 256);
    std::thread::spawn(move || {
        let worker = register_worker_thread().unwrap();
        assert!(register_worker_thread().is_err(), "once per thread");
        drop((0..300).map(|i| packet(pool, i, 64)).collect::<Vec<_>>());
        assert_eq!(pool.in_use(), 0);
        drop(worker);
        drop(register_worker_thread().unwrap());
    })
    .join()
    .unwrap();
    // This thread has no cache: only what went back to the pool itself can be had here.
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), 2047);
}

#[test]
fn pool_settings_out_of_range_are_refused_with_a_sentence() {
    let fixture = Fixture::new();
    let create = |name: &str, size, data_room| {
        Pool::create(fixture.eal, &PoolConfig { name: name.into(), size, data_room, socket: None })
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let long = "x".repeat(26);
    for (name, size, room, text) in [
        ("p", 0, 2048, "packet pool 'p': the number of buffers must be at least 1"),
        ("p", 1, 63, "packet pool 'p': the data room must be 64 to 65,407 bytes"),
        ("p", 1, 65_408, "packet pool 'p': the data room must be 64 to 65,407 bytes"),
        ("", 1, 64, "packet pool '': the name must be 1 to 25 printable ASCII characters without spaces"),
        (
            "a b",
            1,
            64,
            "packet pool 'a b': the name must be 1 to 25 printable ASCII characters without spaces",
        ),
        (&long, 1, 64, "the name must be 1 to 25 printable"),
        (
            "p",
            1_000_000,
            2048,
            "packet pool 'p' of 1000000 buffers needs about 2320 MiB and DPDK's memory does not have them",
        ),
    ] {
        let error = create(name, size, room).unwrap_err();
        assert!(error.contains(text), "{error:?} lacks {text:?}");
    }
    create("same", 10, 64).unwrap();
    assert_eq!(
        create("same", 10, 64).unwrap_err(),
        "packet pool 'same' exists already: give each pool its own name"
    );
    create("widest", 3, 65_407).unwrap();
    let config = PoolConfig { name: "far".into(), size: 1, data_room: 64, socket: Some(31) };
    assert_eq!(
        Pool::create(fixture.eal, &config).unwrap_err().to_string(),
        "packet pool 'far': its NUMA node does not exist or has no memory for DPDK"
    );
}
