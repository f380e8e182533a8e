"""Check that what the host lacks for a moment is not lost: VLANs whose uplink leaves or comes late, and whatever waits for an object."""

from __future__ import annotations

import random

import pytest

from netcommon.cli.commands.check import _text
from netcommon.host.api.facts import AF_INET6, DOT1AD, BridgeVlan, Link
from netcommon.host.api.requests import AddVlan, SetLink
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.execute import decode
from netcommon.operations import from_json
from netcommon.operations.base import UnknownKind, Waiting, to_json
from netcommon.operations.sysctl import DeviceSysctl
from netcommon.operations.vlan import UplinkVlan
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, NetcommonError
from tests.support.sim import UUIDS, Mortal, Sim, nic

ACCESS = nic("bridged, access")


def leave(sim: Sim, uplink: str = "eth-brv") -> None:
    sim.host.execute([SetLink(sim.index(uplink), master=0)], stop=True)


def join(sim: Sim, uplink: str = "eth-brv") -> None:
    sim.host.execute([SetLink(sim.index(uplink), master=sim.index("brv"))], stop=True)


def anew(sim: Sim) -> None:
    """ifreload: the bridge is another one, and its ports are put back by whoever does so."""
    sim.host.remove_link("brv")
    sim.host.add_bridge("brv", vlan_filtering=True)


def mend(sim: Sim) -> None:
    """As the agent does it whenever something happens."""
    for record in sim.records():
        if check(sim.node, sim.host.view(), record).drift:
            try:
                repair(sim.node, record.key, sim.call())
            except HostRefused as error:
                sim.lines.append(str(error))


def drift(sim: Sim) -> list[str]:
    return [text for _does, text in check(sim.node, sim.host.view(), sim.record()).drift]


def said(sim: Sim) -> str:
    return _text(check(sim.node, sim.host.view(), sim.record()), ())


def vids(sim: Sim, uplink: str = "eth-brv") -> set[int]:
    return set(sim.host.kernel.vlans.get(sim.index(uplink), ()))


# -- uplinks that come and go


def test_an_uplink_that_leaves_for_a_moment(sim: Sim) -> None:
    sim.up(ACCESS)
    leave(sim)
    mend(sim)
    assert said(sim).endswith("without effect: it waits for an uplink of brv: eth-brv is none now") and drift(sim) == []
    join(sim)
    assert drift(sim) == ["eth-brv does not carry VLAN 10"] and vids(sim) == {1}
    mend(sim)
    assert vids(sim) == {1, 10} and drift(sim) == [] and said(sim).endswith("good")
    sim.down(ACCESS)
    assert vids(sim) == {1} and sim.records() == []


@pytest.mark.parametrize("by", ["repair", "up"])
def test_a_nic_that_comes_up_before_its_bridge_has_an_uplink(sim: Sim, by: str) -> None:
    leave(sim)
    sim.up(ACCESS)
    assert said(sim).endswith("bridge vlan add dev <uplinks of brv> vid 10: without effect: it waits for an uplink of brv")
    sim.requests()
    assert not sim.up(ACCESS).changed and sim.requests() == []
    join(sim)
    assert drift(sim) == ["an uplink of brv is there now"]
    mend(sim) if by == "repair" else sim.up(ACCESS)
    assert vids(sim) == {1, 10} and said(sim).endswith("good")
    sim.down(ACCESS)
    assert vids(sim) == {1} and sim.records() == []


def test_a_nic_that_goes_while_it_waits(sim: Sim) -> None:
    leave(sim)
    before = sim.picture()
    sim.up(ACCESS)
    sim.down(ACCESS)
    assert sim.picture() == before and sim.files() == []


def test_a_bridge_that_is_made_anew(sim: Sim) -> None:
    """The tap is back before the uplink is, or after it."""
    sim.up(ACCESS)
    for first in ("tap", "uplink"):
        anew(sim)
        mend(sim) if first == "tap" else join(sim)
        join(sim) if first == "tap" else mend(sim)
        mend(sim)
        assert vids(sim) == {1, 10} and drift(sim) == [], first
    sim.down(ACCESS)
    assert vids(sim) == {1}


def test_a_vlan_that_the_administrator_put_on_the_bridge_that_was_made_anew_is_his(sim: Sim) -> None:
    sim.up(ACCESS)
    anew(sim)
    join(sim)
    sim.host.execute([AddVlan(sim.index("eth-brv"), BridgeVlan(10))], stop=True)
    mend(sim)
    sim.down(ACCESS)
    assert vids(sim) == {1, 10}


def test_several_uplinks_that_leave(sim: Sim) -> None:
    sim.host.add_link(Link(0, "bond0", "bond", up=True, master=sim.index("brv")))
    sim.up(ACCESS)
    leave(sim)
    assert drift(sim) == ["the uplinks of brv are now bond0"] * 2
    mend(sim)
    leave(sim, "bond0")
    mend(sim)
    join(sim)
    assert drift(sim) == ["the uplinks of brv are now eth-brv"]
    mend(sim)
    assert vids(sim) == {1, 10}
    join(sim, "bond0")
    mend(sim)
    assert vids(sim, "bond0") == {1, 10} and drift(sim) == []
    sim.down(ACCESS)
    assert vids(sim) == vids(sim, "bond0") == {1}


@pytest.mark.parametrize("marks", [True, False])
def test_an_uplink_that_two_nics_leave_for_a_better_one_and_come_back_to(sim: Sim, marks: bool) -> None:
    """The last of them takes its VLAN away, although the other one's tap carries the same."""
    sim.settings = Settings(tap_alias=marks)
    other = nic("bridged, access", INTERFACE_UUID=UUIDS[1], INTERFACE="tap1", INTERFACE_INDEX="1", MAC="52:54:00:00:00:22")
    sim.tap("tap1")
    leave(sim)
    sim.host.add_link(Link(0, "up0", "veth", up=True, master=sim.index("brv")))
    sim.host.add_link(Link(0, "bond0", "bond", up=True))
    for each in (ACCESS, other):
        sim.up(each)
    for _ in range(2):
        join(sim, "bond0")
        mend(sim)
        assert (vids(sim, "up0"), vids(sim, "bond0")) == ({1}, {1, 10})
        leave(sim, "bond0")
        mend(sim)
        assert vids(sim, "up0") == {1, 10}
    for each in (ACCESS, other):
        sim.down(each)
    assert vids(sim, "up0") == {1} and sim.records() == []


def test_an_uplink_that_gets_another_name(sim: Sim) -> None:
    sim.up(ACCESS)
    sim.host.rename_link("eth-brv", "uplink0")
    assert drift(sim) == ["the uplinks of brv are now uplink0"]
    mend(sim)
    assert drift(sim) == []
    sim.down(ACCESS)
    assert 10 not in vids(sim, "uplink0") and sim.records() == []


def test_an_uplink_that_the_settings_name(sim: Sim) -> None:
    sim.settings = Settings(uplinks={"brv": ("eth-brv",)})
    sim.up(ACCESS)
    leave(sim)
    mend(sim)
    assert drift(sim) == [] and "it waits for an uplink of brv" in said(sim)
    join(sim)
    mend(sim)
    assert vids(sim) == {1, 10} and drift(sim) == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_the_bridge_the_vlan_is_there_when_all_is(sim: Sim, seed: int) -> None:
    chance = random.Random(seed)
    sim.host.add_link(Link(0, "bond0", "bond", up=True))
    happens = [
        lambda: leave(sim),
        lambda: join(sim),
        lambda: leave(sim, "bond0"),
        lambda: join(sim, "bond0"),
        lambda: anew(sim),
        lambda: mend(sim),
        lambda: sim.up(ACCESS),
        lambda: sim.host.execute([SetLink(sim.index("tap0"), master=0)], stop=True),
    ]
    sim.up(ACCESS)
    for _ in range(12):
        chance.choice(happens)()
    leave(sim, "bond0")
    join(sim)
    mend(sim)
    carried = sim.host.kernel.vlans
    assert 10 in carried[sim.index("eth-brv")] and carried[sim.index("tap0")] == {10: BridgeVlan(10, True, True)}
    assert said(sim).endswith("good")
    sim.down(ACCESS)
    assert vids(sim) == {1} and sim.records() == []


def test_a_repair_that_is_killed_while_it_gives_the_vlan_to_the_uplink(sim: Sim) -> None:
    """The next one does it, and the last down takes it away, wherever the first one ended."""
    for life in range(1 << 30):
        leave(sim)
        sim.up(ACCESS)
        join(sim)
        with Mortal(sim, life) as process:
            mend(sim)
        mend(sim)
        assert vids(sim) == {1, 10} and drift(sim) == [], life
        sim.down(ACCESS)
        sim.gc()
        assert vids(sim) == {1} and sim.files() == [], life
        if len(process.steps) < life:
            break
    assert life > 5


# -- what else waits


def test_a_setting_that_the_kernel_takes_away_for_a_while(sim: Sim) -> None:
    """A device whose MTU is below 1280 has none of IPv6."""
    wanted = nic("routed, IPv6")
    sim.up(wanted)
    own = {path: value for path, value in sim.host.kernel.settings._values.items() if "/ipv6/conf/tap0/" in path}
    path = next(path for path, value in own.items() if path.endswith("/forwarding") and value == "1")
    for each in own:
        del sim.host.kernel.settings._values[each]
    mend(sim)
    assert drift(sim) == []
    sim.host.kernel.settings._values.update(own | {path: "0"})
    mend(sim)
    assert sim.host.kernel.settings.get(path) == "1" and drift(sim) == []


def test_a_setting_that_is_not_there_yet(sim: Sim) -> None:
    sim.tap("tap5")
    path = "net/ipv6/conf/tap5/accept_ra"
    del sim.host.kernel.settings._values[path]
    planned = DeviceSysctl(AF_INET6, "tap5", "accept_ra", "0")
    (waiting,) = planned.resolve(sim.host.view(), [])
    assert waiting == Waiting(planned, f"/proc/sys/{path}") and waiting.differs(sim.host.view()) == ""
    sim.host.kernel.settings._values[path] = "1"
    assert waiting.differs(sim.host.view()) == f"/proc/sys/{path} is there now"
    for each in [each for each in sim.host.kernel.settings._values if "/ipv6/" in each]:
        del sim.host.kernel.settings._values[each]
    assert planned.resolve(sim.host.view(), []) == []  # a kernel without IPv6 will have none later either


def test_the_guard_of_a_bridge_that_open_vswitch_does_not_have_just_now(sim: Sim) -> None:
    sim.host.add_ovs_bridge("ovs9", system=True)
    sim.up(nic("openvswitch, guarded", LINK="ovs9"))
    for port in [port for port in sim.host.switch.ports() if port.bridge == "ovs9"]:
        sim.host.switch.remove(port.name)
    del sim.host.switch.bridges["ovs9"]
    sim.host.nftables.flush()
    mend(sim)
    assert {"guard-table", "guard"} <= {stored["kind"] for stored in sim.record().operations}
    guarding = [each for each in decode(sim.record())[0] if each.KIND in ("guard-table", "guard")]
    assert [each.differs(sim.host.view()) for each in guarding] == ["", ""]


# -- on record


def test_it_is_stored_as_it_was_planned() -> None:
    planned = UplinkVlan("brv", 10, (), "tap0")
    stored = to_json(Waiting(planned, "an uplink of brv"))
    assert stored == {"kind": "uplink-vlan", "bridge": "brv", "vid": 10, "uplinks": (), "device": "tap0", "waits_for": "an uplink of brv"}
    read = from_json(stored)
    assert read == Waiting(planned, "an uplink of brv") and read.sentence() == planned.sentence() and read != planned
    with pytest.raises(UnknownKind, match="waits_for"):
        from_json(stored | {"waits_for": 7})


# -- other protocols, and what takes a VLAN away


@pytest.mark.parametrize(("vlan", "fits"), [(".10", True), ("", True), (":10", False), (".10:20", False)])
def test_a_bridge_of_8021ad(sim: Sim, vlan: str, fits: bool) -> None:
    """It reads tags of 802.1ad alone: a guest's own are of 802.1Q, which it takes for untagged."""
    sim.host.kernel.links[sim.index("brv")] = sim.host.kernel.links[sim.index("brv")]._replace(protocol=DOT1AD)
    wanted = nic("bridged, access", VLAN=vlan)
    before = sim.picture()
    if fits:
        sim.up(wanted)
        assert said(sim).endswith("good")
    else:
        with pytest.raises(HostRefused, match=r"802\.1ad.*ip link set dev brv type bridge vlan_protocol 802\.1Q") as caught:
            sim.up(wanted)
        assert isinstance(caught.value, NetcommonError) and sim.picture() == before


def test_a_bridge_that_becomes_one_of_8021ad(sim: Sim) -> None:
    sim.up(nic("bridged, hybrid"))
    sim.host.kernel.links[sim.index("brv")] = sim.host.kernel.links[sim.index("brv")]._replace(protocol=DOT1AD)
    assert "bridge brv is 802.1ad now, and takes no tags of 802.1Q" in drift(sim)


def test_a_vlan_interface_that_is_made_after_the_up(sim: Sim) -> None:
    sim.up(ACCESS)
    made = sim.host.add_link(Link(0, "storage", "vlan", vlan=10, lower=sim.index("eth-brv")))
    assert drift(sim) == ["VLAN 10 of eth-brv, uplink of brv, is taken by the VLAN interface storage"]
    with pytest.raises(HostRefused, match="taken by the VLAN interface storage"):
        repair(sim.node, UUIDS[0], sim.call())
    assert 10 in vids(sim)
    sim.host.remove_link(made.name)
    assert drift(sim) == []


def test_a_vlan_interface_of_the_other_protocol(sim: Sim) -> None:
    sim.host.add_link(Link(0, "provider", "vlan", vlan=10, lower=sim.index("eth-brv"), protocol=DOT1AD))
    sim.up(ACCESS)
    assert said(sim).endswith("good")
    sim.down(ACCESS)
    sim.host.kernel.links[sim.index("brv")] = sim.host.kernel.links[sim.index("brv")]._replace(protocol=DOT1AD)
    with pytest.raises(HostRefused, match="taken by the VLAN interface provider"):
        sim.up(ACCESS)


@pytest.mark.parametrize("theirs", [BridgeVlan(10, tunnel=1010), BridgeVlan(10, untagged=True), BridgeVlan(10, pvid=True)])
def test_what_the_administrator_has_put_on_our_vlan_keeps_it(sim: Sim, theirs: BridgeVlan) -> None:
    """A VNI that it is mapped to would go with it."""
    sim.up(ACCESS)
    sim.host.kernel.vlans[sim.index("eth-brv")][10] = theirs
    assert drift(sim) == []
    sim.down(ACCESS)
    assert sim.host.kernel.vlans[sim.index("eth-brv")][10] == theirs and sim.records() == []


def test_what_waits_follows_a_renamed_device() -> None:
    """Else a repair would look for the old name for ever."""
    waiting = Waiting(UplinkVlan("br0", 10), "an uplink of br0")
    assert waiting.renamed("tap0", "tap9") == waiting
    waiting = Waiting(DeviceSysctl(AF_INET6, "tap0", "forwarding", "1"), "an MTU")
    assert waiting.about() == "tap0" and waiting.renamed("tap0", "tap9").about() == "tap9"
    assert waiting.renamed("tap1", "tap9") == waiting
