"""The networks around the guest that fuzzes: a bridge, a router, a switch. The guard is put in place by the product's own door."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence

from tests.support import attacks_base as base
from tests.support.attacks import NO_GUARD, SETTINGS, Setting
from tests.support.frames import checksum
from tests.support.fuzz import facts, pools
from tests.support.fuzz.entries import Entries
from tests.support.fuzz.layer4 import udp
from tests.support.fuzz.offload import raw
from tests.support.fuzz.oracle import PLAIN, Header
from tests.support.fuzz.receivers import QUEUE, Arrival, Receiver, SocketReceiver, TapReceiver
from tests.support.netns import run, slowness, sysctl
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor

MODES = ("bridged", "routed", "openvswitch")
ALL_SETTINGS = {setting.name: setting for setting in (*SETTINGS, NO_GUARD)}
ETH_P_ALL = 3
#: What programs on a node listen for on a tap itself, where groups of bridges end: IPv4, ARP, RARP, IPv6, 802.1X, LLDP, 802.2.
PROTOCOLS = (0x0800, 0x0806, 0x8035, 0x86DD, 0x888E, 0x88CC, 4)
ACCESS, TRUNK = 10, 20
UNBOUNDED = "netcommon:0:new_sources:0"  #: the fuzz makes up many addresses in a second, and honest frames are to arrive all the same
QUIET = 0.05  #: seconds without a frame, after which all have come that had to be asked about
Sent = tuple[Header, bytes]


class Place:
    """The guest's tap, and everybody who may receive what it sends."""

    def __init__(self, mode: str, node: Node, trunk: bool = False) -> None:
        self.mode, self.world, self.count = mode, pools.WORLDS[mode], 0
        self.trunk = trunk
        self.upcalls = False  #: where the kernel forwards, what it has no entry for takes the way through the switch's program
        self.entries: Entries | None = None  #: those that the kernel has there
        self.judged = mode  #: by whose promises: where the kernel forwards the nftables guard stands before flows
        self.guest = node.tap("tap0")
        self.receivers: list[Receiver] = []
        self.facts = facts.of(NO_GUARD, mode)
        # the switch reads frames from a socket of some 200 KiB: what does not fit is lost, the sentinel too
        self.longest, self.batch = (1514, 32) if mode == "openvswitch" else (70000, 64)
        # The module openvswitch tracks connections in every namespace, and so a router waits for all fragments of a datagram.
        self.passes_fragments = mode != "routed" or not os.path.exists("/sys/module/openvswitch")
        self.refused = 0  #: frames that the kernel did not take from the tap

    def up(self, setting: Setting) -> None:
        """kvm-ifup, as Ganeti calls it; what has come until then is forgotten."""
        made = {
            "INTERFACE": "tap0",
            "MAC": base.MAC,
            "IP": setting.ip,
            "VLAN": f".{ACCESS}:{TRUNK}" if self.trunk else "",
            "INSTANCE": "web1",
            "INTERFACE_INDEX": "0",
            "INTERFACE_UUID": "5d2c0d6e-0000-4000-8000-000000000001",
            "TAGS": f"{setting.tags} netcommon:0:tap_mac:{base.HOST_MAC} {UNBOUNDED}",
            "MODE": self.mode,
            **{"bridged": {"LINK": "br0", "BRIDGE": "br0"}, "routed": {}, "openvswitch": {"LINK": "ovs0"}}[self.mode],
        }
        done = rundoor("kvm-ifup", {name: value for name, value in made.items() if value or name == "VLAN"})
        assert done.status == 0, done
        # Who takes part in every VLAN gets what the guest sends without a tag with that of its access VLAN.
        self.facts = facts.of(setting, self.judged, frozenset({ACCESS, TRUNK} if self.trunk else ()))
        self.exchange([])

    def exchange(self, frames: Sequence[Sent]) -> list[Arrival]:
        """Sends the frames; what has arrived of them, everywhere."""
        descriptor = self.guest.descriptor
        longest = self.longest
        for header, frame in frames:
            try:
                os.write(descriptor, raw(header) + frame[:longest])
            except OSError:
                self.refused += 1
        found = self.heard()
        if self.mode == "openvswitch":
            found += self.heard()  # it sorts what it takes in at once: what is sent later comes later
            while self.upcalls and self.receivers[0].ready(QUIET * slowness()):
                found += self.heard()
        with contextlib.suppress(BlockingIOError):  # what is sent to the guest itself is of no interest
            while True:
                os.read(descriptor, 64)
        return found

    def heard(self) -> list[Arrival]:
        """What everybody has received so far."""
        self.count += 1
        sentinel = b"sentinel %d." % self.count
        for last in self.sentinels(sentinel):
            os.write(self.guest.descriptor, raw(PLAIN) + last)
        return [arrival for receiver in self.receivers for arrival in receiver.until(sentinel)]

    def takes(self, header: Header) -> bool:
        """Tell whether the kernel takes such a header from a tap: some refuse what others do not know, or do not check."""
        try:
            os.write(self.guest.descriptor, raw(header) + next(self.sentinels(bytes(64))))
        except OSError as error:
            assert error.errno == errno.EINVAL
            return False
        self.exchange([])
        return True

    def sentinels(self, mark: bytes) -> Iterator[bytes]:
        """Frames that everybody may send, one for each receiver. They must come last: there is one processor, and one queue."""
        targets = (pools.OUT4, pools.BESIDE4) if self.mode == "routed" else (b"\xff" * 4,)
        for target in targets:
            body = udp(1000, 2000, mark)
            head = b"\x45\0" + (20 + len(body)).to_bytes(2, "big") + bytes(4) + b"\x40\x11\0\0" + pools.OWN4 + target
            source = pools.OWN4 if self.facts.knows4(pools.OWN4) else b"\0\0\0\0"
            head = head[:12] + source + head[16:]
            yield self.world.macs[0] + pools.MAC + b"\x08\0" + head[:10] + checksum(head) + head[12:] + body

    def seen_by(self, arrival: Arrival) -> facts.Facts:
        """The facts by which an arrival is to be judged."""
        return self.facts._replace(wire=not arrival.receiver.startswith("up"))

    def close(self) -> None:
        """Lets go of the sockets; taps are the node's."""
        for receiver in self.receivers:
            if isinstance(receiver, SocketReceiver):
                receiver.close()


def _quiet() -> None:
    """The node says nothing by itself."""
    for name in ("all", "default"):
        sysctl(f"net/ipv6/conf/{name}/disable_ipv6", "1")
    sysctl("net/ipv4/igmp_link_local_mcast_reports", "0")  # a new bridge is in the group of snoopers, and says so when it likes


def _taps(node: Node, place: Place, *names: str) -> None:
    """Two taps that receive, the second one able to take frames as they were sent."""
    for name, able in zip(names, (False, True), strict=True):
        tap = node.tap(name)
        run("ip", "link", "set", name, "txqueuelen", QUEUE, "mtu", "65521", "up")
        place.receivers.append(TapReceiver(tap, able))


def bridged(node: Node) -> Place:
    """A bridge with the guest and two others."""
    _quiet()
    place = Place("bridged", node)
    _taps(node, place, "tap1", "tap2")
    node.bridge("br0", "tap1", "tap2")
    run("ip", "link", "set", "tap0", "mtu", "65521")
    run("ip", "link", "set", "br0", "mtu", "65521", "address", base.HOST_MAC, "type", "bridge", "mcast_snooping", "0")
    for family in ("arp", "ip", "ip6"):
        if os.path.exists(f"/proc/sys/net/bridge/bridge-nf-call-{family}tables"):
            sysctl(f"net/bridge/bridge-nf-call-{family}tables", "0")
    place.receivers += [SocketReceiver("node, br0", "br0", [ETH_P_ALL]), SocketReceiver("node, tap0", "tap0", PROTOCOLS)]
    return place


def routed(node: Node) -> Place:
    """A router with the guest and two uplinks, behind which nobody is asked for who has an address."""
    for name in ("all", "default"):
        sysctl(f"net/ipv4/conf/{name}/rp_filter", "0")
        sysctl(f"net/ipv6/conf/{name}/autoconf", "0")
        sysctl(f"net/ipv6/conf/{name}/router_solicitations", "0")
    place = Place("routed", node)
    _taps(node, place, "up0", "up1")
    node.forwarding(ipv6=True)
    for name, *targets in (("up0", pools.OUT4, pools.OUT6), ("up1", pools.BESIDE4, pools.BESIDE6)):
        run("ip", "link", "set", name, "addrgenmode", "none", "multicast", "off")
        run("ip", "-6", "address", "flush", "dev", name)
        for target in targets:
            address = pools.address(target)
            run("ip", "route", "replace", address, "dev", name)
            run("ip", "neigh", "replace", address, "lladdr", base.OUT_MAC, "dev", name, "nud", "permanent")
    node.address("up0", f"{base.HOST4}/32", f"{base.HOST6}/128")
    for gateway in (base.OUT4, base.OUT6):
        run("ip", "route", "replace", "default", "via", gateway, "dev", "up0", "onlink")
    place.receivers.append(SocketReceiver("node, tap0", "tap0", PROTOCOLS))
    return place


def openvswitch(node: Node, ovs: OpenVswitch, trunk: bool = False) -> Place:
    """A switch with the guest and two others, and the node on the switch's own interface."""
    _quiet()
    place = Place("openvswitch", node, trunk)
    if ovs.datapath != "netdev":
        place.upcalls, place.entries, place.judged = True, Entries("ovs0", "tap0"), "bridged"
    _taps(node, place, "tap1", "tap2")
    ovs.bridge("ovs0", "tap1", "tap2")
    ovs.vsctl("set", "Bridge", "ovs0", "other_config:forward-bpdu=true", f'other_config:hwaddr="{base.HOST_MAC}"')
    ovs.vsctl("set", "Open_vSwitch", ".", "other_config:flow-limit=20000")
    place.receivers.append(SocketReceiver("node, ovs0", "ovs0", [ETH_P_ALL], waits=True))
    return place


@contextlib.contextmanager
def made(node: Node, mode: str, trunk: bool = False) -> Iterator[Place]:
    """The place of a mode, without its guard. ``trunk``: the switch's port has an access VLAN and a trunk."""
    with contextlib.ExitStack() as stack:
        if mode == "openvswitch":
            place = openvswitch(node, stack.enter_context(OpenVswitch.started()), trunk)
        else:
            place = bridged(node) if mode == "bridged" else routed(node)
        stack.callback(place.close)
        yield place
