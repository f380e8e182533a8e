"""The interface of a host: what can be read of it (View), what can be asked of it (requests), and who asks (Host).

Every value here is a plain immutable fact. Addresses are canonical text, families are socket.AF_INET (2) and AF_INET6 (10),
interface indices are the kernel's (0: none). Both backends, linux and memory, pass one contract suite.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

AF_INET = 2
AF_INET6 = 10

#: Our number among the routing protocols (rtnetlink(7), rt_protos): the mark on rules, routes and proxy neighbours.
PROTOCOL = 174

#: Our key in the external_ids of OVS ports; its value is the NIC's UUID.
OVS_MARK = "netcommon-uuid"


class Link(NamedTuple):
    """A network interface (rtnetlink(7), RTM_GETLINK)."""

    index: int  # type: ignore[assignment]
    name: str
    kind: str = ""  #: IFLA_INFO_KIND: "tun", "bridge", "veth", "vlan", ...; "" for hardware
    address: str = ""
    mtu: int = 1500
    up: bool = False  #: IFF_UP, the administrator's word; not carrier
    master: int = 0  #: index of the bridge (or other master) it is a port of
    port_kind: str = ""  #: IFLA_INFO_SLAVE_KIND: "bridge", "openvswitch", ...
    alias: str = ""
    vlan_filtering: bool = False  #: bridges only
    default_pvid: int = 0  #: bridges only (IFLA_BR_VLAN_DEFAULT_PVID): the VID that a new port gets by itself, 0 none
    vlan: int = 0  #: VLAN interfaces only: their VID
    lower: int = 0  #: IFLA_LINK: the lower device of a VLAN interface, the peer of a veth
    foreign_lower: bool = False  #: IFLA_LINK_NETNSID is there: ``lower`` counts in another namespace
    holders: int = -1  #: taps: how many queues are attached (0: nobody holds it); -1: not a tap


class Rule(NamedTuple):
    """A policy rule that selects by incoming interface alone (ip-rule(8))."""

    family: int
    preference: int
    iif: str
    table: int
    protocol: int = PROTOCOL
    plain: bool = True  #: False: it has selectors besides iif, so it is not one that we could have made


class Route(NamedTuple):
    """A unicast route (ip-route(8)). ``scope``: 253 link, 0 universe."""

    family: int
    table: int
    destination: str  #: "10.0.0.5/32"
    index: int  # type: ignore[assignment]  #: output interface
    protocol: int = PROTOCOL
    scope: int = 253
    gateway: str = ""
    metric: int = 0
    type: int = 1  #: RTN_UNICAST


class Neighbour(NamedTuple):
    """A proxy neighbour entry (ip-neighbour(8), NTF_PROXY)."""

    family: int
    address: str
    index: int  # type: ignore[assignment]
    protocol: int = PROTOCOL


class BridgeVlan(NamedTuple):
    """One VID of a bridge port (bridge(8), vlan)."""

    vid: int
    pvid: bool = False
    untagged: bool = False


class OvsPort(NamedTuple):
    """A Port row and its one Interface row (ovs-vswitchd.conf.db(5)). Maps are sorted pairs."""

    name: str
    bridge: str
    tag: int | None = None
    trunks: tuple[int, ...] = ()
    vlan_mode: str = ""
    external_ids: tuple[tuple[str, str], ...] = ()
    interface_ids: tuple[tuple[str, str], ...] = ()  #: external_ids of the Interface row
    error: str = ""  #: read only: what vswitchd says of the interface
    ofport: int = 0  #: read only: -1 could not be created, 0 not known yet
    row: str = ""  #: read only: the Port row's UUID

    @property
    def owner(self) -> str:
        """The NIC's UUID if the port bears our mark, else ""."""
        return dict(self.external_ids).get(OVS_MARK, "")


class View(Protocol):
    """What can be read. A live view asks each time; a snapshot answers from one complete picture.

    Every method raises TryAgain where the kernel or the service does not answer in time; an answer is never partial.
    """

    def link(self, name: str) -> Link | None: ...
    def link_at(self, index: int) -> Link | None: ...
    def links(self) -> Sequence[Link]: ...
    def ports(self, bridge: int) -> Sequence[Link]: ...
    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]: ...
    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        """Unicast, blackhole and other routes of ``table`` (None: all), optionally only those to ``destination`` exactly."""
        ...

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]: ...
    def vlans(self, index: int) -> Sequence[BridgeVlan]: ...
    def sysctl(self, path: str) -> str | None:
        """The value of /proc/sys/``path``, or None where there is no such file. ``path`` uses slashes: "net/ipv4/ip_forward"."""
        ...

    def table(self, name: str) -> int | None:
        """The number of the routing table ``name`` (/etc/iproute2/rt_tables, rt_tables.d, or a number), None if unknown."""
        ...

    def ovs_bridge(self, name: str) -> bool: ...
    def ovs_port(self, name: str) -> OvsPort | None: ...
    def ovs_ports(self) -> Sequence[OvsPort]:
        """Every port that bears our mark. Empty where Open vSwitch is not there at all."""
        ...


# Each request's ``gone`` holds the errors that mean, when something is being undone, that there is nothing left to undo.
# (A property, since every annotation in a NamedTuple is a field.)


class SetLink(NamedTuple):
    """Changes of a link; None leaves a thing as it is. ``master`` 0 takes it out of its bridge."""

    index: int  # type: ignore[assignment]
    address: str | None = None
    mtu: int | None = None
    up: bool | None = None
    master: int | None = None
    alias: str | None = None

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV})


class AddRule(NamedTuple):
    """Adds a rule (NLM_F_EXCL); EEXIST means that there is one with the same selectors, preference, table and protocol."""

    rule: Rule

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteRule(NamedTuple):
    """Deletes one rule of this interface, preference, table and protocol; the kernel does not compare other selectors."""

    rule: Rule

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ESRCH})


class AddRoute(NamedTuple):
    """Adds a route, or replaces the one of the same destination, table and metric (NLM_F_REPLACE)."""

    route: Route

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteRoute(NamedTuple):
    """Deletes exactly this route: destination, table, interface, protocol and scope must all match."""

    route: Route

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH, errno.ENODEV, errno.ENOENT})


class AddNeighbour(NamedTuple):
    neighbour: Neighbour

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteNeighbour(NamedTuple):
    """Deletes a proxy neighbour; the kernel does not compare the protocol, so look first."""

    neighbour: Neighbour

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.ENXIO})


class AddVlan(NamedTuple):
    index: int  # type: ignore[assignment]
    vlan: BridgeVlan

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteVlan(NamedTuple):
    index: int  # type: ignore[assignment]
    vid: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})


class SetSysctl(NamedTuple):
    path: str
    value: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


class PutOvsPort(NamedTuple):
    """Makes the port so, in one OVSDB transaction: a port of this owner on this bridge gets its VLANs and our external_ids in place,
    whatever else had the name is replaced. ``bridge`` may be a fake bridge, for a port without VLANs of its own (ovs-vsctl(8)).

    Answers only after vswitchd has taken it (cur_cfg), or failed to: its error is the answer's text.
    """

    port: OvsPort

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteOvsPort(NamedTuple):
    """Deletes the port ``name`` if its Port row is owned by ``owner`` (our mark).

    ``wait``: until vswitchd has let go of the device, for a while; what it does to the device at that comes before what we do next.
    """

    name: str
    owner: str
    wait: bool = False

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


Request = (
    SetLink
    | AddRule
    | DeleteRule
    | AddRoute
    | DeleteRoute
    | AddNeighbour
    | DeleteNeighbour
    | AddVlan
    | DeleteVlan
    | SetSysctl
    | PutOvsPort
    | DeleteOvsPort
)


def achieved(request: Request, number: int) -> bool:
    """Whether the refusal ``number`` (an errno) of ``request`` says that what it asks for is so already."""
    return isinstance(request, AddRule) and number == errno.EEXIST


class Answer(NamedTuple):
    """What became of one request: errno 0 done; ECANCELED not tried since an earlier one failed; ETIMEDOUT unknown."""

    errno: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.errno == 0


DONE = Answer()
NOT_TRIED = Answer(errno.ECANCELED, "not tried")


class Identity(NamedTuple):
    """Where and when a record was made: ``boot`` is /proc/sys/kernel/random/boot_id, ``netns`` SO_NETNS_COOKIE (socket(7))."""

    boot: str
    netns: int


class Host(Protocol):
    """The machine, or a simulated one."""

    def identity(self) -> Identity: ...
    def view(self) -> View:
        """A live view: each answer is the state of now."""
        ...

    def snapshot(self) -> View:
        """A view of one moment, for work over many NICs: each table is read once, whole, when first asked for."""
        ...

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """Carries the requests out in order, in as few messages as the services take; one answer each.

        ``stop``: after the first failure the rest is not tried. Neighbouring SetLink requests for one link travel as one
        message; if that is refused they are sent one by one, so that the answer names the one that failed.
        """
        ...

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        """The first process among ``candidates`` that has the tap ``device`` open (/proc/PID/fdinfo, "iff:"), else 0."""
        ...
