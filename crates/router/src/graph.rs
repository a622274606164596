//! The router's graph: every node, and where each of its exits leads.

use linerate_pipeline::graph::GraphError;
use linerate_pipeline::nodes::{EthInput, EthInputExit, Output};
use linerate_pipeline::{DropReason, Graph, GraphBuilder, Packet};
use linerate_tables::fib::Lookup;

use crate::acl::{AclLog, Filter};
use crate::multicast::family::{Ip4, Ip6};
use crate::multicast::node::{MulticastExit, MulticastNode};
use crate::nodes::arp::{Arp, ArpExit};
use crate::nodes::express::{Express, ExpressExit};
use crate::nodes::icmp4_error::{Icmp4Error, Icmp4ErrorExit};
use crate::nodes::icmp6_error::{Icmp6Error, Icmp6ErrorExit};
use crate::nodes::ip4_fragment::{Ip4Fragment, Ip4FragmentExit};
use crate::nodes::ip4_input::{Ip4Input, Ip4InputExit};
use crate::nodes::ip4_rewrite::{Ip4Rewrite, Ip4RewriteExit};
use crate::nodes::ip6_input::{Ip6Input, Ip6InputExit};
use crate::nodes::ip6_rewrite::{Ip6Rewrite, Ip6RewriteExit};
use crate::nodes::local::{Local, LocalExit};
use crate::nodes::lookup::{Ip4Lookup, Ip6Lookup, LookupExit};
use crate::nodes::nd::{Nd, NdExit};
use crate::nodes::punt::{Punt, PuntExit};
use crate::nodes::redirect::Redirect;
use crate::nodes::resolve::{HoldLimits, Resolve, ResolveExit};
use crate::nodes::source::{Ip4Source, Ip6Source, SourceExit};
use crate::nodes::{ErrorLimit, EventSink};
use crate::plane::Plane;
use crate::punt::{PuntCounters, PuntRates, PuntSink};

/// What the graph of one worker is made of.
pub struct Parts<P, R4, R6> {
    /// Tables, shared with control and the other workers.
    pub plane: Plane<R4, R6>,
    /// Seed of the flow hash: the same on all workers, so that a flow keeps its path wherever it is processed;
    /// different between routers.
    pub seed: u64,
    /// ICMP errors this worker sends per second at most.
    pub icmp_errors_per_second: u32,
    /// How many packets may wait for neighbours.
    pub hold: HoldLimits,
    /// Where ARP, ND and neighbour resolution put their events: one sink each, for each has its own queue.
    pub events: Events,
    /// The way to Linux; `None`: there is no host system behind this router.
    pub punt: Option<PuntParts<P>>,
}

/// The way to Linux.
pub struct PuntParts<P> {
    /// How much of each kind may pass.
    pub rates: PuntRates,
    /// What passed.
    pub counters: PuntCounters,
    /// Where it goes.
    pub sink: Box<dyn PuntSink<P>>,
}

/// The sinks of the nodes that raise events.
pub struct Events {
    /// [`crate::event::RouterEvent::ArpSeen`].
    pub arp: EventSink,
    /// [`crate::event::RouterEvent::NdSeen`].
    pub nd: EventSink,
    /// [`crate::event::RouterEvent::Unresolved`].
    pub resolve: EventSink,
    /// [`crate::event::RouterEvent::AclHit`].
    pub acl: EventSink,
}

/// Builds the router's graph for one worker.
pub fn assemble<P, R4, R6>(parts: Parts<P, R4, R6>) -> Result<Graph<P>, GraphError>
where
    P: Packet,
    R4: Lookup<u32> + Clone + 'static,
    R6: Lookup<u128> + Clone + 'static,
{
    let Parts { mut plane, seed, icmp_errors_per_second, hold, events, punt } = parts;
    let interfaces = || plane.interfaces.clone();
    plane.acls = plane.acls.clone().for_worker();
    let (acls, acl_log) = (|| plane.acls.clone(), AclLog::new(events.acl));
    let limit = ErrorLimit::new(icmp_errors_per_second);
    let redirect = Redirect::new(interfaces(), plane.next_hops.clone(), limit.clone());

    // In the order packets meet them.
    let mut g = GraphBuilder::new();
    let express = g.declare("express");
    let eth_input = g.declare("eth_input");
    let ip4_input = g.declare("ip4_input");
    let ip6_input = g.declare("ip6_input");
    let arp = g.declare("arp");
    let ip4_source = g.declare("ip4_source");
    let ip6_source = g.declare("ip6_source");
    let ip4_lookup = g.declare("ip4_lookup");
    let ip6_lookup = g.declare("ip6_lookup");
    let ip4_multicast = g.declare("ip4_multicast");
    let ip6_multicast = g.declare("ip6_multicast");
    let local = g.declare("local");
    let nd = g.declare("nd");
    let ip4_rewrite = g.declare("ip4_rewrite");
    let ip6_rewrite = g.declare("ip6_rewrite");
    let resolve = g.declare("resolve");
    let icmp4_error = g.declare("icmp4_error");
    let icmp6_error = g.declare("icmp6_error");
    let output = g.declare("output");
    // Behind output, so that packets in front of one that is fragmented have left.
    let ip4_fragment = g.declare("ip4_fragment");
    let has_host = punt.is_some();
    let punt = punt.map(|parts| (g.declare("punt"), parts));
    // Where what concerns a host system goes: to it, or where there is none, nowhere.
    let at_host = punt.as_ref().map(|(node, _)| *node);
    let host_or = |reason: DropReason| at_host.map_or(reason.into(), Into::into);

    g.define(express, Express::new(&plane, seed), |exit| match exit {
        ExpressExit::Regular => eth_input.into(),
    });
    g.enter_traced_at(eth_input);
    g.define(eth_input, EthInput::new(interfaces()), |exit| match exit {
        EthInputExit::Ip4 => ip4_input.into(),
        EthInputExit::Ip6 => ip6_input.into(),
        EthInputExit::Arp => arp.into(),
        EthInputExit::Other => host_or(DropReason::EthertypeUnknown),
        EthInputExit::TooShort => DropReason::EthTooShort.into(),
        EthInputExit::VlanTooShort => DropReason::VlanTooShort.into(),
        EthInputExit::VlanUnknown => DropReason::VlanUnknown.into(),
        EthInputExit::InterfaceDown => DropReason::InterfaceDown.into(),
        EthInputExit::SourceMulticast => DropReason::EthSourceMulticast.into(),
        EthInputExit::NotForUs => DropReason::EthNotForUs.into(),
        EthInputExit::NotContiguous => DropReason::HeaderNotContiguous.into(),
    });
    g.define(ip4_input, Ip4Input::new(interfaces(), acls(), acl_log.clone()), |exit| match exit {
        Ip4InputExit::Unicast => ip4_lookup.into(),
        Ip4InputExit::CheckSource => ip4_source.into(),
        Ip4InputExit::Multicast => ip4_multicast.into(),
        Ip4InputExit::Broadcast => host_or(DropReason::Ip4Broadcast),
        Ip4InputExit::TooShort => DropReason::Ip4TooShort.into(),
        Ip4InputExit::BadVersion => DropReason::Ip4BadVersion.into(),
        Ip4InputExit::BadHeaderLength => DropReason::Ip4BadHeaderLength.into(),
        Ip4InputExit::BadTotalLength => DropReason::Ip4BadTotalLength.into(),
        Ip4InputExit::BadChecksum => DropReason::Ip4BadChecksum.into(),
        Ip4InputExit::BadOptions => DropReason::Ip4BadOptions.into(),
        Ip4InputExit::SourceRoute => DropReason::Ip4SourceRoute.into(),
        Ip4InputExit::BadSource => DropReason::Ip4BadSource.into(),
        Ip4InputExit::OwnSource => DropReason::Ip4OwnSource.into(),
        Ip4InputExit::LinkLocalScope => DropReason::Ip4LinkLocalScope.into(),
        Ip4InputExit::BadDestination => DropReason::Ip4BadDestination.into(),
        Ip4InputExit::L2Broadcast => DropReason::L2BroadcastUnicastIp.into(),
        Ip4InputExit::NotContiguous => DropReason::HeaderNotContiguous.into(),
        Ip4InputExit::AclDenied => DropReason::AclInDenied.into(),
        Ip4InputExit::AclRejected => icmp4_error.into(),
        Ip4InputExit::AclUndetermined => DropReason::AclUndetermined.into(),
    });
    g.define(ip6_input, Ip6Input::new(interfaces(), acls(), acl_log.clone()), |exit| match exit {
        Ip6InputExit::Unicast => ip6_lookup.into(),
        Ip6InputExit::CheckSource => ip6_source.into(),
        Ip6InputExit::Local => local.into(),
        Ip6InputExit::Multicast => ip6_multicast.into(),
        Ip6InputExit::TooShort => DropReason::Ip6TooShort.into(),
        Ip6InputExit::BadVersion => DropReason::Ip6BadVersion.into(),
        Ip6InputExit::BadPayloadLength => DropReason::Ip6BadPayloadLength.into(),
        Ip6InputExit::BadExtension => DropReason::Ip6BadExtension.into(),
        Ip6InputExit::BadSource => DropReason::Ip6BadSource.into(),
        Ip6InputExit::OwnSource => DropReason::Ip6OwnSource.into(),
        Ip6InputExit::BadDestination => DropReason::Ip6BadDestination.into(),
        Ip6InputExit::LinkLocalScope => DropReason::Ip6LinkLocalScope.into(),
        Ip6InputExit::L2Multicast => DropReason::L2BroadcastUnicastIp.into(),
        Ip6InputExit::NotContiguous => DropReason::HeaderNotContiguous.into(),
        Ip6InputExit::AclDenied => DropReason::AclInDenied.into(),
        Ip6InputExit::AclRejected => icmp6_error.into(),
        Ip6InputExit::AclUndetermined => DropReason::AclUndetermined.into(),
    });
    g.define(arp, Arp::new(interfaces(), events.arp), |exit| match exit {
        ArpExit::Reply => output.into(),
        ArpExit::Heard => host_or(DropReason::ArpConsumed),
        ArpExit::Consumed => DropReason::ArpConsumed.into(),
        ArpExit::Ignored => DropReason::ArpIgnored.into(),
        ArpExit::Malformed => DropReason::ArpMalformed.into(),
    });
    g.define(ip4_source, Ip4Source::new(&plane), |exit| match exit {
        SourceExit::Valid => ip4_lookup.into(),
        SourceExit::Invalid => DropReason::Ip4SourceInvalid.into(),
    });
    g.define(ip6_source, Ip6Source::new(&plane), |exit| match exit {
        SourceExit::Valid => ip6_lookup.into(),
        SourceExit::Invalid => DropReason::Ip6SourceInvalid.into(),
    });
    g.define(ip4_lookup, Ip4Lookup::new(&plane, seed, acl_log.clone()), |exit| match exit {
        LookupExit::Forward => ip4_rewrite.into(),
        LookupExit::Local => local.into(),
        LookupExit::Resolve => resolve.into(),
        LookupExit::NoRoute | LookupExit::Unreachable | LookupExit::Prohibit => icmp4_error.into(),
        LookupExit::AclDenied => DropReason::AclOutDenied.into(),
        LookupExit::AclRejected => icmp4_error.into(),
        LookupExit::AclUndetermined => DropReason::AclUndetermined.into(),
        LookupExit::Blackhole => DropReason::RouteBlackhole.into(),
    });
    g.define(ip6_lookup, Ip6Lookup::new(&plane, seed, acl_log.clone()), |exit| match exit {
        LookupExit::Forward => ip6_rewrite.into(),
        LookupExit::Local => local.into(),
        LookupExit::Resolve => resolve.into(),
        LookupExit::NoRoute | LookupExit::Unreachable | LookupExit::Prohibit => icmp6_error.into(),
        LookupExit::AclDenied => DropReason::AclOutDenied.into(),
        LookupExit::AclRejected => icmp6_error.into(),
        LookupExit::AclUndetermined => DropReason::AclUndetermined.into(),
        LookupExit::Blackhole => DropReason::RouteBlackhole.into(),
    });
    let multicast = |unrouted: DropReason, bad_source: DropReason| {
        move |exit| match exit {
            MulticastExit::Control | MulticastExit::Sample | MulticastExit::Member => {
                host_or(DropReason::LocalUnhandled)
            }
            MulticastExit::FirstPacket => host_or(unrouted),
            MulticastExit::WrongInterface => host_or(DropReason::MulticastWrongInterface),
            MulticastExit::PacketTooBig => icmp6_error.into(),
            MulticastExit::Unrouted => unrouted.into(),
            MulticastExit::WrongInterfaceDrop => DropReason::MulticastWrongInterface.into(),
            MulticastExit::NoOutput => DropReason::MulticastNoOutput.into(),
            MulticastExit::TtlExpired => DropReason::TtlExpired.into(),
            MulticastExit::TooLong => DropReason::MtuExceeded.into(),
            MulticastExit::BadSource => bad_source.into(),
            MulticastExit::LinkLocalSource => DropReason::Ip6LinkLocalScope.into(),
            MulticastExit::MemberLimit => DropReason::MulticastMemberLimit.into(),
            MulticastExit::NoHeadroom => DropReason::NoHeadroom.into(),
            MulticastExit::AclDenied => DropReason::AclOutDenied.into(),
            MulticastExit::AclRejected => DropReason::AclRejected.into(),
            MulticastExit::AclUndetermined => DropReason::AclUndetermined.into(),
        }
    };
    let cut = || Ip4Fragment::new(plane.next_hops.clone());
    let join4 = multicast(DropReason::Ip4MulticastUnrouted, DropReason::Ip4BadSource);
    let lists4 = Filter::new(acls(), acl_log.clone());
    g.define(ip4_multicast, MulticastNode::<P, Ip4>::new(&plane.multicast, cut(), lists4), join4);
    let join6 = multicast(DropReason::Ip6MulticastUnrouted, DropReason::Ip6BadSource);
    let lists6 = Filter::new(acls(), acl_log.clone());
    g.define(ip6_multicast, MulticastNode::<P, Ip6>::new(&plane.multicast, cut(), lists6), join6);
    g.define(local, Local::new(interfaces(), has_host), |exit| match exit {
        LocalExit::Reply4 => ip4_lookup.into(),
        LocalExit::Reply6 => ip6_lookup.into(),
        LocalExit::ReplyOnLink => output.into(),
        LocalExit::Nd => nd.into(),
        LocalExit::Unreachable4 => icmp4_error.into(),
        LocalExit::Unreachable6 => icmp6_error.into(),
        LocalExit::Broadcast => output.into(),
        LocalExit::NoBroadcast => DropReason::Ip4Broadcast.into(),
        LocalExit::BroadcastTooLong => DropReason::MtuExceeded.into(),
        LocalExit::Punt => host_or(DropReason::LocalUnhandled),
        LocalExit::IcmpOther => DropReason::IcmpIgnored.into(),
        LocalExit::IcmpMalformed => DropReason::IcmpMalformed.into(),
        LocalExit::BadExtension => DropReason::Ip6BadExtension.into(),
        LocalExit::Unsendable => DropReason::IcmpUnsendable.into(),
    });
    g.define(nd, Nd::new(interfaces(), events.nd), |exit| match exit {
        NdExit::Reply => output.into(),
        NdExit::Heard => host_or(DropReason::NdConsumed),
        NdExit::Other => host_or(DropReason::NdIgnored),
        NdExit::Ignored => DropReason::NdIgnored.into(),
        NdExit::Malformed => DropReason::NdMalformed.into(),
        NdExit::Unsendable => DropReason::IcmpUnsendable.into(),
    });
    g.define(ip4_rewrite, Ip4Rewrite::new(plane.next_hops.clone(), redirect.clone()), |exit| match exit {
        Ip4RewriteExit::Output => output.into(),
        Ip4RewriteExit::TtlExpired | Ip4RewriteExit::FragmentationNeeded => icmp4_error.into(),
        Ip4RewriteExit::Fragment => ip4_fragment.into(),
        Ip4RewriteExit::NoHeadroom => DropReason::NoHeadroom.into(),
        Ip4RewriteExit::AdjacencyGone => DropReason::AdjacencyGone.into(),
    });
    g.define(ip6_rewrite, Ip6Rewrite::new(plane.next_hops.clone(), redirect), |exit| match exit {
        Ip6RewriteExit::Output => output.into(),
        Ip6RewriteExit::HopLimitExceeded | Ip6RewriteExit::PacketTooBig => icmp6_error.into(),
        Ip6RewriteExit::LinkTooSmall => DropReason::MtuExceeded.into(),
        Ip6RewriteExit::NoHeadroom => DropReason::NoHeadroom.into(),
        Ip6RewriteExit::AdjacencyGone => DropReason::AdjacencyGone.into(),
    });
    g.define(ip4_fragment, Ip4Fragment::new(plane.next_hops.clone()), |exit| match exit {
        Ip4FragmentExit::PoolExhausted => DropReason::PoolExhausted.into(),
        Ip4FragmentExit::NoHeadroom => DropReason::NoHeadroom.into(),
        Ip4FragmentExit::Unsendable => DropReason::MtuExceeded.into(),
    });
    g.define(resolve, Resolve::new(plane.clone(), seed, hold, events.resolve), |exit| match exit {
        ResolveExit::Lookup4 => ip4_lookup.into(),
        ResolveExit::Lookup6 => ip6_lookup.into(),
        ResolveExit::Unreachable4 => icmp4_error.into(),
        ResolveExit::Unreachable6 => icmp6_error.into(),
        ResolveExit::QueueFull => DropReason::NeighborQueueFull.into(),
        ResolveExit::TableFull => DropReason::NeighborTableFull.into(),
        ResolveExit::AdjacencyGone => DropReason::AdjacencyGone.into(),
    });
    g.define(icmp4_error, Icmp4Error::new(interfaces(), limit.clone()), |exit| match exit {
        Icmp4ErrorExit::Send => ip4_lookup.into(),
        Icmp4ErrorExit::Unsendable => DropReason::IcmpUnsendable.into(),
        Icmp4ErrorExit::TtlExpired => DropReason::TtlExpired.into(),
        Icmp4ErrorExit::NoRoute => DropReason::NoRoute.into(),
        Icmp4ErrorExit::Unreachable => DropReason::Unreachable.into(),
        Icmp4ErrorExit::Prohibited => DropReason::RouteProhibit.into(),
        Icmp4ErrorExit::Filtered => DropReason::AclRejected.into(),
        Icmp4ErrorExit::TooBig => DropReason::MtuExceeded.into(),
        Icmp4ErrorExit::NotLocal => host_or(DropReason::LocalUnhandled),
    });
    g.define(icmp6_error, Icmp6Error::new(interfaces(), limit), |exit| match exit {
        Icmp6ErrorExit::Send => ip6_lookup.into(),
        Icmp6ErrorExit::SendOnLink => output.into(),
        Icmp6ErrorExit::Unsendable => DropReason::IcmpUnsendable.into(),
        Icmp6ErrorExit::HopLimitExceeded => DropReason::TtlExpired.into(),
        Icmp6ErrorExit::NoRoute => DropReason::NoRoute.into(),
        Icmp6ErrorExit::Unreachable => DropReason::Unreachable.into(),
        Icmp6ErrorExit::Prohibited => DropReason::RouteProhibit.into(),
        Icmp6ErrorExit::Filtered => DropReason::AclRejected.into(),
        Icmp6ErrorExit::TooBig => DropReason::MtuExceeded.into(),
        Icmp6ErrorExit::NotLocal => host_or(DropReason::LocalUnhandled),
    });
    g.define(output, Output, |exit| match exit {});
    if let Some((node, PuntParts { rates, counters, sink })) = punt {
        g.define(node, Punt::new(&rates, counters, sink), |exit| match exit {
            PuntExit::Policed => DropReason::PuntPoliced.into(),
            PuntExit::QueueFull => DropReason::PuntQueueFull.into(),
            PuntExit::Unwanted => DropReason::EthertypeUnknown.into(),
        });
    }
    g.build()
}
