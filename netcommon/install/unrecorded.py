"""Find doors of ours that are on no record, by the marker that our install writes into each: the record may be lost, and they must go all
the same.

Folders are not found: an empty one tells nobody who made it, and it stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from netcommon.install import packages, targets, versions
from netcommon.install.changes import is_ours
from netcommon.install.manifest import SAVED, Change, Installs
from netcommon.install.rooted import outside, placed, resolved
from netcommon.scripts.door_files import COLD
from runtime.errors import HostRefused

#: The names under which a site may have put a door of ours in place itself.
SITES = ("kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom")


def lost(root: str, installs: Installs) -> dict[str, tuple[Change, ...]]:
    """Return the doors of each kind that has none on record, with what is saved of what they replaced. Reads only.

    What serves several kinds (systemd-networkd's settings) is each one's that has a door of its own.
    """
    recorded = _placed(root, (change.path for changes in installs.values() for change in changes))
    shared = _placed(root, [targets.NETWORKD])
    found = {}
    for kind in targets.KINDS:
        if kind not in installs:
            changes = [change for path in _placed(root, places(kind, root)) if (change := _change(root, path))]
            if any(change.path not in (*recorded, *shared) for change in changes):
                found[kind] = tuple(changes)
    return found


def places(kind: str, root: str) -> list[str]:
    """Return every path at which an install of ``kind`` may have put a file, whatever the settings say today."""
    if kind == "ganeti":
        made = [f"{folder}/{door}" for folder in versions.all_folders(root) for door in versions.DOORS]
        made += [targets.VERIFY, *(f"{targets.HOOKS_DIR}/instance-{word}-post.d/netcommon" for word in targets.OPERATIONS)]
        made += [f"{targets.HOOKS_DIR}/instance-{word}-post.d/netcommon-dns" for word in targets.DNS_OPERATIONS]
    else:
        made = [targets.VIF_GANETI] if kind == "xen" else list(targets.QEMU.values())
    return [*made, targets.NETWORKD]


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


def _change(root: str, path: str) -> Change | None:
    """Return the change that put our file at ``path``; None where there is none."""
    if not is_ours(outside(root, path)):
        return None
    diverted = packages.diverted(root, path) == path + SAVED
    saved = path + SAVED if diverted or os.path.lexists(outside(root, path + SAVED)) else ""
    return Change(path, saved=saved, diverted=diverted)
