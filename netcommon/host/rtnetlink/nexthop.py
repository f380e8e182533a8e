"""Read nexthop objects (ip-nexthop(8)): the devices of routes that name one by its id."""

from __future__ import annotations

import errno
from struct import Struct

from netcommon.host.rtnetlink.attributes import Encoded, MalformedError, attributes, number, u32
from netcommon.host.rtnetlink.socket import untold
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netcommon.host.api.facts import Route
    from netcommon.host.rtnetlink.socket import Netlink

RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
NHMSG = Struct("=BBBBI")  #: struct nhmsg: family, scope, protocol, reserved, flags
NHA_ID, NHA_GROUP, NHA_OIF = 1, 2, 5
MEMBER = Struct("=IBBH")  #: struct nexthop_grp: id, weight, its high byte, reserved


class Nexthop(NamedTuple):
    """A nexthop object: its device (0 for a group, and for a blackhole), or the members of its group."""

    id: int
    index: int  # type: ignore[assignment]
    members: tuple[int, ...]


def decode(body: bytes) -> Nexthop:
    """Read RTM_NEWNEXTHOP. Raises MalformedError."""
    found = attributes(body, NHMSG.size)
    group = found.get(NHA_GROUP, b"")
    if len(group) % MEMBER.size:
        raise MalformedError("a group of nexthops of an unexpected size")
    return Nexthop(u32(found.get(NHA_ID)), u32(found.get(NHA_OIF)), tuple(member[0] for member in MEMBER.iter_unpack(group)))


def get(number_of: int) -> Encoded:
    """Ask for one nexthop."""
    return Encoded(RTM_GETNEXTHOP, 0, NHMSG.pack(0, 0, 0, 0, 0) + number(NHA_ID, number_of))


def with_devices(netlink: Netlink, routes: Sequence[Route]) -> list[Route]:
    """Give the routes their devices, which the kernel has told of none that names a nexthop. Raises TryAgain, MalformedError.

    A nexthop that is gone takes its routes with it: one of them has no device.
    """
    asked = {route.nexthop for route in routes if untold_of(route)}
    known = {each: tuple(dict.fromkeys(_devices(netlink, each))) for each in asked}
    return [_led(route, known[route.nexthop]) if untold_of(route) else route for route in routes]


def devices(netlink: Netlink, number_of: int) -> tuple[int, ...]:
    """Return the devices of a group's members, one for each; none for a single nexthop. Raises TryAgain, MalformedError."""
    found = tuple(_devices(netlink, number_of))
    return found if len(found) > 1 else ()


def untold_of(route: Route) -> bool:
    """Tell whether the kernel has told of no device, only of a nexthop."""
    return bool(route.nexthop and not (route.index or route.paths))


def _led(route: Route, devices: tuple[int, ...]) -> Route:
    return route._replace(index=devices[0]) if len(devices) == 1 else route._replace(paths=devices)


def _devices(netlink: Netlink, asked: int) -> Iterator[int]:
    """Yield the devices of a nexthop, or of the members of its group: a group has no groups in it."""
    nexthop = _one(netlink, asked)
    for each in [_one(netlink, member) for member in nexthop.members] if nexthop and nexthop.members else [nexthop]:
        if each and each.index:
            yield each.index


def _one(netlink: Netlink, asked: int) -> Nexthop | None:
    found = netlink.get(get(asked))
    if isinstance(found, bytes):
        return decode(found)
    if found.errno == errno.ENOENT:
        return None
    raise untold("nexthops", found)
