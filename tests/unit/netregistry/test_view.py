"""The view: a mirror of the store, by a listing or by commits; what cannot be read is left out and named."""

from __future__ import annotations

import random

from netregistry.local import Local
from netregistry.model import keys
from netregistry.model.claim import Claim
from netregistry.model.nic import Nic
from netregistry.stores.base import Put
from netregistry.view import View
from tests.support.registry import Registry
from tests.unit.netregistry.test_histories import World


def same(one: View, other: View) -> bool:
    found = [
        [sorted(view.all(kind).items()) for kind in keys.TYPES]
        + [
            sorted(view.groups(name))
            for name in ("network", "instance", "named", "seen", "on", "unheld", "contended", "used", "kept", "cluster", "mastered")
        ]
        + [[sorted(view.members(name, *of)) for of in sorted(view.groups(name))] for name in ("network", "instance", "seen", "unheld")]
        + [view.due(Nic, 1e11, 1000), view.due(Claim, 1e11, 1000), view.revision, view.epoch]
        + [[(key, view.at(key)) for kind in keys.TYPES for key in sorted(view.all(kind))]]
        + [list(view.pool("macs", "").longest_freed([(0, 1 << 48)])), view.pool("macs", "").count(0, 1 << 48)]
        for view in (one, other)
    ]
    return found[0] == found[1]


def test_by_commits_as_by_a_listing() -> None:
    world = World(random.Random(3), 2)
    most = 0
    for number in range(1500):
        world.step()
        if number % 100 == 0:
            world.services[0].catch_up()
            assert same(world.services[0].view, Local(world.store, lambda: world.time).view)
            most = max(most, len(world.services[0].view.all("nics")))
    assert most > 2


def test_what_cannot_be_read_is_left_out_and_named(registry: Registry) -> None:
    nic = registry.nic(mac="aa:00:00:00:00:01")
    bad = {f"nics/{nic.uuid}": b"{", "macs/none/x": b"{}", "addresses/none/y": b"{}", "unheard/of": b"\xff"}
    registry.store.commit([], [Put(key, value) for key, value in bad.items()])
    registry.local.catch_up()
    view = registry.local.view
    assert view.nic(nic.uuid) is None and sorted(view.unreadable) == ["addresses/none/y", "macs/none/x", f"nics/{nic.uuid}"]
    assert registry.refused("nic.add", "", {"mac": "aa:00:00:00:00:01"})["kind"] == "taken", "its claim stays"
    registry.nic()
    assert same(view, Local(registry.store, lambda: registry.time).view)


def test_nothing_is_written_over_what_cannot_be_read(registry: Registry) -> None:
    """Refuse it: who has an address may have it by that, and it would be given out again."""
    blue = registry.network()
    one, reserved = registry.nic(network=blue, allocate=["ipv4"]), "192.0.2.9"
    damaged = [f"addresses/{blue}/{one.ip}", f"macs/{blue}/{one.mac}", f"addresses/{blue}/{reserved}"]
    registry.store.commit([], [Put(key, b'{"holder":7}') for key in damaged])
    registry.local.catch_up()
    assert registry.nic(network=blue, allocate=["ipv4"]).ip == "192.0.2.2"
    for action, target, body in (
        ("nic.add", "", {"network": blue, "ip": one.ip}),
        ("nic.add", "", {"network": blue, "mac": one.mac}),
        ("claim.reserve", damaged[2], {"reason": "printer"}),
    ):
        problem = registry.refused(action, target, body)
        assert problem["kind"] == "unavailable" and problem["key"] in damaged and "restore" in problem["detail"]
    registry.do("nic.delete", one.uuid)
    assert all(registry.everything()[key] == b'{"holder":7}' for key in damaged)


def test_a_ledger_that_cannot_be_read_is_not_begun_anew(registry: Registry) -> None:
    """Requests would be numbered from one again, and late copies of what is not remembered be done."""
    blue = registry.network()
    registry.store.commit([], [Put("ledger", b"{")])
    registry.local.catch_up()
    assert registry.refused("network.set", blue, {"mtu": 1400})["key"] == "ledger"
    registry.passes(1e9)
    assert registry.everything()["ledger"] == b"{"
    assert registry.local.view.network(blue) is not None
