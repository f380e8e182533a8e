"""Take nothing from a node that says which /64 it has, as long as the registry cannot note yet that it is that node's."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.history import Identity
from netregistry.model.node import Node
from netregistry.model.underlay import FIRST, NodePrefix, Underlay
from netregistry.rules.underlay import AT_ONCE
from netregistry.stores.base import Delete, Put
from netregistry.underlay.told import Stand, stand
from tests.support.registry import NODES, Registry
from tests.support.underlay import SITE, ZONE, Site

NUMBER = AT_ONCE + 20


def speaks(registry: Registry, uuid: str, prefix: NodePrefix) -> None:
    """Let a node say, with its first word in an epoch, its /64 and one endpoint."""
    one = {"cluster": "", "instance": "web1", "kind": "console", "address": prefix.at(FIRST)}
    said = {"generation": 3, "addresses": [prefix.itself, one["address"]], "prefix": prefix.prefix, "had": [one]}
    assert registry.report(Identity("node", uuid, "unix"), underlay=said).status == 200


def test_an_underlay_begun_again_takes_nothing_from_any_of_many_nodes() -> None:
    """Give each node the /64 that it says it has, in the minute that `underlay init` begins, though one commit has no room for all."""
    registry, site = Registry(), Underlay(SITE, ZONE)
    nodes = [f"{number:08x}-0000-4000-8000-00000000000a" for number in range(NUMBER)]
    for node in nodes:
        registry.store.commit((), (Put(keys.node(node), dump(Node(node, node[:8], joined=registry.time, epoch="before"))),))
    registry.local.catch_up()
    for number, node in enumerate(nodes):
        speaks(registry, node, NodePrefix(number, site.of(number)))
    registry.do("underlay.init", "", {"prefix": SITE, "zone": ZONE})
    view = registry.local.view
    assert len(view.all("prefixes")) == AT_ONCE
    waiting = [each for each in (stand(view, node) for node in nodes) if each.problem]
    assert len(waiting) == NUMBER - AT_ONCE and all("is this node's" in each.problem for each in waiting)
    registry.passes(1)
    assert [view.get(keys.prefix(node)).prefix for node in nodes] == [site.of(number) for number in range(NUMBER)]


@pytest.mark.parametrize("key", [keys.prefix(NODES[5]), keys.LEDGER])
def test_whatever_cannot_be_read_a_node_keeps_the_prefix_that_it_says_it_has(key: str) -> None:
    site = Site()
    prefix, before = site.prefix(2), site.store.get(key)
    site.store.commit((), (Delete(keys.prefix(NODES[2])), Put(key, b'{"newer": 1}')))
    site.local.catch_up()
    site.local.view.epoch = "second"
    speaks(site, NODES[2], prefix)
    for _ in range(2):
        told = stand(site.local.view, NODES[2])
        assert told.at and f"{prefix.prefix} is this node's" in told.problem
        site.passes(1)
        site.report(site.who[2], underlay={"generation": 3, "addresses": [prefix.itself]})
    site.store.commit((), (Put(key, before.value) if before is not None else Delete(key),))
    site.passes(1)
    site.passes(1)
    assert site.prefix(2).prefix == prefix.prefix and prefix.at(FIRST) in [each["address"] for each in site.told(2)["endpoints"]]


def test_a_prefix_that_another_node_has_is_kept_for_nobody_else() -> None:
    site = Site()
    other = site.prefix(1)
    site.store.commit((), (Delete(keys.prefix(NODES[2])), Put(keys.prefix(NODES[5]), b"{")))
    site.local.catch_up()
    site.local.view.epoch = "second"
    speaks(site, NODES[2], other)
    assert stand(site.local.view, NODES[2]) == Stand()
