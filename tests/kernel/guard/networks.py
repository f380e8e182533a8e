"""The three networks around a guest: a bridge, a router, Open vSwitch; each with another guest, the host and the world outside."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable

from tests.kernel.guard.paths import Network, Path, SocketPath, TapPath
from tests.support.attacks import ENDS, GROUPS, KINDS
from tests.support.attacks_base import HOST4, HOST6, HOST_MAC, OUT4, OUT6, OUT_MAC, PEER4, PEER6, PEER_MAC, raw
from tests.support.netns import Namespace, run, sysctl
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.tap import Tap

ETH_P_ALL, ETH_P_802_3, ETH_P_802_2 = 3, 1, 4


def protocols() -> list[int]:
    """The protocols of all frames, as the kernel's receivers register for them; what has a length instead of a type too."""
    found = {int.from_bytes(raw(made, GROUPS[0]._replace(number=1))[12:14], "big") for made in KINDS}
    return [*sorted(protocol for protocol in found if protocol >= 0x600), ETH_P_802_2, ETH_P_802_3]


def bridged(node: Node) -> Network:
    """A bridge with the guest, another guest and an uplink."""
    outside = node.outside("up0")
    tap, peer = node.tap("tap0"), node.tap("tap1")
    node.bridge("br0", "up0", "tap1")
    # Without a querier on the wire, snooping would keep membership reports to itself.
    run("ip", "link", "set", "br0", "address", HOST_MAC, "type", "bridge", "mcast_snooping", "0")
    run("ip", "link", "set", "tap1", "up")
    for family in ("arp", "ip", "ip6"):  # with br_netfilter, the bridge itself drops packets that are cut off
        if os.path.exists(f"/proc/sys/net/bridge/bridge-nf-call-{family}tables"):
            sysctl(f"net/bridge/bridge-nf-call-{family}tables", "0")
    changes = {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"}
    network = Network("bridged", tap, _ends(peer, SocketPath(protocols()), outside), _senders(peer, "br0", outside), changes)
    network.learn()
    return network


def openvswitch(node: Node, ovs: OpenVswitch) -> Network:
    """The same with a switch. The host is the switch's own interface: of the userspace datapath's ports the kernel sees everything."""
    outside = node.outside("up0")
    tap, peer = node.tap("tap0"), node.tap("tap1")
    run("ip", "link", "set", "tap1", "up")
    ovs.bridge("ovs0", "up0", "tap1")
    # Else it drops what is sent to the groups of bridges, before any flow of NORMAL's.
    ovs.vsctl("set", "Bridge", "ovs0", "other_config:forward-bpdu=true", f'other_config:hwaddr="{HOST_MAC}"')
    changes = {"MODE": "openvswitch", "LINK": "ovs0"}
    ends = _ends(peer, SocketPath([ETH_P_ALL], "ovs0"), outside)
    network = Network("openvswitch", tap, ends, _senders(peer, "ovs0", outside), changes)
    network.learn()
    return network


def routed(node: Node) -> Network:
    """A router between the guest, another guest and an uplink, which asks nobody who has an address."""
    for name in ("all", "default"):
        sysctl(f"net/ipv4/conf/{name}/rp_filter", "0")
    outside = node.outside("up0")
    tap, peer = node.tap("tap0"), node.tap("tap1")
    node.forwarding(ipv6=True)
    node.address("up0", f"{HOST4}/24", f"{HOST6}/64")
    run("ip", "link", "set", "tap1", "up")
    for address, device, mac in ((PEER4, "tap1", PEER_MAC), (PEER6, "tap1", PEER_MAC), (OUT4, "up0", OUT_MAC), (OUT6, "up0", OUT_MAC)):
        run("ip", "route", "replace", address, "dev", device)
        run("ip", "neigh", "replace", address, "lladdr", mac, "dev", device, "nud", "permanent")
    for gateway in (OUT4, OUT6):
        run("ip", "route", "replace", "default", "via", gateway, "dev", "up0", "onlink")
    ends = tuple(end._replace(mac=HOST_MAC) for end in ENDS)
    return Network("routed", tap, _ends(peer, SocketPath(protocols()), outside), _senders(peer, "tap0", outside), {"MODE": "routed"}, ends)


def _ends(peer: Tap, host: SocketPath, outside: Namespace) -> dict[str, Path]:
    # Frames to the router outside are for nobody's MAC there: a packet socket sees them all the same.
    return {"peer": TapPath(peer), "host": host, "out": SocketPath([ETH_P_ALL], "eth0", outside)}


def _senders(peer: Tap, host: str, outside: Namespace) -> dict[str, Callable[[bytes], object]]:
    """The kernel hands a frame sent on a bridge's own interface to the bridge."""
    return {"peer": peer.send, "host": lambda frame: send(host, frame), "out": lambda frame: send("eth0", frame, outside)}


def send(device: str, frame: bytes, namespace: Namespace | None = None) -> None:
    """One frame by a packet socket. A guard on the device's way out may drop it, which the kernel tells the sender."""
    with namespace.entered() if namespace else contextlib.nullcontext(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as made:
        made.bind((device, 0))
        try:
            made.send(frame)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
