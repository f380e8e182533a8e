"""One node does not fill the store; and where it is full all the same, whoever is revoked is shut out by the service that was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from netregistry.core import AGAIN, ATTEMPTS
from netregistry.model.certificate import Credential, Holding
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, Response, new_id
from netregistry.service import renewals, written
from netregistry.service.limits import Limits
from netregistry.service.registry import Registry
from netregistry.stores.base import Conflict, Unavailable, Unknown
from netregistry.stores.sqlite import SqliteStore
from tests.support.registry import NODES, OPERATOR, node
from tests.support.service import Lines


class World:
    """A registry whose time the test turns."""

    def __init__(self) -> None:
        self.time, self.asked = 1_800_000_000.0, 0
        self.store = SqliteStore.create(":memory:", "first", lambda: self.time)
        self.registry = Registry(self.store, "1", Lines(), Limits(), lambda: self.time, lambda: self.time)
        for number in range(2):
            assert self.ask("node.join", {"uuid": NODES[number], "name": f"node{number}"}, node(number)).status == 201

    def ask(self, action: str, body: Any, who: Identity = OPERATOR, target: str = "", dry_run: bool = False) -> Response:
        self.asked += 1
        return self.registry.answer(Call(new_id(self.time, self.asked), action, target, body, "*" if target else "", dry_run), who)

    def report(self, who: Identity, **more: Any) -> Response:
        after = self.registry.local.view.shown_revision(f"reports/{who.name}")
        response = self.ask("report", {"after": after, **more}, who)
        assert response.status == 200, response
        return response

    def let_in(self, who: Identity, seconds: float = 0.0) -> bool:
        serial = f"{int((self.time + seconds) * 1000):012x}{'0' * 20}"
        try:
            self.registry.admit(Credential("node", who.name, serial, "aaaaaaaa", self.time + 86400))
        except Refused as refused:
            forgotten = self.registry.local.view.node(who.name) is None  # not before it is written
            assert refused.more["reason"] == ("forgotten" if forgotten else "revoked")
            return False
        return True


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.registry.close()


LARGE = {"bridges": [f"{number:0200}" for number in range(1000)]}


def test_one_node_does_not_fill_the_store(world: World) -> None:
    """Count what a short report writes anew as well: all that was said of the node before is kept with it."""
    world.report(node(0), about=LARGE)
    for _ in range(written.BURST // 200_000 + 1):
        try:
            world.report(node(0))
        except Refused as refused:
            assert (refused.kind, refused.code) == ("too-many", 429) and refused.more["retry_after"] >= 1
            break
    else:
        raise AssertionError("it goes on for ever")
    before = world.registry.local.view.revision
    with pytest.raises(Refused):
        world.ask("node.set", {"kind": "virtual"}, node(0), NODES[0])
    assert world.registry.local.view.revision == before
    world.report(node(1), about=LARGE)  # the others
    assert world.ask("network.add", {"name": "blue"}).status == 201
    world.time += 10
    world.report(node(0))


def test_one_node_does_not_fill_the_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its changes of one NIC of its own had a bound in bytes alone, and pushed out in fifteen hours what all others had done."""
    monkeypatch.setattr(written, "ENTRIES", 20)
    monkeypatch.setattr(world.registry, "_written", written.Written(lambda: world.time))
    uuid = world.ask("nic.add", {"mac": "02:00:00:00:00:01", "found": True}, node(0)).body["uuid"]

    def change(number: int, **more: Any) -> Response:
        return world.ask("nic.set", {"tags": [f"t{number}"]}, node(0), uuid, **more)

    for number in range(19):
        assert change(number).status == 200
    before = world.registry.local.view.ledger.number
    with pytest.raises(Refused) as refused:
        change(20)
    assert (refused.value.code, refused.value.more["retry_after"]) == (429, written.EVERY + 1)
    assert world.registry.local.view.ledger.number == before
    world.report(node(0), nics=[{"nic": uuid, "state": "running"}])  # of which the history has nothing
    assert change(20, dry_run=True).status == 200
    assert world.ask("nic.add", {"mac": "02:00:00:00:00:02", "found": True}, node(1)).status == 201, "the others"
    world.time += written.EVERY
    assert change(20).status == 200
    with pytest.raises(Refused):
        change(21)


RENEWING = {"key": "2" * 64, "serial": "", "authority": "aaaaaaaa"}


def joined(world: World, role: str, name: str) -> dict[str, Any]:
    """Let somebody join; give what a renewal says."""
    world.asked += 1
    label = f"{world.asked:08x}"
    assert world.ask("token.add", {"id": label, "proof": "1" * 64, "role": role, "name": name}).status == 201
    given = world.ask("certificate.join", {"token": label, "proof": "1" * 64, "key": "2" * 64}, Identity("newcomer", "", "tls"))
    return {**RENEWING, "serial": given.body["serial"]}


@pytest.mark.parametrize("role", ["reader", "operator", "importer"])
def test_renewals_of_one_holder_are_bounded(world: World, role: Holding) -> None:
    """A reader's were not, at four hundred a second: the history was full of them, and what operators had done was cut."""
    authority(world)
    bob, carol = (Identity(role, name, "tls") for name in ("bob", "carol"))
    his, hers = joined(world, role, "bob"), joined(world, role, "carol")
    for _ in range(renewals.BURST):
        assert world.ask("certificate.renew", his, bob).status == 200
    before = world.registry.local.view.ledger.number
    with pytest.raises(Refused) as refused:
        world.ask("certificate.renew", his, bob)
    assert refused.value.kind == "too-many" and 0 < refused.value.more["retry_after"] <= renewals.EVERY + 1
    assert world.registry.local.view.ledger.number == before
    assert world.ask("certificate.renew", his, bob, dry_run=True).status == 200, "a rehearsal writes nothing"
    assert world.ask("certificate.renew", hers, carol).status == 200, "the others"
    world.time += refused.value.more["retry_after"]
    assert world.ask("certificate.renew", his, bob).status == 200
    with pytest.raises(Refused):
        world.ask("certificate.renew", his, bob)


def test_refused_renewals_are_not_counted(world: World) -> None:
    """Nothing is written by them, and who is to join again is told so."""
    authority(world)
    his = joined(world, "reader", "bob")
    for _ in range(renewals.BURST + 1):
        assert world.ask("certificate.renew", {**his, "authority": "cccccccc"}, Identity("reader", "bob", "tls")).status == 403


def test_what_is_written_for_a_reader_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "BURST", 2000)
    world = World()
    authority(world)
    his, bob = joined(world, "reader", "bob"), Identity("reader", "bob", "tls")
    with pytest.raises(Refused, match="this reader has had more than"):
        for _ in range(renewals.BURST):
            world.ask("certificate.renew", his, bob)
    world.registry.close()


def test_a_node_that_says_all_of_many_nics_anew_is_not_held_up(world: World) -> None:
    """4000 NICs, 50 at once, and of each more than most say."""
    for begin in range(0, 4000, 50):
        nics = [{"nic": f"{begin + each:08x}-1111-4111-8111-111111111111", "state": "running", "refused": "x" * 200} for each in range(50)]
        world.report(node(0), nics=nics, about={"bridges": [f"br{number}" for number in range(100)]})


@pytest.mark.parametrize(
    ("action", "body", "target"),
    [("certificate.revoke", {"role": "node", "name": NODES[0]}, ""), ("node.forget", {"force": True}, NODES[0])],
)
def test_who_is_revoked_is_out_although_the_store_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str, body: Any, target: str
) -> None:
    authority(world)
    by = Credential("node", NODES[0], "01" * 16, "aaaaaaaa", world.time + 9e6)
    watched = world.registry.watch(node(0), {"node": NODES[0], "incarnation": NODES[1]}, lambda: None, by)
    commit = world.store.commit

    def full(*_arguments: object) -> int:
        raise Unavailable("the etcd is full, and takes no more")

    monkeypatch.setattr(world.store, "commit", full)
    with pytest.raises(Unavailable):
        world.ask("network.add", {"name": "blue"})
    assert world.ask(action, body, node(1), target).status == 403
    assert world.let_in(node(0)) and not watched.ended
    with pytest.raises(Refused, match=r"full.*meanwhile") as refused:
        world.ask(action, body, OPERATOR, target)
    assert refused.value.kind == "unavailable"
    assert not world.let_in(node(0)) and world.let_in(node(1)) and watched.ended
    assert watched.take() == b"", "what waited is nothing for who is revoked"
    assert world.let_in(node(0), 1.0), "who joins again when there is room"
    monkeypatch.setattr(world.store, "commit", commit)
    assert world.ask(action, body, OPERATOR, target).status == 200
    assert not world.let_in(node(0))


REVOKE = {"role": "node", "name": NODES[0]}
Errors = list[Callable[[], Exception]]  #: made when they are raised: one that is kept keeps what its traceback refers to
NO_ANSWER = partial(Unknown, "no answer")
UNANSWERED: Errors = [NO_ANSWER] * AGAIN
ANSWERS: dict[str, Errors] = {
    "unanswered": UNANSWERED,
    "unanswered-then-away": [NO_ANSWER, partial(Unavailable, "no member answers")],
    "overtaken": [partial(Conflict, "ledger", 1)] * ATTEMPTS,
}


def authority(world: World) -> None:
    body = {"id": "aaaaaaaa", "fingerprint": "0" * 64, "certificate": "PEM", "until": world.time + 1e8}
    assert world.ask("authority.add", body).status == 201


def fails(monkeypatch: pytest.MonkeyPatch, world: World, errors: Errors) -> None:
    """Let the store's next commits fail."""
    commit, left = world.store.commit, list(errors)

    def failing(*given: Any) -> int:
        if left:
            raise left.pop(0)()
        return commit(*given)

    monkeypatch.setattr(world.store, "commit", failing)


@pytest.mark.parametrize("errors", ANSWERS.values(), ids=ANSWERS)
def test_who_is_revoked_is_out_although_nobody_knows_whether_it_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch, errors: Errors
) -> None:
    """Such as by a disk that fails in the midst of it, or an etcd that has lost its majority: by chance it held, or did not."""
    authority(world)
    by = Credential("node", NODES[0], "01" * 16, "aaaaaaaa", world.time + 9e6)
    watched = world.registry.watch(node(0), {"node": NODES[0], "incarnation": NODES[1]}, lambda: None, by)
    fails(monkeypatch, world, errors)
    refused = world.ask("certificate.revoke", REVOKE)
    assert refused.status == 503 and "meanwhile" in refused.body["detail"]
    assert not world.let_in(node(0)) and world.let_in(node(1)) and watched.ended
    assert world.ask("certificate.revoke", REVOKE).status == 200 and not world.let_in(node(0))


def test_a_batch_that_revokes_holds_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    authority(world)
    parts = [{"action": "network.add", "body": {"name": "blue"}}, {"action": "certificate.revoke", "body": REVOKE}]
    fails(monkeypatch, world, [partial(Unavailable, "full")] * 2)
    with pytest.raises(Refused, match="meanwhile"):
        world.ask("batch", {"parts": parts})
    assert not world.let_in(node(0)) and world.let_in(node(1))
    with pytest.raises(Unavailable):
        world.ask("batch", {"parts": parts[:1]})


def test_what_the_rules_refuse_shuts_nobody_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to forget a node that is alive, be the store there or not: it was out until a restart, though nothing of it was to be done."""
    authority(world)
    world.registry.heartbeat(node(0), NODES[0], {"incarnation": NODES[1]})

    def away(_key: str) -> None:
        raise Unavailable("no majority answers")

    monkeypatch.setattr(world.store, "get", away)
    with pytest.raises(Unavailable):
        world.ask("node.forget", None, OPERATOR, NODES[0])
    assert world.let_in(node(0))
    with pytest.raises(Unavailable):
        world.ask("certificate.revoke", {"role": "node", "name": "nobody"})


def test_who_was_shut_out_is_in_again_when_the_same_command_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It came to life at another service meanwhile, which let it in."""
    authority(world)
    fails(monkeypatch, world, [partial(Unavailable, "full")])
    with pytest.raises(Refused, match="meanwhile"):
        world.ask("node.forget", None, OPERATOR, NODES[0])
    assert not world.let_in(node(0))
    other = Registry(world.store, "1", Lines(), Limits(), lambda: world.time, lambda: world.time)
    other.heartbeat(node(0), NODES[0], {"incarnation": NODES[1]})
    assert world.ask("node.forget", None, OPERATOR, NODES[0]).status == 409 and world.let_in(node(0))


@pytest.mark.parametrize(
    ("action", "body", "target"), [("certificate.revoke", REVOKE, ""), ("node.forget", {"force": True}, NODES[0])], ids=["revoke", "forget"]
)
def test_who_was_shut_out_stays_so_when_the_same_is_rehearsed(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str, body: Any, target: str
) -> None:
    """A full disk takes rehearsals: whoever looked what it would do undid the only protection that there was."""
    authority(world)
    fails(monkeypatch, world, [partial(Unavailable, "full")])
    with pytest.raises(Refused, match="meanwhile"):
        world.ask(action, body, OPERATOR, target)
    assert world.ask(action, body, OPERATOR, target, dry_run=True).status == 200 and not world.let_in(node(0))


def test_who_was_shut_out_stays_so_when_the_same_is_refused_for_who_asks_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not done by one whose own certificate counts no more, who may not, too late, or by what he has read before."""
    authority(world)
    eve, body = Identity("operator", "eve", "tls"), {"role": "operator", "name": "eve"}
    serial = f"{int(world.time * 1000):012x}{'0' * 20}"
    hers = Credential("operator", "eve", serial, "aaaaaaaa", world.time + 86400)
    fails(monkeypatch, world, [partial(Unavailable, "full")] * 2)
    with pytest.raises(Refused, match="meanwhile"):
        world.ask("certificate.revoke", body)
    batch = {"parts": [{"action": "certificate.revoke", "body": REVOKE}]}
    with pytest.raises(Refused, match="meanwhile"):
        world.ask("batch", batch)

    def asks(action: str, body: Any, who: Identity, seconds: float = 0.0, one: Credential | None = None) -> int:
        world.asked += 1
        call = Call(new_id(world.time + seconds, world.asked), action, "", body)
        return world.registry.answer(call, who, one).status

    assert asks("certificate.revoke", body, eve, 1.0, hers) == 403
    assert asks("certificate.revoke", body, OPERATOR, 86400.0) == 409
    with pytest.raises(Refused, match="cannot be written yet"):
        world.registry.admit(hers)
    assert asks("batch", batch, node(1), 1.0) == 403 and not world.let_in(node(0))


def test_who_was_shut_out_stays_so_when_a_copy_of_an_earlier_one_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """She has joined again since that was done."""
    authority(world)
    body = {"role": "operator", "name": "eve"}
    first = Call(new_id(world.time, 1 << 40), "certificate.revoke", "", body)
    assert world.registry.answer(first, OPERATOR).status == 200
    world.time += 10
    assert world.ask("token.add", {"id": "bbbbbbbb", "proof": "1" * 64, **body}).status == 201
    granted = world.ask("certificate.join", {"token": "bbbbbbbb", "proof": "1" * 64, "key": "2" * 64}, Identity("newcomer", "", "tls"))
    hers = Credential("operator", "eve", granted.body["serial"], granted.body["authority"], granted.body["until"])
    world.registry.admit(hers)
    fails(monkeypatch, world, [partial(Unavailable, "full")])
    with pytest.raises(Refused, match="meanwhile"):
        world.ask("certificate.revoke", body)
    assert world.registry.answer(first, OPERATOR).status == 200
    with pytest.raises(Refused, match="cannot be written yet"):
        world.registry.admit(hers)
