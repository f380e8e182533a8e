"""Choose the address or MAC to give out: the lowest never used, else the one that has been free longest.

Of MACs the lowest is counted from a place by chance and round the end: other registries, and Ganeti by itself, may give out MACs of the
same prefix.

What a guest is reported with is not given out, whether it is wanted or not; nor anything of a prefix that is a guest's as a whole.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry import use
from netregistry.model import keys, kinds
from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from netregistry.draft import Draft
    from netregistry.model.network import Network
    from netregistry.pool import Pool, Standing
    from netregistry.view import View

OCTETS = 6  #: of a MAC
COUNTED: tuple[Standing, ...] = ("held", "reserved", "quarantined", "reported")
MOST_LOOKED_AT = 1000  #: numbers of which a refusal says whose NICs have them
MOST_NAMED = 5  #: nodes that it names


def address(draft: Draft, network: Network, family: int) -> str:
    """Choose an address of a network: 4 or 6. Raises Refused where none is left."""
    _every_node_was_heard(draft)
    if family not in network.families:
        raise Refused("invalid", f"{network.name} has no IPv{family} subnet", field="allocate")
    pool, bounds = draft.view.pool("addresses", network.uuid, family), given_out(draft.view, network, family)
    excluded = network.excluded(family)
    for number in _candidates(pool, bounds):
        found = kinds.text(number, family)
        key = keys.address(network.uuid, found)
        if number in excluded or draft.touched(key) or key in draft.view.unreadable:
            continue
        if next(use.users(draft, key, options=True), None) is None:
            return found
    what = f"{network.name} has no free IPv{family} address"
    if any(kinds.family(each.first) == family for each in network.barred):
        what += f" (some may be guests' of {network.cluster}, whose configuration could not be taken in as a whole: barred)"
    inside = network.bounds(family)
    spans = [each for each in sorted(draft.view.whole(network.uuid, family).items()) if any(map(partial(_meet, each[0]), inside))]
    if spans:
        what += f" (guests have prefixes of it: {', '.join(_whose(draft, span, seen, family) for span, seen in spans[:MOST_NAMED])})"
    raise _full(draft, what, pool, bounds, excluded, partial(kinds.text, which=family))


def given_out(view: View, network: Network, family: int) -> tuple[tuple[int, int], ...]:
    """Give what of a network may be given out, whoever has it: nothing of a prefix of which a guest has every address."""
    return network.bounds(family, view.whole(network.uuid, family))


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _whose(draft: Draft, span: tuple[int, int], seen: tuple[str, ...], family: int) -> str:
    length = (32 if family == 4 else 128) - (span[1] - span[0]).bit_length()
    _seen, uuid, nic = seen[0].split("/")
    node = draft.node(uuid)
    return f"{kinds.text(span[0], family)}/{length} by NIC {nic} on {node.name if node is not None else uuid}"


def mac(draft: Draft, prefix: str, scope: str) -> str:
    """Choose a MAC that begins with ``prefix`` and is free in every scope. Raises Refused where none is left."""
    _every_node_was_heard(draft)
    octets = prefix.split(":")
    bits = 8 * (OCTETS - len(octets))
    first = int("".join(octets), 16) << bits
    last = first + (1 << bits) - 1
    start = first + draft.chance(1 << bits, f"mac {scope}")
    pool = draft.view.pool("macs", "")
    unreadable = (key for key in draft.view.unreadable if keys.kind(key) == "macs")
    chosen = {key.rpartition("/")[2] for key in (*draft.written("macs"), *unreadable)}
    for number in _candidates(pool, ((start, last), (first, start - 1))):
        found = _octets(number)
        if number and found not in chosen and not draft.using(found):
            return found
    raise _full(draft, f"no MAC that begins with {prefix} is free", pool, ((first, last),), frozenset(), _octets)


def _octets(number: int) -> str:
    return ":".join(f"{each:02x}" for each in number.to_bytes(OCTETS, "big"))


def _candidates(pool: Pool, bounds: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Give what may be given out, the best first."""
    bounds = tuple(bounds)
    for first, last in bounds:
        yield from pool.never_used(first, last)
    yield from pool.longest_freed(bounds)


class Room(NamedTuple):
    """Count how many numbers there are to be given out, and how many of them are not any more.

    ``reported``: those that no claim keeps, and that a NIC has all the same, as its node says.
    """

    size: int
    held: int
    reserved: int
    quarantined: int
    reported: int


def room(pool: Pool, bounds: Iterable[tuple[int, int]], excluded: frozenset[int]) -> Room:
    """Count what may be given out within bounds, and what of it is taken."""
    bounds = tuple(bounds)
    size = sum(last - first + 1 for first, last in bounds)
    never = [number for number in excluded if any(first <= number <= last for first, last in bounds)]
    size -= len(never)
    counts = [pool.count(first, last) for first, last in bounds]
    found = Counter[Any]({standing: sum(count[standing] for count in counts) for standing in COUNTED})
    found.subtract(map(pool.of, never))
    return Room(size, *(found[standing] for standing in COUNTED))


def _full(
    draft: Draft, what: str, pool: Pool, bounds: tuple[tuple[int, int], ...], excluded: frozenset[int], text: Callable[[int], str]
) -> Refused:
    """Give the refusal, which says what there is, and whose NICs have what no claim keeps. ``text``: of a number."""
    size, *counts = found = room(pool, bounds, excluded)
    counted = dict(zip(found._fields[1:], counts, strict=True))
    said = ", ".join(f"{number} {standing}" for standing, number in counted.items())
    more: dict[str, Any] = {}
    if found.reported:
        nodes = Counter[str]()
        some = islice(
            (each for first, last in bounds for each in pool.standing("reported", first, last) if each not in excluded), MOST_LOOKED_AT
        )
        unknown = ""  # find knows those alone that are wanted
        for number in some:
            having = [seen.split("/")[1:] for seen in draft.using(text(number))]
            nodes.update({node for node, _nic in having})
            unknown = unknown or next(
                (f"; {text(number)} by NIC {nic}, which is not wanted" for _, nic in having if draft.nic(nic) is None), ""
            )
        more["nodes"] = [uuid for uuid, _count in nodes.most_common(MOST_NAMED)]
        names = [f"{node.name if (node := draft.node(uuid)) else uuid} ({nodes[uuid]})" for uuid in more["nodes"]]
        said += f"; reported by {', '.join(names)}: netcommon registry find ADDRESS names the NIC{unknown}"
    return Refused("full", f"{what}: of {size} {said}", size=size, **counted, **more)


def _every_node_was_heard(draft: Draft) -> None:
    """Raise Refused after a restore, as long as a live node may have what was given out after the backup."""
    if missing := draft.view.unheard():
        names = [node.name for each in missing[:10] if (node := draft.node(each)) is not None]
        detail = f"the registry was restored: nothing is given out before every live node has reported; missing: {', '.join(names)}"
        raise Refused("waiting", detail, nodes=list(missing))
