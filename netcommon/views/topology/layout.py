"""Where everything of the picture is: bands of segments from top to bottom; in a band uplinks, the bridge, and its NICs by VLAN.

    uplink ---- bridge ===+=============+==      the bridge's line, one for each shelf
                        | VLAN 10     | VLAN 20      groups, which flow along the shelves as words along lines
                        +--+--+--     +--+--
                           tap tap       tap        each NIC hangs on its group's line: the tap, and its guest below
                           guest guest   guest

Lengths are in pixels. A group of more NICs than a shelf is wide has several rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import sqrt
from typing import NamedTuple

from netcommon.views import format as words
from netcommon.views.topology.model import EXT, TABLE, NicView, NodeView, Port, Segment

MARGIN, GAP = 24, 10
CELL_WIDTH, CELL_HEIGHT = 184, 70  #: a tap and its guest
STRANGER_HEIGHT = 22  #: the port of somebody else
DROP = 10  #: from a line to what hangs on it
LEFT, RIGHT, HEADING = 20, 10, 24  #: of a group: a line runs down within its left edge
UPLINK_WIDTH, UPLINK_HEIGHT = 148, 52
BRIDGE_LEFT, BRIDGE_WIDTH, BRIDGE_HEIGHT = 208, 164, 118
GROUPS_LEFT = BRIDGE_LEFT + BRIDGE_WIDTH + 30
TITLE = 86
MOST_STRANGERS = 12  #: ports that are on no record, of one segment


class Cell(NamedTuple):
    """A NIC, or the port of somebody else, at the upper left corner of its tap."""

    x: int
    y: int
    nic: NicView | None
    port: Port | None


class Group(NamedTuple):
    """The NICs of one VLAN, or of one set of VLANs; or ports that are on no record (``strangers``)."""

    label: str
    x: int
    y: int
    width: int
    height: int
    cells: tuple[Cell, ...]
    strangers: bool = False

    @property
    def rows(self) -> list[list[Cell]]:
        """Cells that hang on one line."""
        return [list(row) for _y, row in groupby(self.cells, lambda cell: cell.y)]


class Band(NamedTuple):
    """A segment's part of the picture."""

    segment: Segment
    y: int
    height: int
    groups: tuple[Group, ...]
    uplinks: tuple[int, ...]  #: the upper ends of the uplinks' boxes


class Layout(NamedTuple):
    """The whole picture, without its title and what is written below."""

    width: int
    height: int
    bands: tuple[Band, ...]


def layout(node: NodeView) -> Layout:
    """The places. Segments with nothing on them are left out, unless there is nothing else."""
    shown = [segment for segment in node.segments if segment.nics or any(port.kind == "tun" for port in segment.others)]
    across = columns(sum(len(segment.nics) for segment in shown))
    bands, y = [], TITLE
    for segment in shown or node.segments:
        bands.append(_band(segment, y, across))
        y += bands[-1].height + 2 * GAP + DROP
    return Layout(GROUPS_LEFT + width_of(across) + MARGIN, y, tuple(bands))


def columns(nics: int) -> int:
    """How many NICs are side by side: the picture is about as high as it is wide, and a screen shows its width."""
    return min(max(round(sqrt(nics / 3)), 3), 40)


def width_of(cells: int) -> int:
    """The width of a group of so many cells side by side."""
    return cells * (CELL_WIDTH + GAP) - GAP + LEFT + RIGHT


def _band(segment: Segment, y: int, across: int) -> Band:
    groups: list[Group] = []
    x, shelf, depth = GROUPS_LEFT, y + DROP, 0
    for label, things, strangers in _groups(segment):
        side = min(len(things), across)
        row = DROP + (STRANGER_HEIGHT if strangers else CELL_HEIGHT) + GAP
        width, height = width_of(side), HEADING + -(-len(things) // side) * row
        if x > GROUPS_LEFT and x + width > GROUPS_LEFT + width_of(across):
            x, shelf, depth = GROUPS_LEFT, shelf + depth + GAP + DROP, 0
        cells = [
            Cell(
                x + LEFT + number % side * (CELL_WIDTH + GAP),
                shelf + HEADING + number // side * row + DROP,
                thing if isinstance(thing, NicView) else None,
                thing if isinstance(thing, Port) else None,
            )
            for number, thing in enumerate(things)
        ]
        groups.append(Group(label, x, shelf, width, height, tuple(cells), strangers))
        x, depth = x + width + GAP, max(depth, height)
    high = len(segment.uplinks) * (UPLINK_HEIGHT + GAP) - GAP
    height = max(shelf + depth - y, high, BRIDGE_HEIGHT)
    first = y + max(0, (min(height, BRIDGE_HEIGHT) - high) // 2)
    return Band(segment, y, height, tuple(groups), tuple(first + n * (UPLINK_HEIGHT + GAP) for n in range(len(segment.uplinks))))


def _groups(segment: Segment) -> Iterator[tuple[str, Sequence[NicView | Port], bool]]:
    """Label, NICs or ports, and whether those are strangers."""
    for (access, trunks), nics in groupby(segment.nics, lambda nic: (nic.access, nic.trunks)):
        found = list(nics)
        plain = "routed" if segment.kind == TABLE else "ext" if segment.kind == EXT else "no VLAN"
        yield f"{words.vlan(access, trunks) or plain}: {words.several(len(found), 'NIC')}", found, False
    if segment.others:
        more = len(segment.others) - MOST_STRANGERS
        label = f"on no record: {words.several(len(segment.others), 'port')}" + (f", {more} of them not shown" if more > 0 else "")
        yield label, segment.others[:MOST_STRANGERS], True
