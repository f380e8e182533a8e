"""Tell whether the node's own network has addresses of the /64 that a registry has given the node. Pure.

What is on the loopback, on a dummy or on the underlay's own device is the node's alone, and no network. A route to a part of the /64, or by
a gateway, is an administrator's own affair: it comes before ours. So is a wider one, as into a tunnel, but for a router's word of its link.
"""

from __future__ import annotations

from _socket import AF_INET6, inet_pton

from netcommon.host.api.facts import PROTOCOL, REST
from netcommon.operations.table import MAIN
from netcommon.operations.underlay import DUMMY, LENGTH, LOOPBACK
from runtime import underlay
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from runtime.underlay import Underlay

UNICAST = 1  #: RTN_UNICAST
RA = 9  #: RTPROT_RA: a router has said so (rtnetlink(7))


class Overlap(NamedTuple):
    """Name the device of the node's own network, and what that has of the /64, as a text."""

    device: str
    what: str


def overlap(view: View, known: Underlay, device: str) -> Overlap | None:
    """Tell which network of the node's own has addresses of its /64. ``device``: that of the underlay's addresses."""
    own = frozenset(known.addresses)
    for each in view.addresses():
        is_ours = each.length == LENGTH and (each.protocol == PROTOCOL or each.address in own)
        if each.family != AF_INET6 or not each.length or is_ours:
            continue  # ours on the device of earlier settings, or on one that was renamed, are no network
        if _has_of(each.address, each.length, known.prefix) and (name := _network(view, each.index, device)):
            return Overlap(name, f"{each.address}/{each.length}")
    wider = [each for each in view.routes_of(AF_INET6, RA, UNICAST, 0, MAIN) if _is_around(each.destination, known.prefix)]
    for route in (*view.routes(AF_INET6, MAIN, known.prefix, REST), *wider):
        on_link = route.type == UNICAST and route.metric != REST and not (route.gateway or route.paths)
        if on_link and (name := _network(view, route.index, device)):
            return Overlap(name, f"a route to {route.destination} on its link")
    return None


def _is_around(destination: str, prefix: str) -> bool:
    """Tell whether a destination, but for that of default routes, has all of a /64."""
    address, _, length = destination.partition("/")
    return 0 < int(length) <= underlay.LENGTH and _has_of(address, int(length), prefix)


def _has_of(address: str, length: int, prefix: str) -> bool:
    """Tell whether an address and its length have addresses of a /64."""
    beyond = max(underlay.LENGTH - length, 0)
    return _first(address) >> beyond == _first(prefix.partition("/")[0]) >> beyond


def _first(address: str) -> int:
    """Give the first half of an address."""
    return int.from_bytes(inet_pton(AF_INET6, address)[:8], "big")


def _network(view: View, index: int, device: str) -> str:
    """Give the name of a device on which others may be; "" for one that is the node's alone, or gone."""
    link = view.link_at(index)
    return "" if link is None or link.kind == DUMMY or link.name in (LOOPBACK, device) else link.name
