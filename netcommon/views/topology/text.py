"""The tree as text: a node, its segments, the NICs of each in columns, and below a NIC what of it does not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netcommon.log import printable
from netcommon.views import format as words
from netcommon.views.topology import nic_format
from netcommon.views.topology.model import BRIDGE, DRIFTED, EXT, GONE, GOOD, TABLE, NicView, NodeView, Port, Segment

#: SGR parameters (ECMA-48, 8.3.117).
BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
OF_CONDITION = {GOOD: GREEN, DRIFTED: RED, GONE: YELLOW}


class Style(NamedTuple):
    """How it is drawn."""

    colour: bool = False
    branch: str = "├─ "
    last: str = "└─ "
    beside: str = "│  "

    def paint(self, text: str, *codes: str) -> str:
        """``text`` in a colour."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colour and codes and text else text


UNICODE = Style()
ASCII = Style(branch="|- ", last="`- ", beside="|  ")


def text(node: NodeView, style: Style = UNICODE) -> str:
    """The whole tree. In ASCII style what is not ASCII is escaped."""
    lines = [f"{style.paint(printable(node.name), BOLD)}: {nic_format.summary(node.nics)}"]
    segments = list(node.segments)
    for number, segment in enumerate(segments, 1):
        lines += _hung(style, number == len(segments), list(_segment(segment, style)))
    lines += [style.paint(f"! {printable(problem)}", YELLOW) for problem in node.problems]
    whole = "\n".join(lines)
    return whole.encode("ascii", "backslashreplace").decode("ascii") if style.branch == ASCII.branch else whole


def _hung(style: Style, last: bool, lines: Sequence[str]) -> Iterator[str]:
    """A branch: its first line by a fork, the others beside the trunk."""
    for number, line in enumerate(lines):
        lead = (style.last if last else style.branch) if number == 0 else "   " if last else style.beside
        yield (lead + line).rstrip()


def _segment(segment: Segment, style: Style) -> Iterator[str]:
    yield _head(segment, style)
    rows = [_cells(nic) for nic in segment.nics]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    below = [nic for nic in segment.nics if _below(nic)]
    for number, (nic, row) in enumerate(zip(segment.nics, rows, strict=True), 1):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = style.paint(cells[0], BOLD)
        cells[-1] = style.paint(row[-1], OF_CONDITION.get(nic.condition, YELLOW))
        line = "  ".join(cell for cell, width in zip(cells, widths, strict=True) if width)
        more = [style.paint(f"! {said}", RED if nic.condition == DRIFTED else DIM) for said in _below(nic)] if below else []
        yield from _hung(style, number == len(rows), [line, *more])


def _head(segment: Segment, style: Style) -> str:
    """Kind and name, then what an administrator looks for first."""
    name = printable(words.where(segment.kind, segment.name))
    said = [f"number {segment.number}"] if segment.kind == TABLE and segment.number and str(segment.number) != segment.name else []
    said += [f"mtu {segment.mtu}"] if segment.mtu else []
    said += ["VLAN-aware"] if segment.kind == BRIDGE and segment.aware else []
    if segment.kind != EXT and segment.there:
        said += ["uplink " + ", ".join(map(_uplink, segment.uplinks)) if segment.uplinks else "no uplink"]
    said += ["not ours: " + _some([printable(port.name) for port in segment.others])] if segment.others else []
    said += [] if segment.nics else ["no NICs"]
    head = style.paint(name, BOLD, CYAN) + (": " + ", ".join(said) if said else "")
    if not segment.there:
        return head + style.paint(" DOES NOT EXIST", RED)
    return head if segment.up else head + style.paint(" DOWN", RED)


def _uplink(port: Port) -> str:
    vlans = f" (VLANs {words.ranges(port.vlans)})" if port.vlans and port.vlans != (1,) else ""
    return printable(port.name) + vlans + ("" if port.up else " DOWN")


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names if len(names) <= most else [*names[:most], f"and {len(names) - most} more"])


def _cells(nic: NicView) -> list[str]:
    """The columns: guest, tap, VLAN, addresses, MAC, guards, limits, condition."""
    row = [
        nic.label,
        nic.device,
        words.vlan(nic.access, nic.trunks),
        _some(nic.addresses, 3),
        nic.mac,
        nic_format.guards(nic),
        nic_format.limits(nic),
        nic_format.condition(nic),
    ]
    return [printable(cell) for cell in row]


def _below(nic: NicView) -> list[str]:
    """What does not hold, one line each."""
    said = [f"{drift.does}: {drift.differs}" for drift in nic.drift]
    said += [f"{kind}: an operation that this version does not know" for kind in nic.unknown]
    return [printable(each) for each in said + [f"{does}: owed, its guest is still migrating in" for does in nic.owed]]
