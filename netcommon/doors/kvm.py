"""The doors of KVM: kvm-ifup and kvm-ifdown (Ganeti 3.0 and 3.1, design-ifdown.rst, QEMU's script and downscript), kvm-nic-setup
(Ganeti 3.2).
"""

from __future__ import annotations

import os
import sys

from netcommon.doors.call import end_due, run
from netcommon.lifecycle.context import HOT_REMOVE, MIGRATE, MIGRATE_FAILED, SHUTDOWN
from runtime.environment import device_argument, down_hint, environment_of, identified, nic_from_environment, undescribed
from runtime.errors import OK, NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.doors.call import Body, Door
    from runtime.nic import Nic

#: The second argument of kvm-ifdown: design-ifdown.rst's "local cleanup only" is true or false; sites say it in words.
CONTEXTS = {
    "": SHUTDOWN,
    "true": SHUTDOWN,
    "false": HOT_REMOVE,
    SHUTDOWN: SHUTDOWN,
    HOT_REMOVE: HOT_REMOVE,
    MIGRATE: MIGRATE,
    MIGRATE_FAILED: MIGRATE_FAILED,
}


def described(door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> Nic:
    """The NIC of an up: from the environment, as Ganeti gives it; else, from QEMU with the device alone, from its definition.

    QEMU passes on the environment it was started in. What of it looks like ours and is no description counts for nothing: a
    description has INTERFACE, the device of the argument if there is one, and MODE. Who says more than that of the NIC
    (environment.IDENTIFY) is a hypervisor, and what is wrong in its description is an error. Raises NicInvalid.
    """
    device = device_argument(argv[0]) if argv and argv[0] else ""
    interface, mode = environ.get("INTERFACE", ""), environ.get("MODE", "")
    if not (device or interface or mode):
        raise NicInvalid("INTERFACE", "", "the NIC's device, in the environment or as the first argument")
    if not device or (interface and (identified(environ) or (mode and interface == device))):
        return nic_from_environment(environ, argv)
    from runtime import definitions

    nic = definitions.find(door.paths, device)
    if nic is None and mode and identified(environ):
        return nic_from_environment(environ, argv)  # a description that leaves the device to the argument
    if nic is None:
        raise NicInvalid("INTERFACE", device, "a NIC described in the environment, or defined beforehand: netcommon define")
    return nic_from_environment({**undescribed(environ), **environment_of(nic)}, argv)


def ifup(door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> int:
    """Joins the NIC to the network."""
    from netcommon.lifecycle.up import up

    nic = described(door, environ, argv)
    node = door.node(strict=True)
    call = door.call(phase=environ.get("MIGRATION_PHASE", ""), nic=nic)
    call.log.info(up(node, nic, call).text)
    end_due(node, call)
    return OK


def ifdown(door: Door, environ: Mapping[str, str], argv: Sequence[str]) -> int:
    """Takes the NIC out of the network: argv is TAP and, optionally, CONTEXT."""
    from netcommon.lifecycle.down import down

    word = argv[1] if len(argv) > 1 else ""
    if word not in CONTEXTS:
        raise NicInvalid("CONTEXT", word, "one of " + ", ".join(filter(None, CONTEXTS)))
    hint = down_hint(environ, argv)
    if hint.contradiction:
        door.log.warning(f"{hint.contradiction}: nothing was done")  # a down never acts on a guess
        return OK
    node = door.node(strict=False)
    call = door.call(CONTEXTS[word], environ.get("MIGRATION_PHASE", ""))
    call.log.info(down(node, hint, call).text)
    end_due(node, call)
    return OK


def nic_setup(door: Door, environ: Mapping[str, str], argv: Sequence[str], action: str = "") -> int:
    """ACTION=up or down, in the environment or by the name under which Ganeti found us (network/<mode>/up and down)."""
    action = asked(environ, action)
    if action not in ("up", "down"):
        raise NicInvalid("ACTION", action, "up or down")
    return (ifup if action == "up" else ifdown)(door, environ, argv[:1])


def asked(environ: Mapping[str, str], action: str) -> str:
    """What a call of kvm-nic-setup is to do: by ACTION, else by the name under which it was called."""
    return environ.get("ACTION", "") or action or "up"


def called_for(argv: Sequence[str]) -> str:
    """The device that the first argument names, "" where it names none."""
    try:
        return device_argument(argv[0]) if argv and argv[0] else ""
    except NicInvalid:
        return ""


def nic_setup_as(name: str) -> Body:
    """What kvm-nic-setup does under the name by which it was called: up and down are actions too."""
    return lambda door, environ, argv: nic_setup(door, environ, argv, action_of(name))


def action_of(name: str) -> str:
    """The action that the name of a link to kvm-nic-setup says, "" if it says none."""
    return name if name in ("up", "down") else ""


def main_ifup() -> None:
    """hooks/cold/kvm-ifup; also installed as kvm-vif-bridge, without arguments."""
    run("kvm-ifup", ifup, called_for(sys.argv[1:]))


def main_ifdown() -> None:
    """hooks/cold/kvm-ifdown."""
    run("kvm-ifdown", ifdown, called_for(sys.argv[1:]), leaving=True)


def main_nic_setup() -> None:
    """hooks/cold/kvm-nic-setup, and as network/<mode>/up and down."""
    name = os.path.basename(sys.argv[0])
    leaving = asked(os.environ, action_of(name)) == "down"
    run("kvm-nic-setup", nic_setup_as(name), called_for(sys.argv[1:]), leaving)
