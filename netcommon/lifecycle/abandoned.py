"""Recognise records that nobody needs any more: of an earlier boot, of a device that is gone, of a hook that died, or closed."""

from __future__ import annotations

from netcommon.lifecycle.context import alive, taken_down
from runtime.record import APPLYING, REVERTING
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from runtime.record import Record


class Reason(NamedTuple):
    """The reason why nobody needs something any more: a name for counting, and in words."""

    name: str
    text: str


REBOOTED = Reason("earlier-boot", "made before this boot")
GONE = Reason("device-gone", "its device is gone")
CLOSED = Reason("closed", "it is closing, and nobody holds its device any more")
UNWRITTEN = Reason("down-unwritten", "it was taken down, which could not be written")
UNRECORDED = Reason("no-record", "on no record")
DIED = {state: Reason("hook-died", f"a hook died while {state} it") for state in (APPLYING, REVERTING)}


def abandoned(node: Node, view: View, record: Record, locked: bool = False) -> Reason | None:
    """Say why nobody needs ``record`` any more; None if somebody may. ``locked``: we hold its lock, so no hook is at work on it."""
    if record.boot == node.identity.boot and record.netns != node.identity.netns:
        return None  # another node on this machine
    if not alive(node, view, record):
        if record.boot == node.identity.boot:
            return UNWRITTEN if taken_down(view, record) else GONE
        return REBOOTED
    if record.state in DIED and (locked or not at_work(node, record.uuid)):
        return DIED[record.state]
    link = view.link_at(record.ifindex)
    if record.closing and link is not None and link.holders == 0:
        return CLOSED
    return None


def at_work(node: Node, uuid: str) -> bool:
    """Tell whether a hook holds the NIC's lock just now (or that of another NIC which shares its file)."""
    now = node.clock.now
    if node.store.readonly:
        return False  # nothing is done on this word
    with node.store.locks(now(), now, node.clock.sleep) as asked:
        return asked.held(uuid)
