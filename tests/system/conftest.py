"""Fixtures of the system tests."""

import pytest

import lab


@pytest.fixture
def balanced():
    """A check that an instance at rest has accounted for every packet and lost none of them."""

    def check(instance):
        _, drops = instance.at_rest()
        unexpected = {reason: n for reason, n in drops.items() if reason not in NOISE}
        assert not unexpected, unexpected

    return check


# What Linux says on its own: router solicitations, MLD, ARP. It is consumed, or is none of a router's business.
NOISE = {
    "arp_consumed", "arp_ignored", "nd_consumed", "nd_ignored", "ip6_multicast_unrouted", "ip4_multicast_unrouted",
    "local_unhandled", "icmp_ignored", "ip4_broadcast",
}
