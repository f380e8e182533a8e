"""A bridge that snoops reads what guests send: who makes itself its querier? The kernel is asked what it believes."""

from __future__ import annotations

import socket
import struct

import pytest

from netcommon.host.rtnetlink.attributes import attributes
from netcommon.host.rtnetlink.decode import INFO_DATA
from netcommon.host.rtnetlink.encode import IFINFO, IFLA_LINKINFO
from tests.kernel.test_doors_parallel import environment
from tests.kernel.test_guard_verdicts import MAC, ip4
from tests.support.frames import checksum
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor

RTM_GETLINK, QUERIER_STATE = 18, 47
GROUP = bytes.fromhex("01005e000001")


def query(fragment: int) -> bytes:
    """A general query (RFC 2236) of the guest's own address, whole or as a fragment of that offset."""
    body = b"\x11\x01\0\0" + bytes(4)
    body = body[:2] + checksum(body) + body[4:]
    made = ip4("10.0.0.1", body, 2, fragment)
    packet = made[14:24] + bytes(2) + made[26:30] + bytes((224, 0, 0, 1)) + made[34:]
    packet = packet[:10] + checksum(packet[:20]) + packet[12:]
    return GROUP + made[6:14] + packet


def querier() -> bytes:
    """Ask the kernel what the bridge believes of its querier (IFLA_BR_MCAST_QUERIER_STATE, which ip(8) of Debian 12 does not show)."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as asked:
        body = IFINFO.pack(0, 0, socket.if_nametoindex("br0"), 0, 0)
        asked.send(struct.pack("=IHHII", 16 + len(body), RTM_GETLINK, 1, 1, 0) + body)
        found = attributes(asked.recv(65536)[16:], IFINFO.size)
    return attributes(attributes(found[IFLA_LINKINFO])[INFO_DATA]).get(QUERIER_STATE, b"")


@pytest.mark.parametrize("fragment", [0, 1, 9, 0x1FFF, 0x2001])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_guest_becomes_no_querier(node: Node, guarded: bool, fragment: int) -> None:
    node.bridge("br0")
    tap = node.tap()
    tags = "" if guarded else "netcommon:*:spoof_guard:no"
    assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="10.0.0.1", MAC=MAC, TAGS=tags)).status == 0
    before = querier()
    tap.send(query(fragment))
    if guarded:
        wait_until(lambda: "query" in run("nft", "list", "table", *table()) and counted() == 1, 5, "the guard drops it")
        assert querier() == before
    else:
        wait_until(lambda: bytes((10, 0, 0, 1)) in querier(), 5, "the bridge believes it: that is how this test sees")


def table() -> tuple[str, str]:
    return next(tuple(line.split()[1:3]) for line in run("nft", "list", "tables").splitlines() if "netcommon-guard" in line)  # type: ignore[return-value]


def counted() -> int:
    """Count the frames that the guard has dropped as queries."""
    listed = run("nft", "list", "set", *table(), "dropped-query")
    return sum(int(part.split()[0]) for part in listed.split("counter packets ")[1:])
