"""Which records an instance shall have: pure, from the guest and the site's policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from netcommon.dns.guest import Guest
from netcommon.dns.names import eui64, hostname, is_published, is_reverse, reverse, zone_of
from runtime.errors import NicInvalid

#: Names are looked for under so many NICs' names where nothing is on record: Ganeti's MAX_NICS.
USUAL_NICS = 8

#: The types that are ours at a name that bears our mark.
FORWARD, REVERSE = ("A", "AAAA"), ("PTR",)

#: By type, the values in canonical text: addresses, or names without a final dot.
Sets = Mapping[str, frozenset[str]]


class Policy(NamedTuple):
    """What of the settings decides about names and records."""

    zones: tuple[str, ...]
    domain: str = ""
    other_nics: str = ""
    eui64: bool = False
    ttl: int = 3600


def types_at(name: str) -> tuple[str, ...]:
    """The types of records that we keep at ``name``."""
    return REVERSE if is_reverse(name) else FORWARD


def name_of(instance: str, index: int, policy: Policy) -> str:
    """The host name of NIC ``index``; "" where the policy gives it none. Raises NicInvalid where it would be no host name."""
    whole = f"{instance}.{policy.domain}" if policy.domain and "." not in instance else instance
    if index == 0:
        return hostname(whole, "the name of the instance")
    if not policy.other_nics:
        return ""
    host, dot, domain = whole.partition(".")
    label = policy.other_nics.replace("{host}", host).replace("{index}", str(index))
    return hostname(label + dot + domain, f"the name of NIC {index}")


def names_of(instance: str, policy: Policy, count: int = USUAL_NICS) -> list[str]:
    """The names of the first ``count`` NICs, which an instance of this name may have had, as far as they are names."""
    return [name for index in range(count) if (name := _name_or_none(instance, index, policy))]


def _name_or_none(instance: str, index: int, policy: Policy) -> str:
    try:
        return name_of(instance, index, policy)
    except NicInvalid:
        return ""


def wanted(guest: Guest, policy: Policy) -> dict[str, Sets]:
    """By name, the records that ``guest`` shall have in the zones of ``policy``. Raises NicInvalid.

    A name or an address in none of the zones is somebody else's to keep. Several NICs may share a name, or an address.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for index, nic in enumerate(guest.nics):
        name = name_of(guest.name, index, policy)
        addresses = [nic.ip] if nic.ip else []
        if policy.eui64 and nic.mac and nic.subnet6.endswith("/64"):
            addresses.append(eui64(nic.subnet6, nic.mac))
        for address in addresses:
            if name and is_published(address):
                _add(found, policy, name, "AAAA" if ":" in address else "A", address)
                _add(found, policy, reverse(address), "PTR", name)
    return {name: {kind: frozenset(values) for kind, values in sets.items()} for name, sets in found.items()}


def _add(found: dict[str, dict[str, set[str]]], policy: Policy, name: str, kind: str, value: str) -> None:
    if zone_of(name, policy.zones):
        found.setdefault(name, {}).setdefault(kind, set()).add(value)
