"""Requests: what can be asked of a host, one class each.

The ``gone`` of each holds the errors that mean, when something is being undone, that there is nothing left to undo. (A property, since
every annotation in a NamedTuple is a field.) A new request is a class here, a line in the union, and a line in SERVICES.
"""

from __future__ import annotations

import errno

from netcommon.host.requests_flows import DeleteFlows, PutFlows
from netcommon.host.requests_local import DeleteFile, Hangup, PutFile, StartDaemon, StopDaemon
from netcommon.host.requests_port import AddFdb, DeleteFdb, SetPort
from netcommon.host.requests_rules import LoadRules
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.facts import Address, BridgeVlan, Neighbour, OvsPort, Route, Rule
    from netcommon.host.nftables import Step


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
    """Deletes one rule of this interface or mark, preference, table and protocol; the kernel does not compare other selectors."""

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
    """Deletes the route of this destination, table, interface, protocol and scope; no metric (IPv4) or gateway (IPv6) stands for any."""

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


class AddAddress(NamedTuple):
    """Adds an address to a device, without a route to its prefix and without duplicate address detection, or replaces the same one."""

    address: Address

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteAddress(NamedTuple):
    """Deletes an address of a device; the kernel does not compare the protocol, so look first."""

    address: Address

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.EADDRNOTAVAIL, errno.ENODEV})


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


class SetTbf(NamedTuple):
    """A token bucket as the root qdisc of the device: ``rate`` bits a second, ``burst`` bytes at once, ``limit`` bytes that wait."""

    index: int  # type: ignore[assignment]
    rate: int
    burst: int
    limit: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteTbf(NamedTuple):
    """Deletes the device's root qdisc if it has our handle."""

    index: int  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


class AddClsact(NamedTuple):
    """The place for filters of a device's ingress and egress; EEXIST: it has one."""

    index: int  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteClsact(NamedTuple):
    index: int  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


class SetPolicer(NamedTuple):
    """What comes in by the device (from a tap: what the guest sends) beyond ``rate`` bits a second is dropped, after ``burst`` bytes.

    EEXIST: there is one already, which cannot be changed.
    """

    index: int  # type: ignore[assignment]
    rate: int
    burst: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeletePolicer(NamedTuple):
    """Deletes the filter of our preference."""

    index: int  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


class SetSysctl(NamedTuple):
    """Its path has the name of a device: where that is another device's than ``index`` by now, nothing is written. 0: whoever has it."""

    path: str
    value: str
    index: int = 0  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV})


class PutOvsPort(NamedTuple):
    """Makes the port so, in one OVSDB transaction: a port of this owner on this bridge gets its VLANs and our external_ids in place,
    whatever else had the name is replaced. ``bridge`` may be a fake bridge, for a port without VLANs of its own (ovs-vsctl(8)).
    Its limits are set too; no limit takes away ours, never those that others have set.

    Answers only after vswitchd has taken it (cur_cfg), or failed to: its error is the answer's text.
    """

    port: OvsPort

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class TakeOvsPort(NamedTuple):
    """Puts our mark with this owner on the port ``name`` of the bridge, if it bears none; ENOENT where there is no such port.

    Nothing else of it changes, so no frame is lost: only adopt asks for it, who knows whose port it is.
    """

    name: str
    bridge: str
    owner: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteOvsPort(NamedTuple):
    """Deletes the port ``name`` if its Port row is owned by ``owner`` (our mark), and the QoS rows of that owner.

    ``wait``: until vswitchd has let go of the device, for a while; what it does to the device at that comes before what we do next.
    """

    name: str
    owner: str
    wait: bool = False

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


class SendFrame(NamedTuple):
    """Sends an Ethernet frame, from its destination address on and without checksum, through the device of this index, which is up."""

    index: int  # type: ignore[assignment]
    frame: bytes

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV})


class NftChange(NamedTuple):
    """Changes nftables in one transaction: all of the steps, or none. ``what`` and ``otherwise`` are for people: what it is about, and
    what to do on a kernel that has no nf_tables.
    """

    what: str
    steps: tuple[Step, ...]
    otherwise: str = ""

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT})


Request = (
    SetLink
    | AddRule
    | DeleteRule
    | AddRoute
    | DeleteRoute
    | AddNeighbour
    | DeleteNeighbour
    | AddAddress
    | DeleteAddress
    | AddVlan
    | DeleteVlan
    | SetPort
    | AddFdb
    | DeleteFdb
    | SetTbf
    | DeleteTbf
    | AddClsact
    | DeleteClsact
    | SetPolicer
    | DeletePolicer
    | SetSysctl
    | PutOvsPort
    | TakeOvsPort
    | DeleteOvsPort
    | PutFlows
    | DeleteFlows
    | SendFrame
    | PutFile
    | DeleteFile
    | StartDaemon
    | StopDaemon
    | NftChange
    | LoadRules
    | Hangup
)


def achieved(request: Request, number: int) -> bool:
    """Whether the refusal ``number`` (an errno) of ``request`` says that what it asks for is so already."""
    if isinstance(request, DeletePolicer):
        return number in request.gone
    return isinstance(request, AddRule | AddClsact) and number == errno.EEXIST


#: Which service of a host carries a request out; the ones that are not named are rtnetlink's, and travel together.
RTNETLINK = "rtnetlink"
SERVICES: dict[type[Request], str] = {
    SetSysctl: "procfs",
    PutOvsPort: "ovsdb",
    TakeOvsPort: "ovsdb",
    DeleteOvsPort: "ovsdb",
    PutFlows: "openflow",
    DeleteFlows: "openflow",
    SendFrame: "packet",
    PutFile: "files",
    DeleteFile: "files",
    StartDaemon: "daemons",
    StopDaemon: "daemons",
    NftChange: "nftables",
    LoadRules: "nft text",
    Hangup: "daemons",
}


def service(request: Request) -> str:
    """The name of the service that carries ``request`` out."""
    return SERVICES.get(type(request), RTNETLINK)
