#!/usr/bin/env python3
"""Draw the rooms of docs/architecture.md from the folders and what they import: docs/pictures/rooms.py [FILE]

In each folder, what stands higher may import what stands lower, never the other way round.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.support.rooms import PRODUCT, heights  # noqa: E402 - after the path

PAGE = ROOT / "docs/architecture.md"
BEGIN, END = "<!-- rooms: made by docs/pictures/rooms.py -->\n", "<!-- rooms end -->\n"
#: What is said of a room, at most (characters).
WIDTH = 108
#: Rooms without a docstring of their own.
OTHERS = {
    "hooks": "Hold the executables that hypervisors call: each hands over to the agent, or becomes a door",
    "netcommon.lifecycle": "Bring NICs up and down, check, repair, adopt, clean up: the uses of a NIC's list of operations",
}


def rooms() -> list[str]:
    """The folders of the product: those beside each other with the highest first, each followed by those in it."""
    names = {source.module for source in PRODUCT if source.path.name == "__init__.py"} | OTHERS.keys()
    height = heights()

    def place(name: str) -> list[tuple[int, str]]:
        parts = name.split(".")
        return [(-height.get(".".join(parts[: end + 1]), 0), parts[end]) for end in range(len(parts))]

    return sorted(names, key=place)


def says(room: str) -> str:
    """The first sentence of the room's own docstring."""
    path = ROOT / room.replace(".", "/") / "__init__.py"
    said = (ast.get_docstring(ast.parse(path.read_text())) or "") if path.exists() else ""
    first = " ".join(said.split("\n\n")[0].split())
    return textwrap.shorten(first.partition(". ")[0].rstrip(".").replace("``", ""), WIDTH, placeholder=" ...")


def picture() -> str:
    """The rooms as a block of Markdown."""
    names = [(name.count(".") * "  " + name.rpartition(".")[2] + "/", name) for name in rooms()]
    wide = max(len(shown) for shown, _name in names)
    return "".join(f"    {shown:{wide}}  {says(name) or OTHERS[name]}\n" for shown, name in names)


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
