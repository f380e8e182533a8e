"""Find doors of ours where the record is lost: they must go all the same.

Only what is byte for byte what our install writes in that place is taken for ours: a marker may be in anybody's file. Folders are not
found: an empty one tells nobody who made it, and it stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from netcommon.install import packages, targets, versions, wrappers
from netcommon.install.changes import content
from netcommon.install.manifest import SAVED, Change, Installs
from netcommon.install.rooted import outside, placed, resolved
from netcommon.scripts.door_files import COLD
from runtime.errors import HostRefused

#: The names under which a site may have put a door of ours in place itself.
SITES = ("kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom")


def lost(root: str, installs: Installs) -> dict[str, tuple[Change, ...]]:
    """Return the doors of each kind, with what is saved of what they replaced, where nothing is on record. Reads only.

    What serves several kinds (systemd-networkd's settings) is each one's that has a door of its own.
    """
    if installs:
        return {}
    shared = _placed(root, [targets.NETWORKD])
    found = {}
    for kind in targets.KINDS:
        there = {
            place: change
            for path, door in places(kind, root).items()
            for place in _placed(root, [path])
            if (change := _change(root, path, place, door))
        }
        if any(place not in shared for place in there):
            found[kind] = tuple(there.values())
    return found


def places(kind: str, root: str) -> dict[str, str]:
    """Return every path at which an install of ``kind`` may have put a file, whatever the settings say today, and the door it starts."""
    if kind == "ganeti":
        made = {f"{folder}/{door}": door for folder in versions.all_folders(root) for door in versions.DOORS}
        hooks = (targets.VERIFY, *(f"{targets.HOOKS_DIR}/instance-{word}-post.d/netcommon" for word in targets.OPERATIONS))
        made |= dict.fromkeys(hooks, "ganeti-hook")
        made |= {f"{targets.HOOKS_DIR}/instance-{word}-post.d/netcommon-dns": "ganeti-dns-hook" for word in targets.DNS_OPERATIONS}
    elif kind == "xen":
        made = {targets.VIF_GANETI: "vif-ganeti"}
    else:
        made = {path: door for door, path in targets.QEMU.items()}
    return {**made, targets.NETWORKD: ""}


def by_hand(root: str, kind: str, hooks: str) -> list[str]:
    """Return the places of ``kind`` at which a link to a door of ours stands that no install has made: without us it leads nowhere."""
    names = [f"/etc/ganeti/{name}" for name in SITES] if kind == "ganeti" else []
    return [path for path in _placed(root, [*places(kind, root), *names]) if _leads_to_door(root, path, os.path.realpath(hooks))]


def _leads_to_door(root: str, path: str, hooks: str) -> bool:
    if not os.path.islink(outside(root, path)):
        return False
    try:
        return os.path.dirname(resolved(root, path)) in (hooks, f"{hooks}/{COLD}")
    except HostRefused:
        return False


def _placed(root: str, paths: Iterable[str]) -> list[str]:
    """Return where the paths are once the links of their folders are followed, each once; not what cannot be reached."""
    found: list[str] = []
    for path in paths:
        try:
            found.append(placed(root, path))
        except HostRefused:
            continue
    return list(dict.fromkeys(found))


def _change(root: str, path: str, place: str, door: str) -> Change | None:
    """Return the change that put our file for ``path`` at ``place``, where that leads; None where there is none.

    Of a file with several names nobody knows which of them we have made.
    """
    there = content(outside(root, place), links=1)
    wrapper = wrappers.read(there)
    chooses = path + SAVED if path in targets.QEMU.values() else ""
    if not (there == wrappers.NETWORKD.encode() if not door else wrapper and (wrapper.name, wrapper.saved) == (door, chooses)):
        return None
    diverted = packages.diverted(root, place) == place + SAVED
    saved = place + SAVED if diverted or os.path.lexists(outside(root, place + SAVED)) else ""
    return Change(place, saved=saved, diverted=diverted)
