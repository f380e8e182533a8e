"""Have the registry of a cloud make networks, and give out what the nodes' own NICs have."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from mockcloud.hardware import OWN, Admin
from mockcloud.registry import once
from mockcloud.sysinfo import UUIDS
from netregistry.model.codec import Invalid, read, write
from netregistry.model.network import Network
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.registry import Reached

CLUSTER = "mock"  #: that nodes and instances of a mock cloud are of
OUI = "02:4d:43"  #: of admin NICs: locally administered
ADMINS = {"uuid": str(uuid.uuid5(UUIDS, "admin")), "name": "mock-admin", "subnet": "100.64.0.0/14", "mac_prefix": OUI}
GIVEN = tuple(name for name in Network._fields if name not in ("uuid", "name", "imported"))  #: fields that may be asked for


class Claimed(HostRefused):
    """Refuse the service of a registry that is not this mock cloud's: another one has it, or nodes have joined another registry."""


class Networks:
    """The networks of a cloud's registry."""

    def __init__(self, registry: Reached) -> None:
        self._registry = registry
        self._admins = False  #: the network of all nodes is there

    def claim(self, name: str) -> None:
        """Let a registry's service be that of the cloud called ``name``: nodes and NICs of another one, or of a copy, have the same UUIDs.

        Raises Claimed, HostRefused, TryAgain, Problem.
        """
        client = self._registry.client()
        there = once(client, "networks", {**ADMINS, "tags": [name]}) or client.get(f"networks/{ADMINS['uuid']}").body["network"]
        if name not in there["tags"]:
            text = f"the registry's network {ADMINS['name']} is of another mock cloud, or of another folder"
            advice = "work on that one; if it is gone for good, delete its nodes, its NICs and then this network by netcommon registry"
            raise Claimed(text, advice)
        self._admins = True

    def named(self, name: str) -> dict[str, Any]:
        """Give the network of a name, which has an IPv4 subnet. Raises HostRefused."""
        for each in self._registry.client().all("networks", name=name):
            found: dict[str, Any] = each["network"]
            if found["subnet"]:
                return found
        raise HostRefused(f"there is no network {escaped(name)} with an IPv4 subnet", "--subnet PREFIX makes it")

    def make(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Let there be a network of a name that has these fields. Raises NicInvalid where one is there that has others; Problem."""
        client = self._registry.client()
        for field, value in fields.items():
            if field not in GIVEN:
                raise NicInvalid(f"--{field}", value, f"no such field of a network; there are {', '.join(GIVEN)}")
        there = [each["network"] for each in client.all("networks", name=name)]
        if not there:
            made = {"uuid": network_uuid(name), "name": name, "mac_prefix": OUI, **fields}
            there = [client.change("POST", "networks", made).body]
        found: dict[str, Any] = there[0]
        for field, value in fields.items():
            if found[field] != _as_kept(name, field, value):
                raise NicInvalid(f"--{field}", value, f"that of {name}, which is {found[field] or 'none'}, or none")
        return found

    def own(self, node: str, hostname: str, name: str, network: Mapping[str, Any]) -> Admin:
        """Let the registry give out the MAC and the address of a NIC of a node's own, once."""
        client = self._registry.client()
        wanted = {"uuid": own_uuid(node, name), "belongs": "server", "instance": hostname, "network": network["uuid"], "name": name}
        if name == OWN and not self._admins:
            once(client, "networks", ADMINS)
            self._admins = True
        nic = once(client, "nics", {**wanted, "allocate": ["mac", "ipv4"]}) or client.get(f"nics/{wanted['uuid']}").body["nic"]
        return Admin(nic["mac"], nic["ip"] or nic["addresses"][0], int(network["subnet"].rpartition("/")[2]))


def _as_kept(name: str, field: str, value: Any) -> Any:
    """Give a value as the registry keeps it: of an address there are many spellings. Raises NicInvalid."""
    try:
        return write(read(Network, {"uuid": network_uuid(name), "name": name, field: value}))[field]
    except Invalid as error:
        raise NicInvalid(f"--{field}", value, error.expected) from None


def network_uuid(name: str) -> str:
    """Give the UUID of the network of a name, where this cloud has made it."""
    return str(uuid.uuid5(UUIDS, f"network {name}"))


def own_uuid(node: str, name: str) -> str:
    """Give the UUID of a NIC of a node's own, OWN or one in a network."""
    return str(uuid.uuid5(uuid.UUID(node), name))
