"""The zone of the underlay is another one: its names go from the one before, and what is retired waits until name servers know it."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import Endpoint, Published, Zone
from netregistry.stores.base import Put
from netregistry.underlay import wrong
from tests.support.registry import NODES
from tests.support.underlay import ZONE, Site

RESTS, TTL = 100, 10
OTHER = "u.example.net"


@pytest.fixture
def site() -> Site:
    """Give one whose guest's name is at a name server."""
    made = Site()
    nic = made.guest("web1")
    made.says(0, nic, "running")
    made.confirms(0)
    publishes(made, ZONE, ns1=1)
    return made


def publishes(site: Site, name: str, **servers: int) -> None:
    zone = at(site, name)
    found = tuple(Published(server, generation, site.time, site.local.view.epoch) for server, generation in servers.items())
    site.store.commit((), (Put(keys.zone(name), dump(zone._replace(published=found))),))
    site.local.catch_up()
    site.passes(0)


def at(site: Site, name: str) -> Zone:
    return site.local.view.get(keys.zone(name)) or Zone()


def moves(site: Site, zone: str = OTHER) -> None:
    """Let the zone be another one, and then the guest move from node 0 to node 1."""
    site.do("underlay.init", "", {"zone": zone})
    site.passes(1)
    nic = next(each.nic for each in site.local.view.get(keys.speakers(NODES[0])).nics)
    site.says(1, nic, "running", mode="routed")
    site.confirms(1)
    site.says(0, nic, "")


def first(site: Site) -> Endpoint | None:
    placement = site.placement("web1")
    return next((each for each in (placement.endpoints if placement else ()) if each.node == NODES[0]), None)


def problems(site: Site) -> list[str]:
    return list(wrong.of_zones(site.local.view))


@pytest.mark.parametrize("zone", [OTHER, ""])
def test_what_is_retired_waits_until_the_zone_of_before_is_emptied(site: Site, zone: str) -> None:
    """Names there lead to it; also where there are no names any more, and where the servers of the zone have all of it."""
    moves(site, zone)
    if zone:
        publishes(site, OTHER, ns1=99)
    assert at(site, ZONE).generation == 2 and not [key for key in site.local.view.all("names") if key.startswith(f"names/{ZONE}/")]
    site.passes(10 * RESTS)
    each = first(site)
    assert each is not None and (each.state, each.cleared) == ("retired", 0.0)
    (problem,) = problems(site)
    assert problem.startswith(
        f"zone {ZONE}, which was the underlay's, is not emptied at DNS server ns1: it is at generation 1 there, and to be at 2;"
    )
    publishes(site, ZONE, ns1=2)
    assert problems(site) == []
    site.passes(TTL - 1)
    assert first(site).state == "retired", "resolvers may remember it"  # type: ignore[union-attr]
    site.passes(1)
    assert first(site).state == "leaving"  # type: ignore[union-attr]


def test_a_zone_that_nobody_has_published_holds_nothing_up(site: Site) -> None:
    publishes(site, ZONE)
    moves(site)
    site.passes(1)
    site.passes(RESTS)
    assert problems(site) == [] and first(site).state == "leaving"  # type: ignore[union-attr]


def test_back_to_the_zone_of_before(site: Site) -> None:
    """Both are counted on, so no server takes what is old for what is new."""
    moves(site)
    site.do("underlay.init", "", {"zone": ZONE})
    site.passes(1)
    assert at(site, ZONE).generation == 3 and at(site, OTHER).generation == 3
    assert problems(site) == [], "nothing was ever published in the other one"
    publishes(site, OTHER, ns1=2)
    assert len(problems(site)) == 1


def test_an_operator_gives_a_zone_up(site: Site) -> None:
    moves(site)
    assert site.refused("underlay.release", OTHER)["kind"] == "in-use"
    site.do("underlay.release", ZONE)
    assert problems(site) == []
    site.passes(1)
    site.passes(RESTS)
    assert first(site).state == "leaving"  # type: ignore[union-attr]
