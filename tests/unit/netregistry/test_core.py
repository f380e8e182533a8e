"""Requests done once, revisions, epochs, batches, and what a lost answer or a crash makes of them."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from netregistry.actions import ACTIONS
from netregistry.core import ATTEMPTS, CatchUp, Committed, Conflicted, Found, Nothing, Read, Unanswered
from netregistry.draft import Commit
from netregistry.local import Local
from netregistry.request import Call, made, new_id
from netregistry.stores.base import Delete, Expect, Put, Unavailable, Unknown
from tests.support.bootstrap import ROOT
from tests.support.registry import OPERATOR, Registry, node


def test_a_request_is_done_once(registry: Registry) -> None:
    blue = registry.network()
    call = registry.call("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    first = registry.local.answer(call, OPERATOR)
    before = registry.everything()
    assert registry.local.answer(call, OPERATOR) == first and registry.everything() == before
    registry.do("nic.delete", first.body["uuid"])
    before = registry.everything()
    assert registry.local.answer(call, OPERATOR) == first, "a late copy does nothing after a deletion"
    fresh = Local(registry.store, lambda: registry.time)
    assert fresh.answer(call, OPERATOR) == first and registry.everything() == before


def test_a_refused_request_stays_refused(registry: Registry) -> None:
    blue = registry.network()
    nic = registry.nic(network=blue, ip="192.0.2.5")
    call = registry.call("nic.add", "", {"network": blue, "ip": "192.0.2.5"})
    first = registry.local.answer(call, OPERATOR)
    registry.do("nic.delete", nic.uuid)
    registry.passes(4000)
    before = registry.everything()
    assert first.status == 409 and registry.local.answer(call, OPERATOR) == first and registry.everything() == before


@pytest.mark.parametrize("harm", ["x" * 900_000, "\x1b[31m" * 100_000, "\u202e" * 100_000])
def test_what_is_said_and_remembered_of_a_field_that_is_none_is_short(registry: Registry, harm: str) -> None:
    """Ten thousand refusals are remembered: with what anybody has sent they would be gigabytes."""
    for asked in ({harm: 1}, {"name": harm}, {"name": "blue", "ranges": [{harm: 1}]}):
        problem = registry.refused("network.add", "", asked)
        assert len(repr(problem)) < 3000 and repr(problem).isascii() and "\x1b" not in str(problem)


def test_a_long_refusal_is_remembered_in_short(registry: Registry) -> None:
    blue = registry.network("blue", "192.0.2.0/24")
    for _ in range(100):
        registry.nic(network=blue)
    call = registry.call("network.delete", blue)
    first = registry.local.answer(call, OPERATOR)
    copy = registry.local.answer(call, OPERATOR)
    assert first.status == copy.status == 409 and len(first.body["nics"]) == 100 and "nics" not in copy.body
    assert {name: first.body[name] for name in ("type", "title", "status", "detail")} == copy.body


def test_ids(registry: Registry) -> None:
    assert made(new_id(1_800_000_000.5, 12345)) == 1_800_000_000_500
    call = registry.call("network.add", "", {"name": "blue"})
    assert registry.local.answer(call, OPERATOR).status == 201
    stolen = registry.local.answer(call._replace(action="network.delete"), OPERATOR)
    assert stolen.status in (404, 409)
    assert registry.refused("network.add", "", {"name": "x"}, id="13264fb6-0667-415f-9a43-786dc01cbf24")["field"] == "id"
    assert registry.refused("network.add", "", {"name": "x"}, id="x")["field"] == "id"
    assert registry.refused("network.add", "", {"name": "x"}, id=new_id(registry.time + 400, 1))["kind"] == "outdated"
    registry.do("network.add", "", {"name": "y"}, id=new_id(registry.time + 200, 1))


def test_an_id_is_one_request_however_it_is_written(registry: Registry) -> None:
    call = registry.call("nic.add")
    first = registry.local.answer(call, OPERATOR)
    before = registry.everything()
    assert registry.local.answer(call._replace(id=call.id.upper()), OPERATOR) == first and registry.everything() == before


@pytest.mark.parametrize("fresh", [False, True])
def test_another_request_of_the_same_id_is_not_said_to_be_done(registry: Registry, fresh: bool) -> None:
    """Whoever uses an id again by mistake would believe that what is there still is gone."""
    blue, one, other = registry.network(), registry.nic(), registry.nic()
    deleted, changed = registry.call("nic.delete", one.uuid), registry.call("nic.set", other.uuid, {"name": "x"})
    assert registry.local.answer(deleted, OPERATOR).status == registry.local.answer(changed, OPERATOR).status == 200
    local = Local(registry.store, lambda: registry.time) if fresh else registry.local
    before = registry.everything()
    for call in (deleted._replace(target=other.uuid), changed._replace(body={"name": "y"}), changed._replace(target=blue)):
        response = local.answer(call, OPERATOR)
        assert response.status == 409 and response.body["type"].endswith("/exists") and "another request" in response.body["detail"]
    assert registry.everything() == before
    refused = registry.call("nic.set", "13264fb6-0667-415f-9a43-786dc01cbf24", {"name": "z"})
    assert local.answer(refused, OPERATOR).status == 404 and local.answer(refused._replace(target=other.uuid), OPERATOR).status == 200


def test_a_history_that_was_cut_under_a_fast_clock_keeps_nobody_off(registry: Registry) -> None:
    """Remember nothing of what was done up to then, whenever it was: requests are made behind that until the clock has come there."""
    year = 365 * 86400
    blue = registry.network()
    registry.do("settings.set", "", {"history_entries": 1000})
    copy = registry.call("nic.add", "", {"network": blue, "allocate": ["ipv4"]})
    registry.do("nic.delete", registry.local.answer(copy, OPERATOR).body["uuid"])
    registry.time += year
    for _ in range(2):
        for number in range(1200):
            registry.do("network.set", blue, {"mtu": 1400 + number % 2})
        registry.passes(4000)
    registry.time -= year + 8000
    before = registry.everything()
    problem = registry.refused("network.set", blue, {"mtu": 1300})
    assert problem["kind"] == "outdated" and problem["floor"] > (registry.time + year) * 1000
    assert registry.local.answer(copy, OPERATOR).body["type"].endswith("/outdated") and registry.everything() == before
    behind = problem["floor"] // 1000 + 1
    registry.do("network.set", blue, {"mtu": 1300}, id=new_id(behind, 5))
    early = registry.refused("network.set", blue, {"mtu": 1300}, id=new_id(behind + 400, 5))
    said = re.search(r"made at (.{25}), which is not yet", early["detail"])
    assert early["kind"] == "outdated" and said and datetime.fromisoformat(said[1]).timestamp() == int(behind + 400)
    early = registry.refused("network.set", blue, {"mtu": 1300}, id="ffffffff-ffff-7fff-bfff-ffffffffffff")
    assert early["kind"] == "outdated" and "281474976711 s after 1970" in early["detail"], "a year that no calendar has"
    nic = registry.nic(
        options=[{"name": "isolated", "value": "yes", "until": registry.time + 10}], id=new_id(problem["floor"] // 1000 + 1, 6)
    )
    registry.passes(20)
    assert registry.wanted(nic.uuid).options == (), "so does the leader"


def test_a_copy_that_is_older_than_the_history_is_refused(registry: Registry) -> None:
    registry.do("settings.set", "", {"history_seconds": 86400.0})
    call = registry.call("nic.add", "", {})
    uuid = registry.local.answer(call, OPERATOR).body["uuid"]
    registry.do("nic.delete", uuid)
    registry.passes(90000)
    assert f"history/{call.id}" not in registry.everything()
    before = registry.everything()
    assert registry.local.answer(call, OPERATOR).body["type"].endswith("/outdated") and registry.everything() == before
    number = registry.local.view.ledger.number
    registry.nic()
    assert registry.local.view.ledger.number == number + 1, "numbers go on"


def test_history_is_cut_by_number_too_but_never_what_may_be_asked_again(registry: Registry) -> None:
    registry.do("settings.set", "", {"history_entries": 1000})
    for _ in range(1050):
        registry.nic()
    registry.passes(61)
    assert len(registry.store.list("history/").items) == 1051
    registry.passes(3700)
    assert len(registry.store.list("history/").items) == 1000


@pytest.mark.parametrize("match", ["", "first", "first:", "first:-1", "first:x", "first:99999999999999999999"])
def test_a_change_says_what_it_has_read(registry: Registry, match: str) -> None:
    nic = registry.nic()
    problem = registry.refused("nic.set", nic.uuid, {"name": "a"}, match=match)
    assert problem["status"] == (400 if match else 428)


def test_revisions_and_epochs(registry: Registry) -> None:
    response = registry.ask("nic.add", "", {})
    uuid = response.body["uuid"]
    second = registry.ask("nic.set", uuid, {"name": "a"}, match=response.revision)
    problem = registry.refused("nic.set", uuid, {"name": "b"}, match=response.revision)
    assert (problem["status"], problem["revision"]) == (412, second.revision)
    assert registry.refused("nic.delete", uuid, match=response.revision)["status"] == 412
    problem = registry.refused("nic.set", uuid, {"name": "b"}, match=second.revision.replace("first", "other"))
    assert problem["kind"] == "epoch" and problem["epoch"] == "first"
    same = registry.ask("nic.set", uuid, {"name": "a"}, match=second.revision)
    assert same.revision == second.revision, "what changes nothing leaves its revision"
    assert registry.ask("nic.delete", uuid, match=same.revision).status == 200


def test_a_batch_is_done_whole_or_not(registry: Registry) -> None:
    nic = registry.nic(mac="aa:00:00:00:00:01")
    parts: list[dict[str, Any]] = [{"action": "nic.delete", "target": nic.uuid, "match": "*"}]
    parts += [{"action": "nic.add", "body": {"mac": "aa:00:00:00:00:02"}}, {"action": "nic.add", "body": {"mac": "aa:00:00:00:00:02"}}]
    problem = registry.refused("batch", "", {"parts": parts})
    assert problem["kind"] == "taken" and problem["part"] == 2
    assert registry.refused("batch", "", {"parts": [*parts[:2], {"action": "nic.add", "body": {"mac": 1}}]})["field"] == "parts[2].mac"
    assert registry.refused("batch", "", {"parts": [{"action": "batch", "body": {"parts": []}}]})["field"] == "parts[0].action"
    before = registry.local.view.revision
    registry.do("batch", "", {"parts": parts[:2]})
    assert registry.local.view.revision == before + 1
    blue = registry.network()
    parts = [{"action": "nic.add", "body": {"network": blue, "allocate": ["ipv4"]}} for _ in range(50)]
    assert registry.refused("batch", "", {"parts": parts})["kind"] == "too-large"
    assert registry.refused("batch", "", {"parts": parts * 2})["status"] == 400


def answered(registry: Registry, results: dict[str, list[Any]], call: Call) -> tuple[Any, list[Any]]:
    """Drive a request by hand: what a commit gives is said, all else is done."""
    steps, effects = registry.local.core.answer(call, OPERATOR), []
    try:
        effect = next(steps)
        while True:
            effects.append(effect)
            given = results["commit"].pop(0) if isinstance(effect, Commit) and results["commit"] else None
            effect = steps.send(given if given is not None else registry.local.do(effect))
    except StopIteration as end:
        return end.value, effects


def test_no_answer_is_asked_again_by_the_same_commit(registry: Registry) -> None:
    call = registry.call("nic.add", "", {})
    response, effects = answered(registry, {"commit": [Unanswered(), Unanswered()]}, call)
    commits = [effect for effect in effects if isinstance(effect, Commit)]
    assert response.status == 201 and len(commits) == 3 and len(set(commits)) == 1


def test_no_answer_at_all_is_said_and_the_same_request_tells_later(registry: Registry) -> None:
    call = registry.call("nic.add", "", {})
    response, effects = answered(registry, {"commit": [Unanswered()] * 100}, call)
    assert response.status == 503 and response.body["type"].endswith("/unsure")
    commit = next(effect for effect in effects if isinstance(effect, Commit))
    registry.store.commit(commit.tests, commit.changes)
    before = registry.everything()
    assert registry.local.answer(call, OPERATOR).status == 201 and registry.everything() == before


@pytest.mark.parametrize("done", [False, True])
def test_a_store_that_goes_away_after_it_gave_no_answer_may_have_done_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """A refusal that says that nothing was changed would be believed, and the same be asked for under another id."""
    commit, tried = registry.store.commit, []

    def first(tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        tried.append(1)
        if len(tried) > 1:
            raise Unavailable("no majority")
        if done:
            commit(tests, changes)
        raise Unknown("no answer")

    call = registry.call("nic.add", "", {})
    monkeypatch.setattr(registry.store, "commit", first)
    response = registry.local.answer(call, OPERATOR)
    assert response.status == 503 and response.body["type"].endswith("/unsure") and len(tried) == 2
    monkeypatch.setattr(registry.store, "commit", commit)
    assert registry.local.answer(call, OPERATOR).status == 201


def test_a_store_that_goes_away_before_anything_was_sent_has_done_nothing(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(tests: Sequence[Expect], changes: Sequence[Put | Delete]) -> int:
        raise Unavailable("no majority")

    monkeypatch.setattr(registry.store, "commit", away)
    with pytest.raises(Unavailable):
        registry.ask("nic.add", "", {})


def test_what_is_done_is_answered_also_where_the_store_says_no_more(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The majority goes between the commit and the watch: it was done, and to say otherwise would be a lie."""

    def away(revision: int = 0) -> None:
        raise Unavailable("no majority")

    call = registry.call("nic.add", "", {})
    monkeypatch.setattr(registry.local, "_caught_up", away)
    assert registry.local.answer(call, OPERATOR).status == 201
    monkeypatch.undo()
    assert registry.local.answer(call, OPERATOR).status == 201
    assert len(registry.local.view.all("nics")) == 1


def test_who_is_overtaken_looks_again_and_does_not_for_ever(registry: Registry) -> None:
    call = registry.call("nic.add", "", {})
    response, effects = answered(registry, {"commit": [Conflicted("ledger")] * 3}, call)
    assert response.status == 201 and CatchUp() in effects and Read(f"history/{call.id}") in effects
    response, effects = answered(registry, {"commit": [Conflicted("ledger")] * 1000}, registry.call("nic.add", "", {}))
    assert response.body["type"].endswith("/busy") and sum(isinstance(effect, Commit) for effect in effects) == ATTEMPTS


def test_what_was_done_without_an_answer_is_in_the_view_when_it_is_told(registry: Registry) -> None:
    """A leader asked for the same thing again and again, whose view did not have what it had done."""
    call = registry.call("nic.add", "", {})
    steps = registry.local.core.answer(call, OPERATOR)
    commit = next(steps)
    assert isinstance(commit, Commit)
    registry.local.do(commit)
    with pytest.raises(StopIteration) as end:
        effect = steps.send(Unanswered())
        while True:
            effect = steps.send(registry.local.do(effect))
    assert end.value.value.status == 201 and registry.local.view.nic(end.value.value.body["uuid"])


def test_a_refusal_is_judged_by_the_newest(registry: Registry) -> None:
    """Another service has made the network that this one does not know of yet."""
    other = Local(registry.store, lambda: registry.time)
    uuid = registry.network()
    assert other.view.network(uuid) is None
    assert other.answer(registry.call("nic.add", "", {"network": uuid}), OPERATOR).status == 201


def test_effects_have_their_results(registry: Registry) -> None:
    assert registry.local.do(Read("x")) == Found(None) and registry.local.do(CatchUp()) == Nothing()
    assert isinstance(registry.local.do(Commit((), ())), Committed)


def test_reports_are_in_order_and_once(registry: Registry) -> None:
    who = registry.join(0)
    nic = registry.nic()
    first = registry.call("report", "", {"after": "first:0", "nics": [{"nic": nic.uuid, "state": "running"}]})
    done = registry.local.answer(first, who)
    assert done.status == 200 and done.revision == registry.local.view.shown_revision(f"reports/{who.name}")
    assert registry.local.answer(first, who) == done
    second = registry.call("report", "", {"after": done.revision, "removed": [nic.uuid]})
    later = registry.local.answer(second, who)
    assert later.status == 200 and list(registry.local.view.seen(nic.uuid)) == []
    late = registry.local.answer(first, who)
    assert late.status == 412 and late.body["revision"] == later.revision and list(registry.local.view.seen(nic.uuid)) == []
    assert registry.local.answer(registry.call("report", "", {"after": "old:0"}), who).body["type"].endswith("/epoch")
    assert registry.report(node(1)).status == 403 and registry.report(OPERATOR).status == 403
    bad = {"after": later.revision, "nics": [{"nic": nic.uuid, "state": "running"}], "removed": [nic.uuid]}
    assert registry.local.answer(registry.call("report", "", bad), who).body["field"] == "nics"
    number = registry.local.view.ledger.number
    registry.report(who, {"nic": nic.uuid, "state": "running"})
    assert registry.local.view.ledger.number == number, "reports are no wishes: they have no history"


def test_every_action_has_a_schema_of_its_body() -> None:
    from jsonschema import Draft202012Validator

    for action in ACTIONS.values():
        Draft202012Validator.check_schema(action.body())
    validator = Draft202012Validator(ACTIONS["nic.add"].body())
    assert validator.is_valid({"mac": "aa:00:00:00:00:01", "allocate": ["ipv4"]}) and not validator.is_valid({"colour": 1})
    assert not Draft202012Validator(ACTIONS["network.add"].body()).is_valid({}) and Draft202012Validator(
        ACTIONS["network.set"].body()
    ).is_valid({})


RUN = """
import hashlib, random, sys
from tests.unit.netregistry.test_histories import history
world = history(random.Random(7), 600, 2)
print(hashlib.sha256(repr((world.checker.revision, sorted(world.checker.state.items()), list(world.checker.entries))).encode()).hexdigest())
"""


def test_one_seed_is_one_registry_byte_for_byte() -> None:
    said = set()
    for seed in ("0", "1", "random"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", RUN], env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        said.add(done.stdout.strip())
    assert len(said) == 1 and len(said.pop()) == 2 * hashlib.sha256().digest_size
