"""The uplinks of a routed NIC: of its table's default routes, else its VRF's ports, of rules into it, or of main's default routes."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.operations.link import marked
from netcommon.operations.table import MAIN
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import RouteList, View

DEFAULT = {AF_INET: "0.0.0.0/0", AF_INET6: "::/0"}
HALVES = {AF_INET: ("0.0.0.0/1", "128.0.0.0/1"), AF_INET6: ("::/1", "8000::/1")}  #: two routes that are a default route together
ANYWHERE = {family: frozenset({whole, *HALVES[family]}) for family, whole in DEFAULT.items()}  #: no network that neighbours are of
UNICAST = 1  #: RTN_UNICAST: unreachable and its like lead nowhere

#: How uplinks were found: by default routes of the NIC's own table, as ports of the table's VRF, by rules into the table, by main's
#: default routes.
BY_TABLE, BY_VRF, BY_RULES, BY_MAIN = "table", "vrf", "rules", "main"

#: What outweighs what. The uplinks on record of an earlier version do not tell how they were found: whatever is found now outweighs them.
WEIGHT = {"": 0, BY_MAIN: 1, BY_RULES: 2, BY_VRF: 3, BY_TABLE: 4}


class Uplinks(NamedTuple):
    """The uplinks of one family and table, in the kernel's order, and how they were found: "" where nothing tells of any."""

    links: list[Link]
    found_by: str

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(link.name for link in self.links)


def uplinks(view: View, family: int, table: int, sending: bool = False) -> Uplinks:
    """Find the uplinks of one family in ``table``. ``sending``: of default routes those alone by which the kernel sends.

    A table without a default route may hold nothing but the guests' own routes: then its uplinks are where the packets come in that are
    looked up in it. Those are the ports of its VRF, or the interfaces of the administrator's rules (``iif eth0 lookup TABLE``). Main's
    default routes are left for the table of no VRF: a VRF is a network of its own.
    """
    links = _out(view, family, table, sending)
    if links or table == MAIN:
        return Uplinks(links, BY_TABLE if links else "")
    vrf = next((link for link in view.links_of("vrf") if link.table == table), None)
    if vrf is not None and (links := _ports(view, vrf)):
        return Uplinks(links, BY_VRF)
    if links := _in(view, family, table):
        return Uplinks(links, BY_RULES)
    if vrf is not None:
        return Uplinks([], BY_VRF)
    links = _out(view, family, MAIN, sending)
    return Uplinks(links, BY_MAIN if links else "")


def _out(view: View, family: int, table: int, sending: bool = False, passed: tuple[int, ...] = ()) -> list[Link]:
    """Return the interfaces of the default routes of ``table``. ``passed``: the tables whose default routes have led to it."""
    listed = view.route_list(family, table)
    routes = _leading(listed.to(DEFAULT[family]))
    halves = _halves(listed, family) if sending or not routes else []
    routes = halves or (_first(routes) if sending else routes)
    indices = dict.fromkeys(index for route in routes for index in route.paths or (route.index,))
    links = [link for index in indices if (link := view.link_at(index)) is not None]
    return _wires(view, family, links, (*passed, table), sending)


def _first(routes: Sequence[Route]) -> list[Route]:
    """Select those of the lowest metric, by which the kernel sends all that has no TOS of its own."""
    whole = [route for route in routes if not route.tos]
    return [route for route in whole if route.metric == min(each.metric for each in whole)]


def _halves(listed: RouteList, family: int) -> list[Route]:
    """Return the two routes that are a default route together, where a table has both; of one too long to be listed nothing is told."""
    halves = [_leading(listed.to(half)) for half in HALVES[family]] if listed.short() else []
    return [route for half in halves for route in half] if halves and all(halves) else []


def _leading(routes: Sequence[Route]) -> list[Route]:
    """Select those by which packets leave, and that are not ours."""
    return [route for route in routes if route.type == UNICAST and route.protocol != PROTOCOL]


def _in(view: View, family: int, table: int) -> list[Link]:
    """Return the interfaces of rules into ``table``. Neither guests' taps, with rules that Ganeti's script left, nor the node itself."""
    links = [link for name in view.ways_in(family, table) if name != "lo" and (link := view.link(name)) is not None]
    return _wires(view, family, links, (table,))


def _wires(view: View, family: int, links: list[Link], passed: tuple[int, ...], sending: bool = False) -> list[Link]:
    """Return ``links`` without guests' taps, and for a VRF's device, by which no frame comes in, the uplinks of the VRF."""
    found: dict[int, Link] = {}
    for link in links:
        if link.kind == "vrf":
            own = _out(view, family, link.table, sending, passed) if link.table not in passed else []
            found |= {each.index: each for each in own or _ports(view, link)}
        elif not _guests(view, link):
            found[link.index] = link
    return list(found.values())


def _ports(view: View, vrf: Link) -> list[Link]:
    return [link for link in view.ports(vrf.index) if not _guests(view, link)]


def _guests(view: View, link: Link) -> bool:
    """Tell whether a guest is behind it, though the node's own default route may lead there.

    A tap is the node's own where Open vSwitch has made it: the bridge's device, or another internal port, of its userspace datapath.
    """
    if marked(link) or link.holders < 0:
        return marked(link)
    port = view.ovs_held(link.name)
    return port is None or not port.internal


def absent(view: View, family: int, table: int, found_by: str) -> bool:
    """Tell whether nothing of the weight of ``found_by`` tells of an uplink now.

    So it is while a default route flaps or a bridge is made anew: what was found stays, and is not replaced by something weaker.
    """
    return _absent(uplinks(view, family, table), found_by)


def _absent(now: Uplinks, found_by: str) -> bool:
    weight, before = WEIGHT[now.found_by], WEIGHT.get(found_by, 0)
    return weight < before or (weight == before and not now.links)


def moved(view: View, family: int, table: int, known: Sequence[str], found_by: str) -> str:
    """Tell in words how the uplinks differ from ``known``; "" if they do not, or are ``absent``."""
    now = uplinks(view, family, table)
    if sorted(now.names) == sorted(known) or _absent(now, found_by):
        return ""
    return f"uplink is {', '.join(now.names) or 'nothing'} now, not {', '.join(known) or 'nothing'}"


def no_uplink(family: int, table: str, now: Uplinks, warnings: list[str]) -> None:
    """Warn, once, that there is no uplink."""
    text = lacking(family, table, now)
    if text not in warnings:
        warnings.append(text)


def lacking(family: int, table: str, now: Uplinks) -> str:
    """Say why there is no uplink, and what comes of it."""
    version = 4 if family == AF_INET else 6
    if now.found_by == BY_VRF:
        text = f"table {table} has no IPv{version} default route, and its VRF no port"
    else:
        text = f"{'table main has' if table in ('', 'main') else f'tables {table} and main have'} no IPv{version} default route"
    return f"{text}: nobody answers for the guest's addresses on an uplink, until a repair finds one"


def on(port: str, table: str) -> str:
    """The uplink for people; before it was looked up, whose it is."""
    return port or f"<uplinks of table {table or 'main'}>"


def on_uplink(port: str) -> str:
    """Return the uplink ``port`` as a sentence names it; "" where none was found."""
    return f"on the uplink {port}" if port else "on the uplink, of which there was none"
