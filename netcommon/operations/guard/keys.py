"""Keys of the spoof guard's elements: MACs, addresses and prefixes as nf_tables compares them."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.rtnetlink.attributes import LENGTHS, pack_address, split_prefix
from netcommon.operations.guard import rules as guard_rules
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def mac(text: str) -> bytes:
    """The octets of a MAC."""
    return bytes.fromhex(text.replace(":", ""))


def padded(key: bytes) -> bytes:
    """A field of a key begins at a multiple of four bytes."""
    return key + bytes(-len(key) % 4)


def family_of(text: str) -> int:
    """That of an address or prefix: AF_INET or AF_INET6."""
    return AF_INET6 if ":" in text else AF_INET


def exact(address: str) -> tuple[str, bytes]:
    """The set of an address, and its key there."""
    family = family_of(address)
    return guard_rules.IPV4 if family == AF_INET else guard_rules.IPV6, pack_address(family, address)


def widest(prefixes: Sequence[str]) -> Iterator[tuple[str, bytes, bytes]]:
    """The prefixes as ranges, without those that lie in another: the kernel takes no overlapping ones."""
    ranges = sorted(map(span, prefixes), key=lambda each: (each[0], each[1], -int.from_bytes(each[2], "big")))
    last: tuple[str, bytes, bytes] | None = None
    for each in ranges:
        if last is None or each[0] != last[0] or each[2] > last[2]:
            yield each
            last = each


def span(prefix: str) -> tuple[str, bytes, bytes]:
    """The set of a prefix, and its first and last key there."""
    family = family_of(prefix)
    packed, length = split_prefix(family, prefix)
    size = LENGTHS[family]
    below = (1 << 8 * size - length) - 1
    first = int.from_bytes(packed, "big") & ~below
    name = guard_rules.PREFIXES4 if family == AF_INET else guard_rules.PREFIXES6
    return name, first.to_bytes(size, "big"), (first | below).to_bytes(size, "big")
