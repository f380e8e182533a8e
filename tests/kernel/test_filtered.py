"""check, explain, tree and doctor on an nftables chain of somebody's that drops all of a NIC's traffic: echoes decide."""

from __future__ import annotations

import shlex

import pytest

from netcommon.doctor import findings
from runtime.paths import Paths
from tests.kernel.test_bridge_cut_off import GUEST, OUTSIDE, placed
from tests.kernel.test_check_forwarding import TABLE, passing, up
from tests.support.netns import Namespace, run, sysctl
from tests.support.node import Node
from tests.support.node_ways import WAYS, lead
from tests.support.routed import Site, drift, reaches
from tests.support.verdict import lost

pytestmark = pytest.mark.sampled(5)

ALL_DROPPED = "nftables chain {} site c drops all that comes to it"

#: Family, hook, policy and rule of a base chain, whether echoes pass, and whether it is said.
BRIDGED = {
    "forward": ("bridge", "hook forward", "drop", "", False, True),
    "prerouting": ("bridge", "hook prerouting", "drop", "", False, True),
    "postrouting": ("bridge", "hook postrouting", "drop", "", False, True),
    "accepting": ("bridge", "hook forward", "accept", "", True, False),
    "dropping": ("bridge", "hook forward", "accept", "counter drop", False, True),
    "something": ("bridge", "hook forward", "accept", "ether type ip6 counter drop", True, False),
    "at times": ("bridge", "hook forward", "accept", "limit rate over 1000/second drop", True, False),
    "accepting all": ("bridge", "hook forward", "drop", "accept", True, False),
    "of the node": ("bridge", "hook input", "drop", "", True, False),
    "from the guest": ("netdev", "hook ingress device tap0", "drop", "", False, True),
    "for the guest": ("netdev", "hook egress device tap0", "accept", "drop", False, True),
    "at another device": ("netdev", "hook ingress device other", "drop", "", True, False),
}


def chain(family: str, hook: str, policy: str = "drop", rule: str = "") -> None:
    run("nft", f"add table {family} site")
    run("nft", f"add chain {family} site c {{ type filter {hook} priority 0; policy {policy}; }}")
    if rule:
        run("nft", f"add rule {family} site c {rule}")


def bridged(node: Node, ip: str = GUEST) -> Namespace:
    run("ip", "link", "add", "other", "type", "bridge")
    for name in ("iptables", "ip6tables", "arptables"):
        sysctl(f"net/bridge/bridge-nf-call-{name}", "0")
    guest = placed(node, IP=ip)
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == []
    return guest


def told() -> list[str]:
    return [each.text for each in findings(Paths()) if each.topic == "filters"]


@pytest.mark.parametrize("case", BRIDGED)
def test_bridged(node: Node, case: str) -> None:
    """A chain that drops everything is named; rules of others that let something pass are their own affair."""
    family, hook, policy, rule, passes, said = BRIDGED[case]
    guest = bridged(node)
    chain(family, hook, policy, rule)
    assert (reaches(guest, OUTSIDE) == [OUTSIDE]) == passes
    found = lost()
    assert [ALL_DROPPED.format(family) in why for why, _remedy in found] == [True] * said and drift() == []
    assert [found[0][0] in each for each in told()] == [True] if said else told() == []
    for _why, remedy in found:
        run(*(["nft", f"flush chain {family} site c"] if rule else shlex.split(remedy.partition(", or")[0])))
    if said:
        assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == []


def test_a_chain_that_nothing_comes_to(node: Node) -> None:
    """It has no hook and nothing jumps to it, or a hook at a device that has gone: what it would drop is nobody's loss."""
    guest = bridged(node)
    for family in ("bridge", "netdev", "inet", "ip"):
        run("nft", f"add table {family} lone; add chain {family} lone c; add rule {family} lone c drop; add chain {family} lone empty")
    chain("netdev", "hook ingress device other")
    run("ip", "link", "del", "other")
    sysctl("net/bridge/bridge-nf-call-iptables", "1")
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == [] and told() == []


@pytest.mark.parametrize("way", WAYS)
def test_a_bridge_by_which_guests_reach_the_node(node: Node, way: str) -> None:
    """It may be meant so: it is the guests that are kept from each other."""
    guest = bridged(node)
    address = lead(way, "br0", guest)
    chain("bridge", "hook forward")
    assert reaches(guest, OUTSIDE, *filter(None, [address])) == [*filter(None, [address])]
    assert bool(lost()) == bool(told()) == (not address)
    run("nft", "delete table bridge site")
    chain("ip", "hook forward")
    sysctl("net/bridge/bridge-nf-call-iptables", "1")
    assert reaches(guest, OUTSIDE) == [] and bool(lost()) == bool(told()) == (not address)


@pytest.mark.parametrize("setting", ["all", "one"])
def test_a_bridge_that_calls_iptables(node: Node, setting: str) -> None:
    guest = bridged(node)
    chain("ip", "hook forward")
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == []
    if setting == "all":
        sysctl("net/bridge/bridge-nf-call-iptables", "1")
    else:
        run("ip", "link", "set", "br0", "type", "bridge", "nf_call_iptables", "1")
    assert reaches(guest, OUTSIDE) == []
    ((why, remedy),) = lost()
    assert ALL_DROPPED.format("ip") in why
    run(*shlex.split(remedy.partition(", or")[0]))
    assert reaches(guest, OUTSIDE) == [OUTSIDE] and lost() == []


def test_a_guest_of_unknown_addresses_may_have_the_other_family(node: Node) -> None:
    guest = bridged(node, ip="")
    chain("ip", "hook forward")
    sysctl("net/bridge/bridge-nf-call-iptables", "1")
    assert reaches(guest, OUTSIDE) == [] and lost() == []
    run("nft", "delete table ip site")
    chain("inet", "hook forward")
    assert lost() == []
    sysctl("net/bridge/bridge-nf-call-ip6tables", "1")
    assert len(lost()) == 1


#: Family and hook of an empty chain that drops, and the families whose echoes it stops.
ROUTED = {
    "forward": ("inet", "hook forward", {4, 6}),
    "ip": ("ip", "hook forward", {4}),
    "ip6": ("ip6", "hook prerouting", {6}),
    "postrouting": ("ip", "hook postrouting", {4}),
    "the node's own": ("ip", "hook output", set()),
    "from the guest": ("netdev", "hook ingress device tap0", {4, 6}),
    "ingress of inet": ("inet", "hook ingress device tap0", {4, 6}),
    "bridges": ("bridge", "hook forward", set()),
}


@pytest.mark.parametrize("case", ROUTED)
def test_routed(node: Node, case: str) -> None:
    site = Site(node, TABLE)
    up(site)
    family, hook, families = ROUTED[case]
    chain(family, hook)
    assert passing(site) == {4, 6} - families and drift() == []
    found = lost()
    assert [ALL_DROPPED.format(family) in why for why, _remedy in found] == [True] * bool(families)
    assert len(told()) == len(found) and all(found[0][0] in each for each in told())
    for _why, remedy in found:
        run(*shlex.split(remedy.partition(", or")[0]))
    assert passing(site) == {4, 6} and lost() == []
