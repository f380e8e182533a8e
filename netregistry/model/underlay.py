"""Define the underlay: the site's prefix, the part of it that each node has, and the records behind guests' names."""

from __future__ import annotations

from _socket import AF_INET6
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from netcommon.settings.types import domain
from netregistry.model import kinds
from netregistry.model.codec import Between, Most, Text
from runtime import validate

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDEST, NARROWEST, EACH = 48, 60, 64  #: lengths of the site's prefix at most and at least, and of a node's
ITSELF = 1  #: the number of the node's own address in its prefix; 0 is never an address
FIRST = 0x1_0000  #: the number of the first endpoint; those below are reserved
LAST = 1 << 62  #: no endpoint has this number, or one beyond
WINDOW = 1 << 32  #: numbers and generations that a registry may have told a node since a copy of it was made: no more is believed
RELEASED = 1.0  #: until when the quarantine of a prefix has lasted that an operator has ended
UNICAST = (IPv6Network("2000::/3"), IPv6Network("fc00::/7"))  #: global and unique local addresses (RFC 4291, RFC 4193)


def _site(text: str) -> str:
    found = IPv6Network(validate.prefix(text, "", AF_INET6))
    if not WIDEST <= found.prefixlen <= NARROWEST or not any(found.subnet_of(each) for each in UNICAST):
        raise ValueError
    return str(found)


Site = Annotated[
    str,
    Text(
        _site,
        'an IPv6 prefix of /48 to /60, of unique local (fc00::/7) or global (2000::/3) addresses: "fd12:3456:789a::/48"',
    ),
]


def _zone(text: str) -> str:
    found = domain(text)
    if len(found) > LONGEST_ZONE:
        raise ValueError
    return found


def _part(text: str) -> str:
    found = IPv6Network(validate.prefix(text, "", AF_INET6))
    if found.prefixlen != EACH or not any(found.subnet_of(each) for each in UNICAST):
        raise ValueError
    return str(found)


PartOrNone = Annotated[str, Text(_part, "a node's /64 of the site's prefix: \"fd12:3456:789a:4::/64\"", True)]


def _label(text: str) -> str:
    found = domain(text)
    if "." in found or "_" in found or len(found) > LONGEST_KIND:
        raise ValueError
    return found


LONGEST_KIND = 32  #: characters
LONGEST_ZONE = 253 - 1 - LONGEST_KIND - 1 - 63  #: characters; before it is room for any kind, and an instance's name of one label
MOST_ADDRESSES = 4096  #: of one node, those that are to be removed too
MOST_ON_NODE = 250  #: endpoints of one instance on one node, those that are retired too: a node may say other kinds again and again
MOST_OF_ONE = 3000  #: endpoints of one instance: they are one value of the store, of a MiB at most, whatever becomes of each
ZoneOrNone = Annotated[
    str, Text(_zone, f'the zone of endpoints\' names, such as "hosts.example.com", of at most {LONGEST_ZONE} characters', True)
]
Kind = Annotated[str, Text(_label, 'what speaks for a guest, as a label: "console", "exporter"')]
Kinds = Annotated[tuple[Kind, ...], Most(16)]


class Underlay(NamedTuple):
    """The site's prefix, of which each node has a /64, and the zone of endpoints' names; without a zone there are none."""

    prefix: Site
    zone: ZoneOrNone = ""
    minimum_age: Annotated[float, Between(0, 31536000)] = 3600.0  #: seconds before an address that was taken back is forgotten, at least
    ttl: Annotated[int, Between(0, 86400)] = 60  #: seconds for which resolvers keep a name

    @property
    def network(self) -> IPv6Network:
        return IPv6Network(self.prefix)

    @property
    def most(self) -> int:
        """Count the /64s that there are."""
        return 1 << EACH - self.network.prefixlen

    @property
    def rests(self) -> float:
        """Give the seconds from the end of a prefix's use to the next one, at least."""
        return max(self.minimum_age, float(self.ttl))

    def of(self, number: int) -> str:
        """Give the /64 of a number."""
        return f"{IPv6Address(int(self.network.network_address) + (number << EACH))}/{EACH}"

    def number_of(self, prefix: str) -> int:
        """Give the number of a /64; -1 for one that is none of the site's."""
        found = IPv6Network(prefix)
        if found.prefixlen != EACH or not found.subnet_of(self.network):
            return -1
        return int(found.network_address) - int(self.network.network_address) >> EACH


class RegistryId(NamedTuple):
    """Say which registry it is: the same after a restore and a move, and for all its zones."""

    id: str


class Given(NamedTuple):
    """Say which number is the highest of the /64s that somebody had, and nobody has any more."""

    highest: int = -1


class NodePrefix(NamedTuple):
    """Hold the /64 of a node. ``next``: the number of the next endpoint in it; it never goes back, and ends with LAST.

    ``generation``: advanced whenever the node is told something else of its underlay. ``freed``: when the node was forgotten, 0 where it
    was not; ``until``: the prefix is nobody else's before.
    """

    number: int
    prefix: str
    next: int = FIRST
    generation: int = 1
    freed: float = 0.0
    until: float = 0.0

    def at(self, number: int) -> str:
        """Give the address of a number in it."""
        return str(IPv6Address(int(IPv6Network(self.prefix).network_address) + number))

    def number_of(self, address: str) -> int:
        """Give the number of an address in it; -1 for one that lies elsewhere."""
        number = int(IPv6Address(address)) - int(IPv6Network(self.prefix).network_address)
        return number if 0 <= number < 1 << EACH else -1

    def behind(self, generation: int, addresses: Iterable[str]) -> NodePrefix:
        """Give it behind what its node says of it, where that knows more: the registry was restored from a copy that is older.

        A node can say any number. What no registry can have told it since is not believed.
        """
        told = [number + 1 for each in addresses if FIRST <= (number := self.number_of(each)) < min(self.next + WINDOW, LAST)]
        after = self._replace(next=max([self.next, *told]))
        if not self.generation < generation <= self.generation + WINDOW:
            generation = self.generation
        return after._replace(generation=generation + 1) if generation > self.generation or after != self else self

    @property
    def released(self) -> bool:
        """Tell whether an operator has ended its quarantine, and that of all in it."""
        return 0 < self.until < self.freed

    @property
    def itself(self) -> str:
        """Give the node's own address."""
        return self.at(ITSELF)


class Speaker(NamedTuple):
    """Hold what speaks on a node's side for the guest of a NIC, by the node's report of that."""

    nic: kinds.Uuid
    kinds: Kinds = ()


class Speakers(NamedTuple):
    """All that one node has said of this; of a NIC that it reports no more it says nothing."""

    nics: tuple[Speaker, ...] = ()


class There(NamedTuple):
    """Which addresses of the underlay are there on a node, as it says.

    ``generation``: of what it was told last, and has done (NodePrefix). ``arriving``: instances that are on their way to it by the files
    of Ganeti's KVM driver, of which none of its NICs need tell yet. ``prefix``:
    that it has, whoever has given it; "" for none, or where it does not say so.
    """

    generation: Annotated[int, Between(0, 1 << 62)] = 0
    addresses: Annotated[tuple[kinds.Address, ...], Most(MOST_ADDRESSES)] = ()
    prefix: PartOrNone = ""
    arriving: Annotated[tuple[kinds.Instance, ...], kinds.Fifty] = ()


class Had(NamedTuple):
    """Hold an endpoint as a node was told of it, by this registry or by what that was before a restore."""

    cluster: kinds.Cluster
    instance: kinds.Instance
    kind: Kind
    address: kinds.Address
    retired: bool = False  #: no name led to it any more


class Said(NamedTuple):
    """Hold what a node says of the underlay: There, and with its first word in an epoch the endpoints that it has.

    ``epoch``: in which it was told them; only who the registry does not know says that.
    """

    generation: Annotated[int, Between(0, 1 << 62)] = 0
    addresses: Annotated[tuple[kinds.Address, ...], Most(MOST_ADDRESSES)] = ()
    prefix: PartOrNone = ""
    had: Annotated[tuple[Had, ...], Most(MOST_ADDRESSES)] = ()
    epoch: kinds.NameOrNone = ""
    arriving: Annotated[tuple[kinds.Instance, ...], kinds.Fifty] = ()


class Confirmed(NamedTuple):
    """Hold the latest that a node has said of its addresses, of those in its prefix. ``epoch``: in which that was.

    ``had``: endpoints that it has had before that epoch, and of which no placement is left or made again yet: they stay there.
    """

    epoch: str
    there: There = There()
    had: tuple[Had, ...] = ()


class Opened(NamedTuple):
    """Say since when nodes have a while to say in an epoch which /64s they have; 0: that is over, or none can have any.

    The service that leads counts how long that is: its clock may be set meanwhile, as after a start on a machine that is new.
    """

    epoch: str
    since: float = 0.0


class Stranger(NamedTuple):
    """Hold the /64 that a node says it has which the registry does not know; it is nobody else's. ``time``: when it has said so."""

    prefix: str
    time: float


class Endpoint(NamedTuple):
    """An address at which something speaks for a guest on a node.

    It is *wanted* until its node has confirmed that it is there; no name leads to it before. *retired*: no name leads to it any more, from
    the zone's ``generation`` on; it stays where it is until resolvers have forgotten it. *leaving*: since its node's prefix is of
    ``generation`` that is told to remove it. When that is confirmed it is forgotten, and its address never given again.
    """

    kind: str
    node: str
    address: str
    state: Literal["wanted", "there", "retired", "leaving"] = "wanted"
    since: float = 0.0  #: when this state began
    generation: int = 0
    cleared: float = 0.0  #: of a retired one: since when each name server has the zone without a name of it; 0: not yet
    until: float = 0.0  #: of a retired one: it stays until then, at least

    @property
    def live(self) -> bool:
        return self.state in ("wanted", "there")


class Placement(NamedTuple):
    """Say where an instance's endpoints are. Its names lead to the node ``leads``, those of its migration to ``incoming``; "": to none.

    ``left``: the node that they led to before, as long as that says that the guest runs there still. ``refuted``: nodes that are not
    followed, as long as the one from which they would take the guest goes on to say that it runs there. ``doubted``: those that were, and
    have said since that they do not run it: they take no name from that one's node while it says so. ``generation``: advanced by each step.
    """

    cluster: str
    instance: str
    generation: int = 0
    leads: str = ""
    incoming: str = ""
    left: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    refuted: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Give the nodes that it is about, each once."""
        return tuple(dict.fromkeys(each for each in (self.leads, self.incoming, *(one.node for one in self.endpoints)) if each))


class Name(NamedTuple):
    """Say where a name leads, and whose it is. ``generation``: of the zone, when it was changed."""

    address: str
    node: str
    generation: int
    cluster: str
    instance: str


class Published(NamedTuple):
    """Hold up to which generation a name server has a zone, and since when; -1: nobody knows what it has.

    ``epoch``: of the registry that has seen it. In another one nothing is known: a copy may be of before what the server has.
    ``kept``: since when it has had the zone without losing anything of it.
    """

    server: str
    generation: int
    time: float
    epoch: str = ""
    kept: float = 0.0


class Zone(NamedTuple):
    """The names below one zone, as a whole. ``generation``: advanced by each change of one.

    ``epochs``: earlier ones in which it was published.
    """

    generation: int = 0
    published: tuple[Published, ...] = ()
    epochs: tuple[str, ...] = ()

    def behind(self, epoch: str, generation: int | None = None) -> tuple[Published, ...]:
        """Give the servers of which nobody knows in an epoch that they have it as it is, or as it was up to a generation."""
        needed = self.generation if generation is None else min(generation, self.generation)  # of another zone than now, it may be of any
        return tuple(each for each in self.published if each.epoch != epoch or each.generation < needed)
