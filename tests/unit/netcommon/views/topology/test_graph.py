"""netcommon graph: two formats of one model; nothing overlaps, nothing that others wrote breaks out."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from netcommon.views.topology import layout as at
from netcommon.views.topology.canvas import clip
from netcommon.views.topology.dot import dot, quoted
from netcommon.views.topology.graph import graph
from netcommon.views.topology.layout import columns, layout
from netcommon.views.topology.model import BRIDGE, DRIFTED, GONE, OPENVSWITCH, TABLE, Drift, NicView, NodeView, Port, Segment
from netcommon.views.topology.svg import svg
from tests.support.cli import Cli
from tests.support.topology import nic_view

HOSTILE = 'a"b\\<script>&]]>\x1b[0m\n-->|;%%{"'


def a_nic(number: int, vlans: int) -> NicView:
    wrong = number % 50 == 7
    return nic_view(
        f"web{number // 2}/{number % 2}",
        instance=f"web{number // 2}",
        number=number % 2,
        device=f"tap{number}",
        access=number * vlans // 6000 + 1,
        condition=DRIFTED if wrong else GONE if number % 97 == 9 else "good",
        drift=(Drift("ip link set", "it is not"),) if wrong else (),
        also=(f"web{number // 2}/{1 - number % 2}",),
    )


def a_node(size: int, vlans: int = 30) -> NodeView:
    """Three segments with two thirds of the NICs on the first."""
    nics = [a_nic(number, vlans) for number in range(size)]
    split = size * 2 // 3, size * 5 // 6
    ways = (Port("eth0", "", True), Port("eth1", "bond", False, (1, 2, 3)))
    return NodeView(
        "n1",
        (
            Segment(BRIDGE, "br0", True, True, 1500, True, 0, ways, (Port("tap999", "tun", True),), tuple(nics[: split[0]])),
            Segment(OPENVSWITCH, "ovs0", True, True, 1500, True, 0, ways[:1], (), tuple(nics[split[0] : split[1]])),
            Segment(TABLE, "guests", False, False, 0, False, 100, (), (), tuple(nics[split[1] :])),
            Segment(BRIDGE, "idle", True, True, 1500, False, 0, (), (), ()),
        ),
        ("a problem",),
    )


@pytest.mark.parametrize("kind", ["svg", "dot"])
def test_the_command(two: Cli, kind: str, tmp_path: Path) -> None:
    said = two("graph", "--format", kind).stdout
    assert "tap0" in said and "web1" in said and "br0" in said
    two("graph", "--format", kind, "-o", str(tmp_path / "made"))
    assert (tmp_path / "made").read_text("utf-8") == said
    assert two("graph").stdout.startswith("<svg ")


def test_a_file_that_cannot_be_written(two: Cli, tmp_path: Path) -> None:
    said = two("graph", "-o", str(tmp_path / "nowhere" / "x.svg"), status=69)
    assert "cannot be written: No such file or directory" in said.stderr and said.stdout == ""


def test_its_json_is_the_trees(two: Cli) -> None:
    assert two.json("graph") == two.json("tree")


@pytest.mark.parametrize("kind", ["png", "mermaid"])
def test_an_unknown_format(two: Cli, kind: str) -> None:
    said = two("graph", "--format", kind, status=2).stderr
    assert f"'{kind}' is not one of 'svg', 'dot'" in said


@pytest.mark.parametrize("size", [0, 1, 5, 50, 300, 5000])
def test_nothing_overlaps(size: int) -> None:
    """Groups lie apart within the picture, cells within their group, bands below each other."""
    made = layout(a_node(size))
    assert made.width == at.GROUPS_LEFT + at.width_of(columns(size)) + at.MARGIN
    for above, below in pairwise(made.bands):
        assert above.y + above.height <= below.y
    for band in made.bands:
        boxes = [(group.x, group.y, group.x + group.width, group.y + group.height) for group in band.groups]
        assert all(right <= made.width and bottom <= band.y + band.height for _x, _y, right, bottom in boxes)
        assert apart(boxes)
        for group in band.groups:
            high = at.STRANGER_HEIGHT if group.strangers else at.CELL_HEIGHT
            cells = [(cell.x, cell.y, cell.x + at.CELL_WIDTH, cell.y + high) for cell in group.cells]
            assert all(group.x < x and right < group.x + group.width and bottom < group.y + group.height for x, _y, right, bottom in cells)
            assert apart(cells)
    assert sum(cell.nic is not None for band in made.bands for group in band.groups for cell in group.cells) == size


def apart(boxes: list[tuple[int, int, int, int]]) -> bool:
    """Whether no two share a point; a look at those that begin above each one's end."""
    ordered = sorted(boxes, key=lambda box: (box[1], box[0]))
    return not any(
        upper[0] < lower[2] and lower[0] < upper[2] and lower[1] < upper[3]
        for number, upper in enumerate(ordered)
        for lower in until(ordered[number + 1 :], upper[3])
    )


def until(boxes: list[tuple[int, int, int, int]], bottom: int) -> Iterator[tuple[int, int, int, int]]:
    for box in boxes:
        if box[1] >= bottom:
            return
        yield box


def test_apart_sees_an_overlap() -> None:
    assert apart([(0, 0, 2, 2), (2, 0, 4, 2), (0, 2, 4, 3)])
    assert not apart([(0, 0, 2, 2), (1, 1, 3, 3)])


@pytest.mark.parametrize(("size", "shape"), [(50, (0.5, 2.6)), (300, (0.8, 1.8)), (5000, (0.8, 1.8))])
def test_a_picture_is_about_as_high_as_wide(size: int, shape: tuple[float, float]) -> None:
    made = layout(a_node(size))
    assert shape[0] < made.height / made.width < shape[1]


def test_small_groups_share_a_shelf() -> None:
    nics = tuple(nic_view(f"w{number}/0", access=number + 1) for number in range(3))
    (band,) = layout(NodeView("n", (Segment(BRIDGE, "br0", True, True, 1500, True, 0, (), (), nics * 9),), ())).bands
    shelves = {group.y for group in band.groups}
    assert 1 < len(shelves) < len(band.groups)


def test_text_fits() -> None:
    assert clip("short", 100, 11) == "short"
    assert clip("a-very-long-instance-name.example.com/0", 110, 12, "b").endswith("com/0")
    assert "…" in clip("a-very-long-instance-name.example.com/0", 110, 12, "b")
    assert clip("abcdefghijklmnop", 60, 11, middle=False) == "abcdefgh…"


def test_hostile_text_stays_text() -> None:
    """In SVG it is text again for a parser; in dot no quote, line end or markup of it is left as it was."""
    nic = nic_view(HOSTILE, instance=HOSTILE, device=HOSTILE, addresses=(HOSTILE,), condition=DRIFTED, drift=(Drift(HOSTILE, HOSTILE),))
    segment = Segment(BRIDGE, HOSTILE, True, True, 1500, True, 0, (Port(HOSTILE, HOSTILE, True),), (Port(HOSTILE, "tun", True),), (nic,))
    node = NodeView(HOSTILE, (segment,), (HOSTILE,))
    plain = svg(node._replace(segments=()))
    root = ElementTree.fromstring(svg(node))  # noqa: S314 - made by ourselves
    known = {element.tag for element in ElementTree.fromstring(plain).iter()} | {element.tag for element in root.iter()}  # noqa: S314
    assert {tag.partition("}")[2] for tag in known} <= {"svg", "g", "title", "style", "rect", "text", "path", "polyline"}
    assert "script" in "".join(root.itertext())
    inside = re.sub(r'"(?:[^"\\]|\\.)*"', '""', dot(node))
    assert "script" not in inside and inside.count('""') > 10
    assert "\x1b" not in dot(node)
    assert quoted('a"\\n') == '"a\\"\\\\n"'


def test_every_line_has_two_ends() -> None:
    made = graph(a_node(100))
    keys = [box.key for _title, boxes in made.parts for box in boxes] + [box.key for box in made.guests]
    assert len(keys) == len(set(keys)) and all(key.isalnum() for key in keys)
    assert {end for line in made.lines for end in line[:2]} <= set(keys)


def test_a_guest_is_drawn_once() -> None:
    made = graph(a_node(10))
    assert [box.lines[0] for box in made.guests] == [f"web{number}" for number in range(5)]
    assert sum(line.end == made.guests[0].key for line in made.lines) == 2


def test_of_thousands_svg_and_dot_show_each() -> None:
    node = a_node(5000)
    assert all(len(re.findall(r"\btap\d+\b", made)) >= 5000 for made in (svg(node), dot(node)))
