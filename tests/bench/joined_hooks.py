"""What a registry costs a cold hook: a node that has joined one beside the same node without, NIC by NIC in turn."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runtime.paths import Paths
from tests.bench.latency import through
from tests.bench.place import Place, Spent
from tests.bench.subjects import COLD_ONE, Subject
from tests.support.joined import said

#: What the registry wants of each NIC: None on a node without one. The NICs' tag says the same as the option.
CASES: Mapping[str, Mapping[str, str] | None] = {"none": None, "joined": {}, "option": {"spoof_guard": "off"}}


class Dearer(NamedTuple):
    """By how much a hook costs more than without a registry in the same round, round by round."""

    wall: tuple[float, ...]  #: milliseconds
    cpu: tuple[float, ...]
    part: tuple[float, ...]  #: of the processor's time without


def measured(place: Place, mode: str, rounds: int, subject: Subject = COLD_ONE) -> dict[str, Dearer]:
    """Give the figures by "CASE, up" and "CASE, down"; every case is first in turn. Two rounds before are not counted."""
    found: dict[str, list[Spent]] = {}
    for number in range(-2, rounds):
        names = list(CASES)
        turned = number % len(names)
        for name in (*names[turned:], *names[:turned]):
            shutil.rmtree(Paths().wanted, ignore_errors=True)
            options = CASES[name]
            before = None if options is None else lambda nic, options=options: said(nic.uuid, options)
            for direction, spent in through(place, mode, subject, checked=number == -1, before=before).items():
                if number >= 0:
                    found.setdefault(f"{name}, {direction}", []).append(spent)
    shutil.rmtree(Paths().wanted, ignore_errors=True)
    return {key: dearer(samples, found[f"none, {key.split(', ')[1]}"]) for key, samples in found.items() if not key.startswith("none")}


def dearer(samples: Sequence[Spent], without: Sequence[Spent]) -> Dearer:
    """Subtract, round by round, what a hook costs without a registry."""
    pairs = list(zip(samples, without, strict=True))
    wall, cpu = (tuple(one[field] - other[field] for one, other in pairs) for field in (0, 1))
    return Dearer(wall, cpu, tuple(more / other.cpu for more, (_one, other) in zip(cpu, pairs, strict=True)))


def text(found: Mapping[str, Dearer]) -> str:
    """Say medians and quartiles, a line for each case and direction."""
    lines = []
    for key, more in found.items():
        (low, middle, high), cpu = statistics.quantiles(more.wall, n=4), statistics.median(more.cpu)
        lines.append(f"{key}: {middle:+.2f} ms ({low:+.2f} to {high:+.2f}), of CPU {cpu:+.2f}, {statistics.median(more.part):+.1%}")
    return "\n".join(lines)
