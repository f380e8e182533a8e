"""The static entry of a guest's address where the guest has two devices: Xen's paravirtual one, and the emulated twin of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.check import check
from runtime.errors import HostRefused
from runtime.nic import Nic
from tests.support.sim import UUIDS, Sim, nic

TWIN = UUIDS[5]


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    made = Sim(str(tmp_path))
    made.tap("tap0-emu")
    return made


def device() -> Nic:
    return nic("bridged", TAGS="netcommon:*:static_fdb")


def twin() -> Nic:
    return device()._replace(uuid=TWIN, interface="tap0-emu", index=None)


def entry(sim: Sim) -> int:
    found = sim.host.view().fdb_entry(sim.index("br0"), device().mac, 0)
    assert found is not None
    return found.index


def test_the_paravirtual_device_keeps_it(sim: Sim) -> None:
    before = sim.picture()
    sim.up(device())
    sim.up(twin())
    assert entry(sim) == sim.index("tap0")
    assert all(check(sim.node, sim.host.view(), record).good for record in sim.records())
    sim.down(twin())
    assert entry(sim) == sim.index("tap0")
    sim.down(device())
    assert sim.picture() == before


def test_the_paravirtual_device_takes_it_over(sim: Sim) -> None:
    sim.up(twin())
    assert entry(sim) == sim.index("tap0-emu")
    sim.up(device())
    assert entry(sim) == sim.index("tap0") and any("it is taken over" in line for line in sim.lines)
    sim.down(device())
    sim.down(twin())
    assert sim.records() == []


def test_another_guests_address_is_refused(sim: Sim) -> None:
    sim.up(device())
    other = nic("bridged", TAGS="netcommon:*:static_fdb", INTERFACE="tap0-emu", INTERFACE_UUID=TWIN, INSTANCE="web2")
    with pytest.raises(HostRefused, match="has a static entry on tap0, another port of br0"):
        sim.up(other)


@pytest.mark.parametrize("sticky", [True, False])
def test_an_entry_that_was_replaced_since_stays(sim: Sim, sticky: bool) -> None:
    """Ours is sticky, and goes; an administrator's plain static entry in its place is not ours to delete."""
    sim.up(device())
    entries = sim.host.kernel.bridge_ports.entries
    key = next(key for key, found in entries.items() if found.mac == device().mac)
    entries[key] = entries[key]._replace(sticky=sticky)
    change(sim.node, device().uuid, sim.call(), setting(sim.node, {"static_fdb": "no"}, ()))
    found = sim.host.view().fdb_entry(sim.index("br0"), device().mac, 0)
    assert (found is None) == sticky
