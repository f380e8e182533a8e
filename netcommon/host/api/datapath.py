"""Hold facts for whoever follows a frame: the kernel's answer to a question for a route, and how a device takes frames and hands them on.

No hook loads them; netcommon.host.api.facts has what hooks need.
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from runtime.typed import NamedTuple

#: Types of routes (RTN_*, linux/rtnetlink.h).
UNICAST, LOCAL, BROADCAST, ANYCAST, MULTICAST, BLACKHOLE, UNREACHABLE, PROHIBIT, THROW = range(1, 10)

#: States of a bridge port (BR_STATE_*, linux/if_bridge.h).
DISABLED, LISTENING, LEARNING, FORWARDING, BLOCKING = range(5)

#: Protocols above IP that the kernel takes in a question (rtm_getroute_parse_ip_proto()): ICMP, and TCP and UDP, which have ports.
WITH_PORTS = (6, 17)
ASKABLE = {AF_INET: (1, *WITH_PORTS), AF_INET6: (58, *WITH_PORTS)}


class Question(NamedTuple):
    """Ask where a packet goes. With ``iif`` the kernel decides as for one that comes in there, rp_filter and forwarding included."""

    family: int
    target: str
    source: str = ""  #: "": it has none
    iif: int = 0  #: index of the device it comes in by; 0: the node itself sends it
    mark: int = 0
    tos: int = 0
    protocol: int = 0  #: above IP, one of ASKABLE; another, or 0: the kernel takes one that it chooses itself
    source_port: int = 0
    target_port: int = 0


class Way(NamedTuple):
    """Say where it goes. ``errno``: why the kernel takes it nowhere; then nothing else is told."""

    errno: int = 0
    type: int = UNICAST  #: one of those above
    index: int = 0  # type: ignore[assignment]  #: output interface
    gateway: str = ""
    table: int = 0  #: 0: not told
    destination: str = ""  #: of the route, "10.0.0.0/8"; "" not told
    protocol: int = 0  #: of the route
    mtu: int = 0  #: that of the route; 0: the device's
    paths: tuple[int, ...] = ()  #: of a route with several, the output interfaces of all
    #: id of the nexthop by which it goes, where the kernel does not say by which of the routes that name it; then of no route
    nexthop: int = 0
    wrapped: bool = False  #: it is put into another packet, or handed to a program, by the route (ip-route(8), encap)


class Connection(NamedTuple):
    """Name a connection by what one packet of it has, as connection tracking does."""

    family: int
    source: str
    target: str
    protocol: int
    ports: tuple[int, int] = (0, 0)
    identifier: int = 0  #: of ICMP, as its type and its code
    kind: int = 0
    code: int = 0


class Transform(NamedTuple):
    """Describe a policy of IPsec: it drops packets that it is for, or puts them into others, or has them come so."""

    direction: str  #: "in": to the node; "fwd": by it; "out": from it, the forwarded included
    family: int
    source: str = ""  #: a network, "10.0.0.0/8"; "" any
    target: str = ""
    protocol: int = 0  #: above IP; 0 any
    mark: int = 0  #: of a packet, in the bits of ``mask``
    mask: int = 0


class PortState(NamedTuple):
    """Hold what Port does not tell of a port of a Linux bridge; without arguments as the kernel makes a new one."""

    state: int = FORWARDING
    hairpin: bool = False
    locked: bool = False
    bcast_flood: bool = True
    neigh_suppress: bool = False
    proxy_arp: bool = False
    proxy_arp_wifi: bool = False
    group_fwd_mask: int = 0
    backup: bool = False  #: another port takes what it cannot send for want of a carrier


class BridgeState(NamedTuple):
    """Tell how a Linux bridge forwards; without arguments as the kernel makes a new one."""

    stp: bool = False
    group_fwd_mask: int = 0
    snooping: bool = True
    querier: bool = False  #: it asks for members of groups itself, or hears somebody who does
    nf_call: tuple[bool, bool, bool] = (False, False, False)  #: it calls iptables, ip6tables, arptables by itself
    ageing: bool = True  #: it learns; False: entries would be of age at once (ageing_time 0), and are not made
    vlan_snooping: bool = False  #: each VLAN has groups of its own (mcast_vlan_snooping)
    mst: bool = False  #: each VLAN has a state by its tree (mst_enabled)
    local_vlan_0: bool = False  #: local addresses have one entry, without a VLAN, for all VLANs (fdb_local_vlan_0, since Linux 6.18)


class OvsForwarding(NamedTuple):
    """Tell how a real bridge of Open vSwitch takes frames on; without arguments as ovs-vswitchd makes a new one."""

    #: by the numbers of ports: words of their configuration, such as NO_RECV, NO_FWD (ovs-ofctl(8), mod-port)
    config: tuple[tuple[int, tuple[str, ...]], ...] = ()
    #: the numbers of the ports whose frames some flow takes on that is no spoof guard's, 0: of all; None: there are too many flows to tell
    taken: frozenset[int] | None = frozenset({0})
    #: by the numbers of ports: the match of a flow that is not ours and drops all that comes in there, before another takes any of it on
    dropped: tuple[tuple[int, str], ...] = ()


class DeviceState(NamedTuple):
    """Describe a network interface beyond Link."""

    carrier: bool = True
    xdp: bool = False  #: a program sees each frame before all else
    port: PortState | None = None
    bridge: BridgeState | None = None
    arp: bool = True  #: False: nobody asks or answers there (IFF_NOARP)
    promiscuous: bool = False  #: it hands up what is for others, too


class Upper(NamedTuple):
    """Describe a device that lies upon another one, and takes frames from it before anything else does."""

    name: str
    kind: str  #: one of UPPERS
    address: str = ""
    up: bool = True
    protocol: int = 0  #: VLAN interfaces only: the EtherType of their tag, and its VID
    vid: int = 0
    mode: int = 0  #: macvlan and macvtap only: one of those below
    elsewhere: bool = False  #: it is in another network namespace


#: Kinds of devices that take frames from the one that they lie upon (IFLA_LINK), and modes of macvlan (linux/if_link.h).
UPPERS = frozenset({"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"})
PASSTHRU, BY_SOURCE = 8, 16
