"""The end of a migration on its target: what was owed while the guest was on its way is done (netcommon.lifecycle.migration)."""

from __future__ import annotations

from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import about
from netcommon.lifecycle.migration import arrived
from runtime.errors import NetcommonError
from runtime.record import CHANGING, UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Call, Node


def complete_instance(node: Node, instance: str, call: Call) -> bool:
    """Does it for the NICs of ``instance`` whose guest is here; a failure is logged, the others are completed all the same.

    Returns whether all went well.
    """
    records, _problems = node.store.all()
    good = True
    for record in records:
        standing = record.before or record
        if record.nic.instance != instance or standing.state != UP or not arrived(node, standing):
            continue
        named = about(call, record)
        try:
            if record.state == CHANGING:  # a change was cut off while the guest was on its way: what the NIC was then is completed
                named.log.info(repair(node, record.key, named).text)
            named.log.info(repair(node, record.key, named).text)
        except NetcommonError as error:
            named.log.error(f"what was owed is not done: {error}")
            good = False
    return good
