"""A device that has got another name, by udev or by hand, stays its NIC's: acted on by index, and called by its name of now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET6, BridgeVlan, Link
from netcommon.host.api.nftables import NETDEV
from netcommon.host.api.requests import AddVlan, SetLink
from netcommon.lifecycle.batch import down_all
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.record_upgrade import backfill
from netcommon.lifecycle.renamed_device import follow
from netcommon.operations.guard.table import EVERY_TABLE, table_of
from netcommon.operations.sysctl import path_of
from netcommon.settings.model import Settings
from runtime.environment import DownHint
from runtime.errors import HostRefused
from runtime.record import CLOSING, REVERTING, SCHEMA, UP
from tests.support.sim import MODES, UUIDS, Sim, nic

NEW = "guest1"


def drift(sim: Sim, key: str = UUIDS[0]) -> list[tuple[str, str]]:
    return list(check(sim.node, sim.host.view(), sim.record(key)).drift)


def renamed(sim: Sim, mode: str = "bridged", **changes: str) -> None:
    sim.up(nic(mode, **changes))
    sim.host.rename_link("tap0", NEW)


def guards(sim: Sim, index: int) -> list[tuple[str, str]]:
    """Tables and devices of the base chains that guard the device of this index."""
    view = sim.host.view()
    chains = [(table, view.nft_chain(NETDEV, table, f"in-{index}")) for table in EVERY_TABLE]
    return [(table, chain.device) for table, chain in chains if chain is not None]


@pytest.mark.parametrize("mode", MODES)
def test_repair_follows_the_name(sim: Sim, mode: str) -> None:
    """Everything is under the new name then, and nothing under the old one; a down leaves nothing."""
    renamed(sim, mode)
    assert ("the device tap0", f"it is called {NEW} now") in drift(sim) and not check(sim.node, sim.host.view(), sim.record()).good
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert drift(sim) == [] and sim.record().device == NEW and not repair(sim.node, UUIDS[0], sim.call()).changed
    known = sim.node.store.by_device(NEW)
    assert known is not None and known.key == UUIDS[0] and sim.node.store.by_device("tap0") is None
    picture = sim.picture()
    assert "tap0" not in {rule.iif for rule in picture["rules"]} | {port.name for port in picture["ovs"]}
    assert "tap0" not in {file.name for file in picture["files"]}
    assert sim.down(DownHint(UUIDS[0], NEW)).changed
    sim.host.rename_link(NEW, "tap0")
    assert sim.picture() == sim.before and sim.files() == []


EACH = [(mode, by) for mode in MODES for by in ("UUID", "gone")]
SOME = [(mode, by) for mode in ("bridged", "routed, table", "openvswitch", "ext") for by in ("new name", "old name", "gc")]


@pytest.mark.parametrize(("mode", "by"), EACH + SOME)
def test_what_is_renamed_is_undone_whole(sim: Sim, mode: str, by: str) -> None:
    """Though nobody has repaired it since."""
    renamed(sim, mode)
    if by in ("gc", "gone"):
        if by == "gc":
            sim.node.store.write(sim.record()._replace(state=CLOSING))
            sim.host.kernel.links[sim.index(NEW)] = sim.host.kernel.links[sim.index(NEW)]._replace(holders=0)
        else:
            sim.host.remove_link(NEW)
        assert [found.action for found in sim.gc()] == ["removed"]
    else:
        named = DownHint(UUIDS[0], NEW) if mode == "ext" else DownHint(device=NEW)  # no mark of ours tells of that one
        hint = {"UUID": DownHint(UUIDS[0]), "new name": named, "old name": DownHint(device="tap0")}[by]
        assert sim.down(hint).changed
    if by == "gone":
        sim.tap("tap0")
    else:
        sim.host.rename_link(NEW, "tap0")
        link = sim.host.kernel.named("tap0")
        assert link is not None
        sim.host.kernel.links[link.index] = link._replace(holders=1)
    after, before = sim.picture(), sim.before
    if by == "gone":
        for one in (after, before):
            one["links"] = {link.name: link._replace(index=0, address="") for link in one["links"].values()}
            one["ports"] = len(one["ports"])
    assert after == before and sim.files() == []


@pytest.mark.parametrize("mode", MODES)
def test_another_up_follows_the_name(sim: Sim, mode: str) -> None:
    renamed(sim, mode)
    sim.up(nic(mode, INTERFACE=NEW))
    assert drift(sim) == [] and sim.record().device == NEW
    assert len(guards(sim, sim.index(NEW))) < 2
    sim.down(DownHint(UUIDS[0], NEW))
    sim.host.rename_link(NEW, "tap0")
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("repaired", ["before", "after", "never"])
@pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch, guarded", "bridged, nfdhcpd"])
def test_a_new_device_of_the_old_name_is_another_nics(sim: Sim, mode: str, repaired: str) -> None:
    """It gets its own, the renamed one keeps its own, and the end of each leaves the other whole."""
    renamed(sim, mode)
    if repaired == "before":
        assert repair(sim.node, UUIDS[0], sim.call()).changed
    sim.tap("tap0")
    other = nic(mode, INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02", IP="10.0.0.9")
    sim.up(other)
    if repaired == "after":
        assert repair(sim.node, UUIDS[0], sim.call()).changed
    if repaired != "never":
        assert drift(sim) == [] and sim.record().device == NEW
    assert drift(sim, UUIDS[1]) == []
    owned = sim.host.view().link("tap0")
    assert owned is not None and owned.alias.startswith(UUIDS[1])
    if repaired == "after":
        assert sim.down(other).changed and drift(sim) == []
        assert sim.down(DownHint(UUIDS[0])).changed
    else:
        assert sim.down(DownHint(UUIDS[0])).changed and drift(sim, UUIDS[1]) == []
        assert sim.down(other).changed
    sim.host.remove_link("tap0")
    sim.host.rename_link(NEW, "tap0")
    assert sim.picture() == sim.before and sim.files() == []


def test_the_old_name_alone_means_the_device_that_has_it_now(sim: Sim) -> None:
    renamed(sim)
    sim.tap("tap0")
    before = sim.picture()
    outcome = sim.down(DownHint(device="tap0"))
    assert not outcome.changed and "the call is about tap0: nothing was done" in outcome.text
    assert sim.picture() == before and sim.record().state == UP


def test_two_that_have_swapped_their_names(sim: Sim) -> None:
    sim.tap("tap1")
    first, second = nic("routed, table"), nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", IP="10.0.0.9")
    sim.up(first)
    sim.up(second)
    for old, new in (("tap0", "x"), ("tap1", "tap0"), ("x", "tap1")):
        sim.host.rename_link(old, new)
    assert sim.down(DownHint(device="tap0")).changed  # the second's
    assert [record.uuid for record in sim.records()] == [UUIDS[0]]
    repair(sim.node, UUIDS[0], sim.call())
    assert drift(sim) == [] and sim.record().device == "tap1"
    sim.down(DownHint(UUIDS[0]))
    assert sim.files() == []


@pytest.mark.parametrize("by_name", [False, True])
def test_the_guard_moves_at_once(sim: Sim, by_name: bool) -> None:
    """In one transaction: it is where its name says then, and in no other table."""
    sim.host.nftables.by_name = by_name
    renamed(sim)
    index = sim.index(NEW)
    assert table_of(NEW) != table_of("tap0") and guards(sim, index) == [(table_of("tap0"), "tap0" if by_name else NEW)]
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert guards(sim, index) == [(table_of(NEW), NEW)] and sim.host.view().nft_table(NETDEV, table_of("tap0")) is None


def test_what_is_killed_on_the_way_is_finished(sim: Sim) -> None:
    """The record names what is under the old name until that is undone."""
    renamed(sim, "routed, table")
    sim.node.store.write(follow(sim.node, sim.host.view(), sim.record()))
    assert any("of the name tap0" in text for _, text in drift(sim))
    assert repair(sim.node, UUIDS[0], sim.call()).changed and drift(sim) == []
    assert "tap0" not in {rule.iif for rule in sim.host.kernel.rules}


def test_without_an_alias_the_index_tells(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path), Settings(service_timeout=2, hook_timeout=5, tap_alias=False))
    renamed(sim, "routed, table")
    assert sim.gc() == [] and repair(sim.node, UUIDS[0], sim.call()).changed and drift(sim) == []
    assert sim.down(DownHint(UUIDS[0], NEW)).changed
    sim.host.rename_link(NEW, "tap0")
    assert sim.picture() == sim.before


def test_a_name_that_no_record_may_hold_is_left_alone(sim: Sim) -> None:
    sim.up(nic())
    sim.host.rename_link("tap0", "a%d")
    assert not check(sim.node, sim.host.view(), sim.record()).good
    assert sim.gc() == [] and sim.record().device == "tap0"


@pytest.mark.parametrize("name", ["*", "a$b", "-x"])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("mode", ["bridged", "routed, table", "openvswitch", "ext"])
def test_a_down_does_not_pass_over_such_a_name(sim: Sim, mode: str, name: str, together: bool) -> None:
    """The device is shut; the record stays for what goes by its name, until it has another one, or has gone."""
    sim.up(nic(mode))
    sim.host.rename_link("tap0", name)
    with pytest.raises(HostRefused, match=re.escape(f"tap0 is called '{name}' now")):
        repair(sim.node, UUIDS[0], sim.call())
    hint = DownHint(UUIDS[0], "tap0")
    with pytest.raises(HostRefused, match=re.escape(f"tap0 is called '{name}' now")):
        if together:
            for _hint, result in down_all(sim.node, [hint], lambda _hint: sim.call("hot-remove")):
                assert isinstance(result, HostRefused)
                raise result
        else:
            sim.down(hint)
    link = sim.host.kernel.named(name)
    assert link is not None and not link.up and sim.record().state == REVERTING
    sim.host.rename_link(name, "tap0")
    assert [found.action for found in sim.gc()] == ["removed"]
    assert sim.picture() == sim.before and sim.files() == []


WANTED = {"TAGS": "netcommon:*:uplink_proxy:both"}


class TestUplinks:
    """Say what stands on an uplink or a bridge that is renamed."""

    def switch(self, sim: Sim, device: str) -> str | None:
        return sim.host.view().sysctl(path_of(AF_INET6, device, "proxy_ndp"))

    @pytest.mark.parametrize("repaired", [False, True])
    @pytest.mark.parametrize("mode", ["routed, IPv6", "routed, all options"])
    def test_nothing_is_left_on_a_renamed_uplink(self, sim: Sim, mode: str, repaired: bool) -> None:
        guest = nic(mode, **WANTED)
        sim.up(guest)
        sim.host.rename_link("eth-br0", "wan0")
        if repaired:
            repair(sim.node, UUIDS[0], sim.call())
            assert drift(sim) == [] and self.switch(sim, "wan0") == "1"
            entries = [one for one in sim.host.kernel.neighbours if one.protocol == 174 and one.index == sim.index("wan0")]
            assert entries
        sim.down(guest)
        sim.host.rename_link("wan0", "eth-br0")
        assert sim.picture() == sim.before and sim.files() == []

    @pytest.mark.parametrize("first", [0, 1])
    def test_who_comes_after_the_renaming_shares_it(self, sim: Sim, first: int) -> None:
        """The first to go leaves the switch to the other; the last one puts it back."""
        guests = (
            nic("routed, IPv6", **WANTED),
            nic("routed, IPv6", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", IP="fd00::9", **WANTED),
        )
        sim.up(guests[0])
        sim.host.rename_link("eth-br0", "wan0")
        sim.tap("tap1")
        sim.up(guests[1])
        sim.down(guests[first])
        assert self.switch(sim, "wan0") == "1"
        sim.down(guests[1 - first])
        assert self.switch(sim, "wan0") == "0" and sim.files() == []

    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("mode", ["routed", "routed, IPv6"])
    def test_who_replaces_it_after_the_renaming_keeps_its_address(self, sim: Sim, mode: str, first: int) -> None:
        """Both have one entry, under two names of its uplink: the last one takes it away."""
        guests = (nic(mode, **WANTED), nic(mode, INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", **WANTED))
        sim.up(guests[0])
        sim.host.rename_link("eth-br0", "wan0")
        sim.tap("tap1")
        sim.up(guests[1])
        entries = [one for one in sim.host.kernel.neighbours if one.protocol == 174 and one.index == sim.index("wan0")]
        sim.down(guests[first])
        assert entries and [one for one in sim.host.kernel.neighbours if one in entries] == entries
        sim.down(guests[1 - first])
        assert not [one for one in sim.host.kernel.neighbours if one in entries] and sim.files() == []

    @pytest.mark.parametrize("mode", ["bridged, access", "bridged, hybrid"])
    @pytest.mark.parametrize("repaired", [False, True])
    def test_a_vlan_of_a_renamed_uplink(self, sim: Sim, mode: str, repaired: bool) -> None:
        guest = nic(mode)
        sim.up(guest)
        sim.host.rename_link("eth-brv", "wan0")
        if repaired:
            repair(sim.node, UUIDS[0], sim.call())
            assert drift(sim) == [] and 10 in sim.host.kernel.vlans[sim.index("wan0")]
        sim.down(guest)
        sim.host.rename_link("wan0", "eth-brv")
        assert sim.picture() == sim.before and sim.files() == []

    def test_who_came_with_an_earlier_version_keeps_its_address(self, sim: Sim) -> None:
        """That one knew the uplink's entry by the uplink's name alone; the upgrade tells the rest."""
        guests = (nic("routed", **WANTED), nic("routed", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", **WANTED))
        sim.up(guests[0])
        sim.node.store.owners.release(f"neighbour-10.0.0.5@:{sim.index('eth-br0')}", UUIDS[0])
        path = Path(sim.paths.state, "nics", f"{UUIDS[0]}.json")
        path.write_bytes(path.read_bytes().replace(b'"schema":%d' % SCHEMA, b'"schema":4'))
        assert backfill(sim.node, UUIDS[0], sim.call())
        sim.host.rename_link("eth-br0", "wan0")
        sim.tap("tap1")
        sim.up(guests[1])
        entries = [one for one in sim.host.kernel.neighbours if one.protocol == 174]
        sim.down(guests[1])
        assert entries and [one for one in sim.host.kernel.neighbours if one.protocol == 174] == entries

    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode.startswith("bridged")])
    @pytest.mark.parametrize("another", [False, True])
    def test_a_renamed_bridge(self, sim: Sim, mode: str, another: bool) -> None:
        """The NIC stays its port, and is mended there, also where another bridge has the name."""
        guest = nic(mode)
        sim.up(guest)
        index = sim.index(guest.link)
        sim.host.rename_link(guest.link, "old0")
        if another:
            sim.host.add_bridge(guest.link, vlan_filtering=guest.link == "brv")
        assert drift(sim) == []
        sim.host.nftables.flush()
        sim.host.kernel.links[sim.index("tap0")] = sim.host.kernel.links[sim.index("tap0")]._replace(alias="")
        assert repair(sim.node, UUIDS[0], sim.call()).changed and drift(sim) == []
        tap = sim.host.view().link("tap0")
        assert tap is not None and tap.master == index
        sim.down(guest)
        if another:
            sim.host.remove_link(guest.link)
        sim.host.rename_link("old0", guest.link)
        assert sim.picture() == sim.before and sim.files() == []

    @pytest.mark.parametrize("moved", [False, True])
    def test_the_mtu_is_that_of_the_bridge_that_was_renamed(self, sim: Sim, moved: bool) -> None:
        """A smaller one would shrink that bridge, which has nothing to do with the one that has its name now; nor is a guest's lowered."""
        bridge = sim.host.kernel.named("br0")
        assert bridge is not None
        sim.host.execute([SetLink(bridge.index, mtu=9000)], stop=True)
        sim.up(nic("bridged"))
        sim.host.rename_link("br0", "old0")
        sim.host.add_bridge("br0")
        if moved:
            sim.host.execute([SetLink(sim.index("tap0"), master=0)], stop=True)
        repair(sim.node, UUIDS[0], sim.call())
        tap = sim.host.view().link("tap0")
        assert tap is not None and (tap.mtu, tap.master) == (9000, sim.index("br0") if moved else bridge.index)
        assert drift(sim) == [] and not repair(sim.node, UUIDS[0], sim.call()).changed

    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode.startswith("bridged")])
    @pytest.mark.parametrize("anew", [False, True])
    def test_another_bridge_that_has_the_index_of_one_that_is_gone(self, sim: Sim, mode: str, anew: bool) -> None:
        """It is another network: the guest comes into none, or into the bridge that has the name again."""
        sim.up(nic(mode))
        name, index = nic(mode).link, sim.index(nic(mode).link)
        bridge, uplink = sim.host.kernel.links[index], sim.index(f"eth-{name}")
        sim.host.remove_link(name)
        sim.host.add_link(bridge._replace(name="other"), index)
        sim.host.execute([SetLink(uplink, master=index), AddVlan(uplink, BridgeVlan(10))], stop=True)
        if anew:
            sim.host.add_bridge(name, vlan_filtering=bridge.vlan_filtering)
            assert repair(sim.node, UUIDS[0], sim.call()).changed and drift(sim) == []
        else:
            with pytest.raises(HostRefused, match=f"bridge {name} does not exist"):
                repair(sim.node, UUIDS[0], sim.call())
        tap = sim.host.view().link("tap0")
        assert tap is not None and tap.master == (sim.index(name) if anew else 0)
        sim.down(nic(mode))
        assert 10 in sim.host.kernel.vlans[uplink] and sim.files() == []


class TestDownOfAnotherDevice:
    """A call that comes late, or means another NIC, takes nothing from a NIC whose device is held."""

    @pytest.mark.parametrize("context", ["shutdown", "migrate", "migrate-failed", "hot-remove"])
    def test_a_late_call_for_the_old_tap(self, sim: Sim, context: str) -> None:
        sim.up(nic("routed, table"))
        sim.tap("tap1")
        sim.up(nic("routed, table", INTERFACE="tap1"))
        sim.host.remove_link("tap0")
        sim.gc()
        before = sim.picture()
        outcome = sim.down(DownHint(UUIDS[0], "tap0"), context)
        assert not outcome.changed and outcome.text == "web1/0 is up on tap1, and the call is about tap0: nothing was done"
        assert sim.picture() == before and sim.record().state == UP
        sim.host.kernel.links[sim.index("tap1")] = sim.host.kernel.links[sim.index("tap1")]._replace(holders=0)
        assert sim.down(DownHint(UUIDS[0], "tap0"), context).changed and sim.files() == []

    def test_its_own_device_and_no_device_still_count(self, sim: Sim) -> None:
        for hint in (DownHint(UUIDS[0]), DownHint(UUIDS[0], "tap0"), DownHint(device="tap0")):
            sim.up(nic())
            assert sim.down(hint, "migrate").changed


def test_a_closing_nic_is_mended(sim: Sim) -> None:
    """Its guest is still there: without its guard it could send what it likes until its device goes."""
    guest = nic("routed, table")
    sim.up(guest)
    up = sim.picture()
    assert not sim.shutdown(guest).changed and sim.record().state == CLOSING
    sim.host.nftables.flush()
    for rule in [rule for rule in sim.host.kernel.rules if rule.protocol == 174]:
        sim.host.kernel.delete_rule(rule)
    assert drift(sim) and repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.picture() == up and sim.record().state == CLOSING and drift(sim) == []


def test_a_closing_nic_takes_nothing_back_from_the_one_that_follows_it(sim: Sim) -> None:
    """The guest has come up on another tap: its address leads there. The earlier tap is guarded until it goes."""
    sim.up(nic("routed, table"))
    sim.tap("tap1")
    sim.up(nic("routed, table", INTERFACE="tap1"))
    up, aside = sim.picture(), f"{UUIDS[0]}.{sim.index('tap0')}"
    sim.host.nftables.flush()
    assert repair(sim.node, aside, sim.call()).changed and guards(sim, sim.index("tap0"))
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    assert sim.picture() == up and sim.record(aside).state == CLOSING
    assert not repair(sim.node, aside, sim.call()).changed


def test_a_closing_nic_leaves_its_address_to_another_nic(sim: Sim) -> None:
    sim.up(nic("routed"))
    sim.shutdown(nic("routed"))
    sim.tap("tap1")
    sim.up(nic("routed", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02"))
    up = sim.picture()
    assert not repair(sim.node, UUIDS[0], sim.call()).changed and sim.picture() == up


def test_another_link_of_the_same_number_is_not_taken_for_it(sim: Sim) -> None:
    renamed(sim)
    link = sim.host.kernel.named(NEW)
    assert link is not None
    sim.host.kernel.links[link.index] = Link(link.index, NEW, "tun", alias="somebody else's")
    assert not repair(sim.node, UUIDS[0], sim.call()).changed and sim.record().device == "tap0"
