"""Find networks, NICs, nodes and what is not given out by any part of a name, MAC, address or UUID, and list keys in order.

None of that looks at each object.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.kinds import HEX
from netregistry.model.nic import Nic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.model.claim import Claim
    from netregistry.model.network import Network
    from netregistry.stores.base import Batch
    from netregistry.view import View

KINDS = ("networks", "nics", "nodes")
#: Beginnings of MACs as others write them: 00-00-5e, 0000.5e00; all of one without anything between has so many digits.
OCTETS, QUADS = re.compile("[0-9a-f]{2}(-[0-9a-f]{2}){1,5}"), re.compile("[0-9a-f]{4}[.][0-9a-f]{2,4}([.][0-9a-f]{2,4})?")
DIGITS = 12
CLAIMS = ("macs", "addresses")  #: found as long as no NIC has them and they are not given out: reserved, or in quarantine


class Index:
    """For each key of KINDS, and of CLAIMS, the text that it is found by; kept by ``hear`` as a view is.

    A NIC is found by what it wants, and by what it is reported with; a network and a node also by their cluster, a network by each address
    that it gives to nobody.
    """

    def __init__(self, view: View) -> None:
        self.changed = dict.fromkeys(KINDS, 0)  #: how often what something of a kind is found by has
        self._texts: dict[str, dict[str, str]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._withheld: dict[str, tuple[Withheld, ...]] = {}  # of networks
        self._subnets: dict[str, tuple[IPv4Network | IPv6Network, ...]] = {}  # of networks
        self.hear(view, None)

    def hear(self, view: View, batch: Batch | None) -> None:
        """Take in what the view has taken in: one commit; None: all of it anew."""
        if batch is None:
            self._texts = {kind: {key: text(value, view) for key, value in view.all(kind).items()} for kind in KINDS}
            self._withheld = {key: withheld(value) for key, value in view.all("networks").items()}
            self._subnets = {key: subnets(value) for key, value in view.all("networks").items()}
            self._sorted = {kind: sorted(found) for kind, found in self._texts.items()}
            self.changed = {kind: count + 1 for kind, count in self.changed.items()}
            for kind in CLAIMS:
                self._texts[kind] = {key: words for key, value in view.all(kind).items() if (words := of_claim(key, value))}
            return
        for change in batch.changes:
            if (kind := keys.kind(change.key)) in KINDS:
                self._put(view, kind, change.key)
            elif kind == "seen":
                self._put(view, "nics", keys.nic(change.key.rpartition("/")[2]))
            elif kind in CLAIMS:
                self._texts[kind].pop(change.key, None)
                if words := of_claim(change.key, view.get(change.key)):
                    self._texts[kind][change.key] = words

    def _put(self, view: View, kind: str, key: str) -> None:
        texts, order, value = self._texts[kind], self._sorted[kind], view.get(key)
        words = text(value, view) if value is not None else None
        if kind == "networks":
            self._withheld.pop(key, None)
            self._subnets.pop(key, None)
            if value is not None:
                self._withheld[key], self._subnets[key] = withheld(value), subnets(value)
        if words == texts.get(key):
            return
        self.changed[kind] += 1
        if words is None:
            del texts[key], order[bisect_left(order, key)]
            return
        if key not in texts:
            insort(order, key)
        texts[key] = words

    def keys(self, kind: str) -> list[str]:
        """Give the keys of a kind in order. Not to be changed."""
        return self._sorted[kind]

    def find(self, part: str) -> Iterator[tuple[str, str, str]]:
        """Give kind, key and the word that has the part, of all that has it.

        Of an address, or a prefix, that nothing has, the networks in whose subnets it is: what is free is somewhere, too.
        """
        parts, asked = asked_for(part), _number(part)
        some = False
        for kind in (*KINDS, *CLAIMS):
            for key, words in self._texts[kind].items():
                if any(each in words for each in parts):
                    some = True
                    yield kind, key, next((word for word in words.split("\n") if any(each in word for each in parts)), "")
                elif kind == "networks" and asked is not None:
                    for family, first, last, said in self._withheld[key]:
                        if family == asked[0] and first <= asked[1] <= last:
                            some = True
                            yield kind, key, said
                            break
        if not some:
            yield from self._around(part)

    def _around(self, part: str) -> Iterator[tuple[str, str, str]]:
        """Give the networks that have a subnet in which an address or a prefix is."""
        try:
            asked = ip_network(part, strict=False)
        except ValueError:
            return
        for key, subnets in self._subnets.items():
            for subnet in subnets:
                if subnet.version == asked.version and subnet.supernet_of(asked):  # type: ignore[arg-type]  # of one version
                    yield "networks", key, str(subnet)


class Withheld(NamedTuple):
    """Addresses of a network that it gives out to nobody, the first and the last as numbers, and why in words."""

    family: int
    first: int
    last: int
    said: str


def withheld(network: Network) -> tuple[Withheld, ...]:
    """Give what a network withholds: its own addresses, and what is reserved or barred of it."""
    found = [
        Withheld(family, number, number, f"{kinds.text(number, family)}, the network's own")
        for family in network.families
        for number in sorted(network.excluded(family))
    ]
    for each, why in (*((each, "reserved") for each in network.reserved), *((each, "barred") for each in network.barred)):
        said = each.first if each.first == each.last else f"{each.first}-{each.last}"
        found.append(Withheld(kinds.family(each.first), kinds.number(each.first), kinds.number(each.last), f"{said}, {why}"))
    return tuple(found)


def subnets(network: Network) -> tuple[IPv4Network | IPv6Network, ...]:
    """Give the subnets that a network has."""
    return tuple(ip_network(each) for each in (network.subnet, network.subnet6) if each)


def asked_for(part: str) -> tuple[str, ...]:
    """Give what may be meant by a text: itself, and the address, prefix or MAC that it writes in another way, as that is kept."""
    part = part.lower()
    found = [part]
    try:
        found.append(str(ip_network(part, strict=False)) if "/" in part else str(ip_address(part)))
    except ValueError:
        digits = re.sub("[-.]", "", part)
        octets = OCTETS.fullmatch(part) or QUADS.fullmatch(part) or (len(part) == DIGITS and part)
        if octets and HEX.issuperset(digits):
            found.append(":".join(digits[place : place + 2] for place in range(0, len(digits), 2)))
    return tuple(dict.fromkeys(found))


def _number(part: str) -> tuple[int, int] | None:
    """Give the family and the number of an address; None for what is none."""
    try:
        found = ip_address(part)
    except ValueError:
        return None
    return found.version, int(found)


def text(value: Any, view: View) -> str:
    """Give the words by which something is found, one a line, in lower case."""
    words = dict.fromkeys(_words(value))
    if isinstance(value, Nic):
        for seen in view.members("seen", value.uuid):
            words |= dict.fromkeys((*view.get(seen).uses, *view.get(seen).whole))
    return "\n".join(word for word in words if word).lower()


def of_claim(key: str, claim: Claim | None) -> str:
    """Give the words by which a MAC or an address is found that is not given out; "" for one that is, or that a NIC has."""
    if claim is None or claim.standing not in ("reserved", "quarantined"):
        return ""
    return f"{key.rpartition('/')[2]}\n{claim.reserved}\n{claim.instance}".lower().strip()


def _words(value: Network | Nic | Any) -> Iterator[str]:
    yield value.uuid
    yield value.name
    for field in ("mac", "subnet", "subnet6", "gateway", "gateway6", "label"):
        yield getattr(value, field, "")
    yield from getattr(value, "all_addresses", ())
    if not isinstance(value, Nic):  # a cluster has thousands of these: they have a filter
        yield value.cluster
