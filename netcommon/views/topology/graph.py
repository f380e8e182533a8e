"""Make the graph of a node, its boxes and lines, for dot: uplink, bridge, VLAN, tap, guest."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from netcommon.views import format as words
from netcommon.views.topology import nic_format
from netcommon.views.topology.model import GOOD, NicView, NodeView, Segment

UPLINK, SEGMENT, VLAN, TAP, GUEST, STRANGER = "uplink", "segment", "vlan", "tap", "guest", "stranger"


class Box(NamedTuple):
    """A node of the graph."""

    key: str  #: letters and digits, its own
    kind: str
    lines: tuple[str, ...]
    condition: str = ""  #: of taps: one of model.CONDITIONS


class Line(NamedTuple):
    """An edge, from the outside in."""

    start: str
    end: str
    label: str = ""


class Graph(NamedTuple):
    """All of it. ``parts``: for each segment its title and its boxes; guests, which may be on several, are in none."""

    parts: tuple[tuple[str, tuple[Box, ...]], ...]
    guests: tuple[Box, ...]
    lines: tuple[Line, ...]


def graph(node: NodeView) -> Graph:
    """The boxes and lines. Segments with nothing on them are left out, unless there is nothing else."""
    shown = [segment for segment in node.segments if segment.nics or segment.others]
    guests: dict[str, Box] = {}
    lines: list[Line] = []
    parts = [_part(f"s{number}", segment, guests, lines) for number, segment in enumerate(shown or node.segments)]
    return Graph(tuple(parts), tuple(guests.values()), tuple(lines))


def _part(key: str, segment: Segment, guests: dict[str, Box], lines: list[Line]) -> tuple[str, tuple[Box, ...]]:
    title = words.where(segment.kind, segment.name)
    wrong = () if segment.there and segment.up else ("DOWN" if segment.there else "DOES NOT EXIST",)
    boxes = [Box(key, SEGMENT, (title, *((f"mtu {segment.mtu}",) if segment.mtu else ()), *wrong))]

    def add(box: Box, above: str) -> str:
        boxes.append(box)
        lines.append(Line(above, box.key))
        return box.key

    for number, port in enumerate(segment.uplinks):
        boxes.append(Box(f"{key}u{number}", UPLINK, (port.name, *(() if port.up else ("DOWN",)))))
        lines.append(Line(boxes[-1].key, key))
    for number, ((access, trunks), nics) in enumerate(groupby(segment.nics, lambda nic: (nic.access, nic.trunks))):
        label, above = words.vlan(access, trunks), key
        if label:
            above = add(Box(f"{key}v{number}", VLAN, (label,)), key)
        for position, nic in enumerate(nics):
            mine = add(Box(f"{key}v{number}n{position}", TAP, (nic.device, *_said(nic)), nic.condition), above)
            guest = guests.setdefault(nic.instance or nic.key, Box(f"g{len(guests)}", GUEST, (nic.instance or "guest",)))
            lines.append(Line(mine, guest.key, "" if nic.number is None else str(nic.number)))
    for number, port in enumerate(segment.others):
        add(Box(f"{key}o{number}", STRANGER, (port.name, "on no record")), key)
    return title, tuple(boxes)


def _said(nic: NicView) -> tuple[str, ...]:
    """Of a NIC besides its names."""
    limits = (nic_format.limits(nic),) if nic.rate_in or nic.rate_out else ()
    return (*nic.addresses[:2], *limits, *(() if nic.condition == GOOD else (nic_format.condition(nic),)))
