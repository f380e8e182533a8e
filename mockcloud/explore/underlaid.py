"""Give some of the scenarios that are drawn an underlay: name servers that are away, nodes that are fenced, and forgotten, so that their
prefixes are given to others.

By a generator of its own: whatever is drawn here, the other steps of a seed are the same, and seeds without an underlay are as they were.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

from mockcloud.scenarios.file import Step

if TYPE_CHECKING:
    from mockcloud.scenarios.file import Scenario

EVERY, THESE = 7, (0, 4)  #: of so many seeds those that have one, by the remainder
PREFIX, ZONE, PREFIXES = "fd12:3456:789a::/60", "hosts.example.com", 16  #: /64s that are in it
LASTS = 0.5, 20.0  #: seconds of a fault
#: What goes wrong beside the rest, and how often.
WRONG = {"names": 3, "fence": 2, "forget": 3}


def has_one(seed: int) -> bool:
    """Tell whether the scenario of a seed has an underlay."""
    return seed % EVERY in THESE


def underlaid(seed: int, scenario: Scenario) -> Scenario:
    """Give a scenario an underlay, and what may go wrong with one."""
    chance = Random(f"underlay {seed}")
    given = _underlay(chance, scenario.nodes)
    kinds = chance.choice((["console"], ["console"], ["console", "exporter"]))
    last = max((step.at for step in scenario.steps), default=0.0)
    more = [
        wrong(chance, kind, scenario.nodes)._replace(at=round(chance.uniform(0.0, last), 2))
        for kind in chance.choices(list(WRONG), list(WRONG.values()), k=chance.randint(1, 3))
    ]
    steps = sorted((*scenario.steps, *more), key=lambda step: step.at)
    return scenario._replace(settings=f"{scenario.settings}endpoints = {json.dumps(kinds)}\n", underlay=given, steps=tuple(steps))


def _underlay(chance: Random, nodes: int) -> dict[str, Any]:
    """Draw an underlay: of some all prefixes are given, so that one which was given back is the next."""
    rests = {"minimum_age": chance.choice((1.0, 4.0, 12.0)), "ttl": chance.choice((1, 3, 8))}
    others = chance.choice((0, PREFIXES - nodes, PREFIXES - nodes))
    return {"prefix": PREFIX, "zone": ZONE, **rests, "servers": chance.choice((1, 2)), "others": others}


def wrong(chance: Random, kind: str, nodes: int) -> Step:
    """Draw what goes wrong with an underlay: a fault of WRONG."""
    lasts = round(chance.uniform(*LASTS), 2)
    if kind == "names":
        return Step(kind, given={"servers": chance.choice((1, 1, 2)), "lost": chance.choice((0, 0, 1, 3))}, lasts=lasts)
    return Step(kind, nodes=f"mock{chance.randint(1, nodes)}", lasts=lasts)
