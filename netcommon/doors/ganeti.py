"""Ganeti's own hooks (gnt-cluster hooks, doc/hooks.rst): after an operation on an instance its NICs whose devices are gone come down,
and those of a guest that has migrated in get what may be on one node only.

Ganeti 3.0 and 3.1 call no script on the way down, and no version calls one for a bridged or OVS NIC when its guest has arrived; this
hook, run on the nodes of the instance after stop, remove, migrate, failover, modify and reboot, is what they have.
"""

from __future__ import annotations

from netcommon.doors.call import run
from netcommon.lifecycle.arrivals import complete_instance
from netcommon.lifecycle.gc import collect_instance
from netcommon.lifecycle.node import DEVICE_GONE
from runtime.errors import OK, UNAVAILABLE
from runtime.typed import TYPE_CHECKING
from runtime.validate import instance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.doors.call import Door


def hook(door: Door, environ: Mapping[str, str], _argv: Sequence[str] = ()) -> int:
    """Brings down what is left on this node of the instance GANETI_INSTANCE_NAME, and completes what has come.

    A hook's failure fails nothing in Ganeti.
    """
    names = {environ.get(name, "") for name in ("GANETI_INSTANCE_NAME", "GANETI_OP_TARGET")} - {""}
    if environ.get("GANETI_OBJECT_TYPE", "INSTANCE") != "INSTANCE" or environ.get("GANETI_HOOKS_PHASE", "post") != "post":
        return OK
    node = door.node(strict=False)
    found, good = [], True
    for name in sorted(names):
        call = door.call(DEVICE_GONE)
        call = call._replace(log=call.log.bind(instance(name, "GANETI_INSTANCE_NAME")))
        found += collect_instance(node, name, call)
        good = complete_instance(node, name, call) and good
    return OK if good and not any(thing.action == "failed" for thing in found) else UNAVAILABLE


def main() -> None:
    """hooks/ganeti-hook."""
    run("ganeti-hook", hook, leaving=True)
