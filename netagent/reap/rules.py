"""What may be reaped, by rules that need nothing but what was seen: the reaper asks them, tests hold them for any order of events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from netcommon.lifecycle.inventory import Records, Seen

LOOPBACK = "lo"


class Sizes(NamedTuple):
    """How much an inventory has found."""

    devices: int  #: of the host, the loopback not counted
    marked: int  #: things that bear our mark
    records: int
    named: int  #: marked things that the records name


def sizes(seen: Seen, known: Records) -> Sizes:
    """The sizes of one inventory."""
    devices = sum(link.name != LOOPBACK for link in seen.view.links())
    marked = sum(not thing.of_node for thing in seen.owned)  # what is the node's own stays without any NIC
    return Sizes(devices, marked, len(known.all), len(known.held - known.of_node))


def emptied(last: Sizes | None, now: Sizes) -> str:
    """What an inventory suddenly lacks as a whole, in words; "" if nothing.

    A part that is empty is believed where the others agree: the last guest's down takes its records and its marks together.
    """
    if last is None:
        return ""
    if last.devices and not now.devices and now.records:
        return f"no network device is seen, before there were {last.devices}, and {now.records} NICs are on record"
    if last.records and not now.records and now.marked:
        return f"there are no records, before there were {last.records}, and {now.marked} things bear our mark"
    if last.marked and not now.marked and now.named:
        return f"nothing bears our mark, before it were {last.marked} things, and the records name {now.named}"
    return ""


class Sightings:
    """The things without an owner, by identity, and since when. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def update(self, ownerless: Iterable[str], began: float, ended: float, grace: float) -> set[str]:
        """Takes in one complete inventory, read between ``began`` and ``ended``; returns those that may go.

        They were without an owner in an inventory that had ended ``grace`` before this one began, and in each one since. What has an
        owner, or is not there, in one of them starts anew.
        """
        self._since = {identity: self._since.get(identity, ended) for identity in ownerless}
        return {identity for identity, since in self._since.items() if began - since >= grace}

    def forget(self) -> None:
        """No inventory so far counts any more."""
        self._since.clear()

    def __len__(self) -> int:
        return len(self._since)
