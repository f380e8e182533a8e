"""The options of a NIC that were changed while it ran (runtime.wanted), as the lifecycle meets them: those in force, and those that end."""

from __future__ import annotations

from netcommon.lifecycle.context import any_changed
from runtime.errors import NetcommonError, NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Node
    from netcommon.log import Log
    from runtime.nic import Changed, Nic
    from runtime.wanted import Moment


def moment(node: Node) -> Moment:
    """Give the time as both clocks have it."""
    from runtime.wanted import Moment

    return Moment(node.identity.boot, node.clock.now(), node.clock.wall())


def in_force(node: Node, nic: Nic, log: Log) -> tuple[Changed, ...]:
    """Give what was changed of ``nic`` and has not ended. A file that is damaged is put aside, and that is an error in the log.

    Raises HostRefused where others could have written it.
    """
    if not any_changed(node):
        return ()
    from netcommon.options.tags import of_changed
    from runtime import wanted

    problems: list[str] = []
    found = wanted.read(node.paths, nic.uuid, problems).force(moment(node))
    try:
        list(of_changed(found))
    except NicInvalid as error:
        problems.append(wanted.set_aside(node.paths, nic.uuid, str(error)))
        found = ()
    for problem in problems:
        log.error(problem)
    return found


def forget(node: Node, uuid: str, log: Log) -> None:
    """Drop what was changed of a NIC that has left this node for good."""
    if any_changed(node):
        from runtime import wanted

        try:
            if wanted.remove(node.paths, uuid):
                log.info("the options that were changed on this node are forgotten")
        except NetcommonError as error:
            log.error(f"the options that were changed on this node are kept: {error}")
