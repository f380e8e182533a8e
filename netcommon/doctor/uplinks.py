"""Examine whether the node answers on the uplinks for the addresses of routed guests, and to guests for their gateway."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET, AF_INET6, Link
from netcommon.operations.forwarding import closed, forwards
from netcommon.operations.neighbour import GatewayNeighbour, ProxyNeighbour
from netcommon.operations.routed_uplink import ANYWHERE, uplinks
from netcommon.operations.table import MAIN
from netcommon.options.addresses import Addresses, addresses_of
from netcommon.options.sources import options_of
from runtime.errors import NicInvalid
from runtime.record import Record
from runtime.typed import NamedTuple

SCOPE_LINK = 253
NEAR = (2, 3, 4, 16)  #: protocols of routes to networks on a link (ip-route(8)): kernel, boot, static, dhcp


def check(patient: Patient) -> Iterator[Finding]:
    """Of the guests on record: each uplink once, with the first guest that it concerns."""
    seen: set[tuple[int, str]] = set()
    for record in patient.records:
        if record.nic.mode != "routed":
            continue
        found = _addresses(patient, record)
        table = patient.view.table(record.nic.link) if record.nic.link else MAIN
        for family in found.families:
            for link in uplinks(patient.view, family, table or MAIN).links:
                finding = _deaf(patient, record, link) if family == AF_INET6 else _silent(patient, record, link, found)
                if finding and (family, link.name) not in seen:
                    seen.add((family, link.name))
                    yield finding


class Shut(NamedTuple):
    """Name what does not forward of what comes in there of routed NICs."""

    names: list[str]  #: of devices of such NICs, and of uplinks, where nothing else leads on
    doubtful: list[str]  #: of uplinks, where something does
    uplinks: bool  #: there are any


def shut(patient: Patient, family: int) -> Shut:
    """Look at each device's own setting: in IPv4 that of all does nothing but set them (inet_forward_change() in net/ipv4/devinet.c)."""
    names, doubtful, found = dict[str, None](), dict[str, None](), False
    for record in patient.records:
        if record.nic.mode != "routed" or family not in _addresses(patient, record).families:
            continue
        table = (patient.view.table(record.nic.link) if record.nic.link else MAIN) or MAIN
        found = found or bool(uplinks(patient.view, family, table).links)
        off = closed(patient.view, family, table)
        (names if off.certain else doubtful).update(dict.fromkeys(off.names))
        device = patient.view.link_at(record.ifindex)
        if device is not None and not forwards(patient.view, family, device.name):
            names[device.name] = None
    return Shut(list(names), [name for name in doubtful if name not in names], found)


def probes(patient: Patient) -> Iterator[Finding]:
    """Yield one finding where neighbours of the node cannot verify IPv6 addresses that it answers for by proxy entries.

    The kernel gives a solicitation to one node to that entry only if proxy_ndp is on for all devices (ip6_forward() in
    net/ipv6/ip6_output.c); else it forwards it, and whoever gets it drops it, since it has passed a router.
    """
    if patient.view.sysctl("net/ipv6/conf/all/proxy_ndp") != "0":
        return
    answered = [(address, record) for record in patient.records for address in _answered(record)]
    own = {each.address for each in patient.view.addresses()} if answered else set()
    for address, record in answered:
        if address not in own:  # for what is the node's own the kernel answers by itself
            yield Finding(
                "warning",
                "uplinks",
                f"net.ipv6.conf.all.proxy_ndp is 0: a neighbour that verifies {address}, for which the node answers ({record.nic.label}), "
                "gets no answer, and packets are lost until it asks everybody",
                "sysctl -w net.ipv6.conf.all.proxy_ndp=1, and the same in /etc/sysctl.d: proxy entries of others count on every device "
                "then, too",
            )
            return


def _answered(record: Record) -> Iterator[str]:
    """Yield the IPv6 addresses that the node answers for by proxy entries on record."""
    for stored in record.operations:
        proxy = stored.get("kind") == ProxyNeighbour.KIND and stored.get("family") == AF_INET6 and stored.get("port")
        if proxy or stored.get("kind") == GatewayNeighbour.KIND:
            yield str(stored.get("address"))


def _addresses(patient: Patient, record: Record) -> Addresses:
    try:
        return addresses_of(record.nic, options_of(record.nic, patient.settings))
    except NicInvalid:  # the next up says so
        return Addresses()


def _deaf(patient: Patient, record: Record, link: Link) -> Finding | None:
    """The kernel answers solicitations for others only on an interface that forwards itself (ndisc_recv_ns in net/ipv6/ndisc.c)."""
    if patient.view.sysctl(f"net/ipv6/conf/{link.name}/forwarding") != "0":
        return None
    name = link.name.replace(".", "/")
    return Finding(
        "warning",
        "uplinks",
        f"net.ipv6.conf.{link.name}.forwarding is 0: nobody answers there for the addresses of {record.nic.label}",
        f"sysctl -w net.ipv6.conf.{name}.forwarding=1 (before, if its default route comes from router advertisements: accept_ra=2); "
        "nothing, where the router has a route to them",
    )


def _silent(patient: Patient, record: Record, link: Link, found: Addresses) -> Finding | None:
    """In IPv4 the uplink's proxy_arp is the administrator's: needed for a guest whose address is of the uplink's own network.

    That of all devices counts as well (IN_DEV_PROXY_ARP).
    """
    view = patient.view
    if any(view.sysctl(f"net/ipv4/conf/{each}/proxy_arp") != "0" for each in (link.name, "all")):
        return None
    routes = [route for protocol in NEAR for route in view.routes_of(AF_INET, protocol, 0, link.index)]
    near = [ip_network(each.destination) for each in routes if each.scope == SCOPE_LINK and each.destination not in ANYWHERE[AF_INET]]
    answered = {entry.address for entry in view.neighbours(AF_INET, link.index)}
    asked = [host for host in found.ipv4 if host not in answered and any(ip_address(host) in network for network in near)]
    if not asked:
        return None
    name = link.name.replace(".", "/")
    return Finding(
        "warning",
        "uplinks",
        f"{asked[0]} of {record.nic.label} is of the network on {link.name}, where nobody answers ARP for it",
        f'the option uplink_proxy = "both", or sysctl -w net.ipv4.conf.{name}.proxy_arp=1; nothing, where the router has a route to it',
    )
