//! Addresses of new taps, told once more.
//!
//! A program that hears of links and of addresses by different sockets can hear of an address before the link it is on, and
//! forget it. FRR's zebra does (8.4: `can't find ifp at nsid 0 index …`), and then lacks the interface's addresses for as long as
//! the tap lives: sessions do not come up, gateways are unreachable. The kernel tells everybody of an address that is set again
//! as it is.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linerate_pipeline::IfIndex;

/// When addresses are told again, after their tap was made: at once for most, and after what keeps a daemon busy.
const AGAIN: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)];

/// New taps whose addresses are told again.
#[derive(Debug, Default)]
pub(super) struct Announcements(Vec<Announcement>);

#[derive(Debug)]
struct Announcement {
    interface: IfIndex,
    /// What the tap was given.
    addresses: Vec<IpNet>,
    made: Instant,
    /// How often they were told again.
    told: usize,
}

impl Announcements {
    /// A tap was made with these addresses.
    pub(super) fn made(&mut self, now: Instant, interface: IfIndex, addresses: &[IpNet]) {
        self.0.retain(|a| a.interface != interface);
        self.0.push(Announcement { interface, addresses: addresses.to_vec(), made: now, told: 0 });
    }

    /// Calls `tell` with each interface whose time has come, and whether an address of it was given by us or made by the kernel
    /// itself. Others may have a lifetime, which setting them again would change.
    pub(super) fn due(&mut self, now: Instant, mut tell: impl FnMut(IfIndex, &dyn Fn(&IpNet) -> bool)) {
        for announcement in &mut self.0 {
            let since = now.saturating_duration_since(announcement.made);
            let due = AGAIN.iter().take_while(|at| **at <= since).count();
            if due > announcement.told {
                announcement.told = due;
                let link_local = |a: &IpNet| matches!(a.addr(), IpAddr::V6(a) if a.is_unicast_link_local());
                tell(announcement.interface, &|a| announcement.addresses.contains(a) || link_local(a));
            }
        }
        self.0.retain(|a| a.told < AGAIN.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tap_was_given_is_told_again_three_times() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let (start, mut all) = (Instant::now(), Announcements::default());
        let after = |ms: u64| start + Duration::from_millis(ms);
        all.made(start, 3, &[net("198.18.1.1/24")]);
        let mut told = Vec::new();
        for ms in (0..60_000).step_by(100) {
            all.due(after(ms), |interface, ours| {
                assert!(ours(&net("198.18.1.1/24")) && ours(&net("fe80::1/64")));
                assert!(!ours(&net("198.18.1.2/24")) && !ours(&net("2001:db8::1/64")));
                told.push((ms, interface));
            });
        }
        assert_eq!(told, [(1000, 3), (5000, 3), (20_000, 3)]);
        assert!(all.0.is_empty());
    }

    #[test]
    fn a_tap_made_again_starts_anew_and_a_late_look_tells_once() {
        let (start, mut all) = (Instant::now(), Announcements::default());
        all.made(start, 3, &[]);
        all.made(start + Duration::from_secs(2), 3, &[]);
        let mut told = 0;
        all.due(start + Duration::from_millis(2900), |_, _| told += 1);
        assert_eq!(told, 0);
        all.due(start + Duration::from_secs(30), |_, _| told += 1);
        all.due(start + Duration::from_secs(60), |_, _| told += 1);
        assert_eq!(told, 1);
    }
}
