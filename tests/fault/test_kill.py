"""kill -9 before every system call of a hook that changes something: one gc, and nothing of ours is left; or one up, and all is well.

An undisturbed run is traced; each change in it is a moment. At each moment a hook is killed and the node then set right in three ways:
by gc while the tap lives, by gc after the tap has gone, and by an up. The node is full of an administrator's own things, none of
which may move. A default run tries one moment of each door in each case, a full run all of them in all three ways; in the virtual
machine, where a hook takes seconds, each in one of them, in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from tests.kernel.test_doors_parallel import collect
from tests.support import figures
from tests.support.cases import CASES, NAMES, Host, stored
from tests.support.killing import DOORS, Door, moments
from tests.support.netns import slowness
from tests.support.sample import DRAWN, FULL
from tests.support.snapshot import diff, snapshot

Way = Callable[[Host], list[str]]


def by_gc(host: Host) -> list[str]:
    """While the tap lives. A down killed before it had written a word leaves a NIC that is up: then gc has nothing to do."""
    collect()
    if stored() == host.record:
        found = host.unlike_whole()
        host.down()
        return found + diff(host.bare, snapshot())
    return diff(host.bare, snapshot())


def by_gc_without_tap(host: Host) -> list[str]:
    host.unplug()
    collect()
    return diff(host.empty, snapshot())


def by_up(host: Host) -> list[str]:
    """The up of the next start."""
    host.plug()
    host.up()
    found = host.unlike_whole() + diff(host.record, stored())
    host.down()
    collect()
    return found + diff(host.bare, snapshot())


WAYS: Mapping[str, Way] = {"gc": by_gc, "gc without tap": by_gc_without_tap, "up": by_up}


def ways(door: Door) -> list[str]:
    """All there are after the door."""
    return [way for way in WAYS if not (door.gone and way == "gc")]


@pytest.mark.no_agent("kills the hook's own process, and gc finds what it left")
@pytest.mark.parametrize("case", NAMES)
def test_kill(case: str, host: Host) -> None:
    tries, every, failures = 0, 0, []
    doors = list(DOORS.items())[: 1 if slowness() > 1 and not FULL else None]  # a hook takes seconds in the virtual machine
    for turn, (name, door) in enumerate(doors, list(CASES).index(case)):
        points = list(itertools.product(moments(host, case, name), ways(door)))
        every += len(points)
        if not DRAWN or slowness() > 1:  # one way after each moment, in turn
            count = len(ways(door))
            points = [points[place + (turn + place // count) % count] for place in range(0, len(points), count)]
        for moment, way in points:
            tries += 1
            door.before(host)
            failed = door.killed(host, moment)
            wrong = [failed] if failed else WAYS[way](host)
            if wrong:
                failures.append((name, str(moment), way, wrong))
                host.plug()
                host.up()  # the next point begins as this one did
                host.down()
    figures.add("kill", tries, len(failures), len(failures), every=every)
    assert failures == []
