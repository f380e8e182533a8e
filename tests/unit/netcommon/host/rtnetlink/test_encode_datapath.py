"""Questions for routes byte for byte as pyroute2 makes them; and what it encodes of answers, devices and groups, we read."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from netcommon.host.api.datapath import BLOCKING, LOCAL, BridgeState, DeviceState, PortState, Question, Way
from netcommon.host.rtnetlink import encode_datapath
from netcommon.host.rtnetlink.attributes import MalformedError, attribute, message
from tests.support.pyroute import GETROUTE, NEWLINK, NEWROUTE, theirs

LOOKUP, MATCH = 0x1000, 0x2000
SKIPPED = 16  #: bytes of a netlink header


#: Attributes that pyroute2 does not know (linux/rtnetlink.h), as they are on the wire.
UID = b"\x08\0\x19\0" + bytes(4)
UDP = b"\x05\0\x1b\0\x11\0\0\0" + b"\x06\0\x1c\0\x9c\x40\0\0" + b"\x06\0\x1d\0\0\x35\0\0"
PING = b"\x05\0\x1b\0\x01\0\0\0"


def asked(family: int, tos: int, flags: int, *attrs: tuple[str, Any], source: bool = True, more: bytes = UID) -> bytes:
    bits = 32 if family == 2 else 128
    fields = {"family": family, "dst_len": bits, "src_len": bits if source else 0, "tos": tos, "flags": flags}
    made = theirs(rtmsg, GETROUTE, 0, fields, *attrs)
    return (len(made) + len(more)).to_bytes(4, "little") + made[4:] + more


ENDS = ("RTA_DST", "198.51.100.1"), ("RTA_SRC", "10.0.0.5"), ("RTA_IIF", 7)
QUESTIONS = {
    "where from a tap": (
        Question(2, "198.51.100.1", "10.0.0.5", 7, 5, 0x13, 17, 40000, 53),
        asked(2, 0x10, LOOKUP, *ENDS, ("RTA_MARK", 5), more=UID + UDP),
    ),
    "ping": (Question(2, "198.51.100.1", "10.0.0.5", 7, protocol=1), asked(2, 0, LOOKUP, *ENDS, ("RTA_MARK", 0), more=UID + PING)),
    "from the node": (Question(10, "2001:db8::1", protocol=47), asked(10, 0, 0, ("RTA_DST", "2001:db8::1"), ("RTA_MARK", 0), source=False)),
}


@pytest.mark.parametrize(("question", "expected"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_byte_for_byte(question: Question, expected: bytes) -> None:
    made = encode_datapath.question(question)
    assert message(made.type, made.flags, made.body, 77).hex(" ") == expected.hex(" ")
    assert int.from_bytes(encode_datapath.question(question, match=True).body[8:12], "little") & MATCH


def test_answers() -> None:
    fields = {"family": 2, "dst_len": 24, "table": 100, "proto": 174, "type": 1}
    more = ("RTA_METRICS", {"attrs": [("RTAX_MTU", 1400)]})
    places = ("RTA_DST", "10.1.0.0"), ("RTA_OIF", 3), ("RTA_GATEWAY", "10.0.0.1"), ("RTA_TABLE", 1000)
    body = theirs(rtmsg, NEWROUTE, 0, fields, *places, more)
    assert encode_datapath.way(body[SKIPPED:]) == Way(0, 1, 3, "10.0.0.1", 1000, "10.1.0.0/24", 174, 1400)
    local = theirs(rtmsg, NEWROUTE, 0, {"family": 10, "type": LOCAL, "table": 255}, ("RTA_OIF", 1))
    assert encode_datapath.way(local[SKIPPED:]) == Way(0, LOCAL, 1, "", 255, "::/0")


def test_devices() -> None:
    data = {"attrs": [("IFLA_BRPORT_STATE", BLOCKING), ("IFLA_BRPORT_MODE", 1), ("IFLA_BRPORT_BCAST_FLOOD", 0), ("IFLA_BRPORT_LOCKED", 1)]}
    info = {"attrs": [("IFLA_INFO_SLAVE_KIND", "bridge"), ("IFLA_INFO_SLAVE_DATA", data)]}
    body = theirs(ifinfmsg, NEWLINK, 0, {"index": 9}, ("IFLA_CARRIER", 0), ("IFLA_LINKINFO", info))
    port = PortState(BLOCKING, hairpin=True, locked=True, bcast_flood=False)
    assert encode_datapath.device(body[SKIPPED:]) == DeviceState(carrier=False, port=port)
    flags = ("IFLA_BR_STP_STATE", "IFLA_BR_MCAST_SNOOPING", "IFLA_BR_MCAST_QUERIER")
    data = {"attrs": [("IFLA_BR_GROUP_FWD_MASK", 0x4000), *((flag, 1) for flag in flags)]}
    info = {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", data)]}
    body = theirs(ifinfmsg, NEWLINK, 0, {"index": 9}, ("IFLA_CARRIER", 1), ("IFLA_LINKINFO", info))
    assert encode_datapath.device(body[SKIPPED:]).bridge == BridgeState(stp=True, group_fwd_mask=0x4000, querier=True)


def test_options_of_a_bridge() -> None:
    """IFLA_BR_MULTI_BOOLOPT, which pyroute2 does not know: linux/if_bridge.h, struct br_boolopt_multi."""
    data = {"attrs": [("IFLA_BR_AGEING_TIME", 0)]}
    info = {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", data)]}
    body = theirs(ifinfmsg, NEWLINK, 0, {"index": 9, "flags": 0x181}, ("IFLA_LINKINFO", info))[SKIPPED:]
    assert encode_datapath.device(body) == DeviceState(bridge=BridgeState(snooping=False, ageing=False), arp=False, promiscuous=True)
    options = attribute(2, attribute(46, struct.pack("=II", 0x16, 0x1F)))
    body = body[:16] + attribute(18, attribute(1, b"bridge\0") + options)
    state = BridgeState(snooping=False, vlan_snooping=True, mst=True, local_vlan_0=True)
    assert encode_datapath.device(body) == DeviceState(bridge=state, arp=False, promiscuous=True)


def test_states_of_vlans() -> None:
    """RTM_NEWVLAN (linux/if_bridge.h, BRIDGE_VLANDB_ENTRY): ranges are spread out, what forwards is left out."""

    def entry(vid: int, state: int, last: int = 0) -> bytes:
        ends = attribute(2, struct.pack("=H", last)) if last else b""
        return attribute(1, attribute(1, struct.pack("=HH", 0, vid)) + ends + attribute(3, bytes((state,))))

    body = struct.pack("=BxxxI", 7, 9) + entry(1, 3) + entry(10, 4, 12) + entry(20, 2)
    assert encode_datapath.vlan_states([body]) == {9: {10: 4, 11: 4, 12: 4, 20: 2}}
    assert set(encode_datapath.vlan_states([struct.pack("=BxxxI", 7, 9) + entry(4094, 4, 0xFFFF)])[9]) == {4094}


def test_groups() -> None:
    body = bytes((10, 128, 0, 0)) + (9).to_bytes(4, "little") + (20).to_bytes(2, "little") + b"\7\0\xff\2" + bytes(13) + b"\1"
    assert encode_datapath.group(body) == (9, "ff02::1")


@pytest.mark.parametrize(("family", "address"), [(2, "10.0.0.1"), (10, "fd00::1")])
def test_neighbours(family: int, address: str) -> None:
    wanted = theirs(ndmsg, 30, 0, {"family": family, "ifindex": 7}, ("NDA_DST", address))
    assert wanted[SKIPPED:] == encode_datapath.get_neighbour(family, 7, address).body
    for state, silent in ((0x20, True), (0x01, True), (0x02, False), (0x04, False), (0x80, False), (0x40, False)):
        body = theirs(ndmsg, 28, 0, {"family": family, "ifindex": 7, "state": state}, ("NDA_DST", address))
        assert encode_datapath.unanswered(body[SKIPPED:]) is silent


@pytest.mark.parametrize("reader", [encode_datapath.way, encode_datapath.group, encode_datapath.device, encode_datapath.unanswered])
def test_what_is_cut_off(reader: Any) -> None:
    with pytest.raises(MalformedError):
        reader(b"\2\0")
