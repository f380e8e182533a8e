"""The reaper, by example: what it says, what it counts, and what keeps it from its work. The rules themselves: test_rules.py."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.reap.reaper import JITTER, unfinished
from netagent.resync_interval import SHARE
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteRule
from netcommon.lifecycle import gc, inventory
from netcommon.operations.link import MARK
from runtime.errors import HostRefused
from runtime.record import SCHEMA
from tests.support.reaping import GRACE, UUIDS, World, world
from tests.support.sim import Killed, Mortal


@pytest.fixture
def made() -> Iterator[World]:
    with world() as one:
        yield one


def twice(made: World) -> list[str]:
    """What is removed by two inventories and the grace period between them."""
    first = made.reap()
    made.now += GRACE
    return [found.text for found in (*first, *made.reap()) if found.action == "removed"]


def test_a_clean_node_has_nothing_to_reap(made: World) -> None:
    for which in range(4):
        made.on_up(which)
    whole = made.sim.picture()
    for _ in range(3):
        assert made.reap() == []
        made.now += GRACE
    assert made.sim.picture() == whole and not made.alarms.active() and made.lines == []


def test_reasons_are_counted(made: World) -> None:
    made.on_up(0)
    made.on_up(1)
    made.sim.node.store.write(made.sim.node.store.read(UUIDS[1])._replace(state="applying"))  # type: ignore[union-attr]
    made.on_kill(0)
    made.on_stray(2)
    assert len(twice(made)) == 5
    counted = {reason: made.metrics.value("netcommon_reaped_total", reason=reason) for reason in ("device-gone", "hook-died", "no-record")}
    assert counted == {"device-gone": 1, "hook-died": 1, "no-record": 3}


def test_a_new_agent_has_seen_nothing(made: World) -> None:
    """A restart, or a kill, between the two inventories: the grace period begins anew."""
    made.on_stray(0)
    made.reap()
    made.now += GRACE
    made.restarted()
    assert {found.action for found in made.reap()} == {"kept"}
    made.now += GRACE
    assert {found.action for found in made.reap()} == {"removed"}


def test_the_next_run_comes_after_the_grace_period_while_something_waits(made: World) -> None:
    assert made.reaper.due(made.now) == 0
    made.on_stray(0)
    made.reap()
    assert made.reaper.due(made.now) == GRACE
    made.now += GRACE
    made.reap()
    assert made.reaper.due(made.now) > 4 * GRACE


def test_inventories_that_cost_much_are_further_apart(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they find something to do they are not: that is what they are for."""
    spent = iter((0.0, 0.1, 0.1, 10.1, 10.1, 20.1, 20.1, 30.1))
    monkeypatch.setattr(made, "cpu", lambda: next(spent))
    made.reap()
    assert made.reaper.due(made.now) == pytest.approx(600, rel=JITTER)
    made.reap()
    assert made.reaper.due(made.now) == pytest.approx(10 / SHARE, rel=JITTER)
    made.on_stray(0)
    made.reap()
    assert made.reaper.due(made.now) == GRACE
    made.now += GRACE
    assert {found.action for found in made.reap()} == {"removed"}
    assert made.reaper.due(made.now) == pytest.approx(600, rel=JITTER)


def test_an_inventory_of_thousands_keeps_little_of_each_record(made: World) -> None:
    made.on_up(0)
    (record,) = inventory.records(made.sim.node).all
    whole = made.record(0)
    assert whole is not None and whole.operations and whole.nic.environment
    assert record == whole._replace(operations=(MARK,), nic=whole.nic._replace(environment={}))
    assert inventory.records(made.sim.node).held


def test_an_alarm_is_said_once_and_over_once(made: World) -> None:
    made.on_fail(0)
    made.reap()
    made.reap()
    assert [line.partition(":")[0] for line in made.lines] == ["error"] and "inventory is not complete" in made.lines[0]
    made.on_heal(0)
    made.reap()
    assert made.lines[1:] == ["info: alarm inventory is over"]


def test_a_bug_in_the_inventory_is_a_failed_inventory(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made.on_up(0)
    made.on_kill(0)

    def broken(_node: object) -> object:
        raise ValueError("not as expected")

    monkeypatch.setattr(inventory, "look", broken)
    assert made.reap() == [] and "ValueError: not as expected" in made.alarms.active()["inventory"]
    assert len(made.sim.records()) == 1


@pytest.mark.parametrize("damage", ["newer", "stranger"])
def test_a_record_that_cannot_be_read(made: World, damage: str) -> None:
    """Its things look like nobody's: nothing without a record goes until it is gone or readable; others' records are reaped."""
    made.on_up(0)
    made.on_up(3)
    made.on_stray(1)
    path = Path(made.sim.paths.state, "nics", f"{UUIDS[0]}.json")
    good = path.read_bytes()
    if damage == "newer":
        path.write_bytes(good.replace(b'"schema":%d' % SCHEMA, b'"schema":99'))
    else:
        path.with_name("notes.txt").write_text("an administrator's")
    made.on_kill(3)
    owned = made.owned().keys()
    assert [text for text in twice(made) if "web3" not in text] == []
    assert owned - made.owned().keys() and "records" in made.alarms.active()
    if damage == "newer":
        path.write_bytes(good)
    else:
        path.with_name("notes.txt").unlink()
    assert len(twice(made)) == 3 and not made.alarms.active()
    assert made.needed()[UUIDS[0]][1] == []


def test_a_damaged_record_goes_to_quarantine(made: World) -> None:
    """Its guest is alive: its things stay; the alarm stays as long as the file is in quarantine."""
    made.on_up(0)
    whole = made.sim.picture()
    path = Path(made.sim.paths.state, "nics", f"{UUIDS[0]}.json")
    path.write_bytes(path.read_bytes()[:-9])
    assert twice(made) == [] and made.sim.picture() == whole
    assert "quarantine" in made.alarms.active()["records"]


def test_what_cannot_be_undone(made: World) -> None:
    """It is told and tried again, after the others, so that it does not use up the cap."""
    made.sim.settings = made.sim.settings._replace(agent_reap_cap=1)
    made.on_up(0)
    made.on_up(1)
    for which in (0, 1):
        made.on_kill(which)
    made.sim.host.fail = lambda request: Answer(errno.EPERM, "no") if isinstance(request, DeleteRule) else None
    assert [found.action for found in made.reap()] == ["failed"]
    assert "web0" in made.alarms.active()["reaping"]
    assert [(found.action, "web1" in found.text) for found in made.reap()] == [("removed", True)]
    made.sim.host.fail = lambda _request: None
    assert [found.action for found in made.reap()] == ["removed"]
    assert not made.alarms.active() and made.sim.picture() == made.before


def test_a_second_look_before_each_removal(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook is faster than the reaper, between inventory and removal: what it has made stays, also what is of no device."""
    made.on_up(3)
    made.on_lose(0)
    Path(made.sim.paths.state, "nics", f"{UUIDS[3]}.json").unlink()
    made.on_kill(3)
    made.reap()
    made.now += GRACE
    collect = gc.remove

    def late(*given: Any) -> str:
        made.on_up(3)
        return collect(made.sim.node, given[1], inventory.records(made.sim.node), given[3])

    monkeypatch.setattr("netagent.reap.reaper.remove", late)
    made.reap()
    (needed,) = made.needed().values()
    assert needed[1] == []


def test_a_failing_second_look_is_told(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made.on_stray(0)
    made.reap()
    made.now += GRACE
    records, calls = inventory.records, []

    def flaky(node: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise HostRefused("cannot read")
        return records(node)

    monkeypatch.setattr(inventory, "records", flaky)
    assert made.reap() == [] and made.alarms.active() == {"reaping": "cannot read"}
    assert len(made.owned()) == 3


def test_unfinished_records_need_no_inventory(made: World) -> None:
    """At the agent's start and when a lock is let go: all of them, or those that are asked for, whatever else cannot be read."""
    for which in (0, 1, 2):
        made.on_up(which)
        made.sim.node.store.write(made.sim.node.store.read(UUIDS[which])._replace(state="reverting"))  # type: ignore[union-attr]
    made.on_hold(2)
    one = made.record(0)
    assert one is not None
    assert [found.action for found in unfinished(made.sim.node, made.sim.call(), [one])] == ["removed"]
    assert [found.action for found in unfinished(made.sim.node, made.sim.call())] == ["removed"]
    assert [record.uuid for record in made.sim.records()] == [UUIDS[2]]
    assert unfinished(made.sim.node, made.sim.call()) == []


def test_another_nodes_records_are_nobodys_business(made: World) -> None:
    """Two network namespaces share /run; each reaper sees its own."""
    made.on_up(0)
    other = World(made.sim.paths.state.removesuffix("/run/netcommon"))
    try:
        other.sim.host = type(made.sim.host)({"guests": 100, "other": 200}, "boot-1", 2)
        other.sim.host.add_bridge("br0")
        assert other.reap() == [] and len(made.sim.records()) == 1
    finally:
        other.close()


class Unrecorded(Mortal):
    """A process that is killed as soon as NIC 1 is on no record."""

    def step(self, what: str) -> None:
        if not Path(self.sim.paths.state, "nics", f"{UUIDS[1]}.json").exists():
            raise Killed(what)


def test_what_a_killed_down_owes_is_given_back(made: World) -> None:
    """It had taken another NIC's address, and nothing of it is on record any more."""
    made.on_up(0)
    whole = made.sim.picture()["routes"]
    made.sim.tap("tap1")
    takes = made.nic(0)._replace(uuid=UUIDS[1], interface="tap1", instance="web1", mac="aa:00:00:00:00:01")
    made.sim.up(takes)
    with Unrecorded(made.sim):
        made.sim.down(takes)
    assert made.record(1) is None and made.sim.picture()["routes"] != whole
    made.reap()
    assert made.sim.picture()["routes"] == whole
