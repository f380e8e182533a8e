"""The model as JSON: the schema of ``netcommon tree --json`` and ``graph --json`` (docs/seeing.md).

A document says its schema's name and version. A field that is added leaves the version; one that goes, or means something else, raises it.
"""

from __future__ import annotations

from typing import Any

from netcommon.views.topology.model import NodeView

SCHEMA, VERSION = "netcommon-tree", 1


def plain(value: object) -> Any:
    """Named tuples as objects, other tuples as lists."""
    if isinstance(value, tuple):
        named = getattr(value, "_asdict", None)
        return [plain(each) for each in value] if named is None else {name: plain(each) for name, each in named().items()}
    return value


def document(node: NodeView) -> dict[str, Any]:
    """The whole node."""
    return {"schema": SCHEMA, "version": VERSION, **plain(node)}
