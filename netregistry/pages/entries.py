"""Tell what a request of the history has changed, with names for what has one today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import keys
from netregistry.model.nic import Nic
from netregistry.model.node import Node
from netregistry.pages.html import moment, shown
from netregistry.pages.order import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from netregistry.view import View

STEPS, FIELDS = 20, 60  #: of one entry, and of one of its steps, at most
TIMES = frozenset(("freed", "joined", "made", "until", "used", "since"))
PAGES = ("nics", "nodes", "networks")  #: kinds that have pages
CLAIMS = ("macs", "addresses")
NONE = "\N{EN DASH}"


class Link(NamedTuple):
    """Something that has a page; "" for the path: it has none. ``virtual``: it is a node of a mock cloud."""

    path: str
    name: str
    virtual: bool = False


class Field(NamedTuple):
    """One field that was changed."""

    name: str
    before: str
    after: str


class Step(NamedTuple):
    """One thing that was changed. ``what``: "made", "changed", "deleted"."""

    kind: str
    of: Link
    what: str
    fields: tuple[Field, ...]


class Done(NamedTuple):
    """One request. ``more``: steps that are not among ``steps``."""

    time: float
    role: str
    who: Link
    origin: str
    action: str
    steps: tuple[Step, ...]
    more: int


def link(view: View, key: str) -> Link:
    """Give what is at a key, by its name; what is there no more has no page."""
    value = view.get(key)
    return Link(f"/{key}", name_of(value), is_virtual(value)) if value is not None else Link("", key.partition("/")[2])


def is_virtual(value: object) -> bool:
    """Tell whether it is a node that is none: nothing really runs there, and every page says so beside its name."""
    return isinstance(value, Node) and value.kind == "virtual"


def done(view: View, entry: Mapping[str, Any]) -> Done:
    """Tell an entry (its JSON)."""
    who = entry["who"]
    by = link(view, keys.node(who["name"])) if who["role"] == "node" else Link("", who["name"])
    changes = entry["changes"]
    if any(keys.kind(each["key"]) == "nics" for each in changes):
        changes = [each for each in changes if keys.kind(each["key"]) not in CLAIMS]  # what a NIC claims is said of the NIC
    steps = tuple(_step(view, each) for each in changes[:STEPS])
    origin = who["origin"] if who["origin"] != "unix" else ""
    return Done(entry["time"], who["role"], by, origin, entry["action"], steps, max(len(changes) - STEPS, 0))


def _step(view: View, change: Mapping[str, Any]) -> Step:
    before, after = ({} if each is None else each for each in (change["before"], change["after"]))
    kind, _, rest = change["key"].partition("/")
    what = "made" if change["before"] is None else "deleted" if change["after"] is None else "changed"
    names = (before, after) if isinstance(before, dict) and isinstance(after, dict) else ({}, {})
    fields = () if what == "deleted" else tuple(_fields(view, *names))[:FIELDS]
    return Step(kind.removesuffix("s"), _of(view, kind, rest, {**names[0], **names[1]}), what, fields)


def _of(view: View, kind: str, rest: str, value: Mapping[str, Any]) -> Link:
    if kind in CLAIMS:
        scope, _, what = rest.partition("/")
        return Link("", f"{what} in {link(view, keys.network(scope)).name}")
    if kind not in PAGES:
        return Link("", rest or kind)
    there = link(view, f"{kind}/{rest}")
    if there.path:
        return there
    known = {name: value[name] for name in ("instance", "index", "name") if isinstance(value.get(name), str | int)}
    return Link(f"/{kind}/{rest}/history", Nic(rest, **known).label if kind == "nics" else str(value.get("name", rest)))


def _fields(view: View, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Field]:
    for name in dict.fromkeys((*after, *before)):
        values = [_value(view, name, each.get(name)) for each in (before, after)]
        if name != "uuid" and values[0] != values[1]:
            yield Field(name, *(each or NONE for each in values))


def _value(view: View, name: str, value: Any) -> str:
    if name in TIMES and isinstance(value, float | int):
        return moment(value)
    if name in ("network", "holder", "last") and isinstance(value, str):
        return link(view, keys.network(value) if name == "network" else keys.nic(value)).name
    return "0" if name == "index" and value == 0 else shown(value)
