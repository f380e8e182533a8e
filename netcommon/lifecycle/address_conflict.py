"""An address that leads to another NIC when a new one comes: whether that one still claims it, and gets it back if the new one fails."""

from __future__ import annotations

from netcommon.host.facts import PROTOCOL
from netcommon.lifecycle import steps
from netcommon.lifecycle.node import about
from netcommon.operations.base import OURS
from runtime.errors import NetcommonError
from runtime.record import UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netcommon.host.base import View
    from netcommon.lifecycle.node import Call, Node
    from netcommon.operations.base import Operation
    from runtime.record import Record


def contested(node: Node, view: View, route: Operation, uuid: str) -> Iterator[str]:
    """A warning for each other NIC that is up on record with the destination of ``route``, while no process holds its device.

    With a process there the operation warns by itself. A guest that is restarted, or moves to another device, is the NIC ``uuid`` itself;
    one whose down has begun is CLOSING; of one that is gone the device took the route along: those are said nothing of.
    """
    fields = route._asdict()
    for other in view.routes(fields["family"], fields["number"], fields["destination"]):
        away = view.link_at(other.index) if other.protocol == PROTOCOL and other.index != fields["ifindex"] else None
        if away is None or away.holders > 0:
            continue
        record = node.store.by_device(away.name)
        if record is not None and record.uuid != uuid and record.state == UP and record.ifindex == away.index:
            yield (
                f"{fields['destination']} leads to {away.name}, where {record.nic.label} is up: two NICs have one address; "
                f"if that guest is gone: netcommon down {away.name}"
            )


def restore(node: Node, undone: Record, call: Call) -> None:
    """Repairs the routes of other NICs that are up, to destinations that ``undone`` had taken, and has let go of. Under no locks."""
    from netcommon.lifecycle.check import repair

    routes = [operation for operation in steps.decode(undone)[0] if steps.destination(operation)]
    destinations = {steps.destination(operation) for operation in routes if operation._asdict()["found"] == OURS}
    for record in node.store.each([]) if destinations else ():
        if record.state != UP or record.uuid == undone.uuid or destinations.isdisjoint(map(steps.destination, steps.decode(record)[0])):
            continue
        try:
            outcome = repair(node, record.key, about(call, record), lambda operation: steps.destination(operation) in destinations)
            if outcome.changed:
                call.log.warning(f"has its address back: {outcome.text}")
        except NetcommonError as error:
            call.log.error(f"{record.nic.label} on {record.device} may have lost its address to this NIC: {error}")
