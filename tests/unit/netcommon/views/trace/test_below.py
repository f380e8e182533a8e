"""netcommon trace on simulated nodes whose uplink is a bond or a VLAN interface: what stands at the devices below is in the way too."""

from __future__ import annotations

import pytest

from netcommon.host.api.facts import Link
from netcommon.host.api.nftables import EGRESS, INGRESS, NETDEV
from netcommon.host.nftables.expressions import verdict
from netcommon.views.trace.frame import FROM_GUEST, TO_GUEST, Wanted, build
from netcommon.views.trace.kinds import beneath
from tests.support.sim import Sim, nic
from tests.unit.netcommon.views.trace.test_trace import chain, walked

MAC = "aa:00:00:00:00:01"
OUT_MAC = "02:00:00:00:0a:01"


def uplink(sim: Sim, kind: str) -> None:
    """The bridge's way out: bond1 with two ports, or a VLAN interface of that."""
    host = sim.host
    bridge = host.add_bridge("br9").index
    bond = host.add_link(Link(0, "bond1", "bond", up=True, master=bridge if kind == "bond" else 0))
    for name in ("eno8", "eno9"):
        port = host.add_link(Link(0, name, up=True))
        host.kernel.links[port.index] = port._replace(master=bond.index, port_kind="bond")
    if kind == "vlan":
        host.add_link(Link(0, "bond1.7", "vlan", up=True, vlan=7, lower=bond.index, master=bridge))
    sim.up(nic("bridged", LINK="br9", IP="10.0.0.5"))


@pytest.mark.parametrize("kind", ["bond", "vlan"])
def test_which_devices_are_below(sim: Sim, kind: str) -> None:
    uplink(sim, kind)
    view = sim.host.snapshot()
    top = view.link("bond1.7" if kind == "vlan" else "bond1")
    assert top is not None
    assert [each.name for each in beneath(view, top)] == [*(["bond1"] if kind == "vlan" else []), "eno8", "eno9"]
    port = view.link("eno8")
    assert port is not None and list(beneath(view, port)) == []


@pytest.mark.parametrize("hook", [INGRESS, EGRESS])
@pytest.mark.parametrize("way", [FROM_GUEST, TO_GUEST])
@pytest.mark.parametrize("kind", ["bond", "vlan"])
def test_what_stands_below(sim: Sim, kind: str, way: str, hook: int) -> None:
    """It is named for the frames that go its way, and for no others."""
    uplink(sim, kind)
    ends = (MAC, OUT_MAC) if way == FROM_GUEST else (OUT_MAC, MAC)
    data = build(Wanted(*ends, "10.0.0.5" if way == FROM_GUEST else "10.0.0.9"))

    def untold() -> list[str]:
        return [each for each in walked(sim, data, way=way).untold if "theirs" in each]

    assert untold() == []
    chain(sim, NETDEV, "theirs", "c", hook, "eno9", verdict(0))
    assert bool(untold()) == ((hook == EGRESS) == (way == FROM_GUEST))
