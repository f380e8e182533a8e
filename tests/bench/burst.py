"""Many NICs at once: so many calls of hooks, by one, two or eight callers that each start the next when theirs has ended."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.bench.nics import Measured
from tests.bench.place import Place, batch
from tests.bench.subjects import BASH, COLD_ONE, WARM_GUARD, WARM_ONE, Subject, there

CALLERS = (1, 2, 8)
SUBJECTS = (BASH, WARM_ONE, WARM_GUARD, COLD_ONE)
MODES = ("bridged", "routed")


class Burst(NamedTuple):
    """NICs per second; CPU milliseconds for each NIC, of a warm hook with the agent's."""

    rate: float
    cpu: float


def called(place: Place, calls: Sequence[tuple[list[str], dict[str, str]]], callers: int, warm: bool) -> Burst:
    """Runs all of them. Raises RuntimeError where one fails."""
    waiting, running, used = list(reversed(calls)), set[int](), 0.0
    place.agent.rested(60)
    place.quiet()
    agent, begin = place.agent_cpu(), time.perf_counter()
    while waiting or running:
        while waiting and len(running) < callers:
            running.add(place.start(*waiting.pop()))
        pid, status, spent = os.wait3(0)
        if pid in running:  # not a daemon of the node's
            running.remove(pid)
            used += spent.ru_utime + spent.ru_stime
            if status:
                raise RuntimeError(f"a hook ended with {os.waitstatus_to_exitcode(status)}: {place.said()}")
    wall = time.perf_counter() - begin
    place.agent.rested(60)
    place.quiet()
    used += place.agent_cpu() - agent if warm else 0.0
    return Burst(len(calls) / wall, used * 1000 / len(calls))


def argv(subject: Subject, nic: Measured, up: bool) -> list[str]:
    return [f"{subject.folder}/kvm-ifup", f"b'{nic.tap}'"] if up else [f"{subject.folder}/kvm-ifdown", nic.tap, "hot-remove"]


def burst(place: Place, nics: Sequence[Measured], subject: Subject, callers: int) -> dict[str, Burst]:
    """All up, and all down, which is done by hand after a script that has no down. Raises RuntimeError."""
    nics = [nic._replace(guard=subject.guard) for nic in nics]
    warm = subject in (WARM_ONE, WARM_GUARD)
    found = {"up": called(place, [(argv(subject, nic, True), nic.variables) for nic in nics], callers, warm)}
    for nic in nics[:: max(len(nics) // 20, 1)]:
        if not there(nic):
            raise RuntimeError(f"{subject.name} has not brought up {nic.tap}: {place.said()}")
    if subject.downs:
        found["down"] = called(place, [(argv(subject, nic, False), nic.variables) for nic in nics], callers, warm)
    else:
        batch([f"link set {nic.tap} {'nomaster ' if nic.mode == 'bridged' else ''}down" for nic in nics])
    return found


def bursts(place: Place, mode: str, count: int, rounds: int) -> dict[str, Any]:
    """For each number of callers and subject: rates and their ratio to Ganeti's, CPU for each NIC.

    The taps are made beforehand, and go with the namespace: one by one the kernel takes 15 ms for each.
    """
    nics = [Measured(mode, number) for number in range(0x20000, 0x20000 + count)]
    batch([f"tuntap add {nic.tap} mode tap" for nic in nics])
    found: dict[tuple[int, str, str], list[Burst]] = {}
    for subject in SUBJECTS:
        burst(place, nics[:20], subject, 2)  # as on a node that has had guests: not counted
    for number in range(rounds):
        for callers in CALLERS:
            for subject in SUBJECTS if number % 2 == 0 else reversed(SUBJECTS):
                for direction, one in burst(place, nics, subject, callers).items():
                    found.setdefault((callers, subject.name, direction), []).append(one)
    told: dict[str, Any] = {}
    for (callers, name, direction), runs in found.items():
        base = found[callers, BASH.name, "up"]
        told.setdefault(str(callers), {}).setdefault(name, {})[direction] = {
            "per second": round(statistics.median(run.rate for run in runs), 1),
            "cpu": round(statistics.median(run.cpu for run in runs), 3),
            "times bash's": round(statistics.median(a.rate / b.rate for a, b in zip(runs, base, strict=True)), 2),
        }
    return told
