"""What the fault suite has tried and found, as lines of JSON, and the table that docs/reliability.md makes of them.

A test calls ``add`` once for each sweep. Nothing is written unless NETCOMMON_FIGURES names a folder: tests/reliability and
``tests/run --full`` set it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

VARIABLE = "NETCOMMON_FIGURES"


class Row(NamedTuple):
    """One kind of fault, and what must come out of it."""

    fault: str
    bar: str


#: The table's rows, in its order, by the name that ``add`` takes.
ROWS: Mapping[str, Row] = {
    "kill": Row(
        "kill -9 at every state-changing system call of up and of down",
        "one `gc`: nothing of ours left, nothing foreign touched; or one `up`: the state of an undisturbed up",
    ),
    "kill-agent": Row("the same, with the agent running instead of `gc`", "converged within 1 s"),
    "guest-killed": Row("a guest killed with SIGKILL, under the agent", "the host is clean within 100 ms of the kernel's event"),
    "host-errors": Row(
        "every host call x every error (EBUSY, ENOBUFS, EEXIST, ENOENT, ENODEV, ESRCH, EPERM, interrupted dump, lost reply), "
        "once and for ever",
        "converges, or rolls back to nothing with the right exit status",
    ),
    "change": Row(
        "a NIC that is up is changed: kill -9 at every state-changing system call, and the kernel's errors, once and for ever",
        "as it was or as it was to become, at the latest after one `repair`; never undone, not by `gc` either",
    ),
    "change-command": Row(
        "`netcommon change` on a guest that sends without a pause, killed or refused in the same way",
        "the same, of what is kept of its options too; silent no more than 50 ms longer than the guest beside it; no frame passes that "
        "both the old rules and the new ones refuse",
    ),
    "power-loss": Row(
        "power loss: every prefix and allowed reordering of the file operations of definitions and settings; "
        "a kill at each of those below /run; a reboot",
        "old content or new, never torn; a record of an earlier boot is known as one; after a reboot the defined NICs come up",
    ),
    "ovs": Row("ovsdb-server or ovs-vswitchd stopped (SIGSTOP) or gone", "the hook is back within its limit; reconciled afterwards"),
    "nftables": Row("nftables slow or locked; netlink socket overrun", "the same; no partial table"),
    "interleavings": Row(
        "up, down, migrate, gc and agent on the same NICs, 16 workers, interleaved",
        "the final state is that of the last winner; no deadlock",
    ),
    "namespaces": Row("two network namespaces with agents that share /run, the same tap names in both", "each touches its own only"),
    "identity": Row(
        "duplicate UUIDs, shifted indices, reused tap names and MACs, the old device's end racing the new one's up",
        "no action on a tap that is not the NIC's",
    ),
    "hostile-input": Row(
        "1,000,000 hostile inputs: environment, records, Ganeti's and Xen's files, settings, OVSDB's replies",
        "a typed error each; no crash, no shell, no path out of the directory",
    ),
    "state-path": Row(
        "symbolic links, hard links, FIFOs, foreign owners, world-writable directories in the state path", "refused, and named"
    ),
    "damaged-records": Row("a record cut off at every byte; 64 MB of record; invalid UTF-8", "in quarantine within 1 s, others unaffected"),
    "resources": Row("ENOSPC, EROFS, EMFILE", "fails before the first change of the kernel; down still cleans"),
    "clock": Row("the clock 10 years off, and running backwards", "no effect"),
    "scripts": Row(
        "a custom script that hangs, forks, ignores SIGTERM, prints 100 MB, closes its descriptors, leaves a daemon that holds stdout",
        "the hook is back within the limit + 2 s, the whole group is gone, the output is capped",
    ),
    "rebuilding": Row(
        "bridges, uplinks, switches with and without their flows, tables, names and nftables taken away and made anew at random, "
        "3 minutes with the agent, 45 s with `repair --all`",
        "every guest connected within 1 s, by its frames; no forged frame leaves but within 100 ms of a flush",
    ),
    "endurance": Row(
        "24 h of random operations compressed (simulated clock and host), and 6,000 on the real kernel",
        "nothing left behind; memory, descriptors and files do not grow",
    ),
}


class Figure(NamedTuple):
    """What one sweep tried and found."""

    row: str
    test: str  #: where it is, as pytest takes it
    tried: int
    found: int
    left: int
    note: str
    every: int = 0


def add(row: str, tried: int, found: int, left: int, note: str = "", every: int = 0) -> None:
    """Notes that a sweep of ``row`` (a key of ROWS) tried so many points, found so many failures, and left so many of them unmended.

    ``note``: what else there is to say in a few words ("median 12 ms, maximum 40 ms"). ``every``: how many points there are, if they
    were not all tried. Raises KeyError for an unknown row.
    """
    known = ROWS[row]
    assert 0 <= left <= found, known
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    os.makedirs(folder, exist_ok=True)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # "tests/fault/test_kill.py::test_it[one] (call)"
    with open(f"{folder}/{os.getpid()}.jsonl", "a") as file:
        file.write(json.dumps(Figure(row, test, tried, found, left, note, every)._asdict()) + "\n")


def collect(folder: Path) -> list[Figure]:
    """The figures below ``folder``, in the order of their tests; of a test that ran twice, those of the later file."""
    files = sorted(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    latest: dict[tuple[str, str, str], Figure] = {}
    for path in files:
        for line in path.read_text().splitlines():
            figure = Figure(**json.loads(line))
            latest[figure.row, figure.test, figure.note] = figure
    return sorted(latest.values(), key=lambda figure: (figure.row, figure.test))


def table(figures: Iterable[Figure], mended: Mapping[str, int]) -> str:
    """The table in Markdown. ``mended``: how many faults of each row were found and mended earlier; they count as found."""
    lines = ["| fault | bar | points tried | failures found | failures left | again |", "| --- | --- | --- | --- | --- | --- |"]
    figures = list(figures)
    for name, row in ROWS.items():
        own = [figure for figure in figures if figure.row == name]
        tried, left = sum(one.tried for one in own), sum(one.left for one in own)
        every = sum(max(one.every, one.tried) for one in own)
        found = sum(one.found for one in own) + mended.get(name, 0)
        files = dict.fromkeys(one.test.partition("::")[0] for one in own)
        again = ", ".join(f"`tests/run --full {_lane(file)}{file}`" for file in files)
        notes = "".join(f"; {note}" for note in dict.fromkeys(one.note for one in own if one.note))
        counts = f"{tried:,}{f' of {every:,}' if every > tried else ''} | {found} | {left}" if own else f"not run | {found} | "
        lines.append(f"| {row.fault} | {row.bar}{notes} | {counts} | {again} |")
    return "\n".join(lines)


def _lane(file: str) -> str:
    """The lane that a file belongs to; what lies in tests/fault may have cases for the virtual machine besides."""
    return f"--lane {'unit' if file.startswith('tests/unit/') else 'fault'} "


def mended(template: str) -> dict[str, int]:
    """How many faults the hand-kept list names for each row: its lines begin with ``| row | ``. Raises KeyError for an unknown row."""
    counts: dict[str, int] = {}
    below = template.partition("## Faults found and mended")[2]
    for line in below.splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        name = cells[0].removeprefix("| ")
        if line.startswith("| ") and name not in ("row", "---"):
            assert ROWS[name], line
            counts[name] = counts.get(name, 0) + 1
    return counts


def document(template: str, figures: Iterable[Figure]) -> str:
    """docs/reliability.md: the template with the table in the place of ``{table}``."""
    return template.replace("{table}", table(figures, mended(template)))
