"""Take what a registry wants of a NIC into what is wanted of it (runtime.wanted). Hooks only read what became of that."""

from __future__ import annotations

from runtime import validate
from runtime.errors import NicInvalid
from runtime.kept import LONGEST, is_ip, is_option, is_position
from runtime.networks import GANETI, tags_of
from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.wanted import End, Entry, Moment, in_part, plausible, to_json, until_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime.wanted import Wanted

MOST = 100  #: options of one NIC


class RegistryOption(NamedTuple):
    """One option that a registry sets, its value as a tag would give it. ``until``: seconds since the epoch; 0: for good."""

    name: str
    value: str
    until: float = 0.0


class RegistryWanted(NamedTuple):
    """Hold what a registry wants of one NIC. ``revision``: EPOCH:REVISION; ``network``: the UUID of its network, "" for none.

    ``tags``: those that its Ganeti cluster has, None where no such cluster is its master. ``position``: of the NIC in its instance, by
    which they are read; None where nobody says it. ``ip``: its address in its network; "" where none is said. ``fields``: of what only a
    restart gives a NIC (RESTART), name and value, what the registry says; it is compared, and not kept.
    """

    revision: str
    options: tuple[RegistryOption, ...] = ()
    network: str = ""
    tags: tuple[str, ...] | None = None
    position: int | None = None
    ip: str = ""
    fields: tuple[tuple[str, str], ...] = ()


#: The option in which a NIC has the further addresses that a registry knows of it.
ADDRESSES = "addresses"

#: What only a restart gives a NIC, as a registry calls it. Of ``SAID_EMPTY`` "" means that there is none, of the others that nobody says.
RESTART = ("mac", "ip", "mode", "link", "vlan", "model")
SAID_EMPTY = frozenset({"ip", "vlan"})


def wanted_of(revision: str, said: Mapping[str, Any]) -> RegistryWanted:
    """Give what a registry wants of a NIC, of its JSON. Its further addresses are an option, unless one is set. Raises NicInvalid."""
    try:
        options = [RegistryOption(str(one["name"]), str(one["value"]), float(one.get("until", 0))) for one in said.get("options", ())]
        addresses = ",".join(map(str, said.get("addresses", ())))
        if addresses and all(one.name != ADDRESSES for one in options):
            options.append(RegistryOption(ADDRESSES, addresses))
        fields = [(name, str(said[name])) for name in RESTART if name in said]
        return RegistryWanted(
            revision, tuple(options), str(said.get("network", "")), tags_of(said), position_of(said), ip_of(said), tuple(fields)
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NicInvalid("NIC", str(said)[:80], "a NIC as the registry's reference has it") from None


def position_of(said: Mapping[str, Any]) -> int | None:
    """Give the position of a NIC in its instance, of its JSON; None but of one of a Ganeti cluster. Raises NicInvalid."""
    position = said.get("index") if str(said.get("master")).startswith(GANETI) else None
    if not is_position(position):
        raise NicInvalid("index", str(position)[:80], "a number from 0 to 65535")
    return position


def ip_of(said: Mapping[str, Any]) -> str:
    """Give the address of a NIC in its network, of its JSON; "" for none. Raises NicInvalid."""
    ip = said.get("ip", "")
    if not is_ip(ip):
        raise NicInvalid("ip", str(ip)[:80], "an address, or nothing")
    return str(ip)


def taken(before: Wanted, asked: RegistryWanted, now: Moment) -> Wanted:
    """Give what is wanted of the NIC as a registry wants it by now.

    An option that ends when it would have ended before keeps that end by the boot's clock; one that has ended already is left out, and
    what is wanted counts as a part then (runtime.wanted.in_part): the registry wants it still, and this node's clock may be wrong.

    Raises NicInvalid for what cannot be wanted of any NIC. Whether there is such an option is not looked at.
    """
    known = {(each.option, each.value, until_of(each)): each for each in before.registry}
    entries = list[Entry]()
    for name, value, until in _checked(asked).options:
        left = until - now.wall
        if (there := known.get((name, value, until))) is not None:
            entries.append(there)
        elif not until or left > 0:
            entries.append(Entry(name, value, End(now, Moment(now.boot, now.monotonic + left, until)) if until else None))
    revision = asked.revision if len(entries) == len(asked.options) else in_part(asked.revision)
    after = before._replace(registry=tuple(entries), revision=revision, network=asked.network, tags=asked.tags)
    after = after._replace(position=asked.position, ip=asked.ip)
    if 2 * len(to_json(after.by_registry)) > LONGEST // 2:  # once more while it is pending, and beside what is of this node
        raise NicInvalid("options", f"{len(entries)} options", f"options of {LONGEST // 4} bytes as JSON")
    return after


def _checked(asked: RegistryWanted) -> RegistryWanted:
    if not validate.is_revision(asked.revision):
        raise NicInvalid("revision", asked.revision, "EPOCH:REVISION")
    if asked.network and not validate.is_uuid(asked.network):
        raise NicInvalid("network", asked.network, "a UUID in lower case, or nothing")
    if asked.tags is not None and validate.tags(" ".join(asked.tags)) != asked.tags:
        raise NicInvalid("tags", " ".join(asked.tags)[:80], "tags, of which none is empty")
    if not is_position(asked.position):
        raise NicInvalid("index", str(asked.position)[:80], "a number from 0 to 65535")
    if not is_ip(asked.ip):
        raise NicInvalid("ip", asked.ip[:80], "an address, or nothing")
    names = [each.name for each in asked.options]
    if len(set(names)) != len(names) or len(names) > MOST:
        raise NicInvalid("options", " ".join(names)[:200], f"at most {MOST} options, each once")
    for name, _value, until in asked.options:
        if not is_option(name):
            raise NicInvalid("option", name[:80], "an option's name")
        if not plausible(until):
            raise NicInvalid(name, str(until)[:80], "a time in seconds since the epoch, or 0")
    return asked
