"""Nodes that say that a guest comes to them, and runs there, while it runs elsewhere: what its names do, and what is said."""

from __future__ import annotations

import pytest

from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.underlay import LAST
from netregistry.stores.base import Put
from netregistry.underlay import wrong
from tests.support.registry import GANETI, NODES
from tests.support.underlay import Site

GNT, OTHER = "gnt.example.com", "other.example.com"
UUID = "12345678-1234-4234-8234-123456789abc"
AT_0 = {"web1.console": 0}
AT_1 = {"web1.console": 1}
BOTH = {"web1.console": 0, "web1-migrating.console": 1}


@pytest.fixture
def site() -> Site:
    return Site()


def running(site: Site) -> str:
    nic = site.guest("web1")
    site.says(0, nic, "running")
    site.confirms(0)
    return nic


def taken(site: Site, by: int = 1) -> str:
    """Let a guest run on node0, and another node say that it has come there."""
    nic = running(site)
    site.says(by, nic, "incoming")
    site.confirms(by)
    site.says(by, nic, "running")
    assert site.names() == {"web1.console": by}, "as of a migration whose source is slow"
    return nic


def said(site: Site, cluster: str = "") -> list[str]:
    return list(wrong.of(site.local.view, site.local.view.get(keys.placement(cluster, "web1")), site.time))


def goes_on(site: Site, seconds: float, *numbers: int) -> None:
    """Let time pass, and nodes do what they are told meanwhile."""
    for _ in range(3):
        site.passes(seconds / 3)
        site.confirms(*numbers)
    site.passes(0)


# -- whose source says on that it runs there


def test_names_go_back_to_a_node_that_goes_on_to_have_the_guest(site: Site) -> None:
    nic = taken(site)
    assert said(site) == []
    goes_on(site, 15, 0, 1)
    assert site.names() == AT_0
    (line,) = said(site)
    assert "node1 is not followed" in line and "node0 has gone on" in line and "fence node0" in line
    for _ in range(3):
        site.says(1, nic, "incoming")
        site.says(1, nic, "running")
        goes_on(site, 60, 0, 1)
        assert site.names() == AT_0 and len(said(site)) == 1
    site.says(1, nic, "")
    site.says(1, nic, "incoming")
    site.confirms(1)
    site.says(1, nic, "running")
    assert site.names() == BOTH, "it takes no name as long as node0 says on that it runs there"
    goes_on(site, 15, 0, 1)
    assert site.names() == AT_0 and len(said(site)) == 1
    site.says(0, nic, "")
    site.confirms(1)
    assert site.names() == AT_1 and said(site) == [], "then it has come there"


def test_a_node_that_says_it_again_and_again(site: Site) -> None:
    """Count a claim that is taken back while the source runs for none: else its time would begin anew."""
    nic = taken(site)
    for _ in range(5):
        site.passes(4)
        site.confirms(0)
        site.says(1, nic, "incoming")
        site.confirms(0)
        site.says(1, nic, "running")
        site.confirms(0)
    assert site.names() == AT_0


def test_two_nodes_that_take_turns(site: Site) -> None:
    nic = taken(site)
    for number in (2, 1, 2, 1):
        site.says(number, nic, "incoming")
        site.confirms(number)
        site.says(number, nic, "running")
        goes_on(site, 15, 0, number)
    assert site.names() == AT_0


def test_names_stay_where_the_guest_has_come_while_its_source_hangs(site: Site) -> None:
    """Let a source that does nothing of what it is told prove nothing: its guest is gone, and it has not told that yet."""
    nic = taken(site)
    for _ in range(10):
        site.passes(30)
        site.confirms(1)
        assert site.names() == AT_1
    assert any("runs on node0, too" in each for each in said(site))
    site.dies(0)
    site.passes(1)
    assert site.names() == AT_1
    site.lives(0, 1)
    site.says(0, nic, "")
    site.confirms(0, 1)
    site.passes(1)
    assert site.names() == AT_1 and said(site) == []


def test_a_source_that_is_slow_to_say_that_the_guest_is_gone(site: Site) -> None:
    nic = taken(site)
    goes_on(site, 15, 1)
    site.says(0, nic, "")
    site.confirms(0, 1)
    assert site.names() == AT_1 and said(site) == []
    placement = site.placement("web1")
    assert placement is not None and (placement.leads, placement.left, placement.refuted) == (NODES[1], "", ())


def test_a_source_that_is_started_anew_meanwhile(site: Site) -> None:
    nic = taken(site)
    site.dies(0)
    site.passes(5)
    assert site.names() == AT_1
    site.lives(0, 1)
    site.says(0, nic, "running")
    goes_on(site, 15, 0, 1)
    assert site.names() == AT_0, "it has said once more that the guest runs there"


def test_a_node_that_waits_until_the_guests_own_one_is_away(site: Site) -> None:
    """Say beside the guest's own node that it runs there, and be nobody when that is started anew."""
    nic = running(site)
    site.says(1, nic, "running")
    assert site.names() == AT_0
    site.passes(70)
    site.dies(0)
    goes_on(site, 10, 1)
    assert site.names() == AT_0
    site.lives(0, 1)
    site.says(0, nic, "running")
    site.dies(0)
    goes_on(site, 10, 1)
    assert site.names() == AT_0
    site.do("node.fence", NODES[0])
    goes_on(site, 10, 1)
    assert site.names() == AT_1, "an operator says that node0 is dead"


def test_a_quick_arrival_whose_source_dies(site: Site) -> None:
    """Nobody has said that it comes: it is followed when the source has no lease."""
    nic = running(site)
    site.says(1, nic, "running")
    site.passes(5)
    site.dies(0)
    goes_on(site, 1, 1)
    assert site.names() == AT_1


def test_names_that_would_lead_nowhere_do_not_go_back(site: Site) -> None:
    nic = taken(site)
    full = site.prefix(0)._replace(next=LAST)
    site.store.commit((), (Put(keys.prefix(NODES[0]), dump(full)),))
    goes_on(site, 30, 1)
    assert site.names() == AT_1
    site.says(0, nic, "")
    assert site.names() == AT_1


# -- that were refuted, and of which the guest's next migration is one to them


def migrates(site: Site, nic: str) -> None:
    """Let the guest come to node1 in the usual way."""
    site.says(1, nic, "incoming")
    site.confirms(1)
    assert site.names() == BOTH
    site.says(1, nic, "running")
    site.confirms(1)
    site.passes(1)


def refuted(site: Site) -> list[int]:
    placement = site.placement("web1")
    return [NODES.index(each) for each in placement.refuted] if placement is not None else []


def test_a_node_whose_lease_is_back_before_it_has_said_that_the_guest_is_gone(site: Site) -> None:
    """Begin the agent of a source anew while the guest moves: what it has said hours ago is no word beside that of the guest's own node."""
    nic = site.guest("web1")
    site.says(1, nic, "running")
    site.confirms(1)
    site.passes(3600)
    site.dies(1)
    site.says(0, nic, "incoming")
    site.confirms(0)
    site.says(0, nic, "running")
    site.confirms(0)
    site.passes(60)
    site.lives(1)
    site.passes(1)
    assert site.names() == AT_0 and refuted(site) == []
    site.says(1, nic, "")
    goes_on(site, 600, 0, 1)
    migrates(site, nic)
    assert site.names() == AT_1
    site.dies(0)
    goes_on(site, 1, 1)
    assert site.names() == AT_1


def test_the_guests_own_node_is_back_before_it_has_said_that_the_guest_is_gone(site: Site) -> None:
    """Refute no node to which names could not move, as it has not confirmed its addresses, by the old word of one that was away."""
    nic = running(site)
    site.says(1, nic, "incoming")
    site.dies(0)
    site.says(1, nic, "running")
    site.passes(60)
    assert site.names() == AT_0
    site.lives(0)
    site.passes(1)
    assert refuted(site) == []
    site.says(0, nic, "")
    site.confirms(1)
    assert site.names() == AT_1 and refuted(site) == []


def test_what_was_said_to_the_registry_of_before_is_no_word_beside_another(site: Site) -> None:
    """Refute nobody by what a copy has, where nodes are alive by a restored registry before they have told it what there is."""
    nic = running(site)
    key = keys.reports(NODES[1])
    site.says(1, nic, "running")
    said_before = site.local.view.get(key)._replace(epoch="another")
    site.store.commit((), (Put(key, dump(said_before)),))
    site.passes(60)
    assert refuted(site) == []
    site.says(1, nic, "running")
    site.passes(60)
    assert refuted(site) == [1]


def test_a_node_that_goes_on_after_its_lease_was_away_is_refuted(site: Site) -> None:
    nic = running(site)
    site.says(1, nic, "running")
    site.passes(5)
    site.dies(1)
    site.lives(1)
    site.passes(9)
    assert refuted(site) == []
    goes_on(site, 70, 0, 1)
    assert refuted(site) == [1]


@pytest.mark.parametrize("says", ["", "stopped"])
def test_its_own_word_that_it_has_the_guest_no_more_ends_it(site: Site, says: str) -> None:
    """Follow the next migration of a guest whose refuted node has given it up, also where the source dies before it has said anything."""
    nic = taken(site)
    goes_on(site, 15, 0, 1)
    assert site.names() == AT_0 and refuted(site) == [1]
    site.says(1, nic, says)
    assert refuted(site) == []
    goes_on(site, 600, 0, 1)
    migrates(site, nic)
    assert site.names() == BOTH and said(site) == [], "it was wrong before: the source is waited for"
    site.dies(0)
    goes_on(site, 1, 1)
    assert site.names() == AT_1 and said(site) == []


def test_a_source_that_says_it_at_once_lets_a_node_that_was_refuted_have_the_guest(site: Site) -> None:
    nic = taken(site)
    goes_on(site, 15, 0, 1)
    site.says(1, nic, "")
    migrates(site, nic)
    site.says(0, nic, "")
    assert site.names() == AT_1
    placement = site.placement("web1")
    assert placement is not None and placement.refuted == placement.doubted == (), "the guest has left its node: all begins anew"


def test_a_node_that_is_refuted_and_begins_anew_takes_no_name_meanwhile(site: Site) -> None:
    nic = taken(site)
    goes_on(site, 15, 0, 1)
    for _ in range(5):
        for says in ("", "incoming", "running"):
            site.says(1, nic, says)
            site.confirms(0, 1)
            site.passes(1)
            assert site.names()["web1.console"] == 0
        goes_on(site, 15, 0, 1)
        assert site.names() == AT_0 and refuted(site) == [1]


# -- nodes of another cluster


@pytest.fixture
def clusters() -> Site:
    site = Site()
    for number, cluster in enumerate((GNT, OTHER, GNT)):
        site.do("node.set", NODES[number], {"cluster": cluster})
    return site


def of_gnt(site: Site) -> str:
    nic = site.nic(GANETI, uuid=UUID, cluster=GNT, instance="web1", index=0, mac="aa:00:00:00:00:01").uuid
    site.says(0, nic, "running")
    site.confirms(0)
    assert site.names() == AT_0
    return nic


def test_a_node_of_another_cluster_is_never_followed(clusters: Site) -> None:
    nic = of_gnt(clusters)
    clusters.says(1, nic, "incoming")
    (line,) = said(clusters, GNT)
    assert "node1 of other.example.com says that it is incoming there" in line
    clusters.says(1, nic, "running")
    assert clusters.told(1)["endpoints"] == []
    for away in (lambda: None, lambda: clusters.dies(0), lambda: clusters.do("node.fence", NODES[0])):
        away()
        goes_on(clusters, 60, 1)
        assert clusters.names().get("web1.console", 0) == 0 and clusters.told(1)["endpoints"] == []


def test_a_node_of_another_cluster_is_in_no_migrations_way(clusters: Site) -> None:
    nic = of_gnt(clusters)
    clusters.says(1, nic, "running")
    clusters.says(2, nic, "incoming")
    clusters.confirms(2)
    assert clusters.names() == {"web1.console": 0, "web1-migrating.console": 2}
    clusters.says(2, nic, "running")
    assert clusters.names() == {"web1.console": 2}, "in the commit of the report itself"


def test_a_node_of_which_nobody_has_said_a_cluster(clusters: Site) -> None:
    nic = of_gnt(clusters)
    clusters.do("node.set", NODES[2], {"cluster": ""})
    clusters.says(2, nic, "incoming")
    clusters.confirms(2)
    clusters.says(2, nic, "running")
    assert clusters.names() == {"web1.console": 2}
