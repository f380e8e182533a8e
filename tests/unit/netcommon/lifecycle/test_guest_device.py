"""Undo nothing of a guest that may run: by the index of its device, whatever the device is called, and whatever its alias is by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.host.api.facts import Link
from netcommon.host.api.requests import SetLink
from netcommon.lifecycle import inventory
from netcommon.lifecycle.context import alive
from netcommon.lifecycle.guest_device import DATAPATH, may_have_guest
from netcommon.operations.link import down_mark
from runtime.nic import Nic
from tests.support.reaping import GRACE, world
from tests.support.sim import UUIDS, Sim, nic

WAYS = ("never marked", "marked since", "alias taken away", "alias of another")
VIF = Link(0, "vif1.0", "", "fe:ff:ff:ff:ff:ff")
GUARD = {"TAGS": "netcommon:0:spoof_guard"}


def owned(sim: Sim) -> set[str]:
    return {thing.identity for thing in inventory.look(sim.node).owned}


def came_up(sim: Sim, guest: Nic, way: str) -> None:
    """Bring a NIC up whose device bears no mark of ours by now."""
    sim.settings = sim.settings._replace(tap_alias=way not in WAYS[:2])
    sim.up(guest)
    sim.settings = sim.settings._replace(tap_alias=way != "never marked")
    if way not in WAYS[:2]:
        sim.host.kernel.set_link(SetLink(sim.index(guest.interface), alias="customer 7" if way == "alias of another" else ""))


def lost(sim: Sim) -> None:
    Path(sim.paths.state, "nics", f"{UUIDS[0]}.json").unlink()


class TestRenamed:
    """A NIC on record, whose device is called otherwise."""

    @pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch", "ext"])
    @pytest.mark.parametrize("way", WAYS)
    def test_it_is_its_own_by_the_index(self, sim: Sim, mode: str, way: str) -> None:
        came_up(sim, nic(mode, **GUARD), way)
        sim.host.rename_link("tap0", "guest0")
        before = owned(sim)
        assert sim.gc() == [] and alive(sim.node, sim.host.view(), sim.record()) and owned(sim) == before

    @pytest.mark.parametrize("way", WAYS)
    def test_a_vif_too(self, sim: Sim, way: str) -> None:
        """Xen renames it where the guest's configuration has a vifname."""
        sim.host.add_link(VIF)
        came_up(sim, nic("bridged", INTERFACE="vif1.0", **GUARD), way)
        sim.host.rename_link("vif1.0", "guest0")
        assert sim.gc() == [] and sim.records()

    def test_no_script_of_the_site_runs_for_a_guest_that_runs(self, sim: Sim) -> None:
        """Its script sets the NIC up, so no operation is on record."""
        sim.up(nic("ext"))
        record = sim.record()
        assert not record.operations
        sim.node.store.write(record._replace(nic=record.nic._replace(mode="bridged")))
        sim.host.rename_link("tap0", "guest0")
        assert sim.gc() == [] and sim.records()

    @pytest.mark.parametrize("alias", ["", "customer 7", f"{UUIDS[1]} web2/0", down_mark(UUIDS[0])])
    @pytest.mark.parametrize("kind", ["dummy", "tun"])
    def test_what_is_certainly_another_s_is_not_its_own(self, sim: Sim, kind: str, alias: str) -> None:
        """A device that is no tap can be made with any index; a mark names its NIC."""
        sim.up(nic("bridged", **GUARD))
        index = sim.index("tap0")
        sim.host.remove_link("tap0")
        sim.host.add_link(Link(0, "other0", kind, alias=alias, holders=1 if kind == "tun" else -1), index)
        its = kind == "tun" and alias in ("", "customer 7")
        assert alive(sim.node, sim.host.view(), sim.record()) == its
        assert [found.action for found in sim.gc()] == ([] if its else ["removed"])

    def test_the_index_of_an_earlier_boot_tells_nothing(self, sim: Sim) -> None:
        sim.up(nic("bridged"))
        sim.node.store.write(sim.record()._replace(boot="of another"))
        sim.host.rename_link("tap0", "guest0")
        assert [found.action for found in sim.gc()] == ["removed"]


class TestLost:
    """A NIC whose record is lost."""

    @pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch"])
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("renamed", [False, True])
    def test_what_is_of_a_device_in_use_stays(self, sim: Sim, mode: str, way: str, renamed: bool) -> None:
        came_up(sim, nic(mode, **GUARD), way)
        lost(sim)
        if renamed and mode == "bridged":
            sim.host.rename_link("tap0", "guest0")
        before = owned(sim)
        assert before and {found.action for found in sim.gc()} == {"kept"} and owned(sim) == before
        sim.host.remove_link("guest0" if renamed and mode == "bridged" else "tap0")
        sim.gc()
        assert owned(sim) == set()

    @pytest.mark.parametrize("mode", ["bridged", "openvswitch"])
    @pytest.mark.parametrize("device", ["vif1.0", "guest0"])
    def test_a_vif_is_in_use_as_long_as_it_is_there(self, sim: Sim, mode: str, device: str) -> None:
        sim.host.add_link(VIF._replace(name=device))
        came_up(sim, nic(mode, INTERFACE=device, **GUARD), "never marked")
        lost(sim)
        before = owned(sim)
        assert before and {found.action for found in sim.gc()} == {"kept"} and owned(sim) == before
        sim.host.remove_link(device)
        sim.gc()
        assert owned(sim) == set()

    @pytest.mark.parametrize("way", WAYS)
    def test_what_is_of_a_tap_that_nobody_holds_goes(self, sim: Sim, way: str) -> None:
        sim.host.add_tap("tap9", persistent=True)
        came_up(sim, nic("bridged", INTERFACE="tap9", **GUARD), way)
        lost(sim)
        sim.gc()
        assert owned(sim) == set()

    def test_what_is_of_its_device_stays_though_another_of_the_name_is_on_record(self, sim: Sim) -> None:
        """The record that has the name tells nothing of the device that has it by now."""
        came_up(sim, nic("bridged", **GUARD), "never marked")
        record = sim.record()
        lost(sim)
        sim.node.store.write(record._replace(nic=record.nic._replace(uuid=UUIDS[1]), ifindex=99, operations=()))
        before = owned(sim)
        sim.gc()
        assert owned(sim) == before

    def test_the_agent_says_once_what_stays(self) -> None:
        with world() as made:
            made.sim.settings = made.sim.settings._replace(tap_alias=False)
            made.on_up(0)
            made.sim.settings = made.sim.settings._replace(tap_alias=True)
            (Path(made.sim.paths.state) / "nics" / f"{made.nic(0).uuid}.json").unlink()
            before = made.owned().keys()
            for _ in range(4):
                made.reap()
                made.now += GRACE
            said = [line for line in made.sim.lines if "kept: " in line]
            assert before and made.owned().keys() == before
            assert len(said) == len(before) and all("netcommon adopt" in line for line in said)


@pytest.mark.parametrize(
    ("link", "may"),
    [
        (Link(1, "tap0", "tun", "fe:00:00:00:00:01", holders=1), True),
        (Link(1, "tap0", "tun", "fe:00:00:00:00:01", holders=0), False),
        (Link(1, "tap0", "tun", "fe:00:00:00:00:01", alias=f"{UUIDS[0]} web1/0", holders=0), False),
        (Link(1, "vpn0", "tun", "", holders=1), False),
        (Link(1, DATAPATH, "tun", "fe:00:00:00:00:01", holders=1), False),
        (Link(1, "ovs0", "tun", "fe:00:00:00:00:01", holders=1), False),
        (Link(1, "macvtap0", "macvtap", "52:54:00:00:00:01"), True),
        (VIF._replace(index=1), True),
        (VIF._replace(index=1, name="guest0"), True),
        (Link(1, "eth0", "", "52:54:00:00:00:01"), False),
        (Link(1, "br0", "bridge", "52:54:00:00:00:01"), False),
    ],
)
def test_whatever_may_be_a_guest_s_is_told_by_its_sort(sim: Sim, link: Link, may: bool) -> None:
    assert may_have_guest(sim.host.view(), link) == may
