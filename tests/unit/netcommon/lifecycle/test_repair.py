"""repair where the host refuses a part of it, or where the bridge itself has changed."""

from __future__ import annotations

from typing import NoReturn

import pytest

from netcommon.host.api.facts import BridgeVlan
from netcommon.host.api.nftables import NETDEV
from netcommon.host.api.requests import AddVlan, Request, SetLink
from netcommon.lifecycle.check import check, repair
from netcommon.operations.guard.table import table_of
from runtime.errors import HostRefused, TryAgain
from tests.support.sim import Sim, nic


def drift(sim: Sim) -> list[str]:
    return [text for _, text in check(sim.node, sim.host.view(), sim.record()).drift]


def flush(sim: Sim) -> None:
    """nft flush ruleset."""
    sim.host.nftables.flush()


def test_what_is_refused_keeps_nothing_else_from_being_mended(sim: Sim) -> None:
    """IPv6 forwarding was switched off, and the packet filter flushed: the guard is put back, the route is told of."""
    wanted = nic("routed, IPv6")
    sim.up(wanted)
    route = next(route for route in sim.host.view().routes(10) if route.destination == "fd00::5/128")
    flush(sim)
    sim.host.kernel.settings.write("net/ipv6/conf/all/forwarding", "0")
    sim.host.kernel.delete_route(route)
    with pytest.raises(HostRefused, match="a routed IPv6 NIC needs net"):
        repair(sim.node, sim.record().key, sim.call())
    assert sim.host.view().nft_table(NETDEV, table_of("tap0")) and drift(sim) == ["the route is gone"]
    sim.host.kernel.settings.write("net/ipv6/conf/all/forwarding", "1")
    assert repair(sim.node, sim.record().key, sim.call()).changed and drift(sim) == []
    sim.down(wanted)
    assert sim.picture() == sim.before


def test_what_is_refused_anew_but_holds_is_no_fault(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    sim.host.kernel.settings.write("net/ipv6/conf/all/forwarding", "0")
    flush(sim)
    assert repair(sim.node, sim.record().key, sim.call()).changed and drift(sim) == []
    assert not repair(sim.node, sim.record().key, sim.call()).changed


def test_a_bridge_that_is_not_vlan_aware_any_more(sim: Sim) -> None:
    """All its guests share one network then: that is told, and it is the administrator's to set right."""
    sim.up(nic("bridged, access"))
    bridge = sim.host.view().link("brv")
    assert bridge is not None
    sim.host.kernel.links[bridge.index] = bridge._replace(vlan_filtering=False)
    assert "bridge brv is not VLAN-aware any more: all its ports share one network" in drift(sim)
    with pytest.raises(HostRefused, match="ip link set dev brv type bridge vlan_filtering 1"):
        repair(sim.node, sim.record().key, sim.call())


@pytest.mark.parametrize("by", ["repair", "up"])
def test_a_tap_that_joins_its_bridge_again_is_down_until_its_vlans_are_right(sim: Sim, by: str) -> None:
    """A new port is in the bridge's default VLAN: not one of its frames reaches a guest of another."""
    wanted = nic("bridged, access")
    sim.up(wanted)
    tap = sim.index("tap0")
    sim.host.execute([SetLink(tap, master=0)], stop=True)
    sim.requests()
    if by == "repair":
        assert repair(sim.node, sim.record().key, sim.call()).changed
    else:
        assert sim.up(wanted).changed
    asked: list[Request] = [each for each in sim.requests() if isinstance(each, SetLink | AddVlan)]
    up = [each.up for each in asked if isinstance(each, SetLink) and each.up is not None]
    assert up == [False, True]
    places = [next(at for at, each in enumerate(asked) if test(each)) for test in (_down, _joins, _in_vlan, _up)]
    assert places == sorted(places) and drift(sim) == []


def _down(each: Request) -> bool:
    return isinstance(each, SetLink) and each.up is False


def _up(each: Request) -> bool:
    return isinstance(each, SetLink) and each.up is True


def _joins(each: Request) -> bool:
    return isinstance(each, SetLink) and bool(each.master)


def _in_vlan(each: Request) -> bool:
    return isinstance(each, AddVlan) and each.vlan == BridgeVlan(10, True, True)


def test_what_does_not_hold_is_said_though_the_rest_cannot_be_told(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where ovs-vswitchd is silent: what is lost beside the drift is unknown, and the drift is none the less there."""

    def silent(*_anything: object) -> NoReturn:
        raise TryAgain("ovs-vswitchd does not answer")

    sim.up(nic("bridged"))
    monkeypatch.setattr("netcommon.lifecycle.check.of_nic", silent)
    with pytest.raises(TryAgain, match="does not answer"):
        drift(sim)
    sim.host.execute([SetLink(sim.index("tap0"), master=0)], stop=True)
    assert "it is no port of br0" in drift(sim)
