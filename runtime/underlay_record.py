"""Keep what was made of the underlay on this node: /run/netcommon/underlay/<netns>.json, written before anything is made.

It goes with the boot, as addresses and routes do. Each network namespace of a machine has its own: they share the folder.
"""

from __future__ import annotations

from runtime.errors import RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runtime.paths import Paths

SCHEMA = 1
FOLDER = "underlay"
LONGEST = 1 << 24  #: bytes


class UnderlayRecord(NamedTuple):
    """Hold the operations of the underlay on record, as JSON has them. ``generation``: that of the known value that they were made by.

    ``pending``: names (Operation.identity) those that were never there yet, since their first making has failed or was cut short. Versions
    that know nothing of it take them for made.
    """

    boot: str
    generation: int = 0
    operations: tuple[Mapping[str, object], ...] = ()
    pending: tuple[str, ...] = ()


def read(paths: Paths, netns: int, boot: str) -> UnderlayRecord | None:
    """Read what is on record of this boot; None where nothing is.

    Raises HostRefused where it cannot be read, RecordTooNew and RecordUnreadable for what is no such record.
    """
    folder = Folder.find(f"{paths.state}/{FOLDER}")
    if folder is None:
        return None
    with folder:
        data = folder.read(f"{netns}.json", LONGEST)
    if data is None:
        return None
    stored = versioned(data, SCHEMA)
    there, generation, operations = (stored.get(name) for name in ("boot", "generation", "operations"))
    pending = stored.get("pending", [])
    listed = isinstance(operations, list) and all(isinstance(each, dict) for each in operations)
    named = isinstance(pending, list) and all(isinstance(each, str) for each in pending)
    if not (isinstance(there, str) and type(generation) is int and listed and named):
        raise RecordUnreadable(f"not the fields of schema {SCHEMA}")
    return UnderlayRecord(there, generation, tuple(operations or ()), tuple(pending)) if there == boot else None


def write(paths: Paths, netns: int, record: UnderlayRecord) -> None:
    """Write it. Raises HostRefused."""
    with Folder.make(f"{paths.state}/{FOLDER}") as folder:
        folder.write(f"{netns}.json", dumps({"schema": SCHEMA, **record._asdict()}).encode("ascii") + b"\n")


def put_aside(paths: Paths, netns: int, why: str) -> str:
    """Put a damaged record into quarantine, bytes intact; give what is said of it. Raises HostRefused."""
    with Folder.make(f"{paths.state}/{FOLDER}") as folder:
        return folder.damaged(f"{netns}.json", why, "what bears no mark of ours on the host counts as somebody else's")


def remove(paths: Paths, netns: int) -> None:
    """Remove it. Raises HostRefused."""
    folder = Folder.find(f"{paths.state}/{FOLDER}")
    if folder is not None:
        with folder:
            folder.remove(f"{netns}.json")


def told(netns: int) -> str:
    """Name the file beside it of what the site's scripts were told of endpoints, which is there as long as one is owed that it has gone."""
    return f"told-{netns}.json"
