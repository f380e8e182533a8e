"""Say what a change of the kernel's objects is to NICs, whoever tells of it: rtnetlink, or a simulated node.

The kernel tells of much that is no change, so what was last told of devices, ports and qdiscs is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from netagent.events import (
    ADDRESS,
    BASE,
    FWMARK,
    INDEX,
    MAC,
    NAME,
    PORTS,
    SETTINGS,
    UPLINKS,
    VLAN,
    Came,
    Changed,
    Event,
    Gone,
    LinkGone,
    Mark,
)
from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Link, Route, Rule
from netcommon.operations.vlan import may_lead_outside

#: What no NIC's record is about, but what there is on the node.
OF_THE_NODE = Changed(())


class Seen(NamedTuple):
    """Give what counts of a device: two that are equal are no change."""

    name: str
    as_port: tuple[object, object]  #: its master, None or 0 where it has none, and its MTU
    up: int
    address: object
    alias: object
    carrier: object
    vlans: tuple[object, ...]  #: of a bridge: whether it looks at VLANs, and of which protocol


class KernelMeaning:
    """Make events of what is told. ``forget`` what was told before where some of it was lost."""

    def __init__(self) -> None:
        self._links: dict[int, Seen] = {}  #: of each device what was last told of it
        self._ports: dict[int, int] = {}  #: of each port of a bridge a hash of what was last told of it as such
        self._qdiscs: dict[int, dict[object, int]] = {}  #: of each device's qdiscs, by their place, a hash of what was last told of it

    def forget(self) -> None:
        self._links.clear()
        self._ports.clear()
        self._qdiscs.clear()

    def link(self, index: int, seen: Seen, sort: str, port_sort: str, link: Callable[[], Link]) -> Iterator[Event]:
        """A device is there. ``sort`` and ``port_sort``: its kind, and of whose kind it is a port; ``link``: all of it."""
        before = self._links.get(index)
        names = dict.fromkeys((seen.name, before.name if before else seen.name))  # the earlier name is what records have
        if before != seen:  # the kernel says so of much that is nothing to us
            self._links[index] = seen
            of_vrf = ((UPLINKS, AF_INET), (UPLINKS, AF_INET6)) if "vrf" in (sort, port_sort) else ()
            yield Changed(((INDEX, index), *((NAME, each) for each in names), *of_vrf))
            joined = bool(seen.as_port[0]) and (before is None or before.as_port != seen.as_port)
            if joined or sort == "vlan":
                yield from _among_vlans(link(), joined)
        if before is None or (before.name, before.vlans) != (seen.name, seen.vlans):  # it is new, or has that name or VLANs only now
            yield Came(((BASE, seen.name), *((NAME, each) for each in names)))

    def link_gone(self, index: int, vlan: int) -> Iterator[Event]:
        """A device is gone, a VLAN interface if ``vlan`` is not 0."""
        self._links.pop(index, None)
        self._ports.pop(index, None)
        self._qdiscs.pop(index, None)
        yield LinkGone(index)
        if vlan:
            yield Gone(((VLAN, (0, vlan)),))

    def port(self, index: int, seen: int) -> Iterator[Event]:
        """A device is a port of a bridge. ``seen``: a hash of what counts of that.

        Of thousands of new taps the kernel tells for most of a minute, a hundred a second, that a bridge has seen their carrier.
        """
        if self._ports.get(index) != seen:
            self._ports[index] = seen
            yield Changed(((INDEX, index),))

    def port_gone(self, index: int) -> Iterator[Event]:
        """A device is no port any more."""
        self._ports.pop(index, None)
        yield Gone(((INDEX, index),))

    def qdisc(self, index: int, place: object, seen: int) -> Iterator[Event]:
        """A device has a qdisc at ``place``. ``seen``: a hash of what counts of it.

        Whoever asks for one qdisc is answered so that all can hear it: what was told before is no news, or each look would be followed
        by the next one.
        """
        if self._qdiscs.setdefault(index, {}).get(place) != seen:
            self._qdiscs[index][place] = seen
            yield Changed(((INDEX, index),))

    def qdisc_gone(self, index: int, place: object) -> Iterator[Event]:
        """A device has no qdisc at ``place`` any more."""
        self._qdiscs.get(index, {}).pop(place, None)
        yield Gone(((INDEX, index),))


def _among_vlans(link: Link, joined: bool) -> Iterator[Event]:
    """Tell what a device is to others: it takes a VLAN as a VLAN interface, or it joined a bridge whose uplink it may be.

    With another MTU it is as one that has only joined: the kernel does not tell the other ports that they may take longer frames now.
    """
    if link.vlan:
        yield Changed(((VLAN, (0, link.vlan)),))
    if joined and link.master and may_lead_outside(link):
        yield Came(((PORTS, link.master),))


def either(gone: bool, *marks: Mark) -> Event:
    """Make an event of what bears ``marks``, and is gone or there."""
    return Gone(marks) if gone else Changed(marks)


def of_rule(rule: Rule, gone: bool) -> Iterator[Event]:
    """Tell of a policy rule."""
    if rule.iif:
        ways = ((UPLINKS, rule.family),) if rule.protocol != PROTOCOL else ()  # packets come in for guests by the table's uplinks
        yield either(gone, (NAME, rule.iif), *ways)
        if gone and rule.protocol != PROTOCOL:
            yield Came(((NAME, rule.iif),))  # what stood in the way of ours is gone
    elif rule.mask:
        yield either(gone, (FWMARK, (rule.mark, rule.mask)))
    else:
        yield OF_THE_NODE


def of_route(route: Route, gone: bool) -> Iterator[Event]:
    """Tell of a route that a subscription passes on."""
    if route.destination.endswith("/0"):
        yield (Gone if gone else Came)(((UPLINKS, route.family),))
    elif route.protocol != PROTOCOL:  # it stands in the place of a guest's, or does no more
        yield (Came if gone else Changed)(((ADDRESS, route.destination),))
    if gone and route.protocol == PROTOCOL:
        yield Gone((((INDEX, route.index),) if route.index else ()) + ((ADDRESS, route.destination),))


def of_entry(index: int, mac: str, gone: bool) -> Iterator[Event]:
    """Tell of a static entry of a forwarding database that went, or was made or replaced, perhaps on another port."""
    if gone:
        yield Gone(((INDEX, index),))
    elif mac:
        yield Changed(((MAC, mac),))


def of_address(index: int, gone: bool) -> Iterator[Event]:
    """Tell of an address of a device."""
    yield Gone(((INDEX, index),)) if gone else OF_THE_NODE


def of_vlan(index: int, vid: int, gone: bool) -> Iterator[Event]:
    """Tell of a VLAN of a bridge's port."""
    yield either(gone, (VLAN, (index, vid)), (VLAN, (index, 0)))


def of_settings(index: int) -> Iterator[Event]:
    """Tell of the settings of a device: "all" and "default" are negative."""
    if 0 < index < 1 << 31:
        yield Changed(((INDEX, index), (SETTINGS, index)))
