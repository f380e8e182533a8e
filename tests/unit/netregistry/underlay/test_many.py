"""Many allocations: each of its node's prefix, none reserved, none twice, and each there before its name leads to it; what many cost."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import Any

import pytest

from netregistry import leader
from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.underlay import FIRST
from netregistry.stores.base import Batch, Delete, commit_size
from netregistry.underlay import placing
from tests.support.registry import Registry
from tests.support.underlay import SITE, ZONE, Site
from tests.support.underlay_checker import Checker

AT_ONCE = 50


class Many(Registry):
    """``nodes`` of ``guests`` each, judged by the registry's commits."""

    def __init__(self, nodes: int, guests: int) -> None:
        self.checker = Checker()
        super().__init__(heard=self.hear)
        self.nodes = [Identity("node", f"{number:08x}-0000-4000-8000-000000000000", "unix") for number in range(nodes)]
        for number, who in enumerate(self.nodes):
            if number == nodes // 2:
                self.do("underlay.init", "", {"prefix": SITE, "zone": ZONE, "minimum_age": 100})
            self.do("node.join", "", {"uuid": who.name, "name": f"node{number}"}, who)
            self.local.sign_on(who, f"{number:08x}-1111-4111-8111-111111111111", 80_000.0)
        self.passes(1)
        wanted = [{"action": "nic.add", "body": {"instance": f"web{number}", "index": 0}} for number in range(nodes * guests)]
        self.nics = [
            each["uuid"]
            for place in range(0, len(wanted), AT_ONCE)
            for each in self.do("batch", "", {"parts": wanted[place : place + AT_ONCE]})
        ]

    def hear(self, batch: Batch | None) -> None:
        if batch is not None:
            self.checker.now = self.time
            self.checker.commit((change.key, change.value) for change in batch.changes)

    def confirm(self, who: Identity) -> None:
        placed = (self.local.view.get(key) for key in self.local.view.members("placed", who.name))
        addresses = [each.address for placement in placed for each in placement.endpoints if each.node == who.name]
        generation = self.local.view.get(keys.prefix(who.name)).generation
        assert self.report(who, underlay={"generation": generation, "addresses": addresses}).status == 200


@pytest.mark.parametrize(("nodes", "guests"), [(200, 10), pytest.param(200, 50, marks=pytest.mark.slow)])
def test_allocations_over_many_nodes(nodes: int, guests: int) -> None:
    site = Many(nodes, guests)
    for number, who in enumerate(site.nodes):
        own = site.nics[number * guests : (number + 1) * guests]
        for place in range(0, guests, AT_ONCE):
            reports = [{"nic": nic, "state": "running", "endpoints": ["console"]} for nic in own[place : place + AT_ONCE]]
            assert site.report(who, *reports).status == 200
    site.passes(1)
    view = site.local.view
    assert view.all("names") == {} and len(view.all("endpoints")) == nodes * guests
    found = [each for placement in view.all("endpoints").values() for each in placement.endpoints]
    assert len({each.address for each in found}) == nodes * guests
    for each in found:
        network = IPv6Network(view.get(keys.prefix(each.node)).prefix)
        assert int(IPv6Address(each.address)) - int(network[0]) >= FIRST and IPv6Address(each.address) in network
    for who in site.nodes:
        site.confirm(who)
    for _ in range(1 + nodes * guests // 500):
        site.passes(1)
    assert len(site.local.view.all("names")) == nodes * guests


def filled(guests: int) -> Site:
    """Give a site with so many guests on its first node, each with its name."""
    site = Site(1)
    nics = [site.guest(f"web{number}") for number in range(guests)]
    for place in range(0, guests, AT_ONCE):
        reports = [{"nic": nic, "state": "running", "endpoints": ["console"]} for nic in nics[place : place + AT_ONCE]]
        assert site.report(site.who[0], *reports).status == 200
    site.confirms(0)
    for _ in range(4):
        site.passes(1)
    assert len(site.names()) == guests
    return site


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give a list that has an item more for each step that is weighed with all that is in its commit."""
    found = list[str]()

    def counted(*commit: Any) -> int:
        found.append("")
        return commit_size(*commit)

    monkeypatch.setattr(placing, "commit_size", counted)
    return found


def test_an_address_more_or_less_concerns_its_own_guest_alone(weighed: list[str]) -> None:
    """Look at the one guest whose address a node says it has no more, and not at all of that node."""
    site = filled(100)
    line = site.told(0)
    addresses = [each["address"] for each in line["endpoints"]]
    weighed.clear()
    looked = site.local.leader._due
    for there in (addresses[1:], addresses):
        assert site.report(site.who[0], underlay={"generation": line["generation"], "addresses": there}).status == 200
        assert len(weighed) <= 4 and len(looked.some(100)) <= 1
        site.passes(1)
    assert len(site.names()) == 100


def test_a_nodes_first_word_weighs_no_step_that_is_not_taken(weighed: list[str]) -> None:
    """Take the first word of a node with many endpoints at the cost of what it says, as long as it has not said of its guests."""
    site = filled(100)
    had = [{name: each[name] for name in ("cluster", "instance", "kind", "address")} for each in site.told(0)["endpoints"]]
    items = (key for kind in ("endpoints", "names", "seen") for key in tuple(site.local.view.all(kind)))
    for key in items:
        site.store.commit((), (Delete(key),))
    site.local.catch_up()
    site.local.view.epoch = "second"
    addresses = sorted(each["address"] for each in had)
    said = {"generation": 999, "addresses": addresses, "prefix": site.prefix(0).prefix, "had": had}
    weighed.clear()
    assert site.report(site.who[0], underlay=said).status == 200
    assert weighed == [] and len(site.local.view.get(keys.confirmed(site.who[0].name)).had) == 100
    for _ in range(130):
        site.passes(1)
    assert site.local.view.get(keys.confirmed(site.who[0].name)).had == ()
    found = [each.address for placement in site.local.view.all("endpoints").values() for each in placement.endpoints]
    assert sorted(found) == addresses


def test_what_a_node_has_had_that_is_more_than_a_value_may_be_is_refused() -> None:
    site = Site(1)
    long, prefix = ".".join("a" * 60 for _ in range(3)), site.prefix(0)
    had = [
        {"cluster": "", "instance": f"w{number}.{long}", "kind": "console", "address": prefix.at(FIRST + number)} for number in range(4096)
    ]
    site.local.view.epoch = "second"
    response = site.report(site.who[0], underlay={"generation": 9, "addresses": [], "prefix": prefix.prefix, "had": had})
    assert response.status == 413 and "has spoken, for guests on this node" in response.body["detail"], response


def test_steps_that_take_long_wait_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(1)
    due = site.local.leader._due

    def slow(*_instance: object) -> bool:
        site.time += leader.LONG / 2
        return False

    monkeypatch.setattr(placing.Placing, "advance", slow)
    for number in range(9):
        due.mark(("", f"web{number}"))
    site.passes(0)
    assert due
    for _ in range(9):
        site.passes(0)
    assert not due
