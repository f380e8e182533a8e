"""Ask a cloud's registry for instances: what it wants of their NICs, and what nodes report of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mockcloud.networks import CLUSTER
from mockcloud.stored import Interface, nic_uuid
from netregistry.client import Problem
from netregistry.model.codec import read
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from runtime.errors import HostRefused, NicInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mockcloud.stored import Vm
    from netregistry.client import Asker

    Networks = Mapping[str, Mapping[str, Any]]  # by name and by UUID

#: What may be said of a NIC, by the registry's names of it; ``network``: its name or UUID.
GIVEN = ("network", "mode", "link", "vlan", "ip", "mac", "name", "model")


def interface(nic: Nic, networks: Networks) -> Interface:
    """Put a NIC together with its network."""
    return Interface(nic, read(Network, networks[nic.network]) if nic.network else None)


class Side:
    """The registry's side."""

    def __init__(self, client: Asker) -> None:
        self._client = client

    def body(self, given: Mapping[str, str], networks: Networks, whole: bool = True) -> dict[str, Any]:
        """Give what the registry is to know of a NIC. Raises NicInvalid for a field that is none, or a network that is not there."""
        for field, value in given.items():
            if field not in GIVEN:
                raise NicInvalid("--nic", f"{field}={value}", f"one of {', '.join(GIVEN)}")
        body: dict[str, Any] = dict(given)
        network: Mapping[str, Any] = {}
        if name := given.get("network"):
            if name not in networks:
                raise NicInvalid("network", name, "the name or UUID of a network: mockcloud network makes one")
            network = networks[name]
            body["network"] = network["uuid"]
        if not whole:
            return body
        body = {"mode": "bridged", "link": "br0", **body}
        wanted = ("ipv4",) if network.get("subnet") else ("ipv6",) if network.get("subnet6") else ()
        allocate = [*(("mac",) if not given.get("mac") else ()), *(wanted if "ip" not in given else ())]
        return {**{name: value for name, value in body.items() if value}, "allocate": allocate}

    def networks(self) -> Networks:
        """Give all networks, each by its name and by its UUID."""
        found = [each["network"] for each in self._client.all("networks")]
        return {**{each["name"]: each for each in reversed(found)}, **{each["uuid"]: each for each in found}}

    def nic(self, instance: str, number: int, index: int, body: Mapping[str, Any], tags: Sequence[str]) -> Nic:
        """Have a NIC made."""
        uuid = nic_uuid(instance, number)
        body = {**body, "uuid": uuid, "cluster": CLUSTER, "instance": instance, "index": index, "tags": list(tags)}
        return read(Nic, self._client.change("POST", "nics", body).body)

    def anew(self, vm: Vm) -> tuple[Interface, ...]:
        """Give the NICs of an instance as the registry wants them now."""
        networks = self.networks() if vm.interfaces else {}
        known = {each["nic"]["uuid"]: each for each in self._client.all("nics", instance=vm.name)} if vm.interfaces else {}
        found = []
        for place, each in enumerate(vm.interfaces):
            nic = read(Nic, (known.get(each.nic.uuid) or self.there(each.nic.uuid))["nic"])
            found.append(interface(nic._replace(index=place), networks))
        return tuple(found)

    def item(self, uuid: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.get(f"nics/{uuid}").body
        except Problem as refused:
            if refused.kind != "missing":
                raise
            return None
        return found

    def there(self, uuid: str) -> dict[str, Any]:
        found = self.item(uuid)
        if found is None:
            raise HostRefused(f"the registry has no NIC {uuid} any more", "delete the instance, or unplug the NIC")
        return found

    def patch(self, uuid: str, fields: Mapping[str, Any]) -> str:
        """Change a NIC; give the revision at which it is so."""
        item = self.there(uuid)
        if all(item["nic"][name] == value for name, value in fields.items()):
            return str(item["revision"])
        return self._client.change("PATCH", f"nics/{uuid}", fields, item["revision"]).revision

    def gone(self, place: str) -> None:
        try:
            self._client.change("DELETE", place, force=True)
        except Problem as refused:
            if refused.kind != "missing":
                raise

    def reports(self, uuid: str) -> dict[str, dict[str, Any]]:
        return {each["node"]: each["report"] for each in self._client.all("reports", nic=uuid)}

    def state(self, uuid: str) -> str:
        """Say how a NIC is that should be nowhere: wanted, or as a node has it; "" where it is not.

        One that is reported as stopped is: an agent that was started since then takes that back when it first compares all.
        """
        running = [report["state"] for report in self.reports(uuid).values() if report["state"] != "stopped"]
        return f"reported as {running[0]}" if running else "wanted" if self.item(uuid) is not None else ""

    def reported(self, node: str) -> dict[str, dict[str, Any]]:
        """Give what a node reports, by NIC."""
        return {each["report"]["nic"]: each["report"] for each in self._client.all("reports", node=node)}
