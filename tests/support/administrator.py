"""What an administrator has set up on a node: the things that no hook may touch, some of them right beside those of ours."""

from __future__ import annotations

from pathlib import Path

from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch

CONFIG = "/etc/netcommon/config.toml"
NFT = """table inet site {
  set admins { type ipv4_addr; elements = { 192.0.2.5, 192.0.2.6 } }
  chain input { type filter hook input priority 0; policy accept; ip saddr @admins accept; iifname "tap0" counter accept; }
}
table netdev site {
  chain up0 { type filter hook ingress device up0 priority 0; policy accept; ether type 0x88cc drop; }
}
"""


def own_things(node: Node) -> None:
    """Uplinks with default routes, bridge ports, rules, routes, neighbours, nftables, sysctls; one rule on tap0, whoever has it."""
    node.outside("up0", "192.0.2.1/24", "fd99::1/64")
    node.address("up0", "192.0.2.2/24", "fd99::2/64")
    node.forwarding(ipv6=True)
    run("ip", "route", "add", "default", "via", "192.0.2.1")
    run("ip", "-6", "route", "add", "default", "via", "fd99::1", "dev", "up0")
    node.outside("up1")
    node.bridge("br0", "up1")
    run("ip", "rule", "add", "iif", "tap0", "lookup", "200", "priority", "600")
    run("ip", "-6", "rule", "add", "from", "fd99::/64", "lookup", "200", "priority", "601")
    run("ip", "route", "add", "10.77.0.0/16", "via", "192.0.2.1", "table", "200", "proto", "static")
    run("ip", "route", "add", "blackhole", "10.0.0.0/8", "table", "100", "proto", "static")
    run("ip", "neighbour", "add", "proxy", "10.0.0.99", "dev", "up0")
    run("ip", "-6", "neighbour", "add", "proxy", "fd99::99", "dev", "up0")
    run("ip", "neighbour", "add", "192.0.2.77", "lladdr", "aa:77:00:00:00:01", "dev", "up0", "nud", "permanent")
    run("bridge", "fdb", "add", "aa:77:00:00:00:02", "dev", "up1", "master", "static")
    run("nft", "-f", "-", stdin=NFT)
    Path(CONFIG).write_text("# the site's\n")


def own_ports(ovs: OpenVswitch) -> None:
    """On Open vSwitch: a bridge with an uplink, a tagged port, and flows of the administrator's."""
    run("ip", "link", "add", "sw0", "type", "veth", "peer", "name", "sw0-peer")
    ovs.bridge("ovs0", "sw0")
    ovs.vsctl("set", "Port", "sw0", "tag=7", "external_ids:site=uplink")
    run("ovs-ofctl", "--timeout=20", "add-flow", "ovs0", "cookie=0x77,priority=7,dl_src=aa:77:00:00:00:03,actions=drop")


def vlan_bridge(node: Node) -> None:
    """A VLAN-aware bridge whose uplink carries VLANs of the administrator's (in the virtual machine)."""
    node.outside("up2")
    node.bridge("brv", "up2", vlan_filtering=True)
    for vid in ("20", "40"):
        run("bridge", "vlan", "add", "dev", "up2", "vid", vid)
