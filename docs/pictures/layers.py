#!/usr/bin/env python3
"""Draws the layers of docs/architecture.md from what tests/unit/test_layers.py holds: docs/pictures/layers.py [FILE]

A layer stands above all that it may import. What is beside each other does not import one another.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.unit.test_layers import LAYERS  # noqa: E402 - after the path

PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- layers: made by docs/pictures/layers.py from tests/unit/test_layers.py -->\n", "<!-- layers end -->\n"
#: The package itself, which has nothing but the version.
LEFT_OUT = {"netcommon"}
#: What is said of a layer, at most (characters).
WIDTH = 108


@cache
def height(layer: str) -> int:
    """How many layers stand below it, one upon the other."""
    return max((height(other) + 1 for other in LAYERS[layer] if other not in LEFT_OUT), default=0)


def says(layer: str) -> str:
    """The first sentence of the layer's own docstring."""
    place = ROOT / layer.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    said = (ast.get_docstring(ast.parse(path.read_text())) or "") if path.exists() else ""
    first = " ".join(said.split("\n\n")[0].split())
    return textwrap.shorten(first.partition(". ")[0].rstrip(".").replace("``", ""), WIDTH, placeholder=" ...")


def picture() -> str:
    """The layers, the highest first, as a block of Markdown."""
    names = sorted(set(LAYERS) - LEFT_OUT, key=lambda layer: (-height(layer), layer))
    wide = max(map(len, names))
    lines, last = [], -1
    for name in names:
        line = "-" * (wide + 2)
        if last not in (-1, height(name)):
            lines.append(line)
        last = height(name)
        lines.append(f"{name:{wide}}  {says(name) or OTHERS[name]}")
    return "".join(f"    {line}\n" for line in lines)


#: Layers without a docstring of their own.
OTHERS = {
    "hooks": "The executables that hypervisors call: each becomes a door",
    "netcommon.lifecycle": "up, down, check, repair, gc, adopt: the uses of a NIC's list of operations",
}


def drawn(page: str) -> str:
    """The page with the picture of now."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{picture()}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Rewrites the page, or writes it with today's picture into another file."""
    (Path(arguments[0]) if arguments else PAGE).write_text(drawn(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
