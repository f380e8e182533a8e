"""mockcloud [NODES]: 2,000 nodes with 10,000 NICs on this machine, all of them the real code, in some minutes; or as many as you say.

One command on a fresh Debian 12, as root, from a clone. It installs what it needs (nothing is started), then works in a folder of its own:
a registry's service, and a mock cloud of so many nodes in one process, with an instance of five NICs on each. A quarter of the nodes is cut
off, and comes back; the registry is killed, and started again; every fourth instance migrates. It says how far it is, and what converged
when. When it ends the folder is gone, and nothing else of the machine was touched. Exit status 0: all of it was as it should be.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NODES, LEAST, MOST = 2000, 4, 4000
MEMORY = "/dev/shm"  # noqa: S108 - a folder of its own is made there; the registry need not wait for a disk


def main(arguments: list[str]) -> int:
    """Set up, and play the story; give the exit status."""
    from examples.demolib.show import Failed
    from tests.support.bootstrap import SetupFailed, setup

    nodes = _number(arguments)
    if nodes is None:
        wanted = bool(arguments) and set(arguments) <= {"-h", "--help"}
        print(__doc__, file=sys.stdout if wanted else sys.stderr)
        return 0 if wanted else 64
    if os.geteuid() != 0:
        sys.exit("mockcloud: needs root, whose alone a registry's files are")
    try:
        setup(["environment"])
    except SetupFailed as error:
        sys.exit(f"mockcloud: {error}")
    from examples.mockcloudlib.story import play

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # the folder goes all the same
    try:
        with tempfile.TemporaryDirectory(prefix="mockcloud-", dir=_place()) as folder:
            play(ROOT, Path(folder), nodes)
    except Failed:
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _place() -> str | None:
    """Give where the folder is to be; None for the usual place, TMPDIR."""
    return MEMORY if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) else None


def _number(arguments: list[str]) -> int | None:
    """Read how many nodes there are to be; None for what is no such number."""
    if not arguments:
        return NODES
    text = arguments[0] if len(arguments) == 1 else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 and LEAST <= int(text) <= MOST else None
