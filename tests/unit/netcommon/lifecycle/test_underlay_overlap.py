"""Refuse to put up a /64 that the node's own network has addresses of, and take nothing of that network away."""

from __future__ import annotations

import pytest

from netcommon.host.api.facts import AF_INET6, Address, Link, Route
from netcommon.lifecycle.underlay import hold, seen
from runtime import underlay, underlay_record
from tests.support.node_underlay import OWN, PREFIX, address, give, is_rest_unreachable, marked, said
from tests.support.registry import NODES
from tests.support.sim import Sim

NETWORKS = ("fd00:1:2:7::10/64", "fd00:1:2:7:1::/80", "fd00:1:2:9::10/48", "fd00:1:2:7::10/128", f"{OWN}/64")


@pytest.fixture
def given(sim: Sim) -> Sim:
    """Give a node an endpoint, of which nothing is made yet."""
    give(sim.paths, 0)
    return sim


def has(sim: Sim, text: str, device: str = "br0") -> Address:
    """Let a device have an address of somebody else's."""
    plain, _, length = text.partition("/")
    made = Address(AF_INET6, plain, int(length), sim.index(device), protocol=0)
    sim.host.kernel.addresses.append(made)
    return made


@pytest.mark.parametrize("text", NETWORKS)
def test_it_is_not_put_up_before_that_has_gone(given: Sim, text: str) -> None:
    theirs = has(given, text)
    before = given.picture()
    for _ in range(2):
        found = hold(given.node, given.log)
        assert (found.there, found.made, found.wanted) == ((), (), 2)
        assert found.problem.startswith(f"{PREFIX} is not put up") and f"br0 has {text}" in found.problem
        assert given.picture() == before and seen(given.node, given.host.view()) == (0, ())
    given.host.kernel.addresses.remove(theirs)
    found = hold(given.node, given.log)
    assert found.problem == "" and found.there == (OWN, address(0)) and is_rest_unreachable(given.host.view())


def test_a_route_to_those_on_the_link_is_a_network(given: Sim) -> None:
    """Take an on-link route for a network of the node: a router may have announced it, and the node has no address of it."""
    given.host.kernel.add_route(Route(AF_INET6, 254, PREFIX, given.index("br0"), 2, 0, metric=256))
    assert f"{PREFIX} is reached on br0" in hold(given.node, given.log).problem and marked(given.host.view()) == []


@pytest.mark.parametrize("text", ["fd00:1:2:8::10/64", "fe80::1/64", "fd00:1:3::1/48"])
def test_a_network_beside_it_is_none_of_its_business(given: Sim, text: str) -> None:
    has(given, text)
    assert hold(given.node, given.log).problem == ""


@pytest.mark.parametrize("text", NETWORKS[:4])
def test_what_is_the_nodes_alone_is_no_network(given: Sim, text: str) -> None:
    """Ignore an administrator's own address on the loopback or on a dummy: it is of no network."""
    given.host.add_link(Link(0, "dummy7", "dummy", up=True))
    has(given, text, "dummy7")
    has(given, text, "lo")
    assert hold(given.node, given.log).problem == ""


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_up_stays_and_the_network_is_said(given: Sim, lost: bool) -> None:
    """Keep guests' endpoints that are up, whatever somebody announces on a link, and also where the record was lost."""
    hold(given.node, given.log)
    has(given, NETWORKS[0])
    if lost:
        underlay_record.remove(given.paths, given.node.identity.netns)
    give(given.paths, 0, 1, generation=2)
    found = hold(given.node, given.log)
    assert f"br0 has {NETWORKS[0]}" in found.problem and "is not put up" not in found.problem
    assert found.there == (OWN, address(0), address(1))


def test_what_was_of_another_prefix_goes(given: Sim) -> None:
    """Remove the addresses of a prefix that the registry no longer gives, also while nothing of the next prefix is put up."""
    hold(given.node, given.log)
    underlay.write(given.paths, underlay.underlay_of(NODES[0], "e:2", said(generation=2, prefix="fd00:1:2:8::/64")))
    has(given, "fd00:1:2:8::10/64")
    found = hold(given.node, given.log)
    assert "is not put up" in found.problem and marked(given.host.view()) == [] and not is_rest_unreachable(given.host.view())
