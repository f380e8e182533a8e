"""Follow guests that come to a node of which none of its NICs tells: Ganeti 3 brings routed NICs up when the guest is there."""

from __future__ import annotations

import pytest

from tests.support.underlay import Site

WEB, MOVING = "web1.console", "web1-migrating.console"


class Web(Site):
    """Nodes of which the first has a guest, with its name. ``web``: its NIC."""

    def __init__(self) -> None:
        super().__init__()
        self.web = self.guest("web1")
        self.says(0, self.web, "running")
        self.confirms(0)
        assert self.names() == {WEB: 0}


@pytest.fixture
def site() -> Web:
    return Web()


def comes(site: Web, number: int, *instances: str) -> None:
    """Let a node say which instances come there, and that it has done what it was told."""
    line = site.told(number)
    there = {"generation": line["generation"], "addresses": [each["address"] for each in line["endpoints"]]}
    response = site.report(site.who[number], underlay={**there, "arriving": list(instances)})
    assert response.status == 200, response


def states(site: Web, number: int) -> list[str]:
    """Give the states of a node's endpoints of the guest."""
    placement = site.placement("web1")
    return [each.state for each in (placement.endpoints if placement else ()) if each.node == site.who[number].name]


def arrives(site: Web) -> None:
    """Let the guest be on its way to node 1, with the name of its migration."""
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0} and states(site, 1) == ["wanted"]
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0, MOVING: 1}


@pytest.mark.parametrize("first", ["the source", "the target"])
def test_it_comes(site: Web, first: str) -> None:
    """Its name is at one node all the time, also while no NIC of it is anywhere."""
    arrives(site)
    if first == "the source":
        site.says(0, site.web, "")
        assert site.names() == {WEB: 0, MOVING: 1}
    site.says(1, site.web, "running")
    assert site.names() == {WEB: 1}
    comes(site, 1)
    if first != "the source":
        site.says(0, site.web, "")
    site.passes(1)
    assert site.names() == {WEB: 1} and states(site, 1) == ["there"] and states(site, 0) == ["retired"]


def test_it_does_not_come(site: Web) -> None:
    arrives(site)
    comes(site, 1)
    assert site.names() == {WEB: 0} and states(site, 1) == ["retired"] and states(site, 0) == ["there"]


def test_it_comes_to_a_node_that_had_it_before(site: Web) -> None:
    """Take what that says of its NIC as of before."""
    site.says(1, site.web, "stopped")
    arrives(site)
    site.says(0, site.web, "")
    assert site.names() == {WEB: 0, MOVING: 1}
    site.says(1, site.web, "running")
    assert site.names() == {WEB: 1}


def test_a_node_without_a_lease_takes_nothing_away(site: Web) -> None:
    arrives(site)
    site.dies(1)
    site.passes(1)
    assert site.names() == {WEB: 0, MOVING: 1}
    site.lives(1)
    comes(site, 1)
    site.passes(1)
    assert site.names() == {WEB: 0}


def test_of_an_instance_that_nothing_speaks_for_nothing_is_made(site: Web) -> None:
    other = site.guest("web2")
    site.says(0, other, "running", kinds=())
    comes(site, 1, "web2", "nobody")
    site.passes(1)
    assert site.names() == {WEB: 0} and site.placement("web2") is None


def test_a_nic_that_says_so_itself_says_what_speaks_for_it(site: Web) -> None:
    """As bridged ones do, of which both tell."""
    site.says(1, site.web, "incoming", kinds=("console", "exporter"))
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0, MOVING: 1, "web1-migrating.exporter": 1}


def test_an_instance_of_another_cluster_is_another_one(site: Web) -> None:
    """Its node is none of that one's."""
    assert site.do("node.set", site.who[1].name, {"cluster": "other.example.com"})
    comes(site, 1, "web1")
    site.passes(1)
    assert site.names() == {WEB: 0} and states(site, 1) == []
