"""Netlink messages and attributes as bytes (netlink(7)): built, and taken apart."""

from __future__ import annotations

import _socket as socket  # the module socket costs a hook 2 ms
from struct import Struct, error

from netcommon.host.api.facts import AF_INET, AF_INET6
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEADER = Struct("=IHHII")  #: struct nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE = Struct("=HH")  #: struct nlattr: length, type
U16, U32, S32 = Struct("=H"), Struct("=I"), Struct("=i")

NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_MULTI, NLM_F_ACK, NLM_F_ECHO, NLM_F_DUMP_INTR = 0x1, 0x2, 0x4, 0x8, 0x10
NLM_F_DUMP = 0x300
SAYS = NLM_F_MULTI | NLM_F_DUMP_INTR  #: flags that say something about a dump
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLM_F_ACK_TLVS = 0x200
NLA_TYPE_MASK = 0x3FFF  #: without NLA_F_NESTED and NLA_F_NET_BYTEORDER

RUN, AFRESH = 64, 8  #: so many messages of one shape are passed over at once, or are looked at before that is tried again

LENGTHS = {AF_INET: 4, AF_INET6: 16}  #: of an address, in bytes


class MalformedError(Exception):
    """A message from the kernel, or a service, that does not follow its own rules."""


class Encoded(NamedTuple):
    """A request's message without its sequence number."""

    type: int
    flags: int
    body: bytes


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    size = len(value)
    made = ATTRIBUTE.pack(4 + size, kind) + value
    return made + bytes(-size % 4) if size & 3 else made


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits."""
    return attribute(kind, U32.pack(value))


def as_bytes(value: str) -> bytes:
    """Names and aliases may hold any byte but NUL, in and out the same whatever the locale says."""
    return value.encode("utf-8", "surrogateescape")


def text(kind: int, value: str) -> bytes:
    """A NUL-terminated string attribute."""
    return attribute(kind, as_bytes(value) + b"\0")


def message(kind: int, flags: int, body: bytes, sequence: int) -> bytes:
    """A whole request; the kernel finds the sender's port by itself."""
    return HEADER.pack(16 + len(body), kind, flags | NLM_F_REQUEST, sequence, 0) + body


def messages(data: bytes, needle: bytes | None = b"", at: int | None = None) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, sequence number and body of each message of a datagram. Raises MalformedError.

    Of a dump's objects without ``needle`` in their bytes (None: of all), thousands, only those that say something about the dump.
    """
    unpack = HEADER.unpack_from
    offset, end, look = 0, len(data), 0 if needle != b"" else len(data)
    words = memoryview(data)[: end & ~3].cast("I")
    place = data.find(needle) if needle is not None and at is None else -1
    while offset + 16 <= end:
        length, kind, flags, sequence, _ = unpack(data, offset)
        after = offset + length
        if length < 16 or after > end:
            raise MalformedError("a netlink message reaches beyond what was received")
        if 0 <= place < offset and needle is not None:
            place = data.find(needle, offset)
        says = flags & SAYS != NLM_F_MULTI or kind <= NLMSG_DONE
        if offset >= look and not says:
            size = length + 3 & ~3
            run = offset + RUN * size
            lacks = not offset <= place < run if at is None else (needle or b"")[:1] not in data[offset + 16 + at : run : size]
            if run <= end and lacks and _alike(words[offset >> 2 : run >> 2], size >> 2):
                offset = run
                continue
            look = offset + AFRESH * size
        there = 0 <= place < after if at is None else data.startswith(needle or b"", offset + 16 + at)
        if there or says:
            yield kind, flags, sequence, data[offset + 16 : after]
        offset = (after + 3) & ~3


def _alike(words: memoryview, size: int) -> bool:
    """Whether these are messages of ``size`` words with the same header: length, type and flags, sequence number."""
    return all(words[place::size].tolist().count(words[place]) == RUN for place in range(3))


def search(datagrams: Sequence[bytes], needle: bytes, at: int | None = None) -> list[bytes]:
    """The bodies of a listing's objects with ``needle`` in their bytes, ``at`` that place if given."""
    some = [data for data in datagrams if needle in data]
    found = (body for data in some for kind, _flags, _sequence, body in messages(data, needle, at) if kind > NLMSG_DONE)
    return [body for body in found if (needle in body if at is None else body.startswith(needle, at))]


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """The attributes from ``offset`` on; of a repeated one the last. Raises MalformedError."""
    # not by each(): thousands of links with fifty attributes pass here
    found: dict[int, bytes] = {}
    unpack, end = ATTRIBUTE.unpack_from, len(data)
    while offset + 4 <= end:
        length, kind = unpack(data, offset)
        if length < 4 or offset + length > end:
            raise MalformedError("an attribute reaches beyond its message")
        found[kind & NLA_TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def each(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """The attributes from ``offset`` on, in order. Raises MalformedError."""
    end = len(data)
    while offset + 4 <= end:
        length, kind = ATTRIBUTE.unpack_from(data, offset)
        if length < 4 or offset + length > end:
            raise MalformedError("an attribute reaches beyond its message")
        yield kind & NLA_TYPE_MASK, data[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def u32(value: bytes | None, default: int = 0) -> int:
    """A 32-bit number, ``default`` where the attribute is missing. Raises MalformedError."""
    if value is None:
        return default
    try:
        return int(U32.unpack(value)[0])
    except error:
        raise MalformedError("a number of an unexpected size") from None


def string(value: bytes | None) -> str:
    """A string attribute's text, the inverse of ``as_bytes``."""
    return "" if value is None else value.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def pack_address(family: int, address: str) -> bytes:
    """The bytes of an address in text form. Raises OSError where it is none of that family."""
    return socket.inet_pton(family, address)


def show_address(family: int, value: bytes) -> str:
    """The canonical text of an address, as the ipaddress module writes it. Raises MalformedError."""
    if len(value) != LENGTHS.get(family):
        raise MalformedError("an address of an unexpected size")
    shown = socket.inet_ntop(family, value)
    if family == AF_INET6 and "." in shown:  # ::192.0.2.1 and its like, where inet_ntop(3) and ipaddress differ
        import ipaddress  # seldom needed, dear to a hook

        return str(ipaddress.IPv6Address(value))
    return shown


def split_prefix(family: int, destination: str) -> tuple[bytes, int]:
    """ "10.0.0.5/32" as address bytes and length; without a length it is a host. Raises OSError or ValueError."""
    address, slash, length = destination.partition("/")
    packed = pack_address(family, address)
    bits = int(length) if slash else 8 * len(packed)
    if not 0 <= bits <= 8 * len(packed):
        raise ValueError(f"no prefix length: {destination}")
    return packed, bits
