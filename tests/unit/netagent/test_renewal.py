"""A node's certificate is renewed by its agent, by a real service over TLS."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netagent.loop import Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.renewal import ALARM, Pace, Renewal
from netcommon.lifecycle.context import Clock
from netcommon.log import Log, Recorder
from netregistry import credentials
from netregistry.credentials import Credentials
from tests.support.registry import NODES
from tests.support.tls import Secured, free_port, secured

END = "\nnetcommon_registry_certificate_end_seconds "
PACE = Pace(0.0, 0.05, 0.05)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as found:
        yield found


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
