"""Fuzzes the guard: python -m tests.support.fuzz --frames 1000000 --seed 1 --mode bridged [--setting NAME] [--without-guard].

Needs root: it makes namespaces of its own. Prints what has been found, and ends with 1 if that is anything.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.support import inside
from tests.support.attacks import NO_GUARD
from tests.support.fuzz import facts
from tests.support.fuzz.fuzz import EXAMPLES, Fuzz
from tests.support.fuzz.place import ALL_SETTINGS, MODES, made
from tests.support.netns import PRIVATE
from tests.support.node import fresh
from tests.support.processor import pinned


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    words = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--frames", type=int, default=100_000)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--mode", choices=MODES, default="bridged")
    words.add_argument("--setting", choices=ALL_SETTINGS, default="no switch", help="the switches of tests/support/attacks.py")
    words.add_argument("--trunk", action="store_true", help="an access VLAN and a trunk (openvswitch)")
    words.add_argument("--without-guard", action="store_true", help="what the fuzz finds where nothing is guarded")
    words.add_argument("--examples", type=int, default=EXAMPLES, help="frames that are made small, for each way to break a rule")
    chosen = words.parse_args(argv)
    if not os.environ.get(PRIVATE):
        wrapped = inside.wrapped(sys.executable, [sys.executable, "-m", "tests.support.fuzz", *argv])
        os.execvp(wrapped[0], wrapped)
    with pinned(), fresh() as node, made(node, chosen.mode, chosen.trunk) as place:
        setting = ALL_SETTINGS[chosen.setting]
        place.up(setting if not chosen.without_guard else NO_GUARD)
        if chosen.without_guard:
            place.facts = facts.of(setting, chosen.mode)
        fuzz = Fuzz(place, chosen.seed)
        start = time.monotonic()
        result = fuzz.run(chosen.frames, chosen.examples)
        print(f"{chosen.mode}, {setting.name}, seed {chosen.seed}: {result.sent / (time.monotonic() - start):.0f} frames/s")
        print(result)
        return int(bool(result.violations or result.missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
