"""Let things happen to the instances of a mock cloud, step by step: those that cover every task, and others that are drawn by a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.sysinfo import node_uuid

PAIR = ({"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"})
ONE = ({"network": "blue", "link": "br1"},)


class Step(NamedTuple):
    """One thing that happens, and its words."""

    words: str
    work: Callable[[Instances], object]


def at(number: int) -> str:
    return node_uuid(number)


def prepare(cloud: MockCloud, nodes: int) -> None:
    cloud.create(nodes)
    cloud.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})


#: Every task, on three nodes.
COVERING: Sequence[Step] = (
    Step("create web1 on 1", lambda i: i.create("web1", at(1), PAIR, ["netcommon:0:rate_in:8mbit"])),
    Step("start web1", lambda i: i.start("web1")),
    Step("create web2 on 2", lambda i: i.create("web2", at(2), PAIR)),
    Step("start web2", lambda i: i.start("web2")),
    Step("plug web1", lambda i: i.plug("web1", ONE[0])),
    Step("change web1/0", lambda i: i.change("web1", 0, {"isolated": "yes", "mcast_flood": "no"})),
    Step("change web1/1", lambda i: i.change("web1", 1, {"rp_filter": "loose"})),
    Step("update web2/0", lambda i: i.update("web2", 0, {"link": "br1"}, ["a", "b"])),
    Step("migrate web1 to 2", lambda i: i.migrate("web1", at(2))),
    Step("migrate web2 to 3, which fails", lambda i: i.migrate("web2", at(3), fail=True)),
    Step("unplug web1/0", lambda i: i.unplug("web1", 0)),
    Step("reboot web2", lambda i: i.reboot("web2")),
    Step("failover web2 to 1", lambda i: i.failover("web2", at(1))),
    Step("crash web1", lambda i: i.crash("web1")),
    Step("start web1", lambda i: i.start("web1")),
    Step("unplug web1/1, with kvm-ifdown", lambda i: i.unplug("web1", 1, ifdown=True)),
    Step("stop web2, with kvm-ifdown", lambda i: i.stop("web2", ifdown=True)),
    Step("start web2", lambda i: i.start("web2")),
    Step("stop web1", lambda i: i.stop("web1")),
    Step("delete web1", lambda i: i.delete("web1")),
)


def drawn(seed: int, nodes: int, length: int) -> list[Step]:
    """Draw a history of instances on so many nodes: each step is one that can be done there."""
    chance, found = Random(seed), list[Step]()
    states = dict[str, str]()
    places, numbers = dict[str, int](), dict[str, int]()
    for _ in range(length):
        name = f"vm{chance.randrange(1, nodes + 1)}"
        state = states.get(name, "")
        other = chance.choice([number for number in range(1, nodes + 1) if number != places.get(name)])
        if not state:
            nics = chance.choice([PAIR, ONE])
            states[name], places[name], numbers[name] = "stopped", other, len(nics)
            found.append(Step(f"create {name} on {other}", lambda i, n=name, o=other, c=nics: i.create(n, at(o), c)))  # type: ignore[misc]
            continue
        words = ["start", "delete"] if state != "running" else ["migrate", "fail", "plug", "change", "reboot", "crash", "stop", "failover"]
        word = chance.choice(words)
        index, more = chance.randrange(numbers[name]), chance.choice(ONE + PAIR)
        if word == "plug" and numbers[name] > 5:
            continue
        works: dict[str, Callable[[Instances], object]] = {
            "start": lambda i, n=name: i.start(n),  # type: ignore[misc]
            "delete": lambda i, n=name: i.delete(n),  # type: ignore[misc]
            "migrate": lambda i, n=name, o=other: i.migrate(n, at(o)),  # type: ignore[misc]
            "fail": lambda i, n=name, o=other: i.migrate(n, at(o), fail=True),  # type: ignore[misc]
            "plug": lambda i, n=name, m=more: i.plug(n, m),  # type: ignore[misc]
            "change": lambda i, n=name, x=index: i.change(n, x, {"rate_in": f"{x + 1}mbit"}),  # type: ignore[misc]
            "reboot": lambda i, n=name: i.reboot(n),  # type: ignore[misc]
            "crash": lambda i, n=name: i.crash(n),  # type: ignore[misc]
            "stop": lambda i, n=name: i.stop(n),  # type: ignore[misc]
            "failover": lambda i, n=name, o=other: i.failover(n, at(o)),  # type: ignore[misc]
        }
        found.append(Step(f"{word} {name}/{index} {other}", works[word]))
        states[name] = {"start": "running", "delete": "", "crash": "crashed", "stop": "stopped"}.get(word, state)
        if word in ("migrate", "failover"):
            places[name] = other
        numbers[name] += word == "plug"
    return found
