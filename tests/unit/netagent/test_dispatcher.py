"""What the agent's main thread makes of what its workers found: on a simulated node, with a worker that works at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netagent import dispatcher as module
from netagent.dispatcher import AGAIN, LATEST, UNTOLD, Dispatcher
from netagent.index import Nics, entry_of
from netagent.loop import Loop
from netagent.observe.metrics import Metrics
from netagent.reconcile.dirty_set import DirtySet
from netagent.reconcile.keyed_pool import Key
from netagent.reconcile.reconciler import Reconciler
from netagent.reconcile.repair_policy import Repairs
from netagent.surroundings import Surroundings
from netcommon.host.api.facts import AF_INET, Rule
from netcommon.lifecycle import run_effects
from netcommon.lifecycle.context import Clock
from netcommon.log import recording
from runtime.errors import HostRefused, TryAgain
from runtime.record import Record
from tests.support.sim import UUIDS, Sim, nic


class Place:
    """A routed NIC that came up ``ago`` seconds ago, and the jobs of an agent that has just been started; ``now``: the clock."""

    failed: Callable[[Key, Exception], None]

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch, ago: float = 1) -> None:
        self.sim = Sim(root)
        self.sim.up(nic("routed, table"))
        self.now = self.sim.record().monotonic + ago
        self.cpu = 0.0
        self.announced: list[str] = []
        self.errors: list[Exception] = []
        self.log, self.lines = recording()
        self.loop = Loop(lambda: self.now, self.errors.append)
        metrics, settings, node = Metrics(), self.sim.settings, self.sim.node
        self.repairs = Repairs(lambda: self.now, settings)
        nics = Nics()
        nics.put(entry_of(self.sim.record()))
        self.drift = DirtySet(nics, self.repairs.not_before)
        reconciler = Reconciler(node, self.repairs, metrics, self.log)
        self.worker = SimpleNamespace(
            node=node, reconciler=reconciler, log=self.log, use=lambda settings: None, report=lambda: None, rest=lambda: None
        )
        state: Any = SimpleNamespace(
            clock=Clock(lambda: self.now, cpu=lambda: self.cpu),
            environ={},
            paths=self.sim.paths,
            identity=node.identity,
            settings=settings,
            metrics=metrics,
            alarms=None,
            make_log=lambda: self.log,
        )
        monkeypatch.setattr(run_effects, "arrived", lambda node, record, log, *_view, **_more: self.announced.append(record.device))
        around = Surroundings(make_pool=self._pool)
        self.jobs = Dispatcher(state, self.loop, nics, self.drift, self.repairs, random.Random(1), around)

    def _pool(self, _size: int, _make: object, _end: object, failed: Callable[[Key, Exception], None], *_rest: object) -> Any:
        self.failed = failed
        return SimpleNamespace(put=self._work)

    def _work(self, key: Key, job: Any) -> None:
        try:
            job(self.worker)
        except Exception as error:  # as a pool's thread does
            self.errors.append(error)
            self.failed(key, error)

    def compare(self) -> None:
        """All records, now."""
        self.drift.everything(self.now)
        self.jobs.schedule()
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.loop.turn(0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(str(tmp_path), monkeypatch)
    yield made
    made.loop.close()


def test_the_first_comparison_tells_what_came_up_a_moment_ago(place: Place) -> None:
    place.compare()
    place.now += 60
    place.compare()
    assert place.announced == ["tap0"], "once"
    assert place.errors == [] and place.jobs.surveys == 2


def test_what_came_up_before_that_has_been_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(tmp_path), monkeypatch, UNTOLD + 1)
    place.compare()
    assert place.announced == [] and place.jobs.synced == place.now
    place.loop.close()


def test_a_first_comparison_that_fails_forgets_nothing_of_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again by and by, though what was to be told is old by then."""

    def busy() -> object:
        raise TryAgain("the kernel is busy")

    with monkeypatch.context() as patch:
        patch.setattr(place.sim.host, "snapshot", busy)
        place.compare()
    assert place.announced == [] and [str(error) for error in place.errors] == ["the kernel is busy"]
    assert place.jobs.synced == 0.0, "nothing was compared"
    place.now += max(AGAIN, UNTOLD) + 1
    place.turn()
    assert place.announced == ["tap0"] and place.jobs.synced == place.now


@pytest.mark.parametrize("where", ["the worker", "the comparison", "one NIC", "many NICs"])
def test_an_error_that_nobody_foresaw_ends_no_comparison_for_good(place: Place, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A worker that no descriptor is left for; an extension of the site's that raises what it likes."""

    def broken(*_given: object) -> object:
        raise KeyError("a site's own")

    with monkeypatch.context() as patch:
        if where == "the worker":
            patch.setattr(place.worker, "use", broken)
        elif where == "the comparison":
            patch.setattr(place.sim.host, "snapshot", broken)
        elif where == "one NIC":
            patch.setattr(place.worker.reconciler, "examine", broken)
        else:
            patch.setattr(place.worker.reconciler, "examine", lambda *_given: (True, []))
            patch.setattr(place.worker.reconciler, "look_together", broken)
            patch.setattr(module, "FEW", 0)
        place.compare()
    surveys = place.jobs.surveys
    place.now += LATEST + 1
    place.drift.everything(place.now)
    place.jobs.schedule()
    place.turn()
    assert place.jobs.surveys == surveys + 1 and place.jobs.synced == place.now


def test_the_first_comparison_does_not_say_what_the_next_one_costs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads each record for the first time, at three times the cost: the time to the next one would be three times too long."""
    snapshot = place.sim.host.snapshot

    def seen() -> object:
        place.cpu += 0.5
        return snapshot()

    monkeypatch.setattr(place.sim.host, "snapshot", seen)
    place.compare()
    assert place.jobs.synced and place.jobs.burden == 0.0
    place.now += 60
    place.compare()
    assert place.jobs.burden == 0.5


def test_what_does_not_hold_is_looked_at_by_itself(place: Place) -> None:
    up = place.sim.picture()
    place.sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap0", 100))
    assert place.sim.picture() != up
    place.compare()
    assert place.jobs.looks == 1 and place.sim.picture() == up


def _beside(place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception, seconds: float = 0) -> object:
    """Bring a second NIC of the same mode up and take its rule away; a look at the first one takes ``seconds`` and raises ``error``.

    Return the node's rules as they were before.
    """
    place.sim.tap("tap1")
    place.sim.up(nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], IP="10.0.0.6", MAC="aa:00:00:00:00:06", INSTANCE="web2"))
    up = place.sim.picture()["rules"]
    place.sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap1", 100))
    assert place.sim.picture()["rules"] != up
    examine = place.worker.reconciler.examine

    def examined(record: Record, *given: Any) -> object:
        if record.uuid != UUIDS[0]:
            return examine(record, *given)
        place.now += seconds
        raise error

    monkeypatch.setattr(place.worker.reconciler, "keys", lambda: sorted(UUIDS[:2]))  # the one that fails comes first
    monkeypatch.setattr(place.worker.reconciler, "examine", examined)
    return up


@pytest.mark.parametrize("error", [HostRefused("'/srv/dhcp' has mode 0775"), TryAgain("a service of the site's is busy")], ids=repr)
def test_what_keeps_one_nic_from_being_looked_at_keeps_no_other(place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    up = _beside(place, monkeypatch, error)
    place.compare()
    assert place.sim.picture()["rules"] == up
    assert sum(str(error) in line and "web1/0" in line for line in place.lines) == 1, place.lines


def test_nobody_waits_for_what_does_not_answer_another_nic_of_its_mode(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    up = _beside(place, monkeypatch, TryAgain("OVSDB: no answer in time"), seconds=10)
    place.compare()
    assert place.sim.picture()["rules"] != up
    assert any("NICs of mode routed are looked at later: OVSDB" in line for line in place.lines), place.lines
