"""What the spoof guard has dropped of a NIC's frames, by reason."""

from __future__ import annotations

from netcommon.host.base import View
from netcommon.host.nftables import NETDEV
from netcommon.operations.guard import INDEX, NicGuard
from netcommon.operations.guard_rules import REASONS, counter_of


def dropped(guard: NicGuard, view: View) -> dict[str, int]:
    """Packets since the guard was put in place, by reason; empty where it is not there."""
    index = INDEX.pack(guard.ifindex)
    packets = {each.set: each.packets for each in view.nft_elements(NETDEV, guard.table) if each.key == index}
    return {reason: packets[counter_of(reason)] for reason in REASONS if counter_of(reason) in packets}
