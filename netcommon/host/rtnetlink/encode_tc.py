"""Traffic control as rtnetlink messages (tc(8), linux/pkt_sched.h): a token bucket on a device, and a policer before it.

The token bucket is the root qdisc, so it limits what the device sends, which is what a tap's guest receives. The policer is a matchall
filter with a police action in clsact's ingress: what the guest sends.

Held against pyroute2 in tests/unit/netcommon/host/rtnetlink/test_encode_tc.py.
"""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
from struct import Struct, error

from netcommon.host.api.facts import Filter, Qdisc
from netcommon.host.api.requests import AddClsact, DeleteClsact, DeletePolicer, DeleteTbf, SetPolicer, SetTbf
from netcommon.host.rtnetlink.attributes import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_ECHO,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    U32,
    Encoded,
    MalformedError,
    attribute,
    attributes,
    number,
    text,
)
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46

TCMSG = Struct("=BxxxiIII")  #: struct tcmsg: family, ifindex, handle, parent, info
RATESPEC = Struct("=BBHhHI")  #: struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate (bytes a second)
TC_POLICE = Struct("=IiIII")  #: struct tc_police up to its rates: index, action, limit, burst, mtu

TC_H_ROOT, TC_H_CLSACT = 0xFFFFFFFF, 0xFFFFFFF1
CLSACT_HANDLE, CLSACT_INGRESS, CLSACT_EGRESS = 0xFFFF0000, 0xFFFFFFF2, 0xFFFFFFF3

#: Our mark: the major number of our qdisc (ae00:), and the preference of our filter.
HANDLE = 174 << 24
PREFERENCE = 174
ETH_P_ALL = socket.htons(3)

TCA_KIND, TCA_OPTIONS = 1, 2
TCA_TBF_PARMS, TCA_TBF_RATE64, TCA_TBF_BURST = 1, 4, 6
TCA_MATCHALL_ACT = 2
TCA_ACT_KIND, TCA_ACT_OPTIONS = 1, 2
TCA_POLICE_TBF, TCA_POLICE_RATE, TCA_POLICE_RESULT, TCA_POLICE_RATE64 = 1, 2, 5, 8

FIFOS = ("pfifo", "bfifo", "pfifo_head_drop")  #: their options are a limit alone (struct tc_fifo_qopt)
LINKLAYER_ETHERNET = 1
CONTINUE, DROP = -1, 2  #: TC_ACT_UNSPEC: the site's own filters come next; TC_ACT_SHOT
TICK = 64  #: nanoseconds (PSCHED_SHIFT)
#: The kernel asks for a table of rates, and has not looked into it since 3.8.
NO_TABLE = bytes(1024)
CELL_LOG = 16
#: The kernel drops longer packets, so a guest's largest, 64 KiB before segmentation, must be well below (bytes).
LONGEST = 1 << 20
LARGEST_32 = (1 << 32) - 1


def _message(index: int, handle: int, parent: int, kind: str = "", info: int = 0) -> bytes:
    return TCMSG.pack(0, index, handle, parent, info) + (text(TCA_KIND, kind) if kind else b"")


def _rate(bits: int, cell_log: int = 0) -> bytes:
    return RATESPEC.pack(cell_log, LINKLAYER_ETHERNET, 0, 0, 0, min(bits // 8, LARGEST_32))


def _rate64(kind: int, bits: int) -> bytes:
    """The attribute for rates that 32 bits do not hold."""
    return attribute(kind, (bits // 8).to_bytes(8, "little")) if bits // 8 > LARGEST_32 else b""


def _tbf(request: SetTbf) -> Encoded:
    parameters = _rate(request.rate) + bytes(RATESPEC.size) + Struct("=III").pack(request.limit, 0, 0)
    options = attribute(TCA_TBF_PARMS, parameters) + number(TCA_TBF_BURST, request.burst) + _rate64(TCA_TBF_RATE64, request.rate)
    body = _message(request.index, HANDLE, TC_H_ROOT, "tbf") + attribute(TCA_OPTIONS, options)
    return Encoded(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body)


def ticks(burst: int, rate: int) -> int:
    """How long ``burst`` bytes take at ``rate`` bits a second, in the scheduler's ticks."""
    return min(burst * 8 * 10**9 // rate // TICK, LARGEST_32)


def _policer(request: SetPolicer) -> Encoded:
    parameters = TC_POLICE.pack(0, DROP, 0, ticks(request.burst, request.rate), LONGEST) + _rate(request.rate, CELL_LOG)
    parameters += bytes(RATESPEC.size) + bytes(12)
    options = attribute(TCA_POLICE_TBF, parameters) + attribute(TCA_POLICE_RATE, NO_TABLE)
    options += attribute(TCA_POLICE_RESULT, U32.pack(CONTINUE & LARGEST_32)) + _rate64(TCA_POLICE_RATE64, request.rate)
    action = text(TCA_ACT_KIND, "police") + attribute(TCA_ACT_OPTIONS, options)
    acts = attribute(TCA_MATCHALL_ACT, attribute(1, action))
    body = _message(request.index, 1, CLSACT_INGRESS, "matchall", PREFERENCE << 16 | ETH_P_ALL) + attribute(TCA_OPTIONS, acts)
    return Encoded(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body)


def encode(request: object) -> Encoded:
    """The message of a request for traffic control. Raises ValueError for another."""
    if isinstance(request, SetTbf):
        return _tbf(request)
    if isinstance(request, DeleteTbf):
        return Encoded(RTM_DELQDISC, 0, _message(request.index, HANDLE, TC_H_ROOT))
    if isinstance(request, AddClsact):
        return Encoded(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, _message(request.index, CLSACT_HANDLE, TC_H_CLSACT, "clsact"))
    if isinstance(request, DeleteClsact):
        return Encoded(RTM_DELQDISC, 0, _message(request.index, CLSACT_HANDLE, TC_H_CLSACT))
    if isinstance(request, SetPolicer):
        return _policer(request)
    if isinstance(request, DeletePolicer):
        return Encoded(RTM_DELTFILTER, 0, _message(request.index, 0, CLSACT_INGRESS, "", PREFERENCE << 16 | ETH_P_ALL))
    raise ValueError("not a request for traffic control")


def get_qdisc(index: int, parent: int) -> Encoded:
    """The root qdisc, or clsact. The kernel tells only who wants an echo, and says nothing of a default one: then there is the
    acknowledgement alone.
    """
    return Encoded(RTM_GETQDISC, NLM_F_ACK | NLM_F_ECHO, _message(index, 0, parent))


def dump_filters(index: int, egress: bool) -> Encoded:
    """The filters of the device's ingress, or of its egress."""
    return Encoded(RTM_GETTFILTER, 0, _message(index, 0, CLSACT_EGRESS if egress else CLSACT_INGRESS))


def _unpack(layout: Struct, data: bytes, offset: int = 0) -> tuple[int, ...]:
    try:
        return layout.unpack_from(data, offset)
    except error:
        raise MalformedError("a message shorter than its fields") from None


def qdisc(body: bytes) -> Qdisc:
    """RTM_NEWQDISC. Raises MalformedError."""
    _, index, handle, _, _ = _unpack(TCMSG, body)
    found = attributes(body, TCMSG.size)
    kind = found.get(TCA_KIND, b"").rstrip(b"\0").decode("ascii", "replace")
    if kind in FIFOS and TCA_OPTIONS in found:
        return Qdisc(index, kind, handle, limit=_unpack(U32, found[TCA_OPTIONS])[0])
    if kind != "tbf" or TCA_OPTIONS not in found:
        return Qdisc(index, kind, handle)
    options = attributes(found[TCA_OPTIONS])
    parameters = options.get(TCA_TBF_PARMS, b"")
    rate = _unpack(RATESPEC, parameters)[5]
    limit, buffer, _mtu = _unpack(Struct("=III"), parameters, 2 * RATESPEC.size)
    if TCA_TBF_RATE64 in options:
        rate = int.from_bytes(options[TCA_TBF_RATE64], "little")
    return Qdisc(index, kind, handle, rate * 8, buffer, limit)


def filters(bodies: Sequence[bytes], egress: bool) -> list[Filter]:
    """The filters of one direction, as RTM_NEWTFILTER tells them. Raises MalformedError."""
    return [found for body in bodies if (found := _filter(body, egress)) is not None]


def _filter(body: bytes, egress: bool) -> Filter | None:
    """One filter; None for the message about its whole preference, which has no handle."""
    _, index, handle, _, info = _unpack(TCMSG, body)
    if not handle:
        return None
    found = attributes(body, TCMSG.size)
    made = Filter(index, info >> 16, egress)
    kind = found.get(TCA_KIND, b"").rstrip(b"\0")
    acts = attributes(attributes(found.get(TCA_OPTIONS, b"")).get(TCA_MATCHALL_ACT, b"")) if kind == b"matchall" else {}
    action = attributes(acts.get(1, b""))
    if action.get(TCA_ACT_KIND, b"").rstrip(b"\0") != b"police":
        return made
    options = attributes(action.get(TCA_ACT_OPTIONS, b""))
    parameters = options.get(TCA_POLICE_TBF, b"")
    _, _, _, burst, _ = _unpack(TC_POLICE, parameters)
    rate = _unpack(RATESPEC, parameters, TC_POLICE.size)[5]
    if TCA_POLICE_RATE64 in options:
        rate = int.from_bytes(options[TCA_POLICE_RATE64], "little")
    return made._replace(rate=rate * 8, burst=burst)
