"""The graph for Graphviz (its language dot): ``netcommon graph --format dot | dot -Tsvg``."""

from __future__ import annotations

from netcommon.log import printable
from netcommon.views.topology import nic_format
from netcommon.views.topology.graph import GUEST, SEGMENT, STRANGER, TAP, UPLINK, VLAN, Box, graph
from netcommon.views.topology.model import DRIFTED, GONE, NodeView

STYLES = {
    UPLINK: 'shape=box style=filled fillcolor="#e8ecf0"',
    SEGMENT: 'shape=box style=filled fillcolor="#1f4e79" fontcolor=white',
    VLAN: 'shape=box style=rounded color="#0072b2"',
    TAP: 'shape=box style=filled fillcolor="#f4faf4" color="#2e7d32"',
    GUEST: 'shape=box3d style=filled fillcolor="#fff8e6"',
    STRANGER: 'shape=box style=dashed color="#9aa3ab" fontcolor="#5c6670"',
}
WRONG = {DRIFTED: 'shape=box style=filled fillcolor="#fdeaea" color="#c62828" penwidth=2', GONE: 'shape=box style=dashed color="#b26a00"'}


def dot(node: NodeView) -> str:
    """The whole node, of whatever size."""
    made = graph(node)
    title = quoted(f"{node.name}: {nic_format.summary(node.nics)}")
    lines = ["graph netcommon {", f"  graph [rankdir=LR ranksep=1 nodesep=0.1 labelloc=t label={title}];"]
    lines += ['  node [fontname="DejaVu Sans" fontsize=10 height=0.3];', '  edge [fontname="DejaVu Sans" fontsize=8];']
    for number, (name, boxes) in enumerate(made.parts):
        lines += [f"  subgraph cluster_{number} {{", f"    label={quoted(name)}; color=gray;"]
        lines += [f"    {_box(box)}" for box in boxes]
        lines.append("  }")
    lines += [f"  {_box(box)}" for box in made.guests]
    for line in made.lines:
        label = f" [headlabel={quoted(line.label)}]" if line.label else ""
        lines.append(f"  {line.start} -- {line.end}{label};")
    return "\n".join([*lines, "}", ""])


def _box(box: Box) -> str:
    label = "\\n".join(quoted(line)[1:-1] for line in box.lines)
    return f'{box.key} [label="{label}" {WRONG.get(box.condition, STYLES[box.kind])}];'


def quoted(text: str) -> str:
    """A string of dot: the language takes a backslash before a letter for an escape of its own."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
