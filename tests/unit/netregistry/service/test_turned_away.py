"""Who was turned away is counted always, and said now and then: no flood of them fills a log."""

from __future__ import annotations

from netregistry.service.turned_away import EVERY, MOST, REMEMBERED, WHILE, TurnedAway
from tests.support.service import Lines


def test_each_reason_and_address_is_said_now_and_then() -> None:
    time, log = [1000.0], Lines()
    away = TurnedAway(lambda: time[0], log)
    for _ in range(5):
        away.note("expired", "192.0.2.1", "its certificate has ended")
    away.note("expired", "192.0.2.2", "its certificate has ended")
    away.note("broken", "192.0.2.1", "")
    assert log.lines == [f"192.0.2.{number} is refused: its certificate has ended" for number in (1, 2)]
    assert away.counts["expired"] == 6 and away.counts["broken"] == 1
    time[0] += EVERY
    away.note("expired", "192.0.2.1", "its certificate has ended")
    assert len(log.lines) == 3


def test_a_flood_from_many_addresses() -> None:
    time, log = [1000.0], Lines()
    away = TurnedAway(lambda: time[0], log)
    for number in range(10 * REMEMBERED):
        away.note("none", f"2001:db8::{number:x}", "it has no certificate")
    assert len(log.lines) == MOST and away.counts["none"] == 10 * REMEMBERED
    time[0] += WHILE
    away.note("none", "192.0.2.1", "it has no certificate")
    assert len(log.lines) == MOST + 1
