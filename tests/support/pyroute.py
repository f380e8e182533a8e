"""Messages of rtnetlink as pyroute2 encodes them: what ours are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Flags and kinds of messages (rtnetlink(7)).
REQUEST, REPLACE, EXCL, CREATE = 1, 0x100, 0x200, 0x400
NEWLINK, DELLINK, GETLINK, SETLINK, NEWROUTE, DELROUTE, GETROUTE = 16, 17, 18, 19, 24, 25, 26
NEWNEIGH, DELNEIGH, GETNEIGH, NEWRULE, DELRULE, GETRULE = 28, 29, 30, 32, 33, 34


def theirs(kind: type[Any], number: int, flags: int, fields: dict[str, Any], *attrs: Sequence[Any]) -> bytes:
    """Return the whole message as pyroute2 encodes it."""
    made = kind()
    for name, value in fields.items():
        made[name] = value
    made["attrs"] = [tuple(each) for each in attrs]
    made["header"]["type"], made["header"]["flags"] = number, REQUEST | flags
    made["header"]["sequence_number"], made["header"]["pid"] = 77, 0
    made.encode()
    return bytes(made.data)
