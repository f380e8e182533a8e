"""Keep that a node's /64 is kept back, and for which network of the node: /var/lib/netcommon/underlay-kept-back.json.

It outlives a boot, as what is known does: then that network may come later than the agent. Whoever removes it ends that.
"""

from __future__ import annotations

from runtime.errors import RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runtime.paths import Paths

SCHEMA = 1
NAME = "underlay-kept-back.json"
LONGEST = 1 << 16  #: bytes


class KeptBack(NamedTuple):
    """Hold which /64 is kept back, for which device of a network, and what that device had of it, as a text.

    ``since``: when the device was seen first with addresses of other networks alone, by the clock of ``boot``; "" while it is not.
    """

    prefix: str
    device: str
    what: str
    boot: str = ""
    since: float = 0.0


def read(paths: Paths) -> KeptBack | None:
    """Read it; None where nothing is kept back. Raises HostRefused, and RecordTooNew and RecordUnreadable for what is no such file."""
    folder = Folder.find(paths.lib)
    if folder is None:
        return None
    with folder:
        data = folder.read(NAME, LONGEST)
    if data is None:
        return None
    stored = versioned(data, SCHEMA)
    prefix, device, what, boot, since = (stored.get(field) for field in KeptBack._fields)
    if (
        isinstance(prefix, str)
        and isinstance(device, str)
        and isinstance(what, str)
        and isinstance(boot, str)
        and isinstance(since, int | float)
    ):
        return KeptBack(prefix, device, what, boot, float(since))
    raise RecordUnreadable(f"not the fields of schema {SCHEMA}")


def write(paths: Paths, one: KeptBack) -> None:
    """Write it, to outlive a power failure. Raises HostRefused."""
    with Folder.make(paths.lib, sync=True) as folder:
        folder.write(NAME, dumps({"schema": SCHEMA, **one._asdict()}).encode("ascii") + b"\n", sync=True)


def remove(paths: Paths) -> bool:
    """Forget it; True if anything was kept back. Raises HostRefused."""
    return Folder.forget(paths.lib, NAME)
