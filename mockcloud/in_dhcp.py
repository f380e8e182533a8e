"""Hold the files that tell DHCP servers of a NIC against what is wanted of it (docs/dhcp.md).

A file is read as its server reads it, and compared with what the NIC and its network are: with no template that has made it.
"""

from __future__ import annotations

import os
import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from mockcloud.stored import nic_uuid
from mockcloud.wanted import OF_ADDRESSES
from netcommon.options.addresses import eui64
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.wanted import Told, Wanted
    from netcommon.host.api.facts import File, Link
    from netcommon.host.api.host import View
    from netcommon.settings.model import Settings

TEMPLATES = "netcommon/templates/dhcp"  #: below a node's /etc: where a site's own are, which may say anything
READABLE = 0o644
MISREAD = re.compile("ignore|infinite|[0-9]+[smhdw]?", re.ASCII)  #: names that dnsmasq takes for something else (dnsmasq(8), --dhcp-host)
EVERYWHERE = "0.0.0.0/0"
HEADER = 2  #: lines of a network's file before those that are told: whose it is, and in which turn it was written


def of_dhcp(
    view: View, wanted: Wanted, link: Link, interface: Mapping[str, Any], told: Told, settings: Settings, etc: str
) -> Iterator[str]:
    """Say what is not so of a NIC's files. ``interface``: as its guest was started; ``told``: what is said of its network."""
    if "dhcp" in wanted.unsure:
        return
    nic, dhcp = interface["nic"], wanted.options.dhcp
    places = {"nfdhcpd": (settings.dhcp_nfdhcpd_folder, link.name), "dnsmasq": (settings.dhcp_dnsmasq_folder, nic["uuid"])}
    for server, (folder, name) in places.items():
        file = view.file(folder, name)
        if server != dhcp:
            if file is not None and file.owner == nic["uuid"]:
                yield f"dhcp = {shown('dhcp', dhcp)} is wanted, and {server} has a file of it"
        elif file is None or file.owner != nic["uuid"]:
            yield f"dhcp = {dhcp} is wanted, and {folder}/{name} is {'not there' if file is None else 'of another'}"
        elif file.mode != READABLE:
            yield f"dhcp = {dhcp} is wanted, and the mode of {file.path} is {file.mode:04o}"
        elif not os.path.exists(f"{etc}/{TEMPLATES}/{dhcp}.j2"):
            says = _of_nfdhcpd if dhcp == "nfdhcpd" else _of_dnsmasq
            yield from (f"{file.path}: {text}" for text in says(file, wanted, link, interface, told))
    if dhcp == "dnsmasq":
        yield from _of_network(view, told, settings)


def _of_nfdhcpd(file: File, wanted: Wanted, link: Link, interface: Mapping[str, Any], told: Told) -> Iterator[str]:
    """A binding is lines NAME=VALUE (nfdhcpd(8))."""
    nic, given = interface["nic"], interface["network"] or {}
    has = dict(line.partition("=")[::2] for line in file.content.splitlines() if not line.startswith("#"))
    says = {
        "INDEV": link.name if nic["mode"] == "routed" else nic["link"],
        "MAC": nic["mac"],
        "HOSTNAME": nic["instance"],
        "TAGS": f'"{" ".join(nic["tags"])}"',
        "GATEWAY": told.gateway,
        "SUBNET": given.get("subnet", ""),
        "GATEWAY6": told.gateway6,
        "SUBNET6": (six := given.get("subnet6", "")),
    }
    if not wanted.unsure & OF_ADDRESSES:
        known = wanted.addresses
        own = eui64(six, nic["mac"]) if six and ip_network(six).prefixlen == 64 else ""
        says |= {"IP": next(iter(known.ipv4), ""), "EUI64": next(iter(known.ipv6), own)}
    for name, value in says.items():
        if has.get(name) != value:
            yield f"{name} is {has.get(name, 'not there')}, and {value or 'nothing'} is wanted"


def _of_dnsmasq(file: File, wanted: Wanted, _link: Link, interface: Mapping[str, Any], _told: Told) -> Iterator[str]:
    """A host is one line: its MAC, addresses, and a name (dnsmasq(8), --dhcp-host). The name is that of an instance's first NIC."""
    nic, lines = interface["nic"], [line for line in file.content.splitlines() if not line.startswith("#")]
    mac, *words = lines[0].split(",") if len(lines) == 1 else ["several lines"]
    if mac != nic["mac"]:
        yield f"it is of {mac}, and {nic['mac']} is wanted"
    known, addresses = wanted.addresses, [word.strip("[]") for word in words if "." in word or ":" in word]
    own = [*known.ipv4[:1], *known.ipv6[:1]]
    if addresses != own and not wanted.unsure & OF_ADDRESSES:
        yield f"it has {' '.join(addresses) or 'no address'}, and {' '.join(own) or 'none'} is wanted"
    names, name = [word for word in words if word.strip("[]") not in addresses], nic["instance"].partition(".")[0].lower()
    allowed = [[]] if MISREAD.fullmatch(name) else [[name]]
    if nic["uuid"] != nic_uuid(nic["instance"], 0):
        allowed.append([])  # those before it may have gone
    if names not in allowed:
        yield f"it has {' '.join(names) or 'no name'}, and {' '.join(allowed[0]) or 'none'} is wanted"


def _of_network(view: View, told: Told, settings: Settings) -> Iterator[str]:
    """Expect what dnsmasq tells all guests of a network in a file of its own, in lines as after dhcp-option= for the network's tag."""
    lines = {(option, values) for option, values in _lines(told) if values}
    files = (view.file(settings.dhcp_dnsmasq_options_folder, name) for name in (told.name, told.uuid) if name)
    file = next((each for each in files if each is not None), None)
    if not (told.by_somebody and lines):
        if file is not None:
            yield f"nobody says anything of {told.name}, and {file.path} is there"
    elif file is None or not file.owner:
        yield f"what guests of {told.name} are told is in no file of netcommon's"
    elif not told.shifted:
        parted = (line.partition(",") for line in file.content.splitlines()[HEADER:])
        said = [(tag, *rest.partition(",")[::2]) for tag, _, rest in parted]
        has, tags = {(option, tuple(values.split(","))) for _tag, option, values in said}, {tag for tag, _option, _values in said}
        if has != lines or tags != {f"tag:{file.name}"}:
            yield f"{file.path}: it says {sorted(has)} for {' '.join(sorted(tags))}, and {sorted(lines)} is wanted"


def _lines(told: Told) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Give options of dnsmasq and their values. A client that takes classless routes heeds no other router (RFC 3442)."""
    four, six = ([each for each in told.resolvers if (":" in each) == colon] for colon in (False, True))
    gateway = {EVERYWHERE: told.gateway} if told.routes and told.gateway else {}
    yield "option:router", (told.gateway,) if told.gateway else ()
    yield "option:dns-server", tuple(four)
    yield "option6:dns-server", tuple(f"[{each}]" for each in six)
    yield "option:domain-search", told.search
    yield "option6:domain-search", told.search
    yield "option:mtu", (str(told.mtu),) if told.mtu else ()
    routes = dict(told.routes) if EVERYWHERE in dict(told.routes) else {**dict(told.routes), **gateway}
    yield "option:classless-static-route", tuple(word for route in routes.items() for word in route)
