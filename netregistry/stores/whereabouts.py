"""Name a file of this machine, so that no other machine takes it for its own: by its path, the host's name and the machine's number.

Hosts that are called localhost share a name, and those that were made of one template /etc/machine-id, often under other names; one that is
renamed is the same machine. So its number is made of that and of its hardware's, which a copy of a virtual machine has anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path

MACHINE_ID = "/etc/machine-id"  #: machine-id(5): it is not to be told, so a hash of it is
#: UUIDs of the (virtual) hardware: of SMBIOS (System Information; root alone reads it), of a Xen guest. The first that is there counts.
HARDWARE = ("/sys/class/dmi/id/product_uuid", "/sys/hypervisor/uuid")
FORM = re.compile(r"(?P<path>/.*) on (?P<host>[^ ]*)(?: \(machine (?P<number>[0-9a-f]{12})\))?", re.S)


def own(path: str) -> str:
    """Name a file of this machine, as an etcd says where its registry has gone, or has come from."""
    number = _number()
    return f"{os.path.abspath(path)} on {socket.gethostname()}{f' (machine {number})' if number else ''}"


def is_own(named: str, path: str) -> bool:
    """Tell whether that names a file of this machine: by the machine's number, and where either has none by the host's name."""
    one, other = FORM.fullmatch(named), FORM.fullmatch(own(path))
    if one is None or other is None or one["path"] != other["path"]:
        return False
    key = "number" if one["number"] and other["number"] else "host"
    return one[key] == other[key]


def _number() -> str:
    """Give twelve digits that are this machine's alone; "" where it has no number."""
    text = _text(MACHINE_ID)
    if not re.fullmatch(r"[0-9a-f]{32}", text):  # "uninitialized" while an image is made
        return ""
    hardware = next(filter(None, map(_text, HARDWARE)), "").lower()
    return hashlib.sha256(f"netcommon registry {text} {hardware}".strip().encode()).hexdigest()[:12]


def _text(path: str) -> str:
    """Give what a file says in a line; "" where it is not there, or says nothing that can be read."""
    try:
        return Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
