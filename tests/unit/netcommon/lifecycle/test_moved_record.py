"""A record that was moved aside, whose NIC has come back to the very device: what the NIC has there now is its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.context import locks
from netcommon.lifecycle.down import finish
from tests.support.sim import UUIDS, Sim, nic


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return Sim(str(tmp_path))


@pytest.mark.parametrize("life", ["earlier", "the same"])
def test_what_is_left_of_an_earlier_life(sim: Sim, life: str) -> None:
    """A kill leaves two files of one life, which go together; an earlier life's file goes alone."""
    sim.up(nic("bridged"))
    living, picture = sim.record(), sim.picture()
    node = sim.node
    left = living._replace(moved=True, monotonic=living.monotonic - (100 if life == "earlier" else 0))
    node.store.write(left)
    with locks(node, sim.call()) as held:
        held.devices({left.device})
        held.uuids({left.uuid})
        finish(node, left, sim.call(), held)
    if life == "the same":
        assert sim.records() == [] and sim.picture() == sim.before
    else:
        assert [each.key for each in sim.records()] == [UUIDS[0]] and sim.picture() == picture
        sim.down(nic("bridged"))
        assert sim.picture() == sim.before and sim.records() == []
