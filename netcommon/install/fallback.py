"""/etc/qemu-ifup and /etc/qemu-ifdown: our door for the taps that we know, the script that was there before us for all others."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from netcommon.install import kept
from runtime import definitions
from runtime.environment import device_argument, identified
from runtime.errors import NetcommonError, NicInvalid
from runtime.paths import Paths


def main(door: str, saved: str) -> NoReturn:
    """Becomes ``door`` or ``saved``. Where nothing was saved, our door answers for every tap."""
    before = kept.find(saved)
    if choose(Paths(), os.path.basename(door), sys.argv[1:], bool(before)):
        program, words = door, [door, *sys.argv[1:]]
    else:
        program, words = kept.command(before, sys.argv[0], sys.argv[1:])
    os.execv(program, words)  # noqa: S606  no shell


def choose(paths: Paths, door: str, arguments: list[str], saved: bool) -> bool:
    """Whether the call is ours: the tap is defined (up and down), or has a record (down), or there is nobody else to serve it."""
    if not saved or (os.environ.get("MODE") and identified(os.environ)):
        return True  # a NIC described in the environment is a hypervisor's; a stray MODE alone describes nothing
    try:
        device = device_argument(arguments[0]) if arguments else ""
    except NicInvalid:
        return False  # no name that we would ever have taken
    if not device:
        return False
    if door == "kvm-ifdown" and _recorded(paths, device):
        return True
    try:
        return definitions.find(paths, device) is not None
    except NetcommonError:
        return True  # a definition that does not parse: our door says what is wrong with it


def _recorded(paths: Paths, device: str) -> bool:
    """Whether some namespace's records name the device; the door then looks whether it is the right one's."""
    others = paths.state + "/netns.d"
    try:
        folders = [f"{others}/{name}" for name in os.listdir(others)]
    except OSError:
        folders = []
    return any(os.path.lexists(f"{folder}/devices/{device}") for folder in (paths.state, *folders))
