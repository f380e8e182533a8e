"""Messages of traffic control: what pyroute2 makes of the same fields says the same, and what it encodes we read."""

from __future__ import annotations

from typing import Any

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from netcommon.host.api.facts import Filter, Qdisc
from netcommon.host.api.requests import AddClsact, DeleteClsact, DeletePolicer, DeleteTbf, SetPolicer, SetTbf
from netcommon.host.rtnetlink import encode_tc
from netcommon.host.rtnetlink.attributes import message
from netcommon.host.rtnetlink.encode import ELSEWHERE, encode
from tests.support import pyroute

ROOT, CLSACT, INGRESS = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFFFFF2
INFO = 174 << 16 | 0x300


def theirs(number: int, flags: int, fields: dict[str, Any], *attrs: tuple[str, Any]) -> bytes:
    return pyroute.theirs(tcmsg, number, flags, fields, *attrs)


SIMPLE = [
    (AddClsact(5), theirs(36, 0x600, {"index": 5, "handle": 0xFFFF0000, "parent": CLSACT}, ("TCA_KIND", "clsact"))),
    (DeleteClsact(5), theirs(37, 0, {"index": 5, "handle": 0xFFFF0000, "parent": CLSACT})),
    (DeleteTbf(5), theirs(37, 0, {"index": 5, "handle": 0xAE000000, "parent": ROOT})),
    (DeletePolicer(5), theirs(45, 0, {"index": 5, "parent": INGRESS, "info": INFO})),
]


@pytest.mark.parametrize(("request_", "expected"), SIMPLE, ids=[type(one).__name__ for one, _ in SIMPLE])
def test_byte_for_byte(request_: Any, expected: bytes) -> None:
    made = encode(request_)
    assert message(made.type, made.flags, made.body, 77) == expected


def decoded(made: Any) -> Any:
    found = tcmsg(message(made.type, made.flags, made.body, 77))
    found.decode()
    return found


@pytest.mark.parametrize("rate", [8000, 10_000_000, 40_000_000_000])
def test_their_reading_of_a_token_bucket(rate: int) -> None:
    """pyroute2 computes a table of rates for old kernels and knows no rates of 64 bits, so the bytes differ; the fields must not."""
    found = decoded(encode(SetTbf(5, rate, 65536, 200_000)))
    assert (found["index"], found["handle"], found["parent"], found.get("TCA_KIND")) == (5, 0xAE000000, ROOT, "tbf")
    options = found.get("TCA_OPTIONS")
    parms = options.get("TCA_TBF_PARMS")
    assert parms["rate"] == min(rate // 8, 0xFFFFFFFF) and parms["limit"] == 200_000 and parms["peak"] == 0


@pytest.mark.parametrize("rate", [8000, 10_000_000, 40_000_000_000])
def test_their_reading_of_a_policer(rate: int) -> None:
    found = decoded(encode(SetPolicer(5, rate, 131072)))
    assert (found["index"], found["handle"], found["parent"], found["info"]) == (5, 1, INGRESS, INFO)
    assert found.get("TCA_KIND") == "matchall"
    (action,) = (value for _name, value in found.get("TCA_OPTIONS").get("TCA_MATCHALL_ACT")["attrs"])
    assert action.get("TCA_ACT_KIND") == "police"
    options = action.get("TCA_ACT_OPTIONS")
    parms = options.get("TCA_POLICE_TBF")
    assert parms["rate"] == min(rate // 8, 0xFFFFFFFF) and parms["action"] == 2 and parms["mtu"] == 1 << 20


@pytest.mark.parametrize("rate", [8000, 10_000_000, 40_000_000_000])
def test_what_we_send_we_read(rate: int) -> None:
    body = encode(SetPolicer(5, rate, 131072)).body
    assert encode_tc.filters([body], False) == [Filter(5, 174, False, rate, encode_tc.ticks(131072, rate))]
    shown = encode_tc.qdisc(encode(SetTbf(5, rate, 65536, 200_000)).body)
    assert shown == Qdisc(5, "tbf", encode_tc.HANDLE, rate, 0, 200_000)


def test_a_filter_of_others_is_seen_and_has_no_rate() -> None:
    body = theirs(44, 0, {"index": 5, "handle": 1, "parent": INGRESS, "info": 7 << 16 | 0x300}, ("TCA_KIND", "matchall"))[16:]
    head = theirs(44, 0, {"index": 5, "handle": 0, "parent": INGRESS, "info": 7 << 16 | 0x300}, ("TCA_KIND", "matchall"))[16:]
    assert encode_tc.filters([head, body], True) == [Filter(5, 7, True)]


def test_a_bursts_time() -> None:
    """One tick is 64 ns (linux/pkt_sched.h): 1250 bytes at 10 Mbit/s take 1 ms."""
    assert encode_tc.ticks(1250, 10_000_000) == 1_000_000 // 64
    assert encode_tc.ticks(1 << 31, 8000) == 0xFFFFFFFF


def test_every_request_with_an_encoder_of_its_own_is_known() -> None:
    for name in ("SetTbf", "DeleteTbf", "AddClsact", "DeleteClsact", "SetPolicer", "DeletePolicer"):
        assert ELSEWHERE[name] == "encode_tc"
    with pytest.raises(ValueError):
        encode_tc.encode(object())
