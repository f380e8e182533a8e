"""What doctor found, and what it looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netcommon.host.api.host import View
from netcommon.install.rooted import outside
from netcommon.settings.model import Settings
from runtime.paths import Paths
from runtime.record import Record

#: By weight. "error": NICs will fail. "warning": some will, or something was left behind. "info": good to know. "ok": looked at, fine.
LEVELS = ("error", "warning", "info", "ok")


class Finding(NamedTuple):
    """One thing found. ``remedy`` is what to type or to do, "" where nothing needs doing."""

    level: str
    topic: str
    text: str
    remedy: str = ""


class Patient(NamedTuple):
    """The node under examination: everything a check may look at."""

    paths: Paths
    root: str  #: of the files that are not in Paths
    hooks: str  #: the folder of our doors
    settings: Settings
    view: View
    records: Sequence[Record] = ()
    complete: bool = (
        True  #: False: there are records beside these, or may be, so that nothing is on no record because it is on none of these
    )

    def at(self, path: str) -> str:
        return outside(self.root, path)

    def uses(self, *modes: str) -> bool:
        """Whether a NIC on record has one of these modes."""
        return any(record.nic.mode in modes for record in self.records)
