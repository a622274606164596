"""Fixtures of the system tests."""

import pytest

import lab


@pytest.fixture
def balanced():
    """A check that an instance has accounted for every packet, worker by worker and port by port."""

    def check(instance, **expected_drops):
        drops = lab.settle(lambda: instance.show("drops"))
        assert drops["imbalance"] == [], drops
        counted = {d["reason"]: d["packets"] for d in drops["drops"]}
        for reason, least in expected_drops.items():
            assert counted.pop(reason, 0) >= least, (reason, drops)
        # What Linux says on its own: router solicitations, MLD, stray ARP. Nothing else may be lost.
        unexpected = {r: n for r, n in counted.items() if n and r not in NOISE}
        assert not unexpected, unexpected

    return check


NOISE = {
    "arp_consumed", "arp_ignored", "nd_consumed", "nd_ignored", "ip6_multicast_unrouted", "ip4_multicast_unrouted",
    "local_unhandled", "icmp_ignored", "ip4_broadcast",
}
