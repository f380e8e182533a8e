"""The end of a migration on its target: what was owed while the guest was on its way is done (netcommon.lifecycle.migration)."""

from __future__ import annotations

from netcommon.lifecycle.check import repair
from netcommon.lifecycle.context import about
from netcommon.lifecycle.migration import arrived
from runtime.errors import NetcommonError
from runtime.record import UP
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
        if record.nic.instance != instance or record.state != UP or not arrived(node, record):
            continue
        named = about(call, record)
        try:
            named.log.info(repair(node, record.key, named).text)
        except NetcommonError as error:
            named.log.error(f"what was owed is not done: {error}")
            good = False
    return good
