"""What the hooks cost, in one run: ours warm and cold, with and without the spoof guard, Ganeti 3.0.2's script, the kernel alone.

All take turns, NIC by NIC, in namespaces of their own, so ratios hold on a busy machine too; times do not. Writes docs/performance.md
and its plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.bench import bulk, burst, growth, latency, lookup, page, ratios
from tests.bench.nics import BRIDGE, KERNEL, SWITCH, SWITCHED
from tests.bench.place import prepared
from tests.support.bootstrap import say
from tests.support.node import fresh
from tests.support.ovs import OpenVswitch


class Extent(NamedTuple):
    """How much of each is measured. ``idle``: an idle agent too, which takes minutes."""

    rounds: int
    burst: int
    burst_rounds: int
    present: tuple[int, ...]
    growth_rounds: int
    bulk: int
    bulk_rounds: int
    idle: bool
    routed: tuple[int, ...]
    lookup_rounds: int


FULL = Extent(41, 500, 2, (0, 100, 1000, 5000), 31, 500, 5, True, (10, 100, 1000, 5000), 31)
SAMPLE = Extent(7, 20, 1, (0, 100), 5, 50, 2, False, (10, 100), 5)


def latencies(extent: Extent) -> dict[str, Any]:
    found = {}
    for switched, modes in ((False, KERNEL), (True, SWITCHED)):
        with prepared(switched) as place:
            for mode in modes:
                say(f"one NIC after the other: {mode}")
                before = place.served()
                found[mode] = latency.summary(latency.measured(place, mode, extent.rounds))
                if place.served() - before != 4 * (extent.rounds + 2):  # up and down of two subjects
                    raise RuntimeError("not all of the warm hooks came to the agent")
    return found


def bursts(extent: Extent) -> dict[str, Any]:
    found = {}
    for mode in burst.MODES:
        say(f"{extent.burst} NICs at once: {mode}")
        with prepared() as place:
            found[mode] = burst.bursts(place, mode, extent.burst, extent.burst_rounds)
    return found


def grown(extent: Extent) -> dict[str, Any]:
    found = {}
    for mode in growth.MODES:
        say(f"with {', '.join(str(count) for count in extent.present)} NICs present: {mode}")
        with prepared() as place:
            found[mode] = growth.growth(place, mode, extent.present, extent.growth_rounds, extent.idle)
    return found


def bulked(extent: Extent) -> list[dict[str, Any]]:
    found = []
    for mode in bulk.MODES:
        say(f"{extent.bulk} NICs in one process: {mode}")
        with fresh() as node:  # without an agent, which would look at each of them at the same time
            node.bridge(BRIDGE)
            found.append(bulk.measure(mode, extent.bulk, extent.bulk_rounds, False))
    say(f"{extent.bulk} NICs in one process: {bulk.OPENVSWITCH}")
    with fresh(), OpenVswitch.started() as switch:
        switch.bridge(SWITCH)
        found.append(bulk.measure(bulk.OPENVSWITCH, extent.bulk, extent.bulk_rounds, False))
    return found


def looked_up(extent: Extent) -> dict[str, Any]:
    say(f"route lookups with {', '.join(str(count) for count in extent.routed)} routed NICs")
    return lookup.lookups(extent.routed, extent.lookup_rounds)


PARTS: dict[str, Callable[[Extent], Any]] = {"latency": latencies, "bursts": bursts, "growth": grown, "bulk": bulked, "lookup": looked_up}


def managed(name: str, work: Callable[[], None]) -> bool:
    """Does it; says what could not be measured, if so."""
    try:
        work()
    except (RuntimeError, AssertionError) as error:
        print(f"tests/bench/run: {name}: {error}", file=sys.stderr)
        return False
    return True


def machine() -> dict[str, Any]:
    """Where and when; enough to judge, nothing that names the machine."""
    cores = len(os.sched_getaffinity(0))
    return {
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "cores": cores,
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def main(arguments: Sequence[str]) -> int:
    """The command line; exit status 0, or 1 where something could not be measured."""
    parser = argparse.ArgumentParser(prog="tests/bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="few rounds and few NICs: about a minute, to see that it works")
    parser.add_argument("--json", default="", metavar="FILE", help="all figures")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this; may be repeated. No page, but with --from-json")
    parser.add_argument("--ratios", action="store_true", help="only measure and store what tests/bench/test_ratios.py compares with")
    parser.add_argument("--from-json", default="", metavar="FILE", help="the page of an earlier run's figures; --part is measured anew")
    options = parser.parse_args(arguments)
    if options.ratios:
        return int(not managed("ratios", lambda: ratios.store(ratios.measured(ratios.STORED_ROUNDS))))
    begin = time.monotonic()
    extent = SAMPLE if options.sample else FULL
    told: dict[str, Any] = {"sample": options.sample, "extent": extent._asdict(), "machine": machine()}
    names = options.part or list(PARTS)
    if options.from_json:
        with open(options.from_json, encoding="utf-8") as file:
            told = json.load(file)
        extent = SAMPLE if told["sample"] else FULL  # as the others' of that page
        names = options.part or []
        told["apart"] = [name for name in PARTS if name in (*told.get("apart", ()), *names)]
    # where one part fails the others are measured all the same: each takes long
    parts = [managed(name, lambda name=name: told.update({name: PARTS[name](extent)})) for name in names]  # type: ignore[misc]
    told.setdefault("seconds", round(time.monotonic() - begin))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
    if not all(parts):
        return 1
    if options.part and not options.from_json:
        print(json.dumps(told, indent=1))
    else:
        page.write(told)
        say(f"{page.PAGE} and its plots are written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
