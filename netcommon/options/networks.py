"""Read what is said of a network as a whole: what all of its guests are told, and never one NIC alone.

The settings say it ([networks.NAME]), and a registry (runtime.networks), which is stronger. Gateways are the hypervisor's word; those
count where that gives none (gnt-network(8), --gateway).
"""

from __future__ import annotations

from runtime.errors import escaped
from runtime.typed import TYPE_CHECKING, NamedTuple
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Protocol

    from runtime.nic import Network, Nic

    class Saying(Protocol):
        """The part of the settings (netcommon.settings.model) that is about networks."""

        @property
        def network_fields(self) -> Mapping[str, Mapping[str, Any]]: ...


#: What a name in the settings file may have without quotes (TOML 1.0, keys).
BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class NetworkFields(NamedTuple):
    """Hold what guests of one network are told; empty where nobody says anything. ``mtu`` in bytes."""

    gateway: str = ""
    gateway6: str = ""
    resolvers: tuple[str, ...] = ()  #: addresses of name servers, of both families
    search: tuple[str, ...] = ()  #: domains
    routes: Mapping[str, str] = {}  #: IPv4 prefix -> IPv4 address of the router to it
    mtu: int = 0


#: What a hypervisor may say of a network too: stronger than the settings, and than a registry.
GIVEN = ("gateway", "gateway6")


class Said(NamedTuple):
    """One field as one place gives it: "mtu", 1400, "[networks.blue]"."""

    name: str
    value: Any
    origin: str


def tables_of(network: Network, tables: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Those of the settings' [networks.NAME] that are the network's, by name and then by UUID: each one's place, and what it says."""
    named = [key for key in tables if key and key == network.name and not (is_uuid(key.lower()) and key.lower() != network.uuid)]
    identified = [key for key in tables if key and key.lower() == network.uuid]
    for key in dict.fromkeys([*named, *identified]):
        yield f"[networks.{key if set(key) <= BARE else escaped(key)}]", tables[key]


def fields_of(nic: Nic, settings: Saying) -> NetworkFields:
    """The fields of the NIC's network, as they count."""
    return NetworkFields(**{each.name: each.value for each in said(nic, settings)})


def said(nic: Nic, settings: Saying) -> Iterator[Said]:
    """Every field that any place gives, in rising order of precedence: the last one of a name counts."""
    for place, table in tables_of(nic.network, settings.network_fields):
        for name, value in table.items():
            yield Said(name, value, place)
    yield from by_registry(nic)
    for name in GIVEN:
        if value := getattr(nic.network, name):
            yield Said(name, value, f"NETWORK_{name.upper()}")


def by_registry(nic: Nic) -> Iterator[Said]:
    """Give what a registry says of the NIC's network. An empty field says nothing."""
    told = nic.told
    if told is not None:
        for name in NetworkFields._fields:
            if value := getattr(told, name):
                yield Said(name, dict(value) if name == "routes" else value, registry_origin(told.revision))


def registry_origin(revision: str) -> str:
    """Name the origin of what a registry wants, as of a revision (EPOCH:REVISION)."""
    return "set by the registry" + (f", revision {revision}" if revision else "")


def anything_said(nic: Nic, settings: Saying) -> bool:
    """Tell whether anybody but the hypervisor says anything of the NIC's network."""
    return nic.told is not None or any(tables_of(nic.network, settings.network_fields))


def completed(nic: Nic, settings: Saying) -> Nic:
    """The NIC, whose network has the gateways that the settings or a registry give where its hypervisor gives none.

    Where its hypervisor names no network, it is the registry's.
    """
    found, network = fields_of(nic, settings), nic.network
    if nic.told is not None and not (network.name or network.uuid):
        network = network._replace(name=nic.told.name, uuid=nic.told.uuid)
    return nic._replace(network=network._replace(gateway=found.gateway, gateway6=found.gateway6))


def remedy(name: str, network: str = "") -> str:
    """Say where a field of a network is to be said, for who has asked for it for one NIC; "" if ``name`` is none."""
    if name not in NetworkFields._fields:
        return ""
    return f"an option of NICs; {name} is of a network: [networks.{network or 'NAME'}] {name} in the settings, then netcommon change --all"
