"""Keep what a registry says of this node's underlay: /var/lib/netcommon/underlay.json, which custom scripts' environment is read from.

The file has the last known value whole, and outlives a boot: the node's prefix and endpoints are there while the registry is away.
"""

from __future__ import annotations

from _socket import AF_INET6, inet_ntop, inet_pton

from runtime import validate
from runtime.errors import NicInvalid, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from runtime.paths import Paths

SCHEMA = 1
NAME = "underlay.json"
LONGEST = 1 << 24  #: bytes of the file
MOST = 20_000  #: endpoints of a node
LENGTH = 64  #: of a node's prefix
RESERVED = 1 << 16  #: the lowest number of an endpoint's address in the prefix
LONGEST_NAME = 253  #: characters of a host name (RFC 1123, 2.1; RFC 1035, 2.3.4)


class Endpoint(NamedTuple):
    """An address on this node for what speaks on the host's side for a guest.

    ``name``: by which it is found, "" where none leads to it; ``migrating``: its guest is on its way here; ``state``: the registry's word.
    """

    cluster: str
    instance: str
    kind: str
    address: str
    name: str = ""
    migrating: bool = False
    state: str = ""


class Underlay(NamedTuple):
    """Hold what a registry has said of a node. ``revision``: EPOCH:REVISION; ``generation``: of the node's prefix, which reports name."""

    node: str
    revision: str
    generation: int
    prefix: str
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def own(self) -> str:
        """Give the node's own address, the first of its prefix."""
        return _address(self.prefix, 1)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Give all addresses that the node is to have, its own first."""
        return (self.own, *(each.address for each in self.endpoints))


def underlay_of(node: str, revision: str, said: Mapping[str, Any]) -> Underlay:
    """Give what a registry says, of its JSON; fields that this version does not know are not looked at. Raises NicInvalid."""
    if not validate.is_revision(revision):
        raise NicInvalid("revision", revision, "EPOCH:REVISION")
    generation = said.get("generation")
    if type(generation) is not int or not 0 <= generation < 1 << 53:
        raise NicInvalid("generation", generation, "a whole number")
    prefix = _prefix(_text(said, "prefix"))
    listed = said.get("endpoints", [])
    if not isinstance(listed, list) or len(listed) > MOST:
        raise NicInvalid("endpoints", str(listed)[:80], f"a list of at most {MOST}")
    endpoints = tuple(_endpoint(each, prefix) for each in listed)
    if len({each.address for each in endpoints}) != len(endpoints):
        raise NicInvalid("endpoints", prefix, "each address once")
    return Underlay(validate.uuid(node, "node"), revision, generation, prefix, endpoints)


def _prefix(text: str) -> str:
    """Give a node's prefix (RFC 4193, RFC 3587). Raises NicInvalid."""
    found = validate.prefix(text, "prefix", AF_INET6)
    host, _, length = found.partition("/")
    first = inet_pton(AF_INET6, host)[0]
    if length != str(LENGTH) or not (first & 0xFE == 0xFC or first & 0xE0 == 0x20):
        raise NicInvalid("prefix", text, f"a /{LENGTH} of fc00::/7 or 2000::/3")
    return found


def _endpoint(said: object, prefix: str) -> Endpoint:
    if not isinstance(said, dict):
        raise NicInvalid("endpoints", str(said)[:80], "objects")
    kind, name, migrating = _text(said, "kind"), _text(said, "name", ""), said.get("migrating", False)
    if not validate.is_label(kind):
        raise NicInvalid("kind", kind[:80], "a label of a host name in lower case, such as console")
    if name and not _is_host(name):
        raise NicInvalid("name", name[:80], "a host name, or nothing")
    if type(migrating) is not bool:
        raise NicInvalid("migrating", str(migrating)[:80], "true or false")
    address = validate.address(_text(said, "address"), "address", AF_INET6, length=False)
    packed, of_node = inet_pton(AF_INET6, address), inet_pton(AF_INET6, prefix.partition("/")[0])
    if packed[:8] != of_node[:8] or int.from_bytes(packed[8:], "big") < RESERVED:
        raise NicInvalid("address", address, f"one of {prefix}, from {_address(prefix, RESERVED)} on")
    cluster = validate.name(_text(said, "cluster", ""), "cluster")
    instance = validate.instance(_text(said, "instance"), "instance")
    state = _text(said, "state", "")
    if state and not validate.is_label(state):
        raise NicInvalid("state", state[:80], "a word")
    return Endpoint(cluster, instance, kind, address, name, migrating, state)


def _address(prefix: str, number: int) -> str:
    """Give the address of a number in a prefix of a node."""
    packed = inet_pton(AF_INET6, prefix.partition("/")[0])
    return inet_ntop(AF_INET6, packed[:8] + number.to_bytes(8, "big"))


def _text(said: Mapping[str, Any], field: str, default: str | None = None) -> str:
    value = said.get(field, default)
    if not isinstance(value, str):
        raise NicInvalid(field, str(value)[:80], "a text")
    return value


def _is_host(name: str) -> bool:
    labels = name.lower().split(".")
    return len(name) <= LONGEST_NAME and all(map(validate.is_label, labels))


def to_json(underlay: Underlay) -> bytes:
    """Give the file's bytes, ASCII."""
    endpoints = [each._asdict() for each in underlay.endpoints]
    return dumps({"schema": SCHEMA, **underlay._asdict(), "endpoints": endpoints}).encode("ascii") + b"\n"


def from_json(data: bytes) -> Underlay:
    """Read the file's bytes. Raises RecordTooNew for a newer version's, RecordUnreadable for whatever else is none."""
    stored = versioned(data, SCHEMA)
    try:
        return underlay_of(_text(stored, "node"), _text(stored, "revision"), stored)
    except NicInvalid as error:
        raise RecordUnreadable(str(error)) from None


def read(paths: Paths) -> Underlay | None:
    """Read what was last known; None where nothing was.

    Raises HostRefused where the folder or the file cannot be read, RecordTooNew and RecordUnreadable for what is no such file.
    """
    folder = Folder.find(paths.lib)
    if folder is None:
        return None
    with folder:
        data = folder.read(NAME, LONGEST)
        return None if data is None else from_json(data)


def write(paths: Paths, underlay: Underlay) -> bool:
    """Write it, to outlive a power failure; True if it is other than before. Raises HostRefused, and RecordTooNew for a newer version's."""
    with Folder.make(paths.lib, sync=True) as folder:
        try:
            data = folder.read(NAME, LONGEST)
            if data is not None and from_json(data) == underlay:
                return False
        except RecordUnreadable:
            pass  # it is replaced
        folder.write(NAME, to_json(underlay), sync=True)
        return True


def remove(paths: Paths) -> bool:
    """Forget what was known; True if anything was. Raises HostRefused."""
    return Folder.forget(paths.lib, NAME)
