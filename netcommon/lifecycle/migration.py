"""Is the NIC's guest still on its way to this node?

On a migration's target a bridged or OVS NIC is set up before the guest moves, while it still speaks on the source. Nobody says so
but Ganeti 3.2, and for routed NICs only. What tells it:

- MIGRATION_PHASE, where it is given: pre or post.
- Ganeti's .runtime file of the instance. At a start it is there before the scripts are called, on a migration's target it comes last,
  after the calls for routed NICs, which are made when the guest has arrived.
- ``-incoming`` on the command line of the QEMU that calls us for a NIC of its own (plain QEMU; Ganeti has its daemon call us).
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


def incoming(node: Node, nic: Nic, call: Call) -> bool:
    """Whether only what may be true on two nodes at once may be done for it yet."""
    if call.phase in (PRE, POST) or "XENBUS_PATH" in nic.environment:  # Xen's guests have no .runtime file here
        return call.phase == PRE
    running = _running(node, nic)
    if running is None:
        return bool(call.parent) and _migrating(f"{node.paths.proc}/{call.parent}/cmdline")
    return not running and nic.mode != "routed"


def awaited(node: Node, record: Record) -> bool:
    """Tell whether the guest of a NIC that is up is still on its way, so that what may be on one node only is owed.

    Of a NIC that had nothing such its record does not tell.
    """
    if record.incoming:
        return not arrived(node, record)
    if record.nic.mode == "routed" or _running(node, record.nic) is not False:
        return False
    return not any(operation.exclusive() for operation in execute.decode(record)[0])


def owed(node: Node, record: Record) -> list[Operation]:
    """What is to be done when the guest of ``record`` is here. Raises NicInvalid for tags that the settings take no more."""
    return [operation for operation in plan(record.nic, node.settings) if operation.exclusive()] if record.incoming else []


def arrived(node: Node, record: Record) -> bool:
    """Whether the guest of an incoming record is certainly here. Of one that is not Ganeti's only another up can tell."""
    return record.incoming and bool(_running(node, record.nic))


def _running(node: Node, nic: Nic) -> bool | None:
    """Whether Ganeti has the NIC's instance running here, a guest that is still migrating in not counted; None: it is not Ganeti's."""
    if not nic.instance or "XENBUS_PATH" in nic.environment or os.path.exists(f"{node.paths.definitions}/{nic.uuid}.toml"):
        return None
    return ganeti.has_runtime(node.paths, nic.instance)


def _migrating(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return not INCOMING.isdisjoint(file.read().split(b"\0"))
    except OSError:  # the caller has gone, or is not to be looked into
        return False
