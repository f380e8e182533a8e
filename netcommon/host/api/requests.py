"""Requests: what can be asked of a host, one class each.

The ``gone`` of each holds the errors that mean, when something is being undone, that there is nothing left to undo. (A property, since
every annotation in a NamedTuple is a field.) A new request is a class here, a line in the union, and a line in SERVICES.
"""

from __future__ import annotations

import errno

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.facts import Address, BridgeVlan, Neighbour, OvsPort, Route, Rule
    from netcommon.host.api.nftables import Step


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
    new: bool = False  #: it replaces none but ours (NLM_F_EXCL); EEXIST: somebody else has one there

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
    """``behind``: not tried where the host refuses to delete a VLAN of the device before it: the device would be in both."""

    index: int  # type: ignore[assignment]
    vlan: BridgeVlan
    behind: bool = False

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
    """Drops what comes in by the device (a tap: what a guest sends) beyond ``rate`` bits a second, after ``burst``; EEXIST: it has one."""

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
    Its limits are set too; no limit takes ours away, and puts back those that others had set before, never those that they set since.

    Answers only after vswitchd has taken it (cur_cfg), or failed to: its error is the answer's text.
    """

    port: OvsPort

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class TakeOvsPort(NamedTuple):
    """Puts our mark on the port ``name`` of the bridge, if it bears none, and changes nothing else; ENOENT where there is no such port."""

    name: str
    bridge: str
    owner: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class ReleaseOvsPort(NamedTuple):
    """Makes the port ``made`` of our mark what it was before it was taken (TakeOvsPort), ``found``; ENOENT where there is none.

    Its VLANs, and those of its external_ids that ``made`` has; our limits go. What others have set meanwhile stays.
    """

    made: OvsPort
    found: OvsPort

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


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


class PutFlows(NamedTuple):
    """Gives the port ``port`` of the real bridge exactly these flows with this cookie, in one bundle, all or none.

    Each is a text as of Flow. Others' flows are not looked at; one of theirs with the same match and priority would be replaced.
    """

    bridge: str
    port: str
    cookie: int
    flows: tuple[str, ...]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFlows(NamedTuple):
    """Deletes every flow of the real bridge with this cookie."""

    bridge: str
    cookie: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


class PutFile(NamedTuple):
    """Writes the file ``name`` of ``folder`` whole and at once (rename(2)); EEXIST where there is one without our mark.

    ``folder``: an absolute path, which must be there, or one below our own folder of the node's state, which is made.
    ``content`` begins with our mark. ``announce``: for a reader that watches for a file closed after writing alone (inotify(7)).
    """

    folder: str
    name: str
    content: str
    mode: int = 0o644
    announce: bool = False

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFile(NamedTuple):
    """Deletes the file if its mark names ``owner``, a NIC's UUID; EEXIST where it does not. Our own folder goes when it is empty."""

    folder: str
    name: str
    owner: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.EEXIST})


class StartDaemon(NamedTuple):
    """Runs ``program`` (an absolute path) as the node's daemon ``name``, unless it runs with just these options.

    It writes its pid to the file that the option ``--pid-file=`` names. In the options "{folder}" stands for the daemon's folder in
    the node's state. Answers when the daemon is at work; one with other options was ended before.
    """

    name: str
    program: str
    options: tuple[str, ...]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class StopDaemon(NamedTuple):
    """Ends the node's daemon ``name`` and removes its folder. Answers when the process is gone."""

    name: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH})


class Hangup(NamedTuple):
    """SIGHUP to the process that ``pid_file`` names, if its program is really ``program``; ESRCH where it is not, or none runs."""

    pid_file: str
    program: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH})


class SetPort(NamedTuple):
    """Sets one flag of a bridge port: a field of netcommon.host.api.facts.Port. With ``learning`` off what was learnt there goes."""

    index: int  # type: ignore[assignment]
    flag: str
    value: bool

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV, errno.EOPNOTSUPP})


class FlushPort(NamedTuple):
    """Makes a bridge forget what it has learnt behind the port. Entries that somebody has made stay."""

    index: int  # type: ignore[assignment]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV, errno.EOPNOTSUPP})


class AddFdb(NamedTuple):
    """Makes ``mac`` a static, sticky entry on the bridge port, wherever it was before.

    ``vid`` 0: for every VLAN that the port has now, and for the bridge while it is not VLAN-aware. Another must be one of the port's.
    """

    index: int  # type: ignore[assignment]
    mac: str
    vid: int = 0

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFdb(NamedTuple):
    """Deletes the entry if it is on this port; ``vid`` as of AddFdb."""

    index: int  # type: ignore[assignment]
    mac: str
    vid: int = 0

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL})  # EINVAL: the port has left the VLAN


class LoadRules(NamedTuple):
    """The tables of a firewall profile (netcommon.host.nftables.profile_table): what is forwarded to a device of the set ``nics`` goes by
    these rules.

    In one transaction; what is in the set stays. ``family``: netcommon.host.api.nftables.BRIDGE or INET. ``alone``: no rules but those of
    profiles look at connections; ``older``: devices that are in tables of earlier versions, by index.
    """

    family: int
    table: str
    rules: tuple[str, ...]
    alone: bool = False
    older: tuple[int, ...] = ()

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


OvsChange = PutOvsPort | TakeOvsPort | ReleaseOvsPort | DeleteOvsPort
RoutingChange = AddRule | DeleteRule | AddRoute | DeleteRoute | AddNeighbour | DeleteNeighbour | AddAddress | DeleteAddress
PortChange = SetPort | FlushPort | AddFdb | DeleteFdb
TrafficChange = SetTbf | DeleteTbf | AddClsact | DeleteClsact | SetPolicer | DeletePolicer
Request = (
    SetLink
    | RoutingChange
    | AddVlan
    | DeleteVlan
    | PortChange
    | TrafficChange
    | SetSysctl
    | OvsChange
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
    **dict.fromkeys((PutOvsPort, TakeOvsPort, ReleaseOvsPort, DeleteOvsPort), "ovsdb"),
    **dict.fromkeys((PutFlows, DeleteFlows), "openflow"),
    SendFrame: "packet",
    **dict.fromkeys((PutFile, DeleteFile), "files"),
    **dict.fromkeys((StartDaemon, StopDaemon, Hangup), "daemons"),
    NftChange: "nftables",
    LoadRules: "nft text",
}


def service(request: Request) -> str:
    """The name of the service that carries ``request`` out."""
    return SERVICES.get(type(request), RTNETLINK)
