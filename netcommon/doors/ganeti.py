"""Ganeti's own hooks (gnt-cluster hooks, doc/hooks.rst): after an operation on an instance its NICs whose devices are gone come down,
and those of a guest that has migrated in get what may be on one node only. After each, and after `gnt-cluster verify`, with which every
`gnt-cluster upgrade` ends, our doors are put in place again if Ganeti calls others.

Ganeti 3.0 and 3.1 call no script on the way down, and no version calls one for a bridged or OVS NIC when its guest has arrived; this
hook, run on the nodes of the instance after stop, remove, migrate, failover, modify and reboot, is what they have.
"""

from __future__ import annotations

from itertools import count, takewhile

from netcommon.doors.call import run
from netcommon.lifecycle.context import DEVICE_GONE, HOT_REMOVE, MIGRATE
from netcommon.lifecycle.down import left
from netcommon.lifecycle.gc import collect_instance
from netcommon.lifecycle.migration_completion import complete_instance
from netcommon.scripts.site import HOOKS
from runtime.errors import OK, UNAVAILABLE, NetcommonError
from runtime.typed import TYPE_CHECKING
from runtime.validate import instance, is_uuid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.doors.call import Door
    from netcommon.log import Log
    from runtime.paths import Paths

#: The operations after which an instance's NICs whose devices are gone have left this node for good (GANETI_OP_CODE).
LEAVING = {"OP_INSTANCE_MIGRATE": MIGRATE, "OP_INSTANCE_FAILOVER": MIGRATE, "OP_INSTANCE_REMOVE": HOT_REMOVE}


def hook(door: Door, environ: Mapping[str, str], _argv: Sequence[str] = ()) -> int:
    """Brings down what is left on this node of the instance GANETI_INSTANCE_NAME, and completes what has come.

    A hook's failure fails nothing in Ganeti.
    """
    names = {environ.get(name, "") for name in ("GANETI_INSTANCE_NAME", "GANETI_OP_TARGET")} - {""}
    if environ.get("GANETI_HOOKS_PHASE", "post") != "post":
        return OK
    good = stand(door.paths, door.log)
    if environ.get("GANETI_OBJECT_TYPE", "INSTANCE") != "INSTANCE":
        return OK if good else UNAVAILABLE
    node = door.node(strict=False)
    found = []
    for name in sorted(names):
        call = door.call(LEAVING.get(environ.get("GANETI_OP_CODE", ""), DEVICE_GONE))
        call = call._replace(log=call.log.bind(instance(name, "GANETI_INSTANCE_NAME")))
        found += collect_instance(node, name, call)
        good = complete_instance(node, name, call) and good
        for uuid in named_nics(environ):
            left(node, uuid, call)
    return OK if good and not any(thing.action == "failed" for thing in found) else UNAVAILABLE


def named_nics(environ: Mapping[str, str]) -> list[str]:
    """List the UUIDs of the instance's NICs, as Ganeti names them (BuildInstanceHookEnv of its lib/cmdlib/instance_utils.py).

    Of a NIC that the agent or gc has undone before, nothing else here says whose it was.
    """
    given = (environ.get(f"GANETI_INSTANCE_NIC{index}_UUID", "") for index in count())
    return [uuid for text in takewhile(bool, given) if is_uuid(uuid := text.lower())]


def stand(paths: Paths, log: Log, hooks: str = HOOKS) -> bool:
    """Put our doors in place of the scripts that Ganeti calls, if they are not; a gnt-cluster upgrade may have led its links elsewhere.

    Where our install never was, nothing is done. Returns whether all is well; what is not is in the log.
    """
    from netcommon.install import install, versions

    root = paths.ganeti_lib.removesuffix(versions.PKGLIBDIR) or "/"
    try:
        lost = versions.missing(root, hooks)
        if not lost:
            return True
        if versions.dpkg_at_work(root):
            log.info(f"no door of ours: {', '.join(lost)}; dpkg is at work, and ends with putting them in place")
            return True
        log.warning(f"no door of ours, though Ganeti calls it: {', '.join(lost)}; putting ours in place")
        for action in install("ganeti", root, hooks=hooks, keeping=True):
            log.info(f"{action.what} {action.path} {action.text}".rstrip())
        left = versions.missing(root, hooks)
    except NetcommonError as error:
        left = [str(error)]
    for text in left:
        log.error(f"NICs come up without us: {text}")
    return not left


def main() -> None:
    """hooks/ganeti-hook."""
    run("ganeti-hook", hook, leaving=True)
