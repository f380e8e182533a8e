"""Follow guests that come to a node of which none of its NICs tells: Ganeti 3 brings routed NICs up when the guest is there."""

from __future__ import annotations

import pytest

from netregistry import leader
from netregistry.model import keys
from tests.support.registry import GANETI
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


def comes(site: Site, number: int, *instances: str) -> None:
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


# -- to a node that is dead, by an operator's word


def fenced(site: Web, *numbers: int) -> None:
    for number in numbers:
        site.dies(number)
    for number in numbers:
        assert site.do("node.fence", site.who[number].name)
    site.passes(1)


def test_its_target_is_fenced(site: Web) -> None:
    """Drop what a fenced target has said by Ganeti's files, too: the guest's next migration is followed."""
    arrives(site)
    fenced(site, 1)
    assert site.names() == {WEB: 0} and states(site, 1) == ["retired"]
    comes(site, 2, "web1")
    comes(site, 2, "web1")
    assert site.names() == {WEB: 0, MOVING: 2}
    site.says(2, site.web, "running", mode="routed")
    assert site.names() == {WEB: 2}


def test_a_node_that_is_fenced_and_alive_all_the_same_says_it_again(site: Web) -> None:
    arrives(site)
    fenced(site, 1)
    site.lives(1)
    site.passes(1)
    assert site.names() == {WEB: 0}
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0, MOVING: 1} and states(site, 1) == ["retired", "there"]
    site.says(1, site.web, "running")
    site.says(0, site.web, "")
    comes(site, 1)
    assert site.names() == {WEB: 1}


def test_its_source_is_fenced(site: Web) -> None:
    """Keep the names of a guest whose source is fenced until its target says what became of it."""
    arrives(site)
    fenced(site, 0)
    assert site.names() == {WEB: 0, MOVING: 1}, "it may come on: its target is alive"
    site.says(1, site.web, "running")
    comes(site, 1)
    site.passes(1)
    assert site.names() == {WEB: 1} and states(site, 0) == ["retired"]


def test_its_source_is_fenced_and_it_does_not_come(site: Web) -> None:
    arrives(site)
    fenced(site, 0)
    comes(site, 1)
    site.passes(1)
    assert site.names() == {} and states(site, 0) == states(site, 1) == ["retired"]


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_both_are_fenced(site: Web, numbers: tuple[int, int]) -> None:
    arrives(site)
    fenced(site, *numbers)
    assert site.names() == {} and states(site, 0) == states(site, 1) == ["retired"]


@pytest.mark.parametrize("says", ["fenced", "forgotten", "alive", "dead"])
def test_it_is_deleted(site: Web, says: str) -> None:
    """Let nothing that a node says, or has said, of a guest that has no NIC any more keep its names: the quarantine begins."""
    arrives(site)
    if says != "alive":
        site.dies(1)
    if says == "fenced":
        site.do("node.fence", site.who[1].name)
    if says == "forgotten":
        site.do("node.forget", site.who[1].name)
    site.says(0, site.web, "")
    assert site.do("nic.delete", site.web)
    site.passes(1)
    assert site.names() == {} and set(states(site, 0)) == set(states(site, 1)) == {"retired"}


def test_its_target_is_forgotten_and_joins_again(site: Web) -> None:
    """Ignore what a target has said before it was forgotten when it joins again: that was another node's word."""
    arrives(site)
    site.dies(1)
    site.do("node.forget", site.who[1].name)
    site.passes(1)
    assert site.names() == {WEB: 0}
    site.join(1)
    site.lives(1)
    site.passes(1)
    assert site.names() == {WEB: 0}


def test_its_target_joins_again_while_what_it_has_said_is_swept(site: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a forgotten target that joins again until all that it has said is gone, which may take several commits."""
    arrives(site)
    site.says(1, site.guest("web2"), "running")
    site.dies(1)
    site.do("node.forget", site.who[1].name)
    monkeypatch.setattr(leader, "AT_ONCE", 1)
    sweeps = list(site.local.leader._forgotten())
    assert len(sweeps) > 3
    for commit in sweeps:
        assert site.refused("node.join", "", {"uuid": site.who[1].name, "name": "node1"}, site.who[1])["kind"] == "busy"
        site.store.commit(*commit)
        site.local.catch_up()
    site.join(1)
    assert site.local.view.get(keys.confirmed(site.who[1].name)) is None


# -- to a node of which no cluster is known

GNT, OTHER = "gnt.example.com", "other.example.com"


class Clusters(Site):
    """Make a cluster of two nodes, with a guest on the first one, and a node of which no cluster is known."""

    def __init__(self) -> None:
        super().__init__()
        self.do("node.set", self.who[0].name, {"cluster": GNT})
        self.do("node.set", self.who[2].name, {"cluster": GNT})
        self.web = self.of(GNT, 1)
        self.says(0, self.web, "running", mode="routed")
        self.confirms(0)
        assert self.names() == {WEB: 0}

    def of(self, cluster: str, number: int) -> str:
        """Give the NIC of a guest web1 of a cluster."""
        uuid = f"12345678-1234-4234-8234-00000000000{number}"
        return self.nic(GANETI, uuid=uuid, cluster=cluster, instance="web1", index=0, mac=f"aa:00:00:00:00:0{number}").uuid


def test_it_comes_to_a_node_of_which_no_cluster_is_known() -> None:
    site = Clusters()
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0, MOVING: 1}
    site.says(1, site.web, "running", mode="routed")
    comes(site, 1)
    assert site.names() == {WEB: 1}


def test_it_does_not_come_to_a_node_of_which_no_cluster_is_known() -> None:
    site = Clusters()
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    comes(site, 1)
    assert site.names() == {WEB: 0}


def test_what_is_known_of_a_node_changes_while_a_guest_comes_there() -> None:
    site = Clusters()
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    assert site.do("node.set", site.who[1].name, {"cluster": OTHER})
    site.passes(1)
    assert site.names() == {WEB: 0}
    assert site.do("node.set", site.who[1].name, {"cluster": ""})
    site.passes(1)
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0, MOVING: 1}


def test_of_two_clusters_guests_by_one_name_none_comes_to_a_node_of_which_no_cluster_is_known() -> None:
    """Follow nobody by a name that may be that of another guest; a node of the cluster means its own one."""
    site = Clusters()
    site.do("node.set", site.who[1].name, {"cluster": OTHER})
    site.says(1, site.of(OTHER, 2), "running", mode="routed")
    site.confirms(1)
    site.do("node.set", site.who[1].name, {"cluster": ""})
    comes(site, 1, "web1")
    site.passes(1)
    assert site.told(1)["endpoints"] == [each for each in site.told(1)["endpoints"] if each["cluster"] == OTHER]
    comes(site, 2, "web1")
    comes(site, 2, "web1")
    assert site.names()[MOVING] == 2


def test_a_guest_of_no_cluster_by_that_name_is_as_likely_the_one() -> None:
    """Follow no guest by a name that a guest of no cluster has too, even if that one has no endpoint since nothing speaks for it."""
    site = Clusters()
    site.guest("web1")
    comes(site, 1, "web1")
    comes(site, 1, "web1")
    assert site.names() == {WEB: 0}
