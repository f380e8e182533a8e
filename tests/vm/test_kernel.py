"""The machine has what the lane exists for: without this, the other tests in here would prove nothing."""

from __future__ import annotations

import os

import pytest

from tests.support.guest import Guest
from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch


def test_it_is_debians_kernel() -> None:
    assert "Debian" in os.uname().version


def test_bridge_filters_vlans(node: Node) -> None:
    """A frame passes a VLAN-aware bridge only between ports of its VLAN."""
    taps = [node.tap(f"tap{number}") for number in range(3)]
    node.bridge("br0", *(tap.name for tap in taps), vlan_filtering=True)
    for tap, vid in zip(taps, ("10", "10", "20"), strict=True):
        run("ip", "link", "set", tap.name, "up")
        run("bridge", "vlan", "del", "dev", tap.name, "vid", "1")
        run("bridge", "vlan", "add", "dev", tap.name, "vid", vid, "pvid", "untagged")
    with (
        Guest(taps[0], "52:54:00:00:00:01", "10.0.0.1") as first,
        Guest(taps[1], "52:54:00:00:00:02", "10.0.0.2"),
        Guest(taps[2], "52:54:00:00:00:03", "10.0.0.3"),
    ):
        assert first.ping("10.0.0.2")
        assert not first.ping("10.0.0.3", 0.3)


@pytest.mark.parametrize("kind", ["dummy", "vrf table 100", "bridge vlan_filtering 1", "ifb"])
def test_kinds_of_links(node: Node, kind: str) -> None:
    run("ip", "link", "add", "it0", "type", *kind.split())
    assert ask("ip", "-d", "-j", "link", "show", "it0")[0]["linkinfo"]["info_kind"] == kind.split(maxsplit=1)[0]


def test_vlan_interfaces(node: Node) -> None:
    node.outside("up0")
    run("ip", "link", "add", "link", "up0", "name", "up0.10", "type", "vlan", "id", "10")
    assert ask("ip", "-d", "-j", "link", "show", "up0.10")[0]["linkinfo"]["info_data"]["id"] == 10


def test_kernel_datapath_of_open_vswitch(node: Node) -> None:
    """Two taps of one tag hear each other through the kernel's datapath; the third does not."""
    with OpenVswitch.started("system") as ovs:
        ovs.bridge("ovs0")
        taps = [node.tap(f"tap{number}") for number in range(3)]
        for tap, tag in zip(taps, ("10", "10", "20"), strict=True):
            run("ip", "link", "set", tap.name, "up")
            ovs.vsctl("add-port", "ovs0", tap.name, f"tag={tag}")
        assert "system@ovs-system" in run("ovs-appctl", "-t", "/var/run/openvswitch/vswitchd.ctl", "dpif/show")
        with (
            Guest(taps[0], "52:54:00:00:00:01", "10.0.0.1") as first,
            Guest(taps[1], "52:54:00:00:00:02", "10.0.0.2"),
            Guest(taps[2], "52:54:00:00:00:03", "10.0.0.3"),
        ):
            assert first.ping("10.0.0.2")
            assert not first.ping("10.0.0.3", 0.3)
