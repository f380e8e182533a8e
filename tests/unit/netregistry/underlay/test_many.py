"""Many allocations: each of its node's prefix, none reserved, none twice, and each there before its name leads to it."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network

import pytest

from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.model.underlay import FIRST
from netregistry.stores.base import Batch
from tests.support.registry import Registry
from tests.support.underlay import SITE, ZONE
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
