"""Define the kinds of values that a registry's objects have: addresses, names, tags. What each may be is said here alone."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated

from netcommon.settings.types import domain
from netregistry.model.codec import Between, Most, Text
from runtime import validate
from runtime.vlan import parse_vlan

NAME_CHARACTERS = 255
FOREVER = 1e11  #: seconds since the epoch; no time of ours is later
NO_SCOPE = "none"  #: the scope of what is of no network and no cluster
HEX = frozenset("0123456789abcdef")


def _some_name(text: str) -> str:
    if not text:
        raise ValueError
    return validate.name(text, "")


def _host(text: str, family: int) -> str:
    return validate.address(text, "", family, length=False)


def _subnet(text: str, family: int) -> str:
    """Read a network of at least two hosts, none of them loopback or multicast."""
    found = validate.prefix(text, "", family)
    validate.address(found, "")
    if int(found.rpartition("/")[2]) > (30 if family == AF_INET else 126):
        raise ValueError
    return found


def _cluster(text: str) -> str:
    """Read a domain; not what else a scope of claims may be called (netregistry.model.nic.Nic.scope)."""
    found = domain(text)
    if found == NO_SCOPE or validate.is_uuid(found):
        raise ValueError
    return found


def _mac_prefix(text: str) -> str:
    """Three to five octets, of unicast addresses."""
    octets = text.lower().split(":") if text.isascii() else []
    if not 3 <= len(octets) <= 5 or any(len(each) != 2 or not HEX.issuperset(each) for each in octets) or int(octets[0], 16) & 1:
        raise ValueError
    return ":".join(octets)


def _tag(text: str) -> str:
    (found,) = validate.tags(text, "")
    return found


def _vlan(text: str) -> str:
    return str(parse_vlan(text, ""))


def _link(text: str) -> str:
    return validate.name(text, "")


def _option_text(text: str) -> str:
    if len(text) > 1024 or not text.isprintable():
        raise ValueError
    return text


def _master(text: str) -> str:
    kind, colon, rest = text.partition(":")
    if not (text == REGISTRY or (kind == "ganeti" and colon and _cluster(rest) == rest) or (kind == "node" and validate.is_uuid(rest))):
        raise ValueError
    return text


#: The master of what operators and allocation decide; others are "ganeti:CLUSTER" and "node:UUID".
REGISTRY = "registry"

Uuid = Annotated[str, Text(partial(validate.uuid, variable=""), "a UUID such as 13264fb6-0667-415f-9a43-786dc01cbf24")]
UuidOrNone = Annotated[str, Text(partial(validate.uuid, variable=""), "a UUID", True)]
Name = Annotated[str, Text(_some_name, "a printable name of 1 to 255 bytes")]
NameOrNone = Annotated[str, Text(_some_name, "a printable name of at most 255 bytes", True)]
Instance = Annotated[str, Text(partial(validate.instance, variable=""), "an instance's name: 1 to 255 printable bytes, no '/'", True)]
Cluster = Annotated[str, Text(_cluster, 'a cluster\'s name, as of a host: "gnt.example.com"', True)]
Imported = Annotated[str, Text(_cluster, 'the name of a Ganeti cluster, as of a host: "gnt.example.com"')]
Master = Annotated[str, Text(_master, 'a master: "registry", "ganeti:CLUSTER" or "node:UUID"')]
Mac = Annotated[str, Text(partial(validate.mac, variable=""), "a unicast MAC address such as aa:00:00:12:34:56", True)]
MacPrefix = Annotated[str, Text(_mac_prefix, 'three to five octets of unicast MAC addresses such as "aa:00:00"', True)]
Address = Annotated[str, Text(partial(_host, family=0), "an IPv4 or IPv6 address of a host")]
AddressOrNone = Annotated[str, Text(partial(_host, family=0), "an IPv4 or IPv6 address of a host", True)]
Address4 = Annotated[str, Text(partial(_host, family=AF_INET), "an IPv4 address of a host", True)]
Address6 = Annotated[str, Text(partial(_host, family=AF_INET6), "an IPv6 address of a host", True)]
Router4 = Annotated[str, Text(partial(_host, family=AF_INET), "an IPv4 address of a host")]
Subnet4 = Annotated[str, Text(partial(_subnet, family=AF_INET), 'an IPv4 prefix of /30 or wider, such as "192.0.2.0/24"', True)]
Subnet6 = Annotated[str, Text(partial(_subnet, family=AF_INET6), 'an IPv6 prefix of /126 or wider, such as "2001:db8::/64"', True)]
Prefix4 = Annotated[str, Text(partial(validate.prefix, variable="", family=AF_INET), 'an IPv4 prefix such as "10.1.0.0/16"')]
Prefix = Annotated[str, Text(partial(validate.prefix, variable=""), 'a prefix such as "10.1.0.0/16" or "2001:db8::/64"')]
Domain = Annotated[str, Text(domain, 'a domain such as "example.com"')]
Tag = Annotated[str, Text(_tag, "a tag of 1 to 128 letters, digits and _.+*/:@-")]
TagOrNone = Annotated[str, Text(_tag, "a tag of 1 to 128 letters, digits and _.+*/:@-", True)]
Vlan = Annotated[str, Text(_vlan, 'VLANs as Ganeti writes them: ".10", ":10:20" or ".10:20"', True)]
Link = Annotated[str, Text(_link, "a bridge, routing table or other link: printable, at most 255 bytes", True)]
Time = Annotated[float, Between(0, FOREVER)]
Note = Annotated[str, Text(_some_name, "printable text of at most 255 bytes", True)]
Sixteen = Most(16)
Hundred = Most(100)
Fifty = Most(50)
Thousand = Most(1000)
Vlans = Most(4094)
VlanId = Annotated[int, Between(1, 4094)]
OptionText = Text(_option_text, "printable text of at most 1024 characters", True)


def subnets(subnet: str, subnet6: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Give the networks of both families, those that there are."""
    return tuple(ip_network(each) for each in (subnet, subnet6) if each)


def number(address: str) -> int:
    """Give an address as a number; its family is told by its text."""
    return int(ip_address(address))


def family(address: str) -> int:
    """Give 4 or 6."""
    return 6 if ":" in address else 4


def text(value: int, which: int) -> str:
    """Give the address of a number, in the canonical form that Address reads."""
    return inet_ntop(AF_INET, value.to_bytes(4, "big")) if which == 4 else inet_ntop(AF_INET6, value.to_bytes(16, "big"))
