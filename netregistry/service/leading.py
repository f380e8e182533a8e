"""Let a service that is started again lead at once: who led under its name was killed."""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
from typing import TYPE_CHECKING

from netregistry.leader import deposed
from netregistry.stores.base import Unavailable

if TYPE_CHECKING:
    from netregistry.service.registry import Log
    from netregistry.stores.base import Store

MACHINE = "/etc/machine-id"  #: of this installation; /proc/sys is not there in the service's unit


def named(listen: str) -> str:
    """Name the one service that can listen there, on this machine: several may be "localhost". Its id is told to nobody (machine-id(5))."""
    machine = b""
    with contextlib.suppress(OSError), open(MACHINE, "rb") as file:
        machine = file.read(64).strip()
    where = f"{socket.gethostname()} {os.path.abspath(listen)}"
    return f"{where} {hmac.new(machine, where.encode(), 'sha256').hexdigest()[:16]}"


def depose(store: Store, log: Log, name: str = "") -> None:
    """Let this process lead at once: it alone has the file, or the ``name``, so who led was killed. What is not written ends by itself."""
    try:
        deposed(store, name)
    except Unavailable as error:
        log.warning(f"who led before cannot be said to be gone, so nobody leads until its lease is over: {error}")
