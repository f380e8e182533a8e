"""A view of the kernel's tables by rtnetlink, and of /proc/sys: each answer is the state of now."""

from __future__ import annotations

import errno

from netcommon.host import decode, encode
from netcommon.host.attributes import MalformedError, as_bytes, attribute, search, split_prefix, text
from netcommon.host.netlink import untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from netcommon.host.attributes import Encoded
    from netcommon.host.counters import Counters
    from netcommon.host.facts import BridgeVlan, Link, Neighbour, Route, Rule
    from netcommon.host.netlink import Netlink, Reply

    Fact = TypeVar("Fact")
    Told = TypeVar("Told")

NOTHING: frozenset[int] = frozenset()
NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EOPNOTSUPP})  #: IPv6 is off since boot
NO_TABLE = NO_FAMILY | {errno.ENOENT, errno.ESRCH}  #: or the table was never made
NAME_ROOM = 15  #: bytes of a device's name (IFNAMSIZ less the NUL)


class KernelView:
    """The rtnetlink half of a live view. Every method raises TryAgain where the kernel gives no complete answer."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink

    def link(self, name: str) -> Link | None:
        """The link of that name; its alternative names do not count."""
        if not 0 < len(as_bytes(name)) <= NAME_ROOM or "\0" in name:
            return None
        found = self._link(encode.get_link(name=name))
        return found if found is not None and found.name == name else None

    def link_at(self, index: int) -> Link | None:
        return self._link(encode.get_link(index=index)) if 0 < index < 1 << 31 else None

    def listened_to(self, name: str) -> bool:
        """Whether somebody wants every frame that the link receives; also where there is no such link, or the kernel does not say."""
        found = self._netlink.get(encode.get_link(name=name))
        return not isinstance(found, bytes) or decode.listened_to(found)

    def links(self) -> Sequence[Link]:
        return [_sane(decode.link, body) for body in self._dump("links", encode.dump_links())]

    def ports(self, bridge: int) -> Sequence[Link]:
        found = [_sane(decode.link, body) for body in self._dump("ports", encode.dump_links(bridge))] if bridge > 0 else []
        return [link for link in found if link.master == bridge]

    def links_of(self, kind: str) -> Sequence[Link]:
        found = [_sane(decode.link, body) for body in self._dump("links", encode.dump_links(kind=kind))]
        return [link for link in found if link.kind == kind]

    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]:
        # The kernel can only dump them all: thousands are passed over by their bytes.
        needle = text(encode.FRA_IIFNAME, iif) if iif else b""
        bodies = self._dump("rules", encode.dump_rules(family), needle, NO_FAMILY)
        found = [_sane(decode.rule, body) for body in bodies]
        return [rule for rule in found if rule.family == family and iif in (None, rule.iif)]

    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        if destination is not None:
            return self.route_list(family, table).to(destination)
        found = self._dump("routes", encode.dump_routes(family, table or 0), gone=NO_TABLE)
        return _routes(found, family, table)

    def route_list(self, family: int, table: int | None = None) -> KernelRoutes:
        found = self._netlink.listing(encode.dump_routes(family, table or 0))
        return KernelRoutes(family, table, _there("routes", found, NO_TABLE))

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]:
        gone = NO_FAMILY | {errno.ENODEV, errno.ENOENT}
        bodies = self._dump("neighbours", encode.dump_neighbours(family, index or 0), gone=gone)
        found = [neighbour for body in bodies if (neighbour := _sane(decode.neighbour, body)) is not None]
        return [neighbour for neighbour in found if neighbour.family == family and index in (None, neighbour.index)]

    def vlans(self, index: int) -> Sequence[BridgeVlan]:
        """Empty, too, for what is no bridge port and where the kernel knows no VLAN filtering."""
        return [vlan for at, vlan in self._vlans(index) if at == index] if index > 0 else []

    def every_vlan(self) -> Sequence[tuple[int, BridgeVlan]]:
        """Pairs of device index and VLAN of all bridge ports."""
        return self._vlans(0)

    def counters(self) -> Mapping[int, Counters]:
        from netcommon.host import counters  # no hook asks

        return _sane(counters.counters, self._dump("counters", counters.dump()))

    def _vlans(self, index: int) -> list[tuple[int, BridgeVlan]]:
        gone = frozenset({errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOENT})
        bodies = self._dump("VLANs", encode.dump_vlans(index), gone=gone)
        return [pair for body in bodies for pair in _sane(_vlans, body)]

    def _link(self, request: Encoded) -> Link | None:
        found = self._netlink.get(request)
        if isinstance(found, bytes):
            return _sane(decode.link, found)
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return None
        raise untold("links", found)

    def _dump(self, what: str, request: Encoded, needle: bytes = b"", gone: frozenset[int] = NOTHING) -> list[bytes]:
        return _there(what, self._netlink.dump(request, needle), gone)


class KernelRoutes(NamedTuple):
    """Routes as the kernel has listed them, thousands: the few that are asked for are looked for in its bytes."""

    family: int
    table: int | None  #: None: of all tables
    datagrams: Sequence[bytes]

    def to(self, destination: str) -> Sequence[Route]:
        try:
            address, length = split_prefix(self.family, destination)
        except (OSError, ValueError):
            return []
        # struct rtmsg: a default route has a length, 0, and no destination
        needle, at = (attribute(encode.RTA_DST, address), None) if length else (b"\0", 1)
        found = _routes(_sane(lambda datagrams: search(datagrams, needle, at), self.datagrams), self.family, self.table)
        return [route for route in found if split_prefix(self.family, route.destination) == (address, length)]


def _routes(bodies: Sequence[bytes], family: int, table: int | None) -> list[Route]:
    found = [route for body in bodies if (route := _sane(decode.route, body)) is not None]
    return [route for route in found if route.family == family and table in (None, route.table)]


def _there(what: str, found: list[bytes] | Reply, gone: frozenset[int]) -> list[bytes]:
    if isinstance(found, list):
        return found
    if found.errno in gone:
        return []
    raise untold(what, found)


def _vlans(body: bytes) -> list[tuple[int, BridgeVlan]]:
    return list(decode.vlans(body))


def _sane(decoder: Callable[[Told], Fact], body: Told) -> Fact:
    """What ``decoder`` makes of a message; one that it cannot read is no answer."""
    try:
        return decoder(body)
    except MalformedError as problem:
        raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
