"""Facts about a host: plain immutable values, as both backends tell them.

Addresses are canonical text, families are socket.AF_INET (2) and AF_INET6 (10), interface indices are the kernel's (0: none).
"""

from __future__ import annotations

from runtime.typed import NamedTuple

AF_INET = 2
AF_INET6 = 10

#: Our number among the routing protocols (rtnetlink(7), rt_protos): the mark on rules, routes and proxy neighbours.
PROTOCOL = 174

#: The last metric that there is, of the route for the rest of a node's underlay prefix: whoever routes a part of that comes first.
REST = 0x7FFFFFFF

#: Ethertypes of VLAN tags: a customer's (802.1Q), which guests send, and a provider's (802.1ad).
DOT1Q, DOT1AD = 0x8100, 0x88A8

#: Our key in the external_ids of OVS ports; its value is the NIC's UUID.
OVS_MARK = "netcommon-uuid"

#: What is said where it is on this node, and has no socket.
STOPPED = "Open vSwitch does not answer: start it (systemctl start openvswitch-switch)"


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
    protocol: int = DOT1Q  #: bridges and VLAN interfaces only: of the tags that they read
    table: int = 0  #: VRFs only: the routing table of what comes in by their ports


class Rule(NamedTuple):
    """A policy rule (ip-rule(8)); one of ours selects by incoming interface, or by mark, alone."""

    family: int
    preference: int
    iif: str
    table: int
    protocol: int = PROTOCOL
    plain: bool = True  #: False: it has other selectors, or both, so it is not one that we could have made
    mark: int = 0  #: of a packet, in the bits of ``mask``
    mask: int = 0  #: 0: it does not look at the mark
    action: int = 1  #: FR_ACT_TO_TBL; what drops is one of DROPPING
    inverted: bool = False  #: it is for what it does not select ("not iif lo")
    narrowed: bool = False  #: it selects by more than device and mark
    jump: int = 0  #: of JUMPING: the preference of the rule that is looked at next; 0 where there is none of it
    source: str = ""  #: of a packet: within this network, "10.0.0.0/8"; "" any
    target: str = ""  #: where a packet goes, in the same way
    more: bool = False  #: it has conditions beyond device, mark and addresses, or takes not every route of its table
    upper: int = 0  #: it is for this protocol above IP alone; 0: any
    ports: bool = False  #: it looks at ports
    label: bool = False  #: it looks at the flow label of IPv6


JUMPING = 2  #: FR_ACT_GOTO
#: FR_ACT_BLACKHOLE, FR_ACT_UNREACHABLE and FR_ACT_PROHIBIT (linux/fib_rules.h).
DROPPING = frozenset({6, 7, 8})


class Route(NamedTuple):
    """A route (ip-route(8)). ``scope``: 253 link, 0 universe."""

    family: int
    table: int
    destination: str  #: "10.0.0.5/32"
    index: int  # type: ignore[assignment]  #: output interface
    protocol: int = PROTOCOL
    scope: int = 253
    gateway: str = ""
    metric: int = 0
    type: int = 1  #: RTN_UNICAST; 6 is RTN_BLACKHOLE
    paths: tuple[int, ...] = ()  #: of a multipath route, whose ``index`` is 0: the output interfaces; read only
    nexthop: int = 0  #: the id of the nexthop object that it names, 0 none; read only
    tos: int = 0  #: IPv4: it is for packets with this TOS alone, and comes before one that is for all; read only


class Neighbour(NamedTuple):
    """A proxy neighbour entry (ip-neighbour(8), NTF_PROXY)."""

    family: int
    address: str
    index: int  # type: ignore[assignment]
    protocol: int = PROTOCOL
    router: bool = False  #: NTF_ROUTER: IPv6 advertisements say that it is one


class Address(NamedTuple):
    """An address of a device (ip-address(8))."""

    family: int
    address: str
    length: int  #: of its prefix
    index: int  # type: ignore[assignment]
    protocol: int = PROTOCOL  #: read: 0 where the kernel keeps none (before 5.18)
    deprecated: bool = False  #: IPv6: it answers, and nothing is begun from it (RFC 4862, 5.5.4)


class BridgeVlan(NamedTuple):
    """One VID of a bridge port (bridge(8), vlan)."""

    vid: int
    pvid: bool = False
    untagged: bool = False
    tunnel: int = 0  #: read only: the VNI that it is mapped to, on a port that is a VXLAN device


class Port(NamedTuple):
    """What a port of a Linux bridge does, by the names of bridge(8) ("link"); without arguments as the kernel makes a new one."""

    isolated: bool = False
    learning: bool = True
    flood: bool = True
    mcast_flood: bool = True
    fastleave: bool = False
    mcast_to_unicast: bool = False
    mcast_router: bool = True  #: it can become one by what is sent behind it, or is one; False: never, or the kernel hears no queries


#: Where an entry of a forwarding database comes from: a frame, somebody's word, or it is the address of the port itself.
LEARNED, STATIC, LOCAL = "learned", "static", "local"


class FdbEntry(NamedTuple):
    """Where a bridge sends the frames for a MAC address (bridge(8), fdb)."""

    mac: str
    index: int  # type: ignore[assignment]  #: the port
    vid: int = 0  #: 0: of a bridge that is not VLAN-aware
    kind: str = STATIC
    sticky: bool = False  #: a frame from that address at another port does not move it there
    locked: bool = False  #: a locked port has noted who asks to be let in there (mab): what comes from that address is dropped


class Qdisc(NamedTuple):
    """A queueing discipline that somebody has put on a device (tc(8)). Of a token bucket (tbf) and of a fifo the numbers too."""

    index: int  # type: ignore[assignment]
    kind: str
    handle: int
    rate: int = 0  #: bits a second
    buffer: int = 0  #: how long a burst may last, in the scheduler's ticks of 64 ns
    limit: int = 0  #: bytes that wait, of a pfifo packets


class Filter(NamedTuple):
    """A filter in a device's ingress or egress (tc(8)); of a matchall with a policer the numbers too."""

    index: int  # type: ignore[assignment]
    preference: int
    egress: bool = False
    rate: int = 0  #: bits a second; 0: not a policer
    burst: int = 0  #: in ticks


class OvsMember(NamedTuple):
    """One of the several Interface rows of a bond."""

    name: str
    ofport: int = 0  #: as that of OvsPort
    kind: str = ""  #: as that of OvsPort

    @property
    def internal(self) -> bool:
        """As that of OvsPort."""
        return self.kind == "internal"


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
    policing: int = 0  #: our limit of what comes in by it, kbit/s (ingress_policing_rate), 0 none; one of others is not shown
    burst: int = 0  #: of that, kbit
    shaping: int = 0  #: our limit of what goes out by it, bit/s (QoS), 0 none; one of others is not shown
    protected: bool = False  #: read only: it exchanges nothing with other ports that are
    kind: str = ""  #: read only: the type of its interface, such as "internal", "patch", "vxlan", "dpdk"; "" a device that was there
    members: tuple[OvsMember, ...] = ()  #: read only: of a bond, by name; told by ovs_bridge_ports, and where all ports are read
    peer: str = ""  #: read only: of a patch port, the one at its other end, on another bridge; told as ``members``

    @property
    def owner(self) -> str:
        """The NIC's UUID if the port bears our mark, else ""."""
        return dict(self.external_ids).get(OVS_MARK, "")

    @property
    def internal(self) -> bool:
        """Tell whether its device is made and held by vswitchd, or the kernel's datapath, for the node itself."""
        return self.kind == "internal"


class OvsBridge(NamedTuple):
    """A real bridge of Open vSwitch."""

    name: str
    controlled: bool = False  #: it has a controller, whose flows they are
    userspace: bool = False  #: vswitchd itself forwards its frames, not the kernel (datapath_type netdev)


class OvsShaper(NamedTuple):
    """A QoS row with our mark that no port uses."""

    port: str  #: the name of the port that it was made for
    owner: str


#: The first 24 bits of the cookie of a flow of ours; the other 40 are a NIC's (netcommon.operations.flows).
FLOW_MARK, FLOW_MARK_MASK = 0x6E6374 << 40, 0xFFFFFF << 40


class Flow(NamedTuple):
    """An OpenFlow flow; one of ours has our mark in its cookie."""

    bridge: str
    cookie: int
    port: int  #: the number of the port that it is for (in_port); 0 where it names none
    text: str  #: the rest of it as ovs-ofctl(8) prints it: "table=1,priority=7,arp actions=drop", without table where that is 0
    packets: int = 0  #: read only: how many it has met


#: The first line of a file of ours begins so; the NIC's UUID follows, then who is to be told of a change ("dnsmasq:/run/x.pid").
FILE_MARK = "# netcommon "


class File(NamedTuple):
    """A file in a folder in which we put files."""

    folder: str
    name: str
    content: str
    mode: int
    owner: str = ""  #: the UUID in its mark; "" where it bears none, or is no plain file
    reload: str = ""  #: who is told of a change, from the mark too: "PROGRAM:PIDFILE"

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"


class Daemon(NamedTuple):
    """A daemon that we run once for the whole node."""

    name: str
    pid: int
    options: tuple[str, ...]


class Counters(NamedTuple):
    """Of one device, as the node sees it: what a tap *receives*, its guest has sent. They never go back, but begin anew with the device."""

    received_packets: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    received_errors: int = 0
    sent_errors: int = 0
    received_dropped: int = 0
    sent_dropped: int = 0
