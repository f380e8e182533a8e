"""What Ganeti's own files on this node say: who the master is, and, on the master, what instances there are.

The configuration is read only to know whether what is on record here is still true (another node may have been the master meanwhile),
and for `netcommon dns sync --all`. Its form: Ganeti's lib/objects.py and lib/ssconf.py.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from netcommon.dns import guest as guests
from netcommon.dns.guest import Guest
from runtime.errors import HostRefused, NicInvalid

FOLDER = "/var/lib/ganeti"


def is_master(master: str, folder: str) -> bool:
    """Whether the node called ``master`` is the one we run on.

    By name, else by the address that Ganeti has for it, else by the first label of its name: no resolver is asked, which may be down.
    """
    here = os.uname().nodename
    if not master or here == master:
        return bool(master)
    if address := dict(_pairs(f"{folder}/ssconf_node_primary_ips")).get(master, ""):
        return _is_local(address)
    return "." not in here and master.partition(".")[0] == here


def master_name(folder: str) -> str:
    """The master's name by this node's copy of it; "" where this is no node of a cluster."""
    return next((line.strip() for line in _lines(f"{folder}/ssconf_master_node")), "")


def configured(folder: str) -> dict[str, Guest] | None:
    """Every instance of the cluster by name; None where the configuration is not here. Raises HostRefused where it makes no sense."""
    path = f"{folder}/config.data"
    try:
        with open(path, "rb") as stream:
            value: Any = json.load(stream)
    except OSError:
        return None
    except (ValueError, RecursionError):
        raise HostRefused(f"{path} is not JSON") from None
    try:
        cluster, networks = value["cluster"]["cluster_name"], value["networks"]
        made = {}
        for instance in value["instances"].values():
            if one := _guest(instance, cluster, networks):
                made[one.name] = one
        return made
    except (KeyError, TypeError, AttributeError):
        raise HostRefused(f"{path} is not as Ganeti 3 writes it") from None


def _guest(instance: Any, cluster: str, networks: Any) -> Guest | None:
    """None for an instance whose name or addresses cannot be in the DNS: its hook has said so."""
    nics = instance["nics"]
    subnets = [networks.get(nic.get("network"), {}).get("network6") for nic in nics]
    try:
        return guests.make(
            instance["name"],
            cluster,
            tuple(guests.nic(nic.get("ip") or "", nic["mac"], subnet or "", "NIC") for nic, subnet in zip(nics, subnets, strict=True)),
        )
    except NicInvalid:
        return None


def _is_local(address: str) -> bool:
    """Whether an address is one of this machine's: then the way to it leads from itself."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:
        return False


def _pairs(path: str) -> list[tuple[str, str]]:
    return [(words[0], words[1]) for line in _lines(path) if len(words := line.split()) == 2]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20).splitlines()
    except OSError:
        return []
