"""The uplinks of a routed NIC: where its table's default routes lead, else from where rules lead into it, else main's default routes."""

from __future__ import annotations

from netcommon.host.facts import AF_INET, AF_INET6, PROTOCOL
from netcommon.operations.link import marked
from netcommon.operations.table import MAIN
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.base import View
    from netcommon.host.facts import Link

DEFAULT = {AF_INET: "0.0.0.0/0", AF_INET6: "::/0"}
UNICAST = 1  #: RTN_UNICAST: unreachable and its like lead nowhere


def uplinks(view: View, family: int, table: int) -> list[Link]:
    """The interfaces of all default routes of one family in ``table``, in the kernel's order.

    Where it has none, it may hold nothing but the guests' own routes: then those whose packets the administrator's rules look up in
    it (``iif eth0 lookup TABLE``); where there are none either, those of main's default routes.
    """
    return _out(view, family, table) or (table != MAIN and (_in(view, family, table) or _out(view, family, MAIN))) or []


def _out(view: View, family: int, table: int) -> list[Link]:
    routes = [route for route in view.routes(family, table, DEFAULT[family]) if route.type == UNICAST and route.protocol != PROTOCOL]
    indices = dict.fromkeys(index for route in routes for index in route.paths or (route.index,))
    return [link for index in indices if (link := view.link_at(index)) is not None and not _guests(link)]


def _in(view: View, family: int, table: int) -> list[Link]:
    """Guests' taps, with rules that Ganeti's own script has left, are none, nor is the node itself."""
    found = [link for name in view.ways_in(family, table) if name != "lo" and (link := view.link(name)) is not None]
    return [link for link in found if not _guests(link)]


def _guests(link: Link) -> bool:
    """Whether a guest is behind it, though the node's own default route may lead there."""
    return link.holders >= 0 or marked(link)


def moved(view: View, family: int, table: int, known: Sequence[str]) -> str:
    """How the uplinks differ from ``known``, in words; "" if they do not, or if there is none now: nothing comes in then anyway."""
    now = [link.name for link in uplinks(view, family, table)]
    if not now or sorted(now) == sorted(known):
        return ""
    return f"uplink is {', '.join(now)} now, not {', '.join(known) or 'nothing'}"


def no_uplink(family: int, table: str, warnings: list[str]) -> None:
    """Says, once, that there is no default route to go by."""
    version = 4 if family == AF_INET else 6
    where = f"tables {table} and main have" if table else "table main has"
    text = f"{where} no IPv{version} default route: nobody answers for the guest's addresses on an uplink, until a repair finds one"
    if text not in warnings:
        warnings.append(text)


def on(port: str, table: str) -> str:
    """The uplink for people; before it was looked up, whose it is."""
    return port or f"<uplinks of table {table or 'main'}>"
