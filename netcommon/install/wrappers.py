"""The texts of the doors that our install writes, and which file is one of them, byte for byte.

The marker alone makes no file ours: an administrator's script may have begun as a copy of a door, or hold one in a here-document.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple

from netcommon.scripts.door_files import MARKER

#: How the launcher learns where it lies: a copy of it is told.
WHERE = "= ($0);"

#: The launchers of all versions (SHA-256 of hooks/launcher), the newest last: copies of them are ours.
LAUNCHERS = (
    "bfff5f7610e1e424f1c1a57881bf8bdbe4a4b8cd6c5850bb43dd8aa7743fbc43",
    "0723b68b7564f85d22862de3e40ede04b32bc535ce7d7052aea86d80a2339a54",
)

NETWORKD = f"""{MARKER}
# Without these two lines systemd-networkd deletes the rules and routes of our NICs whenever it starts (networkd.conf(5)).
[Network]
ManageForeignRoutingPolicyRules=no
ManageForeignRoutes=no
"""

#: A path as it is quoted in a door.
_QUOTED = r"'(/[^'\\\n]+)'"
_STARTS = re.compile(rf"#!/bin/sh\n{re.escape(MARKER)}\nexec {_QUOTED} \"\$@\"\n")
_CHOOSES = re.compile(
    rf"#!/usr/bin/python3 -IS\n{re.escape(MARKER)}\nimport sys\n\nsys\.path\.insert\(0, {_QUOTED}\)\n\n"
    rf"from netcommon\.install\.fallback import main\n\nmain\({_QUOTED}, {_QUOTED}\)\n"
)
_COPIED = re.compile(rf"= \({_QUOTED}\);")


class Wrapper(NamedTuple):
    """Say which door a file starts, and where it looks for what stood in its place before."""

    door: str
    saved: str = ""

    @property
    def name(self) -> str:
        """Give the door's name."""
        return os.path.basename(self.door)


def starting(path: str) -> str:
    """Return the text that becomes the door at ``path``."""
    return f"#!/bin/sh\n{MARKER}\nexec '{path}' \"$@\"\n"


def copied(launcher: str, path: str) -> str:
    """Return a launcher's text as the door at ``path``; "" where it is none."""
    first, _, rest = launcher.partition("\n")
    if not (first.startswith("#!/usr/bin/perl") and WHERE in rest):
        return ""
    return f"{first}\n{MARKER}\n{rest.replace(WHERE, WHERE.replace('$0', repr(path)), 1)}"


def choosing(library: str, path: str, saved: str) -> str:
    """Return the text that becomes the door at ``path`` for taps that we know, and what is ``saved`` for the others."""
    return (
        f"#!/usr/bin/python3 -IS\n{MARKER}\n"
        f"import sys\n\nsys.path.insert(0, {library!r})\n\n"
        f"from netcommon.install.fallback import main\n\nmain({path!r}, {saved!r})\n"
    )


def read(content: bytes) -> Wrapper | None:
    """Return what a file of this content starts, where all of it is a text that this or an earlier version writes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if found := _STARTS.fullmatch(text):
        return Wrapper(found[1])
    if found := _CHOOSES.fullmatch(text):
        return Wrapper(found[2], found[3])
    first, _, rest = text.partition("\n")
    marker, _, rest = rest.partition("\n")
    found = _COPIED.search(rest)
    if marker != MARKER or found is None:
        return None
    launcher = f"{first}\n{rest[: found.start()]}{WHERE}{rest[found.end() :]}"
    return Wrapper(found[1]) if hashlib.sha256(launcher.encode()).hexdigest() in LAUNCHERS else None


def is_ours(content: bytes) -> bool:
    """Tell if a file of this content is one that our install writes, and nothing else."""
    return content == NETWORKD.encode() or read(content) is not None
