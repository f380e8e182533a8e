"""Restore a copy by which a /64 is still at rest, though it was given again after the copy was made and a node has it."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import FIRST, Endpoint, NodePrefix, Opened, Placement, Stranger
from netregistry.rules import underlay
from netregistry.stores.base import Delete, Put
from netregistry.stream import Stream
from netregistry.underlay import healing
from tests.support.registry import NODES, node
from tests.support.underlay import Site

FORMER, PREFIX = 5, "fd12:3456:789a:9::/64"  #: who was forgotten, and what it had
RESTS = 100
HAS = {"cluster": "", "instance": "web1", "kind": "console", "address": "fd12:3456:789a:9::1:2"}


def copied(over: bool = False) -> Site:
    """Give a registry of three nodes, restored: by the copy the first one has no /64, and what it has is at rest; ``over``: it was."""
    site = Site()
    for instance in ("web1", "db1"):
        site.guest(instance)
    until = site.time + (-1 if over else RESTS)
    rests = NodePrefix(9, PREFIX, FIRST + 4, 7, freed=site.time - 10, until=until)
    old = Endpoint("console", NODES[FORMER], HAS["address"], "retired", site.time - 10, cleared=1.0, until=until)
    changes = (
        Put(keys.prefix(NODES[FORMER]), dump(rests)),
        Put(keys.placement("", "web1"), dump(Placement("", "web1", 3, endpoints=(old,)))),
        Put(keys.OPENED, dump(Opened("second", site.time))),
        Delete(keys.prefix(NODES[0])),
    )
    site.store.commit((), changes)
    site.local.catch_up()
    site.local.view.epoch = "second"
    return site


def says(site: Site, number: int = 0, *had: dict[str, Any]) -> int:
    """Let a node say with its first word that it has the /64; give the status of the answer."""
    there = ["fd12:3456:789a:9::1", *(each["address"] for each in had)]
    said = {"generation": 3, "addresses": there, "prefix": PREFIX, "had": list(had)}
    return site.report(site.who[number], underlay=said).status


def strange(site: Site, number: int) -> int:
    """Let a node that the registry does not know say that it has the /64; give the status of the answer."""
    said = {"generation": 3, "addresses": [], "prefix": PREFIX, "epoch": "first"}
    return site.ask("report", "", {"after": "second:0", "underlay": said}, node(number)).status


def prefix(site: Site, number: int) -> str:
    """Give the /64 of a node by the registry; "" for none."""
    found: NodePrefix | None = site.local.view.get(keys.prefix(NODES[number]))
    return found.prefix if found is not None and not found.freed else ""


def hears(site: Site, number: int) -> bool:
    """Tell whether a node is told anything of the underlay; else all of it goes from it."""
    return any(line.what == "underlay" for line in Stream(NODES[number], underlay=True).begin(site.local.view))


@pytest.mark.parametrize("over", [False, True])
def test_the_node_that_has_it_keeps_it_and_all_in_it(over: bool) -> None:
    """Continue a /64's counter behind all that its node has, and behind its former owner's endpoints, which the copy knows."""
    site = copied(over)
    nic, other = (site.local.view.members("instance", "", each)[0].partition("/")[2] for each in ("web1", "db1"))
    assert says(site, 0, HAS) == 200
    after = site.prefix(0)
    assert (after.number, after.prefix, after.next, after.freed) == (9, PREFIX, FIRST + 4, 0.0)
    assert hears(site, 0) and [each["address"] for each in site.told(0)["endpoints"]] == [HAS["address"]]
    assert site.prefix(FORMER) is None
    site.says(0, nic, "running")
    site.says(0, other, "running")
    placement = site.placement("web1")
    assert placement is not None and [(each.node, each.address, each.state) for each in placement.endpoints] == [
        (NODES[0], HAS["address"], "there")
    ], "what the forgotten node had at that address is over"
    assert site.names() == {"web1.console": 0}
    for _ in range(4):
        site.passes(RESTS)
    assert [each["address"] for each in site.told(0)["endpoints"]] == ["fd12:3456:789a:9::1:4", HAS["address"]]


def test_its_counter_is_behind_what_it_has() -> None:
    site = copied()
    assert says(site, 0, {**HAS, "address": "fd12:3456:789a:9::1:20"}) == 200
    assert site.prefix(0).next == FIRST + 0x21


def test_what_the_forgotten_node_says_of_it_loses() -> None:
    site = copied()
    assert strange(site, FORMER) == 200, "nobody else says so yet, and it may have joined again since the copy"
    assert says(site, 0, HAS) == 200
    assert site.prefix(0).prefix == PREFIX and site.local.view.all("strangers") == {}
    assert strange(site, FORMER) == 410
    site.join(FORMER)
    assert prefix(site, FORMER) == "", "it waits for one"
    for number in (1, 2):
        site.report(site.who[number])
    site.passes(healing.WAIT + 1)
    assert prefix(site, FORMER) not in ("", PREFIX)


def test_a_node_that_the_copy_does_not_know_keeps_it() -> None:
    site = copied()
    assert strange(site, FORMER) == 200
    assert strange(site, 3) == 200
    assert site.local.view.all("strangers") == {keys.stranger(NODES[3]): Stranger(PREFIX, site.time)}
    assert strange(site, FORMER) == 410, "it was forgotten, and another one has it"
    assert strange(site, 3) == 200 and strange(site, 4) == 403, "who has said it first is heard"
    site.join(FORMER)
    assert site.prefix(FORMER) is None, "it waits for one, and nothing is due meanwhile"
    assert not underlay.due(site.local.view, site.time)
    site.join(3)
    assert (site.prefix(3).prefix, site.prefix(3).freed) == (PREFIX, 0.0)
    assert site.local.view.all("strangers") == {}


def test_a_node_that_the_copy_does_not_know_joins_while_it_rests() -> None:
    site = copied()
    assert strange(site, 3) == 200
    site.join(3)
    assert site.prefix(3).prefix == PREFIX and site.prefix(FORMER) is None
    site.passes(1)
    assert site.placement("web1") is None, "what the forgotten node had in it is over"
    assert strange(site, FORMER) == 410


def test_a_former_owner_that_joins_again_first_has_it() -> None:
    site = copied()
    site.join(FORMER)
    assert site.prefix(FORMER).prefix == PREFIX and site.prefix(FORMER).freed == 0
    assert says(site) == 200
    assert prefix(site, FORMER) == PREFIX and prefix(site, 0) == ""
