"""Runs the whole fault suite and writes docs/reliability.md: ``tests/reliability [--page-only]``.

Every point of every sweep in tests/fault, file by file, and those that need it in the virtual machine. Stopped and called again on the
same tree it goes on where it was; what ``tests/run --full`` has passed counts too. --page-only runs nothing: the page says what has
been run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import bootstrap, figures, lanes, progress, vm
from tests.support.bootstrap import ROOT, SetupFailed, say

TEMPLATE = ROOT / "tests/fault/reliability.template.md"
PAGE = ROOT / "docs/reliability.md"
FOLDER = "tests/fault"
MACHINE = "vm tests/fault"  #: the part that runs in the virtual machine


def suite() -> dict[str, lanes.Result]:
    """Runs what has not passed on this tree yet."""
    options = lanes.Options(True, ())
    expression = lanes.marks(options, "vm", "bench")
    return {
        "fault": lanes.grouped(options, "fault", [FOLDER], expression, 900, lanes.AT_ONCE["fault"]),
        "vm": machine(options),
    }


def machine(options: lanes.Options) -> lanes.Result:
    """The suite's cases for the virtual machine."""
    done = state()
    for part in ("vm", MACHINE):  # the whole lane, or this suite's part of it
        before = done.passed(part)
        if before is not None:
            say(f"{part}: {before} passed earlier")
            return lanes.Result(before, 0)
    noting = options._replace(figures=done.emptied(MACHINE))
    result = lanes.judged(*vm.boot("vm", [FOLDER], noting.environment, 3600))
    if not result.failed:
        done.remember(MACHINE, result.passed)
    return result


def state() -> progress.Progress:
    """What has passed on this tree."""
    return progress.Progress(ROOT, bootstrap.cache() / "full")


def write_page(folder: Path) -> None:
    """docs/reliability.md from the template and the figures below ``folder``."""
    PAGE.write_text(figures.document(TEMPLATE.read_text(), figures.collect(folder)))
    say(f"written: {PAGE.relative_to(ROOT)}")


@contextmanager
def page_at_the_end() -> Iterator[None]:
    """Whatever happens, the page says what was run."""
    try:
        yield
    finally:
        write_page(state().figures)


def main(arguments: list[str]) -> int:
    """Exit status 0 where every point held, 1 where one did not, 69 where the machine could not be set up."""
    parser = argparse.ArgumentParser(prog="tests/reliability", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page-only", action="store_true", help="only write the page, from the figures there are")
    if parser.parse_args(arguments).page_only:
        write_page(state().figures)
        return 0
    if os.geteuid() != 0:
        print("tests/reliability: needs root", file=sys.stderr)
        return 69
    try:
        bootstrap.setup(["environment", "kernel", "vm"])
        before = lanes.footprint()
        with page_at_the_end():
            results = suite()
    except SetupFailed as error:
        print(f"tests/reliability: {error}", file=sys.stderr)
        return 69
    results["guard"] = lanes.guard(before)
    return lanes.report({name: (result, 0.0) for name, result in results.items()})
