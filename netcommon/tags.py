"""Where the options of a NIC come from: the settings, and tags.

A tag of the instance is PREFIX:NIC:OPTION or PREFIX:NIC:OPTION:VALUE, where NIC is the NIC's index, name or UUID, or * for all of the
instance. A tag of the network has no NIC: PREFIX:OPTION:VALUE; it is for all NICs in the network. A value may have colons, and a list or a
MAC may be empty: PREFIX:OPTION: takes away what a weaker place gives. Instead of an option and its value the name of a firewall profile
will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from netcommon.kinds import Several, TagKind, Truth
from netcommon.options_schema import OPTIONS
from netcommon.settings import Settings
from runtime.errors import NicInvalid, escaped
from runtime.nic import Nic

PROFILES = frozenset({"protected", "limited", "unprotected"})
KINDS: dict[str, TagKind] = {option.name: option.kind for option in OPTIONS}

#: What a name in the settings file may have without quotes (TOML 1.0, keys).
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")

HEX = frozenset("0123456789abcdefABCDEF-")
UUID_LENGTH = 36


class Given(NamedTuple):
    """One option as one place gives it: its name, its value, and the place, "[nic]", "NETWORK_TAGS: netcommon:isolated"."""

    name: str
    value: Any
    origin: str


def given(nic: Nic, settings: Settings) -> Iterator[Given]:
    """Every option that any place gives, in rising order of precedence: the last one of a name counts. Raises NicInvalid."""
    for name, value in settings.nic.items():
        yield Given(name, value, "[nic]")
    network = nic.network
    named = [key for key in settings.networks if key and key == network.name]
    identified = [key for key in settings.networks if key and key.lower() == network.uuid]
    for key in dict.fromkeys([*named, *identified]):
        place = key if set(key) <= BARE else escaped(key)
        for name, value in settings.networks[key].items():
            yield Given(name, value, f"[networks.{place}]")
    start = settings.tag_prefix + ":"
    tags = [tag for tag in network.tags if tag.startswith(start)]
    if tags:
        yield from _of_tags("NETWORK_TAGS", [(tag, tag[len(start) :]) for tag in tags])
    tags = [tag for tag in nic.tags if tag.startswith(start)]
    if tags:
        yield from _of_tags("TAGS", _selected(tags, start, ["*"]))
        yield from _of_tags("TAGS", _selected(tags, start, _selectors(nic)))


def _selectors(nic: Nic) -> list[str]:
    """How tags may name the NIC. Its name does not count where it looks like another NIC's index or UUID, or like all of them."""
    # as the hypervisor gave them too: the second device of a NIC of Xen has a UUID of its own, and the same options
    said = [nic.environment.get("INTERFACE_INDEX", ""), nic.environment.get("INTERFACE_UUID", "").lower()]
    name = "" if nic.name.isdecimal() or nic.name == "*" or _is_uuid(nic.name) else nic.name
    return ["" if nic.index is None else str(nic.index), nic.uuid, *said, name]


def _selected(tags: list[str], start: str, selectors: list[str]) -> list[tuple[str, str]]:
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


def _is_uuid(text: str) -> bool:
    return set(text) <= HEX and [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]


def _of_tags(variable: str, tags: list[tuple[str, str]]) -> Iterator[Given]:
    """The options that some tags of one level give; those of a list add up. Raises NicInvalid.

    Ganeti gives tags in another order at each start: they are taken in the order of their text, so that the same mean the same.
    """
    found: dict[str, Given] = {}
    for tag, rest in sorted(set(tags)):
        name, colon, text = rest.partition(":")
        if rest in PROFILES:
            name, colon, text = "firewall", ":", rest
        kind = KINDS.get(name)
        if kind is None:
            raise NicInvalid(variable, tag, f"an option, one of {', '.join(sorted(KINDS))}, or a firewall profile")
        earlier = found.get(name)
        try:
            # a truth alone may do without a value, and it alone cannot be empty
            if not text and isinstance(kind, Truth) == bool(colon):
                raise ValueError
            value: Any = kind.read(kind.parse(text))
        except ValueError:
            raise NicInvalid(variable, tag, f"{name} as {kind.expected}") from None
        origin = f"{variable}: {tag}"
        if earlier is not None and isinstance(kind, Several) and earlier.value and value:
            value = (*earlier.value, *(each for each in value if each not in earlier.value))
            origin = f"{earlier.origin} {tag}"
        elif earlier is not None and earlier.value != value:
            raise NicInvalid(variable, tag, f"{name} given once, not also by {earlier.origin.partition(': ')[2]}")
        found[name] = Given(name, value, origin)
    yield from found.values()
