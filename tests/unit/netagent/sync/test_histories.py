"""Whatever the network, the agents and the registry do: nothing that lives is reaped, nothing deleted comes back, and everybody agrees."""

from __future__ import annotations

import pytest

from netregistry import state
from tests.support.sample import FULL
from tests.support.sync_world import World

HISTORIES, STEPS = 10_000 if FULL else 300, 150
PARTS = 20


@pytest.mark.parametrize("part", range(PARTS))
def test_every_history_ends_well(part: int) -> None:
    """Migrations, deletions, restarts, restores, fences and partitions; requests lost, repeated and late. The world checks each of them."""
    for seed in range(part, HISTORIES, PARTS):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.heal()
        assert list(world.differences()) == [], f"seed {seed}"
        view = world.registry.local.view
        for node in world.nodes:
            for nic, there in node.taps.items():
                wanted = view.nic(nic)
                if wanted is None or there != "running" or sum(nic in each.taps for each in world.nodes) > 1:
                    continue
                shown = state.shown(view, wanted)
                assert (shown.state, shown.nodes) == ("running", (node.uuid,)), f"seed {seed}: what it left behind elsewhere counts"
