"""Tell who asks over the UNIX socket."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from netregistry.model import kinds
from netregistry.model.codec import Invalid, read
from netregistry.model.history import Identity
from netregistry.refusal import Refused

UCRED = struct.Struct("3i")  #: pid, uid, gid: unix(7), SO_PEERCRED
ORIGIN = "unix"


def peer(connection: Any) -> int:
    """Give the user at the other end of a UNIX socket, by the kernel's word. Raises Refused where that is neither root nor ourselves."""
    _pid, uid, _gid = UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    if uid not in (0, os.geteuid()):
        raise Refused("forbidden", f"this socket is for root alone, and you are user {uid}: run it as root")
    return int(uid)


def identity(role: str) -> Identity:
    """Give the identity that root has chosen: operator:NAME (without it root), importer:CLUSTER, node:UUID or reader. Raises Refused."""
    kind, _, name = role.partition(":")
    if not role:
        return Identity("operator", "root", ORIGIN)
    hints: dict[str, Any] = {"operator": kinds.Name, "importer": kinds.Cluster, "node": kinds.Uuid, "reader": kinds.NameOrNone}
    if kind not in hints or (not name and kind != "reader"):
        raise Refused("invalid", f"Netcommon-Role is {role!a:.80}: expected operator:NAME, importer:CLUSTER, node:UUID or reader")
    try:
        return Identity(kind, read(hints[kind], name, "Netcommon-Role"), ORIGIN)  # type: ignore[arg-type]
    except Invalid as error:
        raise Refused("invalid", str(error), field="Netcommon-Role") from None
