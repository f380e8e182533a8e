"""Hold what an agent knows of its node as a whole: settings in force, what is counted, alarms, history, and how the agent stands.

Nothing of the process around it is in here (netagent.service), so one process may hold thousands of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from netagent.observe.alarms import Alarms
from netagent.observe.history import Journal
from netagent.observe.metrics import Metrics
from netagent.observe.status import Standing
from netcommon.doors.agent_report import folder
from netcommon.host.api.host import Identity
from netcommon.lifecycle.context import Clock
from netcommon.log import Log, printable
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid
from runtime.paths import Paths


class MakeLogs(Protocol):
    """Makes logs (netagent.logs)."""

    def make(self) -> Log:
        """Make a log with a sender of its own, for one thread."""
        ...

    def use(self, settings: Settings) -> None:
        """Let all of them be as the settings say."""
        ...


class State:
    """The state of one node's agent. ``settings`` are those in force; ``environ``: what the agent was started with."""

    def __init__(self, paths: Paths, identity: Identity, clock: Clock, logs: MakeLogs, environ: Mapping[str, str]) -> None:
        self.paths, self.identity, self.clock, self.environ = paths, identity, clock, environ
        self._logs = logs
        self.settings = Settings()
        self.metrics = Metrics()
        self.log = self.make_log()
        self.journal = Journal(clock.wall)
        self.alarms = Alarms(self.make_log(), self.metrics, self.journal.alarm)
        self.standing = Standing(os.getpid(), identity.netns, clock.wall(), clock.now())

    def make_log(self) -> Log:
        """Make a log with a sender of its own, for one thread; its facility follows the settings."""
        return self._logs.make()

    @property
    def folder(self) -> str:
        """The folder of the agent of this network namespace: what is in it goes with the boot."""
        return folder(self.paths.state, self.identity.netns)

    def read(self) -> None:
        """Read the settings. Raises SettingsInvalid."""
        self._apply(load(self.paths))

    def reload(self) -> bool:
        """Read the settings again; a broken file leaves the old ones in force, and is an alarm until it is whole again."""
        try:
            settings = load(self.paths)
        except SettingsInvalid as error:
            self.standing.settings = f"broken, those from before are in force: {printable(str(error).replace(chr(10), '; '))}"
            self.alarms.set("settings", self.standing.settings)
            return False
        self.alarms.clear("settings")
        self._apply(settings)
        return True

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        self.standing.settings = "in force"
        self._logs.use(settings)
