"""Keep what Ganeti calls ours: where a `gnt-cluster upgrade` has led its links to scripts without doors, they are put in place.

The agent's unit may not write there. So Ganeti's own hook of ours does it (netcommon.doors.ganeti), which is started as the site's scripts
are (netagent.scripts), outside of the unit.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from netagent.observe.alarms import Alarms
from netagent.scripts import ENVIRONMENT
from netagent.sources.inotify import FileEvents
from netcommon.install import versions
from netcommon.log import Log
from netcommon.scripts.site import HOOKS, Execute
from runtime.errors import HostRefused, NetcommonError
from runtime.inotify import IN_CREATE, NAMES
from runtime.paths import Paths

#: The alarm: Ganeti calls what is no door of ours.
DOORS = "doors"

#: How long putting them in place may take (seconds), and how much is kept of what is said meanwhile (bytes).
LIMIT, OUTPUT = 60.0, 4096


class Doors:
    """``watch`` is for the main thread, ``look`` for a worker's."""

    def __init__(self, paths: Paths, execute: Execute, alarms: Alarms, clock: Callable[[], float], hooks: str = HOOKS) -> None:
        self._root = paths.ganeti_lib.removesuffix(versions.PKGLIBDIR) or "/"
        self._execute, self._alarms, self._clock, self._hooks = execute, alarms, clock, hooks

    def watch(self, files: FileEvents, changed: Callable[[], object]) -> None:
        """Have ``changed`` called for whatever happens where Ganeti's links and scripts are. Raises HostRefused at the system's limit."""

        def told(_name: str) -> None:
            changed()

        try:
            folders = versions.folders(self._root)
        except NetcommonError:
            return  # ``look`` says it
        for number, folder in enumerate(folders):
            if os.path.isdir(folder):  # where there is no Ganeti nothing is lost
                files.watch(f"{DOORS} {number}", folder, NAMES | IN_CREATE, told)

    def look(self, log: Log) -> None:
        """Put in place what is missing; an alarm where that fails. Does not raise NetcommonError."""
        try:
            lost = versions.missing(self._root, self._hooks)
            if lost and versions.dpkg_at_work(self._root):
                return  # what it does is seen, or the next resync comes
            if lost:
                log.warning(f"Ganeti calls what is no door of ours: {', '.join(lost)}; putting ours in place")
                environment = {**ENVIRONMENT, b"GANETI_OBJECT_TYPE": b"NODE"}
                ran = self._execute([f"{self._hooks}/ganeti-hook"], environment, LIMIT, OUTPUT, self._clock)
                lost = versions.missing(self._root, self._hooks)
                said = ran.text or ran.output.decode("utf-8", "replace").strip()
                if lost:
                    raise HostRefused(f"{', '.join(lost)}: {said}")
        except NetcommonError as error:
            self._alarms.set(DOORS, f"NICs come up without us, Ganeti calls what is no door of ours: {error}")
        else:
            self._alarms.clear(DOORS)
