"""Refuse to put up a /64 that the node's own network has addresses of, and take nothing of that network away."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET6, Address, Link, Route
from netcommon.lifecycle.context import Clock
from netcommon.lifecycle.underlay import Held, hold, seen
from netcommon.lifecycle.underlay_back import LASTS
from runtime import underlay, underlay_back, underlay_record
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


def held(sim: Sim, now: float = 0.0) -> Held:
    """Look at a moment of the node's clock."""
    return hold(sim.node._replace(clock=Clock(lambda: now)), sim.log)


def renumbered(sim: Sim, theirs: Address) -> Address:
    """Let a network have another prefix, and so long that it counts."""
    sim.host.kernel.addresses.remove(theirs)
    other = has(sim, "2001:db8::10/64")
    assert "is not put up" in held(sim, 1000.0).problem
    assert "is not put up" in held(sim, 999.9 + LASTS).problem and marked(sim.host.view()) == []
    return other


def is_whole(sim: Sim, found: Held) -> bool:
    return found.problem == "" and found.there == (OWN, address(0)) and is_rest_unreachable(sim.host.view())


@pytest.mark.parametrize("text", NETWORKS)
def test_it_is_not_put_up_before_that_has_another_prefix(given: Sim, text: str) -> None:
    theirs = has(given, text)
    before = given.picture()
    for _ in range(2):
        found = hold(given.node, given.log)
        assert (found.there, found.made, found.wanted) == ((), (), 2)
        assert found.problem.startswith(f"{PREFIX} is not put up") and f"br0 has {text}" in found.problem
        assert given.picture() == before and seen(given.node, given.host.view()) == (0, ())
    renumbered(given, theirs)
    assert is_whole(given, held(given, 1000.0 + LASTS))
    assert not Path(given.paths.lib, underlay_back.NAME).exists()


@pytest.mark.parametrize("booted", [False, True])
@pytest.mark.parametrize("away", ["addresses", "down", "gone", "link-local"])
def test_a_network_that_is_away_has_not_given_its_prefix_up(given: Sim, away: str, booted: bool) -> None:
    """Keep the /64 back for as long as the network is away, and over a boot at which it comes later than the agent."""
    theirs = has(given, NETWORKS[0])
    hold(given.node, given.log)
    given.host.kernel.addresses.remove(theirs)
    if away == "down":
        link = given.host.kernel.links[given.index("br0")]
        given.host.kernel.links[link.index] = link._replace(up=False)
        has(given, "2001:db8::10/64")
    elif away == "gone":
        given.host.remove_link("br0")
    elif away == "link-local":
        has(given, "fe80::10/64")
    if booted:
        given.reboot()
    before = given.picture()
    for now in (1.0, 2 * LASTS, 4 * LASTS):
        found = held(given, now)
        assert f"br0 had {NETWORKS[0]}" in found.problem and found.there == () and given.picture() == before
        assert len(found.problem) <= 300, "an alarm has all of it"
    (Path(given.paths.lib) / underlay_back.NAME).unlink()
    assert is_whole(given, held(given, 4 * LASTS))


def test_a_while_begins_anew_with_each_time_that_the_network_is_there_or_away_and_with_each_boot(given: Sim) -> None:
    theirs = has(given, NETWORKS[0])
    hold(given.node, given.log)
    other = renumbered(given, theirs)
    given.host.kernel.addresses.append(theirs)
    assert "has addresses" in held(given, 1000.0 + LASTS).problem
    renumbered(given, theirs)
    for each in [one for one in given.host.kernel.addresses if one == other]:
        given.host.kernel.addresses.remove(each)
    assert "had addresses" in held(given, 1000.0 + LASTS).problem
    has(given, "2001:db8::11/64")
    assert "had addresses" in held(given, 1001.0 + LASTS).problem
    given.reboot()
    assert "had addresses" in held(given, 2000.0 + LASTS).problem
    assert is_whole(given, held(given, 2000.0 + 2 * LASTS))


def test_another_prefix_of_the_registrys_is_put_up_at_once(given: Sim) -> None:
    theirs = has(given, NETWORKS[0])
    hold(given.node, given.log)
    given.host.kernel.addresses.remove(theirs)
    for prefix, own in (("fd00:1:2:8::/64", "fd00:1:2:8::1"), (PREFIX, OWN)):
        underlay.write(given.paths, underlay.underlay_of(NODES[0], "e:2", said(generation=2, prefix=prefix)))
        found = hold(given.node, given.log)
        assert (found.problem, found.there) == ("", (own,))


@pytest.mark.parametrize("text", ["{", "{}", '{"schema":1}', '{"schema":2}'])
def test_what_does_not_say_for_which_network_keeps_it_back_until_it_is_removed(given: Sim, text: str) -> None:
    file = Path(given.paths.lib, underlay_back.NAME)
    file.write_text(text)
    found = hold(given.node, given.log)
    assert f"{file} does not say" in found.problem and found.there == () and file.read_text() == text
    file.unlink()
    assert is_whole(given, hold(given.node, given.log))


@pytest.mark.parametrize("wider", [PREFIX, "fd00:1:2:6::/63", "fd00:1:2::/48", "fc00::/7"])
def test_a_route_of_a_routers_to_those_on_the_link_is_a_network(given: Sim, wider: str) -> None:
    """Take what a router has announced, however wide, for a network of the node, which may have no address of it."""
    given.host.kernel.add_route(Route(AF_INET6, 254, wider, given.index("br0"), 9, 0, metric=256))
    assert f"br0 has a route to {wider} on its link" in hold(given.node, given.log).problem and marked(given.host.view()) == []


@pytest.mark.parametrize("change", [{"protocol": 3}, {"gateway": "fe80::1"}, {"destination": "::/0"}, {"destination": "fd00:1:3::/48"}])
def test_a_wider_route_that_is_an_administrators_or_leads_on_is_no_network(given: Sim, change: dict[str, object]) -> None:
    """Put the /64 up beside a site's prefix that is sent into a tunnel, or by a router, and beside other networks."""
    route = Route(AF_INET6, 254, "fd00:1:2::/48", given.index("br0"), 9, 0, metric=256)
    given.host.kernel.add_route(route._replace(**change))  # type: ignore[arg-type]
    assert is_whole(given, hold(given.node, given.log))


def test_a_route_to_those_on_the_link_is_a_network(given: Sim) -> None:
    """Take an on-link route for a network of the node: a router may have announced it, and the node has no address of it."""
    given.host.kernel.add_route(Route(AF_INET6, 254, PREFIX, given.index("br0"), 2, 0, metric=256))
    assert f"br0 has a route to {PREFIX} on its link" in hold(given.node, given.log).problem and marked(given.host.view()) == []


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


def named(sim: Sim, name: str, index: int = 0) -> int:
    """Add a device of the underlay's, neither loopback nor dummy, or rename it; give its index."""
    if not index:
        return sim.host.add_link(Link(0, name, "ifb", up=True)).index
    sim.host.kernel.links[index] = sim.host.kernel.links[index]._replace(name=name)
    return index


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_what_a_renamed_device_has_of_ours_is_no_network_and_goes(given: Sim, told: bool, marks: bool) -> None:
    """Take addresses of ours from a device that was renamed, whether or not the settings name it as it is called now."""
    give(given.paths, 0, 1)
    given.settings = given.settings._replace(underlay_device="ul0")
    index = named(given, "ul0")
    kernel = given.host.kernel
    assert len(hold(given.node, given.log).there) == 3
    named(given, "ulx", index)
    give(given.paths, 1, generation=2)
    found = hold(given.node, given.log)
    assert "device ul0 does not exist" in found.problem and "overlaps" not in found.problem
    assert marked(given.host.view(), "ulx") == sorted([OWN, address(1)])
    if not marks:
        kernel.addresses = [each._replace(protocol=0) for each in kernel.addresses]
    if told or not marks:
        given.settings = given.settings._replace(underlay_device="ulx")
        found = hold(given.node, given.log)
        assert found.problem == "" and found.there == (OWN, address(1))
    underlay.remove(given.paths)
    assert hold(given.node, given.log).problem == ""
    assert kernel.addresses == [] and not is_rest_unreachable(given.host.view())


def test_what_has_the_index_of_a_renamed_device_and_not_our_mark_is_left(given: Sim) -> None:
    """Leave addresses without a mark on a device of another name: who has them cannot be told."""
    given.settings = given.settings._replace(underlay_device="ul0")
    index = named(given, "ul0")
    hold(given.node, given.log)
    named(given, "ulx", index)
    theirs = [each._replace(protocol=0) for each in given.host.kernel.addresses]
    given.host.kernel.addresses = list(theirs)
    underlay.remove(given.paths)
    hold(given.node, given.log)
    assert given.host.kernel.addresses == theirs


def test_what_was_of_another_prefix_goes(given: Sim) -> None:
    """Remove the addresses of a prefix that the registry no longer gives, also while nothing of the next prefix is put up."""
    hold(given.node, given.log)
    underlay.write(given.paths, underlay.underlay_of(NODES[0], "e:2", said(generation=2, prefix="fd00:1:2:8::/64")))
    has(given, "fd00:1:2:8::10/64")
    found = hold(given.node, given.log)
    assert "is not put up" in found.problem and marked(given.host.view()) == [] and not is_rest_unreachable(given.host.view())
