"""Draw long histories of guests that migrate over a few nodes with an underlay, while nodes crash, are fenced, are forgotten and come back.

All prefixes are given at the beginning, and a quarantine lasts some seconds: a prefix that is given back is given out again.
"""

from __future__ import annotations

from mockcloud.explore import underlaid
from mockcloud.explore.drawing import NETWORK, SETTINGS, SETTLE, SIX, Drawing
from mockcloud.scenarios.file import Scenario, Step

NODES = 5
GUESTS = ("web1", "web2", "web3", "web4", "web5", "web6")
#: What an administrator does, and how often.
TASKS = {"migrate": 30, "start": 8, "failover": 6, "stop": 4, "crash": 3, "create": 4, "delete": 2, "reboot": 1}
#: What goes wrong, and how often: in one step of some six.
WRONG = {"partition": 3, "agent": 5, "node": 3, "registry": 2, "copies": 1, "slow": 1, "hook": 1, **underlaid.WRONG}
SHARE = 0.16
SOONEST, LATEST = 0.05, 3.0  #: seconds from one step to the next


def history(seed: int, number: int) -> Scenario:
    """Draw a history of so many steps, beside those in which its guests are made."""
    drawing = Drawing(seed)
    drawing.nodes, drawing.names, drawing.others, drawing.profile = NODES, GUESTS, GUESTS, "plain"
    chance, at = drawing.chance, 0.0
    steps = [Step("create", given=drawing.created(name)) for name in GUESTS]
    for _ in range(number):
        at = round(at + chance.uniform(SOONEST, LATEST), 2)
        among = WRONG if chance.random() < SHARE else TASKS
        (kind,) = chance.choices(list(among), list(among.values()))
        if kind in underlaid.WRONG:
            step = underlaid.wrong(chance, kind, NODES)
        else:
            step = drawing.fault(kind) if kind in WRONG else Step(kind, given=drawing.task(kind))
        steps.append(step._replace(at=at))
    made = Scenario(NODES, "plain", SETTINGS, SETTLE, {"blue": NETWORK, "six": SIX}, tuple(steps))
    found = underlaid.underlaid(seed, made)
    return found._replace(underlay={**found.underlay, "others": underlaid.PREFIXES - NODES})
