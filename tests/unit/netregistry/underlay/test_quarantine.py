"""An address that no name leads to any more stays until nobody remembers it; then its node removes it, and it is never given again."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import FIRST, Endpoint, Placement, Published, Zone
from netregistry.stores.base import Put
from netregistry.underlay import published
from tests.support.registry import NODES, node
from tests.support.underlay import LIFE, ZONE, Site

RESTS, TTL = 100, 10


@pytest.fixture
def site() -> Site:
    return Site()


def first(site: Site) -> Endpoint | None:
    """Give the endpoint on node 0."""
    placement = site.placement("web1")
    return next((each for each in (placement.endpoints if placement else ()) if each.node == NODES[0]), None)


def notes(site: Site, **servers: int) -> None:
    """Note of name servers that they have the zone up to a generation, or have lost it (-1)."""
    for server, generation in servers.items():
        commit = published.noted(site.local.view, server, ZONE, generation, site.time)
        assert commit is not None
        site.store.commit(*commit)
        site.local.catch_up()


def publishes(site: Site, **servers: int) -> None:
    key = keys.zone(ZONE)
    zone: Zone = site.local.view.get(key) or Zone()
    found = tuple(Published(server, generation, site.time, site.local.view.epoch) for server, generation in servers.items())
    site.store.commit((), (Put(key, dump(zone._replace(published=found))),))
    site.local.catch_up()


def addresses(site: Site, number: int) -> list[str]:
    return [each["address"] for each in site.told(number)["endpoints"]]


def test_it_stays_for_its_time_and_goes_when_that_is_confirmed(site: Site) -> None:
    site.moved()
    for seconds in (1, RESTS - 2):
        site.passes(seconds)
        each = first(site)
        assert each is not None and each.state == "retired" and addresses(site, 0) == [each.address]
    site.passes(2)
    each = first(site)
    assert each is not None and each.state == "leaving" and addresses(site, 0) == []
    site.passes(10_000)
    assert first(site) == each, "as long as its node has not said that it is gone"
    site.confirms(0)
    assert first(site) is None
    assert site.prefix(0).next == FIRST + 1, "and the counter does not go back"


def test_a_report_from_before_is_no_confirmation(site: Site) -> None:
    """Another address may have been removed by somebody: only who was told to remove it says that it may be forgotten."""
    site.moved()
    before = site.told(0)["generation"]
    site.report(site.who[0], underlay={"generation": before, "addresses": []})
    site.passes(1)
    site.passes(RESTS)
    each = first(site)
    assert each is not None and each.state == "leaving"
    site.report(site.who[0], underlay={"generation": before, "addresses": []})
    assert first(site) == each
    site.confirms(0)
    assert first(site) is None


def moved_behind_servers(site: Site) -> None:
    """Let web1 move away from an address that both name servers lead to."""
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    publishes(site, ns1=1, ns2=1)
    site.says(1, nic, "running", mode="routed")
    site.confirms(1)


def test_every_name_server_has_the_zone_without_it_and_the_ttl_is_over(site: Site) -> None:
    moved_behind_servers(site)
    zone: Zone = site.local.view.get(keys.zone(ZONE))
    assert zone.generation == 2 and zone.published[0].generation == 1, "what was published is kept"
    site.passes(1)
    site.passes(10 * RESTS)
    publishes(site, ns1=2, ns2=1)
    site.passes(10 * RESTS)
    each = first(site)
    assert each is not None and (each.state, each.cleared, each.generation) == ("retired", 0.0, 2), "one has it not yet"
    publishes(site, ns1=2, ns2=2)
    site.passes(1)
    site.passes(TTL - 1)
    each = first(site)
    assert each is not None and each.state == "retired", "resolvers may remember it"
    site.passes(1)
    each = first(site)
    assert each is not None and each.state == "leaving"


@pytest.mark.parametrize("back", [0, RESTS // 2, 10 * RESTS])
def test_it_waits_anew_for_a_name_server_that_has_lost_the_zone_since(site: Site, back: int) -> None:
    """Let it stay where a server leads to it once more, and for the TTL from when that does no longer; ``back``: seconds until then."""
    moved_behind_servers(site)
    notes(site, ns1=2, ns2=2)
    site.passes(1)
    each = first(site)
    assert each is not None and each.cleared
    site.passes(each.until - site.time - TTL / 2 - min(back, TTL / 4))
    notes(site, ns1=-1)
    site.passes(back)
    each = first(site)
    assert each is not None and each.state == "retired"
    notes(site, ns1=2)
    site.passes(TTL - 1)
    each = first(site)
    assert each is not None and each.state == "retired", "resolvers may have it from that server"
    for _ in range(2):
        site.passes(1 + TTL / 2)
    each = first(site)
    assert each is not None and each.state == "leaving"


def test_after_a_restore_nobody_knows_what_a_name_server_has(site: Site) -> None:
    """Wait until it has the zone in this epoch: the copy may be of before it was told names that it has still."""
    publishes(site, ns1=0)
    site.moved()
    publishes(site, ns1=3)
    site.local.view.epoch = "second"
    site.passes(1)
    site.passes(2 * RESTS)
    each = first(site)
    assert each is not None and (each.state, each.cleared) == ("retired", 0.0)
    publishes(site, ns1=3)
    site.passes(1)
    site.passes(TTL)
    each = first(site)
    assert each is not None and each.state == "leaving"


def test_a_name_server_that_is_no_more_holds_nothing_up(site: Site) -> None:
    publishes(site, ns1=0)
    site.moved()
    site.passes(1)
    site.passes(2 * RESTS)
    assert first(site).state == "retired"  # type: ignore[union-attr]
    publishes(site)
    site.passes(1)
    site.passes(TTL)
    assert first(site).state == "leaving"  # type: ignore[union-attr]


def test_nothing_ends_by_a_clock_that_has_jumped() -> None:
    passed = [0.0]
    site = Site()
    site.local.leader._steady = type(site.local.leader._steady)(site.local.core.now, lambda: passed[0])
    site.moved()
    site.passes(1)
    passed[0] += 1
    site.time += 86400 * 365
    site.passes(0)
    each = first(site)
    assert each is not None and each.state == "retired"
    for _ in range(80):
        site.time += 50
        passed[0] += 50
        site.passes(0)
    assert first(site).state == "leaving"  # type: ignore[union-attr]


def test_a_forgotten_node_frees_its_prefix_behind_its_endpoints(site: Site) -> None:
    """Nobody can confirm that they are gone; but name servers may lead there still."""
    publishes(site, ns1=0)
    site.moved()
    site.do("node.forget", NODES[0], {"force": True})
    site.passes(1)
    site.passes(10 * RESTS)
    assert site.prefix(0).freed and first(site) is not None
    publishes(site, ns1=100)
    for _ in range(3):
        site.passes(TTL + 1)
    assert site.local.view.get(keys.prefix(NODES[0])) is None and first(site) is None
    assert site.local.view.get(keys.confirmed(NODES[0])) is None


def test_release(site: Site) -> None:
    """An operator ends it: its node removes it now; once more, and nobody waits for the node."""
    site.moved()
    each = first(site)
    assert each is not None
    lives = next(one.address for one in site.placement("web1").endpoints if one.live)  # type: ignore[union-attr]
    assert site.refused("underlay.release", lives)["kind"] == "in-use"
    assert site.refused("underlay.release", "fd12::99")["kind"] == "missing"
    assert site.refused("underlay.release", "web1")["kind"] == "invalid"
    site.do("underlay.release", each.address)
    assert addresses(site, 0) == []
    assert first(site).state == "leaving"  # type: ignore[union-attr]
    site.do("underlay.release", each.address)
    assert first(site) is None
    assert site.refused("underlay.release", each.address)["kind"] == "missing"


def test_release_of_a_prefix(site: Site) -> None:
    site.moved()
    itself = site.prefix(0).prefix.removesuffix("/64")
    assert site.refused("underlay.release", itself)["kind"] == "in-use"
    site.do("node.forget", NODES[0], {"force": True})
    site.do("underlay.release", itself)
    for _ in range(2):
        site.passes(1)
    assert site.local.view.get(keys.prefix(NODES[0])) is None and first(site) is None


@pytest.mark.parametrize("generation", [99, 1 << 61])
def test_a_generation_of_a_time_to_come(site: Site, generation: int) -> None:
    site.confirms(0)
    body: dict[str, Any] = {"after": site.local.view.shown_revision(keys.reports(NODES[0]))}
    refused = site.refused("report", "", {**body, "underlay": {"generation": generation}}, node(0))
    assert (refused["kind"], refused["field"]) == ("invalid", "underlay.generation") and "\n" not in refused["detail"]


def test_a_registry_that_was_restored_gives_no_address_twice(site: Site) -> None:
    """The copy is older than the last address that was given: its node says so before it gets another one."""
    nic, other = site.moved(), site.guest("web2")
    site.says(0, nic, "incoming")
    site.confirms(0)
    lost = [each for each in addresses(site, 0) if site.prefix(0).number_of(each) == FIRST + 1]
    generation = site.told(0)["generation"]
    site.local.view.epoch = "second"
    old = site.prefix(0)._replace(next=FIRST, generation=1)
    site.store.commit((), (Put(keys.prefix(NODES[0]), dump(old)),))
    site.local.catch_up()
    site.says(0, other, "running")
    assert site.placement("web2") is None, "nobody knows yet what the node has"
    site.report(site.who[0], underlay={"generation": generation, "addresses": [f"{site.prefix(0).at(FIRST)}", *lost]})
    site.passes(1)
    placement = site.placement("web2")
    assert placement is not None and placement.endpoints[0].address == site.prefix(0).at(FIRST + 2)
    assert site.prefix(0).generation > generation


def test_a_node_that_starts_anew_keeps_what_it_has(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    before = site.placement("web1")
    site.lives(0, 1)
    site.passes(1)
    assert site.placement("web1") == before and site.names() == {"web1.console": 0}, LIFE


def test_nothing_is_left_where_the_last_address_of_a_guest_was_released_twice(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    site.says(0, nic, "")
    site.do("nic.delete", nic)
    each = first(site)
    assert each is not None and each.state == "retired"
    for _ in range(2):
        site.do("underlay.release", each.address)
    site.passes(1)
    assert site.local.view.all("endpoints") == {} and site.local.view.all("names") == {}
    assert site.prefix(0).next == FIRST + 1


def test_what_an_older_version_has_left_goes_too(site: Site) -> None:
    """Remove a placement without any endpoint, as an older version has left."""
    site.store.commit((), (Put(keys.placement("", "web9"), dump(Placement("", "web9", 7))),))
    site.local.catch_up()
    site.passes(61)
    site.passes(1)
    assert site.local.view.all("endpoints") == {}
