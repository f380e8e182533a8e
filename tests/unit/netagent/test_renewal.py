"""A node's certificate is renewed by its agent, by a real service over TLS."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from netagent.loop import Action, Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.renewal import ALARM, Pace, Renewal
from netcommon.lifecycle.context import Clock
from netcommon.log import Log, Recorder
from netregistry import credentials
from netregistry.credentials import Credentials
from netregistry.model.certificate import SET_BACK
from runtime.errors import HostRefused
from tests.support.registry import NODES
from tests.support.tls import Secured, free_port, secured

END = "\nnetcommon_registry_certificate_end_seconds "
PACE = Pace(0.0, 0.05, 0.05)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as found:
        yield found


class Virtual:
    """A loop whose time passes from one timer to the next. ``waits``: for how long each was set."""

    def __init__(self, now: float) -> None:
        self.now, self.told, self.waits, self._next = now, queue.Queue[Action](), list[float](), list[Action]()

    def after(self, seconds: float, action: Action) -> None:
        self.waits.append(seconds)
        self._next.append(action)

    def tell(self, action: Action) -> None:
        self.told.put(action)

    def look(self) -> None:
        """Let the time come for the next look, and do what comes of it."""
        self.now += self.waits[-1]
        self._next.pop()()
        self.told.get(timeout=20)()


class Lasting:
    """A renewal of a certificate that is good for some seconds, in virtual time. ``answers``: whether the registry does, at a time."""

    def __init__(
        self, seconds: float, seed: int, monkeypatch: pytest.MonkeyPatch, answers: Callable[[float], bool] = lambda _now: True
    ) -> None:
        self.loop = Virtual(1.8e9)
        self.begun, log, metrics = self.loop.now, Log(Recorder()), Metrics()
        self.alarms = Alarms(log, metrics)

        def given(one: Credentials, _asked: object, now: float) -> Credentials:
            """As the registry (netregistry.rules.holders.granted), and what takes its answer."""
            if not answers(now) or now >= one.until:
                raise HostRefused("no answer")
            return one._replace(since=now - SET_BACK, until=now + seconds) if one.due(now) else one

        monkeypatch.setattr(credentials, "refresh", given)
        one = Credentials("/nowhere", "node", NODES[0], ("https://localhost:1",), self.begun - SET_BACK, self.begun + seconds, "a")
        clock = Clock(lambda: self.loop.now, lambda: self.loop.now, time.sleep)
        self.renewal = Renewal(one, one.places(), cast(Any, self.loop), clock, log, self.alarms, metrics, random.Random(seed).random)

    def lasts(self, seconds: float) -> bool:
        """Look as often as it wants to for so long; tell whether the certificate was good all the time."""
        while self.loop.now < self.begun + seconds:
            self.loop.look()
            if self.loop.now >= self.renewal.credentials.until:
                return False
        return True


class Agent:
    """What a renewal has of an agent. ``late``: by how many seconds its clock is ahead."""

    def __init__(self, one: Credentials, late: float = 0.0, addresses: tuple[str, ...] = ()) -> None:
        self.failures: list[Exception] = []
        self.loop = Loop(time.monotonic, self.failures.append)
        self.metrics, log = Metrics(), Log(Recorder())
        self.alarms = Alarms(log, self.metrics)
        clock = Clock(time.monotonic, lambda: time.time() + late, time.sleep)
        places = one.places(addresses)
        self.renewal = Renewal(one, places, self.loop, clock, log, self.alarms, self.metrics, random.Random(0).random, PACE)

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < end
            self.loop.turn(0.05)
        assert self.failures == []

    def close(self) -> None:
        self.renewal.close()
        self.loop.close()


def test_it_is_renewed_well_before_its_end_and_not_before(registry: Secured) -> None:
    one = registry.join("node", NODES[0])
    early, late = Agent(one, 59 * 86400.0), Agent(one, 61 * 86400.0)
    file = Path(one.folder, credentials.IDENTITY)
    before = file.read_text()
    early.until(lambda: END in early.metrics.text())
    assert file.read_text() == before
    late.until(lambda: late.renewal.credentials.until > one.until)
    found = credentials.read(one.lib, "node")
    assert found == late.renewal.credentials and file.read_text() != before
    assert registry.say("GET", "/v1", None, registry.shown(one)).status == 200
    early.close()
    late.close()


def test_another_authority_is_learnt_and_asked_for_a_certificate(registry: Secured) -> None:
    one = registry.join("node", NODES[0])
    agent = Agent(one)
    new = registry.rotate()
    agent.until(lambda: agent.renewal.credentials.authority == new)
    registry.local.client().change("DELETE", f"authorities/{one.authority}")
    trusted = Path(one.folder, credentials.AUTHORITIES)
    agent.until(lambda: trusted.read_text().count("BEGIN") == 1)
    agent.close()


def test_there_is_an_alarm_while_it_cannot_be_renewed(registry: Secured) -> None:
    one = registry.join("node", NODES[0])
    dead = (f"https://localhost:{free_port()}",)
    early, late = Agent(one, 70 * 86400.0, dead), Agent(one, 80 * 86400.0, dead)
    late.until(lambda: dead[0] in late.alarms.active().get(ALARM, ""))
    early.until(lambda: END in early.metrics.text())
    assert ALARM not in early.alarms.active()
    early.close()
    late.close()
    assert ALARM not in late.alarms.active()


@pytest.mark.parametrize("seconds", [3600, 5400, 7200, 10800, 14400, 21600, 86400])
def test_it_is_renewed_in_time_however_short_it_is_good(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pace of production; some half of the hourly looks at one of an hour came after its end."""
    for seed in range(15):
        one = Lasting(seconds, seed, monkeypatch)
        assert one.lasts(3 * 86400), seed
        assert len(one.loop.waits) < 3 * 86400 * (1 / 3600 + 2 / seconds), "and no more often than it takes"


def test_a_short_one_outlasts_a_registry_that_is_away_for_a_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(15):
        away = partial(lambda begun, now: not begun + 2200 <= now < begun + 3100, 1.8e9)  # from when it is due on
        assert Lasting(3600, seed, monkeypatch, away).lasts(86400), seed


def test_there_is_an_alarm_before_a_short_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(15):
        one = Lasting(3600, seed, monkeypatch, lambda _now: False)
        while ALARM not in one.alarms.active():
            one.loop.look()
        assert one.loop.now < one.begun + 3600, seed


def test_a_long_one_is_looked_at_hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Lasting(7776000, 1, monkeypatch)
    assert one.lasts(86400)
    assert all(3600 <= wait <= 5400 for wait in one.loop.waits[1:])


def test_one_that_the_registry_makes_no_longer_is_not_asked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its authority ends: none ends later; and one that has ended is asked for as any that cannot be had."""
    one = Lasting(3600, 1, monkeypatch)
    monkeypatch.setattr(credentials, "refresh", lambda one, _asked, _now: one)
    while one.loop.now < one.begun + 86400:
        one.loop.look()
    assert len(one.loop.waits) < 60 and min(one.loop.waits[1:]) >= 90
