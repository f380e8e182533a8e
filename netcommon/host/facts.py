"""Facts about a host: plain immutable values, as both backends tell them.

Addresses are canonical text, families are socket.AF_INET (2) and AF_INET6 (10), interface indices are the kernel's (0: none).
"""

from __future__ import annotations

from typing import NamedTuple

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
