"""The files of Ganeti's nic/ folder that name taps which are gone, and guests that Ganeti is still moving here.

Only files named by UUID count, which Ganeti's releases do not write and we do (doc/design-ifdown.rst); those that are named by index
are Ganeti's to remove.
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import NamedTuple

from netcommon.host.api.host import View
from netcommon.lifecycle.context import Call, Node, locks
from netcommon.lifecycle.gc import KEPT, PATIENCE, REMOVED
from runtime import ganeti
from runtime.errors import NetcommonError
from runtime.folder import Folder
from runtime.nic import Nic
from runtime.paths import Paths


class NicFile(NamedTuple):
    """nic/<instance>/<uuid>, which names ``tap``."""

    instance: str
    name: str  #: the file's, the NIC's UUID in either case
    tap: str

    @property
    def uuid(self) -> str:
        return self.name.lower()

    @property
    def identity(self) -> str:
        return f"nic-file {self.instance} {self.name}"

    @property
    def text(self) -> str:
        return f"Ganeti's file nic/{self.instance}/{self.name}, which names {self.tap}"


def nic_files(paths: Paths) -> list[NicFile]:
    """Every such file. Raises HostRefused where the folder cannot be read."""
    return [
        NicFile(instance, name, tap)
        for instance in _names(paths, "nic")
        for name, tap in ganeti.nic_files(paths, instance).items()
        if not name.isdigit()
    ]


def arriving(paths: Paths) -> dict[int, str]:
    """The processes of guests that Ganeti has not yet here: QEMU runs, the runtime file comes at the end. Raises HostRefused."""
    found = {}
    for instance in _names(paths, "pid"):
        pid = ganeti.instance_pid(paths, instance)
        if pid and os.path.isdir(f"{paths.proc}/{pid}") and ganeti.has_runtime(paths, instance) is not True:
            found[pid] = instance
    return found


def lost(file: NicFile, view: View, told: Container[str], uuids: Container[str], guests: Container[str]) -> bool:
    """Whether nobody needs the file: its tap is gone, or another NIC's by its record, and its instance is not on its way here.

    ``told`` and ``uuids``: the devices and the NICs on record; ``guests``: the instances of ``arriving``. A NIC on record keeps its file.
    """
    if file.uuid in uuids or file.instance in guests:
        return False
    return view.link(file.tap) is None or file.tap in told


def remove_file(node: Node, file: NicFile, call: Call) -> str:
    """Removes a lost file, and links to it, after a second look under the locks of its tap and its NIC. Returns REMOVED or KEPT."""
    call = call._replace(log=call.log.bind(instance=file.instance, uuid=file.uuid, tap=file.tap))
    try:
        with locks(node, call._replace(deadline=min(call.deadline, node.clock.now() + PATIENCE))) as held:
            held.devices({file.tap})
            held.uuids({file.uuid})
            told = {file.tap} if node.store.by_device(file.tap) else ()
            uuids = {file.uuid} if node.store.exists(file.uuid) else ()
            if not lost(file, node.host.view(), told, uuids, arriving(node.paths).values()):
                return KEPT
            nic = Nic(file.name, file.tap, mode="", link="", instance=file.instance)
            if not ganeti.remove_nic_file(node.paths, nic):
                return KEPT
    except NetcommonError as error:
        call.log.warning(f"{file.text}: {error}")
        return KEPT
    call.log.info(f"removed, its tap is gone: {file.text}")
    return REMOVED


def _names(paths: Paths, name: str) -> list[str]:
    folder = Folder.find(f"{paths.kvm_run}/{name}", ours=False)
    if folder is None:
        return []
    with folder:
        return folder.names()
