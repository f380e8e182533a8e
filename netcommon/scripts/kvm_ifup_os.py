"""The site's own kvm-ifup-os, by which Ganeti sets instance communication NICs up."""

from __future__ import annotations

import os

from netcommon.scripts import site as custom
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.paths import Paths

NAME = "kvm-ifup-os"

#: So much of two scripts is compared (bytes).
LARGEST = 1 << 20


def own_script(paths: Paths, hooks: str) -> tuple[custom.Script, ...]:
    """The script that takes the place of our set-up of such a NIC; none where the site has none of its own.

    The one that Ganeti ships, linked or copied to where Ganeti runs it, is not the site's own: what it does we do.
    """
    path, shipped = f"{paths.ganeti_etc}/{NAME}", f"{paths.ganeti_lib}/{NAME}"
    found = tuple(custom.named(path, hooks, arguments=False))
    if found and (os.path.realpath(path) == os.path.realpath(shipped) or _same(path, shipped)):
        return ()
    return found


def _same(one: str, other: str) -> bool:
    """Whether two files hold the same."""
    try:
        with open(one, "rb") as first, open(other, "rb") as second:
            return first.read(LARGEST) == second.read(LARGEST)
    except OSError:
        return False
