"""mockcloud explore: a search for faults by scenarios drawn from seeds."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from mockcloud.cli.opened import not_empty
from mockcloud.cli.output import answer
from mockcloud.cli.scenarios import VIOLATED, scratch
from mockcloud.explore.drawing import draw
from mockcloud.explore.exploring import explore
from mockcloud.scenarios.writing import text
from netcommon.cli.output import json_option, say
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mockcloud.explore.exploring import Found

MOST = 1_000_000_000  #: the highest seed


@click.command("explore")
@click.option("--seeds", type=int, default=100, show_default=True, metavar="NUMBER", help="How many seeds are tried.")
@click.option("--from", "first", type=int, default=1, show_default=True, metavar="SEED", help="Which one is the first.")
@click.option("--minutes", type=float, default=10.0, show_default=True, metavar="NUMBER", help="After how many minutes no other is begun.")
@click.option(
    "--save", "folder", default="", metavar="FOLDER", callback=not_empty, help="Write the scenario file of each violation there too."
)
@click.option("--draw", "only", is_flag=True, help="Print the scenario of the first seed as it is drawn, and run nothing.")
@json_option
def explore_(seeds: int, first: int, minutes: float, folder: str, only: bool, as_json: bool) -> None:
    """Search for faults: run short scenarios that are drawn from seeds, and shrink each that violates something.

    A scenario has at least three nodes, a migration and a fault. What is violated is printed with the fewest steps that do it, as a
    scenario file: mockcloud run --seed runs it again, with the seed that its first line names.

    Exit status 1 if something was violated.
    """
    for variable, value, least, most in (("--seeds", seeds, 1, MOST), ("--from", first, 0, MOST), ("--minutes", minutes, 0, 1e6)):
        if not least <= value <= most:
            raise NicInvalid(variable, f"{value:g}", f"a number from {least:g} to {most:g}")
    if only:
        say(text(draw(first)).rstrip("\n"))
        return
    if folder:
        _made(folder)
    end = time.monotonic() + 60.0 * minutes
    number, found = 0, list[dict[str, Any]]()
    with scratch() as root:
        for _seed, one in explore(range(first, first + seeds), root, lambda: time.monotonic() < end):
            number += 1
            if one is not None:
                found.append(_document(one))
                if folder:
                    _save(folder, one)
                if not as_json:
                    say(found[-1]["scenario"].rstrip("\n") + "\n")
    if as_json:
        answer("explore", seeds=number, first=first, found=found)
    else:
        say(f"{number} seeds from {first} on, {len(found)} of them with violations")
    if found:
        raise SystemExit(VIOLATED)


def _document(one: Found) -> dict[str, Any]:
    last = one.last.violations or one.result.violations
    said = [each._asdict() for each in last]
    return {"seed": one.seed, "steps": len(one.scenario.steps), "runs": one.runs, "violations": said, "scenario": _file(one)}


def _file(one: Found) -> str:
    """Give the scenario as a file, with what it violates in comments."""
    violation = (one.last.violations or one.result.violations)[0]
    said = f"# --seed {one.seed}: {violation.when}, at {violation.at:g} s: {violation.text}"
    return f"{''.join(each if each.isprintable() else ' ' for each in said)}\n{text(one.scenario)}"


@contextmanager
def _into(folder: str) -> Iterator[None]:
    """Say what cannot be written into a folder. Raises HostRefused."""
    try:
        yield
    except OSError as error:
        raise HostRefused(f"cannot write into {escaped(folder)}: {error.strerror}") from None


def _made(folder: str) -> None:
    """Make the folder for what is found, before it is searched for. Raises HostRefused where nothing can be written into it."""
    with _into(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


def _save(folder: str, one: Found) -> None:
    with _into(folder):
        Path(folder, f"seed-{one.seed}.toml").write_text(_file(one), encoding="utf-8")


COMMANDS = {"explore": explore_}
