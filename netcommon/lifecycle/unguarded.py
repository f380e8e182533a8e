"""Adopted NICs stand without the spoof guard, and without what keeps guests from the node, until their next start.

Ganeti's files do not hold an instance's tags, and a guest to whom they allow more must not be cut off.
"""

from __future__ import annotations

from netcommon.lifecycle.context import ADOPT
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.record import Record

UNGUARDED = "without the spoof guard and node_access until its next start: its tags are not known"


def opening(prefix: str, uuid: str) -> tuple[str, ...]:
    """Return the tags by which a NIC is adopted as if its own switched the guard off, let it send in both families, and opened the node."""
    return tuple(f"{prefix}:{uuid}:{each}" for each in ("spoof_guard:false", "allow_ip_spoofing:true", "node_access:all"))


def unguarded(record: Record, prefix: str) -> bool:
    """Tell if the NIC of ``record`` was adopted so, and has not come up by a hook since."""
    tags = opening(prefix, record.uuid)
    return record.door == ADOPT and record.nic.tags[-len(tags) :] == tags
