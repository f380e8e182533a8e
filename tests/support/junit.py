"""Reads the counts, and which files took the longest, out of a JUnit XML file that pytest wrote."""

from __future__ import annotations

import collections
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple


class Counts(NamedTuple):
    """Of one pytest process. A skipped test counts as failed: this project has none."""

    passed: int
    failed: int


def read(path: Path) -> Counts:
    """The counts; none where pytest was ended before it could write the file."""
    if not path.exists():
        return Counts(0, 0)
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))  # noqa: S314 - pytest's own file
    total = sum(int(suite.get("tests", 0)) for suite in suites)
    failed = sum(int(suite.get(kind, 0)) for suite in suites for kind in ("failures", "errors", "skipped"))
    return Counts(max(total - failed, 0), failed)


def slowest(path: Path, most: int) -> list[tuple[str, float]]:
    """Give the modules whose tests took the longest together, and their seconds; none where pytest was ended before it could write it."""
    spent: dict[str, float] = collections.defaultdict(float)
    if path.exists():
        for case in ElementTree.parse(path).getroot().iter("testcase"):  # noqa: S314 - pytest's own file
            module = ".".join(part for part in case.get("classname", "").split(".") if not part[:1].isupper())
            spent[module] += float(case.get("time", 0))
    return sorted(spent.items(), key=lambda each: -each[1])[:most]
