"""Say what is wrong with names and endpoints, each in one line."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.stores.base import Delete
from netregistry.underlay import wrong
from tests.support.registry import NODES
from tests.support.underlay import ZONE, Site


@pytest.fixture
def site() -> Site:
    return Site()


def said(site: Site, instance: str = "web1", cluster: str = "") -> list[str]:
    placement = site.local.view.get(keys.placement(cluster, instance))
    found = list(wrong.of(site.local.view, placement, site.time))
    assert all("\n" not in each and each.startswith(instance) for each in found)
    return found


def running(site: Site, instance: str = "web1", on: int = 0, **more: object) -> str:
    nic = site.guest(instance, **more)
    site.says(on, nic, "running")
    site.confirms(on)
    return nic


def test_nothing_is_wrong_with_a_guest_that_moves(site: Site) -> None:
    nic = running(site)
    assert said(site) == []
    site.says(1, nic, "incoming")
    site.confirms(1)
    assert said(site) == []
    site.says(1, nic, "running")
    assert said(site) == [], "though its source has not told that it is gone"


def test_a_second_migration(site: Site) -> None:
    nic = running(site)
    site.says(1, nic, "incoming")
    site.says(2, nic, "incoming")
    (line,) = said(site)
    assert "comes to node2, too" in line and "to node1 is followed" in line


def test_a_guest_that_runs_twice(site: Site) -> None:
    nic = running(site)
    site.says(1, nic, "running")
    (line,) = said(site)
    assert "runs on node1, too" in line and "lead to node0" in line


def test_a_name_that_another_one_has(site: Site) -> None:
    running(site, cluster="a.example.com")
    running(site, on=1, cluster="b.example.com")
    assert said(site, cluster="a.example.com") == []
    (line,) = said(site, cluster="b.example.com")
    assert f"web1.console.{ZONE} is a name of web1 of a.example.com" in line


def test_a_name_that_is_no_hosts(site: Site) -> None:
    running(site, "web_1")
    (line,) = said(site, "web_1")
    assert f"web_1.console.{ZONE}" in line and "no name of a host" in line
    running(site, "x" * 60)
    (line,) = said(site, "x" * 60)
    assert "-migrating" in line, "it has a name, and none while it moves"


def test_a_node_that_does_not_have_what_it_is_told(site: Site) -> None:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    assert said(site) == []
    site.time += 16
    (line,) = said(site)
    assert "node0 does not say that it has" in line
    site.dies(0)
    assert said(site) == [], "of a node without a lease that is no news"


def test_a_node_that_has_no_more_what_it_had(site: Site) -> None:
    """Say so of a guest at rest, and of one that moves there."""
    nic = running(site)
    site.loses(0)
    (line,) = said(site)
    assert "node0 says that" in line and "is not there any more" in line and site.names() == {"web1.console": 0}
    site.confirms(0)
    assert said(site) == []
    site.says(1, nic, "incoming")
    site.confirms(1)
    site.loses(1)
    site.says(1, nic, "running")
    site.says(0, nic, "")
    (line,) = said(site)
    assert "node1 says that" in line
    site.dies(1)
    assert said(site) == [], "of a node without a lease that is no news"


def test_a_node_without_a_prefix(site: Site) -> None:
    nic = running(site)
    site.store.commit((), (Delete(keys.prefix(NODES[1])),))
    site.local.catch_up()
    site.says(1, nic, "running", mode="routed")
    assert any("node1 has no prefix" in line for line in said(site))
