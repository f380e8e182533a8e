"""Read a Ganeti node's configuration, and keep which other masters it was last seen to have."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated, NamedTuple

from netregistry.importer.configuration import LONGEST, Configuration, parse
from netregistry.importer.ganeti_json import Unusable
from netregistry.model import kinds
from netregistry.model.codec import Invalid, dump, load
from netregistry.model.importing import Seen, Serial
from runtime.errors import HostRefused, RecordUnreadable
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "config.data"
KEPT = "importer.json"  #: in /var/lib/netcommon
MOST_KEPT = 8  #: masters: between two that import there may be some that cannot


class NotMaster(HostRefused):
    """This node is not the master: there is nothing to import here."""

    advice = ""


class _Kept(NamedTuple):
    """Remember the other master seen last of the cluster with this UUID, the latest serial of its configuration, and those before."""

    uuid: kinds.Uuid
    master: kinds.Uuid
    serial: Serial
    before: Annotated[tuple[Seen, ...], kinds.Sixteen] = ()

    @property
    def seen(self) -> tuple[Seen, ...]:
        return (*self.before, Seen(self.master, self.serial))


class Source:
    """The configuration in ``folder`` (/var/lib/ganeti). ``state``: the folder in which is kept what was seen.

    ``is_here``: tells whether the node of a name is this one; ``confirm``: is given the names of the cluster and its master, and raises
    HostRefused or TryAgain where what else there is of Ganeti on this node does not confirm them.
    """

    def __init__(self, folder: str, state: str, is_here: Callable[[str], bool], confirm: Callable[[str, str], None]) -> None:
        self.folder, self._state, self._is_here, self._confirm = folder, state, is_here, confirm

    def read(self) -> tuple[Configuration, tuple[Seen, ...]]:
        """Give the configuration of which this node is the master, and the other masters that it has seen, the last one last.

        Raises NotMaster, Unusable, TryAgain, HostRefused.
        """
        found = parse(self._bytes())
        kept = self._kept()
        if not self._is_here(found.node):
            self._keep(found, kept)
            raise NotMaster(f"{found.node} is the master of {found.cluster}: run it there")
        self._confirm(found.cluster, found.node)
        return found, kept.seen if kept is not None and kept.uuid == found.uuid else ()

    def _bytes(self) -> bytes:
        path = f"{self.folder}/{FILE}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotMaster(f"there is no {path}: this node is no master of a Ganeti cluster") from None
        except OSError as error:
            raise HostRefused(f"cannot read {path}: {error.strerror}") from None
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unusable(f"{path} is no file")
            return stream.read(LONGEST + 1)

    def _kept(self) -> _Kept | None:
        folder = Folder.find(self._state)
        if folder is None:
            return None
        try:
            with folder:
                data = folder.read(KEPT, 4096)
            return load(_Kept, data) if data else None
        except (Invalid, RecordUnreadable):
            return None  # as if nothing had been seen: then an operator has to say who the master is

    def _keep(self, found: Configuration, kept: _Kept | None) -> None:
        before = kept.seen if kept is not None and kept.uuid == found.uuid else ()
        others = tuple(each for each in before if each.master != found.master)
        made = _Kept(found.uuid, found.master, found.serial, others[1 - MOST_KEPT :])
        if kept is not None and (kept.uuid, kept.master) == (made.uuid, made.master) and kept.serial >= made.serial:
            return
        with Folder.make(self._state) as folder:
            folder.write(KEPT, dump(made) + b"\n")
