"""Alarms: what is wrong now and needs a person. Each is said once when it comes and once when it goes, and shown in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from netagent.observe.metrics import Metrics
from netcommon.log import Log

#: The metric that is 1 for each alarm that is on.
METRIC = "netcommon_alarms"


class Alarms:
    """The alarms that are on, by name: a short constant word such as "inventory". Every method may be called by every thread."""

    def __init__(self, log: Log, metrics: Metrics, told: Callable[[str, bool, str], None] = lambda name, on, text: None) -> None:
        """``told``: of each alarm that comes, gets another text, or goes."""
        self._log, self._metrics, self._told = log, metrics, told
        self._lock = threading.Lock()
        self._active: dict[str, str] = {}

    def set(self, name: str, text: str) -> None:
        """Turns the alarm on, or gives it another text; only what changes is said."""
        with self._lock:
            if self._active.get(name) == text:
                return
            self._active[name] = text
            self._metrics.gauge(METRIC, 1, name=name)
            self._log.error(f"alarm {name}: {text}")
            self._told(name, True, text)

    def clear(self, name: str) -> None:
        """Turns the alarm off, if it is on."""
        with self._lock:
            if self._active.pop(name, None) is None:
                return
            self._metrics.gauge(METRIC, 0, name=name)
            self._log.info(f"alarm {name} is over")
            self._told(name, False, "")

    def active(self) -> Mapping[str, str]:
        """The alarms that are on: name and text."""
        with self._lock:
            return dict(self._active)
