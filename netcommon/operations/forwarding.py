"""Tell where the node forwards nothing of a routed guest's, or answers for it nowhere, though all that was done for its NIC holds.

In IPv4 each device's own setting decides on what comes in there; in IPv6 that of all devices does (ip6_forward() in net/ipv6/ip6_output.c),
unless the device's force_forwarding is on, and a device's own on whether the node answers there for others (ndisc_recv_ns() in
net/ipv6/ndisc.c). See ip-sysctl.rst.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.link import marked
from netcommon.operations.neighbour import ProxyNeighbour
from netcommon.operations.route import GuestRoute, PrefixRoute
from netcommon.operations.routed_uplink import ANYWHERE, BY_TABLE, BY_VRF, UNICAST, uplinks
from netcommon.operations.sysctl import FORWARDING, path_of
from netcommon.operations.table import MAIN
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: The setting by which the kernel answers no ARP requests for addresses of other devices (1, 2) or for any (8).
ARP_IGNORE = "arp_ignore"
NOBODY = 8

#: Protocols of routes to networks on a link (ip-route(8)): kernel, boot, static, ra, dhcp.
NEAR = (2, 3, 4, 9, 16)


class Closed(NamedTuple):
    """The uplinks by which the kernel sends what the guests of a table send, where none of them forwards what comes in there."""

    names: tuple[str, ...] = ()  #: empty where one does, and where there are none
    certain: bool = False  #: nothing else leads on; False: guests may be meant to talk with other networks alone


def closed(view: View, family: int, table: int) -> Closed:
    """Look at the uplinks of the lowest metric alone: one that stands by changes nothing, whether it forwards or not.

    A default route may be that of a network that must not be routed, such as management's, beside networks for the guests: then the loss is
    no fault. The network of an uplink that stands by counts for none: it is the way to others, which the guests do not go.
    """
    now = uplinks(view, family, table, sending=True)
    if not now.links or any(forwards(view, family, name) for name in now.names):
        return Closed()
    tables = (table,) if now.found_by in (BY_TABLE, BY_VRF) else (table, MAIN)
    known = (*now.names, *uplinks(view, family, table).names)
    others = (link for link in view.links() if link.name not in known and not marked(link) and forwards(view, family, link.name))
    return Closed(now.names, not any(_leads(view, family, each, link) for link in others for each in tables))


def forwards(view: View, family: int, name: str) -> bool:
    """Tell whether what comes in by a device goes on."""
    if family == AF_INET:
        return view.sysctl(path_of(AF_INET, name, FORWARDING)) != "0"
    return view.sysctl(path_of(AF_INET6, "all", FORWARDING)) != "0" or view.sysctl(path_of(AF_INET6, name, "force_forwarding")) == "1"


def _leads(view: View, family: int, table: int, link: Link) -> bool:
    """Tell whether a table leads to a network by a device, but for what each device has of itself."""
    routes = view.routes_of(family, 0, UNICAST, link.index, table)
    return any(not ip_network(route.destination).is_link_local for route in routes)


def stopped(view: View, device: str, operations: Sequence[Operation]) -> list[tuple[str, str]]:
    """Return why the node forwards nothing of a routed guest's, and what helps. ``operations``: those of its NIC, on ``device``."""
    routes = [one for one in operations if isinstance(one, GuestRoute | PrefixRoute)]
    tables = dict.fromkeys((one.family, one.number) for one in routes)
    found: list[tuple[str, str]] = []
    for family, table in tables:
        found += _stopped4(view, table) if family == AF_INET else _stopped6(view, device, table)
    if view.sysctl(path_of(AF_INET6, "all", FORWARDING)) != "0":  # who sets that has set each device's own
        proxies = (one for one in operations if isinstance(one, ProxyNeighbour) and one.deaf(view))
        found += [_unanswered(one) for one in proxies if _near(view, one)]
    return found


def silent(view: View, device: str, gateway: str) -> list[tuple[str, str]]:
    """Return why the node does not answer when the guest on ``device`` asks for its IPv4 gateway, which is the node's own, and what helps.

    For what is not its own the kernel answers as a proxy, whatever arp_ignore says (arp_process() and arp_ignore() in net/ipv4/arp.c).
    """
    link = view.link(device)
    rules = {name: view.sysctl(path_of(AF_INET, name, ARP_IGNORE)) or "0" for name in (device, "all")}
    rule = max(map(int, rules.values()))  # the larger one counts
    if link is None or rule not in (1, 2, NOBODY) or not gateway or not view.local(AF_INET, gateway):
        return []
    own = [each.index for each in view.addresses() if each.address == gateway]
    if not own or (rule != NOBODY and link.index in own):
        return []
    text = f"arp_ignore of {device} is {rule}: the node does not answer the guest for its gateway {gateway}, which is its own"
    off = " ".join(f"net.ipv4.conf.{name.replace('.', '/')}.{ARP_IGNORE}=0" for name, value in rules.items() if value != "0")
    return [(text, f"sysctl -w {off}")]


def _stopped4(view: View, table: int) -> list[tuple[str, str]]:
    """Name the uplinks where the own setting of each is off. The device's is the NIC's, and repair puts it back."""
    off = closed(view, AF_INET, table)
    if not off.certain:
        return []
    text = f"forwarding of {' and '.join(off.names)} is 0: the node forwards nothing of what comes in there for the guest"
    if view.sysctl("net/ipv4/ip_forward") == "0":
        return [(f"net.ipv4.ip_forward is 0, and {text}", "sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d")]
    return [(f"IPv4 {text}", f"sysctl -w {' '.join(_setting(AF_INET, name) for name in off.names)}, and the same in /etc/sysctl.d")]


def _stopped6(view: View, device: str, table: int) -> list[tuple[str, str]]:
    if forwards(view, AF_INET6, device) and not closed(view, AF_INET6, table).certain:
        return []
    text = "net.ipv6.conf.all.forwarding is 0: the node forwards no IPv6, neither from nor to the guest"
    remedy = "sysctl -w net.ipv6.conf.all.forwarding=1, and the same in /etc/sysctl.d (before: accept_ra=2 on uplinks whose default route "
    return [(text, f"{remedy}comes from router advertisements)")]


def _near(view: View, proxy: ProxyNeighbour) -> bool:
    """Tell whether the address is of a network on its uplink, where neighbours ask for it, and no route leads them."""
    routes = (route for protocol in NEAR for route in view.routes_of(AF_INET6, protocol, UNICAST, proxy.ifindex))
    networks = {route.destination for route in routes if not route.gateway} - ANYWHERE[AF_INET6]
    return any(ip_address(proxy.address) in ip_network(each) for each in networks)


def _unanswered(proxy: ProxyNeighbour) -> tuple[str, str]:
    text = f"net.ipv6.conf.{proxy.port}.forwarding is 0: nobody answers there for {proxy.address}, which is of the network on {proxy.port}"
    before = "(before, if its default route comes from router advertisements: accept_ra=2)"
    return text, f"sysctl -w {_setting(AF_INET6, proxy.port)} {before}"


def _setting(family: int, name: str) -> str:
    """Write a device's setting for sysctl(8), which takes a dot in a name for a slash, and the other way round."""
    return f"net.ipv{4 if family == AF_INET else 6}.conf.{name.replace('.', '/')}.{FORWARDING}=1"
