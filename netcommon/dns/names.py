"""Names of the DNS, pure: what a host name may be, reverse names, which zone a name is in. All are lower case, without a final dot."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from collections.abc import Iterable

from runtime.errors import NicInvalid, SettingsInvalid

#: Beside each name of ours stands a TXT record that says whose it is: at this label below the name. An underscore keeps it apart
#: from every host name (RFC 8552), and a name of its own from the TXT records of others, such as SPF.
MARK = "_netcommon"

#: A name's characters, at most (RFC 1035, 2.3.4, 255 octets in the message), less those of the mark's label.
LONGEST = 253 - len(MARK) - 1
LABEL = 63

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_DIGITS = frozenset("0123456789")
_IN_LABEL = _LETTERS | _DIGITS | frozenset("-")


class NoZone(SettingsInvalid):
    """Say that a server does not have a zone."""


def hostname(text: str, variable: str) -> str:
    """A host name by RFC 1123 section 2.1, lower-cased. Raises NicInvalid: labels are 1 to 63 letters, digits and inner hyphens.

    A last label of digits is refused (it would be an address), and so is anything below "arpa".
    """
    lowered = text.lower() if text.isascii() else ""
    labels = lowered.split(".")
    good = len(lowered) <= LONGEST and all(is_label(label) for label in labels)
    if not good or _DIGITS.issuperset(labels[-1]) or labels[-1] == "arpa":
        raise NicInvalid(variable, text, f"a host name (RFC 1123) of at most {LONGEST} characters")
    return lowered


def is_label(text: str) -> bool:
    """Whether ``text`` is one label of a host name (lower case)."""
    return 0 < len(text) <= LABEL and _IN_LABEL.issuperset(text) and text[0] != "-" and text[-1] != "-"


def is_zone(text: str) -> bool:
    """Whether ``text`` may be the name of a zone: labels as of host names, and "/" and "_" too, as classless reverse zones have them."""
    labels = text.split(".")
    return 0 < len(text) <= LONGEST and all(is_label(label.replace("/", "-").replace("_", "x")) for label in labels)


def mark_of(name: str) -> str:
    """The name at which the mark of ``name`` stands."""
    return f"{MARK}.{name}"


def is_reverse(name: str) -> bool:
    """Whether ``name`` is one that reverse gives."""
    return name.endswith((".in-addr.arpa", ".ip6.arpa"))


def reverse(address: str) -> str:
    """The name of the address's PTR record (RFC 1035, 3.5; RFC 3596, 2.5). ``address`` is canonical, without length."""
    if ":" not in address:
        return ".".join(reversed(address.split("."))) + ".in-addr.arpa"
    return ".".join(reversed(inet_pton(AF_INET6, address).hex())) + ".ip6.arpa"


def zone_of(name: str, zones: Iterable[str]) -> str:
    """The longest of ``zones`` that ``name`` is in; "" where it is in none."""
    return max((zone for zone in zones if name == zone or name.endswith("." + zone)), key=len, default="")


def is_published(address: str) -> bool:
    """Whether an address means anything beyond its own link: link-local ones do not (RFC 3927, RFC 4291 2.5.6)."""
    if ":" not in address:
        return not address.startswith("169.254.")
    packed = inet_pton(AF_INET6, address)
    return not (packed[0] == 0xFE and packed[1] & 0xC0 == 0x80)


def eui64(subnet: str, mac: str) -> str:
    """The address that a guest with this MAC makes itself in ``subnet``, a /64 (RFC 4291, appendix A)."""
    octets = [int(part, 16) for part in mac.split(":")]
    interface = bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]])
    return inet_ntop(AF_INET6, inet_pton(AF_INET6, subnet.partition("/")[0])[:8] + interface)


def canonical(address: str) -> str:
    """The one spelling of an address (RFC 5952); answers of a server come in any."""
    family = AF_INET6 if ":" in address else AF_INET
    return inet_ntop(family, inet_pton(family, address))
