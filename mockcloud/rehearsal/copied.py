"""Hold a copy of a cluster: what is wanted of its networks, nodes and NICs, where NICs are, what nodes have; and keep it in a folder.

Objects are kept as `netcommon registry export` writes them (netregistry.exchange), of a Ganeti cluster too, so both are validated alike.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry import exchange
from netregistry.exchange import Line
from netregistry.model.codec import Invalid, read
from netregistry.model.network import Network
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped
from runtime.record import LONGEST as LONGEST_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GANETI, REGISTRY = "ganeti", "registry"
CLUSTER, REST, SETTINGS, RECORDS = "cluster.jsonl", "copy.json", "settings", "records.jsonl"  #: files and folder of a copy
FORMAT = "mockcloud-copy"
VERSION = 1  #: of REST
LONGEST = 256 << 20  #: bytes of CLUSTER


class Place(NamedTuple):
    """Where a NIC is. ``node``: its name, "" where nobody says it; ``running``: its guest runs, as far as is known."""

    node: str = ""
    running: bool = True


class Hardware(NamedTuple):
    """Hold what a node says that it has."""

    bridges: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


class SettingsFile(NamedTuple):
    """A settings file as it was copied. ``node``: whose own it is; "": that of all other nodes."""

    node: str
    name: str  #: for messages
    data: bytes


class RecordFile(NamedTuple):
    """A record of a NIC, as a node has it."""

    node: str
    name: str
    data: bytes


class Copy(NamedTuple):
    """A copy of a cluster."""

    origin: str  #: GANETI or REGISTRY
    revision: str  #: EPOCH:REVISION of a registry; "" of Ganeti
    networks: Mapping[str, Network] = {}
    nodes: tuple[Node, ...] = ()
    nics: tuple[Nic, ...] = ()
    places: Mapping[str, Place] = {}  #: by UUID of the NIC
    hardware: Mapping[str, Hardware] = {}  #: by name of the node, of those that have said it
    settings: tuple[SettingsFile, ...] = ()
    records: tuple[RecordFile, ...] = ()
    problems: tuple[str, ...] = ()  #: what of the cluster could not be read

    def place(self, nic: Nic) -> Place:
        return self.places.get(nic.uuid, Place())

    @property
    def names(self) -> tuple[str, ...]:
        """Give the nodes' names, in order."""
        return tuple(sorted(node.name for node in self.nodes))


class _Rest(NamedTuple):
    """Hold what is in REST."""

    schema: str
    version: int
    origin: str
    places: dict[str, list[Any]]
    hardware: dict[str, list[list[str]]]
    settings: list[list[str]]
    problems: list[str]


def lines_of(copy: Copy) -> Iterator[bytes]:
    """Give the objects of a copy as lines of an export."""
    yield exchange.encoded(Line("registry", {"version": exchange.VERSION, "revision": copy.revision}))
    for network in copy.networks.values():
        yield exchange.encoded(Line("network", network))
    for node in copy.nodes:
        yield exchange.encoded(Line("node", node))
    for nic in copy.nics:
        yield exchange.encoded(Line("nic", nic))


def from_lines(data: bytes, origin: str) -> Copy:
    """Read the objects of a copy from an export's lines. Raises Invalid, which names the line."""
    rows = data.splitlines()
    networks: dict[str, Network] = {}
    nodes: dict[str, Node] = {}
    nics: dict[str, Nic] = {}
    by_kind: dict[str, dict[str, Any]] = {"network": networks, "node": nodes, "nic": nics}
    for number, line in exchange.decoded(rows):
        there = by_kind.get(line.kind)
        if there is None:
            continue  # reservations and settings of the registry say nothing of a NIC
        if line.value.uuid in there:
            raise Invalid(f"line {number}", line.value.uuid, f"each {line.kind} once")
        there[line.value.uuid] = line.value
    revision = json.loads(rows[0])["value"].get("revision", "")
    if not isinstance(revision, str) or (revision and not validate.is_revision(revision)):
        raise Invalid("line 1: revision", revision, "EPOCH:REVISION")
    if len({node.name for node in nodes.values()}) != len(nodes):
        raise Invalid("nodes", ", ".join(sorted(node.name for node in nodes.values())), "each name once")
    return Copy(origin, revision, networks, tuple(nodes.values()), tuple(nics.values()))


def keep(copy: Copy, folder: str) -> None:
    """Write a copy to a new folder, whole or not at all. Raises HostRefused."""
    folder = os.path.abspath(folder)
    if os.path.lexists(folder):
        raise HostRefused(f"{escaped(folder)} is there already", "name a new folder, or remove that one first")
    made = ""
    try:
        made = tempfile.mkdtemp(prefix=".mockcloud-", dir=os.path.dirname(folder))
        os.mkdir(f"{made}/{SETTINGS}")
        with open(f"{made}/{CLUSTER}", "wb") as file:
            file.writelines(lines_of(copy))
        with open(f"{made}/{RECORDS}", "w", encoding="ascii") as said:
            said.writelines(json.dumps([each.node, each.name, each.data.decode("latin-1")]) + "\n" for each in copy.records)
        files = [[one.node, one.name, f"{number}.toml"] for number, one in enumerate(copy.settings)]
        for one, (_node, _name, path) in zip(copy.settings, files, strict=True):
            with open(f"{made}/{SETTINGS}/{path}", "wb") as file:
                file.write(one.data)
        places = {uuid: list(place) for uuid, place in copy.places.items()}
        hardware = {node: [list(part) for part in one] for node, one in copy.hardware.items()}
        rest = _Rest(FORMAT, VERSION, copy.origin, places, hardware, files, list(copy.problems))
        with open(f"{made}/{REST}", "w", encoding="ascii") as file:
            json.dump(rest._asdict(), file, indent=1)
        os.rename(made, folder)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise HostRefused(f"cannot write {escaped(folder)}: {error.strerror}") from None
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def kept(folder: str) -> Copy:
    """Read a copy. Raises HostRefused where there is none, Invalid for one that somebody has edited wrongly."""
    rest = _rest(folder)
    copy = from_lines(read_file(f"{folder}/{CLUSTER}"), rest.origin)
    known = {*copy.names}
    settings = []
    for node, name, path in rest.settings:
        if "/" in path or (node and node not in known):
            raise Invalid(f"{REST}: settings", node, "a node of the copy")
        settings.append(SettingsFile(node, name, read_file(f"{folder}/{SETTINGS}/{path}")))
    places = {
        uuid: read(Place, dict(zip(Place._fields, each, strict=True)), f"{REST}: places.{uuid}") for uuid, each in rest.places.items()
    }
    hardware = {
        node: read(Hardware, dict(zip(Hardware._fields, each, strict=True)), f"{REST}: hardware.{node}")
        for node, each in rest.hardware.items()
    }
    records = tuple(_records(read_file(f"{folder}/{RECORDS}")))
    return copy._replace(places=places, hardware=hardware, settings=tuple(settings), records=records, problems=tuple(rest.problems))


def _records(data: bytes) -> Iterator[RecordFile]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            node, name, text = json.loads(line)
            yield RecordFile(str(node), str(name), text.encode("latin-1"))
        except (ValueError, TypeError, AttributeError, RecursionError):
            said = line[:80].decode("latin-1")
            raise Invalid(f"{RECORDS}: line {number}", said, "what mockcloud import has written: import the cluster again") from None


def _rest(folder: str) -> _Rest:
    data = read_file(f"{folder}/{REST}")
    try:
        said = json.loads(data)
        if not isinstance(said, dict) or said.get("schema") != FORMAT:
            raise Invalid(REST, said if not isinstance(said, dict) else said.get("schema"), f"{FORMAT}, as mockcloud import writes it")
        if said.get("version") != VERSION:
            raise Invalid(
                f"{REST}: version", said.get("version"), f"{VERSION}: another version of mockcloud made this copy; import it again"
            )
        found = _Rest(**said)
        triples = all(len(each) == 3 and all(isinstance(part, str) for part in each) for each in found.settings)
        shapes = all(len(each) == 2 for each in found.places.values()) and all(len(each) == 3 for each in found.hardware.values())
        if found.origin not in (GANETI, REGISTRY) or not (triples and shapes):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Invalid(REST, data[:80].decode("latin-1"), "what mockcloud import has written: import the cluster again") from None
    return found


def read_file(path: str, longest: int = LONGEST) -> bytes:
    """Read a file. Raises HostRefused where it cannot be read, or is longer than ``longest`` bytes."""
    try:
        with open(path, "rb") as file:
            data = file.read(longest + 1)
    except OSError as error:
        raise HostRefused(f"cannot read {escaped(path)}: {error.strerror}", "name a file or a folder that can be read") from None
    if len(data) > longest:
        raise HostRefused(f"{escaped(path)} has more than {longest} bytes: it is not read")
    return data


def records_of(node: str, folder: str) -> Iterator[RecordFile]:
    """Read the records in a copy of a node's /run/netcommon, or of its folder nics. Raises HostRefused."""
    where = f"{folder}/nics" if os.path.isdir(f"{folder}/nics") else folder
    try:
        names = sorted(name for name in os.listdir(where) if name.endswith(".json") and not name.startswith("."))
    except OSError as error:
        raise HostRefused(f"cannot read {escaped(where)}: {error.strerror}", "name a copy of the node's /run/netcommon") from None
    for name in names:
        yield RecordFile(node, name, read_file(f"{where}/{name}", 2 * LONGEST_RECORD))


def node_named(copy: Copy, name: str, variable: str) -> str:
    """Give the name of a node of the copy. Raises NicInvalid."""
    if name not in copy.names:
        raise NicInvalid(
            variable, name, f"a node of the copy: {', '.join(copy.names[:5]) or 'it has none'}{' ...' if len(copy.names) > 5 else ''}"
        )
    return name
