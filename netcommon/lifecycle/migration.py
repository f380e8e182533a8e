"""Is the NIC's guest still on its way to this node?

On a migration's target a bridged or OVS NIC is set up before the guest moves, while it still speaks on the source. Nobody says so
but Ganeti 3.2, and for routed NICs only. What tells it:

- MIGRATION_PHASE, where it is given: pre or post.
- Ganeti's .runtime file of the instance. At a start it is there before the scripts are called, on a migration's target it comes last,
  after the calls for routed NICs, which are made when the guest has arrived.
- ``-incoming`` on the command line of the QEMU that calls us for a NIC of its own (plain QEMU; Ganeti has its daemon call us).

Guests of plain QEMU run beside Ganeti's, and never have a .runtime file. A NIC that was defined here, or for which QEMU itself has
called, is none of Ganeti's, and its record says so. Of others Ganeti's pid file tells: its QEMU waits for the guest as a process.
"""

from __future__ import annotations

import os

from netcommon.lifecycle import execute
from netcommon.lifecycle.context import POST, PRE
from netcommon.plan.planner import plan
from runtime import ganeti
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Call, Node
    from netcommon.operations.base import Operation
    from runtime.nic import Nic
    from runtime.record import Record

INCOMING = frozenset({b"-incoming", b"--incoming"})

#: How what QEMU's program is called begins.
QEMU = (b"qemu", b"kvm")

#: After its scripts Ganeti starts the QEMU that waits for the guest, which writes its pid file first of all: within so many seconds.
STARTS = 60.0


def incoming(node: Node, nic: Nic, call: Call) -> bool:
    """Whether only what may be true on two nodes at once may be done for it yet."""
    if call.phase in (PRE, POST) or _is_xens(nic):  # Xen's guests have no .runtime file here
        return call.phase == PRE
    running = _running(node, nic)
    if running:
        return False
    if running is None or _is_qemu(_command(node, call)):
        return waits(node, call)
    return nic.mode != "routed"


def waits(node: Node, call: Call) -> bool:
    """Tell whether whoever calls was started to wait for a guest."""
    return not INCOMING.isdisjoint(_command(node, call))


def may_be_ganetis(node: Node, nic: Nic, call: Call) -> bool:
    """Tell whether the guest of a NIC that comes up may be a Ganeti cluster's: it is not defined here, and QEMU itself has not called.

    Of a guest of Xen, Ganeti's or not, the same scripts of Xen's call.
    """
    if _is_none_of_ganetis(node, nic):
        return False
    return _is_xens(nic) or not _is_qemu(_command(node, call))


def awaited(node: Node, record: Record) -> bool:
    """Tell whether the guest of a NIC that is up is still on its way, so that what may be on one node only is owed.

    Of a NIC that had nothing such its record does not tell.
    """
    if record.incoming:
        return not arrived(node, record)
    if record.nic.mode == "routed" or not record.ganeti or _running(node, record.nic) is not False:
        return False
    if node.clock.now() >= record.monotonic + STARTS and not _is_begun(node, record.nic):
        return False
    return not any(operation.exclusive() for operation in execute.decode(record)[0])


def arriving(node: Node) -> tuple[str, ...]:
    """Name the instances for whose guests a QEMU of Ganeti's waits here: it has a process, and no runtime file yet.

    Of a routed NIC no up tells so: that is called when its guest has arrived.
    """
    return tuple(each for each in ganeti.processes(node.paths) if not ganeti.has_runtime(node.paths, each) and _is_waiting(node, each))


def _is_waiting(node: Node, instance: str) -> bool:
    return not INCOMING.isdisjoint(_command_of(node, ganeti.instance_pid(node.paths, instance)))


def owed(node: Node, record: Record) -> list[Operation]:
    """What is to be done when the guest of ``record`` is here. Raises NicInvalid for tags that the settings take no more."""
    return [operation for operation in plan(record.nic, node.settings) if operation.exclusive()] if record.incoming else []


def arrived(node: Node, record: Record) -> bool:
    """Whether the guest of an incoming record is certainly here. Of one that is not Ganeti's only another up can tell."""
    return record.incoming and bool(_running(node, record.nic))


def _is_begun(node: Node, nic: Nic) -> bool:
    """Tell whether Ganeti has started a process for the NIC's instance that is there still."""
    pid = ganeti.instance_pid(node.paths, nic.instance)
    return pid > 0 and os.path.exists(f"{node.paths.proc}/{pid}")


def _is_none_of_ganetis(node: Node, nic: Nic) -> bool:
    return not nic.instance or os.path.exists(f"{node.paths.definitions}/{nic.uuid}.toml")


def _is_xens(nic: Nic) -> bool:
    return "XENBUS_PATH" in nic.environment


def _running(node: Node, nic: Nic) -> bool | None:
    """Whether Ganeti has the NIC's instance running here, a guest that is still migrating in not counted; None: it is not Ganeti's."""
    return None if _is_xens(nic) or _is_none_of_ganetis(node, nic) else ganeti.has_runtime(node.paths, nic.instance)


def _command(node: Node, call: Call) -> list[bytes]:
    """Give the command line of whoever calls; nothing where nobody knows who it is."""
    return _command_of(node, call.parent)


def _command_of(node: Node, pid: int) -> list[bytes]:
    if not pid:
        return []
    try:
        with open(f"{node.paths.proc}/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # it has gone, or is not to be looked into
        return []


def _is_qemu(command: list[bytes]) -> bool:
    return bool(command) and command[0].rpartition(b"/")[2].startswith(QEMU)
