"""What the node's side of a registry asks for: of the registry (one request at a time, and one stream), and of the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Value = Mapping[str, Any]  #: JSON, as the registry writes it: docs/reference/registry-api.md


class Listing(NamedTuple):
    """List what the registry has of the node's reports; the answer is given to ``Machine.listed``."""


class Send(NamedTuple):
    """Report NICs (POST /v1/nodes/NODE/reports), with an id of its own: sent again as it is where no answer came.

    ``after``: EPOCH:REVISION of the node's reports before these; ``nics``: reports; ``removed``: NICs of which there is none any more;
    ``about``: what there is on the node, None where that is as it was.
    """

    id: str
    after: str
    nics: tuple[Value, ...]
    removed: tuple[str, ...]
    about: Value | None

    @property
    def body(self) -> dict[str, Any]:
        more = {} if self.about is None else {"about": self.about}
        return {"after": self.after, "nics": list(self.nics), "removed": list(self.removed), **more}


class Add(NamedTuple):
    """Let the registry know a NIC that was defined or found here (POST /v1/nics).

    ``after``: EPOCH:REVISION of the reports of the node that it belongs to (If-Match): a late copy is of earlier ones.
    """

    id: str
    nic: str
    after: str
    body: Value


class Delete(NamedTuple):
    """Delete a wanted NIC of this node's whose definition is gone (DELETE /v1/nics/NIC), as it was read at ``revision``."""

    id: str
    nic: str
    revision: str


class Watch(NamedTuple):
    """Open the stream, behind ``start`` (EPOCH:REVISION; "": from the beginning). Where one is open it ends."""

    start: str


class Want(NamedTuple):
    """Keep what is wanted on disk, and let it be so where it is here. ``what``: nic, options or network; ``value`` None: no more wanted."""

    what: str
    uuid: str
    revision: str
    value: Value | None


class Inventory(NamedTuple):
    """Look for all NICs of the node; the answer is given to ``Machine.inventory``."""


class Alarm(NamedTuple):
    """Let an alarm stand; an empty text ends it."""

    name: str
    text: str


Asked = Listing | Send | Add | Delete  #: of the registry: one at a time
Request = Asked | Watch | Want | Inventory | Alarm
