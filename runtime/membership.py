"""Tell whether this node has joined a registry: /var/lib/netcommon/node.json, which names the node by a UUID that it keeps.

It is made once, when the node joins, and outlives renamings and reboots. Whoever copies a machine removes it from the copy.
"""

from __future__ import annotations

from runtime import validate
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runtime.paths import Paths

SCHEMA = 1
NAME = "node.json"
LONGEST = 1 << 16  #: bytes


class Membership(NamedTuple):
    """This node as a registry knows it: its UUID, and the name under which it joined."""

    uuid: str
    name: str


def read(paths: Paths) -> Membership | None:
    """Read who this node is; None where it has not joined.

    Raises HostRefused where the file cannot be used: a node that cannot tell who it is must not be taken for one that has not joined.
    """
    folder = Folder.find(paths.lib)
    if folder is None:
        return None
    with folder:
        path = f"{folder.path}/{NAME}"
        try:
            data = folder.read(NAME, LONGEST)
            return None if data is None else _parsed(data)
        except (RecordTooNew, RecordUnreadable, NicInvalid) as error:
            raise HostRefused(
                f"{path} does not say which node this is: {error}", "put it back from a copy, or remove it and join anew"
            ) from None


def _parsed(data: bytes) -> Membership:
    stored = versioned(data, SCHEMA)
    if set(stored) != {"schema", "uuid", "name"} or stored["schema"] != SCHEMA:
        raise RecordUnreadable(f"not an object with a UUID and a name, of schema {SCHEMA}")
    uuid, name = stored["uuid"], stored["name"]
    if not (isinstance(uuid, str) and validate.is_uuid(uuid) and isinstance(name, str)):
        raise RecordUnreadable("no UUID, or no name")
    return Membership(uuid, validate.name(name, "name"))


def write(paths: Paths, one: Membership) -> None:
    """Write who this node is, to outlive a power failure. Raises HostRefused."""
    with Folder.make(paths.lib, sync=True) as folder:
        folder.write(NAME, dumps({"schema": SCHEMA, **one._asdict()}).encode("ascii") + b"\n", sync=True)


def remove(paths: Paths) -> bool:
    """Forget who this node is; True if it had joined. Raises HostRefused."""
    return Folder.forget(paths.lib, NAME)
