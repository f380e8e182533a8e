"""The two worlds of the contract suite: a simulated node, and a real one in namespaces of its own, changed by hand in the same words."""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import struct
from typing import Protocol

from netcommon.host.api.facts import Link, Rule
from netcommon.host.api.host import Answer, Host, View
from netcommon.host.api.requests import Request, SetLink
from netcommon.host.linux.host import LinuxHost
from netcommon.host.simulated.host import MemoryHost
from runtime.paths import Paths
from tests.contract.heard import RealEars, SimulatedEars
from tests.contract.trace import TRACE
from tests.support.netns import run, sysctl, wait_until
from tests.support.node import Node
from tests.support.ovs import RUN, OpenVswitch
from tests.support.tap import Tap

SIOCSIFHWADDR, ARPHRD_ETHER = 0x8924, 1
HOLDER = 4711  #: the process that holds the simulated taps


class World(Protocol):
    """A node, and what an administrator or a hypervisor does to it."""

    host: Host

    @property
    def holder(self) -> int:
        """The process that has the taps open."""
        ...

    def tap(self, name: str, persistent: bool = False, unassigned: bool = False) -> None:
        """Make a tap. ``unassigned``: nobody gives it an address, so it has one by chance."""
        ...

    def let_go(self, name: str) -> None:
        """The process that holds the tap ends."""
        ...

    def bridge(self, name: str, vlan_filtering: bool = False, default_pvid: int = 1) -> None: ...
    def veth(self, name: str, peer: str) -> None: ...
    def vrf(self, name: str, table: int) -> None: ...
    def remove(self, name: str) -> None: ...
    def rename(self, name: str, new: str) -> None: ...
    def rule_with_source(self, rule: Rule, source: str) -> None:
        """A rule of the administrator's, which selects by source address too."""
        ...

    def many_ports(self, bridge: str, count: int) -> None:
        """Fills a bridge with other ports."""
        ...

    def flush_nftables(self) -> None:
        """As the first line of Debian's /etc/nftables.conf does."""
        ...

    def ovs_bridge(self, name: str) -> None: ...
    def ovs_port(self, bridge: str, name: str) -> None:
        """A port of the administrator's, without our mark."""
        ...

    def freeze_switch(self) -> None: ...
    def freeze_database(self) -> None: ...
    def settle(self) -> None:
        """Waits until Open vSwitch has seen what happened."""
        ...


class SimulatedWorld:
    """A MemoryHost."""

    def __init__(self, system: bool = False, switch: bool = False, vlans: bool = True) -> None:
        """``system``: Open vSwitch uses its kernel module; ``switch``: it runs already, without a bridge; ``vlans``: bridges know them."""
        self.host = MemoryHost()
        self.host.kernel.has_vlans = vlans
        self.host.switch.condition = self.host.switch.condition._replace(there=switch)
        self.holder = HOLDER
        self._system = system
        TRACE.begin(self, SimulatedEars(self.host))

    def tap(self, name: str, persistent: bool = False, unassigned: bool = False) -> None:
        self.host.add_tap(name, self.holder, persistent=persistent)

    def let_go(self, name: str) -> None:
        self.host.let_go(name)

    def bridge(self, name: str, vlan_filtering: bool = False, default_pvid: int = 1) -> None:
        self.host.add_bridge(name, vlan_filtering=vlan_filtering, default_pvid=default_pvid, up=False)

    def vrf(self, name: str, table: int) -> None:
        self.host.add_link(Link(0, name, "vrf", table=table))

    def veth(self, name: str, peer: str) -> None:
        first = self.host.add_link(Link(0, name, "veth"))
        second = self.host.add_link(Link(0, peer, "veth", lower=first.index))
        self.host.kernel.put(first._replace(lower=second.index))

    def remove(self, name: str) -> None:
        self.host.remove_link(name)

    def rename(self, name: str, new: str) -> None:
        self.host.rename_link(name, new)

    def rule_with_source(self, rule: Rule, source: str) -> None:
        self.host.kernel.add_rule(rule._replace(plain=False, narrowed=True, source=source))

    def many_ports(self, bridge: str, count: int) -> None:
        master = self.host.kernel.named(bridge)
        assert master is not None
        for number in range(count):
            self.host.add_link(Link(0, f"port{number}", "ifb", master=master.index))

    def flush_nftables(self) -> None:
        self.host.nftables.flush()

    def ovs_bridge(self, name: str) -> None:
        self.host.add_ovs_bridge(name, self._system)
        self.host.kernel.set_link(SetLink(index(self, name), up=True))

    def ovs_port(self, bridge: str, name: str) -> None:
        self.host.add_ovs_port(bridge, name)

    def freeze_switch(self) -> None:
        self.host.switch.condition = self.host.switch.condition._replace(switch=False)

    def freeze_database(self) -> None:
        self.host.switch.condition = self.host.switch.condition._replace(database=False)

    def settle(self) -> None:
        self.host.switch.look()


class LinuxWorld:
    """A LinuxHost on a node of its own."""

    def __init__(self, node: Node, ovs: OpenVswitch | None = None) -> None:
        # the machine that tests run on may have Open vSwitch installed: then its database is there, and this is a switch that is stopped
        self.host = LinuxHost(Paths(ovs_kept="/nonexistent"), service_timeout=2 if ovs is None else 1.5)
        self.holder = os.getpid()
        self._node, self._ovs = node, ovs
        self._taps: dict[str, Tap] = {}
        self._ears = RealEars("" if ovs is None else RUN)
        TRACE.begin(self, self._ears)

    @property
    def ovs(self) -> OpenVswitch:
        assert self._ovs is not None, "ask for the fixture ovs_world"
        return self._ovs

    def tap(self, name: str, persistent: bool = False, unassigned: bool = False) -> None:
        self._taps[name] = self._node.tap(name, persistent)
        if not unassigned:
            set_address(name, made_address(socket.if_nametoindex(name)))

    def let_go(self, name: str) -> None:
        self._taps.pop(name).close()

    def bridge(self, name: str, vlan_filtering: bool = False, default_pvid: int = 1) -> None:
        # Down, as the suite's other devices: IPv6 would give an address to it, and routes with that.
        filtering = ("vlan_filtering", "1", "vlan_default_pvid", str(default_pvid)) if vlan_filtering else ()
        run("ip", "link", "add", name, "type", "bridge", *filtering)

    def vrf(self, name: str, table: int) -> None:
        run("ip", "link", "add", name, "type", "vrf", "table", str(table))

    def veth(self, name: str, peer: str) -> None:
        first, second = (made_address(number) for number in (1, 2))
        run("ip", "link", "add", name, "address", first, "type", "veth", "peer", "name", peer, "address", second)

    def remove(self, name: str) -> None:
        if name in self._taps:
            self._taps.pop(name).close()
        if os.path.exists(f"/sys/class/net/{name}"):
            run("ip", "link", "delete", name)

    def rename(self, name: str, new: str) -> None:
        run("ip", "link", "set", name, "name", new)

    def rule_with_source(self, rule: Rule, source: str) -> None:
        words = ["priority", str(rule.preference), "iif", rule.iif, "from", source, "lookup", str(rule.table)]
        run("ip", "-6" if rule.family == 10 else "-4", "rule", "add", *words, "protocol", str(rule.protocol))

    def many_ports(self, bridge: str, count: int) -> None:
        lines = "".join(f"link add port{number} address {made_address(number + 3)} master {bridge} type ifb\n" for number in range(count))
        run("ip", "-batch", "-", stdin=lines)

    def flush_nftables(self) -> None:
        run("nft", "flush", "ruleset")

    def ovs_bridge(self, name: str) -> None:
        self.ovs.bridge(name)
        self._ears.bridge(name)

    def ovs_port(self, bridge: str, name: str) -> None:
        self.ovs.vsctl("add-port", bridge, name)

    def freeze_switch(self) -> None:
        self._ears.silent.add("ovs-vswitchd")
        self.ovs.freeze("ovs-vswitchd")

    def freeze_database(self) -> None:
        self._ears.silent.add("ovsdb-server")
        self.ovs.freeze("ovsdb-server")

    def settle(self) -> None:
        """vswitchd looks at its devices after an event; a change that it has taken afterwards proves that it has."""
        for _ in range(3):
            self.ovs.vsctl("set", "Open_vSwitch", ".", f"external_ids:settled={os.urandom(4).hex()}")


@functools.cache
def knows_vlans() -> bool:
    """Tell whether bridges of the running kernel know VLANs (CONFIG_BRIDGE_VLAN_FILTERING)."""
    words = "link add br0 type bridge\nlink show br0\n"
    return "vlan_default_pvid" in run("unshare", "--net", "ip", "-details", "-batch", "-", stdin=words)


def made_address(number: int) -> str:
    """Give the MAC address of a device: those that come later have higher ones, as the simulated node's, and a bridge takes the lowest."""
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def set_address(name: str, address: str) -> None:
    """Give a device a MAC address (netdevice(7), SIOCSIFHWADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        fcntl.ioctl(made, SIOCSIFHWADDR, struct.pack("16sH6s8x", name.encode(), ARPHRD_ETHER, bytes.fromhex(address.replace(":", ""))))


def index(world: World, name: str) -> int:
    """The index of a device that is there."""
    link = world.host.view().link(name)
    assert link is not None, name
    return link.index


def do(world: World, *requests: Request, stop: bool = False) -> list[int]:
    """The answers' errnos."""
    return [answer.errno for answer in world.host.execute(requests, stop)]


def told(world: World, request: Request) -> Answer:
    """The answer to one request that is refused, as a piece of work of its own: it has its whole time."""
    world.host.begin()
    (answer,) = world.host.execute([request], stop=True)
    assert not answer.ok and answer.text, answer
    return answer


def view(world: World) -> View:
    return world.host.view()


__all__ = ["HOLDER", "LinuxWorld", "SimulatedWorld", "World", "do", "index", "knows_vlans", "sysctl", "told", "view", "wait_until"]
