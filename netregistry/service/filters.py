"""Define by what lists are filtered: each filter with what its value may be, and how it narrows what is looked at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from netregistry.model import keys, kinds
from netregistry.model.codec import Between, Invalid, Text, below, describe, read
from netregistry.model.history import Role
from netregistry.model.nic import Mode
from netregistry.service.states import States
from netregistry.state import State
from netregistry.view import View
from runtime import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MOST = 1000  #: items of one page
USUAL = 100


def _cursor(text: str) -> str:
    if not (text.isascii() and text.isprintable() and len(text) <= 600):
        raise ValueError
    return text


Limit = Annotated[int, Between(1, MOST)]
Cursor = Annotated[str, Text(_cursor, 'what "next" of the part before said')]


def _some(rule: Callable[[str], str]) -> Callable[[str], str]:
    """Take no empty text for what an object may be without."""

    def read_it(text: str) -> str:
        if not text:
            raise ValueError
        return rule(text)

    return read_it


SomeMac = Annotated[str, Text(_some(partial(validate.mac, variable="")), "a unicast MAC address such as aa:00:00:12:34:56")]
SomeInstance = Annotated[str, Text(_some(partial(validate.instance, variable="")), "an instance's name: 1 to 255 printable bytes, no '/'")]


class Param(NamedTuple):
    """One parameter of a query: its name, what its value may be, and what it means."""

    name: str
    hint: Any
    about: str
    required: bool = False

    def schema(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "in": "query",
            "description": self.about,
            "required": self.required,
            "schema": describe(self.hint),
        }


class Sight(NamedTuple):
    """What a filter looks at."""

    view: View
    states: States


class Filter(NamedTuple):
    """A parameter that an object must fit.

    ``group``: the keys that alone can fit, found without a look at each; ``exact``: those of them that are of the kind do fit.
    """

    name: str
    hint: Any
    about: str
    fits: Callable[[Sight, str, Any, Any], bool]
    group: Callable[[Sight, Any], Iterable[str]] | None = None
    exact: bool = False

    @property
    def param(self) -> Param:
        return Param(self.name, self.hint, self.about)


def _same(name: str, hint: Any, about: str) -> Filter:
    return Filter(name, hint, about, lambda _sight, _key, each, value: getattr(each, name) == value)


def _on(sight: Sight, node: str) -> Iterable[str]:
    return [keys.nic(key.rpartition("/")[2]) for key in sight.view.members("on", node)]


def _scopes(view: View) -> Iterator[str]:
    """Give every scope that a MAC or an address may be claimed in."""
    yield kinds.NO_SCOPE
    for key in view.all("networks"):
        yield key.partition("/")[2]
    for (cluster,) in view.groups("cluster"):
        yield cluster


def _claiming(kind: str) -> Callable[[Sight, Any], Iterable[str]]:
    """Find NICs by what they claim, without looking at each."""

    def found(sight: Sight, value: Any) -> Iterable[str]:
        claims = (sight.view.claim(f"{kind}/{scope}/{value}") for scope in _scopes(sight.view))
        return {keys.nic(uuid) for claim in claims if claim is not None for uuid in (claim.holder, *claim.contenders) if uuid}

    return found


def _of_instance(sight: Sight, instance: str) -> Iterable[str]:
    clusters = ("", *(cluster for (cluster,) in sight.view.groups("cluster")))
    return [key for cluster in clusters for key in sight.view.members("instance", cluster, instance)]


NICS = (
    Filter(
        "network",
        kinds.Uuid,
        "those in this network",
        lambda _sight, _key, nic, value: nic.network == value,
        lambda sight, value: sight.view.members("network", value),
        exact=True,
    ),
    Filter(
        "node",
        kinds.Uuid,
        "those that this node has reported",
        lambda sight, _key, nic, value: sight.view.get(keys.seen(value, nic.uuid)) is not None,
        _on,
    ),
    Filter(
        "cluster",
        kinds.Cluster,
        "those of this cluster",
        lambda _sight, _key, nic, value: nic.cluster == value,
        lambda sight, value: sight.view.members("cluster", value) if value else sight.view.all("nics"),
    ),
    Filter(
        "instance",
        SomeInstance,
        "those of this instance",
        lambda _sight, _key, nic, value: nic.instance == value,
        _of_instance,
    ),
    _same("name", kinds.NameOrNone, "those of this name"),
    _same("owner", kinds.NameOrNone, "those of this owner"),
    _same("belongs", Literal["instance", "server", "other"], "to what they belong"),
    _same("master", kinds.Master, "those that this master decides"),
    Filter("mac", SomeMac, "those with this MAC", lambda _sight, _key, nic, value: nic.mac == value, _claiming("macs")),
    _same("mode", Mode, "those of this mode"),
    _same("primary", bool, "those that are primary, or not"),
    _same("reserved", bool, "those whose addresses stay reserved, or not"),
    Filter(
        "address",
        kinds.Address,
        "those with this address",
        lambda _sight, _key, nic, value: value in nic.all_addresses,
        _claiming("addresses"),
    ),
    Filter("tag", kinds.Tag, "those with this tag", lambda _sight, _key, nic, value: value in nic.tags),
    Filter(
        "state",
        State,
        "those in this state",
        lambda sight, key, _nic, value: sight.states.of(key) == value,
        lambda sight, value: sight.states.members(value),
        exact=True,
    ),
)
NETWORKS = (
    _same("name", kinds.Name, "the one of this name"),
    _same("cluster", kinds.Cluster, "those of this cluster"),
    _same("master", kinds.Master, "those that this master decides"),
    _same("tag", kinds.TagOrNone, "those for which a node must provide this tag"),
    Filter("owner", kinds.Name, "those for NICs of this owner alone", lambda _sight, _key, each, value: value in each.owners),
    Filter("address", kinds.Address, "those whose subnet holds this address", lambda _sight, _key, each, value: each.holds(value)),
)
NODES = (
    _same("name", kinds.Name, "the one of this name"),
    _same("cluster", kinds.Cluster, "those of this cluster"),
    _same("kind", Literal["physical", "virtual"], "those that are physical, or virtual"),
    Filter(
        "alive",
        bool,
        "those that are alive, or not",
        lambda sight, _key, node, value: (sight.view.alive(node.uuid) is not None) == value,
    ),
)
REPORTS = (
    Filter(
        "node",
        kinds.Uuid,
        "those of this node",
        lambda _sight, key, _report, value: key.split("/")[1] == value,
        lambda sight, value: sight.view.members("on", value),
    ),
    Filter(
        "nic",
        kinds.Uuid,
        "those of this NIC",
        lambda _sight, _key, report, value: report.nic == value,
        lambda sight, value: sight.view.members("seen", value),
    ),
    _same("state", Literal["running", "stopped", "incoming"], "those that say so"),
)
CLAIMS = (
    Filter("kind", Literal["addresses", "macs"], "addresses or MACs", lambda _sight, key, _each, value: keys.kind(key) == value),
    Filter("scope", kinds.Name, "those of this scope", lambda _sight, key, _each, value: key.split("/")[1] == value),
    _same("standing", Literal["held", "reserved", "quarantined", "free"], "how they stand"),
    _same("holder", kinds.Uuid, "those that this NIC has"),
)
ENDPOINTS = (
    Filter(
        "node",
        kinds.Uuid,
        "those that have one on this node",
        lambda _sight, _key, placement, value: value in placement.nodes,
        lambda sight, value: sight.view.members("placed", value),
        exact=True,
    ),
    _same("instance", SomeInstance, "those of instances of this name"),
    _same("cluster", kinds.Cluster, "those of this cluster"),
    Filter(
        "state",
        Literal["wanted", "there", "retired", "leaving"],
        "those that have one in this state",
        lambda _sight, _key, placement, value: any(each.state == value for each in placement.endpoints),
    ),
)
NAMES = (
    Filter(
        "name",
        kinds.Domain,
        "this one",
        lambda _sight, key, _name, value: key.split("/")[2] == value,
        lambda sight, value: [keys.name(zone.partition("/")[2], value) for zone in sight.view.all("zones")],
    ),
    _same("node", kinds.Uuid, "those that lead to this node"),
    _same("instance", SomeInstance, "those of instances of this name"),
)
HISTORY = (
    Param("target", kinds.Uuid, "requests that changed this network, NIC or node"),
    Param("action", kinds.Name, 'requests of this action, such as "nic.set"'),
    Param("role", Role, "requests of this role"),
    Param("by", kinds.NameOrNone, "requests of somebody of this name"),
    Param("since", kinds.Time, "requests done from then on, seconds since 1970"),
)
PAGING = (
    Param("limit", Limit, f"so many items at most; {USUAL} without it"),
    Param("cursor", Cursor, 'go on behind a part: its "next"'),
)


def given(params: Iterable[Param], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Read the parameters of a query. Raises Invalid for one that is unknown, comes twice, is missing, or has no such value."""
    known = {param.name: param for param in params}
    found: dict[str, Any] = {}
    for name, text in query:
        if name not in known:
            raise Invalid(below("", name), text, f"no such parameter; there are {', '.join(known) or 'none'}")
        if name in found:
            raise Invalid(name, text, "each parameter once")
        found[name] = read(known[name].hint, _value(known[name].hint, text), name)
    for param in known.values():
        if param.required and param.name not in found:
            raise Invalid(param.name, None, "a value: it is missing")
    return found


def _value(hint: Any, text: str) -> Any:
    """Give the JSON value that the text of a parameter stands for; the text where it stands for none: it is refused then."""
    kind = get_args(hint)[0] if get_args(hint) and not isinstance(get_args(hint)[0], str) else hint
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if kind in (int, float) and text.isascii() and len(text) <= 20:
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def chosen(
    filters: Iterable[Filter], sight: Sight, everything: Iterable[str], wanted: Mapping[str, Any], get: Callable[[str], Any]
) -> list[str]:
    """Give the keys of those objects that fit, in order.

    ``everything``: the keys of the kind, in order; ``get``: gives an object of this kind by its key, and nothing of another one: a group
    may have several.
    """
    if not wanted:
        return list(everything)
    used = [each for each in filters if each.name in wanted]
    narrow = next((each for each in used if each.group is not None), None)
    candidates = everything if narrow is None or narrow.group is None else sorted(narrow.group(sight, wanted[narrow.name]))
    tests = [(each.fits, wanted[each.name]) for each in used if each is not narrow or not each.exact]
    if not tests:
        return [key for key in candidates if get(key) is not None]
    found = []
    for key in candidates:
        value = get(key)
        if value is not None and all(fits(sight, key, value, text) for fits, text in tests):
            found.append(key)
    return found
