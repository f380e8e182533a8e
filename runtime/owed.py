"""What others may have had before a NIC took it, and that it lets go of: owed/<key>.<number>.json, until they have it again.

Each file is a record of that NIC with these operations: those that have found another's in their place. It is written before the NIC's own
record stops to name them, so who is killed before the others have what is theirs leaves it to whoever comes next
(netcommon.lifecycle.check.restore). Where the disk is full, the NIC's own record is the file once that goes, with all it names: a rename
needs no room.
"""

from __future__ import annotations

from itertools import count

from runtime.errors import FileRefused, HostRefused, RecordTooNew, RecordUnreadable
from runtime.record import LONGEST, from_json, to_json
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runtime.folder import Folder
    from runtime.layout import Layout
    from runtime.record import Record


class Owed:
    """The files of one layout. ``quarantine`` puts one aside that does not parse, and says why; ``problems`` gathers what else is wrong."""

    def __init__(self, layout: Layout, quarantine: Callable[[Folder, str, str], None], problems: list[str]) -> None:
        self._layout, self._quarantine, self._problems = layout, quarantine, problems
        self._unwritten: dict[str, Record] = {}  #: what this process alone knows of

    def note(self, record: Record, now: float) -> None:
        """Writes down what is owed; ``now``: monotonic seconds. Callers hold the lock of the UUID.

        Raises HostRefused; then it is known until this process ends, or until the NIC's own record goes (``keep``).
        """
        first = int(now * 1e9)  # rising, so who still reads an earlier file never removes this one
        try:
            folder = self._layout.make("owed")
            folder.write(_free(folder, record.key, first), to_json(record))
        except HostRefused:
            self._unwritten[f"{record.key}.{first}"] = record
            raise

    def keep(self, key: str, nics: Folder) -> bool:
        """Make the NIC's own record of ``key`` in ``nics``, which is to go, the note that could not be written; False where none is."""
        lost = [name for name, record in self._unwritten.items() if record.key == key]
        if not lost or not nics.exists(f"{key}.json"):
            return False
        try:
            folder = self._layout.make("owed")
            nics.move(f"{key}.json", folder, _free(folder, key, int(lost[0].rpartition(".")[2])))
        except HostRefused:
            return False
        for name in lost:
            del self._unwritten[name]
        return True

    def each(self) -> Iterator[tuple[str, Record]]:
        """All that is owed, with its name. What a newer version has written is left to that. Raises HostRefused."""
        yield from list(self._unwritten.items())
        folder = self._layout.find("owed")
        if folder is None:
            return
        for name in folder.names():
            try:
                data = folder.read(name, 2 * LONGEST)
                record = from_json(data) if data is not None else None
                if record is not None and name.rpartition(".")[0].rpartition(".")[0] != record.key:
                    raise RecordUnreadable("it is of another NIC than its name says")
            except RecordTooNew:
                continue
            except RecordUnreadable as error:
                self._quarantine(folder, name, str(error))
                continue
            except FileRefused as error:  # it keeps nobody from what the others say
                self._problems.append(f"{error}: what it says is owed stays owed")
                continue
            if record is not None:
                yield name, record

    def settled(self, name: str) -> None:
        """It is owed no more. Raises HostRefused."""
        folder = self._layout.find("owed")
        if self._unwritten.pop(name, None) is None and folder is not None:
            folder.remove(name)


def _free(folder: Folder, key: str, first: int) -> str:
    """Give the first name of a file of ``key`` from the number ``first`` on that is not taken."""
    return next(name for number in count(first) if not folder.exists(name := f"{key}.{number}.json"))
