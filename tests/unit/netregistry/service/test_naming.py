"""Names of the underlay reach name servers by the service that leads, and what they have is what quarantine goes by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud.name_server import MockNameServer
from netregistry.model import keys
from netregistry.model.certificate import Authority
from netregistry.model.codec import dump
from netregistry.model.underlay import Zone
from netregistry.service import publishing, serve
from netregistry.service.limits import Limits
from netregistry.service.naming import Naming
from netregistry.service.registry import Registry
from netregistry.stores import files
from netregistry.stores.base import Put
from netregistry.stores.sqlite import SqliteStore
from netregistry.transfer import write_all
from netregistry.underlay import published
from netregistry.zone import publisher
from netregistry.zone.publisher import Publisher
from tests.support.bootstrap import ROOT
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.service import Lines, Served, served
from tests.support.underlay import LIFE, SITE, ZONE, Site
from tests.unit.netregistry.service.test_publishing import Zones

NAME = f"web1.console.{ZONE}"


class World(Site):
    """A site, and a service over the same store that leads and has names published."""

    def __init__(self, *servers: str, **more: Any) -> None:
        super().__init__(**more)
        assert isinstance(self.store, SqliteStore)
        self.service = Registry(self.store, "1", Lines(), Limits(), lambda: self.time, lambda: self.time)
        self.naming = Naming(self.service, servers)

    def lead(self) -> None:
        self.time += 1
        self.service.tick()
        assert self.service.leads

    def zone(self) -> Zone:
        self.local.catch_up()
        found: Zone | None = self.local.view.get(keys.zone(ZONE))
        return found or Zone()

    def at(self, **servers: int) -> bool:
        return {each.server: each.generation for each in self.zone().published} == servers

    def authority(self, label: str, made: float) -> None:
        """Write an authority, as its making does."""
        self.store.commit((), (Put(keys.authority(label), dump(Authority(label, label * 8, "", made=made, until=1e10))),))

    def moved(self) -> str:
        nic = self.guest("web1")
        self.says(0, nic, "running")
        self.confirms(0)
        self.says(1, nic, "running", mode="routed")
        self.confirms(1)
        return nic


def test_only_who_leads_publishes() -> None:
    world = World("a")
    assert world.naming.wanted() is None and world.at()
    world.lead()
    wanted = world.naming.wanted()
    assert wanted is not None and wanted.names == {} and (wanted.zone, wanted.prefix, wanted.ttl) == (ZONE, SITE, 10)
    assert world.at(a=-1), "what is retired from now on waits for it"


def test_what_is_wanted_is_one_object_for_one_generation() -> None:
    world = World("a")
    world.lead()
    nic = world.guest("web1")
    world.says(0, nic, "running")
    first = world.naming.wanted()
    world.confirms(0)
    second = world.naming.wanted()
    assert first is not None and second is not None and first.generation + 1 == second.generation
    assert (first.names, second.names) == ({}, {NAME: world.prefix(0).at(0x10000)})
    world.says(2, world.guest("web2"), "running")
    third = world.naming.wanted()
    assert third is second
    world.do("underlay.init", "", {"ttl": 20})
    fourth = world.naming.wanted()
    assert fourth is not None and fourth.ttl == 20 and fourth.names is second.names


def test_what_servers_have_is_noted() -> None:
    world = World("a", "b")
    world.lead()
    world.naming.wanted()
    world.moved()
    assert world.zone().generation == 2
    for server, generation in (("a", 1), ("a", 2), ("a", 1), ("b", 1), ("c", 2), ("a", 99)):
        world.naming.published(publisher.Published(server, ZONE, generation))
    assert world.at(a=2, b=1)
    before = world.local.view.revision
    world.naming.published(publisher.Published("a", ZONE, 2))
    world.naming.settle()
    world.local.catch_up()
    assert world.local.view.revision == before, "what is known is not written again"


def test_what_a_server_has_lost_is_noted_and_counts_anew_from_when_it_has_it_again() -> None:
    world = World("a", "b")
    world.lead()
    world.naming.wanted()
    world.moved()
    for server in ("a", "b"):
        world.naming.published(publisher.Published(server, ZONE, 2))
    world.time += 1000
    world.naming.published(publisher.Published("a", ZONE, -1))
    assert world.at(a=-1, b=2)
    before = world.local.view.revision
    world.naming.published(publisher.Published("a", ZONE, -1))
    assert world.local.view.revision == before
    world.naming.published(publisher.Published("a", ZONE, 2))
    assert world.at(a=2, b=2)
    times = {each.server: each.time for each in world.zone().published}
    assert times["a"] >= times["b"] + 1000


def test_nobody_waits_for_a_server_that_is_no_more() -> None:
    world = World("a", "b")
    world.lead()
    world.naming.wanted()
    Naming(world.service, ("b", "c")).settle()
    assert world.at(b=-1, c=-1)
    Naming(world.service, ()).settle()
    assert world.at()


def test_reports_that_overtake_it_keep_nothing_from_being_noted() -> None:
    """Another service changes names between the plan and the commit."""
    world = World("a")
    world.lead()
    world.naming.wanted()
    world.service.catch_up()
    world.moved()
    world.naming.published(publisher.Published("a", ZONE, 1))
    assert world.at(a=1) and world.zone().generation == 2


def test_a_name_on_a_node_of_a_mock_cloud_is_never_published() -> None:
    """Nobody answers there; nor is a name that leads to a node which was forgotten, of which nobody can tell what it was."""
    world = World("a")
    world.lead()
    world.do("node.set", NODES[1], {"kind": "virtual"}, world.who[1])
    for number, instance in enumerate(("web1", "web2")):
        world.says(number, world.guest(instance), "running")
        world.confirms(number)
    assert world.names() == {"web1.console": 0, "web2.console": 1}, "a mock cloud has names as any"
    wanted = world.naming.wanted()
    assert wanted is not None and wanted.names == {NAME: world.prefix(0).at(0x10000)}
    of_its_own = Naming(world.service, ("a",), virtual=True).wanted()
    assert of_its_own is not None and of_its_own.names.keys() == {NAME, f"web2.console.{ZONE}"}
    world.do("node.forget", NODES[1], {"force": True})
    after = Naming(world.service, ("a",)).wanted()
    assert after is not None and after.names == wanted.names


@pytest.mark.parametrize("kind", ["virtual", "physical"])
def test_a_node_whose_kind_is_changed_is_published_from_then_on_or_no_more(kind: str) -> None:
    """It was told wrongly when it joined. The zone is of another generation then: what servers have by the one before is not this."""
    world = World("a")
    world.lead()
    world.do("node.set", NODES[0], {"kind": "virtual" if kind == "physical" else "physical"}, world.who[0])
    world.says(0, world.guest("web1"), "running")
    world.confirms(0)
    before = world.naming.wanted()
    assert before is not None and len(before.names) == (kind == "virtual")
    world.do("node.set", NODES[0], {"kind": kind}, world.who[0])
    after = world.naming.wanted()
    assert after is not None and len(after.names) == (kind == "physical")
    assert after.generation == before.generation + 1
    world.do("node.set", NODES[0], {"name": "again"})
    assert world.naming.wanted() is after


def test_names_on_a_node_that_is_forgotten_are_published_no_more() -> None:
    world = World("a")
    world.lead()
    world.says(0, world.guest("web1"), "running")
    world.confirms(0)
    before = world.naming.wanted()
    world.do("node.forget", NODES[0], {"force": True})
    after = world.naming.wanted()
    assert before is not None and after is not None and before.generation < after.generation and after.names == {}


def test_the_registrys_id_is_that_of_its_first_authority_and_outlives_it() -> None:
    world = World("a")
    world.lead()
    first = world.naming.wanted()
    assert first is not None and first.owner == world.local.view.epoch, "without an authority"
    one, two = World("a"), World("a")
    for number, each in enumerate((one, two)):
        each.lead()
        each.authority(f"0000000{number}", 5.0)
    wanted = [each.naming.wanted() for each in (one, two)]
    assert wanted[0] is not None and wanted[1] is not None and wanted[0].owner != wanted[1].owner, "two registries of one prefix are two"
    one.authority("00000002", 3.0)
    again = one.naming.wanted()
    assert again is not None and again.owner == wanted[0].owner


def test_a_restored_registry_is_the_same_one_in_another_epoch(tmp_path: Path) -> None:
    """And what it is moved to is, too: all of it is written there."""
    path, backup = (str(tmp_path / name) for name in ("registry.sqlite", "backup"))
    files.begin(path)
    world = World("a", store=SqliteStore(path))
    world.lead()
    world.authority("00000001", 5.0)
    first = world.naming.wanted()
    assert isinstance(world.store, SqliteStore)
    world.store.backup(backup)
    world.authority("00000002", 3.0)
    world.store.close()
    epoch = files.bring_back(backup, path)
    moved = SqliteStore.create(":memory:", "moved")
    with SqliteStore(path) as restored:
        write_all(restored, moved)
        for store in (restored, moved):
            view = Registry(store, "1", Lines(), Limits(), lambda: world.time, lambda: world.time)
            view.catch_up()
            assert first is not None and published.registry_id(view.local.view) == first.owner == "00000001" * 2
    assert first is not None and epoch != first.epoch


def test_no_service_publishes_for_a_mock_cloud() -> None:
    """Hold that who says ``virtual`` is the mock cloud alone."""
    said = {
        path.relative_to(ROOT).parts[0]
        for folder in ("netregistry", "mockcloud", "netagent", "netcommon")
        for path in (ROOT / folder).rglob("*.py")
        if "virtual=True" in path.read_text()
    }
    assert said <= {"mockcloud"}


def test_without_a_zone_there_is_nothing_to_publish() -> None:
    world = World("a")
    world.lead()
    world.do("underlay.init", "", {"zone": ""})
    assert world.naming.wanted() is None
    world.naming.settle()
    assert world.zone().published == ()


OTHER = "u.example.net"


def test_names_of_a_zone_of_before_go_from_the_servers_that_have_them() -> None:
    world = World("a", "b")
    world.lead()
    world.says(0, world.guest("web1"), "running")
    world.confirms(0)
    world.naming.wanted()
    world.naming.published(publisher.Published("a", ZONE, 1))
    world.do("underlay.init", "", {"zone": OTHER})
    assert world.naming.wanted() is not None and [each.zone for each in world.naming.left("b")] == [ZONE], "it may have had some of them"
    (before,) = world.naming.left("b")
    assert list(before.names) == [NAME], "the leader has not come to it"
    world.lead()
    (wanted,) = world.naming.left("a")
    assert (wanted.zone, wanted.prefix, wanted.generation, wanted.names, wanted.former) == (ZONE, SITE, 2, {}, True)
    now = world.naming.wanted()
    assert now is not None and now.owner == wanted.owner and not now.former
    assert world.naming.left("c") == ()
    world.naming.published(publisher.Published("a", ZONE, 2))
    assert world.naming.left("a") == () != world.naming.left("b")
    naming = Naming(world.service, ("a",))
    naming.settle()
    assert naming.left("b") == (), "it publishes no more"
    assert world.at(a=2), "and one that is new has never had it"


@pytest.fixture
def servers() -> dict[str, MockNameServer]:
    return {name: MockNameServer(name) for name in ("a", "b")}


@pytest.fixture
def service(tmp_path: Path, servers: dict[str, MockNameServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(serve, "ZONE", 0.05)
    with served(tmp_path, publisher=Publisher(tuple(servers), servers.__getitem__, lambda: 0.0)) as found:
        yield found


class Guest:
    """A guest on one of two nodes of a service, which say what they have."""

    def __init__(self, service: Served) -> None:
        self.client = service.client()
        self.agents = [service.join(number) for number in range(2)]
        self.client.change("PUT", "underlay", {"prefix": SITE, "zone": ZONE, "ttl": 0, "minimum_age": 0})
        self.nic = self.client.change("POST", "nics", {"instance": "web1", "index": 0}).body["uuid"]
        for number, agent in enumerate(self.agents):
            agent.change("POST", f"nodes/{NODES[number]}/heartbeat", {"incarnation": f"{LIFE}{number}"})

    def endpoints(self) -> list[dict[str, Any]]:
        return [each for item in self.client.all("endpoints") for each in item["placement"]["endpoints"]]

    def states(self) -> list[str]:
        return [each["state"] for each in self.endpoints()]

    def report(self, number: int, state: str) -> None:
        for _ in range(2):
            prefix = next(each["prefix"] for each in self.client.all("prefixes") if each["node"] == NODES[number])
            addresses = [each["address"] for each in self.endpoints() if each["node"] == NODES[number] and each["state"] != "leaving"]
            body: dict[str, Any] = {"after": self.client.get(f"nodes/{NODES[number]}").body["reports"]}
            body["nics"] = [{"nic": self.nic, "state": state, "endpoints": ["console"]}] if state else []
            body["underlay"] = {"generation": prefix["generation"], "addresses": addresses}
            self.agents[number].change("POST", f"nodes/{NODES[number]}/reports", body)


def test_a_service_publishes_what_follows_guests(service: Served, servers: dict[str, MockNameServer]) -> None:
    guest = Guest(service)
    guest.report(0, "running")
    first = "fd12:3456:789a::1:0"
    wait_until(lambda: all(server.names == {NAME: first} for server in servers.values()))
    servers["b"].away = True
    guest.report(1, "incoming")
    guest.report(1, "running")
    second = {NAME: "fd12:3456:789a:1::1:0"}
    wait_until(lambda: servers["a"].names == second)
    assert servers["b"].names == {NAME: first}
    assert guest.states() == ["retired", "there"], "one name server leads there still"
    servers["b"].away = False
    wait_until(lambda: servers["b"].names == second)
    wait_until(lambda: guest.states() == ["leaving", "there"])


def test_a_service_empties_the_zone_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is retired meanwhile until that is done, and tell people for what it waits."""
    monkeypatch.setattr(publishing, "PATIENT", 0.05)
    server = Zones(ZONE, OTHER)
    with served(tmp_path, publisher=Publisher(("a",), lambda _name: server, lambda: 0.0)) as service:
        guest = Guest(service)
        guest.report(0, "running")
        wait_until(lambda: NAME in server.zones[ZONE].names)
        server.zones[ZONE].away = True
        guest.client.change("PUT", "underlay", {"zone": OTHER})
        wait_until(lambda: list(server.zones[OTHER].names) == [f"web1.console.{OTHER}"])
        guest.report(1, "incoming")
        guest.report(1, "running")
        wait_until(lambda: list(server.zones[OTHER].names.values()) == ["fd12:3456:789a:1::1:0"])
        assert guest.states() == ["retired", "there"] and list(server.zones[ZONE].names) == [NAME]
        (problem,) = guest.client.get("underlay").body["problems"]
        assert problem.startswith(f"zone {ZONE}, which was the underlay's, is not emptied at DNS server a")
        server.zones[ZONE].away = False
        wait_until(lambda: guest.states() == ["leaving", "there"])
        assert server.zones[ZONE].names == {} and guest.client.get("underlay").body["problems"] == []
