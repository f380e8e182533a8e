"""Say how versions of Ganeti call the hooks of a NIC, and call Ganeti's own hook (gnt-cluster(8), doc/hooks.rst) on a mock node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mockcloud.sysinfo import OLD
from netcommon.doors.call import Door
from netcommon.doors.ganeti import hook
from netcommon.log import Log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.stored import Interface, Vm
    from netagent.hooks.session import Kept
    from netcommon.lifecycle.context import Node
    from netcommon.settings.model import Settings

HOOK = "ganeti-hook"


class Called(NamedTuple):
    """A hook's call: its name, its first argument, and the variables that are not the NIC's."""

    name: str
    word: str
    more: Mapping[str, str]


def up(version: str, interface: Interface, phase: str = "") -> Called:
    """Give the call by which a NIC comes up. ``phase``: MIGRATION_PHASE.

    Ganeti 3.2 says a device as Python shows its bytes, but for a guest that has arrived (lib/hypervisor/hv_kvm/__init__.py).
    """
    if version == OLD:
        return Called("kvm-ifup", interface.tap, {})
    word = interface.tap if phase else f"b'{interface.tap}'"
    return Called("kvm-nic-setup", word, {"ACTION": "up", **({"MIGRATION_PHASE": phase} if phase else {})})


def down(interface: Interface) -> Called:
    """Give the call by which Ganeti 3.2 takes a NIC down."""
    return Called("kvm-nic-setup", interface.tap, {"ACTION": "down"})


class Apart(Door):
    """Run a door that no agent serves: it is a process of its own on a real node."""

    def __init__(self, kept: Kept, settings: Settings, environ: Mapping[str, str], parent: int) -> None:
        super().__init__(HOOK, kept.paths, kept.clock, environ, parent)
        self._kept, self._environ = kept, environ
        self.settings, self.log = settings, Log(kept.journal)

    def open(self) -> Node:
        return self._kept.node(self.settings)

    def answer(self) -> tuple[int, str]:
        """Do it; give the exit status, and what is said on standard error."""
        status = self.perform(lambda: hook(self, self._environ))
        self.finish()
        return status, self.log.summary()


def operation(code: str, vm: Vm) -> dict[str, str]:
    """Give the variables of Ganeti's hooks after an operation on an instance (lib/cmdlib/instance_utils.py, BuildInstanceHookEnv)."""
    found = {
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        "GANETI_HOOKS_VERSION": "2",
        "GANETI_HOOKS_PHASE": "post",
        "GANETI_HOOKS_PATH": f"{code.removeprefix('OP_').lower().replace('_', '-')}",
        "GANETI_OP_CODE": code,
        "GANETI_OBJECT_TYPE": "INSTANCE",
        "GANETI_OP_TARGET": vm.name,
        "GANETI_INSTANCE_NAME": vm.name,
        "GANETI_INSTANCE_NIC_COUNT": str(len(vm.interfaces)),
    }
    for number, each in enumerate(vm.interfaces):
        said = {"UUID": each.nic.uuid, "MAC": each.nic.mac, "IP": each.nic.ip, "MODE": each.nic.mode, "LINK": each.nic.link}
        found |= {f"GANETI_INSTANCE_NIC{number}_{name}": value for name, value in said.items()}
    return found
