"""Nodes stay alive by their streams, whatever a service is busy with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from netregistry.leader import deposed
from netregistry.model import keys
from netregistry.model.certificate import Credential
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, new_id
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.service.streams import Channel
from netregistry.stores.base import Compacted, Unavailable
from netregistry.stores.sqlite import SqliteStore
from tests.support.registry import OPERATOR
from tests.support.service import Lines

COUNT = 60


class World:
    """A registry whose time the test turns, with a stream of each node."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        self.log = Lines()
        self.store = SqliteStore.create(":memory:", "first", lambda: self.time)
        self.registry = Registry(self.store, "1", self.log, Limits(), lambda: self.time, lambda: self.time)
        self.channels: list[Channel] = []
        for number in range(COUNT):
            node, body = self.node(number), {"uuid": self.node(number).name, "name": f"node{number}"}
            assert self.registry.answer(Call(new_id(self.time, number), "node.join", "", body), node).status == 201
            incarnation = f"{number:08x}-2222-4222-8222-222222222222"
            self.channels.append(self.registry.watch(node, {"node": node.name, "incarnation": incarnation}, lambda: None))

    @staticmethod
    def node(number: int) -> Identity:
        return Identity("node", f"{number:08x}-0000-4000-8000-000000000000", "unix")

    def ticks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time += 1
            self.registry.tick()

    @property
    def alive(self) -> int:
        return len(self.registry.local.view.all("alive"))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.registry.close()


def test_a_look_keeps_all_nodes_alive_that_have_a_stream(world: World) -> None:
    for _ in range(4):
        world.ticks(12)
        world.registry.keep()
    assert world.alive == COUNT
    for channel in world.channels[:7]:
        world.registry.streams.close(channel)
    for _ in range(2):
        world.ticks(12)
        world.registry.keep()
    assert world.alive == COUNT - 7


def test_a_service_that_was_held_up_takes_no_node_for_gone(world: World) -> None:
    """Nobody was heard meanwhile. All would be gone, and each come back by a commit of its own, in which time others would be gone."""
    world.ticks(1)
    before = world.store.list("", limit=1).revision
    world.time += 60
    world.registry.tick()
    assert world.alive == COUNT and "held up for 60 s" in world.log.lines[0]
    world.registry.keep()
    assert [item.key for item in world.store.list("").items if item.revision > before] in ([], ["leader"])
    world.ticks(16)
    assert world.alive == 0, "who is not heard afterwards is gone as ever"


def test_a_service_that_reads_for_long_takes_no_node_for_gone(world: World) -> None:
    """A hundred thousand NICs take ten seconds, and nobody listens before the end of them."""
    world.time += 12
    log = Lines()
    world.registry = Registry(world.store, "1", log, Limits(), lambda: world.time, lambda: world.time)
    world.ticks(5)
    assert world.alive == COUNT and log.lines == []
    world.ticks(12)
    assert world.alive == 0


def test_a_node_is_alive_by_one_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a synchronisation of the disk, and thousands of nodes come together where a service was restarted."""
    world.ticks(16)
    assert world.alive == 0
    transaction, begun = SqliteStore._transaction, []

    @contextlib.contextmanager
    def counted(store: SqliteStore) -> Iterator[object]:
        begun.append(store)
        with transaction(store) as database:
            yield database

    monkeypatch.setattr(SqliteStore, "_transaction", counted)
    world.registry.keep()
    assert world.alive == COUNT and len(begun) == COUNT


def test_nodes_are_kept_in_parts_and_whoever_is_late_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may be asked for each of thousands by itself, and all other requests would wait for that."""
    asked: list[int] = []
    keep_all = world.store.keep_all
    monkeypatch.setattr(world.store, "keep_all", lambda leases: (asked.append(len(leases)), keep_all(leases))[1])
    for _ in range(50):
        world.time += 0.3
        world.registry.tick()
        world.registry.keep(10, 6.0)
    assert asked == [COUNT // 10] * 50 and world.alive == COUNT, "15 seconds, each part of which is that of the nodes kept longest ago"
    world.time += 6.0
    world.registry.keep(10, 6.0)
    assert asked[-1] == COUNT
    world.ticks(12)
    assert world.alive == COUNT


def test_leases_that_have_ended_keep_none_from_being_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new one may take long: those that are alive are kept first, and others have their turn in between."""
    world.ticks(16)
    assert world.alive == 0
    sign_on, turns = world.registry._sign_on, []

    def slowly(who: Identity, incarnation: str) -> None:
        world.time += 0.2
        sign_on(who, incarnation)

    monkeypatch.setattr(world.registry, "_sign_on", slowly)
    while world.alive < COUNT:
        before = world.alive
        world.registry.keep(10, 6.0)
        world.registry.tick()
        turns.append(world.alive - before)
        assert 0 < turns[-1] <= 3, "none was lost, and nobody waits for long"
        assert len(turns) <= COUNT // 2


def test_a_node_that_was_at_another_service_for_a_moment_stays_alive(world: World) -> None:
    """The other one has given it a lease, that nobody keeps: it was gone for a moment when that ended, and another agent came in as it."""
    here, node = world.registry, world.node(0)
    there = Registry(world.store, "1", world.log, Limits(), lambda: world.time, lambda: world.time)
    wanted = {"node": node.name, "incarnation": world.channels[0].incarnation}
    here.streams.close(world.channels[0])
    for service in (there, here):
        channel = service.watch(node, wanted, lambda: None)
        world.time += 1
        if service is there:
            service.streams.close(channel)
    before = world.store.get(keys.alive(node.name))
    for _ in range(40):
        world.time += 0.5
        here.keep(10, 6.0)
        here.tick()
        with pytest.raises(Refused, match="another agent is alive"):
            there.heartbeat(node, node.name, {"incarnation": "99999999-2222-4222-8222-222222222222"})
    assert world.store.get(keys.alive(node.name)) == before, "signed on once"
    assert not channel.ended and here.local.view.gone(node.name) is None
    there.local.close()


def test_a_store_that_gives_no_lease_forgets_though_nobody_leads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An etcd that is full gives none, and has room again only when it forgets: after a restart of the service nobody would lead."""

    def full(_seconds: float) -> int:
        raise Unavailable("full")

    monkeypatch.setattr(world.store, "grant", full)
    newest = world.store.list("", limit=1).revision
    for seconds in (1, 3700, 1):
        world.time += seconds
        with pytest.raises(Unavailable, match="full"):
            world.registry.tick()
    with pytest.raises(Compacted) as refused:
        world.store.watch("", 0)
    assert refused.value.floor >= newest


def test_a_service_whose_lease_nobody_can_keep_leads_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.ticks(1)
    assert world.registry.leads

    def away(*_: object) -> bool:
        raise Unavailable("no majority")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "keep", away)
        for second in range(1, 13):
            world.time += 1
            with pytest.raises(Unavailable):
                world.registry.tick()
            assert world.registry.leads == (second < 10)
    world.ticks(5)
    assert world.registry.leads


def test_of_two_services_of_one_name_the_one_leads_that_has_taken_it_last(world: World) -> None:
    """Let the first one notice it: the service of a copied machine has its name, and takes it for one that was killed."""
    made = [Registry(world.store, "1", world.log, Limits(), lambda: world.time, lambda: world.time, name="here") for _ in range(2)]
    made[0].tick()
    assert made[0].leads
    deposed(world.store, "here")
    for _ in range(3):
        made[1].tick()
        made[0].tick()
        assert [each.leads for each in made] == [False, True]
    assert "another service leads now, or this one was held up" in world.log.lines
    deposed(world.store, "here")
    made[0].tick()
    made[1].tick()
    assert [each.leads for each in made] == [True, False]
    for each in made:
        each.local.close()


def test_who_has_come_by_a_certificate_and_is_given_another_one_has_not_come_by_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a second later what was noted when a certificate was shown, if that is the latest one still."""
    registry, ann = world.registry, Identity("operator", "ann", "tls")
    monkeypatch.setattr(registry.issuer, "has_signed", lambda *_given: True)

    def asks(action: str, body: Any, who: Identity = OPERATOR) -> Any:
        world.time += 1
        response = registry.answer(Call(new_id(world.time, 1 << 20), action, "", body), who)
        assert response.status < 300, response
        return response.body

    def shown(grant: Any) -> str:
        registry.recognise(Credential(*(grant[each] for each in ("role", "name", "serial", "authority", "until"))), b"")
        return str(registry.local.view.get(keys.certificate("operator", "ann")).before)

    def rotates(label: str, cross: str) -> None:
        asks("authority.add", {"id": label, "fingerprint": "0" * 64, "certificate": "PEM", "cross": cross, "until": world.time + 1e8})

    rotates("aaaaaaaa", "")
    asks("token.add", {"id": "cccccccc", "proof": "1" * 64, "role": "operator", "name": "ann"})
    first = asks("certificate.join", {"token": "cccccccc", "proof": "1" * 64, "key": "2" * 64}, Identity("newcomer", "", "tls"))
    rotates("bbbbbbbb", "PEM")
    renewing = {"key": "2" * 64, "serial": first["serial"], "authority": "aaaaaaaa"}
    second = asks("certificate.renew", renewing, ann)
    assert shown(second) == "aaaaaaaa"
    third = asks("certificate.renew", renewing, ann)
    registry.tick()
    assert shown(third) == "aaaaaaaa", "nobody has come by this one"
    registry.tick()
    assert shown(third) == ""
