"""The rules that each value of a NIC's description must obey.

Every function takes text as received (it may hold anything, lone surrogates of os.environ included), returns it in canonical form,
and raises NicInvalid otherwise. Nothing here touches the host.
"""

from __future__ import annotations

# not socket: it would cost each hook 2 ms for its enums
from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from runtime.errors import NicInvalid

#: IFNAMSIZ less the final NUL (linux/if.h).
INTERFACE_BYTES = 15
NAME_BYTES = 255
TAG_CHARACTERS = 128  #: constants.MAX_TAG_LEN of Ganeti
TABLE_CHARACTERS = 64
REVISION_CHARACTERS = 128  #: of EPOCH:REVISION
LABEL_CHARACTERS = 63  #: of one label of a host name (RFC 1035, 2.3.4)

#: Names that /proc/sys/net/*/conf and the kernel itself use for other things than a guest's device.
RESERVED = frozenset({".", "..", "all", "default", "lo"})

#: The kernel takes these too, but a site's script may hand the name to a shell without quotes, and no hypervisor makes such names.
_SHELL = frozenset("\"$&'()*;<>?[\\]`{|}!~#")
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HEX = frozenset("0123456789abcdef")
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_TABLE = _LETTERS | frozenset("0123456789_.@-")
_TAG = frozenset("_.+*/:@-")
_UNUSABLE_TABLES = frozenset({"local", "unspec"})
_WIDTH: dict[int, int] = {AF_INET: 32, AF_INET6: 128}
_KIND: dict[int, str] = {0: "an IPv4 or IPv6", AF_INET: "an IPv4", AF_INET6: "an IPv6"}


def no_control(text: str, variable: str) -> str:
    """Any printable text: no control characters, no bytes that are not UTF-8."""
    if not text.isprintable():
        raise NicInvalid(variable, text, "printable text")
    return text


def interface(text: str, variable: str = "INTERFACE") -> str:
    """A network interface's name, by the kernel's rules (dev_valid_name in net/core/dev.c), which count bytes.

    Refused too: '%' (dev_alloc_name takes it for a pattern), what means something to a shell, a leading '-' (scripts get the name as an
    argument, where it would be an option), and the names that stand for something else in /proc/sys/net.
    """
    if not _is_interface(text):
        expected = "an interface name: 1 to 15 bytes, no whitespace, '/', ':', '%', '-' first or shell characters, not reserved"
        raise NicInvalid(variable, text, expected)
    return text


def _is_interface(text: str) -> bool:
    if not text or text[0] == "-" or not text.isprintable() or text in RESERVED or any(char in "/:% " or char in _SHELL for char in text):
        return False
    data = text.encode()
    # isspace() of the kernel takes a byte 0xa0 for a space, within a UTF-8 sequence too
    return len(data) <= INTERFACE_BYTES and 0xA0 not in data


def uuid(text: str, variable: str = "INTERFACE_UUID") -> str:
    """A UUID with hyphens (RFC 4122), lower-cased."""
    lowered = text.lower() if text.isascii() else ""
    parts = lowered.split("-")
    if [len(part) for part in parts] != [8, 4, 4, 4, 12] or not _HEX.issuperset("".join(parts)):
        raise NicInvalid(variable, text, "a UUID such as 13264fb6-0667-415f-9a43-786dc01cbf24")
    return lowered


def mac(text: str, variable: str = "MAC") -> str:
    """A unicast Ethernet address that is not all zero, lower-cased."""
    octets = _octets(text, 6)
    if octets is None or int(octets[0], 16) & 1 or set(octets) == {"00"}:
        raise NicInvalid(variable, text, "a unicast MAC address such as aa:00:00:12:34:56")
    return ":".join(octets)


def mac_prefix(text: str, variable: str = "NETWORK_MAC_PREFIX") -> str:
    """The first three octets of MAC addresses, "aa:00:00", lower-cased (gnt-network(8))."""
    octets = _octets(text, 3)
    if octets is None:
        raise NicInvalid(variable, text, "three octets such as aa:00:00")
    return ":".join(octets)


def _octets(text: str, count: int) -> list[str] | None:
    parts = text.lower().split(":") if text.isascii() else []
    good = len(parts) == count and all(len(part) == 2 and _HEX.issuperset(part) for part in parts)
    return parts if good else None


def address(text: str, variable: str = "IP", family: int = 0, length: bool = True) -> str:
    """A host's address in canonical text, with "/len" where given and ``length`` allows it.

    Unspecified, loopback, multicast, broadcast and IPv4-in-IPv6 addresses are refused: none can be a guest's.
    ``family``: socket.AF_INET, AF_INET6, or 0 for either.
    """
    expected = _KIND[family] + (" address, optionally with /length" if length else " address") + ", of a host"
    host, slash, tail = text.partition("/")
    found, packed = _packed(host, family, variable, text, expected)
    if slash and not (length and _is_length(tail, found)):
        raise NicInvalid(variable, text, expected)
    if found == AF_INET:
        usable = packed[0] not in (0, 127) and not 224 <= packed[0] <= 239 and packed != b"\xff\xff\xff\xff"
    else:
        # ::/96 holds ::, ::1 and the IPv4-compatible ones; ::ffff:0:0/96 is RFC 4291's IPv4-mapped
        usable = packed[0] != 0xFF and packed[:12] not in (bytes(12), bytes(10) + b"\xff\xff")
    if not usable:
        raise NicInvalid(variable, text, expected)
    return inet_ntop(found, packed) + slash + tail


def prefix(text: str, variable: str, family: int = 0) -> str:
    """A network such as "10.0.0.0/24" in canonical text; host bits must be zero."""
    expected = _KIND[family] + " network with /length and no host bits"
    host, slash, tail = text.partition("/")
    found, packed = _packed(host, family, variable, text, expected)
    if not slash or not _is_length(tail, found):
        raise NicInvalid(variable, text, expected)
    if int.from_bytes(packed, "big") & ((1 << (_WIDTH[found] - int(tail))) - 1):
        raise NicInvalid(variable, text, expected)
    return f"{inet_ntop(found, packed)}/{tail}"


def _packed(host: str, family: int, variable: str, text: str, expected: str) -> tuple[int, bytes]:
    found = AF_INET6 if ":" in host else AF_INET
    if host.isascii() and host.isprintable() and family in (0, found):
        try:
            return found, inet_pton(found, host)
        except OSError:
            pass
    raise NicInvalid(variable, text, expected)


def _is_length(text: str, family: int) -> bool:
    return _is_number(text, 3) and int(text) <= _WIDTH[family]


def _is_number(text: str, digits: int) -> bool:
    """Decimal digits in the one canonical form: no sign, no leading zero."""
    return text.isascii() and text.isdigit() and len(text) <= digits and (text == "0" or text[0] != "0")


def index(text: str, variable: str = "INTERFACE_INDEX") -> int:
    """A NIC's position in its instance, 0 to 65535."""
    if not _is_number(text, 5) or int(text) > 65535:
        raise NicInvalid(variable, text, "a number from 0 to 65535")
    return int(text)


def instance(text: str, variable: str = "INSTANCE") -> str:
    """An instance's name: safe as one file name, 1 to 255 bytes of printable UTF-8."""
    one_name = text.isprintable() and "/" not in text and ".." not in text and text not in ("", ".") and text[0] != "-"
    if not one_name or len(text.encode()) > NAME_BYTES:
        raise NicInvalid(variable, text, "an instance name: 1 to 255 printable bytes, no '/' or '..', no leading '-'")
    return text


def name(text: str, variable: str = "INTERFACE_NAME") -> str:
    """A name that people chose, of a NIC or a network: printable, at most 255 bytes."""
    if not text.isprintable() or len(text.encode()) > NAME_BYTES:
        raise NicInvalid(variable, text, "a printable name of at most 255 bytes")
    return text


def tags(text: str, variable: str = "TAGS") -> tuple[str, ...]:
    """Tags separated by spaces, each as Ganeti's objects.TaggableObject takes them: 1 to 128 of [\\w.+*/:@-]."""
    found = tuple(part for part in text.split(" ") if part)
    for tag in found:
        if len(tag) > TAG_CHARACTERS or not all(char in _TAG or char.isalnum() for char in tag):
            raise NicInvalid(variable, tag, "tags of letters, digits and _.+*/:@- separated by spaces, each at most 128 characters")
    return found


def link(text: str, mode: str, variable: str = "LINK") -> str:
    """What LINK may be, by mode: a bridge, an Open vSwitch bridge, a routing table (name or number), or anything printable.

    Empty text is allowed for routed (the main table) and ext. A routed NIC's LINK may also name a bridge: Ganeti's cluster
    default for all modes is one; whether that is a table is for the host to say.
    """
    if mode == "ext" or (mode == "routed" and not text):
        return name(text, variable)
    if mode == "routed":
        if not _is_table(text):
            raise NicInvalid(variable, text, "a routing table: its name, or 1 to 4294967295 but not 255 (local)")
        return text
    return interface(text, variable)


def _is_table(text: str) -> bool:
    if text.isascii() and text.isdigit():
        return _is_number(text, 10) and 0 < int(text) < 1 << 32 and int(text) != 255
    # iproute2 takes 0x... for a number too: two spellings of one table would be two tables to us
    if text in _UNUSABLE_TABLES or text.lower().startswith("0x"):
        return False
    return (len(text) <= TABLE_CHARACTERS and _TABLE.issuperset(text) and text not in (".", "..")) or _is_interface(text)


def is_revision(text: str) -> bool:
    """Tell whether ``text`` is EPOCH:REVISION, as a registry writes it."""
    epoch, _, number = text.rpartition(":")
    good = len(text) <= REVISION_CHARACTERS and text.isascii() and text.isprintable() and " " not in text
    return good and bool(epoch) and number.isdecimal()


def is_label(text: str) -> bool:
    """Tell whether ``text`` can be one label of a host name (RFC 1123, 2.1), in lower case."""
    return 0 < len(text) <= LABEL_CHARACTERS and _LABEL.issuperset(text) and "-" not in (text[0], text[-1])


def is_uuid(text: str) -> bool:
    """Tell whether ``text`` is a UUID in its canonical form."""
    try:
        return uuid(text) == text
    except NicInvalid:
        return False
