"""Messages for bridge ports: byte for byte what pyroute2 makes of the same fields; and what it encodes, we read."""

from __future__ import annotations

from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg

from netcommon.host.api.facts import LEARNED, LOCAL, STATIC, FdbEntry, Port
from netcommon.host.api.requests import AddFdb, DeleteFdb, FlushPort, SetPort
from netcommon.host.rtnetlink import encode_port
from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, message
from netcommon.host.rtnetlink.encode import ELSEWHERE, encode
from tests.support.pyroute import CREATE, DELNEIGH, GETNEIGH, NEWLINK, NEWNEIGH, REPLACE, SETLINK, theirs

MAC = "aa:00:00:00:00:01"
NESTED = 0x8000
#: The flags by the names of linux/if_link.h.
NAMES = {
    "isolated": "ISOLATED",
    "learning": "LEARNING",
    "flood": "UNICAST_FLOOD",
    "mcast_flood": "MCAST_FLOOD",
    "fastleave": "FAST_LEAVE",
    "mcast_to_unicast": "MCAST_TO_UCAST",
    "mcast_router": "MULTICAST_ROUTER",
}


def ours(made: Encoded) -> bytes:
    return message(made.type, made.flags, made.body, 77)


def flag(name: str, value: int) -> bytes:
    attrs: list[tuple[str, Any]] = [("IFLA_BRPORT_" + NAMES[name], value)] if name else []
    forgets = not name or (name, value) == ("learning", 0)
    inner = {"attrs": [*attrs, *([("IFLA_BRPORT_FLUSH", None)] if forgets else [])]}
    return theirs(ifinfmsg, SETLINK, 0, {"family": 7, "index": 9}, ("IFLA_PROTINFO", inner, NESTED))


def entry(number: int, flags: int, state: int, ntf: int, *attrs: tuple[str, Any], index: int = 9) -> bytes:
    fields = {"family": 7, "ifindex": index, "state": state, "flags": ntf}
    return theirs(ndmsg, number, flags, fields, ("NDA_LLADDR", MAC), *attrs)


CASES = {
    **{f"{name} {value}": (SetPort(9, name, value), flag(name, int(value))) for name in Port._fields for value in (True, False)},
    "forget": (FlushPort(9), flag("", 0)),
    "entry": (AddFdb(9, MAC), entry(NEWNEIGH, CREATE | REPLACE, 0x40, 0x44)),
    "entry in a VLAN": (AddFdb(9, MAC, 10), entry(NEWNEIGH, CREATE | REPLACE, 0x40, 0x44, ("NDA_VLAN", 10))),
    "delete entry": (DeleteFdb(9, MAC), entry(DELNEIGH, 0, 0, 0x04)),
    "delete entry in a VLAN": (DeleteFdb(9, MAC, 4094), entry(DELNEIGH, 0, 0, 0x04, ("NDA_VLAN", 4094))),
}


@pytest.mark.parametrize(("request_", "expected"), CASES.values(), ids=CASES.keys())
def test_byte_for_byte(request_: Any, expected: bytes) -> None:
    assert ours(encode(request_)).hex(" ") == expected.hex(" ")


@pytest.mark.parametrize("vid", [0, 10])
def test_the_question_for_an_entry(vid: int) -> None:
    vlan = [("NDA_VLAN", vid)] if vid else []
    expected = entry(GETNEIGH, 0, 0, 0, *vlan, ("NDA_MASTER", 4), index=0)
    assert ours(encode_port.get_entry(4, MAC, vid)).hex(" ") == expected.hex(" ")


def shown(kind: str, flags: dict[str, int]) -> bytes:
    data = {"attrs": [("IFLA_BRPORT_" + NAMES[name], value) for name, value in flags.items()]}
    info = {"attrs": [("IFLA_INFO_SLAVE_KIND", kind), ("IFLA_INFO_SLAVE_DATA", data)]}
    return theirs(ifinfmsg, NEWLINK, 0, {"index": 9}, ("IFLA_IFNAME", "tap0"), ("IFLA_LINKINFO", info))[16:]


@pytest.mark.parametrize("name", Port._fields)
def test_a_flag_that_we_read(name: str) -> None:
    usual = Port()._asdict()
    body = shown("bridge", {**usual, name: not usual[name]})
    assert encode_port.port(body) == Port(**{**usual, name: not usual[name]})


def test_flags_that_an_old_kernel_lacks_and_ports_of_others() -> None:
    assert encode_port.port(shown("bridge", {"learning": 0})) == Port(learning=False, mcast_router=False)
    assert encode_port.port(theirs(ifinfmsg, NEWLINK, 0, {"index": 9}, ("IFLA_IFNAME", "tap0"))[16:]) is None
    bonded = {"attrs": [("IFLA_INFO_SLAVE_KIND", "bond")]}
    assert encode_port.port(theirs(ifinfmsg, NEWLINK, 0, {"index": 9}, ("IFLA_LINKINFO", bonded))[16:]) is None


@pytest.mark.parametrize(("state", "kind"), [(0x80, LOCAL), (0x40, STATIC), (0x02, LEARNED), (0x04, LEARNED), (0xC0, LOCAL)])
def test_an_entry_that_we_read(state: int, kind: str) -> None:
    body = entry(NEWNEIGH, 0, state, 0x40, ("NDA_MASTER", 4), ("NDA_VLAN", 10))[16:]
    assert encode_port.entry(body) == FdbEntry(MAC, 9, 10, kind, sticky=True)
    body = entry(NEWNEIGH, 0, state, 0x04, ("NDA_MASTER", 4))[16:]
    assert encode_port.entry(body) == FdbEntry(MAC, 9, 0, kind)


def test_what_makes_no_sense() -> None:
    for reader in (encode_port.port, encode_port.entry, lambda body: list(encode_port.carriers([body], 10))):
        for body in (b"\x07", b"\x07" * 13 + b"\xff" * 7):
            with pytest.raises(MalformedError):
                reader(body)
    for wrong in (SetPort(9, "hairpin", True), AddFdb(9, "aa:bb"), AddFdb(9, "x"), object()):
        with pytest.raises(ValueError):
            encode_port.encode(wrong)


def test_every_request_with_an_encoder_here_is_known() -> None:
    assert {ELSEWHERE[name] for name in ("SetPort", "FlushPort", "AddFdb", "DeleteFdb")} == {"encode_port"}
