"""What the spoof guard has dropped of a NIC's frames, by reason."""

from __future__ import annotations

from netcommon.host.api.nftables import BRIDGE, NETDEV
from netcommon.operations.guard import egress_filter
from netcommon.operations.guard.rules import REASONS, SOURCES, counter_of
from netcommon.operations.guard.table import INDEX
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from netcommon.operations.guard.table import NicGuard


#: So many frames a guest must have sent before it tells anything that none of them has passed.
ENOUGH = 10


def nothing_passes(guard: NicGuard, view: View) -> str:
    """Say so where the guard has dropped every frame that the device has received since it was made; "" where it has not.

    The device is asked first: what comes meanwhile is counted as dropped, and not as received.
    """
    counted = view.counters().get(guard.ifindex)
    if counted is None or counted.received_packets < ENOUGH:
        return ""
    found = {reason: packets for reason, packets in dropped(guard, view).items() if reason != egress_filter.PROMISC and packets}
    if sum(found.values()) < counted.received_packets:
        return ""
    reasons = ", ".join(f"{reason} {packets}" for reason, packets in found.items())
    return f"the spoof guard has dropped every frame that the guest has sent ({reasons})"


def dropped(guard: NicGuard, view: View) -> dict[str, int]:
    """Packets since the guard was put in place, by reason; empty where it is not there."""
    index, reasons = INDEX.pack(guard.ifindex), (*REASONS, SOURCES, egress_filter.PROMISC)
    tables, sets = [(NETDEV, guard.table), *([(BRIDGE, egress_filter.NAME)] if guard.filtered else [])], frozenset(map(counter_of, reasons))
    packets = {each.set: each.packets for table in tables for each in view.nft_elements_of(*table, index, sets)}
    return {reason: packets[counter_of(reason)] for reason in reasons if counter_of(reason) in packets}
