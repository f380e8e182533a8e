"""VLAN tags of a guarded NIC with an access VLAN and a trunk: its own tag under the checks of any frame, and no other."""

from __future__ import annotations

import pytest

from tests.kernel.guard import networks, paths
from tests.kernel.guard.limits import allowed
from tests.kernel.guard.reach import EVERYWHERE, HOST, NOWHERE
from tests.support.attacks import SETTINGS, Setting
from tests.support.attacks_other import vlans
from tests.support.netns import run
from tests.support.node import Node

ACCESS, TRUNK = 10, 20
KINDS = tuple(vlans(TRUNK, ACCESS))
ENDS = ("all", "host")
CHOSEN = [setting for setting in SETTINGS if setting.name in ("no switch", "allow_restricted_traffic", "all switches", "no address known")]


def wrong(network: paths.Network, setting: Setting) -> list[str]:
    """Kinds that do not fare as they should. All ends take part in both VLANs, and nobody was heard there: a frame is for all."""
    network.up(setting, VLAN=f".{ACCESS}:{TRUNK}")
    frames = {key: frame for key, frame in paths.batch(network.ends, KINDS).items() if key[1] in ENDS}
    seen = network.seen(frames)
    found = []
    for kind in KINDS:
        for end in ENDS:
            # A bridge knows its own MAC in every VLAN.
            reached = HOST if (network.mode, end) == ("bridged", "host") else EVERYWHERE
            expected = reached if allowed(network.mode, kind, end, setting) else NOWHERE
            if seen[kind.name, end] != expected:
                found.append(f"{kind.name} to {end}: {sorted(seen[kind.name, end])}, not {sorted(expected)}")
    return found


@pytest.mark.parametrize("setting", CHOSEN, ids=lambda setting: setting.name)
@pytest.mark.parametrize("network", ["openvswitch"], indirect=True)
def test_open_vswitch(network: paths.Network, setting: Setting) -> None:
    found = wrong(network, setting)
    assert not found, "\n".join(found)


@pytest.mark.vm
@pytest.mark.parametrize("setting", CHOSEN, ids=lambda setting: setting.name)
def test_bridge(node: Node, setting: Setting) -> None:
    network = networks.bridged(node)
    run("ip", "link", "set", "br0", "type", "bridge", "vlan_filtering", "1")
    for port in (("up0",), ("tap1",), ("br0", "self")):
        for vid in (ACCESS, TRUNK):
            run("bridge", "vlan", "add", "dev", port[0], "vid", str(vid), *port[1:])
    try:
        found = wrong(network, setting)
        assert not found, "\n".join(found)
    finally:
        network.close()
