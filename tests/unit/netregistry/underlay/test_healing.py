"""A registry that was restored from an older copy is healed by what nodes say that they have, before anything is given out or removed."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import FIRST, Confirmed, NodePrefix, Opened
from netregistry.stores.base import Delete, Put
from netregistry.underlay import healing
from netregistry.underlay.healing import WAIT
from tests.support.registry import NODES, Registry, node
from tests.support.underlay import LIFE, SITE, ZONE, Site, told_to

RESTS = 100


@pytest.fixture
def site() -> Site:
    return Site()


def restored(site: Registry, *changes: Put | Delete) -> None:
    """Let the registry be of another epoch, in which all nodes are new to it; ``changes``: by which the copy differs."""
    if changes:
        site.store.commit((), changes)
        site.local.catch_up()
    site.local.view.epoch = "second"


def had(site: Site, number: int, instance: str, place: int, **more: Any) -> dict[str, Any]:
    """Give an endpoint as a node was told it."""
    return {"cluster": "", "instance": instance, "kind": "console", "address": site.prefix(number).at(FIRST + place), **more}


def first_word(site: Site, number: int, *endpoints: dict[str, Any], prefix: str = "", generation: int = 9, without: int = 0) -> None:
    """Let a node say what it has; the last ``without`` of its endpoints are not there."""
    own = prefix or site.prefix(number).prefix
    there = [own.replace("/64", "1"), *(each["address"] for each in endpoints[: len(endpoints) - without])]
    said = {"generation": generation, "addresses": there, "prefix": own, "had": list(endpoints)}
    response = site.report(site.who[number], underlay=said)
    assert response.status == 200, response


def addresses(site: Site, number: int) -> list[str]:
    return [each["address"] for each in site.told(number)["endpoints"]]


def states(site: Site, instance: str) -> list[tuple[str, str]]:
    placement = site.placement(instance)
    return [(each.address, each.state) for each in placement.endpoints] if placement is not None else []


def test_what_a_node_has_is_taken_as_it_is(site: Site) -> None:
    """The guest runs there: its name leads where it did, and the counter goes on behind it."""
    nic, other = site.guest("web1"), site.guest("web2")
    restored(site)
    one = had(site, 0, "web1", 5)
    first_word(site, 0, one)
    assert addresses(site, 0) == [one["address"]], "it is told on before anybody speaks of its guest"
    site.says(0, nic, "running")
    assert states(site, "web1") == [(one["address"], "there")] and site.names() == {"web1.console": 0}
    site.says(0, other, "running")
    assert states(site, "web2") == [(site.prefix(0).at(FIRST + 6), "wanted")]
    assert site.local.view.get(keys.confirmed(NODES[0])).had == ()
    assert site.prefix(0).generation > 9


def test_a_node_that_has_no_lease_yet_is_waited_for(site: Site) -> None:
    """An agent reports before its stream has begun, with which its lease does."""
    nic = site.guest("web1")
    restored(site)
    site.dies(0)
    one = had(site, 0, "web1", 5)
    first_word(site, 0, one)
    site.says(0, nic, "running")
    assert states(site, "web1") == [] and addresses(site, 0) == [one["address"]]
    site.lives(0)
    site.says(0, nic, "running")
    assert states(site, "web1") == [(one["address"], "there")]


def test_one_that_is_not_there_at_the_moment_has_no_name_before_it_is(site: Site) -> None:
    nic = site.guest("web1")
    restored(site)
    first_word(site, 0, had(site, 0, "web1", 5), without=1)
    site.says(0, nic, "running")
    assert [state for _address, state in states(site, "web1")] == ["wanted"] and site.names() == {}
    site.confirms(0)
    assert site.names() == {"web1.console": 0}


def test_what_nobody_speaks_of_rests_and_goes(site: Site) -> None:
    """The copy knows nothing of the guest. After a while its endpoint rests as any other whose guest is gone, and goes after that."""
    restored(site)
    site.passes(1)
    one, off = had(site, 0, "web1", 5), had(site, 0, "web2", 6, retired=True)
    first_word(site, 0, one, off)
    assert [state for _address, state in states(site, "web2")] == ["retired"], "no name leads there"
    site.passes(WAIT - 2)
    assert states(site, "web1") == [] and set(addresses(site, 0)) == {one["address"], off["address"]}
    for _ in range(2):
        site.passes(WAIT)
    assert set(addresses(site, 0)) == {one["address"]} and [state for _address, state in states(site, "web1")] == ["retired"]
    for _ in range(2):
        site.passes(WAIT)
        site.confirms(0)
    site.passes(1)
    assert addresses(site, 0) == [] and site.local.view.all("endpoints") == {}
    assert site.prefix(0).next == FIRST + 7


def test_what_the_copy_knows_is_not_there_twice(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    before = states(site, "web1")
    restored(site)
    first_word(site, 0, had(site, 0, "web1", 0))
    site.passes(1)
    assert states(site, "web1") == before and site.names() == {"web1.console": 0}


def test_of_two_nodes_that_have_had_it_the_one_where_the_guest_runs(site: Site) -> None:
    """The guest has moved after the copy."""
    nic = site.guest("web1")
    restored(site)
    first_word(site, 0, had(site, 0, "web1", 0, retired=True))
    first_word(site, 1, had(site, 1, "web1", 3))
    site.says(1, nic, "running")
    assert site.names() == {"web1.console": 1}
    assert dict(states(site, "web1")) == {site.prefix(0).at(FIRST): "retired", site.prefix(1).at(FIRST + 3): "there"}


@pytest.mark.parametrize("known", [False, True])
def test_a_node_has_the_prefix_that_it_says(site: Site, known: bool) -> None:
    """The copy knows none of its, or one that it had before."""
    other = NodePrefix(7, "fd12:3456:789a:7::/64", FIRST + 9, 3)
    nic = site.guest("web1")
    site.says(0, nic, "running")
    before = site.prefix(0)
    one = had(site, 0, "web1", 0)
    restored(site, Put(keys.prefix(NODES[0]), dump(other)) if known else Delete(keys.prefix(NODES[0])))
    first_word(site, 0, one, prefix=before.prefix)
    after = site.prefix(0)
    assert (after.number, after.prefix, after.next) == (before.number, before.prefix, FIRST + 1) and after.generation > 9
    site.says(0, nic, "running")
    assert site.names() == {"web1.console": 0} and states(site, "web1") == [(one["address"], "there")]


def test_a_prefix_is_one_nodes_alone(site: Site) -> None:
    """Neither has a node what another one has by the registry, nor what another one has said first."""
    theirs, mine = site.prefix(1).prefix, site.prefix(0)
    restored(site, Delete(keys.prefix(NODES[2])))
    first_word(site, 0, prefix=theirs)
    assert site.prefix(0).prefix == mine.prefix
    first_word(site, 2, prefix="fd12:3456:789a:9::/64")
    assert site.prefix(2).number == 9
    for foreign in ("fd99::/64", "fd12:3456:789b::/64"):
        site.local.view.epoch += "x"
        first_word(site, 0, prefix=foreign)
        assert site.prefix(0).prefix == mine.prefix


def test_what_a_node_says_that_it_has_is_given_to_no_other(site: Site) -> None:
    """The copy knows neither the prefix of a node that says it, nor a node that the registry does not know."""
    restored(site, Delete(keys.prefix(NODES[2])), Put(keys.OPENED, dump(Opened("second"))))
    for number in range(3):
        site.report(site.who[number])
    site.store.commit((), (Put(keys.confirmed(NODES[2]), dump(Confirmed("second", healing_there("fd12:3456:789a:3::/64")))),))
    site.local.catch_up()
    assert strange(site, 5, "fd12:3456:789a:4::/64") == 200
    site.join(3)
    assert site.prefix(3).number == 5
    problems = list(healing.strangers(site.local.view))
    assert len(problems) == 1 and NODES[5] in problems[0] and "--release fd12:3456:789a:4::" in problems[0]
    site.join(5)
    assert site.prefix(5).number == 4 and site.local.view.all("strangers") == {}


def healing_there(prefix: str) -> Any:
    return Confirmed("").there._replace(prefix=prefix)


def strange(site: Registry, number: int, prefix: str, epoch: str = "first") -> int:
    """Let a node that the registry does not know say its prefix; give the status of the answer."""
    said = {"generation": 1, "addresses": [], "prefix": prefix, "epoch": epoch}
    return site.ask("report", "", {"after": f"{site.local.view.epoch}:0", "underlay": said}, node(number)).status


def test_a_stranger_is_told_when_its_prefix_is_its_own_no_more(site: Site) -> None:
    theirs = site.prefix(1).prefix
    assert strange(site, 5, "fd12:3456:789a:4::/64") == 410, "it was told of it in this epoch, so it was forgotten"
    restored(site)
    assert strange(site, 5, theirs) == 410, "it is another node's"
    assert strange(site, 5, "fd99::/64") == 403
    assert strange(site, 5, "fd12:3456:789a:4::/64") == 200
    assert strange(site, 4, "fd12:3456:789a:4::/64") == 403, "who has said it first is heard"
    body = {"after": "first:0", "underlay": {"prefix": theirs, "epoch": "first"}}
    assert site.ask("report", "", body, node(5)).body["type"].endswith("/epoch"), "it is said to the registry of before"
    site.do("underlay.release", "fd12:3456:789a:4::")
    assert site.local.view.all("strangers") == {}


def test_no_prefix_is_given_before_nodes_have_said_what_they_have(site: Site) -> None:
    restored(site)
    site.join(3)
    site.passes(1)
    assert site.prefix(3) is None and "restored or moved" in healing.withheld(site.local.view)
    site.passes(WAIT + 1)
    why = healing.withheld(site.local.view)
    assert site.prefix(3) is None and "node0, node1, node2" in why, "live nodes have said nothing yet"
    for number in range(3):
        site.report(site.who[number])
    site.passes(1)
    assert site.prefix(3).number == 3 and healing.withheld(site.local.view) == ""


def test_an_underlay_begun_after_a_restore_waits_too() -> None:
    registry = Registry()
    registry.join(0)
    restored(registry)
    registry.do("underlay.init", "", {"prefix": SITE, "zone": ZONE})
    assert registry.local.view.all("prefixes") == {}
    registry.passes(WAIT + 1)
    assert len(registry.local.view.all("prefixes")) == 1


def test_where_nobody_can_read_since_when_nodes_have_time_none_of_them_has_it_for_ever(site: Site) -> None:
    """Take back what a node has had of a guest of which nobody says anything, though it cannot be read when the minute has begun."""
    one = had(site, 0, "web1", 3)
    restored(site, Put(keys.OPENED, b"{"))
    first_word(site, 0, one)
    site.passes(1)
    assert dict(states(site, "web1")).keys() == {one["address"]} and site.local.view.get(keys.confirmed(NODES[0])).had == ()
    assert f"at {keys.OPENED} cannot be read" in healing.withheld(site.local.view)


@pytest.mark.parametrize("runs", [True, False])
def test_what_is_of_an_underlay_of_before_is_nothing_in_another_one(runs: bool) -> None:
    """Restore a copy of before the underlay, and begin one with another prefix: no name leads to what a node had of the other one."""
    registry = Registry()
    who = registry.join(0)
    registry.local.sign_on(who, f"{LIFE}0", 8e4)
    nic = registry.nic(instance="web1", index=0).uuid
    restored(registry)
    old = {"cluster": "", "instance": "web1", "kind": "console", "address": "fd12:3456:789a::1:0"}
    said = {"generation": 9, "addresses": [old["address"]], "prefix": "fd12:3456:789a::/64", "had": [old]}
    reports = [{"nic": nic, "state": "running", "endpoints": ["console"]}] if runs else []
    assert registry.report(who, *reports, underlay=said).status == 200
    registry.do("underlay.init", "", {"prefix": "fd12:3456:789b::/48", "zone": ZONE})
    for seconds in (1, WAIT, 1, WAIT, 1):
        registry.passes(seconds)
        assert registry.local.view.all("names") == {}
        if registry.local.view.all("prefixes"):
            assert old["address"] not in [each["address"] for each in told_to(registry, 0)["endpoints"]]
    assert registry.local.view.get(keys.confirmed(NODES[0])).had == ()
    found = [each.address for placement in registry.local.view.all("endpoints").values() for each in placement.endpoints]
    assert found == (["fd12:3456:789b::1:0"] if runs else [])


def test_one_that_nobody_can_read_is_no_reason_to_take_anything_away(site: Site) -> None:
    """Write nothing over that a node has said to speak for its guests, by what it says of one of them."""
    first, second = site.guest("web1"), site.guest("web2")
    for each in (first, second):
        site.says(0, each, "running")
    site.confirms(0)
    before, damaged = site.names(), b"["
    site.store.commit((), (Put(keys.speakers(NODES[0]), damaged),))
    site.local.catch_up()
    site.says(0, first, "running", drift=["x"])
    site.passes(1)
    assert site.names() == before and site.everything()[keys.speakers(NODES[0])] == damaged


def test_a_placement_that_nobody_can_read_stays_on_its_node(site: Site) -> None:
    for instance in ("web1", "web2"):
        site.says(0, site.guest(instance), "running")
    site.confirms(0)
    first, second = (each["address"] for each in site.told(0)["endpoints"])
    site.store.commit((), (Put(keys.placement("", "web1"), b"{"),))
    site.local.catch_up()
    told = site.told(0)
    assert told["kept"] == [first] and [each["address"] for each in told["endpoints"]] == [second]


def test_a_node_that_joins_again_says_first_what_it_has(site: Site) -> None:
    """Give none of its guests an address of which the registry does not know yet that the node has it."""
    nic = site.guest("web1")
    restored(site, Put(keys.OPENED, dump(Opened("second"))))
    for number in range(3):
        site.report(site.who[number])
    assert strange(site, 5, "fd12:3456:789a:4::/64") == 200
    site.who += [node(number) for number in (3, 4, 5)]
    site.join(5)
    site.lives(5)
    assert site.local.view.unheard() == (NODES[5],)
    site.says(5, nic, "running")
    assert site.placement("web1") is None
    one = {"cluster": "", "instance": "web1", "kind": "console", "address": "fd12:3456:789a:4::1:7"}
    first_word(site, 5, one)
    assert states(site, "web1") == [("fd12:3456:789a:4::1:7", "there")] and site.prefix(5).next == FIRST + 8


@pytest.mark.parametrize("how", ["retired", "retired first", "forgotten"])
def test_of_a_guest_that_went_and_came_back_one_endpoint_stays(site: Site, how: str) -> None:
    """Keep one endpoint of a guest whose node was drained and filled again since the copy: the former one rests, or is gone."""
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    before, now = had(site, 0, "web1", 0, retired=True), had(site, 0, "web1", 1)
    restored(site)
    first_word(site, 0, *{"retired": [now, before], "retired first": [before, now], "forgotten": [now]}[how])
    site.says(0, nic, "running")
    assert dict(states(site, "web1")) == {before["address"]: "retired", now["address"]: "there"}
    assert site.local.view.get(keys.name(ZONE, f"web1.console.{ZONE}")).address == now["address"] and site.names() == {"web1.console": 0}
    for _ in range(4):
        site.passes(RESTS)
        site.confirms(0)
    assert addresses(site, 0) == [now["address"]]
