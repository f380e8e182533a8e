"""Alarms: said once when they come, once when they go."""

from __future__ import annotations

import threading

from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netcommon.log import recording


def test_an_alarm_is_said_once_each_way() -> None:
    log, lines = recording()
    metrics = Metrics()
    alarms = Alarms(log, metrics)
    alarms.clear("inventory")
    assert alarms.active() == {}
    alarms.set("inventory", "it failed")
    alarms.set("inventory", "it failed")
    assert alarms.active() == {"inventory": "it failed"}
    assert metrics.value("netcommon_alarms", name="inventory") == 1
    alarms.clear("inventory")
    alarms.clear("inventory")
    assert alarms.active() == {}
    assert metrics.text().endswith('netcommon_alarms{name="inventory"} 0\n')
    assert lines == ["error: alarm inventory: it failed", "info: alarm inventory is over"]


def test_another_text_is_said_again() -> None:
    log, lines = recording()
    alarms = Alarms(log, Metrics())
    alarms.set("inventory", "it failed")
    alarms.set("inventory", "it is empty\nforged")
    assert lines == ["error: alarm inventory: it failed", "error: alarm inventory: it is empty\\nforged"]


def test_what_is_given_away_does_not_change() -> None:
    alarms = Alarms(recording()[0], Metrics())
    before = alarms.active()
    alarms.set("a", "b")
    assert before == {}


def test_threads() -> None:
    log, lines = recording()
    alarms = Alarms(log, Metrics())

    def work() -> None:
        for _ in range(100):
            alarms.set("a", "b")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines == ["error: alarm a: b"]
