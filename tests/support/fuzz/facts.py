"""What is known of a guest's NIC: whatever it sends is measured by that."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from tests.support.attacks import ADDRESSES, Setting
from tests.support.attacks_base import EUI64, IN_PREFIX6, MAC, OWN6, PREFIX4, PREFIX6, RULES

NO4, NO6 = bytes(4), bytes(16)


def packed(address: str) -> bytes:
    """An address as bytes."""
    return ipaddress.ip_address(address).packed


def hardware(mac: str) -> bytes:
    """A MAC as bytes."""
    return bytes.fromhex(mac.replace(":", ""))


class Facts(NamedTuple):
    """A NIC's facts. ``rules`` are the attacks_base.RULES that hold for it."""

    mac: bytes
    own4: frozenset[bytes]
    own6: frozenset[bytes]
    prefix4: tuple[bytes, int]  #: the network, and how many bits
    prefix6: tuple[bytes, int]
    local: bytes  #: the link-local address of the MAC
    vlans: frozenset[int]
    rules: frozenset[str]
    mode: str = "bridged"
    wire: bool = True  #: the frame is the guest's own; False: a router has made a new one of its packet

    def knows4(self, source: bytes) -> bool:
        """Tell whether the guest may speak for this IPv4 address."""
        return source in self.own4 or within(source, self.prefix4)

    def knows6(self, address: bytes) -> bool:
        """Tell whether the guest may speak for this IPv6 address; link-local ones too."""
        if address in self.own6:
            return True
        if address[0] == 0xFE and address[1] & 0xC0 == 0x80:
            return "local" not in self.rules or address == self.local
        return "ip6" not in self.rules or within(address, self.prefix6)


def within(address: bytes, prefix: tuple[bytes, int]) -> bool:
    """Tell whether an address lies in a prefix; one of 0 bits holds none."""
    network, bits = prefix
    rest = len(address) * 8 - bits
    return bool(bits) and int.from_bytes(address, "big") >> rest == int.from_bytes(network, "big") >> rest


def of(setting: Setting, mode: str, vlans: frozenset[int] = frozenset()) -> Facts:
    """The facts of the NIC that attacks.SETTINGS describe."""
    network4, network6 = ipaddress.ip_network(PREFIX4), ipaddress.ip_network(PREFIX6)
    assert within(packed(IN_PREFIX6), (network6.network_address.packed, network6.prefixlen)) and OWN6 in ADDRESSES
    known4 = {packed(setting.ip)} if setting.ip else set()
    return Facts(
        hardware(MAC),
        frozenset(known4),
        frozenset({packed(OWN6)}) if OWN6 in setting.tags else frozenset(),
        (network4.network_address.packed, network4.prefixlen if PREFIX4 in setting.tags else 0),
        (network6.network_address.packed, network6.prefixlen if PREFIX6 in setting.tags else 0),
        packed(EUI64),
        vlans,
        frozenset(RULES) - setting.off_in(mode),
        mode,
    )
