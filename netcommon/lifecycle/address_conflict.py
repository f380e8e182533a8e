"""Warn of an address that leads to another NIC when a new one comes, where that one still claims it."""

from __future__ import annotations

from netcommon.host.api.facts import PROTOCOL
from netcommon.operations.route import at
from runtime.errors import RecordTooNew
from runtime.record import UP
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.operations.base import Operation


def contested(node: Node, view: View, route: Operation, uuid: str) -> Iterator[str]:
    """A warning for each other NIC that is up on record with the destination of ``route``, while no process holds its device.

    With a process there the operation warns by itself. A guest that is restarted, or moves to another device, is the NIC ``uuid`` itself;
    one whose down has begun is CLOSING; of one that is gone the device took the route along: those are said nothing of.
    """
    fields = route._asdict()
    for other in at(view, route.leads_to()):
        away = view.link_at(other.index) if other.protocol == PROTOCOL and other.index != fields["ifindex"] else None
        if away is None or away.holders > 0:
            continue
        try:
            record = node.store.by_device(away.name)
        except RecordTooNew as error:
            yield f"{fields['destination']} leads to {away.name}, and whose that is cannot be told: {error}"
            continue
        if record is not None and record.uuid != uuid and record.state == UP and record.ifindex == away.index:
            yield (
                f"{fields['destination']} leads to {away.name}, where {record.nic.label} is up: two NICs have one address; "
                f"if that guest is gone: netcommon down {away.name}"
            )
