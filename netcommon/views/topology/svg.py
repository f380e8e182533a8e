"""The picture that an operator would draw, as SVG: uplinks, bridges, VLANs, taps, guests (netcommon.views.topology.layout says where)."""

from __future__ import annotations

from netcommon.views import format as words
from netcommon.views.topology import layout as at
from netcommon.views.topology import nic_format
from netcommon.views.topology.canvas import Canvas
from netcommon.views.topology.layout import Band, Cell, Group, layout
from netcommon.views.topology.model import (
    BRIDGE,
    DRIFTED,
    EXT,
    GONE,
    GOOD,
    OPENVSWITCH,
    TABLE,
    UNFINISHED,
    UNTOLD,
    NicView,
    NodeView,
    Segment,
)

INK, FAINT, WIRE = "#1b1f24", "#5c6670", "#4a5560"
#: Border, background and word of a guest, by its condition.
CONDITIONS = {
    GOOD: ("#2e7d32", "#f4faf4", ""),
    DRIFTED: ("#c62828", "#fdeaea", "drifted"),
    GONE: ("#b26a00", "#fff4dd", "device gone"),
    UNFINISHED: ("#5c6670", "#eeeeee", ""),
    UNTOLD: ("#5c6670", "#f4faf4", "not all told"),
}
SEGMENTS = {BRIDGE: "#1f4e79", OPENVSWITCH: "#0b6660", TABLE: "#5b3a86", EXT: "#555555"}
#: Of VLANs, in turn; people with any kind of colour blindness tell neighbours apart (Okabe and Ito).
LANES = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c7a00")
STRANGER = "#9aa3ab"
SHIELD = "m0,1.5 l5,-1.5 l5,1.5 v4 q0,5 -5,7 q-5,-2 -5,-7 z"
MOST_SAID = 16  #: lines below the picture about what does not hold
LINE = 17


def svg(node: NodeView) -> str:
    """The file, UTF-8 as XML is by default."""
    places, canvas = layout(node), Canvas()
    width = max(places.width, 980)
    canvas.text(at.MARGIN, 38, node.name, 600, 22, kind="b", fill=INK)
    fine = all(nic.condition == GOOD for nic in node.nics)
    canvas.text(at.MARGIN, 62, nic_format.summary(node.nics), 600, 14, fill=FAINT if fine else CONDITIONS[DRIFTED][0])
    _legend(canvas, width)
    for band in places.bands:
        _band(canvas, band)
    height = _below(canvas, node, places.height, width)
    return canvas.document(width, height, f"{node.name}: {nic_format.summary(node.nics)}")


def _legend(canvas: Canvas, width: int) -> None:
    """At the upper right: what colours and signs mean."""
    x = width - at.MARGIN - 640
    for name, said in ((GOOD, "all holds"), (DRIFTED, "drifted"), (GONE, "device gone"), (UNFINISHED, "not up")):
        border, back, _word = CONDITIONS[name]
        canvas.rect(x, 28, 14, 14, 3, fill=back, stroke=border, stroke_width=2)
        canvas.text(x + 20, 39, said, 90, fill=FAINT)
        x += 100
    _shield(canvas, x, 28, True)
    canvas.text(x + 16, 39, "guarded", 60, fill=FAINT)
    _shield(canvas, x + 72, 28, False)
    canvas.text(x + 88, 39, "not guarded", 90, fill=FAINT)
    canvas.text(x + 168, 39, "↓ limit in", 90, fill=FAINT)
    canvas.text(x + 168, 55, "↑ limit out", 90, fill=FAINT)


def _shield(canvas: Canvas, x: float, y: float, on: bool) -> None:
    colours = {"fill": "#2e7d32", "stroke": "#2e7d32"} if on else {"fill": "#ffffff", "stroke": STRANGER}
    canvas.add("path", d=SHIELD, transform=f"translate({x:g},{y:g})", **colours)


def _band(canvas: Canvas, band: Band) -> None:
    segment, left = band.segment, at.BRIDGE_LEFT
    for port, y in zip(segment.uplinks, band.uplinks, strict=True):
        middle = y + at.UPLINK_HEIGHT / 2
        dashes = None if port.up else "5 4"
        canvas.line((at.MARGIN + at.UPLINK_WIDTH, middle), (left, middle), stroke=WIRE, stroke_width=3, stroke_dasharray=dashes)
        canvas.rect(at.MARGIN, y, at.UPLINK_WIDTH, at.UPLINK_HEIGHT, fill="#e8ecf0", stroke=WIRE, stroke_dasharray=dashes)
        said = ("uplink, " if port.kind else "") + (port.kind or "uplink") + ("" if port.up else ", DOWN")
        canvas.text(at.MARGIN + 9, y + 17, port.name, at.UPLINK_WIDTH - 18, 12, kind="m b", fill=INK)
        canvas.text(at.MARGIN + 9, y + 31, said, at.UPLINK_WIDTH - 14, 10, fill=FAINT)
        if port.vlans:
            canvas.text(at.MARGIN + 9, y + 44, f"VLANs {words.ranges(port.vlans)}", at.UPLINK_WIDTH - 14, 10, middle=False, fill=FAINT)
    if not segment.uplinks and segment.kind != EXT:
        canvas.text(left - 12, band.y + 30, "no uplink", 100, text_anchor="end", fill=FAINT)
    for y in sorted({group.y for group in band.groups}):
        last = max(group.x for group in band.groups if group.y == y) + at.GAP
        canvas.line((left + at.BRIDGE_WIDTH, y - at.DROP + 4), (last, y - at.DROP + 4), stroke=SEGMENTS[segment.kind], stroke_width=5)
    for number, group in enumerate(band.groups):
        _group(canvas, group, STRANGER if group.strangers else LANES[number % len(LANES)])
    _segment(canvas, segment, band)


def _segment(canvas: Canvas, segment: Segment, band: Band) -> None:
    """The bridge, as high as what is on it: a bar at which everything ends."""
    x, y, inner = at.BRIDGE_LEFT, band.y, at.BRIDGE_WIDTH - 24
    fine = segment.there and segment.up
    canvas.rect(x, y, at.BRIDGE_WIDTH, band.height, 6, fill=SEGMENTS[segment.kind] if fine else CONDITIONS[DRIFTED][0])
    name = "site's scripts" if segment.kind == EXT else segment.name
    canvas.text(x + 12, y + 26, name, inner, 15, kind="m b", fill="#ffffff")
    kind = {BRIDGE: "Linux bridge", OPENVSWITCH: "Open vSwitch", TABLE: "routing table", EXT: "mode ext"}[segment.kind]
    said = [kind] + (["VLAN-aware"] if segment.kind == BRIDGE and segment.aware else [])
    said += ["DOES NOT EXIST"] if not segment.there else [] if segment.up else ["DOWN"]
    said += [f"mtu {segment.mtu}"] if segment.mtu else [f"number {segment.number}"] if segment.number else []
    wrong = sum(nic.condition != GOOD for nic in segment.nics)
    said += [words.several(len(segment.nics), "NIC") + (f", {wrong} not good" if wrong else "")]
    for number, line in enumerate(said):
        canvas.text(x + 12, y + 46 + number * LINE, line, inner, 11, fill="#ffffff")


def _group(canvas: Canvas, group: Group, colour: str) -> None:
    """A frame with its label, and a line for each row on which the taps hang."""
    trunk, label = group.x + at.GAP, at.HEADING - 8
    canvas.rect(group.x, group.y, group.width, group.height, 6, fill="#fafbfc", stroke=colour, stroke_width=1.5)
    canvas.text(group.x + at.LEFT, group.y + label, group.label, group.width - at.LEFT - at.RIGHT, 12, kind="b", fill=INK)
    rows = group.rows
    canvas.line((trunk, group.y - at.DROP + 4), (trunk, rows[-1][0].y - at.DROP), stroke=colour, stroke_width=3)
    for row in rows:
        y = row[0].y - at.DROP
        canvas.line((trunk, y), (row[-1].x + 30, y), stroke=colour, stroke_width=3)
        for cell in row:
            broken = cell.nic is not None and cell.nic.condition in (DRIFTED, GONE)
            style: dict[str, object] = {"stroke": CONDITIONS[DRIFTED][0], "stroke_dasharray": "3 2"} if broken else {"stroke": colour}
            canvas.line((cell.x + 30, y), (cell.x + 30, cell.y), stroke_width=2, **style)
            _cell(canvas, cell, colour)


def _cell(canvas: Canvas, cell: Cell, colour: str) -> None:
    x, y, width = cell.x, cell.y, at.CELL_WIDTH
    if cell.port is not None:
        canvas.rect(x, y, width, at.STRANGER_HEIGHT, fill="#ffffff", stroke=STRANGER, stroke_dasharray="4 3")
        canvas.text(x + 8, y + 15, f"{cell.port.name}{'' if cell.port.up else ' (down)'}", width - 16, kind="m", fill=FAINT)
    if cell.nic is None:
        return
    nic = cell.nic
    border, back, word = CONDITIONS[nic.condition]
    canvas.open(about(nic))
    dashes = {"stroke_dasharray": "6 4"} if nic.condition == GONE else {}
    canvas.rect(
        x, y + 14, width, at.CELL_HEIGHT - 14, 5, fill=back, stroke=border, stroke_width=2 if nic.condition == GOOD else 3, **dashes
    )
    canvas.rect(x + 8, y, 96, 19, 3, fill="#ffffff", stroke=colour, stroke_width=1.5)
    canvas.text(x + 14, y + 14, nic.device, 86, kind="m", fill=INK)
    word = word or (nic.state if nic.condition == UNFINISHED else "")
    canvas.text(x + width - 4, y + 10, word, 78, 10, kind="b", fill=border, text_anchor="end")
    canvas.text(x + 9, y + 33, nic.label, width - 32, 12, kind="b", fill=INK)
    address = _address(nic)
    canvas.text(x + 9, y + 48, address, width - 16, 11 if len(address) < 26 else 10, kind="m", fill=INK)
    canvas.text(x + 9, y + 63, _small(nic), width - 14, 10, middle=False, fill=FAINT)
    _shield(canvas, x + width - 18, y + 22, nic.guarded)
    canvas.close()


def _address(nic: NicView) -> str:
    """The first, and how many more there are."""
    more = len(nic.addresses) - 1
    return f"{nic.addresses[0]}{f' +{more}' if more else ''}" if nic.addresses else nic.mac or "no address"


def _small(nic: NicView) -> str:
    """The last line of a guest: what is out of the ordinary."""
    arrows = [f"{arrow}{words.rate(bits)}" for arrow, bits in (("↓", nic.rate_in), ("↑", nic.rate_out)) if bits]
    said = [*(["isolated"] if nic.isolated else []), *([f"firewall {nic.firewall}"] if nic.firewall else []), *nic.exceptions]
    also = [f"also {', '.join(nic.also)}"] if nic.also else []
    return " · ".join([*([" ".join(arrows)] if arrows else []), *said, *also])


def about(nic: NicView) -> str:
    """All that is known, for who points at it."""
    lines = [f"{nic.label} on {nic.device}: {nic_format.condition(nic)}", nic.uuid, nic.mac, ", ".join(nic.addresses)]
    lines += [words.vlan(nic.access, nic.trunks), nic_format.guards(nic) or "no guard", nic_format.limits(nic)]
    lines += [f"{each.does}: {each.differs}" for each in nic.drift]
    return "\n".join(line for line in lines if line)


def _below(canvas: Canvas, node: NodeView, y: int, width: int) -> int:
    """What does not hold, in words; returns the picture's height."""
    said = [(f"{nic.label} on {nic.device}", f"{each.does}: {each.differs}") for nic in node.nics for each in nic.drift]
    said += [(f"{nic.label} on {nic.device}", nic_format.condition(nic)) for nic in node.nics if nic.condition in (GONE, UNFINISHED)]
    said += [("", problem) for problem in node.problems]
    if not said:
        return y
    canvas.text(at.MARGIN, y + 8, "What does not hold", 400, 13, kind="b", fill=CONDITIONS[DRIFTED][0])
    for number, (who, what) in enumerate(said[:MOST_SAID], 1):
        canvas.text(at.MARGIN, y + 10 + number * LINE, who, 250, 11, kind="b", fill=INK)
        canvas.text(at.MARGIN + 260, y + 10 + number * LINE, what, width - 300, 11, kind="m", fill=INK)
    if len(said) > MOST_SAID:
        text = f"and {len(said) - MOST_SAID} more: netcommon check"
        canvas.text(at.MARGIN, y + 10 + (MOST_SAID + 1) * LINE, text, 400, fill=FAINT)
    return y + 34 + min(len(said), MOST_SAID + 1) * LINE
