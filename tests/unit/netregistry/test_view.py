"""The view: a mirror of the store, by a listing or by commits; what cannot be read is left out and named."""

from __future__ import annotations

import random

from netregistry.local import Local
from netregistry.model import keys
from netregistry.model.claim import Claim
from netregistry.model.nic import Nic
from netregistry.view import View
from tests.support.registry import Registry
from tests.unit.netregistry.test_histories import World


def same(one: View, other: View) -> bool:
    found = [
        [sorted(view.all(kind).items()) for kind in keys.TYPES]
        + [
            sorted(view.groups(name))
            for name in ("network", "instance", "named", "seen", "on", "unheld", "contended", "cluster", "mastered")
        ]
        + [[sorted(view.members(name, *of)) for of in sorted(view.groups(name))] for name in ("network", "instance", "seen", "unheld")]
        + [view.due(Nic, 1e11, 1000), view.due(Claim, 1e11, 1000), view.revision, view.epoch]
        + [[(key, view.at(key)) for kind in keys.TYPES for key in sorted(view.all(kind))]]
        + [list(view.pool("macs", "").longest_freed([(0, 1 << 48)]))]
        for view in (one, other)
    ]
    return found[0] == found[1]


def test_by_commits_as_by_a_listing() -> None:
    world = World(random.Random(3), 2)
    for number in range(1500):
        world.step()
        if number % 100 == 0:
            world.services[0].catch_up()
            assert same(world.services[0].view, Local(world.store, lambda: world.time).view)
    assert len(world.services[0].view.all("nics")) > 2


def test_what_cannot_be_read_is_left_out_and_named(registry: Registry) -> None:
    from netregistry.stores.base import Put

    nic = registry.nic(mac="aa:00:00:00:00:01")
    bad = {f"nics/{nic.uuid}": b"{", "macs/none/x": b"{}", "addresses/none/y": b"{}", "unheard/of": b"\xff"}
    registry.store.commit([], [Put(key, value) for key, value in bad.items()])
    registry.local.catch_up()
    view = registry.local.view
    assert view.nic(nic.uuid) is None and sorted(view.unreadable) == ["addresses/none/y", "macs/none/x", f"nics/{nic.uuid}"]
    assert registry.refused("nic.add", "", {"mac": "aa:00:00:00:00:01"})["kind"] == "taken", "its claim stays"
    registry.nic()
    assert same(view, Local(registry.store, lambda: registry.time).view)
