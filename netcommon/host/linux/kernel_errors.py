"""The kernel's refusals in words: what was asked of which object, and why it was not done."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
import errno
import os

from netcommon.host.api.host import DONE, Answer
from netcommon.host.api.requests import (
    AddAddress,
    AddClsact,
    AddFdb,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddVlan,
    DeleteAddress,
    DeleteClsact,
    DeleteFdb,
    DeleteFile,
    DeleteNeighbour,
    DeletePolicer,
    DeleteRoute,
    DeleteRule,
    DeleteTbf,
    DeleteVlan,
    FlushPort,
    Hangup,
    PutFile,
    SetLink,
    SetPolicer,
    SetPort,
    SetTbf,
    StartDaemon,
    StopDaemon,
)
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.requests import Request
    from netcommon.host.rtnetlink.socket import Reply

    Named = Callable[[int], str]

#: What strerror(3) says too generally.
WORDS = {
    errno.EXFULL: "the bridge has no room for another port",
    errno.ENODEV: "no such device",
    errno.ENETDOWN: "the device is not up",
    errno.EEXIST: "there is one already",
    errno.ESRCH: "there is none",
    errno.ENOENT: "there is none",
    errno.EOPNOTSUPP: "not supported",
    errno.EPERM: "not permitted",
}


def named(index: int) -> str:
    """A device's name for people, "device 7" where it is gone."""
    try:
        return socket.if_indextoname(index)
    except (OSError, OverflowError):
        return f"device {index}"


def subject(request: Request, named: Named = named) -> str:
    """What was asked for, shortly; ``named`` tells a device's name by its index."""
    match request:
        case SetLink():
            return _link(request, named)
        case AddRule(rule) | DeleteRule(rule):
            by = f"iif {rule.iif}" if rule.iif else f"fwmark {rule.mark:#x}/{rule.mask:#x}"
            return f"rule {rule.preference} {by} lookup {rule.table}"
        case AddRoute(route, _) | DeleteRoute(route):
            device = f" dev {named(route.index)}" if route.index else ""
            return f"route {route.destination}{device} table {route.table}"
        case AddNeighbour(neighbour) | DeleteNeighbour(neighbour):
            return f"proxy neighbour {neighbour.address} dev {named(neighbour.index)}"
        case AddAddress(address) | DeleteAddress(address):
            return f"address {address.address}/{address.length} dev {named(address.index)}"
        case AddVlan(index, vlan):
            return f"VLAN {vlan.vid} of {named(index)}"
        case DeleteVlan(index, vid):
            return f"VLAN {vid} of {named(index)}"
        case SetPort(index, flag, value):
            return f"{flag} {'on' if value else 'off'} of {named(index)}"
        case FlushPort(index):
            return f"what the bridge has learnt behind {named(index)}"
        case AddFdb(index, mac, vid) | DeleteFdb(index, mac, vid):
            return f"FDB entry {mac} dev {named(index)}" + (f" VLAN {vid}" if vid else "")
        case SetTbf(index, rate) | SetPolicer(index, rate):
            return f"{named(index)}: limit of {rate} bit/s"
        case DeleteTbf(index) | DeletePolicer(index) | AddClsact(index) | DeleteClsact(index):
            return f"{named(index)}: traffic control"
        case PutFile(folder, name) | DeleteFile(folder, name):
            return f"file {folder}/{name}"
        case StartDaemon(name) | StopDaemon(name):
            return f"daemon {name}"
        case Hangup(pid_file):
            return f"daemon of {pid_file}"
        case _:
            return type(request).__name__


def _link(request: SetLink, named: Named) -> str:
    words = []
    if request.address is not None:
        words.append(f"address {request.address}")
    if request.mtu is not None:
        words.append(f"MTU {request.mtu}")
    if request.up is not None:
        words.append("up" if request.up else "down")
    if request.master is not None:
        words.append(f"bridge {named(request.master)}" if request.master else "no bridge")
    if request.alias is not None:
        words.append("alias")
    return f"{named(request.index)}: {', '.join(words) or 'nothing'}"


def answer(request: Request, reply: Reply, named: Named = named) -> Answer:
    """The answer to ``request`` that the kernel's reply is."""
    if not reply.errno:
        return DONE
    return Answer(reply.errno, f"{subject(request, named)}: {reply.text or WORDS.get(reply.errno) or os.strerror(reply.errno)}")
