"""Put back what was in a registry's place: an older copy may have given addresses to other guests meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from netregistry.model import keys
from netregistry.model.underlay import FIRST
from tests.support.registry import NODES
from tests.support.underlay import Site


@pytest.fixture
def site() -> Site:
    """Give a site in which web1 has an address that its node was not told yet."""
    site = Site()
    first, _second = site.guest("web1"), site.guest("web2")
    site.says(0, first, "running")
    return site


def put_back(site: Site, *had: dict[str, Any], reports: tuple[dict[str, Any], ...] = ()) -> None:
    """Let the registry be of another epoch, in which the first node says what it was told in the one before."""
    site.local.view.epoch = "third"
    own = site.prefix(0)
    there = [own.itself, *(each["address"] for each in had)]
    said = {"generation": 9, "addresses": there, "prefix": own.prefix, "had": list(had)}
    assert site.report(site.who[0], *reports, underlay=said).status == 200


def has(site: Site, instance: str, place: int, **more: Any) -> dict[str, Any]:
    return {"cluster": "", "instance": instance, "kind": "console", "address": site.prefix(0).at(FIRST + place), **more}


def running(site: Site, instance: str) -> dict[str, Any]:
    return {"nic": uuid(site, instance), "state": "running", "endpoints": ["console"]}


def uuid(site: Site, instance: str) -> str:
    return site.local.view.members("instance", "", instance)[0].partition("/")[2]


def led_to(site: Site) -> dict[str, str]:
    """Give where the names lead, by guest."""
    return {name.instance: name.address for name in site.local.view.all("names").values()}


def given(site: Site) -> dict[str, list[str]]:
    """Give the addresses of each guest."""
    return {each.instance: [one.address for one in each.endpoints] for each in site.local.view.all("endpoints").values()}


@pytest.mark.parametrize("together", [False, True])
def test_an_address_is_whose_its_node_says(site: Site, together: bool) -> None:
    """Leave an address to web2, whose node has it, and give web1 another one: no name of web1 leads to web2's for a moment."""
    theirs = has(site, "web2", 0)
    reports = (running(site, "web2"), running(site, "web1"))
    put_back(site, theirs, reports=reports if together else ())
    assert led_to(site).get("web1") is None
    if not together:
        assert [each["instance"] for each in site.told(0)["endpoints"] if each["address"] == theirs["address"]] == ["web2"]
        for instance in ("web1", "web2"):
            site.says(0, uuid(site, instance), "running")
            assert led_to(site).get("web1") is None
    site.confirms(0)
    assert led_to(site) == {"web1": site.prefix(0).at(FIRST + 1), "web2": theirs["address"]}
    assert given(site) == {"web1": [led_to(site)["web1"]], "web2": [theirs["address"]]}


def test_one_that_rests_is_whose_its_node_says(site: Site) -> None:
    put_back(site, has(site, "web2", 0, retired=True))
    site.says(0, uuid(site, "web1"), "running")
    site.confirms(0)
    assert led_to(site) == {"web1": site.prefix(0).at(FIRST + 1)}
    assert given(site) == {"web1": [site.prefix(0).at(FIRST + 1)], "web2": [site.prefix(0).at(FIRST)]}


def test_a_guest_that_is_gone_since_has_nothing_left(site: Site) -> None:
    """Remove the placement of a guest that is gone since, with its only address."""
    site.says(0, uuid(site, "web1"), "")
    put_back(site, has(site, "web2", 0))
    site.says(0, uuid(site, "web2"), "running")
    site.passes(1)
    assert given(site) == {"web2": [site.prefix(0).at(FIRST)]}
    assert site.local.view.get(keys.placement("", "web1")) is None


def test_a_guest_whose_cluster_was_renamed_keeps_its_address(site: Site) -> None:
    """Keep the address of a guest whose cluster was renamed: it is the same guest, by whichever name its node knows the cluster."""
    before = given(site)
    put_back(site, {**has(site, "web1", 0), "cluster": "gnt.example.com"})
    assert given(site) == before and site.local.view.get(keys.confirmed(NODES[0])).had == ()
    site.says(0, uuid(site, "web1"), "running")
    site.confirms(0)
    assert led_to(site) == {"web1": site.prefix(0).at(FIRST)}
