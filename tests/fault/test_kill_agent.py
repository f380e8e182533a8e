"""kill -9 of a hook at every change, with the agent running: it finds out by itself, and within a second all is well.

Three ways from there: the tap stays, and what the hook was at is undone; the tap goes too; or the NIC comes up again at once, and the agent
takes nothing from it.
"""

from __future__ import annotations

import statistics
import time

import pytest

from tests.kernel.test_doors_parallel import collect
from tests.support import figures, strace
from tests.support.agent import Agent, Watched, agent, contention, watched
from tests.support.cases import Host, network, sampled, stored
from tests.support.killing import DOORS, Door, moments
from tests.support.netns import slowness
from tests.support.sample import DRAWN
from tests.support.snapshot import diff

LIMIT = 1.0  #: seconds until the agent has set it right
WAYS = ("tap stays", "tap goes", "up again")
SAMPLED = ("routed6", "spoof-guarded openvswitch", "custom-script")  #: cases of a default run


def settled(seen: Watched) -> bool:
    """No record tells of a hook on its way, or of a device that is gone."""
    view = seen.node.host.view()
    return all(record.state == "up" and view.link_at(record.ifindex) for record in seen.records.values())


def converged(seen: Watched, running: Agent, since: float) -> float:
    """Waits until all is settled: seconds since then. Raises AssertionError."""
    while not settled(seen):
        states = [(each.device, each.state) for each in seen.records.values()]
        assert time.monotonic() - since < 20 * slowness(), f"not settled: {states}\n{running.output}"
        time.sleep(0.002)
    return time.monotonic() - since


def differing(host: Host, up: bool) -> list[str]:
    """How the node differs from what it should be, but for our own files: a killed hook's temporary ones stay for a minute."""
    if up:
        return [line for line in host.unlike_whole() if " files: " not in line] + diff(host.record, stored())
    before = host.bare if host.tap else host.empty
    return diff({**before, "nft": sorted(before["nft"]), "files": []}, {**network(), "files": []})


def tried(host: Host, door: Door, moment: strace.Moment, way: str, running: Agent, seen: Watched) -> tuple[float, list[str]]:
    """Kills the hook, and waits for the agent: seconds that it took, and what is then wrong."""
    door.before(host)
    running.rested()
    wrong = door.shot(host, moment)
    if wrong:
        return 0.0, [wrong]
    if way == "tap goes":
        host.unplug()
    if way == "up again":
        host.plug()
        host.up()
    took = converged(seen, running, time.monotonic())
    return took, differing(host, "tap0" in seen.records or way == "up again")


def clean(host: Host, running: Agent) -> None:
    """The next point begins as this one did."""
    host.plug()
    host.down()
    running.rested()
    collect()


@pytest.mark.no_agent("starts agents of its own")
@pytest.mark.parametrize("case", sampled(SAMPLED))
def test_kill_agent(case: str, host: Host) -> None:
    # where the tap has gone, the agent is before any hook
    plan = [(name, moment) for name, door in DOORS.items() if not door.gone for moment in moments(host, case, name)]
    tries, failures, times = 0, [], []
    shift = SAMPLED.index(case) if case in SAMPLED else 0
    all_ways = DRAWN and slowness() == 1  # else one after each moment, in turn: a hook takes seconds in the virtual machine
    with agent() as running, watched() as seen:
        for turn, (name, moment) in enumerate(plan):
            door = DOORS[name]
            for way in WAYS if all_ways else [WAYS[(turn + shift) % len(WAYS)]]:
                tries += 1
                took, wrong = tried(host, door, moment, way, running, seen)
                times.append(took)
                if took > LIMIT * slowness() and took > LIMIT * slowness() * contention():  # which takes a while to say
                    wrong.append(f"only after {took:.2f} s")
                if wrong:
                    failures.append((name, str(moment), way, wrong))
                clean(host, running)
    note = f"{case}: median {1000 * statistics.median(times):.0f} ms, maximum {1000 * max(times):.0f} ms"
    figures.add("kill-agent", tries, len(failures), len(failures), note, every=len(plan) * len(WAYS))
    assert failures == []
