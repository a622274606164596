//! Multicast and VRFs: a route forwards what comes in by interfaces of its own VRF, whatever there is in others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod multicast_frames;

use linerate_pipeline::{DropReason, IfIndex, Interface, VrfId};
use linerate_router::testbed::Live;
use linerate_router::{MrouteError, MrouteKey, MrouteOrigin, RouterConfig, VrfConfig};
use multicast_frames::{frame, key, to, udp};

const STREAMS: [(&str, &str, DropReason); 2] = [
    ("10.0.0.9", "239.1.1.1", DropReason::Ip4MulticastUnrouted),
    ("2001:db8::9", "ff3e::1", DropReason::Ip6MulticastUnrouted),
];

/// Interface and port of the same number, in a VRF; 5 is a VLAN of port 4.
fn interface(i: IfIndex, vrf: VrfId) -> (IfIndex, Interface) {
    let net = format!("10.0.{i}.1/24").parse().unwrap();
    let (port, vlan) = (i.min(4), (i == 5).then_some(9));
    (
        i,
        Interface {
            vrf,
            vlan,
            ..Interface::new(&format!("i{i}"), port, [2, 0, 0, 0, 0, i as u8], 1500, &[net])
        },
    )
}

/// 0 and 1 are in the default VRF, 2 and 3 in the first, 4 and 5 in the second.
fn interfaces() -> Vec<(IfIndex, Interface)> {
    (0..6).map(|i| interface(i, i / 2)).collect()
}

fn live() -> Live {
    let vrf = |(vrf, name): (VrfId, &str)| VrfConfig { vrf, name: name.into(), routes: vec![] };
    let vrfs = [(1, "red"), (2, "blue")].map(vrf).to_vec();
    Live::new(RouterConfig { interfaces: interfaces(), vrfs, ..RouterConfig::default() }, 1).unwrap()
}

fn of(vrf: VrfId, stream: &(&str, &str, DropReason)) -> MrouteKey {
    MrouteKey { vrf, ..key(stream.0, stream.1) }
}

fn by(input: IfIndex, outputs: &[IfIndex]) -> linerate_router::Mroute {
    linerate_router::Mroute { input, ..to(outputs) }
}

/// Ports by which a packet of the stream leaves that comes in by a port.
fn ports(live: &mut Live, port: IfIndex, stream: &(&str, &str, DropReason)) -> Vec<u16> {
    let mut ports: Vec<u16> =
        live.frame(port, &frame(&[], &udp(stream.0, stream.1, 9, 40))).iter().map(|s| s.port).collect();
    ports.sort_unstable();
    ports
}

/// What was dropped, without the samples of learned routes that would go to a host system.
fn drops(live: &mut Live) -> Vec<(DropReason, u64)> {
    live.drops().into_iter().filter(|d| d.0 != DropReason::LocalUnhandled).collect()
}

#[test]
fn a_stream_of_one_vrf_is_none_of_anothers() {
    for stream in &STREAMS {
        let mut live = live();
        live.router.set_mroute(1, of(1, stream), by(2, &[3])).unwrap();
        assert_eq!(ports(&mut live, 2, stream), [3]);
        assert_eq!(drops(&mut live), []);
        // No route there: not one that came in by the wrong interface.
        for port in [0, 1, 4] {
            assert_eq!(
                (ports(&mut live, port, stream), drops(&mut live)),
                (vec![], vec![(stream.2, 1)]),
                "{port}"
            );
        }
        assert_eq!(
            (ports(&mut live, 3, stream), drops(&mut live)),
            (vec![], vec![(DropReason::MulticastWrongInterface, 1)])
        );
        // The same stream in all three, with counters of its own in each.
        live.router.set_mroute(1, of(0, stream), by(0, &[1])).unwrap();
        live.router.set_mroute(1, MrouteKey { source: None, ..of(2, stream) }, by(4, &[5])).unwrap();
        for (port, out) in [(0, 1), (2, 3), (4, 4), (4, 4)] {
            assert_eq!(ports(&mut live, port, stream), [out]);
        }
        let mut counts: Vec<_> =
            live.router.mroutes().map(|v| (v.key.vrf, v.packets, v.wrong_interface)).collect();
        counts.sort_unstable();
        assert_eq!(counts, [(0, 1, 0), (1, 2, 1), (2, 2, 0)]);
        // One goes, the others stay.
        assert!(live.router.remove_mroute(1, of(1, stream)) && !live.router.remove_mroute(1, of(1, stream)));
        assert_eq!([0, 2, 4].map(|port| ports(&mut live, port, stream)), [vec![1], vec![], vec![4]]);
        assert_eq!(drops(&mut live), [(stream.2, 1)]);
    }
}

#[test]
fn the_input_is_of_the_routes_vrf_and_outputs_may_be_elsewhere() {
    let mut live = live();
    let stream = &STREAMS[0];
    let wrong = MrouteError::OtherVrf { key: of(0, stream), interface: "i2".into(), vrf: 1 };
    assert_eq!(
        wrong.to_string(),
        "multicast route (10.0.0.9, 239.1.1.1): its input is the interface \"i2\", which is in VRF 1"
    );
    assert_eq!(live.router.set_mroute(1, of(0, stream), by(2, &[3])), Err(wrong.clone()));
    assert_eq!(live.router.set_static_mroutes(1, vec![(of(0, stream), by(2, &[3]))]), Err(wrong));
    // Leaves by interfaces of other VRFs, as unicast routes may.
    live.router.set_static_mroutes(1, vec![(of(1, stream), by(2, &[1, 3, 4]))]).unwrap();
    assert_eq!(ports(&mut live, 2, stream), [1, 3, 4]);
}

#[test]
fn routes_of_an_interface_that_changes_its_vrf_follow_or_go() {
    for stream in &STREAMS {
        let mut live = live();
        let fixed = MrouteKey { source: None, ..of(1, stream) };
        live.router.set_static_mroutes(1, vec![(fixed, by(2, &[1, 3]))]).unwrap();
        live.router.set_mroute(1, of(1, stream), by(2, &[3])).unwrap();
        assert_eq!(ports(&mut live, 2, stream), [3]);
        let mut moved = interfaces();
        moved[2] = interface(2, 2);
        live.router.set_interfaces(2, moved.clone()).unwrap();
        // What the configuration says goes on; what was learned in the VRF was learned of it.
        assert_eq!(ports(&mut live, 2, stream), [1, 3]);
        let left: Vec<_> = live.router.mroutes().map(|v| (v.key, v.origin)).collect();
        assert_eq!(left, [(MrouteKey { vrf: 2, ..fixed }, MrouteOrigin::Static)]);
        // An output goes at the same time.
        moved.remove(3);
        moved[2] = interface(2, 0);
        live.router.set_interfaces(3, moved).unwrap();
        assert_eq!(ports(&mut live, 2, stream), [1]);
        assert_eq!(drops(&mut live), []);
    }
}
