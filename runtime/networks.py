"""Keep what a registry says of networks: /var/lib/netcommon/wanted/networks/<uuid>.json. Hooks read it by runtime.kept.

It lies in the folder of what is wanted of NICs (runtime.wanted): where that is not there, nobody has to look for it.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6

from runtime import kept, validate
from runtime.errors import NicInvalid, RecordTooNew, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned
from runtime.kept import HIGHEST_MTU, HOST, LONGEST_NETWORK, LONGEST_SEARCH, LOWEST_MTU, MOST, NETWORK_SCHEMA, NETWORKS, document
from runtime.nic import NetworkWanted
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from runtime.paths import Paths

MOST_TAGS = 100
GANETI = "ganeti:"  #: what its master's name begins with, of what a Ganeti cluster has


def network_of(uuid: str, revision: str, said: Mapping[str, Any]) -> NetworkWanted:
    """Give what a registry says of a network, of its JSON; fields that guests are not told are not looked at. Raises NicInvalid."""
    if not validate.is_revision(revision):
        raise NicInvalid("revision", revision, "EPOCH:REVISION")
    mtu = said.get("mtu", 0)
    if type(mtu) is not int or (mtu and not LOWEST_MTU <= mtu <= HIGHEST_MTU):
        raise NicInvalid("mtu", str(mtu)[:20], f"0, or {LOWEST_MTU} to {HIGHEST_MTU} bytes")
    routes = _list(said, "routes", _route)
    if len({prefix for prefix, _via in routes}) != len(routes):
        raise NicInvalid("routes", "a prefix twice", "each prefix once")
    search = _list(said, "search", lambda each: _domain(_text(each, "search")))
    if sum(len(each) + 2 for each in search) > LONGEST_SEARCH:
        raise NicInvalid("search", " ".join(search)[:80], f"domains of {LONGEST_SEARCH} characters together")
    return NetworkWanted(
        validate.uuid(uuid, "network"),
        revision,
        validate.name(_text(said.get("name", ""), "name"), "name"),
        _gateway(said, "gateway", AF_INET),
        _gateway(said, "gateway6", AF_INET6),
        _list(said, "resolvers", lambda each: validate.address(_text(each, "resolvers"), "resolvers", length=False)),
        search,
        routes,
        mtu,
        tags_of(said),
    )


def tags_of(said: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Give the tags of a NIC or network, of its JSON; None but of one of a Ganeti cluster. Raises NicInvalid.

    The others' are what is said on the node that defines them, which is told the registry and not by it.
    """
    return _tags(said.get("tags") if str(said.get("master")).startswith(GANETI) else None)


def stored_of(uuid: str, revision: str, stored: Mapping[str, Any]) -> NetworkWanted:
    """Give the network of which ``document`` has made this. Raises NicInvalid."""
    return network_of(uuid, revision, stored)._replace(tags=_tags(stored.get("tags")))


def _tags(tags: Any) -> tuple[str, ...] | None:
    try:
        good = kept.are_tags(tags)
    except TypeError:
        good = False
    if not good or len(tags or ()) > MOST_TAGS:
        raise NicInvalid("tags", str(tags)[:80], f"a list of at most {MOST_TAGS} tags")
    return kept.of_json(tags)


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise NicInvalid(field, str(value)[:80], "a text")
    return value


def _gateway(said: Mapping[str, Any], field: str, family: int) -> str:
    text = _text(said.get(field, ""), field)
    return validate.address(text, field, family, length=False) if text else ""


def _list(said: Mapping[str, Any], field: str, each: Callable[[object], Any]) -> tuple[Any, ...]:
    value = said.get(field, [])
    found = tuple(map(each, value)) if isinstance(value, list) and len(value) <= MOST else None
    if found is None or len(set(found)) != len(found):
        raise NicInvalid(field, str(value)[:80], f"a list of at most {MOST}, each once")
    return found


def _route(value: object) -> tuple[str, str]:
    if not isinstance(value, dict):
        raise NicInvalid("routes", str(value)[:80], "an object with a prefix and a router")
    prefix, via = (_text(value.get(name), "routes") for name in ("prefix", "via"))
    return validate.prefix(prefix, "routes", AF_INET), validate.address(via, "routes", AF_INET, length=False)


def _domain(text: str) -> str:
    """Give a domain (RFC 1035, 2.3.1)."""
    labels = text.split(".")
    good = len(text) <= 240 and all(0 < len(label) <= 63 and HOST.issuperset(label) for label in labels)
    if not good or any(label[0] == "-" or label[-1] == "-" for label in labels):
        raise NicInvalid("search", text[:80], 'a domain such as "example.com", in lower case')
    return text


def to_json(network: NetworkWanted) -> bytes:
    """The file's bytes, ASCII."""
    return dumps({"schema": NETWORK_SCHEMA, **document(network)}).encode("ascii") + b"\n"


def from_json(data: bytes, uuid: str) -> NetworkWanted:
    """Read the bytes of the file of a network. Raises RecordTooNew for a newer version's, RecordUnreadable for whatever else is none."""
    stored = versioned(data, NETWORK_SCHEMA)
    if set(stored) != {"schema", *NetworkWanted._fields} or stored["schema"] != NETWORK_SCHEMA or stored["uuid"] != uuid:
        raise RecordUnreadable("not the fields of its schema, or another network's")
    try:
        return stored_of(uuid, _text(stored["revision"], "revision"), stored)
    except NicInvalid as error:
        raise RecordUnreadable(str(error)) from None


# -- the folder


def read(paths: Paths, uuid: str, problems: list[str], readonly: bool = False) -> NetworkWanted | None:
    """Read what a registry has said of the network; None where it has said nothing.

    A file that is damaged goes to quarantine (not if ``readonly``), and one of a newer version stays: ``problems`` says so, and nothing
    counts as said.

    Raises HostRefused where the folder cannot be read, or others could have written there.
    """
    folder = Folder.find(f"{paths.wanted}/{NETWORKS}") if validate.is_uuid(uuid) else None
    if folder is None:
        return None
    with folder:
        name = f"{uuid}.json"
        try:
            data = folder.read(name, LONGEST_NETWORK)
            return None if data is None else from_json(data, uuid)
        except RecordTooNew as error:
            problems.append(f"{folder.path}/{name} is left alone: {error}")
        except RecordUnreadable as error:
            problems.append(folder.damaged(name, str(error), "the network's guests are told what the settings say", readonly))
        return None


def write(paths: Paths, network: NetworkWanted) -> bool:
    """Write it, to outlive a power failure; True if it is other than before.

    Raises HostRefused, and RecordTooNew where a newer version has written the file.
    """
    with Folder.make(paths.wanted, sync=True), Folder.make(f"{paths.wanted}/{NETWORKS}", sync=True) as folder:
        name = f"{validate.uuid(network.uuid, 'network')}.json"
        try:
            data = folder.read(name, LONGEST_NETWORK)
            if data is not None and from_json(data, network.uuid) == network:
                return False
        except RecordUnreadable:
            pass  # it is replaced
        folder.write(name, to_json(network), sync=True)
        return True


def remove(paths: Paths, uuid: str) -> bool:
    """Forget what was said of the network; True if there was anything. Raises HostRefused."""
    folder = Folder.find(f"{paths.wanted}/{NETWORKS}")
    if folder is None:
        return False
    with folder:
        gone = folder.remove(f"{validate.uuid(uuid, 'network')}.json")
        if gone:
            folder.flush()
        return gone


def uuids(paths: Paths) -> list[str]:
    """List the networks of which anything was said, without a look at what. Raises HostRefused."""
    folder = Folder.find(f"{paths.wanted}/{NETWORKS}")
    if folder is None:
        return []
    with folder:
        return [name[:-5] for name in folder.names() if name.endswith(".json") and validate.is_uuid(name[:-5])]
