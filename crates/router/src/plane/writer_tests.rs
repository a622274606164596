//! Tests of the shared tables: meaning, resilience, reuse, and readers during changes.

use super::*;
use linerate_pipeline::Interface;

fn interface() -> Interface {
    Interface::new("x", 1, [2, 0, 0, 0, 0, 1], 1500, &[])
}

fn adjacency(w: &mut PlaneWriter, mac: u8) -> NextHop {
    let a = Adjacency::new(1, &interface(), Some([mac; 6]));
    NextHop::Forward(w.add_adjacency(&a, Some(IpAddr::from([10, 0, 0, mac]))).unwrap())
}

fn mac(r: &NextHops, next_hop: NextHop) -> Option<u8> {
    if let NextHop::Forward(a) = next_hop { Some(r.adjacency(a).mac()[0]) } else { None }
}

fn member(id: NextHopId) -> Member {
    Member { id, weight: 1 }
}

fn spread(r: &NextHops, id: NextHopId) -> Vec<NextHop> {
    (0..4096u32).map(|h| r.resolve_one(id, h.wrapping_mul(0x85eb_ca6b))).collect()
}

#[test]
fn each_kind_reads_as_it_was_written_and_unknown_ids_are_no_route() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let r = w.reader();
    let kinds = [
        NextHop::None,
        NextHop::Forward(77),
        NextHop::Local,
        NextHop::Glean(65_534),
        NextHop::Blackhole,
        NextHop::Prohibit,
        NextHop::Unreachable,
        NextHop::Resolve(MAX_ADJACENCIES as u32 - 1),
    ];
    let ids = kinds.map(|k| w.add(k).unwrap());
    let mut out = [NextHop::None; 10];
    let asked: Vec<_> = ids.into_iter().chain([0, u32::MAX]).collect();
    assert_eq!(r.resolve(&asked, |_| panic!("no group here"), &mut out), 1);
    assert_eq!(out[..8], kinds);
    assert_eq!(out[8..], [NextHop::None; 2]);
    assert_eq!(r.adjacency(u32::MAX), Adjacency::default());
}

#[test]
fn a_hash_is_asked_for_groups_only_and_decides_the_member() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let (a, b) = (adjacency(&mut w, 1), adjacency(&mut w, 2));
    let (a, b, group) = (w.add(a).unwrap(), w.add(b).unwrap(), w.add(NextHop::None).unwrap());
    w.set_group(group, &[member(a), member(b)], &[member(a), member(b)]).unwrap();
    let r = w.reader();
    let (mut asked, mut out) = (Vec::new(), [NextHop::None; 3]);
    let hash = |i| {
        asked.push(i);
        0x1234_5678
    };
    assert_eq!(r.resolve(&[a, group, b], hash, &mut out), 3);
    assert_eq!(asked, [1]);
    assert_eq!((mac(&r, out[0]), mac(&r, out[2])), (Some(1), Some(2)));
    let first = spread(&r, group).into_iter().filter(|n| mac(&r, *n) == Some(1)).count();
    assert!((1800..2300).contains(&first), "{first} of 4096");
}

#[test]
fn a_member_that_goes_down_is_avoided_by_one_store_and_only_its_flows_move() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let r = w.reader();
    let up: Vec<NextHop> = (1..=4).map(|m| adjacency(&mut w, m)).collect();
    let ids: Vec<NextHopId> = up.iter().map(|a| w.add(*a).unwrap()).collect();
    let members: Vec<Member> = ids.iter().copied().map(member).collect();
    let group = w.add(NextHop::None).unwrap();
    w.set_group(group, &members, &members).unwrap();
    let before = spread(&r, group);
    w.set(ids[2], NextHop::Unreachable);
    let check = |after: &[NextHop]| {
        for (b, a) in before.iter().zip(after) {
            assert!(if *b == up[2] { matches!(a, NextHop::Forward(_)) && *a != up[2] } else { a == b });
        }
    };
    check(&spread(&r, group));
    let live: Vec<Member> = members.iter().copied().filter(|m| m.id != ids[2]).collect();
    w.set_group(group, &members, &live).unwrap();
    let after = spread(&r, group);
    check(&after);
    for m in [up[0], up[1], up[3]] {
        let share = after.iter().filter(|a| **a == m).count();
        assert!((1100..1650).contains(&share), "{share} of 4096");
    }
    for id in &ids {
        w.set(*id, NextHop::Unreachable);
    }
    w.set_group(group, &members, &[]).unwrap();
    assert_eq!(r.resolve_one(group, 5), NextHop::Unreachable);
}

#[test]
fn a_group_that_grows_moves_only_a_share() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let r = w.reader();
    let members: Vec<Member> = (1..=33)
        .map(|m| {
            let a = adjacency(&mut w, m);
            member(w.add(a).unwrap())
        })
        .collect();
    let group = w.add(NextHop::None).unwrap();
    w.set_group(group, &members[..32], &members[..32]).unwrap();
    let before = spread(&r, group);
    w.set_group(group, &members, &members).unwrap();
    let moved = before.iter().zip(spread(&r, group)).filter(|(b, a)| *b != a).count();
    assert!(moved < 4096 / 33 * 2, "{moved} of 4096 flows moved");
}

#[test]
fn indices_come_back_only_after_the_readers_were_quiescent() {
    let domain = Domain::new();
    let mut w = PlaneWriter::new(domain.clone()).unwrap();
    let mut worker = domain.register();
    let (a, group) = (adjacency(&mut w, 1), w.add(NextHop::None).unwrap());
    let id = w.add(a).unwrap();
    w.set_group(group, &[member(id)], &[member(id)]).unwrap();
    let NextHop::Forward(index) = a else { unreachable!() };
    w.remove(group);
    w.remove(id);
    w.remove_adjacency(index);
    w.commit();
    assert_eq!(w.in_use().retired, 4);
    assert_eq!(
        mac(&w.reader(), w.reader().resolve_one(group, 9)),
        Some(1),
        "packets on their way still leave"
    );
    assert_ne!(w.add(NextHop::Local).unwrap(), id);
    worker.quiescent();
    w.commit();
    assert_eq!(w.in_use(), PlaneUse { next_hops: 1, ..PlaneUse::default() });
}

#[test]
fn the_same_cycle_a_thousand_times_takes_no_more_room_than_once() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let mut once = None;
    for _ in 0..1000 {
        let ids: Vec<NextHopId> = (1..=9)
            .map(|m| {
                let a = adjacency(&mut w, m);
                w.add(a).unwrap()
            })
            .collect();
        let members: Vec<Member> = ids.iter().copied().map(member).collect();
        let group = w.add(NextHop::None).unwrap();
        w.set_group(group, &members, &members).unwrap();
        w.set_group(group, &members[..2], &members[..2]).unwrap();
        for id in ids {
            if let NextHop::Forward(a) = w.reader().resolve_one(id, 0) {
                w.remove_adjacency(a);
            }
            w.remove(id);
        }
        w.remove(group);
        w.commit();
        assert_eq!(w.in_use(), PlaneUse::default());
        assert_eq!(w.buckets.used(), 0);
        let room = (w.next_hops.fresh, w.adjacencies.fresh);
        assert_eq!(*once.get_or_insert(room), room);
    }
}

#[test]
fn use_is_noted_until_it_is_asked_for() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let NextHop::Forward(a) = adjacency(&mut w, 1) else { unreachable!() };
    assert!(!w.take_used(a));
    w.reader().mark_used(a);
    w.reader().mark_used(a);
    w.reader().mark_used(u32::MAX);
    assert!(w.take_used(a) && !w.take_used(a));
}

#[test]
fn full_tables_say_so() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    for _ in 1..MAX_NEXT_HOPS {
        w.add(NextHop::Local).unwrap();
    }
    assert_eq!(w.add(NextHop::Local), Err(PlaneError::TooManyNextHops));
    w.remove(5);
    assert_eq!(w.add(NextHop::Local), Ok(5));
    let many = vec![member(1); MAX_GROUP_MEMBERS + 1];
    assert_eq!(w.set_group(1, &many, &many), Err(PlaneError::TooManyMembers(513)));
}

#[test]
fn room_of_small_groups_serves_large_ones() {
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    let members: Vec<Member> = (0..64).map(|_| member(w.add(NextHop::Local).unwrap())).collect();
    let fill = |w: &mut PlaneWriter, members: &[Member]| {
        let mut groups = Vec::new();
        loop {
            let Ok(group) = w.add(NextHop::None) else { return groups };
            match w.set_group(group, members, members) {
                Ok(()) => groups.push(group),
                Err(error) => {
                    assert_eq!(error, PlaneError::TooManyGroups);
                    w.remove(group);
                    return groups;
                }
            }
        }
    };
    let empty = |w: &mut PlaneWriter, groups: Vec<NextHopId>| {
        groups.into_iter().for_each(|group| w.remove(group));
    };
    let large = fill(&mut w, &members).len();
    assert_eq!(large, MAX_BUCKETS / 512);
    let mut w = PlaneWriter::new(Domain::new()).unwrap();
    (0..64).for_each(|_| _ = w.add(NextHop::Local).unwrap());
    let small = fill(&mut w, &members[..1]);
    assert!(small.len() > MAX_BUCKETS / 16 - 100, "{} small groups", small.len());
    empty(&mut w, small);
    // Without a commit in between: what no worker looks at any more is found where it is needed.
    let again = fill(&mut w, &members);
    assert_eq!(again.len(), large);
    empty(&mut w, again);
    w.commit();
    assert_eq!(w.in_use().buckets, 0);
}

#[test]
fn readers_never_see_a_record_that_is_not_whole() {
    let domain = Domain::new();
    let mut w = PlaneWriter::new(domain.clone()).unwrap();
    let add = |w: &mut PlaneWriter, mac: u8| {
        let a = Adjacency { mtu: u16::from(mac) + 1000, ..Adjacency::new(1, &interface(), Some([mac; 6])) };
        w.add_adjacency(&a, Some(IpAddr::from([mac; 4])))
    };
    let mut last = add(&mut w, 1).unwrap();
    let id = w.add(NextHop::Forward(last)).unwrap();
    let group = w.add(NextHop::None).unwrap();
    w.set_group(group, &[member(id)], &[member(id)]).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (r, domain, stop) = (w.reader(), domain.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut qsbr = domain.register();
                let mut seen = std::collections::HashSet::new();
                while !stop.load(Relaxed) {
                    let NextHop::Forward(a) = r.resolve_one(group, 3) else {
                        panic!("the route was never down")
                    };
                    let value = r.adjacency(a);
                    let mac = value.mac();
                    assert_eq!(mac, [mac[0]; 6]);
                    assert_eq!(value.mtu, u16::from(mac[0]) + 1000);
                    assert_eq!(r.next_hop_ip(a), Some(IpAddr::from([mac[0]; 4])));
                    seen.insert(mac[0]);
                    qsbr.quiescent();
                }
                seen.len()
            })
        })
        .collect();
    for round in 0..200_000u32 {
        // Where all is taken the workers are behind: wait for them.
        let index = loop {
            match add(&mut w, round as u8) {
                Ok(index) => break index,
                Err(_) => std::thread::yield_now(),
            }
        };
        w.set(id, NextHop::Forward(index));
        w.remove_adjacency(std::mem::replace(&mut last, index));
        w.commit();
    }
    stop.store(true, Relaxed);
    assert!(workers.into_iter().all(|t| t.join().unwrap() > 0));
}
