"""Read what a registry says, which may be newer than this program, or lie: what is unknown is passed over, what cannot be is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.laid import Standing
from netagent.sync.messages import Option, Wanted
from netcommon.options.tags import value_of
from netregistry.model.codec import Invalid, read
from netregistry.model.kinds import FOREVER
from netregistry.model.nic import Report
from netregistry.rules.masters import OF_NODE
from runtime import validate
from runtime.errors import NetcommonError, escaped
from runtime.networks import tags_of
from runtime.registry_wanted import ADDRESSES, ip_of, position_of

if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = frozenset(("enter", "change", "leave", "ready"))
THINGS = frozenset(("nic", "network", "options", "underlay"))
MOST_OPTIONS = 100  #: of one NIC
LONGEST_TEXT = 1024
LONGEST_EPOCH = 64
LONGEST_NOTE = 255  #: bytes
OF_REGISTRY = frozenset(("moved_to", "came", "came_from", "settles"))  #: what of a report is not a node's to say
ENDPOINTS = "endpoints"  #: the field of a report that only a service with an underlay has
TRANSIENT = "transient"  #: the field of a NIC that was found and never defined, so that it goes when it has stopped
ADDRESS = "ip"  #: the field of a NIC's address: of a node's NIC the operator may change it too
UNKNOWN = -1  #: the number of a revision that is not said


class Lie(ValueError):
    """Say that what came cannot be what a registry says."""


class Revision(NamedTuple):
    """EPOCH:NUMBER."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.number}"


class Told(NamedTuple):
    """One line of a stream, its outside checked. ``whole``: the value has all of the thing that a node keeps."""

    event: str
    what: str
    uuid: str
    value: Any
    revision: Revision
    whole: bool = True


class Own(NamedTuple):
    """A wanted NIC that is this node's. ``fields``: what its master says, where this node is that, and its address."""

    master: str
    wanted: Wanted
    fields: dict[str, Any]


def revision_of(text: object) -> Revision:
    """Read EPOCH:NUMBER. Raises Lie."""
    epoch, colon, number = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not (colon and 0 < len(epoch) <= LONGEST_EPOCH and epoch.isascii() and epoch.isprintable() and " " not in epoch):
        raise Lie(f"no revision: {escaped(str(text)[:80])}")
    if not (number.isascii() and number.isdecimal() and len(number) <= 18):
        raise Lie(f"no revision: {escaped(str(text)[:80])}")
    return Revision(epoch, int(number))


def told(said: object) -> Told | None:
    """Read one line; None for one of a sort that this version does not know. Raises Lie."""
    if not isinstance(said, dict):
        raise Lie("a line is no object")
    event, what = said.get("event"), said.get("what", "")
    if not isinstance(event, str) or not isinstance(what, str):
        raise Lie("a line says no event")
    if event not in EVENTS or (event != "ready" and what not in THINGS):
        return None
    revision = revision_of(said.get("revision"))
    if event == "ready":
        return Told(event, "", "", None, revision)
    uuid, value = said.get("uuid"), said.get("value")
    if not isinstance(uuid, str) or not validate.is_uuid(uuid):
        raise Lie(f"no UUID: {escaped(str(uuid)[:80])}")
    if event == "leave":
        return Told(event, what, uuid, None, revision)
    if what == "options":
        beside = said.get("beside")  # an older service does not say it
        if not isinstance(beside, dict | None):
            raise Lie(f"what is said beside the options of NIC {uuid} is no object")
        return Told(event, what, uuid, {**(beside or {}), "options": value}, revision, beside is not None)
    if what == "underlay" and isinstance(value, dict):
        return Told(event, what, uuid, value, revision)  # who is to make it looks what it says
    if not isinstance(value, dict) or value.get("uuid") != uuid:
        raise Lie(f"{what} {uuid} is told with a value that is not its own")
    return Told(event, what, uuid, value, revision)


def report_of(said: Mapping[str, Any]) -> tuple[str, str]:
    """Read of which NIC a report is, and its state. Raises Lie, KeyError, TypeError."""
    uuid, state = said["nic"], said["state"]
    if not (isinstance(uuid, str) and validate.is_uuid(uuid) and isinstance(state, str)):
        raise Lie(f"no report of a NIC: {escaped(str(uuid)[:80])}, {escaped(str(state)[:80])}")
    return uuid, state


def endpoints_of(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Read which endpoints a node has said that a NIC has; none where it cannot be told."""
    found = said.get(ENDPOINTS, ())
    return tuple(str(each) for each in found) if isinstance(found, list) else ()


def standing_of(said: object) -> Standing:
    """Read what a node has said of the underlay, as the registry gives it again; nothing where it cannot be told."""
    try:
        if isinstance(said, dict):
            addresses, arriving = (tuple(str(each) for each in said.get(name, ())) for name in ("addresses", "arriving"))
            return Standing(int(said["generation"]), addresses, str(said.get("prefix", "")), arriving=arriving)
    except (KeyError, TypeError, ValueError):
        pass
    return Standing()


def said_of(said: Mapping[str, Any]) -> Report | None:
    """Read what a node has said of a NIC, as the registry lists it; None for what this version has not said."""
    try:
        return read(Report, {name: value for name, value in said.items() if name not in OF_REGISTRY and name != ENDPOINTS})
    except Invalid:
        return None


def note(text: str) -> str:
    """Give a text as a report can have it: printable, and short."""
    found = "".join(each if each.isprintable() else " " for each in text)
    return found.encode("utf-8", "replace")[:LONGEST_NOTE].decode("utf-8", "ignore")


def wanted_of(line: Told) -> Wanted:
    """Give what is wanted of a NIC: the operator's options, its further addresses as one of them, and its network. Raises Lie."""
    listed, network = line.value.get("options", []), line.value.get("network", "")
    if not isinstance(listed, list) or len(listed) > MOST_OPTIONS:
        raise Lie(f"NIC {line.uuid}: its options are no list of at most {MOST_OPTIONS}")
    if not isinstance(network, str) or (network and not validate.is_uuid(network)):
        raise Lie(f"NIC {line.uuid}: no network's UUID")
    found = tuple(_option(line.uuid, each) for each in listed)
    if len({each.name for each in found}) != len(found):
        raise Lie(f"NIC {line.uuid}: an option twice")
    more = line.value.get("addresses", [])
    if not (isinstance(more, list) and len(more) <= MOST_OPTIONS and all(isinstance(each, str) for each in more)):
        raise Lie(f"NIC {line.uuid}: its addresses are no list of at most {MOST_OPTIONS}")
    if more and all(each.name != ADDRESSES for each in found):
        found = (*found, Option(ADDRESSES, ",".join(more)))
    try:
        tags, position, ip = tags_of(line.value), position_of(line.value), ip_of(line.value)
    except NetcommonError as error:
        raise Lie(f"NIC {line.uuid}: {error}") from None
    return Wanted(str(line.revision), found, network, tags, position, ip)


def _option(uuid: str, said: object) -> Option:
    if not isinstance(said, dict):
        raise Lie(f"NIC {uuid}: an option is no object")
    name, value, until = said.get("name"), said.get("value"), said.get("until", 0.0)
    if not (isinstance(name, str) and isinstance(value, str) and name and len(name) + len(value) <= LONGEST_TEXT + 255):
        raise Lie(f"NIC {uuid}: an option without a name or a value")
    if type(until) not in (int, float) or not 0 <= until <= FOREVER:
        raise Lie(f"NIC {uuid}: {escaped(name)} ends at no time")
    return Option(name, value, float(until))


def own_of(line: Told, node: str) -> Own:
    """Give a NIC of this node as it is wanted. Raises Lie."""
    master = line.value.get("master", "registry")
    if not isinstance(master, str):
        raise Lie(f"NIC {line.uuid}: no master")
    names = sorted((*OF_NODE, ADDRESS)) if master == f"node:{node}" else ()
    fields = {name: line.value[name] for name in names if name in line.value}
    return Own(master, wanted_of(line), fields)


def unusable(wanted: Wanted) -> str:
    """Say why options cannot be set by this version, "" where they can: a newer registry may have others."""
    for each in wanted.options:
        try:
            value_of(each.name, each.value)
        except NetcommonError as error:
            return str(error)
    return ""


def refusals(*parts: Mapping[str, str]) -> str:
    """Name what is refused, and why; "" where nothing is, as mostly: this is asked for at every turn."""
    if not any(parts):
        return ""
    refused = dict[str, str]()
    for part in parts:
        refused |= part
    shown = "; ".join(f"{uuid}: {why}" for uuid, why in sorted(refused.items())[:5])
    return shown + (f" and {len(refused) - 5} more" if len(refused) > 5 else "")
