"""Follow the underlay of a registry commit by commit: what no commit may leave behind, by what is stored and by nothing of the code that
stores it.

One prefix, one node; one name, one address, which its node has confirmed; no name that goes while its guest is somewhere; no address and no
prefix a second time before its time.
"""

from __future__ import annotations

import json
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

KINDS = ("underlay", "prefixes", "endpoints", "names", "zones", "confirmed", "nodes")
RESERVED = 0x1_0000  #: numbers below it in a prefix are no endpoint's
AGE, TTL = 3600.0, 60.0  #: of an underlay that does not say them
#: What may become of an endpoint that is "there" no more, or not yet.
STEPS = {"wanted": ("retired",), "there": ("retired",), "retired": ("leaving",), "leaving": ()}

Object = dict[str, Any]
Instance = tuple[str, str]
K = TypeVar("K", str, tuple[str, str])


class UnderlayCommits:
    """Hold what commits have made. ``now``: seconds since the epoch, by the registry's clock; ``led``: gives until when a name server
    has led to an address, infinity as long as one does.

    ``given``: by address whose it is: key, kind and node, as long as its prefix is that node's; ``steps``: how often placements changed.
    """

    def __init__(self, now: Callable[[], float], led: Callable[[str], float] = lambda _address: 0.0) -> None:
        self._now, self._led = now, led
        self.state: dict[str, Object] = {}
        self.given: dict[str, tuple[str, str, str]] = {}
        self.steps = 0
        self._restored = False  # nodes may have what this registry knows by their word alone
        self._named: dict[Instance, set[str]] = {}  # keys of the names of each instance
        self._leads: dict[str, set[str]] = {}  # keys of the names that lead to each address

    def begin(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Begin with what is stored now; what was given before counts on, where that is what was known.

        A registry that was restored knows nothing of what it has given since; its nodes say what they have.
        """
        now = {key: json.loads(value) for key, value in items if key.partition("/")[0] in KINDS}
        if now == self.state:
            return
        self._restored = bool(self.state)
        self.state, self._named, self._leads = now, {}, {}
        self.given = {}
        for key, value in now.items():
            self._indexed(key, None, value)
            for each in value.get("endpoints", ()) if key.startswith("endpoints/") else ():
                self.given[each["address"]] = key, each["kind"], each["node"]

    def end(self) -> None:
        """Forget all of it."""
        self.state, self.given, self._named, self._leads = {}, {}, {}, {}

    @property
    def underlay(self) -> Object | None:
        """Give the underlay, if there is one."""
        return self.state.get("underlay")

    @property
    def rests(self) -> float:
        """Give the seconds of a quarantine, at least."""
        return max(self._said("minimum_age", AGE), self._ttl)

    @property
    def _ttl(self) -> float:
        return self._said("ttl", TTL)

    def _said(self, name: str, usual: float) -> float:
        return float((self.underlay or {}).get(name, usual))

    def commit(self, changes: Iterable[tuple[str, bytes | None]]) -> list[str]:
        """Take in one commit; say what it must not leave behind."""
        changed = {key: None if value is None else json.loads(value) for key, value in changes if key.partition("/")[0] in KINDS}
        before = {key: self.state.get(key) for key in changed}
        for key, value in changed.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
            self._indexed(key, before[key], value)
        found: list[str] = []
        for key, value in changed.items():
            match key.partition("/")[0]:
                case "prefixes":
                    found += self._of_prefix(key, before[key], value)
                case "endpoints":
                    found += self._of_placement(key, before[key], value)
                case "zones":
                    if _generation(value) < _generation(before[key]):
                        found.append(f"the generation of {key} goes back")
                case "names":
                    found += self._of_change(key, before, value)
        found += self._of_names(before, changed)
        return found

    def _indexed(self, key: str, before: Object | None, after: Object | None) -> None:
        if not key.startswith("names/"):
            return
        if before is not None:
            _drop(self._named, _instance(before), key)
            _drop(self._leads, before["address"], key)
        if after is not None:
            self._named.setdefault(_instance(after), set()).add(key)
            self._leads.setdefault(after["address"], set()).add(key)

    # -- prefixes

    def _of_prefix(self, key: str, before: Object | None, after: Object | None) -> Iterator[str]:
        """Hold to it that one prefix is of one node, and another one's only when its quarantine is over."""
        node = key.partition("/")[2]
        if after is None:
            freed, until = (before or {}).get("freed", 0.0), (before or {}).get("until", 0.0)
            if not freed:
                yield f"the prefix of node {node} is taken from it"
            elif not 0 < until < freed and self._now() < freed + self.rests:
                yield f"the prefix of node {node} is free {self._now() - freed:g} s after it was given back"
            self.given = {address: one for address, one in self.given.items() if one[2] != node}
            return
        network = IPv6Network(after["prefix"])
        site = (self.underlay or {}).get("prefix", "::/0")
        if network.prefixlen != 64 or not network.subnet_of(IPv6Network(site)):
            yield f"{network}, of node {node}, is no /64 of {site}"
        same = [other for other, value in self.state.items() if other.startswith("prefixes/") and value["prefix"] == after["prefix"]]
        if len(same) > 1:
            yield f"{network} is of {' and '.join(each.partition('/')[2] for each in sorted(same))}"
        if before is None:
            return
        if before["prefix"] != after["prefix"]:
            yield f"node {node} has another prefix: {network}, and not {before['prefix']}"
        if after.get("next", RESERVED) < before.get("next", RESERVED):
            yield f"the counter of {network} goes back"
        if after.get("generation", 1) <= before.get("generation", 1):
            yield f"the generation of {network} does not advance"

    # -- endpoints

    def _of_placement(self, key: str, before: Object | None, after: Object | None) -> Iterator[str]:
        """Hold to it that no address is given twice, counts as there unconfirmed, or is forgotten too early."""
        self.steps += 1
        old = {each["address"]: each for each in _endpoints(before)}
        new = {each["address"]: each for each in _endpoints(after)}
        if len(new) != len(_endpoints(after)):
            yield f"{key} has one address twice"
        if before is not None and after is not None and _generation(after) <= _generation(before):
            yield f"the generation of {key} does not advance"
        for address, each in new.items():
            if address in old:
                yield from self._of_step(old[address], each)
            else:
                yield from self._of_new(key, each)
        for address in old.keys() - new.keys():
            yield from self._of_forgotten(old[address])

    def _of_new(self, key: str, each: Object) -> Iterator[str]:
        address, node = each["address"], each["node"]
        prefix = self.state.get(f"prefixes/{node}")
        if prefix is None:
            yield f"{address} is given on node {node}, which has no prefix"
            return
        if not RESERVED <= int(IPv6Address(address)) - int(IPv6Network(prefix["prefix"])[0]) < 1 << 64:
            yield f"{address} is reserved, or not of {prefix['prefix']}, its node's"
        if address in self.given:
            yield f"{address} is given a second time, to {key}; it was of {self.given[address][0]}"
        self.given[address] = key, each["kind"], node
        told = self._restored and address in self._confirmed(node).get("addresses", ())  # by the registry that was there before
        if _state(each) != "wanted" and not told:
            yield f"{address} is {_state(each)} before its node was told"

    def _of_step(self, before: Object, after: Object) -> Iterator[str]:
        address, node, was, now = after["address"], after["node"], _state(before), _state(after)
        if was == now:
            return
        if now == "there":
            if was != "wanted" or address not in self._confirmed(node).get("addresses", ()):
                yield f"{address}, which was {was}, counts as there, and node {node} has not confirmed it"
            return
        if now not in STEPS[was]:
            yield f"{address} was {was}, and is {now}"
        if now == "leaving":
            yield from self._rested(before, "is told to go")

    def _rested(self, each: Object, how: str) -> Iterator[str]:
        """Hold to it that an address rests until nobody can know it any more."""
        now, address = self._now(), each["address"]
        if now < each.get("since", 0.0) + self.rests:
            yield f"{address} {how} before its time: {now - each.get('since', 0.0):g} s after it was retired"
        if now < self._led(address) + self._ttl:
            yield f"{address} {how}, and resolvers may have it: a name server led to it within the last {self._ttl:g} s"

    def _of_forgotten(self, each: Object) -> Iterator[str]:
        address, node = each["address"], each["node"]
        said, prefix = self._confirmed(node), self.state.get(f"prefixes/{node}", {})
        if 0 < prefix.get("until", 0.0) < prefix.get("freed", 0.0):
            return  # an operator has ended its quarantine
        if f"nodes/{node}" not in self.state:  # nobody is there who could confirm anything
            if _state(each) == "retired":
                yield from self._rested(each, "is forgotten with its node")
            elif _state(each) != "leaving":
                yield f"{address}, which is {_state(each)}, is forgotten"
        elif _state(each) != "leaving":
            yield f"{address}, which is {_state(each)}, is forgotten, and its node was not told that it is to go"
        elif address in said.get("addresses", ()):
            yield f"{address} is forgotten, and is there still"
        elif _generation(said) < _generation(each):
            yield f"{address} is forgotten by what node {node} said before it was told"

    def _confirmed(self, node: str) -> Object:
        found: Object = self.state.get(f"confirmed/{node}", {}).get("there", {})
        return found

    # -- names

    def _of_change(self, key: str, before: Mapping[str, Object | None], after: Object | None) -> Iterator[str]:
        """Hold to it that each change of a name has a generation of its zone; none goes of a guest that is somewhere."""
        zone_key, was = f"zones/{key.split('/')[1]}", before[key]
        zone = self.state.get(zone_key, {})
        if zone_key not in before or _generation(zone) <= _generation(before[zone_key]):
            yield f"{key} changes without a generation of its zone"
        if after is not None:
            if _generation(after) != _generation(zone):
                yield f"{key} is of generation {_generation(after)}, and its zone of {_generation(zone)}"
        elif was is not None and not is_migrating(key, was):
            placement, kind = self._placement(_instance(was)), kind_of(key)
            if any(_is_live(each) and (each["node"], each["kind"]) == (placement.get("leads"), kind) for each in _endpoints(placement)):
                yield f"{key} goes, and its guest is somewhere"

    def _of_names(self, before: Mapping[str, Object | None], changed: Mapping[str, Object | None]) -> Iterator[str]:
        """Hold to it that each name leads to one address, of an endpoint of its instance that is there."""
        of_names = [key for key in changed if key.startswith(("names/", "endpoints/"))]
        of = dict.fromkeys(_instance(value) for key in of_names for value in (before[key], changed[key]) if value is not None)
        for instance in of:
            placement = self._placement(instance)
            there = {each["address"]: each for each in _endpoints(placement)}
            for key in sorted(self._named.get(instance, ())):
                name = self.state[key]
                each = there.get(name["address"])
                if each is None or _state(each) != "there" or each["node"] != name["node"]:
                    yield f"{key} leads to {name['address']}, which is not there"
                elif each["node"] != placement.get("incoming" if is_migrating(key, name) else "leads"):
                    yield f"{key} leads to another node than its guest's"
                if len(self._leads[name["address"]]) > 1:
                    yield f"{' and '.join(sorted(self._leads[name['address']]))} lead to one address, {name['address']}"

    def _placement(self, instance: Instance) -> Object:
        cluster, name = instance
        found = self.state.get(f"endpoints/{cluster or 'none'}/{name}")
        return found if found is not None and _instance(found) == instance else {}


def is_migrating(key: str, value: Object) -> bool:
    """Tell whether the name of a key is one of its instance's migration. An instance may itself be called web-migrating."""
    return key.split("/", 2)[2].startswith(f"{value['instance']}-migrating.")


def kind_of(key: str) -> str:
    """Give the kind of endpoints of which the name of a key is."""
    _, zone, name = key.split("/", 2)
    return name.removesuffix(f".{zone}").rpartition(".")[2]


def _drop(index: dict[K, set[str]], of: K, key: str) -> None:
    keys = index.get(of, set())
    keys.discard(key)
    if not keys:
        index.pop(of, None)


def _instance(value: Object) -> Instance:
    return value.get("cluster", ""), value["instance"]


def _endpoints(placement: Object | None) -> list[Object]:
    found: list[Object] = (placement or {}).get("endpoints", [])
    return found


def _state(each: Object) -> str:
    found: str = each.get("state", "wanted")
    return found


def _is_live(each: Object) -> bool:
    return _state(each) in ("wanted", "there")


def _generation(value: Object | None) -> int:
    found: int = (value or {}).get("generation", 0)
    return found
