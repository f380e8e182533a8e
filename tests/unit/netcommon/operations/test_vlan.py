"""VLANs of taps and uplinks on a simulated node: the default one, which ports are uplinks, and when an uplink's VLAN goes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from netcommon.host.api.facts import BridgeVlan, Link
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddVlan, DeleteVlan, Request, SetLink
from netcommon.lifecycle.check import check, repair
from netcommon.operations.vlan import PortVlans, UplinkVlan
from runtime.errors import HostRefused, NetcommonError
from tests.support.sim import Sim, nic

DEFAULT = "netcommon:0:default_vlan"
UNTAGGED = BridgeVlan(1, pvid=True, untagged=True)


def tap_vlans(sim: Sim) -> list[BridgeVlan]:
    return sorted(sim.host.kernel.vlans[sim.index("tap0")].values())


def uplink_vids(sim: Sim, uplink: str = "eth-brv") -> set[int]:
    return set(sim.host.kernel.vlans[sim.index(uplink)])


@pytest.mark.parametrize(
    ("vlan", "tags", "expected"),
    [
        (".10", "", [BridgeVlan(10, True, True)]),
        (".10", DEFAULT, [BridgeVlan(1, untagged=True), BridgeVlan(10, True, True)]),
        (":10:20", "", [BridgeVlan(10), BridgeVlan(20)]),
        (":10:20", DEFAULT, [UNTAGGED, BridgeVlan(10), BridgeVlan(20)]),
        (".1:10", DEFAULT, [UNTAGGED, BridgeVlan(10)]),
        (":1:10", DEFAULT, [BridgeVlan(1), BridgeVlan(10)]),  # asked for by name: tagged
        ("", "", [UNTAGGED]),  # as Ganeti's own script: the NIC is in the default VLAN
        ("", DEFAULT, [UNTAGGED]),
    ],
)
def test_the_default_vlan(sim: Sim, vlan: str, tags: str, expected: list[BridgeVlan]) -> None:
    wanted = nic("bridged, access", VLAN=vlan, TAGS=tags)
    sim.up(wanted)
    assert tap_vlans(sim) == expected
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.requests()
    assert not sim.up(wanted).changed and sim.requests() == []
    sim.down(wanted)
    assert sim.picture() == sim.before


def test_a_bridge_without_a_default_vlan_has_none_to_keep(sim: Sim) -> None:
    sim.host.add_bridge("brw", vlan_filtering=True, default_pvid=0)
    sim.up(nic("bridged, access", LINK="brw", TAGS=DEFAULT))
    assert tap_vlans(sim) == [BridgeVlan(10, True, True)]


@pytest.mark.parametrize("leaves", ["its VLAN", "its bridge"])
def test_a_port_that_cannot_leave_its_vlan_comes_into_no_other(sim: Sim, leaves: str) -> None:
    """At no moment: with the bridge's default VLAN beside its own a guest would join two networks. What is left is tried again."""
    wanted = nic("bridged, access", VLAN=".10:20")
    sim.up(wanted)
    tap, seen = sim.index("tap0"), list[set[int]]()

    def fail(request: Request) -> Answer | None:
        seen.append({vlan.vid for vlan in sim.host.view().vlans(tap)})
        return Answer(errno.EBUSY, "busy") if isinstance(request, DeleteVlan) and (request.index, request.vid) == (tap, 10) else None

    sim.host.fail = fail
    with pytest.raises(NetcommonError):
        if leaves == "its bridge":
            sim.down(wanted, "hot-remove")
        else:
            sim.up(nic("bridged, access", VLAN=""))
    seen.append({vlan.vid for vlan in sim.host.view().vlans(tap)})
    assert all(not {1, 10} <= each for each in seen), seen
    sim.host.fail = lambda _request: None
    sim.down(wanted, "hot-remove")
    assert sim.picture() == sim.before


def test_it_says_what_it_does() -> None:
    assert PortVlans("tap0", "brv", 0, (20,), True).describe() == "bridge vlan on tap0: 20, <the default VLAN>"
    known = PortVlans("tap0", "brv", 0, (20,), True, ifindex=5, default=1)
    assert known.describe() == "bridge vlan on tap0: 20, 1 pvid untagged"


def uplinks_of(sim: Sim, *named: str) -> list[str]:
    made = UplinkVlan("brv", 10, named, "tap0").resolve(sim.host.view(), [])
    return [one.port for one in made if isinstance(one, UplinkVlan)]


def test_uplinks_are_what_leads_outside(sim: Sim) -> None:
    """No taps (persistent, or of other programs), no Xen guests, no other guests' veths, nothing that has no other side."""
    brv = sim.index("brv")
    sim.host.add_tap("mytap", master=brv, persistent=True)
    for name, kind in (("vif3.0", ""), ("veth7", "veth"), ("dummy0", "dummy"), ("ifb0", "ifb")):
        sim.host.add_link(Link(0, name, kind, master=brv))
    assert uplinks_of(sim) == ["eth-brv"]
    for name, kind in (("bond0", "bond"), ("vxlan7", "vxlan"), ("eth9.5", "vlan")):
        sim.host.add_link(Link(0, name, kind, master=brv))
    assert uplinks_of(sim) == ["eth-brv", "bond0", "vxlan7", "eth9.5"]
    assert uplinks_of(sim, "veth7") == ["veth7"]
    with pytest.raises(HostRefused, match="eth77, in the settings an uplink of brv, is no port of it"):
        uplinks_of(sim, "eth77")


def test_a_bridge_that_leads_nowhere_has_no_uplinks(sim: Sim) -> None:
    sim.host.remove_link("eth-brv")
    sim.host.add_link(Link(0, "dummy0", "dummy", master=sim.index("brv")))
    assert uplinks_of(sim) == []


def test_a_vlan_interface_below_a_bond(sim: Sim) -> None:
    """It gets the frames before the bond and the bridge do."""
    bond = sim.host.add_link(Link(0, "bond0", "bond", master=sim.index("brv")))
    lower = sim.host.add_link(Link(0, "eth5", ""))
    sim.host.kernel.links[lower.index] = lower._replace(master=bond.index, port_kind="bond")
    sim.host.add_link(Link(0, "storage", "vlan", vlan=10, lower=lower.index))
    before = sim.picture()
    with pytest.raises(HostRefused, match="VLAN 10 of bond0, uplink of brv, is taken by the VLAN interface storage"):
        sim.up(nic("bridged, access"))
    assert sim.picture() == before
    sim.up(nic("bridged, access", VLAN=".11"))


def put(sim: Sim, device: str, bridge: str = "brv", vid: int = 10) -> None:
    """Somebody else's port of a bridge in a VLAN."""
    link = sim.tap(device)
    sim.host.execute([SetLink(link.index, master=sim.index(bridge)), AddVlan(link.index, BridgeVlan(vid))], stop=True)


def test_an_uplinks_vlan_stays_for_somebody_elses_port(sim: Sim) -> None:
    sim.up(nic("bridged, hybrid"))
    put(sim, "tap7")
    sim.down(nic("bridged, hybrid"))
    assert uplink_vids(sim) == {1, 10, 20}


def test_an_uplinks_vlan_stays_for_somebody_elses_tap_of_the_same_name(sim: Sim) -> None:
    sim.up(nic("bridged, hybrid"))
    sim.host.remove_link("tap0")
    put(sim, "tap0")
    sim.gc()
    assert uplink_vids(sim) == {1, 10, 20} and sim.records() == []


def test_what_is_on_another_bridge_needs_nothing(sim: Sim) -> None:
    sim.up(nic("bridged, hybrid"))
    put(sim, "tap7", "br0")
    put(sim, "tap8", "brv", 11)
    sim.down(nic("bridged, hybrid"))
    assert uplink_vids(sim) == {1, 20}


def test_several_uplinks_do_not_need_it_for_each_other(sim: Sim) -> None:
    sim.host.add_link(Link(0, "eth-two", "", up=True, master=sim.index("brv")))
    sim.up(nic("bridged, access"))
    assert uplink_vids(sim) == {1, 10, 20} and uplink_vids(sim, "eth-two") == {1, 10}
    sim.down(nic("bridged, access"))
    assert uplink_vids(sim) == {1, 20} and uplink_vids(sim, "eth-two") == {1}


def test_an_uplinks_vlan_stays_while_something_is_in_quarantine(sim: Sim) -> None:
    """A record that cannot be read may need it."""
    sim.up(nic("bridged, access"))
    kept = Path(sim.paths.state, "quarantine")
    kept.mkdir()
    (kept / "00000009-0000-4000-8000-000000000009.json.1.0").write_text("?")
    sim.down(nic("bridged, access"))
    assert uplink_vids(sim) == {1, 10, 20} and sim.records() == []
    assert any("kept, shared with whoever is in quarantine: bridge vlan add dev eth-brv vid 10" in line for line in sim.lines)
    os.unlink(kept / "00000009-0000-4000-8000-000000000009.json.1.0")
    sim.up(nic("bridged, access", VLAN=".11"))
    sim.down(nic("bridged, access", VLAN=".11"))
    assert uplink_vids(sim) == {1, 10, 20}


def test_a_record_of_an_earlier_version_gives_the_vlan_back(sim: Sim) -> None:
    """It names neither its tap nor the other uplinks; the tap is gone with its guest."""
    sim.up(nic("bridged, access"))
    record = sim.record()
    for stored in record.operations:
        if stored["kind"] == "uplink-vlan":
            assert isinstance(stored, dict) and stored.pop("device") == "tap0" and stored.pop("ways") == ["eth-brv"] and stored.pop("tap")
    sim.node.store.write(record)
    sim.host.kernel.delete_vlan(sim.index("eth-brv"), 10)
    assert repair(sim.node, record.key, sim.call()).changed and uplink_vids(sim) == {1, 10, 20}
    sim.host.remove_link("tap0")
    sim.gc()
    assert uplink_vids(sim) == {1, 20} and sim.records() == []


SECOND = {"INTERFACE": "tap1", "INTERFACE_UUID": "00000007-0000-4000-8000-000000000007", "INSTANCE": "web7", "MAC": "aa:00:00:00:00:07"}


@pytest.mark.parametrize("first_down", ["tap0", "tap1"])
def test_an_uplink_that_joins_between_two_nics(sim: Sim, first_down: str) -> None:
    """The first NIC's check tells of it, its repair takes the VLAN there over too, and the last of both removes it, in either order."""
    one, two = nic("bridged, access"), nic("bridged, access", **SECOND)
    sim.tap("tap1")
    sim.up(one)
    sim.host.add_link(Link(0, "eth-two", "", up=True, master=sim.index("brv")))
    report = check(sim.node, sim.host.view(), sim.record())
    assert [text for _, text in report.drift] == ["the uplinks of brv are now eth-brv, eth-two"]
    sim.up(two)
    assert repair(sim.node, sim.record().key, sim.call()).changed
    assert not any(check(sim.node, sim.host.view(), record).drift for record in sim.records())
    first, last = (one, two) if first_down == "tap0" else (two, one)
    sim.down(first)
    assert uplink_vids(sim) == {1, 10, 20} and uplink_vids(sim, "eth-two") == {1, 10}
    sim.down(last)
    assert uplink_vids(sim) == {1, 20} and uplink_vids(sim, "eth-two") == {1}


def test_an_uplink_that_the_first_nic_never_learned_of_keeps_no_other_from_being_given_back(sim: Sim) -> None:
    one, two = nic("bridged, access"), nic("bridged, access", **SECOND)
    sim.tap("tap1")
    sim.up(one)
    sim.host.add_link(Link(0, "eth-two", "", up=True, master=sim.index("brv")))
    sim.up(two)
    sim.down(one)
    sim.down(two)
    assert uplink_vids(sim) == {1, 20} and uplink_vids(sim, "eth-two") == {1}


def test_what_was_owed_keeps_no_vlan_from_quarantine(sim: Sim) -> None:
    """A damaged file of what is owed is no NIC's that is up: it is put aside under a name that tells, and gc has nothing to say of it."""
    sim.up(nic("bridged, access"))
    owed = Path(sim.paths.state, "owed")
    owed.mkdir(mode=0o700)
    (owed / "00000009-0000-4000-8000-000000000009.5.json").write_text("{")
    (owed / "00000009-0000-4000-8000-000000000009.5.json").chmod(0o600)
    assert sim.gc() == [] and not list(owed.iterdir())
    (aside,) = Path(sim.paths.state, "quarantine").iterdir()
    assert aside.name.startswith("owed-00000009-") and aside.read_text() == "{"
    sim.down(nic("bridged, access"))
    assert uplink_vids(sim) == {1, 20}
    assert sim.gc() == []
