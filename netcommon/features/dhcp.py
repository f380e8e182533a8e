"""The site's DHCP server is told of the guest: nfdhcpd by a binding file, dnsmasq by a file in its dhcp-hostsdir (docs/dhcp.md)."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.operations.file import NicFile
from netcommon.options.addresses import addresses_of, eui64
from netcommon.options.networks import anything_said, fields_of
from runtime.environment import is_twin
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from netcommon.operations.network_file import NetworkFile
    from netcommon.options.addresses import Addresses
    from netcommon.options.model import Options
    from netcommon.options.networks import NetworkFields
    from netcommon.settings.model import Settings
    from runtime.nic import Network, Nic

NFDHCPD, DNSMASQ = "nfdhcpd", "dnsmasq"

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")

#: What a tag of dnsmasq's may be made of, and a file's name.
_TAG = _LETTERS | frozenset("_.")

#: Tags that dnsmasq sets by itself (dnsmasq(8), --dhcp-host).
_TAKEN = frozenset({"known", "known-othernet", "bootp", "dhcpv6", "cpewan-id"})

#: What nfdhcpd's own files have no place for (nfdhcpd(8)): its name servers are of its configuration, one for all.
UNTOLD = ("resolvers", "search", "routes", "mtu")

EVERYWHERE = "0.0.0.0/0"

#: The longest label of a host name (RFC 1035, 2.3.4).
LABEL = 63

#: What dnsmasq takes for something else than a name where it stands alone in a line for one host: these words, and a lease time, which is
#: a number with or without its unit (dnsmasq(8), --dhcp-host, --dhcp-range).
_WORDS = frozenset({"ignore", "infinite"})
_DIGITS, _UNITS = frozenset("0123456789"), frozenset("smhdwSMHDW")


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Raises NicInvalid where the NIC has no MAC: both servers know guests by that.

    dnsmasq is not told of Xen's emulated twin: it has the NIC's MAC and address, and of two lines with one address dnsmasq takes either.
    """
    if not nic.mac:
        raise NicInvalid("MAC", "", f"a MAC address: {options.dhcp} knows guests by it")
    if options.dhcp == DNSMASQ and is_twin(nic):
        return Part()
    told = fields_of(nic, settings)
    given = variables(nic, addresses_of(nic, options))
    if options.dhcp == NFDHCPD:
        # it watches for files that are closed after writing, and knows a binding by the tap's name
        folder, given = settings.dhcp_nfdhcpd_folder, (*given, *of_network(told))
        untold = tuple(name for name in UNTOLD if getattr(told, name))
        return Part(after=(NicFile(folder, nic.interface, nic.uuid, "", "dhcp/nfdhcpd.j2", given, announce=True, untold=untold),))
    reload = f"dnsmasq:{settings.dhcp_dnsmasq_pid}" if settings.dhcp_dnsmasq_pid else ""
    host, warning = _host(nic).lower(), ""  # of one with capitals it may refuse the whole line
    if _is_word(host):
        host, warning = "", f"{nic.interface}: dnsmasq gives the guest no host name: {host} is a word of its own there"
    given = tuple((name, host if name == "host" else value) for name, value in given)
    made = NicFile(settings.dhcp_dnsmasq_folder, nic.uuid, nic.uuid, "", "dhcp/dnsmasq.j2", given, reload=reload, warning=warning)
    return Part(after=(made, *_network_file(nic, settings, told, reload)))


def _network_file(nic: Nic, settings: Settings, told: NetworkFields, reload: str) -> tuple[NetworkFile, ...]:
    """Give the file of what dnsmasq tells the guests of the NIC's network, if anybody says anything of that. Raises NicInvalid.

    A range of its configuration gives the guests the network's name as a tag; a guest's own line must not (the template says why).
    """
    if not anything_said(nic, settings):
        return ()
    from netcommon.operations.network_file import NetworkFile  # few networks have one

    tag = tag_of(nic.network, settings)
    if not tag:
        raise NicInvalid("NETWORK_NAME", nic.network.name, "letters, digits and -_. for dnsmasq, or NETWORK_UUID beside it")
    lines = network_lines(tag, told)
    return (NetworkFile(settings.dhcp_dnsmasq_options_folder, tag, nic.uuid, lines, reload),) if lines else ()


def tag_of(network: Network, settings: Settings) -> str:
    """The tag that dnsmasq's ranges of the network set, which is its file's name too: its name.

    Its UUID where the settings call it by that, for two may have one name, or where the name will not do: a network may be called by
    another one's UUID.
    """
    name = network.name
    if any(key.lower() == network.uuid for key in settings.network_fields if key):
        return network.uuid
    plain = _TAG.issuperset(name) and name[:1] not in ("", ".", "-") and len(name) <= LABEL and name not in _TAKEN
    return name if plain and not is_uuid(name.lower()) else network.uuid


def network_lines(tag: str, told: NetworkFields) -> tuple[str, ...]:
    """Lines as after ``dhcp-option=`` (dnsmasq(8)).

    A client that takes classless routes heeds no other gateway, so they include the default route (RFC 3442, page 5). dnsmasq puts the
    name servers and domains of DHCPv6 into its router advertisements too (RFC 8106).
    """
    four = [each for each in told.resolvers if ":" not in each]
    six = [f"[{each}]" for each in told.resolvers if ":" in each]
    routes = dict(told.routes)
    if routes and told.gateway:
        routes.setdefault(EVERYWHERE, told.gateway)
    found = (
        ("option:router", [told.gateway] if told.gateway else []),
        ("option:dns-server", four),
        ("option6:dns-server", six),
        ("option:domain-search", told.search),
        ("option6:domain-search", told.search),
        ("option:mtu", [str(told.mtu)] if told.mtu else []),
        ("option:classless-static-route", [word for route in routes.items() for word in route]),
    )
    return tuple(f"tag:{tag},{option},{','.join(values)}" for option, values in found if values)


def of_network(told: NetworkFields) -> tuple[tuple[str, str], ...]:
    """Give in words what nfdhcpd's template is told besides: dnsmasq is told of it by the network's own file."""
    return (
        ("resolvers", " ".join(told.resolvers)),
        ("search", " ".join(told.search)),
        ("routes", " ".join(f"{prefix},{router}" for prefix, router in told.routes.items())),
        ("mtu", str(told.mtu or "")),
    )


def variables(nic: Nic, addresses: Addresses) -> tuple[tuple[str, str], ...]:
    """What the templates are given, "" for what there is none of. All but ``tags``, ``instance`` and ``network`` are plain words."""
    network = nic.network
    return (
        ("interface", nic.interface),
        ("indev", nic.link if nic.mode in ("bridged", "openvswitch") else nic.interface),
        ("mode", nic.mode),
        ("uuid", nic.uuid),
        ("mac", nic.mac),
        ("ip", addresses.ipv4[0] if addresses.ipv4 else ""),
        ("ip6", addresses.ipv6[0] if addresses.ipv6 else ""),
        ("eui64", eui64(network.subnet6, nic.mac) if network.subnet6.endswith("/64") else ""),
        ("instance", nic.instance),
        ("host", _host(nic)),
        ("tags", " ".join(nic.tags)),
        ("network", network.name),
        ("subnet", network.subnet),
        ("gateway", network.gateway),
        ("subnet6", network.subnet6),
        ("gateway6", network.gateway6),
    )


def _host(nic: Nic) -> str:
    """The name that the guest gets with its first NIC: two addresses under one name would take it from each other.

    One that somebody has defined by hand may have no index, and is the first.
    """
    label = nic.instance.partition(".")[0]
    other = nic.index or is_twin(nic)
    return "" if other or len(label) > LABEL or not _LETTERS.issuperset(label) or label.startswith("-") else label


def _is_word(label: str) -> bool:
    """Say if dnsmasq reads ``label`` as a keyword or as a lease time, and not as a host name."""
    number = label[:-1] if label[-1:] in _UNITS else label
    return label in _WORDS or (number != "" and _DIGITS.issuperset(number))
