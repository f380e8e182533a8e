"""Read what is kept on a node of what a registry, or somebody here, wants of a NIC: as far as it is plain, which is nearly always.

This is all that a cold hook loads of it. What ends by itself or is under way is left to runtime.wanted, and so is what is damaged or a
newer version's.
"""

from __future__ import annotations

import os
from _socket import AF_INET, AF_INET6

from runtime import validate
from runtime.environment import is_twin
from runtime.errors import HostRefused, NicInvalid, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import Decoder
from runtime.nic import LOCAL, REGISTRY, Changed, NetworkWanted
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime.nic import Nic
    from runtime.paths import Paths

SCHEMA = 2  #: of a NIC's file (runtime.wanted)
FIELDS = ("local", "registry", "revision", "network", "tags", "position", "ip")  #: beside "schema" and "pending"
LONGEST = 1 << 20  #: bytes of such a file
HIGHEST_POSITION = 65535  #: of a NIC in its instance
ENDS = "ends"  #: the link that tells when the first option ends

NETWORKS = "networks"  #: the folder of networks (runtime.networks), within that of NICs
NETWORK_SCHEMA = 1  #: of a network's file
LONGEST_NETWORK = 1 << 16  #: bytes of it
MOST = 16  #: resolvers, domains, routes
LOWEST_MTU, HIGHEST_MTU = 68, 65535  #: bytes (RFC 791)
LONGEST_SEARCH = 255  #: bytes of all domains together: an option of DHCPv4 has a length of one byte (RFC 2132, 2)
HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")  #: what a domain's labels are made of

#: What is wrong with JSON of another shape than ours raises one of these.
SHAPE = (NicInvalid, ValueError, AttributeError, LookupError, TypeError, RecursionError)


# -- of a NIC


class Plain(NamedTuple):
    """The values kept of a NIC where all of them are in force, for good. ``wanted``: weakest first."""

    wanted: tuple[Changed, ...] = ()
    revision: str = ""
    network: str = ""

    @property
    def local(self) -> bool:
        """Tell whether anything of it was set on this node."""
        return any(each.source == LOCAL for each in self.wanted)


def plain(paths: Paths, uuid: str) -> Plain | None:
    """Read what is kept of a NIC; None where it is not plain, or cannot be read."""
    try:
        data = _read(paths.wanted, uuid, LONGEST)
    except (RecordUnreadable, HostRefused):
        return None
    return Plain() if data is None else plain_of(data)


def _read(path: str, uuid: str, limit: int) -> bytes | None:
    folder = Folder.find(path)
    if folder is None:
        return None
    with folder:
        return folder.read(f"{uuid}.json", limit)


def plain_of(data: bytes) -> Plain | None:
    """Read the bytes of a NIC's file; None where they are anything but plain."""
    try:
        stored = Decoder().whole(data.decode("ascii"))
        local, registry, revision, network, tags, position, ip, schema = (stored.pop(name) for name in (*FIELDS, "schema"))
        if stored != {"pending": None} or type(schema) is not int or schema != SCHEMA:
            return None
        wanted = [Changed(name, _lasting(name, each), REGISTRY) for name, each in registry.items()]
        wanted += [Changed(name, _lasting(name, each)) for name, each in local.items()]
        if (revision and not validate.is_revision(revision)) or (network and not validate.is_uuid(network)):
            return None
        if not are_tags(tags) or not is_position(position) or not is_ip(ip):
            return None
        return Plain(tuple(wanted), revision + "", network + "")
    except SHAPE:
        return None


def _lasting(name: str, entry: Mapping[str, Any]) -> str:
    """Give the value of an option that is set for good. Raises ValueError, TypeError or KeyError for what is anything else."""
    if len(entry) != 3 or entry["end"] is not None or entry["then"] is not None or type(entry["value"]) is not str or not is_option(name):
        raise ValueError
    value: str = entry["value"]
    return value


def is_option(name: str) -> bool:
    """Tell whether an option may be called so."""
    return bool(name) and name.isascii() and name.replace("_", "").isalnum()


def of_json(tags: Any) -> tuple[str, ...] | None:
    """Give tags as they are kept in memory."""
    return None if tags is None else (*tags,)


def are_tags(value: object) -> bool:
    """Tell whether this is a list of tags; None is one that nobody has said."""
    return value is None or (type(value) is list and validate.tags(" ".join(value)) == (*value,))


def is_position(value: object) -> bool:
    """Tell whether this is a NIC's position in its instance; None is one that nobody has said."""
    return value is None or (type(value) is int and 0 <= value <= HIGHEST_POSITION)


def is_ip(value: object) -> bool:
    """Tell whether this is the text of an address; "" is none."""
    return value == "" or (type(value) is str and validate.address(value, length=False) == value)


def completed(paths: Paths, nic: Nic) -> Nic | None:
    """Give the NIC with what is kept of it and of its network; None where that is not plain, or cannot be read."""
    found = None if is_twin(nic) else plain(paths, nic.uuid)
    if found is None:
        return None
    told, uuid = None, nic.network.uuid or found.network
    if uuid:
        try:
            data = _read(f"{paths.wanted}/{NETWORKS}", uuid, LONGEST_NETWORK)
        except (RecordUnreadable, HostRefused):
            return None
        told = network_of(data, uuid) if data is not None else None
        if told is None and data is not None:
            return None
    return nic._replace(wanted=found.wanted, revision=found.revision, told=told)


def none_over(paths: Paths, boot: str, monotonic: float, wall: float) -> bool:
    """Tell that no option has ended at the time of both clocks; False where runtime.wanted has to look."""
    try:
        of_boot, *times = os.readlink(f"{paths.wanted}/{ENDS}").split(" ")
        first, first_wall = map(float, times)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    good = bool(of_boot) and 0 <= first <= 1e15 and 0 <= first_wall <= 1e15  # NaN is not
    return good and (monotonic < first if boot == of_boot else wall < first_wall)


# -- of a network


def document(network: NetworkWanted) -> dict[str, object]:
    """Give the network as JSON has it."""
    return {**network._asdict(), "routes": [{"prefix": prefix, "via": via} for prefix, via in network.routes]}


def network_of(data: bytes, uuid: str) -> NetworkWanted | None:
    """Read the bytes of a network's file; None where they are not as this version writes them."""
    try:
        stored = Decoder().whole(data.decode("ascii"))
        if type(schema := stored.pop("schema")) is not int or schema != NETWORK_SCHEMA or stored["uuid"] != uuid:
            return None
        return told(stored)
    except SHAPE:
        return None


def told(stored: Mapping[str, Any]) -> NetworkWanted | None:
    """Give the network of which ``document`` has made this; None where it has not: runtime.networks says what is wrong."""
    try:
        tags = stored["tags"]
        lists = resolvers, search, routes = stored["resolvers"], stored["search"], [(one["prefix"], one["via"]) for one in stored["routes"]]
        found = NetworkWanted(**{**stored, "resolvers": (*resolvers,), "search": (*search,), "routes": (*routes,), "tags": of_json(tags)})
        ipv4 = [*filter(None, [found.gateway]), *(via for _prefix, via in routes)]
        good = (
            type(resolvers) is type(search) is list
            and type(found.gateway) is type(found.gateway6) is str
            and are_tags(tags)
            and all(len(set(each)) == len(each) <= MOST for each in (*lists, [prefix for prefix, _via in routes]))
            and validate.uuid(found.uuid) == found.uuid
            and validate.is_revision(found.revision)
            and validate.name(found.name) == found.name
            and all(validate.address(text, family=AF_INET, length=False) == text for text in ipv4)
            and (not found.gateway6 or validate.address(found.gateway6, family=AF_INET6, length=False) == found.gateway6)
            and all(validate.address(text, length=False) == text for text in resolvers)
            and all(validate.prefix(prefix, "routes", AF_INET) == prefix for prefix, _via in routes)
            and all(HOST.issuperset(one) and one[0] != "-" != one[-1] and len(one) < 64 for one in ".".join(search).split(".") if search)
            and sum(len(one) + 2 for one in search) <= LONGEST_SEARCH
            and (found.mtu == 0 or LOWEST_MTU <= found.mtu <= HIGHEST_MTU)
            and type(found.mtu) is int
        )
        return found if good else None
    except SHAPE:
        return None
