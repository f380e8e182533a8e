"""Put a drawn node up, send its frames one after the other, and tell where each arrives: the oracle, which knows nothing of trace."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import time
from typing import NamedTuple

from tests.support.datapath import changes, frames
from tests.support.datapath import places as at
from tests.support.datapath.changes import Change
from tests.support.datapath.frames import Shot, returned
from tests.support.datapath.places import BRIDGED, Place
from tests.support.frames import ARP_REPLY
from tests.support.netns import Namespace, ask, run, slowness, sysctl, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor

ETH_P_ALL, SO_RCVBUFFORCE, OUTGOING = 3, 33, 4
#: What ip says of a change that another one has made impossible: a route by a device that is off or has no IPv6, by a gateway to which no
#: route leads.
IMPOSSIBLE = (
    *(
        "Command failed",
        "Error: Nexthop has invalid gateway",
        "Error: Device for nexthop is not up",
        "Error: Nexthop device is not up",
        "Error: Gateway can not be a local",
    ),
    *(
        "RTNETLINK answers: No route to host",
        "RTNETLINK answers: Network is ",
        "RTNETLINK answers: File exists",
        "RTNETLINK answers: No such device",
        "Error: IPv6 is disabled",
    ),
)
HOPS = 4  #: more than a frame has devices in a row on its way
UUID = "5d2c0d6e-0000-4000-8000-000000000001"

#: Where a frame can be found: a device by which it left, the node's own programs, and the node's answer to what was asked.
NODE, ANSWER = "node", "answer"


class Scene(NamedTuple):
    """A node, and the frames that are sent on it."""

    seed: str
    place: Place
    guarded: bool
    changes: tuple[Change, ...]
    shots: tuple[Shot, ...]

    @property
    def words(self) -> str:
        return f"{self.seed}: {self.place.mode}{', guarded' if self.guarded else ''}; " + "; ".join(each.words for each in self.changes)


def draw(seed: str, count: int) -> Scene:
    """The scene of a seed, with ``count`` frames."""
    dice = random.Random(seed)
    place = at.place(dice.choice(at.MODES))
    guarded = dice.random() < 0.25
    made = changes.draw(dice, place)
    return Scene(seed, place, guarded, made, tuple(frames.draw(dice, place, number) for number in range(count)))


class Stage:
    """A node in the calling thread's namespaces, as its scene says, and ears at every end."""

    def __init__(self, node: Node, scene: Scene) -> None:
        self.node, self.scene = node, scene
        self.outside = {name: node.namespaced() for name in ("up0", "up1")}
        self._clock = node.namespaced()
        self._stack = contextlib.ExitStack()
        self._found: dict[Shot, set[str]] = {}
        self._answers: list[bytes] = []
        self._basis()
        self._change()
        self._ears()

    def close(self) -> None:
        self._stack.close()

    # -- the node

    def _basis(self) -> None:
        bridged = self.scene.place.mode == BRIDGED
        for name, mac, far in (("up0", at.UP_MAC, at.OUT_MAC), ("up1", at.UP1_MAC, at.OUT1_MAC)):
            peer = self.outside[name]
            run("ip", "link", "add", name, "address", mac, "type", "veth", "peer", "name", "eth0", "address", far, "netns", peer.path)
            peer.run("ip", "link", "set", "eth0", "up")
        self.taps = {name: self.node.tap(name) for name in ("tap0", "tap1")}
        for path in ("net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter"):
            sysctl(path, "0")
        bridge = ["link add br0 type bridge forward_delay 0", f"link set br0 address {at.BRIDGE_MAC}", "link set br0 up"]
        bridge += [f"link set {name} master br0" for name in ("tap1", "up0")]
        bridge += [f"address add {at.BRIDGE4}/24 dev br0", f"address add {at.BRIDGE6}/64 dev br0 nodad"]
        up0 = [f"address add {at.UP4}/24 dev up0", f"address add {at.UP6}/64 dev up0 nodad"]
        up0 += [f"route add {at.PEER4} dev tap1", f"route add {at.PEER6} dev tap1"]
        up1 = [f"address add {at.UP14}/24 dev up1", f"address add {at.UP16}/64 dev up1 nodad"]
        first = [f"link set tap1 address {at.TAP1_MAC}", *(f"link set {name} up" for name in ("up0", "up1", "tap1"))]
        self._ip([*first, *(bridge if bridged else up0), *up1])
        for path in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"):
            sysctl(path, "1")
        gateways = (at.GATEWAY14, at.GATEWAY16, "up1") if bridged else (at.GATEWAY4, at.GATEWAY6, "up0")
        self._ip([f"route add default via {gateways[0]}", f"-6 route add default via {gateways[1]} dev {gateways[2]}"])
        self._guest()
        known = [("up1", at.OUT1_MAC, at.GATEWAY14, at.GATEWAY16)]
        if bridged:
            known += [
                ("br0", at.GUEST_MAC, at.GUEST4, at.GUEST6),
                ("br0", at.PEER_MAC, at.PEER4, at.PEER6),
                ("br0", at.OUT_MAC, at.OUT4, at.OUT6),
            ]
        else:
            known += [("tap0", at.GUEST_MAC, at.GUEST4, at.GUEST6), ("tap1", at.PEER_MAC, at.PEER4, at.PEER6)]
            known.append(("up0", at.OUT_MAC, at.GATEWAY4, at.GATEWAY6))
        pairs = [(address, device, mac) for device, mac, *addresses in known for address in addresses]
        pairs += [(at.LINK6, "br0" if bridged else "tap0", at.GUEST_MAC), (at.LINK6, "up0", at.OUT_MAC), (at.LINK6, "up1", at.OUT1_MAC)]
        self._ip([f"neigh replace {address} dev {device} lladdr {mac} nud permanent" for address, device, mac in pairs])
        for device in ("br0" if bridged else "tap0", "up0", "up1"):
            for family in ("ipv4", "ipv6"):
                sysctl(f"net/{family}/neigh/{device}/proxy_delay", "0")
        if bridged:
            # a port that has just got its carrier is made to forward a moment later, whatever its state was set to
            wait_until(lambda: {each["state"] for each in ask("bridge", "-j", "link")} == {"forwarding"}, 5, "ports forward")
            for mac, port in ((at.PEER_MAC, "tap1"), (at.OUT_MAC, "up0")):
                run("bridge", "fdb", "replace", mac, "dev", port, "master", "dynamic")

    def _guest(self) -> None:
        """The NIC itself, by the door, as Ganeti has it made."""
        place = self.scene.place
        said = {"MODE": place.mode, "LINK": "br0" if place.mode == BRIDGED else "", "INTERFACE": "tap0", "MAC": at.GUEST_MAC, "VLAN": ""}
        # An announcement is repeated seconds later, when it would be taken for the node's answer to a solicitation.
        tags = [f"addresses:{at.GUEST6}", "announce:off", *(["spoof_guard:off"] if not self.scene.guarded else [])]
        if place.mode != BRIDGED:
            tags.append(f"tap_mac:{at.BRIDGE_MAC}")
        who = {"INSTANCE": "web1", "INTERFACE_INDEX": "0", "INTERFACE_UUID": UUID, "TAGS": " ".join(f"netcommon:0:{tag}" for tag in tags)}
        done = rundoor("kvm-ifup", {**said, **who, "IP": at.GUEST4})
        assert done.status == 0, done

    def _change(self) -> None:
        everything = self.scene.changes
        for path, value in (pair for each in everything for pair in each.sysctl):
            if os.path.exists(f"/proc/sys/{path}"):
                sysctl(path, value)
        self._ip([line for each in everything for line in each.ip], forced=True)
        run("bridge", "-force", "-batch", "-", stdin="\n".join(line for each in everything for line in each.bridge) + "\n", check=False)
        for each in everything:
            if each.nft:
                run("nft", "-f", "-", stdin=each.nft + "\n")
        away = sorted({name for each in everything for name in each.away})
        for name in away:
            self.outside[name].run("ip", "link", "set", "eth0", "down")
        for name in away:
            _deaf(name)

    def _ip(self, lines: list[str], forced: bool = False) -> None:
        """Lines that begin with "-6" are for IPv6. ``forced``: a change that another one has made impossible is left out."""
        for six in (False, True):
            chosen = [line.removeprefix("-6 ") for line in lines if line.startswith("-6 ") == six]
            words = ("ip", *(("-6",) if six else ()), *(("-force",) if forced else ()), "-batch", "-")
            said = run(*words, stdin="\n".join(chosen) + "\n", check=not forced)
            strange = [line for line in said.splitlines() if line and not line.startswith(IMPOSSIBLE)]
            assert not strange, (chosen, strange)

    # -- ears

    def _ears(self) -> None:
        self._outside = {name: self._packet_socket(peer, "eth0") for name, peer in self.outside.items()}
        self._own = self._packet_socket(None, "")
        protocols = ((socket.AF_INET, socket.IPPROTO_UDP), (socket.AF_INET, socket.IPPROTO_ICMP), (socket.AF_INET6, socket.IPPROTO_UDP))
        raw = [socket.socket(family, socket.SOCK_RAW, number) for family, number in (*protocols, (socket.AF_INET6, socket.IPPROTO_ICMPV6))]
        self._inside = [self._stack.enter_context(each) for each in raw]
        for each in self._inside:
            each.setblocking(False)
        with self._clock.entered():
            self._tick = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._tick.bind(("127.0.0.1", 0))
        self._settle()

    def _packet_socket(self, namespace: Namespace | None, device: str) -> socket.socket:
        with namespace.entered() if namespace else contextlib.nullcontext():
            made = self._stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        if device:
            made.bind((device, 0))
        made.setblocking(False)
        return made

    def _settle(self) -> None:
        """Wait until the kernel has handled what was sent: on one processor loopback's packets queue up behind it, once for each hop."""
        for number in range(HOPS):
            self._tick.sendto(bytes((number,)), self._tick.getsockname())
            assert select.select([self._tick], [], [], 5 * slowness())[0], "loopback is silent"
            self._tick.recv(16)

    def _collect(self) -> None:
        """Note of all that has come since which frames are where."""
        heard = {name: _all(each) for name, each in self._outside.items()}
        heard |= {name: tap.drain() for name, tap in self.taps.items()}
        for name, seen in heard.items():
            self._note(name, [each for each in seen if not returned(each)])
        self._note(NODE, [data for each in self._inside for data in _all(each, every=True) if not _quoted(each, data)])
        self._answers += _all(self._own, outgoing=True)

    def _note(self, name: str, seen: list[bytes]) -> None:
        for shot, places in self._found.items():
            if any(shot.token in each for each in seen):
                places.add(name)

    # -- frames

    def send(self, shot: Shot, device: str, expected: frozenset[str]) -> None:
        """Send it into ``device`` of the node. Where it is ``expected`` a processor that is late has a second to bring it to."""
        self._settle()
        self._collect()
        self._answers.clear()
        found = self._found.setdefault(shot, set())
        with contextlib.suppress(OSError):  # the device is off
            (self.taps[device].send if device in self.taps else self._outside[device].send)(shot.data)
        limit = time.monotonic() + slowness()
        while True:
            self._settle()
            self._collect()
            if shot.asks and any(_answers(each, shot) for each in self._answers):
                found.add(ANSWER)
            if expected <= found or time.monotonic() > limit:
                return

    def arrived(self, shot: Shot) -> frozenset[str]:
        """Where it has arrived by now."""
        self._settle()
        self._collect()
        return frozenset(self._found[shot])


def _deaf(name: str) -> None:
    """Wait until the kernel has taken note that the device has no carrier (linkwatch)."""

    def noted() -> bool:
        return str(ask("ip", "-j", "link", "show", "dev", name)[0]["operstate"]) in ("DOWN", "LOWERLAYERDOWN")

    wait_until(noted, 5, name)


def _quoted(ear: socket.socket, packet: bytes) -> bool:
    """Tell whether what a raw socket got only quotes another packet, or answers an echo request. Of IPv4 it has the header, of IPv6 not."""
    if ear.family == socket.AF_INET:
        return packet[9] == frames.ICMP and packet[(packet[0] & 15) * 4] in frames.ERRORS4
    return ear.proto == socket.IPPROTO_ICMPV6 and packet[0] in frames.ERRORS6


def _answers(frame: bytes, shot: Shot) -> bool:
    """Tell whether a frame that the node sends says to whoever asks that the address is here."""
    asked, asker = frames.packed(shot.asks), shot.data[6:12]
    if frame[12:14] == b"\x08\x06":
        return frame[20:22] == ARP_REPLY.to_bytes(2, "big") and frame[28:32] == asked and frame[32:38] == asker
    return frame[12:14] == b"\x86\xdd" and frame[20] == frames.ICMP6 and frame[54] == 136 and frame[62:78] == asked


def _all(ear: socket.socket, outgoing: bool = False, every: bool = False) -> list[bytes]:
    """Read what a socket has got; of a packet socket's frames those that came in, or those that are sent."""
    found: list[bytes] = []
    while True:
        try:
            data, address = ear.recvfrom(65600)
        except OSError:
            return found
        if every or (address[2] == OUTGOING) == outgoing:
            found.append(data)
