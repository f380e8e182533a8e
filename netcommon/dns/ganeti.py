"""What Ganeti's own files on this node say: who the master is, and, on the master, what instances there are.

The configuration is read only to know whether what is on record here is still true (another node may have been the master meanwhile),
and for `netcommon dns sync --all`. Its form: Ganeti's lib/objects.py and lib/ssconf.py.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from netcommon.dns import guest as guests
from netcommon.dns.guest import Guest
from runtime.errors import HostRefused, NicInvalid, TryAgain, escaped

FOLDER = "/var/lib/ganeti"

#: Where the daemons listen that run on the master alone, and start only once most nodes have agreed that it is the master.
SOCKETS = "/var/run/ganeti/socket"
MASTERS = ("ganeti-query", "ganeti-master", "ganeti-wconfd")  # pathutils.py of Ganeti 3.0


class Instances(NamedTuple):
    """The instances that a configuration has."""

    guests: Mapping[str, Guest]  #: those whose names and addresses can be in the DNS
    unread: frozenset[str] = frozenset()  #: the names of the others: they are there, and nothing else is known of them
    nameless: int = 0  #: how many there are of which not even the name can be read
    passed_over: tuple[str, ...] = ()  #: what is wrong with those that are not as Ganeti writes them, in words

    def may_have(self, name: str) -> bool:
        """Tell whether an instance of this name is there, or may be."""
        return name in self.guests or name in self.unread or self.nameless > 0


class Certain(NamedTuple):
    """The cluster, by a configuration that can be relied on for what is not in it."""

    cluster: str
    names: frozenset[str]  #: of all instances
    instances: Instances


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


def configured(folder: str) -> Instances | None:
    """Every instance of the cluster; None where the configuration is not here. Raises HostRefused where it makes no sense as a whole."""
    value = _read(folder)
    if value is None:
        return None
    try:
        return _instances(value)
    except (KeyError, TypeError, AttributeError):
        raise HostRefused(f"{folder}/config.data is not as Ganeti 3 writes it") from None


def certain(folder: str, sockets: str) -> Certain:
    """The cluster as it is now: what is not in it is not there. Raises HostRefused or TryAgain where that is not certain.

    A copy of the configuration may be another cluster's, or have been overtaken, on a node that was the master once or that was given a
    backup. So it must agree with what Ganeti writes beside it (lib/ssconf.py): the cluster, its master and the list of its instances;
    and a daemon of the master must run here.
    """
    path, value = f"{folder}/config.data", _read(folder)
    if value is None:
        raise HostRefused(f"{path} cannot be read: which instances there are is not known")
    try:
        cluster, found = value["cluster"]["cluster_name"], _instances(value)
        master = value["nodes"][value["cluster"]["master_node"]]["name"]
    except (KeyError, TypeError, AttributeError):
        raise HostRefused(f"{path} is not as Ganeti 3 writes it") from None
    if not is_master(master, folder):
        raise HostRefused(f"{path} has {master} for the master, and this node is another: nothing is removed by it")
    confirm(cluster, master, folder, sockets)
    listed = frozenset(line.strip().lower() for line in _lines(f"{folder}/ssconf_instance_list") if line.strip())
    names = frozenset((*found.guests, *found.unread))
    if found.nameless and names < listed and len(listed - names) == found.nameless:
        found = found._replace(unread=found.unread | (listed - names), nameless=0)  # these are the ones
        names = listed
    if listed != names or found.nameless or not os.path.exists(f"{folder}/ssconf_instance_list"):
        text = f"{path} and {folder}/ssconf_instance_list differ by {len(listed ^ names)} instances: one of them is of another time"
        raise TryAgain(f"{text}, or a job is at work; nothing is removed by it")
    return Certain(cluster, names, found)


def confirm(cluster: str, master: str, folder: str, sockets: str) -> None:
    """Raise HostRefused where a configuration that names this cluster and master, this node, is not what Ganeti goes by here."""
    path, here = f"{folder}/config.data", next((line.strip() for line in _lines(f"{folder}/ssconf_cluster_name")), "")
    if not here or cluster.lower() != here.lower():
        raise HostRefused(f"{path} is cluster {cluster}'s, and this is a node of {here or 'no cluster'}: nothing is done by it")
    if master != (other := master_name(folder)):
        raise HostRefused(f"{path} has {master} for the master, and {folder}/ssconf_master_node {other or 'nobody'}: nothing is done by it")
    if not any(_answers(f"{sockets}/{name}") for name in MASTERS):
        raise HostRefused(f"no daemon of Ganeti's master answers in {sockets}: another node may be the master; nothing is done")


def _answers(path: str) -> bool:
    """Tell whether a daemon listens there."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            probe.connect(path)
        return True
    except OSError:
        return False


def _read(folder: str) -> Any:
    """The configuration; None where it is not here. Raises HostRefused where it is no JSON."""
    path = f"{folder}/config.data"
    try:
        with open(path, "rb") as stream:
            return json.load(stream)
    except OSError:
        return None
    except (ValueError, RecursionError):
        raise HostRefused(f"{path} is not JSON") from None


def _instances(value: Any) -> Instances:
    """The instances of a configuration. Raises KeyError, TypeError or AttributeError where it is none.

    An instance that is not as Ganeti writes it, or has a NIC that is not, keeps no other from the DNS: nothing of its own is changed.
    """
    cluster, networks = value["cluster"]["cluster_name"], value["networks"]
    made, unread, problems, nameless = dict[str, Guest](), set[str](), list[str](), 0
    for key, instance in value["instances"].items():
        name = instance.get("name") if isinstance(instance, dict) else None
        if not isinstance(name, str) or not name:
            nameless += 1
            problems.append(f"instance {escaped(key)} is not as Ganeti 3 writes it, it has no name: it is passed over")
            continue
        try:
            one = _guest(instance, cluster, networks)
        except (KeyError, TypeError, AttributeError) as error:
            why = f"they have no {error}" if isinstance(error, KeyError) else "they are something else"
            problems.append(f"the NICs of instance {escaped(name)} are not as Ganeti 3 writes them, {why}: it is passed over")
            one = None
        if one is None:
            unread.add(name.lower())
        else:
            made[one.name] = one
    return Instances(made, frozenset(unread), nameless, tuple(problems))


def _guest(instance: Any, cluster: str, networks: Any) -> Guest | None:
    """None for an instance whose name or addresses cannot be in the DNS: its hook has said so. Raises as ``_instances``."""
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
