"""Where the options of a NIC come from: the settings, and tags.

A tag of the instance is PREFIX:NIC:OPTION or PREFIX:NIC:OPTION:VALUE, where NIC is the NIC's index, name or UUID, or * for all of the
instance. A tag of the network has no NIC: PREFIX:OPTION:VALUE; it is for all NICs in the network. A value may have colons. Instead of
an option and its value the name of a firewall profile will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from netcommon.kinds import Several, TagKind
from netcommon.options_schema import OPTIONS
from netcommon.settings import Settings
from runtime.errors import NicInvalid
from runtime.nic import Nic

PROFILES = frozenset({"protected", "limited", "unprotected"})
KINDS: dict[str, TagKind] = {option.name: option.kind for option in OPTIONS}


class Given(NamedTuple):
    """One option as one place gives it: its name, its value, and the place, "[nic]", "NETWORK_TAGS: netcommon:isolated"."""

    name: str
    value: Any
    origin: str


def given(nic: Nic, settings: Settings) -> Iterator[Given]:
    """Every option that any place gives, in rising order of precedence: the last one of a name counts. Raises NicInvalid."""
    for name, value in settings.nic.items():
        yield Given(name, value, "[nic]")
    for key in filter(None, (nic.network.name, nic.network.uuid)):
        for name, value in settings.networks.get(key, {}).items():
            yield Given(name, value, f"[networks.{key}]")
    start = settings.tag_prefix + ":"
    tags = [tag for tag in nic.network.tags if tag.startswith(start)]
    if tags:
        yield from _of_tags("NETWORK_TAGS", [(tag, tag[len(start) :]) for tag in tags])
    tags = [tag for tag in nic.tags if tag.startswith(start)]
    if tags:
        selected = [(tag, *tag[len(start) :].partition(":")[::2]) for tag in tags]
        everyone = [(tag, rest) for tag, which, rest in selected if which == "*"]
        # as the hypervisor gave them too: the second device of a NIC of Xen has a UUID of its own, and the same options
        said = {nic.environment.get("INTERFACE_INDEX", ""), nic.environment.get("INTERFACE_UUID", "").lower()}
        own = ({"" if nic.index is None else str(nic.index), nic.name, nic.uuid} | said) - {""}
        yield from _of_tags("TAGS", everyone)
        yield from _of_tags("TAGS", [(tag, rest) for tag, which, rest in selected if which in own])


def _of_tags(variable: str, tags: list[tuple[str, str]]) -> Iterator[Given]:
    """The options that some tags of one level give; those of a list add up. Raises NicInvalid."""
    found: dict[str, Given] = {}
    for tag, rest in tags:
        name, _, text = rest.partition(":")
        if rest in PROFILES:
            name, text = "firewall", rest
        kind = KINDS.get(name)
        if kind is None:
            raise NicInvalid(variable, tag, f"an option, one of {', '.join(sorted(KINDS))}, or a firewall profile")
        earlier = found.get(name)
        try:
            value: Any = kind.read(kind.parse(text))
        except ValueError:
            raise NicInvalid(variable, tag, f"{name} as {kind.expected}") from None
        origin = f"{variable}: {tag}"
        if earlier is not None and isinstance(kind, Several):
            value = (*earlier.value, *(each for each in value if each not in earlier.value))
            origin = f"{earlier.origin} {tag}"
        elif earlier is not None and earlier.value != value:
            raise NicInvalid(variable, tag, f"{name} given once, not also by {earlier.origin.partition(': ')[2]}")
        found[name] = Given(name, value, origin)
    yield from found.values()
