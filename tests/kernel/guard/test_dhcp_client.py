"""A real DHCP client (udhcpc) beside a guest that answers it as a server would, by frames that a guard may take for something else.

Its raw socket takes a first fragment for a whole datagram, and does not look at the address that it was sent to.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tests.support.attacks import ADDRESSES
from tests.support.attacks_base import MAC, OWN4
from tests.support.netns import Namespace, run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor
from tests.support.tap import Tap
from tests.support.virtio import VirtioGuest

OFFERED, SERVER_PORT, CLIENT_PORT, OFFER, ACK = "10.0.0.77", 67, 68, "offer", "ack"
GSO_UDP = 3  #: VIRTIO_NET_HDR_GSO_UDP
SCRIPT = '#!/bin/busybox sh\n[ "$1" != bound ] || echo "$ip" >>"$0.bound"\n'
GUARDED, UNGUARDED = f"netcommon:0:spoof_guard:true {ADDRESSES}", f"netcommon:0:spoof_guard:false {ADDRESSES}"


class Answer(NamedTuple):
    """Describe how the guest sends its answer: to which address, whole or as one fragment; ``size``: what a segment of it is to hold."""

    name: str
    destination: str
    flags: str = ""
    offset: int = 0  #: of a fragment, in units of eight bytes
    size: int = 0

    @property
    def header(self) -> bytes:
        """Give what the driver puts before the frame (struct virtio_net_hdr): whether the kernel shall cut it up, as UDP's fragments."""
        return struct.pack("=BBHHHH", 0, GSO_UDP if self.size else 0, 42 if self.size else 0, self.size, 0, 0)


ANSWERS = (
    Answer("a datagram to all", "255.255.255.255"),
    Answer("a first fragment to the offered address", OFFERED, "MF"),
    Answer("a first fragment to all hosts", "224.0.0.1", "MF"),
)


#: By a later fragment that the kernel cuts up anew, from offset 0; and plainly.
OF_QEMU = (Answer("a datagram to all", "255.255.255.255"), Answer("later fragments, cut anew", "255.255.255.255", "", 1, 512))


class Sender(Protocol):
    """A guest that hears what a client asks, and answers."""

    def send(self, frame: bytes, header: bytes) -> None: ...
    def receive(self, wanted: Callable[[bytes], bool], seconds: float) -> bytes | None: ...


class Wire(NamedTuple):
    """The guest's tap, the namespace of the client, and the variables of the guest's NIC."""

    tap: Tap
    client: Namespace
    variables: dict[str, str]

    def up(self, tags: str) -> None:
        made = {"INTERFACE": "tap0", "MAC": MAC, "IP": OWN4, "VLAN": "", "INSTANCE": "web1", "INTERFACE_INDEX": "0", "TAGS": tags}
        made["INTERFACE_UUID"] = "5d2c0d6e-0000-4000-8000-000000000001"
        done = rundoor("kvm-ifup", {**made, **self.variables})
        assert done.status == 0, done.stderr


@pytest.fixture
def wire(node: Node, request: pytest.FixtureRequest) -> Iterator[Wire]:
    client, tap = node.outside("up0"), node.tap("tap0")
    with contextlib.ExitStack() as stack:
        if request.param == "openvswitch":
            stack.enter_context(OpenVswitch.started()).bridge("ovs0", "up0")
            yield Wire(tap, client, {"MODE": "openvswitch", "LINK": "ovs0"})
        else:
            node.bridge("br0", "up0")
            run("ip", "link", "set", "up0", "up")
            yield Wire(tap, client, {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"})


def reply(asked: Packet, how: Answer) -> bytes:
    """The guest's answer to a client's message."""
    options = dict(option for option in asked[DHCP].options if isinstance(option, tuple))
    kind = OFFER if options["message-type"] == 1 else ACK
    said = [("message-type", kind), ("server_id", OWN4), ("lease_time", 3600), ("subnet_mask", "255.255.255.0"), "end"]
    message = BOOTP(op=2, xid=asked[BOOTP].xid, yiaddr=OFFERED, chaddr=asked[BOOTP].chaddr) / DHCP(options=said)
    header = IP(src=OWN4, dst=how.destination, flags=how.flags, frag=how.offset)
    datagram = UDP(sport=SERVER_PORT, dport=CLIENT_PORT, chksum=0, len=how.size or None)
    return bytes(Ether(src=MAC, dst=asked.src) / header / datagram / (bytes(message) + beyond(bytes(message), how.size)))


def beyond(message: bytes, size: int) -> bytes:
    """Make what follows a message that the kernel cuts into fragments of ``size`` bytes: the first one is to be a whole datagram by itself.

    The checksum that the kernel makes is of all of it (udp4_ufo_fragment()): the last word takes out what the client does not get.
    """
    if not size:
        return b""
    padding = bytes(size + len(message) % 2)
    more = 8 + len(message) + len(padding) + 2 - size
    return padding + (0xFFFF - more).to_bytes(2, "big")


class Server(threading.Thread):
    """The guest that answers whatever a DHCP client sends, until it is ended."""

    def __init__(self, guest: Sender, how: Answer) -> None:
        super().__init__(daemon=True)
        self.guest, self.how, self.over, self.answered = guest, how, threading.Event(), 0

    def run(self) -> None:
        while not self.over.is_set():
            frame = self.guest.receive(lambda frame: frame[12:14] == b"\x08\0" and frame[23] == 17 and frame[36:38] == b"\0\x43", 0.1)
            if frame is not None:
                self.guest.send(reply(Ether(frame), self.how), self.how.header)
                self.answered += 1


def bound(client: Namespace, guest: Sender, how: Answer, folder: Path) -> tuple[str, int]:
    """The address to which a client lets itself be bound, and how often it was answered."""
    script = folder / "script"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    server = Server(guest, how)
    server.start()
    try:
        argv = ("busybox", "udhcpc", "-i", "eth0", "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", str(script))
        client.run(*argv, check=False)
    finally:
        server.over.set()
        server.join()
    told = Path(f"{script}.bound")
    return (told.read_text().strip() if told.exists() else ""), server.answered


@pytest.mark.parametrize("how", ANSWERS, ids=lambda how: how.name)
@pytest.mark.parametrize("wire", ["bridged", "openvswitch"], indirect=True)
def test_no_client_is_bound_by_a_guest(wire: Wire, how: Answer, tmp_path: Path) -> None:
    wire.up(UNGUARDED)
    assert bound(wire.client, wire.tap, how, tmp_path)[0] == OFFERED
    (tmp_path / "script.bound").unlink()
    wire.up(GUARDED)
    address, answered = bound(wire.client, wire.tap, how, tmp_path)
    assert (address, answered > 0) == ("", True)


@pytest.mark.parametrize("how", OF_QEMU, ids=lambda how: how.name)
@pytest.mark.parametrize("wire", ["bridged"], indirect=True)
def test_no_client_is_bound_by_a_guest_of_qemu(wire: Wire, how: Answer, tmp_path: Path) -> None:
    """The same through QEMU's own device, with the header that a hostile driver puts before its frame."""
    wire.tap.persist()
    wire.up(UNGUARDED)
    with contextlib.closing(VirtioGuest("tap0", MAC)) as guest:
        assert bound(wire.client, guest, how, tmp_path)[0] == OFFERED
        (tmp_path / "script.bound").unlink()
        wire.up(GUARDED)
        address, answered = bound(wire.client, guest, how, tmp_path)
        assert (address, answered > 0) == ("", True)
