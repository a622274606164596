//! Routing tables of their own: rules that lead what is of a tap to the table of its VRF, and connected routes there.
//!
//! Linux looks routes up in its table `main` unless a rule says otherwise, and puts connected routes there. For interfaces
//! whose routes are in another table, what comes in or goes out by the tap, and what is sent from its addresses, is led to
//! that table; nothing else of the system's routing is touched. Multicast routes have rules of their own, which lead to the table
//! of the same number: that of a daemon that asks for it (`MRT_TABLE`). Where nobody does, the kernel asks the next rule.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use linerate_linux::netlink::{Operation, Rule, RuleTarget, Writer};
use linerate_linux::route::{NextHop, Protocol, Route, RouteKind, RuleSeen, Scope};
use tracing::{debug, warn};

/// Linux's table `main`, which needs no rules.
pub(super) const MAIN: u32 = 254;

/// Who made the connected routes (`rtm_protocol`): a number that nobody else has.
pub(super) const OURS: Protocol = Protocol(76);

/// Where our rules stand: behind that for local addresses, ahead of `main`.
const PRIORITY: u32 = 1000;

/// A tap whose routes are in a table of their own.
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) tap: u32,
    pub(super) table: u32,
    pub(super) addresses: &'a [IpNet],
}

/// What a rule asks of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asks {
    Input(String),
    Output(String),
    From(IpAddr),
}

/// Whose rule it is: the kernel has four lists of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    v6: bool,
    multicast: bool,
}

/// The rules and routes that are in place.
#[derive(Debug, Default)]
pub(super) struct Tables {
    rules: BTreeSet<(Asks, Of, u32)>,
    /// Table, prefix, tap, and the router's own address there.
    connected: BTreeSet<(u32, IpNet, u32, IpAddr)>,
}

impl Tables {
    /// Makes rules and connected routes what these taps need.
    pub(super) fn follow<'a>(&mut self, writer: &mut Writer, members: impl Iterator<Item = Member<'a>>) {
        let (mut rules, mut connected) = (BTreeSet::new(), BTreeSet::new());
        for m in members.filter(|m| m.table != MAIN) {
            for (v6, multicast) in [(false, false), (false, true), (true, false), (true, true)] {
                rules.insert((Asks::Input(m.name.into()), Of { v6, multicast }, m.table));
                rules.insert((Asks::Output(m.name.into()), Of { v6, multicast }, m.table));
            }
            for a in m.addresses {
                let link_local = matches!(a.addr(), IpAddr::V6(a) if a.is_unicast_link_local());
                if !link_local {
                    let of = Of { v6: a.addr().is_ipv6(), multicast: false };
                    rules.insert((Asks::From(a.addr()), of, m.table));
                }
                if a.prefix_len() < a.max_prefix_len() {
                    connected.insert((m.table, a.trunc(), m.tap, a.addr()));
                }
            }
        }
        for gone in self.rules.difference(&rules) {
            set_rule(writer, Operation::Delete, gone);
        }
        for new in rules.difference(&self.rules) {
            set_rule(writer, Operation::Replace, new);
        }
        for gone in self.connected.difference(&connected) {
            // Routes by a tap that is gone went with it.
            let _ = writer.route(Operation::Delete, &route(gone));
        }
        let mut kept = connected.clone();
        for new in connected.difference(&self.connected) {
            if let Err(error) = writer.route(Operation::Replace, &route(new)) {
                warn!("{error}");
                kept.remove(new);
            }
        }
        (self.rules, self.connected) = (rules, kept);
    }

    /// Linux has lost a route of ours, as `ip route flush table` does it. Whether it has to be made again.
    pub(super) fn lost(&mut self, gone: &Route) -> bool {
        let before = self.connected.len();
        self.connected.retain(|(table, prefix, ..)| (*table, *prefix) != (gone.table, gone.prefix));
        self.connected.len() < before
    }

    /// Linux has lost a rule, as `ip rule flush` does it. Whether it was one of ours and has to be made again; those that we
    /// delete ourselves are ours no more when Linux says so.
    pub(super) fn lost_rule(&mut self, gone: &RuleSeen) -> bool {
        let asks = match (&gone.input, &gone.output, gone.from) {
            (Some(name), None, None) => Asks::Input(name.clone()),
            (None, Some(name), None) => Asks::Output(name.clone()),
            (None, None, Some(from)) if from.prefix_len() == from.max_prefix_len() => Asks::From(from.addr()),
            _ => return false,
        };
        let of = Of { v6: gone.v6, multicast: gone.multicast };
        gone.priority == PRIORITY && gone.table.is_some_and(|table| self.rules.remove(&(asks, of, table)))
    }

    /// Messages of Linux were lost, and perhaps with them that a rule is gone: all are to be made again that are not there.
    pub(super) fn doubt_rules(&mut self) {
        self.rules.clear();
    }

    /// Takes everything back.
    pub(super) fn clear(&mut self, writer: &mut Writer) {
        self.follow(writer, std::iter::empty());
    }
}

fn set_rule(writer: &mut Writer, operation: Operation, (asks, of, table): &(Asks, Of, u32)) {
    let mut rule = Rule {
        v6: of.v6,
        multicast: of.multicast,
        priority: PRIORITY,
        from: None,
        to: None,
        input: None,
        output: None,
        mark: None,
        target: RuleTarget::Table(*table),
    };
    match asks {
        Asks::Input(name) => rule.input = Some(name.clone()),
        Asks::Output(name) => rule.output = Some(name.clone()),
        Asks::From(address) => rule.from = Some((*address).into()),
    }
    match writer.rule(operation, &rule) {
        // A kernel may have but one multicast table.
        Err(error) if of.multicast => debug!("multicast: {error}"),
        Err(error) if !(operation == Operation::Delete && error.absent()) => warn!("{error}"),
        _ => {}
    }
}

fn route((table, prefix, tap, own): &(u32, IpNet, u32, IpAddr)) -> Route {
    Route {
        table: *table,
        prefix: *prefix,
        tos: 0,
        metric: 0,
        protocol: OURS,
        scope: if prefix.addr().is_ipv4() { Scope::Link } else { Scope::Universe },
        kind: RouteKind::Unicast,
        from: None,
        preferred_source: prefix.addr().is_ipv4().then_some(*own),
        mtu: None,
        nexthop: None,
        next_hops: vec![NextHop { interface: Some(*tap), ..NextHop::default() }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_goes_is_ours_while_we_want_it() {
        let of = Of { v6: true, multicast: false };
        let from: IpAddr = "2001:db8::1".parse().unwrap();
        let mut tables = Tables::default();
        tables.rules.extend([(Asks::Input("lan".into()), of, 100), (Asks::From(from), of, 100)]);
        let seen = |input: Option<&str>, from: Option<IpNet>| RuleSeen {
            v6: true,
            multicast: false,
            priority: PRIORITY,
            table: Some(100),
            from,
            input: input.map(str::to_owned),
            output: None,
        };
        let input = seen(Some("lan"), None);
        assert!(!tables.lost_rule(&RuleSeen { priority: 5, ..input.clone() }), "another's");
        assert!(!tables.lost_rule(&RuleSeen { v6: false, ..input.clone() }));
        assert!(!tables.lost_rule(&RuleSeen { table: Some(101), ..input.clone() }));
        assert!(!tables.lost_rule(&seen(Some("lan"), Some(from.into()))));
        assert!(!tables.lost_rule(&seen(None, Some("2001:db8::/64".parse().unwrap()))));
        assert!(tables.lost_rule(&input));
        assert!(!tables.lost_rule(&input), "it is to be made once");
        assert!(tables.lost_rule(&seen(None, Some(from.into()))));
        assert!(tables.rules.is_empty());
    }
}
