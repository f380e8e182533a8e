"""What the DNS needs to know of an instance: from the environment of a Ganeti hook, from Ganeti's configuration, from our store."""

from __future__ import annotations

from _socket import AF_INET6
from collections.abc import Mapping
from typing import Any, NamedTuple

from netcommon.dns.names import hostname
from runtime import validate
from runtime.errors import NicInvalid

#: Ganeti's own limit is 8 (MAX_NICS in its _constants.py).
MOST_NICS = 64


class Nic(NamedTuple):
    """One NIC: its address, its MAC and the IPv6 subnet of its network, each "" where there is none."""

    ip: str = ""
    mac: str = ""
    subnet6: str = ""


class Guest(NamedTuple):
    """One instance. Without NICs nothing is wanted of the DNS, so it is also what a removed instance is."""

    name: str
    cluster: str
    nics: tuple[Nic, ...] = ()


class Event(NamedTuple):
    """What a hook reports: the instance as it is now, and the name it had before a rename."""

    guest: Guest
    former: str = ""


def make(name: str, cluster: str, nics: tuple[Nic, ...], variable: str = "INSTANCE_NAME") -> Guest:
    """A guest of validated values. Raises NicInvalid."""
    return Guest(hostname(name, variable), hostname(cluster, "GANETI_CLUSTER"), nics)


def nic(ip: str, mac: str, subnet6: str, variable: str) -> Nic:
    """A NIC of validated values; ``variable`` names it in errors. Raises NicInvalid."""
    return Nic(
        validate.address(ip, variable + "_IP", length=False) if ip else "",
        validate.mac(mac, variable + "_MAC") if mac else "",
        validate.prefix(subnet6, variable + "_NETWORK_SUBNET6", AF_INET6) if subnet6 else "",
    )


def event(environ: Mapping[str, str]) -> Event | None:
    """What a post hook of Ganeti tells of an instance's names and addresses; None where it tells nothing of them. Raises NicInvalid.

    Ganeti's doc/hooks.rst and, for what it leaves out, BuildHooksEnv of cmdlib/instance*.py: what holds after the operation begins with
    GANETI_POST_; a rename gives the old name in INSTANCE_NAME, and the new one in INSTANCE_NEW_NAME; a removal still lists the NICs;
    an export may remove the instance without any other hook (REMOVE_INSTANCE).
    """
    path = environ.get("GANETI_HOOKS_PATH", "")
    name, cluster = environ.get("GANETI_INSTANCE_NAME", ""), environ.get("GANETI_CLUSTER", "")
    if path == "instance-remove" or (path == "instance-export" and environ.get("GANETI_REMOVE_INSTANCE") == "True"):
        return Event(make(name, cluster, (), "GANETI_INSTANCE_NAME"))
    if path in ("instance-add", "instance-modify"):
        return Event(make(name, cluster, _nics(environ), "GANETI_INSTANCE_NAME"))
    if path == "instance-rename":
        new = environ.get("GANETI_POST_INSTANCE_NEW_NAME") or environ.get("GANETI_INSTANCE_NEW_NAME", "")
        guest = make(new, cluster, _nics(environ), "GANETI_INSTANCE_NEW_NAME")
        former = hostname(name, "GANETI_INSTANCE_NAME")
        return Event(guest, former if former != guest.name else "")
    return None


def _nics(environ: Mapping[str, str]) -> tuple[Nic, ...]:
    start = "GANETI_POST_" if "GANETI_POST_INSTANCE_NIC_COUNT" in environ else "GANETI_"
    count = environ.get(start + "INSTANCE_NIC_COUNT", "")
    number = int(count) if count.isascii() and count.isdigit() and len(count) <= 3 else MOST_NICS + 1
    if number > MOST_NICS:
        raise NicInvalid(start + "INSTANCE_NIC_COUNT", count, f"a number from 0 to {MOST_NICS}")
    names = [f"{start}INSTANCE_NIC{index}" for index in range(number)]
    return tuple(
        nic(environ.get(one + "_IP", ""), environ.get(one + "_MAC", ""), environ.get(one + "_NETWORK_SUBNET6", ""), one) for one in names
    )


def load(value: Any) -> Guest:
    """The guest that dump made JSON of. Raises NicInvalid, or KeyError, TypeError, ValueError where it is something else."""
    nics = tuple(nic(str(ip), str(mac), str(subnet6), "NIC") for ip, mac, subnet6 in value["nics"])
    return make(value["name"], value["cluster"], nics)


def dump(guest: Guest) -> dict[str, object]:
    """The guest as JSON."""
    return {"name": guest.name, "cluster": guest.cluster, "nics": [list(one) for one in guest.nics]}
