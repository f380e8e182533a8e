"""A node for one test: a network namespace, an empty /run, bridges, uplinks, taps, and an outside world on the other end of the wire."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tests.support.netns import EMPTY, RUN, Namespace, isolate, mounted_over, routed_here, run, sysctl
from tests.support.tap import Tap


class Node:
    """The calling thread is in it while the test runs: programs, sockets and /proc/sys all see this node."""

    def __init__(self, namespace: Namespace, stack: contextlib.ExitStack) -> None:
        self.namespace = namespace
        self._stack = stack

    def namespaced(self) -> Namespace:
        """Another namespace, closed with the node: a router, another node, the world outside."""
        other = Namespace()
        self._stack.callback(other.close)
        return other

    def wire(self, name: str, other: Namespace, peer: str = "eth0") -> None:
        """A veth pair: ``name`` here, ``peer`` in ``other``; both up."""
        run("ip", "link", "add", name, "type", "veth", "peer", "name", peer, "netns", other.path)
        run("ip", "link", "set", name, "up")
        other.run("ip", "link", "set", peer, "up")

    def guest(self, mac: str, address: str, name: str = "tap0") -> Namespace:
        """A guest's device, down as a hypervisor leaves it, and the guest behind it, which has an address ("10.0.0.5/24")."""
        guest = self.namespaced()
        run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", guest.path)
        guest.run("ip", "link", "set", "eth0", "up")
        guest.run("ip", "address", "add", address, "dev", "eth0")
        return guest

    def outside(self, uplink: str = "up0", *addresses: str) -> Namespace:
        """A namespace at the other end of ``uplink``, whose ``eth0`` has ``addresses`` ("10.0.0.1/24")."""
        other = self.namespaced()
        self.wire(uplink, other)
        for address in addresses:
            other.run("ip", "address", "add", address, "dev", "eth0", *(("nodad",) if ":" in address else ()))
            with other.entered():
                routed_here("eth0", address)
        return other

    def bridge(self, name: str = "br0", *ports: str, vlan_filtering: bool = False, mtu: int = 0) -> None:
        """A Linux bridge, up, without spanning tree, with ``ports``. vlan_filtering only in the virtual machine."""
        run("ip", "link", "add", name, "type", "bridge", "forward_delay", "0", *(("vlan_filtering", "1") if vlan_filtering else ()))
        for port in ports:
            run("ip", "link", "set", port, "master", name)
        # Set last: a bridge takes the lowest MTU of its ports until somebody sets one.
        if mtu:
            run("ip", "link", "set", name, "mtu", str(mtu))
        run("ip", "link", "set", name, "up")

    def address(self, device: str, *addresses: str) -> None:
        """Addresses on a device of this node."""
        for address in addresses:
            run("ip", "address", "add", address, "dev", device, *(("nodad",) if ":" in address else ()))
            routed_here(device, address)

    def tap(self, name: str = "tap0", persistent: bool = False) -> Tap:
        """A tap as QEMU holds it: down, not persistent, with a vnet header; closed with the node."""
        tap = Tap(name, persistent=persistent)
        self._stack.callback(tap.close)
        return tap

    def router(self) -> None:
        """What routed guests need of a node: 192.0.2.2 on ``up0``, the default route to 192.0.2.1 outside, IPv4 forwarding."""
        self.outside("up0", "192.0.2.1/24")
        self.address("up0", "192.0.2.2/24")
        run("ip", "route", "add", "default", "via", "192.0.2.1")
        self.forwarding()

    def forwarding(self, ipv6: bool = False) -> None:
        """What the administrator of a routed node has set."""
        sysctl("net/ipv4/ip_forward", "1")
        if ipv6:
            sysctl("net/ipv6/conf/all/forwarding", "1")
            sysctl("net/ipv6/conf/all/proxy_ndp", "1")


@contextlib.contextmanager
def fresh() -> Iterator[Node]:
    """A new, empty node; the calling thread is in it until the end. Needs root."""
    isolate()
    with contextlib.ExitStack() as stack:
        namespace = Namespace()
        stack.callback(namespace.close)
        stack.enter_context(namespace.entered())
        stack.enter_context(mounted_over("/sys", "sysfs"))
        stack.enter_context(mounted_over("/run", "tmpfs", "mode=0755"))
        for folder in RUN:
            os.makedirs(folder, exist_ok=True)
        for folder in EMPTY:
            stack.enter_context(mounted_over(folder, "tmpfs", "mode=0755"))
        yield Node(namespace, stack)
