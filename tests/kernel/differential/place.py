"""The node on which both scripts work: prepared identically for each, with an administrator's rules, routes, ports and filters on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.netns import run, sysctl
from tests.support.node import Node, fresh
from tests.support.ovs import OpenVswitch

#: Routing tables of this node, by name.
TABLES = Path("/etc/iproute2/rt_tables.d/differential.conf")
SCRIPTS = ("/etc/netcommon/ifup.d", "/etc/netcommon/ifdown.d")
#: The site's scripts leave a line here for each run.
RAN = Path("/run/scripts-ran")

#: What the uplink of the bridge that filters VLANs carries: the default, and one that the administrator has added.
UPLINK_VIDS = (1, 30)
ROUTER, ROUTER6 = "10.77.3.254", "fd77:3::254"
ADMINISTRATOR = f"""
ip rule add iif eth3 lookup gntroute priority 1000
ip rule add iif lo lookup gntroute priority 1001
ip rule add from 192.0.2.7 lookup other priority 700
ip rule add iif tap99 lookup other priority 50
ip -6 rule add iif eth3 lookup gntroute priority 1000
ip -6 rule add iif lo lookup gntroute priority 1001
ip -6 rule add from 2001:db8::7 lookup other priority 700
ip route add default via {ROUTER} dev eth3
ip route add default via {ROUTER} dev eth3 table gntroute
ip route add 198.51.100.0/24 dev br0 table gntroute proto static
ip route add 198.51.100.0/24 dev brjumbo table other
ip -6 route add default via {ROUTER6} dev eth3
ip -6 route add default via {ROUTER6} dev eth3 table gntroute
ip -6 route add 2001:db8:51::/64 dev br0 table gntroute proto static
ip neighbour add proxy 10.77.3.99 dev eth3
ip -6 neighbour add proxy fd77:3::99 dev eth3
ip neighbour add 10.77.3.98 lladdr 02:77:03:00:00:98 dev eth3 nud permanent
nft add table inet administrator
nft add chain inet administrator forward {{ type filter hook forward priority 0 ; }}
nft add rule inet administrator forward ip saddr 192.0.2.66 drop
"""
SCRIPT = f"""#!/bin/sh
folder=${{0%/*}}
echo "${{folder##*/}} $INTERFACE_UUID $1" >>{RAN}
"""


class Place(NamedTuple):
    """The prepared node; the calling thread is in it."""

    node: Node
    ovs: OpenVswitch


@contextlib.contextmanager
def prepared(machine: bool) -> Iterator[Place]:
    """A node as both scripts find it. ``machine``: in the virtual machine, whose kernel can more."""
    with fresh() as node, OpenVswitch.started("system" if machine else "netdev") as ovs:
        TABLES.parent.mkdir(exist_ok=True)
        TABLES.write_text("100 gntroute\n101 other\n")
        try:
            _links(node, ovs, machine)
            for line in ADMINISTRATOR.strip().splitlines():
                run(*line.split())
            _site_scripts()
            yield Place(node, ovs)
        finally:
            TABLES.unlink()


def _links(node: Node, ovs: OpenVswitch, machine: bool) -> None:
    """Every MAC is given, so that two nodes compare."""
    node.forwarding(ipv6=True)
    for number, uplink in enumerate(("up0", "up1", "eth3", "ovup", *(("upv",) if machine else ()))):
        addresses = (f"{ROUTER}/24", f"{ROUTER6}/64") if uplink == "eth3" else ()
        other = node.outside(uplink, *addresses)
        run("ip", "link", "set", uplink, "address", f"02:77:00:00:01:{number:02x}")
        other.run("ip", "link", "set", "eth0", "address", f"02:77:00:00:02:{number:02x}")
    node.address("eth3", "10.77.3.1/24", "fd77:3::1/64")
    node.bridge("br0", "up0", mtu=1400)
    node.bridge("brjumbo", "up1", mtu=9000)  # with a port: one that has lost its last tells so up to a second later
    if machine:
        node.bridge("brv", "upv", vlan_filtering=True)
        run("bridge", "vlan", "add", "dev", "upv", "vid", "30")  # the administrator's
    node.address("br0", "10.77.1.1/24", "fd77:1::1/64")
    for number, bridge in enumerate(("ovs0", "ovs1")):
        ovs.bridge(bridge)
        ovs.vsctl("set", "Bridge", bridge, f'other_config:hwaddr="02:77:00:00:03:{number:02x}"')
    internal = ["--", "set", "Interface", "foreign0", "type=internal"]
    ovs.vsctl("add-port", "ovs0", "foreign0", "tag=99", "external_ids:owner=administrator", *internal)
    ovs.vsctl("set", "Interface", "foreign0", 'mac="02:77:00:00:03:f0"')
    ovs.vsctl("add-port", "ovs0", "ovup", "trunks=10,20")
    for family in ("ipv4", "ipv6"):  # a new device forwards only if the script says so
        sysctl(f"net/{family}/conf/default/forwarding", "0")
    run("ip", "link", "set", "ovs-system" if machine else "ovs-netdev", "address", "02:77:00:00:03:ff")


def _site_scripts() -> None:
    for folder in SCRIPTS:
        path = Path(folder, "10-count")
        path.parent.mkdir(mode=0o755)
        path.write_text(SCRIPT)
        path.chmod(0o755)


def scripts_ran() -> list[str]:
    """What the site's scripts noted, and a clean sheet for the next."""
    lines = RAN.read_text().splitlines() if RAN.exists() else []
    RAN.unlink(missing_ok=True)
    return lines
