"""A Ganeti cluster whose configuration a test changes, and writes as Ganeti does; and one of its nodes as files in a folder."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

CLUSTER = "gnt.example.com"
CLUSTER_UUID = "dddf8c12-f2d8-4718-a35b-7804daf12a3f"
MASTERS = {"node1.example.com": "60c5bd2c-7f0e-4a7c-9d38-1b1cfb1e5b01", "node2.example.com": "7a6d2c3e-98b0-4d52-a1d1-0f3a8f7f8802"}
NETWORKS = tuple(f"{digit * 8}-0000-4000-8000-00000000000e" for digit in "123")
NICS = tuple(f"{number:08x}-2222-4222-8222-222222222222" for number in range(12))


class Cluster:
    """``cluster.document`` is the configuration; every method that changes it counts its serial on."""

    def __init__(self, serial: int = 1) -> None:
        cluster: dict[str, Any] = {"cluster_name": CLUSTER, "uuid": CLUSTER_UUID, "master_node": MASTERS["node1.example.com"]}
        cluster["nicparams"] = {"default": {"mode": "bridged", "link": "br0", "vlan": ""}}
        cluster["hvparams"] = {"kvm": {"nic_type": "paravirtual"}}
        self.document: dict[str, Any] = {
            "version": 3000000,
            "serial_no": serial,
            "cluster": cluster,
            "nodes": {uuid: {"name": name, "uuid": uuid} for name, uuid in MASTERS.items()},
            "nodegroups": {},
            "disks": {},
            "filters": {},
            "networks": {},
            "instances": {},
        }

    def network(self, uuid: str, name: str, subnet: str = "192.0.2.0/24", **more: Any) -> None:
        size = 1 << 32 - int(subnet.rpartition("/")[2])
        made = {"name": name, "uuid": uuid, "network": subnet, "reservations": "0" * size, "ext_reservations": f"1{'0' * (size - 2)}1"}
        self.document["networks"][uuid] = {**made, **more}
        self.changed()

    def nic(self, uuid: str, mac: str = "", instance: str = "web1.example.com", **more: Any) -> None:
        """Let an instance, made if need be, have a NIC more."""
        item = self.instance(instance)
        number = int(uuid[:8] or "0", 16)
        item["nics"].append({"uuid": uuid, "mac": mac or f"aa:00:00:00:00:{number:02x}", "nicparams": {}, **more})
        self.changed()

    def instance(self, name: str) -> dict[str, Any]:
        instances: dict[str, dict[str, Any]] = self.document["instances"]
        for item in instances.values():
            if item["name"] == name:
                return item
        item = {"name": name, "hypervisor": "kvm", "os": "debian", "hvparams": {}, "nics": [], "tags": []}
        instances[f"uuid-of-{name}"] = item
        return item

    def remove(self, uuid: str) -> None:
        """Take a NIC or a network away; an instance without NICs goes too."""
        self.document["networks"].pop(uuid, None)
        for key, item in list(self.document["instances"].items()):
            item["nics"] = [nic for nic in item["nics"] if nic["uuid"] != uuid]
            if not item["nics"]:
                del self.document["instances"][key]
        self.changed()

    def master(self, node: str) -> None:
        """Let another node be the master: gnt-cluster master-failover."""
        self.document["cluster"]["master_node"] = MASTERS[node]
        self.changed()

    def changed(self) -> None:
        self.document["serial_no"] += 1

    @property
    def data(self) -> bytes:
        return json.dumps(self.document).encode()


class GanetiNode:
    """The files of a node in ``folder`` (as /var/lib/ganeti and /var/run/ganeti/socket), and a daemon of the master that listens."""

    def __init__(self, root: Path, name: str = "node1.example.com") -> None:
        self.folder, self.sockets, self.name = root / "var/lib/ganeti", root / "var/run/ganeti/socket", name
        self.folder.mkdir(parents=True)
        self.sockets.mkdir(parents=True)
        self.file = self.folder / "config.data"
        (self.folder / "ssconf_cluster_name").write_text(f"{CLUSTER}\n")
        self._daemon: socket.socket | None = None

    def write(self, cluster: Cluster) -> None:
        """Write the configuration as Ganeti does: each file a new one in the place of the one before."""
        names = {uuid: name for name, uuid in MASTERS.items()}
        self._replace("ssconf_master_node", f"{names[cluster.document['cluster']['master_node']]}\n".encode())
        self._replace("ssconf_node_primary_ips", f"{self.name} 127.0.0.1\n".encode())
        self._replace(self.file.name, cluster.data)

    def _replace(self, name: str, data: bytes) -> None:
        other = self.folder / f"{name}.new"
        other.write_bytes(data)
        os.rename(other, self.folder / name)

    def start(self) -> None:
        """Let the daemon of the master listen."""
        self._daemon = socket.socket(socket.AF_UNIX)
        self._daemon.bind(str(self.sockets / "ganeti-wconfd"))
        self._daemon.listen(64)

    def stop(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
            (self.sockets / "ganeti-wconfd").unlink()
            self._daemon = None
