"""The tests' own tools tell the truth: the snapshot sees every change it is there to see, the guest answers, the node is empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.guest import Guest
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.snapshot import diff, snapshot

GUEST = "52:54:00:00:00:01"

CHANGES = {
    "link up": "ip link set tap0 up",
    "mtu": "ip link set tap0 mtu 1400",
    "mac": "ip link set tap0 address fe:00:00:00:00:01",
    "alias": "ip link set tap0 alias something",
    "bridge port": "ip link set tap0 master br0",
    "bridge port flag": "bridge link set dev up0 learning off",
    "address": "ip address add 192.0.2.1/32 dev up0",
    "fdb": "bridge fdb add 52:54:00:00:00:09 dev up0 master static",
    "rule": "ip rule add iif tap0 lookup 100 priority 500",
    "rule6": "ip -6 rule add iif tap0 lookup 100 priority 500",
    "rule protocol": "ip rule add iif tap0 lookup 100 priority 500 protocol 174",
    "route": "ip route add 192.0.2.9/32 dev br0 table 100",
    "route6": "ip -6 route add 2001:db8::9/128 dev br0",
    "proxy neighbour": "ip neighbour add proxy 192.0.2.9 dev up0",
    "proxy neighbour's mark": "ip -6 neighbour add proxy 2001:db8::9 dev up0 protocol 174",
    "permanent neighbour": "ip neighbour add 192.0.2.9 lladdr 52:54:00:00:00:09 dev up0 nud permanent",
    "sysctl": "sysctl -qw net.ipv4.conf.tap0.proxy_arp=1",
    "sysctl of all": "sysctl -qw net.ipv6.conf.all.forwarding=1",
    "neigh sysctl": "sysctl -qw net.ipv4.neigh.tap0.proxy_delay=0",
    "nft": "nft add table inet ours",
    "qdisc": "tc qdisc add dev tap0 clsact",
    "filter": "tc filter add dev up0 ingress u32 match u32 0 0",
    "file": "touch /run/netcommon/nics/x",
    "file mode": "chmod 0600 /run/netcommon/known",
    "ganeti file": "ln -s x /run/ganeti/link",
}


@pytest.fixture
def small(node: Node) -> Node:
    """A bridge with an uplink, and a tap."""
    node.outside("up0", "10.0.0.1/24", "2001:db8::1/64")
    node.bridge("br0", "up0")
    node.address("br0", "10.0.0.2/24", "2001:db8::2/64")
    node.tap("tap0")
    run("tc", "qdisc", "add", "dev", "up0", "clsact")
    os.makedirs("/run/netcommon/nics")
    Path("/run/netcommon/known").touch(0o644)
    return node


@pytest.mark.no_agent("makes the state directory itself, and runs no hook")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_snapshot_sees(small: Node, change: str) -> None:
    before = snapshot()
    assert diff(before, snapshot()) == []
    run(*change.split())
    assert diff(before, snapshot()) != []


def test_snapshot_ignores_what_nobody_changed(node: Node) -> None:
    """A tap that comes and goes leaves nothing: not even the MAC and the carrier that it lent to a bridge without other ports."""
    node.bridge("br0")
    before = snapshot()
    tap = node.tap("tap0")
    run("ip", "link", "set", "tap0", "master", "br0", "up")
    assert any("tap0" in line for line in diff(before, snapshot()))
    tap.close()
    assert diff(before, snapshot()) == []


def test_snapshot_sees_ovs(node: Node, ovs: OpenVswitch) -> None:
    ovs.bridge("ovs0")
    node.tap("tap0")
    before = snapshot()
    for arguments in (
        ["add-port", "ovs0", "tap0", "tag=10"],
        ["set", "Port", "tap0", "trunks=1,2"],
        ["set", "Port", "tap0", "external_ids:a=b"],
        ["set", "Interface", "tap0", "external_ids:a=b"],
        ["del-port", "tap0"],
    ):
        ovs.vsctl(*arguments)
        now = snapshot()
        assert bool(diff(before, now)) == (arguments[0] != "del-port"), arguments
        assert diff(now, snapshot()) == []
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0xae,priority=7,actions=drop")
    assert diff(before, snapshot()) != []


def test_diff_is_readable() -> None:
    before = {"links": {"tap0": {"mtu": 1500}}, "rules": ["a", "b"], "gone": 1}
    after = {"links": {"tap0": {"mtu": 1400}, "tap1": {}}, "rules": ["b", "c"]}
    expected = ["~ links: tap0: mtu: 1500 -> 1400", "+ links: tap1 = {}", "- rules: a", "+ rules: c", "- gone = 1"]
    assert diff(before, after) == expected
    assert diff(["a", "b"], ["b", "a"], "rules") == ["~ rules: order ['a', 'b'] -> ['b', 'a']"]
    assert diff(["a"], ["a", "a"], "rules") == ["+ rules: a"]


@pytest.mark.parametrize("vlan", [0, 10])
def test_guest_answers_and_pings(node: Node, vlan: int) -> None:
    """The guest behind a tap is reached from the bridge and reaches it, by both families."""
    tap = node.tap("tap0")
    device = "tap0"
    run("ip", "link", "set", "tap0", "up")
    if vlan == 0:
        node.bridge("br0", "tap0")
        device = "br0"
    node.address(device, "10.0.0.2/24", "2001:db8::2/64")
    with Guest(tap, GUEST, "10.0.0.9", "2001:db8::9", vlan=vlan) as guest:
        reached = [run("ping", "-c1", "-W0.5", address, check=False).count(" 0% packet loss") for address in guest.addresses]
        reaches = [guest.ping("10.0.0.2", 0.5), guest.ping("2001:db8::2", 0.5)]
        # A guest that speaks tagged is not heard on the untagged device: nor may it seem so.
        assert (reached, reaches) == (([1, 1], [True, True]) if vlan == 0 else ([0, 0], [False, False]))
        assert not guest.ping("10.0.0.77", 0.2)


def test_guest_uses_its_gateway(node: Node) -> None:
    outside = node.outside("up0", "192.0.2.1/24", "2001:db8:1::1/64")
    node.forwarding(ipv6=True)
    tap = node.tap("tap0")
    run("ip", "link", "set", "tap0", "up")
    node.address("tap0", "10.0.0.2/24", "2001:db8::2/64")
    node.address("up0", "192.0.2.2/24", "2001:db8:1::2/64")
    outside.run("ip", "route", "add", "10.0.0.0/24", "via", "192.0.2.2")
    outside.run("ip", "route", "add", "2001:db8::/64", "via", "2001:db8:1::2")
    with Guest(tap, GUEST, "10.0.0.9", "2001:db8::9", gateways=("10.0.0.2", "2001:db8::2")) as guest:
        assert guest.ping("192.0.2.1")
        assert guest.ping("2001:db8:1::1")
        assert " 0% packet loss" in outside.run("ping", "-c1", "-W2", "10.0.0.9", check=False)


@pytest.mark.parametrize("turn", [1, 2])
def test_a_node_is_empty_and_its_own(node: Node, turn: int) -> None:
    """Also the second time, after the first has left things about."""
    assert os.listdir("/sys/class/net") == ["lo"]
    assert os.listdir("/etc/netcommon") == os.listdir("/etc/ganeti") == os.listdir("/run/ganeti") == []
    node.tap(f"tap{turn}")
    run("ip", "rule", "add", "iif", "tap0", "lookup", "100")
    for folder in ("/etc/netcommon", "/etc/ganeti", "/run/ganeti", "/run/netns"):
        Path(folder, "left").touch()
    assert len(run("ip", "rule").splitlines()) == 4
