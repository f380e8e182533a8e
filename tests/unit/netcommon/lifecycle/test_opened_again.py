"""A NIC that is up, told to end while its device is shut: the guest has its network again before the call ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from netcommon.lifecycle import batch
from netcommon.lifecycle.check import check, repair
from runtime.errors import Interrupted
from runtime.nic import Nic
from runtime.record import CHANGING, UP
from tests.support.sample import sample
from tests.support.sim import UUIDS, Killed, Mortal, Sim, nic
from tests.support.told_to_end import Lines, at_request

#: What a NIC was, and what it was to become by a change that was killed.
MOVED = {
    "bridge": (nic("bridged"), nic("bridged", LINK="br1")),
    "VLAN": (nic("bridged, access"), nic("bridged, access", VLAN=".30")),
    "OVS": (nic("openvswitch, guarded"), nic("openvswitch, guarded", VLAN=".30")),
}

#: What brings a NIC back whose change was cut off.
BACK: dict[str, Callable[[Sim, Nic], object]] = {
    "repair": lambda sim, _after: repair(sim.node, UUIDS[0], sim.call()),
    "up": lambda sim, after: sim.up(after),
}


def killed(folder: Path, before: Nic, after: Nic, life: int) -> Sim | None:
    """Give a node on which a change was killed at its step ``life``; None where it was done by then."""
    sim = Sim(str(folder))
    sim.up(before)
    with Mortal(sim, life), suppress(Killed):
        sim.up(after)
        return None
    return sim


def is_up(sim: Sim) -> bool:
    link = sim.host.kernel.named("tap0")
    return link is not None and link.up


@pytest.mark.parametrize("by", BACK)
@pytest.mark.parametrize("moved", MOVED)
def test_the_way_back_of_a_change_that_was_cut_off(tmp_path: Path, moved: str, by: str) -> None:
    """Wherever it was cut off, and whichever of its requests the signal comes before."""
    before, after = MOVED[moved]
    lives = []
    for life in count():
        sim = killed(tmp_path / f"{life}", before, after, life)
        if sim is None:
            break
        if [record.state for record in sim.records()] == [CHANGING] and is_up(sim):
            lives.append(life)
        sim.close()
    assert lives
    came = 0
    for life in sample(lives, 2):
        for number in count():
            sim = killed(tmp_path / f"{life}-{number}", before, after, life) or pytest.fail("it was not killed")
            with at_request(sim.host, number) as told, suppress(Interrupted):
                BACK[by](sim, after)
            assert is_up(sim), (life, number)
            came += told()
            if not told():
                break
            repair(sim.node, UUIDS[0], sim.call())
            assert sim.record().state == UP
            sim.close()
    assert came > 3


def unplugged(sim: Sim) -> None:
    link = sim.host.kernel.links[sim.index("tap0")]
    sim.host.kernel.links[link.index] = link._replace(master=0)


def renamed(sim: Sim) -> None:
    link = sim.host.kernel.links[sim.index("tap0")]
    sim.host.kernel.links[link.index] = link._replace(name="guest1")


def in_another_bridge(sim: Sim) -> None:
    link = sim.host.kernel.links[sim.index("tap0")]
    sim.host.kernel.links[link.index] = link._replace(master=sim.index("br1"))


DRIFTS = {
    "unplugged": ("bridged, access", unplugged),
    "in another bridge": ("bridged", in_another_bridge),
    "renamed": ("openvswitch, guarded", renamed),
}


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with others"])
@pytest.mark.parametrize("drift", DRIFTS)
def test_repair_at_any_line(tmp_path: Path, drift: str, together: bool) -> None:
    """At which its device is shut."""
    mode, does = DRIFTS[drift]

    def mended(name: str, at: int = -1) -> Lines:
        sim = Sim(str(tmp_path / name))
        sim.up(nic(mode))
        index = sim.index("tap0")
        does(sim)
        node, call, links = sim.node, sim.call(), sim.host.kernel.links
        with Lines(at, lambda: not links[index].up) as lines, suppress(Interrupted):
            if together:
                list(batch.repair_all(node, [UUIDS[0]], lambda _record: call))
            else:
                repair(node, UUIDS[0], call)
        assert links[index].up and sim.record().state == UP, lines.where
        repair(sim.node, UUIDS[0], sim.call())
        assert check(sim.node, sim.host.view(), sim.record()).good, lines.where
        sim.close()
        return lines

    lines = mended("whole")
    assert lines.count > 0 and not lines.where
    for at in sample(range(lines.count), 12, 500):
        assert mended(f"{at}", at).where
