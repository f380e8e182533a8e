"""Read the arguments that both programs of the laboratory have: how often, where logs are kept, and where the laboratory is."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence


def parser(program: str, text: str | None) -> argparse.ArgumentParser:
    """Give a parser of these arguments, to which a program adds its own; ``text``: its docstring, whose first line is said of it."""
    made = argparse.ArgumentParser(prog=program, description=(text or "").split("\n")[0])
    made.add_argument("--rounds", type=int, default=3, metavar="N")
    made.add_argument("--out", default="", metavar="FOLDER", help="where logs and state are kept; the nodes have to see it")
    made.add_argument("laboratory", nargs="?", default=os.environ.get("NETCOMMON_LAB", ""), metavar="LABORATORY")
    return made


def given(made: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Read them; ``laboratory`` and ``out``, which is made if need be, are absolute. Ends the program where there is no laboratory."""
    found = made.parse_args(arguments)
    if not os.path.exists(f"{found.laboratory}/lib.sh"):
        made.error("LABORATORY, or the variable NETCOMMON_LAB, is to be a folder with a lib.sh")
    found.laboratory = os.path.abspath(found.laboratory)
    found.out = os.path.abspath(found.out or tempfile.mkdtemp(prefix="netcommon-lab-"))
    os.makedirs(found.out, exist_ok=True)
    return found
