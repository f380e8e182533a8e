"""When the agent ends options that were changed for a while: on a simulated node with two NICs, of which the host refuses one its end."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netagent import dispatcher as module
from netagent.dispatcher import Dispatcher
from netagent.index import Nics
from netagent.loop import Loop, Timer
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.option_ends import REFUSED
from netagent.reconcile.dirty_set import DirtySet
from netagent.reconcile.keyed_pool import Key
from netagent.reconcile.repair_policy import Repairs
from netagent.surroundings import Surroundings
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, SetPort
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle import ends
from netcommon.lifecycle.change import change, setting
from netcommon.log import recording
from runtime import wanted
from runtime.errors import HostRefused, TryAgain
from runtime.folder import Folder
from runtime.nic import Nic
from tests.support.sim import Sim, nic

A, B = ("5d2c0d6e-0000-4000-8000-00000000000a", "5d2c0d6e-0000-4000-8000-00000000000b")
TAPS = {A: "tap0", B: "tap1"}


def guest(uuid: str) -> Nic:
    device = TAPS[uuid]
    return nic("bridged", INTERFACE=device, INTERFACE_UUID=uuid, MAC=f"aa:00:00:00:00:{uuid[-2:]}", INSTANCE=f"web-{device}")


class Place:
    """Two NICs, the agent's main thread, and a worker that works at once; ``now`` is the clock of all. ``refused``: NICs of the host."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sim = Sim(root)
        for uuid, device in TAPS.items():
            self.sim.tap(device)
            self.sim.up(guest(uuid))
        self.begun = self.now = self.sim.node.clock.now()
        self.refused: set[str] = set()
        self.sim.host.fail = self._refuse
        clock, wall = self.sim.node.clock, self.sim.node.clock.wall() - self.now
        self.node = self.sim.node._replace(clock=clock._replace(now=lambda: self.now, wall=lambda: wall + self.now, sleep=self._sleep))
        self.errors: list[Exception] = []
        self.log, self.lines = recording()
        self.attempts: list[float] = []  #: when the agent looked for what has ended

        def end_due(*given: Any) -> list[Any]:
            self.attempts.append(self.now - self.begun)
            return ends.end_due(*given)

        monkeypatch.setattr(module, "end_due", end_due)
        self.start()

    def start(self) -> None:
        """An agent begins, as after a restart."""
        metrics = Metrics()
        self.loop = Loop(lambda: self.now, self.errors.append)
        self.alarms = Alarms(self.log, metrics)
        state: Any = SimpleNamespace(
            clock=self.node.clock,
            environ={},
            paths=self.sim.paths,
            settings=self.sim.settings,
            identity=self.node.identity,
            metrics=metrics,
            alarms=self.alarms,
            make_log=lambda: self.log,
        )
        repairs, nics = Repairs(lambda: self.now, self.sim.settings), Nics()
        around = Surroundings(make_pool=self._pool)
        self.jobs = Dispatcher(state, self.loop, nics, DirtySet(nics, repairs.not_before), repairs, random.Random(1), around)
        self.jobs.end_due()
        self.turn()

    def _refuse(self, request: Request) -> Answer | None:
        taps = {self.sim.record(uuid).ifindex for uuid in self.refused}
        return Answer(errno.EPERM, "not permitted") if isinstance(request, SetPort) and request.index in taps else None

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _pool(self, *_given: object) -> Any:
        return SimpleNamespace(put=self._work)

    def _work(self, _key: Key, job: Any) -> None:
        try:
            job(SimpleNamespace(node=self.node, log=self.log, use=lambda settings: None, report=lambda: None, rest=lambda: None))
        except Exception as error:
            self.errors.append(error)

    def change(self, uuid: str, seconds: float, options: Mapping[str, str] | None = None) -> None:
        """What `netcommon change --for` does; the agent sees that the record is another one."""
        call = self.sim.call()._replace(deadline=self.now + 30)
        change(self.node, uuid, call, setting(self.node, options or {"isolated": "yes"}, (), seconds))
        self.jobs.options_altered(uuid)
        self.turn()

    def turn(self) -> None:
        for _ in range(3):
            self.loop.turn(0)

    def run(self, until: float, each: float = 0.05) -> None:
        """Lets the clock go on, ``each`` seconds at a time; each record that has become another one is seen."""
        before = self._records()
        while self.now < self.begun + until:
            self.now += each
            self.turn()
            for uuid in (after := self._records()):
                if after[uuid] != before[uuid]:
                    self.jobs.options_altered(uuid)
            before = after
            self.turn()

    def _records(self) -> dict[str, object]:
        return {uuid: self.sim.record(uuid) for uuid in TAPS}

    @property
    def holding(self) -> set[str]:
        return {uuid for uuid in TAPS if self.sim.record(uuid).nic.wanted}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(str(tmp_path), monkeypatch)
    yield made
    assert made.errors == []
    made.loop.close()


def test_the_timer_of_the_first_end_is_set_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often something is heard of the NIC until then."""
    place.change(A, 5.0)
    asked: list[float] = []
    at = place.loop.at

    def noted(when: float, action: Callable[[], None]) -> Timer:
        asked.append(when)
        return at(when, action)

    monkeypatch.setattr(place.loop, "at", noted)
    for _ in range(20):
        place.jobs.options_altered(A)
        place.turn()
    assert asked == []
    place.change(B, 2.0)
    assert len(asked) == 1 and asked[0] < place.begun + 5
    place.run(6.0)
    assert place.holding == set()


def test_one_that_is_refused_holds_up_no_other(place: Place) -> None:
    """The other NIC's option ends in time, also one that was changed while the first one waits; the first is tried every half minute."""
    place.change(A, 2.0)
    place.change(B, 5.0)
    place.refused = {A}
    place.run(2.2)
    assert place.holding == {A, B} and A in place.alarms.active()["ends"]
    place.run(5.2)
    assert place.holding == {A}, "B's time is over"
    place.change(B, 3.0)
    place.run(8.5)
    assert place.holding == {A} and A in place.alarms.active()["ends"], "the alarm is for A all the time"
    place.run(70.0)
    failed = [line for line in place.lines if "holds still" in line and "alarm" not in line]
    assert len(failed) == 3 and len(place.attempts) < 10, (failed, place.attempts)
    place.refused = set()
    place.run(70.0 + REFUSED)
    assert place.holding == set() and place.alarms.active() == {}


def test_ends_that_lie_close_together(place: Place) -> None:
    place.change(A, 2.0)
    place.change(B, 2.3)
    place.run(2.2)
    assert place.holding == {B}
    place.run(2.45)
    assert place.holding == set()


def test_a_new_end_of_one_that_waits_is_tried_at_its_time(place: Place) -> None:
    place.change(A, 2.0)
    place.refused = {A}
    place.run(2.5)
    assert place.holding == {A}
    place.refused = set()
    place.change(A, 3.0)
    place.run(5.8)
    assert place.holding == set() and place.alarms.active() == {}


def test_a_restart_tries_anew(place: Place) -> None:
    place.change(A, 2.0)
    place.refused = {A}
    place.run(2.5)
    place.refused = set()
    place.loop.close()
    place.start()
    assert place.holding == set() and place.alarms.active() == {}


def test_an_extension_that_raises_what_it_likes_holds_up_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.change(A, 2.0)
    place.change(B, 2.0)
    ended = ends._ended

    def broken(node: Any, uuid: str, *more: Any) -> Any:
        if uuid == A:
            raise KeyError("a site's own")
        return ended(node, uuid, *more)

    monkeypatch.setattr(ends, "_ended", broken)
    place.run(2.2)
    assert place.holding == {A} and "KeyError" in place.alarms.active()["ends"]


def test_a_link_that_cannot_be_made_anew_keeps_nobody_busy(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.change(A, 2.0)

    def full(*_given: object) -> None:
        raise HostRefused("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "link", full)
        patch.setattr(wanted, "_note_ends", full)
        begun = len(place.attempts)
        place.run(10.0)
        assert len(place.attempts) - begun < 3
    place.change(B, 1.0)
    place.run(11.3)
    assert B not in place.holding


def test_what_another_namespace_has_up_keeps_nobody_busy(place: Place) -> None:
    """Its end is left to the agent there, and asked about once in a while."""
    place.change(A, 2.0)
    there = Sim.__new__(Sim)
    there.__dict__.update(place.sim.__dict__, _store=None, host=MemoryHost({}, "boot-1", 2))
    place.node = there.node._replace(clock=place.node.clock)
    place.start()
    begun = len(place.attempts)
    place.run(60.0)
    assert place.holding == {A} and 1 <= len(place.attempts) - begun < 4 and place.alarms.active() == {}


def test_one_that_is_worked_on_holds_up_no_other(place: Place) -> None:
    """It is tried again soon, without an alarm; one that stays locked raises it when it was tried for as long as one that is refused."""
    place.change(A, 2.0)
    place.change(B, 2.0)
    with place.sim.node.store.locks(time.monotonic() + 5, time.monotonic, time.sleep) as held:
        held.uuids({A})
        place.run(2.1)
        assert place.holding == {A} and place.now - place.begun < 2.1 + 2 * ends.LONG_PATIENCE
        assert place.alarms.active() == {} and not [line for line in place.lines if "holds still" in line]
    place.run(5.0)
    assert place.holding == set() and place.alarms.active() == {}


def test_one_that_stays_locked_is_told_of(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_given: object) -> None:
        raise TryAgain("NIC a is being worked on by another process")

    place.change(A, 2.0)
    monkeypatch.setattr(ends, "_ended", locked)
    place.run(20.0)
    assert place.alarms.active() == {}
    begun = len(place.attempts)
    place.run(100.0)
    assert "worked on" in place.alarms.active()["ends"] and len(place.attempts) - begun <= 5
