"""The addresses of a guest behind one NIC: IP, and what options add. Routes, proxies, guards and announcements all go by these."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink.attributes import pack_address, show_address, split_prefix
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.options.model import Options
    from runtime.nic import Nic

BITS = {AF_INET: 32, AF_INET6: 128}  #: of an address
IDENTIFIER = 8  #: bytes of an interface identifier, and of the prefix before it (RFC 4291, 2.5.1)
LINK_LOCAL_GATEWAY = "fe80::1"  #: of every guest with the option gateway_link_local
UNIVERSAL = 2  #: the bit that modified EUI-64 turns round (RFC 4291, appendix A)


class Addresses(NamedTuple):
    """Host addresses ("10.0.0.5") and prefixes ("10.1.0.0/28"), in canonical text, in the order in which they were given, none twice.

    A prefix of full length counts as a host address. A host address may lie in one of the prefixes.
    """

    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    prefixes4: tuple[str, ...] = ()
    prefixes6: tuple[str, ...] = ()

    def hosts(self, family: int) -> tuple[str, ...]:
        """The host addresses of AF_INET or AF_INET6."""
        return self.ipv4 if family == AF_INET else self.ipv6

    def prefixes(self, family: int) -> tuple[str, ...]:
        """The prefixes of AF_INET or AF_INET6."""
        return self.prefixes4 if family == AF_INET else self.prefixes6

    def destinations(self, family: int) -> tuple[str, ...]:
        """What is routed to the guest: its host addresses as "10.0.0.5/32", then its prefixes."""
        return (*(f"{host}/{BITS[family]}" for host in self.hosts(family)), *self.prefixes(family))

    @property
    def families(self) -> tuple[int, ...]:
        """Those with any address or prefix, IPv4 first."""
        return tuple(family for family in (AF_INET, AF_INET6) if self.destinations(family))


def addresses_of(nic: Nic, options: Options) -> Addresses:
    """The addresses of ``nic``: IP, the options addresses and prefixes, and with the option eui64 the one that its MAC makes.

    IP "10.0.0.5" and "10.0.0.5/24" mean the host, "10.0.0.0/24" the prefix. Raises NicInvalid where eui64 has a subnet to work on that
    it cannot: another length than 64.
    """
    given = [nic.ip] if nic.ip else []
    given += options.addresses
    if options.eui64 and nic.network.subnet6 and nic.mac:
        given.append(eui64(nic.network.subnet6, nic.mac))
    given += options.prefixes
    found: dict[tuple[int, bool], dict[str, None]] = {(family, host): {} for family in BITS for host in (True, False)}
    for text in given:
        family = AF_INET6 if ":" in text else AF_INET
        shown, host = _canonical(family, text)
        found[family, host][shown] = None
    return Addresses(*(tuple(found[family, host]) for host in (True, False) for family in BITS))


def routed_families(known: Addresses, options: Options) -> tuple[int, ...]:
    """The families in which the node forwards for a routed guest: those of its addresses, or both where it may send from any."""
    return tuple(BITS) if options.allow_ip_spoofing or options.allow_dhcp_spoofing else known.families


def _canonical(family: int, text: str) -> tuple[str, bool]:
    """An address, or prefix with its length, in canonical text, and whether it is a host."""
    packed, length = split_prefix(family, text)
    below = int.from_bytes(packed, "big") & ((1 << BITS[family] - length) - 1)
    shown = show_address(family, packed)
    return (shown, True) if below or length == BITS[family] else (f"{shown}/{length}", False)


def eui64(subnet: str, mac: str) -> str:
    """The address of modified EUI-64 (RFC 4291, 2.5.1 and appendix A) in ``subnet``, such as "2001:db8::/64". Raises NicInvalid."""
    prefix, length = split_prefix(AF_INET6, subnet)
    if length != 8 * IDENTIFIER:
        raise NicInvalid("NETWORK_SUBNET6", subnet, "a /64, as the option eui64 needs (RFC 4291); or turn that off for this network")
    return show_address(AF_INET6, prefix[:IDENTIFIER] + identifier(mac))


def link_local(mac: str) -> str:
    """The link-local address of modified EUI-64 of a MAC (RFC 4291, 2.5.6)."""
    return show_address(AF_INET6, pack_address(AF_INET6, "fe80::")[:IDENTIFIER] + identifier(mac))


def identifier(mac: str) -> bytes:
    """The interface identifier that a MAC makes: the universal bit turned round, ff:fe in the middle."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return bytes((octets[0] ^ UNIVERSAL,)) + octets[1:3] + b"\xff\xfe" + octets[3:]
