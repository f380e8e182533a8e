"""Tell whether the node has a custom script that a NIC of KVM may have, or one that is not to be seen from where we are.

Scripts may be links into places that the sandbox of an agent's unit does not show (systemd.exec(5): PrivateTmp=, InaccessiblePaths=),
though a hook sees them: what seems to lead nowhere, or to a folder with nothing in it, is left to the hook.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from netcommon.scripts.kvm_ifup_os import NAME as KVM_IFUP_OS
from netcommon.scripts.kvm_ifup_os import own_script
from netcommon.scripts.site import HOOKS, order
from netcommon.settings.model import Settings
from runtime.nic import MODES
from runtime.paths import Paths

#: The names of scripts, and of folders with scripts: each with what is looked for in it, if it is a folder of folders.
Names = Mapping[str, Any]
OVERRIDES: Names = {mode: {"up": {}, "down": {}} for mode in MODES}
GANETI: Names = {"network": OVERRIDES, "kvm-vif-bridge": {}, "kvm-ifup-custom": {}, "kvm-ifdown-custom": {}, KVM_IFUP_OS: {}}
OURS: Names = {"ifup.d": {}, "ifdown.d": {}}

#: What is to be seen of such names: none, one that leads to something, one that does not.
NONE, THERE, ASTRAY = range(3)


def possible(paths: Paths, settings: Settings) -> bool:
    """Tell whether a hook may find a script for a NIC of KVM. On most nodes there is nothing of the names, which two looks tell."""
    seen = max(_seen(paths.ganeti_etc, GANETI), _seen(paths.etc, OURS))
    if seen != THERE:
        return seen == ASTRAY
    found = order(paths, settings, HOOKS)
    return bool(found.up or found.down or own_script(paths, HOOKS))


def _seen(path: str, names: Names) -> int:
    """Tell what is to be seen of ``names`` in the folder ``path``; without names of a script, or a folder of scripts, at ``path``."""
    try:
        there = os.listdir(path)
    except FileNotFoundError:
        return ASTRAY if os.path.islink(path) else NONE
    except NotADirectoryError:
        return NONE if names else THERE
    except OSError:
        return ASTRAY
    if not there and os.path.islink(path):
        return ASTRAY  # such as where an empty folder is mounted for the agent alone
    if not names:
        return THERE if there else NONE
    return max((_seen(f"{path}/{name}", names[name]) for name in names.keys() & there), default=NONE)
