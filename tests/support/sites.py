"""The sites of examples/sites: their READMEs' own commands are run, so that no README says what does not work.

A fence "```sh node" holds what the administrator does on a node, run by sh in the site's folder. A fence "```console" holds commands
after "# ", each with lines that its output must have among others, in this order.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.bootstrap import ROOT, VENV
from tests.support.netns import mounted_over, run
from tests.support.node import Node

FOLDER = ROOT / "examples/sites"

#: Folders that sites write to besides /etc and /run: empty for each test, and gone after it.
WRITTEN = ("/var/lib", "/var/log")


class Shown(NamedTuple):
    """One command of a console, and the lines that it is to print."""

    command: str
    lines: tuple[str, ...]


class Site:
    """One folder of examples/sites, on the node that the calling thread is in."""

    def __init__(self, name: str) -> None:
        self.folder = FOLDER / name
        self._readme = (self.folder / "README.md").read_text()

    def fences(self, kind: str) -> list[str]:
        """The text of each fence of that kind."""
        parts = self._readme.split("```")
        return [text.partition("\n")[2] for text in parts[1::2] if text.partition("\n")[0] == kind]

    def nics(self) -> dict[str, dict[str, str]]:
        """The variables of each NIC, by the name of its file."""
        files = sorted((self.folder / "nics").glob("*.env"))
        return {file.stem: dict(line.split("=", 1) for line in file.read_text().splitlines()) for file in files}

    def shown(self) -> list[Shown]:
        """The commands of its consoles."""
        found: list[Shown] = []
        for line in "".join(self.fences("console")).splitlines():
            if line.startswith("# "):
                found.append(Shown(line[2:], ()))
            elif line.strip():
                found[-1] = found[-1]._replace(lines=(*found[-1].lines, line))
        return found

    def shell(self, text: str) -> str:
        """Runs commands in the site's folder, with netcommon on the path. Raises AssertionError if one fails."""
        path = f"{VENV}/bin:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return run("env", f"PATH={path}", "sh", "-euc", f"cd '{self.folder}'\n{text}")

    def prepare(self) -> None:
        """What the README says that the administrator does."""
        for text in self.fences("sh node"):
            self.shell(text)

    def look(self) -> None:
        """Runs what the README shows. Raises AssertionError where it prints something else."""
        assert self.shown(), "a README without anything to look at"
        for command, lines in self.shown():
            output = self.shell(command)
            rest = output
            for line in lines:
                assert line.strip() in rest, f"{command} does not print {line.strip()!r}, or not there:\n{output}"
                rest = rest.partition(line.strip())[2]


@contextlib.contextmanager
def placed(name: str, node: Node) -> Iterator[Site]:
    """The site's files are where it puts them on ``node`` until the end."""
    site = Site(name)
    with contextlib.ExitStack() as stack:
        for folder in WRITTEN:
            stack.enter_context(mounted_over(folder, "tmpfs", "mode=0755"))
        stack.callback(_without, site.folder / "etc")
        site.prepare()
        yield site


def _without(copied: Path) -> None:
    """Takes the files that were copied to /etc away: that is a copy of this process's, for all of its tests."""
    for file in copied.rglob("*"):
        target = Path("/etc") / file.relative_to(copied)
        if file.is_file():
            target.unlink(missing_ok=True)
    shutil.rmtree("/etc/netcommon/templates", ignore_errors=True)
