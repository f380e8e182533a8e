"""Restore a registry from an older copy, let one forget a node, or be of another version: what becomes of the underlay of its node."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mockcloud.name_server import MockNameServer
from netregistry.model import keys
from netregistry.service import queries
from netregistry.stores.base import Item, Put
from netregistry.zone.publisher import Publisher
from runtime import underlay
from tests.support.registry import NODES
from tests.support.service import Served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, reports
from tests.support.underlay_agent import FIRST, SECOND, SITE, THIRD, Place, given, names, placed, wanted

OWN = "fd12:3456:789a::1"
OLDER = tuple(each for each in queries.ABILITIES if not each.startswith("underlay"))


@pytest.fixture
def place(sim: Sim, tmp_path: Path) -> Place:
    return Place(sim, tmp_path)


def begins(place: Place, service: Served, **more: object) -> None:
    service.join(0)
    service.client().change("PUT", "underlay", {**SITE, **more})


def has(place: Place, agent: Agent, *addresses: str) -> None:
    agent.until(lambda: place.there == [OWN, *addresses], f"the node has {OWN}, {addresses}")


def comes(place: Place, agent: Agent, service: Served, number: int, instance: str, address: str, asked: bool = True) -> None:
    """Let a guest start, and have its endpoint there, confirmed, with a name that leads there. ``asked``: its NIC is to be asked for."""
    if asked:
        wanted(service, number, instance)
    place.starts(number, instance)
    agent.until(lambda: placed(service).get(instance) == [(address, "there")], f"{instance} has {address}")
    assert names(service)[f"{instance}.console"] == address


# -- restored


def test_a_guest_that_starts_after_a_restore_has_its_endpoint(place: Place) -> None:
    """The copy has all that the node has, which says so to the registry that was restored before it is given anything."""
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            has(place, agent)
            agent.until(lambda: service.client().get(f"nodes/{NODES[0]}").body.get("underlay"), "that is confirmed")
        copy = service.store.list("").items
    with place.served(copy, "second") as service:
        assert "underlay" not in service.client().get(f"nodes/{NODES[0]}").body, "it was said before the restore"
        with place.running(service) as agent:
            place.in_step()
            comes(place, agent, service, 0, "web1", FIRST)


def test_a_running_agent_says_it_to_a_registry_that_was_restored(place: Place) -> None:
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            comes(place, agent, service, 0, "web1", FIRST)
        copy = service.store.list("").items
    with place.served(copy, "second") as service, place.running(service) as agent:
        place.in_step()
        comes(place, agent, service, 1, "web2", SECOND)
        assert place.gone == []


def test_a_copy_of_before_an_address_takes_none_away_and_gives_it_to_nobody_else(place: Place) -> None:
    copy: tuple[Item, ...] = ()
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            has(place, agent)
            wanted(service, 0, "web1")
            copy = tuple(service.store.list("").items)
            place.starts(0, "web1")
            has(place, agent, FIRST)
            agent.until(lambda: placed(service).get("web1") == [(FIRST, "there")], "that is confirmed")
            place.in_step()
    place.gone.clear()
    with place.served(copy, "second") as service, place.running(service) as agent:
        agent.until(lambda: names(service) == {"web1.console": FIRST}, "the name leads to the same address as before")
        comes(place, agent, service, 1, "web2", SECOND)
        place.in_step()
        assert place.gone == [] and placed(service)["web1"] == [(FIRST, "there")]
        (said,) = service.store.list("confirmed/").items
        assert "had" not in json.loads(said.value)


def test_what_nobody_speaks_of_stays(place: Place) -> None:
    """The copy is of before the guest, of which there is no trace elsewhere by now: resolvers may know its name all the same."""
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            has(place, agent)
            copy = tuple(service.store.list("").items)
            comes(place, agent, service, 0, "web1", FIRST)
            place.in_step()
            place.sim.down(nic("bridged", INTERFACE="tap0", INTERFACE_UUID=UUIDS[0], INSTANCE="web1", MAC="aa:00:00:00:00:01"))
    place.gone.clear()
    with place.served(copy, "second") as service, place.running(service) as agent:
        comes(place, agent, service, 1, "web2", SECOND)
        place.in_step()
        assert place.gone == [] and place.there == [OWN, FIRST, SECOND]


def test_a_copy_of_before_the_underlay_takes_nothing_away(place: Place) -> None:
    """Nobody has told the registry that there is none; begun anew, it has the node's /64 and endpoints as the node says them."""
    with place.served() as service:
        service.join(0)
        copy = tuple(service.store.list("").items)
        begun = {**SITE, "minimum_age": 0}
        service.client().change("PUT", "underlay", begun)
        with place.running(service) as agent:
            has(place, agent)
            comes(place, agent, service, 0, "web1", FIRST)
            place.in_step()
    place.gone.clear()
    with place.served(copy, "second") as service, place.running(service) as agent:
        agent.until(lambda: "underlay init" in agent.alarms.active().get("registry-refused", ""), "there is an alarm")
        assert place.there == [OWN, FIRST]
        wanted(service, 0, "web1")
        service.client().change("PUT", "underlay", begun)
        agent.until(lambda: placed(service).get("web1") == [(FIRST, "there")], "the registry has it again")
        agent.until(lambda: "registry-refused" not in agent.alarms.active(), "the alarm is over")
        place.in_step()
        assert place.gone == [] and given(service) == {NODES[0]: "fd12:3456:789a::/64"}


def test_name_servers_lead_where_they_did_until_the_node_has_spoken(place: Place) -> None:
    """Keep the name of a guest that began after the copy was made, and publish the name of a guest that begins now at once."""
    seen: list[dict[str, str]] = []
    server = MockNameServer("a", lambda it: seen.append(it.names))

    def publisher() -> Publisher:
        return Publisher(("a",), lambda _name: server, time.monotonic)

    with place.served(publisher=publisher()) as service:
        begins(place, service)
        for number in range(3):
            wanted(service, number, f"web{number + 1}")
        with place.running(service) as agent:
            comes(place, agent, service, 0, "web1", FIRST, asked=False)
            copy = tuple(service.store.list("").items)
            comes(place, agent, service, 1, "web2", SECOND, asked=False)
            agent.until(lambda: len(server.names) == 2, "both have their names at the name server")
            place.in_step()
    right = server.names
    seen.clear()
    with place.served(copy, "second", publisher()) as service:
        service.until(lambda: "second" in {mark.epoch for mark in server.marks.values() if mark is not None})
        assert server.names == right, "the copy has one of them"
        with place.running(service) as agent:
            place.in_step()
            agent.until(lambda: len(names(service)) == 2, "the registry has both again")
            assert server.names == right
            comes(place, agent, service, 2, "web3", THIRD, asked=False)
            agent.until(lambda: len(server.names) == 3, "the next one has its name at the name server")
    assert not [each for each in seen if not right.items() <= each.items()]


# -- unknown there


def test_a_node_that_joined_after_the_copy_keeps_its_prefix_for_itself(place: Place) -> None:
    with place.served() as service:
        service.join(1)
        service.client().change("PUT", "underlay", SITE)
        copy = tuple(service.store.list("").items)
        service.join(0)
        with place.running(service) as agent:
            agent.until(lambda: place.there == ["fd12:3456:789a:1::1"], "it has the second /64")
            place.in_step()
    with place.served(copy, "second") as service:
        service.join(2)
        assert given(service) == {NODES[1]: "fd12:3456:789a::/64"}, "none is given before nodes have said what they have"
        shown = service.client().get("underlay").body
        assert shown["without"] == [NODES[2]] and "no /64 is given" in shown["problems"][0]
        with place.running(service) as agent:
            agent.until(lambda: service.store.list("strangers/").items, "it says what it has")
            problems = service.client().get("underlay").body["problems"]
            assert any("fd12:3456:789a:1::/64 is of node " + NODES[0] in each for each in problems)
            assert place.there == ["fd12:3456:789a:1::1"]
            service.join(0)
            agent.until(lambda: agent.sync.machine.inbox.complete, "it is one of the registry's again")
            place.in_step()
        assert given(service)[NODES[0]] == "fd12:3456:789a:1::/64" and place.there == ["fd12:3456:789a:1::1"]
        assert not service.store.list("strangers/").items and place.gone == []


def test_a_node_that_was_forgotten_while_it_was_off_gives_its_prefix_up(place: Place) -> None:
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            comes(place, agent, service, 0, "web1", FIRST)
            place.in_step()
        service.client().change("DELETE", f"nodes/{NODES[0]}", match="*", force=True)
        with place.running(service) as agent:
            agent.until(lambda: place.there == [], "all of it goes")
            assert underlay.read(place.sim.paths) is None
        with place.running(service) as agent:  # what is kept of the registry does not bring it back
            agent.passes(1.0)
            assert place.there == []
            service.join(0)
            agent.until(lambda: OWN in place.there, "one that joins again has it again")


def test_a_prefix_that_is_another_nodes_by_now_is_given_up(place: Place) -> None:
    """The registry that has forgotten the node is another one by now: it was restored, or moved, after that."""
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            has(place, agent)
            place.in_step()
        items = {item.key: item for item in service.store.list("").items}
    copy = [item for key, item in items.items() if key not in (keys.node(NODES[0]), keys.prefix(NODES[0]), keys.confirmed(NODES[0]))]
    others = [item._replace(key=keys.prefix(NODES[1])) for key, item in items.items() if key == keys.prefix(NODES[0])]
    with place.served([*copy, *others], "second") as service:
        service.store.commit((), (Put(keys.node(NODES[1]), json.dumps({"uuid": NODES[1], "name": "node1"}).encode()),))
        service.until(lambda: NODES[1] in given(service))
        with place.running(service) as agent:
            agent.until(lambda: place.there == [], "it goes")


def test_without_an_answer_nothing_goes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is away, and one of an older version that knows no such node, say nothing of the /64."""
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            has(place, agent)
            place.in_step()
        service.client().change("DELETE", f"nodes/{NODES[0]}", match="*", force=True)
        with monkeypatch.context() as patched:
            patched.setattr(queries, "ABILITIES", OLDER)
            with place.running(service) as agent:
                agent.until(lambda: agent.sync.machine.line.doubtful, "it knows no such node")
                agent.passes(1.0)
                assert place.there == [OWN]
    with place.running(service) as agent:
        agent.passes(1.0)
        assert place.there == [OWN]


# -- of another version


def test_an_agent_that_was_told_nothing_of_it_before_goes_on_from_the_beginning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.served() as service:
        service.join(0)
        with monkeypatch.context() as patched:
            patched.setattr(queries, "ABILITIES", OLDER)
            with place.running(service) as agent:
                place.in_step()
                service.client().change("PUT", "underlay", SITE)
                at = int(service.client().get("").body["revision"].rpartition(":")[2])
                agent.until(lambda: agent.sync.machine.inbox.ready.number >= at, "it is told past the underlay")  # type: ignore[union-attr]
                agent.sync._save(agent.sync.machine.inbox.document())
        with place.running(service) as agent:
            has(place, agent)
            place.in_step()
            assert agent.alarms.active() == {}


def test_an_agent_that_was_at_an_older_service_hears_what_has_changed_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.served() as service:
        begins(place, service, minimum_age=0, ttl=0)
        with place.running(service) as agent:
            comes(place, agent, service, 0, "web1", FIRST)
            place.in_step()
        with monkeypatch.context() as patched:
            patched.setattr(queries, "ABILITIES", OLDER)
            place.sim.settings = place.sim.settings._replace(nic={})
            with place.running(service) as agent:
                place.in_step()
                guest = nic("bridged", INTERFACE="tap0", INTERFACE_UUID=UUIDS[0], INSTANCE="web1", MAC="aa:00:00:00:00:01")
                place.sim.down(guest)
                agent.sync.marked(UUIDS[0])
                agent.until(lambda: reports(service)[UUIDS[0]]["state"] == "stopped", "its end is reported")
                place.starts(0, "web1")
                agent.until(lambda: [state for _address, state in placed(service)["web1"]] == ["leaving"], "its endpoint is over")
                agent.until(lambda: agent.sync.machine.inbox.ready.number >= service.store.list("").revision, "told past it")  # type: ignore[union-attr]
                agent.sync._save(agent.sync.machine.inbox.document())
                assert place.there == [OWN, FIRST]
        with place.running(service) as agent:
            agent.until(lambda: placed(service) == {}, "the node is told, and says that the address is gone")
            assert place.there == [OWN]


@pytest.mark.parametrize("key", [keys.UNDERLAY, keys.prefix(NODES[0])])
def test_what_the_service_cannot_read_takes_nothing_away(place: Place, key: str) -> None:
    """Neither from a node that was told of it, nor from one that is told all of it anew; its NICs are told all the same."""
    with place.served() as service:
        begins(place, service)
        with place.running(service) as agent:
            comes(place, agent, service, 0, "web1", FIRST)
            place.in_step()
        copy = tuple(service.store.list("").items)
    damaged = [item._replace(value=b'{"prefix": 7}') if item.key == key else item for item in copy]
    with place.served(damaged, "first") as service:
        document = {**place.agent.sync.machine.inbox.document(), "ready": "none"}
        place.agent.sync._save(document)
        with place.running(service) as agent:
            agent.until(lambda: f"{key} cannot be read" in agent.alarms.active().get("registry-refused", ""), "there is an alarm")
            place.in_step()
            assert place.there == [OWN, FIRST]
