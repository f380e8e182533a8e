"""The graph for mermaid, which GitHub and GitLab draw in Markdown.

By itself mermaid draws at most 500 lines and 50,000 characters (maxEdges, maxTextSize), and a document cannot raise that: the more NICs,
the less is said of each.
"""

from __future__ import annotations

from netcommon.log import printable
from netcommon.views import words
from netcommon.views.graph import APART, COUNT, COUNTED, GUEST, SEGMENT, STRANGER, TAP, TOGETHER, UPLINK, VLAN, Box, Graph, graph
from netcommon.views.model import DRIFTED, GONE, NodeView

MOST_LINES, MOST_TEXT = 500, 50_000

STYLES = {
    UPLINK: "fill:#e8ecf0,stroke:#4a5560",
    SEGMENT: "fill:#1f4e79,stroke:#1f4e79,color:#ffffff",
    VLAN: "fill:#ffffff,stroke:#0072b2",
    TAP: "fill:#f4faf4,stroke:#2e7d32",
    GUEST: "fill:#fff8e6,stroke:#8c7a00",
    STRANGER: "fill:#ffffff,stroke:#9aa3ab,stroke-dasharray:4",
    COUNT: "fill:#f4faf4,stroke:#2e7d32",
    DRIFTED: "fill:#fdeaea,stroke:#c62828,stroke-width:3px",
    GONE: "fill:#fff4dd,stroke:#b26a00,stroke-dasharray:6",
}


def mermaid(node: NodeView) -> str:
    """The whole node, in as much detail as mermaid takes."""
    for detail in (APART, TOGETHER):
        made = graph(node, detail)
        if len(made.lines) <= MOST_LINES and len(said := _written(node, made)) <= MOST_TEXT:
            return said
    return _written(node, graph(node, COUNTED))


def _written(node: NodeView, made: Graph) -> str:
    lines = ["---", f"title: {quoted(f'{node.name}: {words.summary(node.nics)}')}", "---", "flowchart LR"]
    for number, (name, boxes) in enumerate(made.parts):
        lines += [f"  subgraph part{number} [{quoted(name)}]", *(f"    {_box(box)}" for box in boxes), "  end"]
    lines += [f"  {_box(box)}" for box in made.guests]
    lines += [f"  {line.start} ---{f'|{quoted(line.label)}|' if line.label else ''} {line.end}" for line in made.lines]
    used = {_class(box) for box in (*made.guests, *(box for _name, boxes in made.parts for box in boxes))}
    lines += [f"  classDef {name} {style}" for name, style in STYLES.items() if name in used]
    return "\n".join([*lines, ""])


def _class(box: Box) -> str:
    return box.condition if box.condition in (DRIFTED, GONE) else box.kind


def _box(box: Box) -> str:
    return f"{box.key}[{quoted('<br/>', *box.lines)}]:::{_class(box)}"


def quoted(first: str, *lines: str) -> str:
    """A string of mermaid; with several arguments the lines, joined by the first. What has a meaning in it goes by number."""
    shown = [
        "".join(char if char.isalnum() or char in " .:/_-,()+" else f"#{ord(char)};" for char in printable(line))
        for line in lines or (first,)
    ]
    return '"' + (first if lines else "").join(shown) + '"'
