"""The settings as they were read last, kept as JSON beside the records: TOML and the schema would take a hook longer than all its work.

What is kept counts for exactly the file that it was read from (device, inode, size, and the times of its last change to the nanosecond;
owner and mode cannot change without those) and the program that read it. It lies where the records lie, which decide what is done to the
host anyway: in a folder that only root can write to, or it is not looked at. Whatever is wrong with it, the file itself is read instead.
"""

from __future__ import annotations

import os
import time

import netcommon
from netcommon.settings.model import Settings
from runtime.errors import NetcommonError
from runtime.folder import Folder
from runtime.jsontext import Decoder, dumps
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Identity = tuple[str | int, ...]

NAME = "settings.json"
LONGEST = 1 << 20  #: bytes

#: A file that was changed so shortly ago is not kept: it may be changed once more within one tick of the clock (seconds).
SETTLED = 2.0


def identity(status: os.stat_result) -> Identity:
    """Tell the file, as it is now, from any other and from itself at any other time; and the modules that read it from other ones.

    A file that is replaced changes the time of its folder: the settings are read by these two (options give each NIC's defaults).
    """
    above = os.path.dirname(netcommon.__file__)
    folders = [os.stat(f"{above}/{name}") for name in ("settings", "options")]
    own = [number for each in folders for number in (each.st_dev, each.st_ino, each.st_mtime_ns)]
    return (netcommon.__version__, *own, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def kept(state: str, known: Identity) -> Settings | None:
    """The settings that were kept of the file ``known`` below the folder ``state``; None where there are none that can be used."""
    try:
        folder = Folder.find(state)
        if folder is None:
            return None
        with folder:
            data = folder.read(NAME, LONGEST)
        stored = Decoder().whole(data.decode("ascii")) if data else None
        if not isinstance(stored, dict) or stored.get("of") != list(known):
            return None
        return _settings(stored)
    except (NetcommonError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def keep(state: str, known: Identity, settings: Settings, status: os.stat_result, wall: Callable[[], float] = time.time) -> None:
    """Keeps what was read of the file ``known``, where there is the folder already; what cannot be kept is read again next time."""
    if os.geteuid() != 0 or wall() - max(status.st_mtime, status.st_ctime) < SETTLED:
        return
    try:
        text = dumps({"of": list(known), "settings": settings._asdict()})
        if _settings(Decoder().whole(text)) != settings:
            return
        folder = Folder.find(state)
        if folder is not None:
            with folder:
                folder.write(NAME, text.encode("ascii"))
    except (NetcommonError, ValueError, TypeError):
        return


def _settings(stored: dict[str, Any]) -> Settings:
    fields: dict[str, Any] = {name: _frozen(value) for name, value in stored["settings"].items()}
    return Settings(**fields)


def _frozen(value: object) -> object:
    """JSON's lists as tuples, which is what settings have."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return {name: _frozen(item) for name, item in value.items()} if isinstance(value, dict) else value
