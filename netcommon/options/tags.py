"""Tags that give options (Ganeti's tags of an instance, or of its network).

A tag of the instance is PREFIX:NIC:OPTION or PREFIX:NIC:OPTION:VALUE, where NIC is the NIC's index, name or UUID, or * for all of the
instance. A tag of the network has no NIC: PREFIX:OPTION:VALUE; it is for all NICs in the network. A value may have colons, and a list or a
MAC may be empty: PREFIX:OPTION: takes away what a weaker place gives. Instead of an option and its value the name of a firewall profile
will do. A tag with the prefix that means nothing is refused, also one that could only be about another NIC.
"""

from __future__ import annotations

import time

from netcommon.options.networks import registry_origin, remedy
from netcommon.options.schema import OPTIONS
from netcommon.options.types import Several, Truth
from runtime.errors import NicInvalid
from runtime.nic import REGISTRY
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from netcommon.options.types import TagKind
    from runtime.nic import Changed, Nic

PROFILES = frozenset({"protected", "limited", "unprotected"})
KINDS: dict[str, TagKind] = {option.name: option.kind for option in OPTIONS}

HEX = frozenset("0123456789abcdefABCDEF-")
UUID_LENGTH = 36

FORM = "NIC:OPTION or NIC:OPTION:VALUE after the prefix, the NIC by its index, name or UUID, or * for all"


class Given(NamedTuple):
    """One option as one place gives it: its name, its value, and the place, "[nic]", "NETWORK_TAGS: netcommon:isolated"."""

    name: str
    value: Any
    origin: str


def selectors(nic: Nic) -> list[str]:
    """How tags may name the NIC.

    Its name does not count where it looks like another NIC's index or UUID, or like all of them, or has colons that part nothing.
    """
    # as the hypervisor gave them too: the second device of a NIC of Xen has a UUID of its own, and the same options
    said = [nic.environment.get("INTERFACE_INDEX", ""), nic.environment.get("INTERFACE_UUID", "").lower()]
    plain = all(nic.name.split(":")) and not (nic.name.isdecimal() or nic.name == "*" or _is_uuid(nic.name))
    name = nic.name if plain else ""
    return ["" if nic.index is None else str(nic.index), nic.uuid, *said, name]


def selected(tags: list[str], start: str, selectors: list[str]) -> list[tuple[str, str]]:
    """The tags that name the NIC, each with what follows. A name may have colons, as those of Ganeti's own NICs have."""
    found = []
    for tag in tags:
        rest = tag[len(start) :]
        if _is_uuid(rest[:UUID_LENGTH]):
            rest = rest[:UUID_LENGTH].lower() + rest[UUID_LENGTH:]
        selector = next((each for each in selectors if each and f"{rest}:".startswith(f"{each}:")), "")
        if selector:
            found.append((tag, rest[len(selector) + 1 :]))
    return found


def of_another(tag: str, rest: str) -> None:
    """A tag for another NIC, whose name may have colons, gives that one an option. Raises NicInvalid if it gives none to any."""
    words = rest.split(":")
    wrong = NicInvalid("TAGS", tag, FORM)
    for place in range(1, len(words)):
        name = ":".join(words[:place])
        if not all(words[:place]) or (name.isdecimal() and not (name == "0" or (name.isascii() and name[0] != "0"))):
            continue  # no NIC can be called so
        try:
            _option("TAGS", tag, ":".join(words[place:]))
        except NicInvalid as error:
            wrong = error if place == 1 else wrong
        else:
            return
    raise wrong


def _is_uuid(text: str) -> bool:
    return set(text) <= HEX and [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]


def of_tags(variable: str, tags: list[tuple[str, str]]) -> Iterator[Given]:
    """The options that some tags of one level give; those of a list add up. Raises NicInvalid.

    Ganeti gives tags in another order at each start: they are taken in the order of their text, so that the same mean the same.
    """
    found: dict[str, list[Given]] = {}
    for tag, rest in sorted(set(tags)):
        one = _option(variable, tag, rest)
        earlier = found.get(one.name)
        if earlier is None:
            found[one.name] = [one]
        elif isinstance(KINDS[one.name], Several) and earlier[-1].value and one.value:
            earlier.append(one)
        elif earlier[-1].value != one.value:
            raise NicInvalid(variable, tag, f"{one.name} given once, not also by {_tags(earlier)}")
        else:
            found[one.name] = [one]
    for ones in found.values():
        yield _together(variable, ones)


def _together(variable: str, ones: list[Given]) -> Given:
    """Add up what tags give of one list, which is read once: there may be thousands. Raises NicInvalid for the first that does not fit."""
    if len(ones) == 1:
        return ones[0]
    name, kind = ones[0].name, KINDS[ones[0].name]

    def read(count: int) -> object:
        return kind.read([*dict.fromkeys(each for one in ones[:count] for each in one.value)])

    try:
        return Given(name, read(len(ones)), f"{variable}: {_tags(ones)}")
    except ValueError:
        fit, wrong = 1, len(ones)
    while wrong - fit > 1:  # whatever is added to a list that is refused, it is refused
        count = (fit + wrong) // 2
        try:
            read(count)
            fit = count
        except ValueError:
            wrong = count
    last = ones[wrong - 1].origin.partition(": ")[2]
    raise NicInvalid(variable, last, f"{name} as {kind.expected}, with {_tags(ones[:fit])}")


def _tags(ones: list[Given]) -> str:
    """Name the tags that give something, without what they are tags of."""
    return " ".join(one.origin.partition(": ")[2] for one in ones)


def of_changed(changed: Iterable[Changed], revision: str = "") -> Iterator[Given]:
    """The options that were changed while the NIC ran, weakest first; ``revision``: of a registry's. Raises NicInvalid."""
    for one in changed:
        yield Given(one.option, value_of(one.option, one.value), _origin(one, revision))


def value_of(name: str, text: str) -> Any:
    """The value of the option ``name`` that ``text`` gives, as in a tag; a list's are parted by commas. Raises NicInvalid."""
    kind = KINDS.get(name)
    if kind is None:
        raise NicInvalid("option", name, remedy(name) or f"one of {', '.join(sorted(KINDS))}")
    try:
        if not text and isinstance(kind, Truth):
            raise ValueError
        several = [kind.kind.parse(each) for each in text.split(",")] if text and isinstance(kind, Several) else None
        return kind.read(kind.parse(text) if several is None else several)
    except ValueError:
        raise NicInvalid(name, text, kind.expected) from None


def _origin(one: Changed, revision: str) -> str:
    until = f", until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(one.until))}" if one.until else ""
    return (registry_origin(revision) if one.source == REGISTRY else "set by change") + until


def _option(variable: str, tag: str, rest: str) -> Given:
    """The option that ``rest`` of a tag gives. Raises NicInvalid."""
    name, colon, text = rest.partition(":")
    if rest in PROFILES:
        name, colon, text = "firewall", ":", rest
    kind = KINDS.get(name)
    if kind is None:
        raise NicInvalid(variable, tag, remedy(name) or f"an option, one of {', '.join(sorted(KINDS))}, or a firewall profile")
    try:
        # a truth alone may do without a value, and it alone cannot be empty
        if not text and isinstance(kind, Truth) == bool(colon):
            raise ValueError
        value: Any = kind.read(kind.parse(text))
    except ValueError:
        raise NicInvalid(variable, tag, f"{name} as {kind.expected}") from None
    return Given(name, value, f"{variable}: {tag}")
