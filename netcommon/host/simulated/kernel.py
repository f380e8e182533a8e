"""The kernel of a simulated node: its objects, and what happens to one when another changes.

Held against the real one by the contract suite: each errno, and each cascade, is what Linux does.
"""

from __future__ import annotations

import errno

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Address, BridgeVlan, Link, Rule
from netcommon.host.simulated.events import ALTERED, GONE, MADE, LinkState, PortState, PortVlan, Setting, Telling
from netcommon.host.simulated.port import BridgePorts
from netcommon.host.simulated.sysctl import Settings
from netcommon.host.simulated.tc import TrafficControl
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.datapath import BridgeState
    from netcommon.host.api.facts import Counters, Neighbour, Route
    from netcommon.host.api.requests import SetLink

MAXIMUM_PORTS = 1023  #: of a bridge (BR_MAX_PORTS - 1)
MAIN, LOCAL = 254, 255
ETHERNET = 1500
SMALLEST_MTU, SMALLEST_IPV6 = 68, 1280
NO_ADDRESSES = "1"  #: of addr_gen_mode (ip-sysctl.rst)
WITHOUT_IPV6 = ("vrf",)  #: kinds of devices that make no address by themselves
LARGEST_MTU = {"tun": 65521}  #: of others 65535
LARGEST_ALIAS = 255
IPV6_METRIC = 1024
LOOPBACK = 1  #: the index of lo
FIRST_PVID = 1  #: of a bridge that is just made, whatever it is to have
VRF_PREFERENCE, OF_KERNEL = 1000, 2  #: of the rules that come with the first VRF (vrf_fib_rule); RTPROT_KERNEL
BLACKHOLE = 6  #: RTN_BLACKHOLE
NOWHERE = (BLACKHOLE, 7, 8)  #: and RTN_UNREACHABLE, RTN_PROHIBIT: no device leads there
NO_ADDRESS = "00:00:00:00:00:00"


class Refused(Exception):
    """The kernel's refusal."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(number, text)
        self.number, self.text = number, text


class Chosen(NamedTuple):
    """What was set on a bridge by hand, so that it does not follow the ports any more."""

    mtu: bool = False
    address: bool = False


class Kernel:
    """Links by index, and everything that hangs on them."""

    def __init__(self, tell: Telling) -> None:
        self.tell = tell
        self.links: dict[int, Link] = {1: Link(1, "lo", address=NO_ADDRESS, mtu=65536, up=True)}
        self.settings = Settings(self.index_of, self._set_by_hand)
        self.settings.add_device("lo")
        self.rules: list[Rule] = [
            Rule(AF_INET, 0, "", LOCAL, 2, False),
            Rule(AF_INET, 32766, "", MAIN, 2, False),
            Rule(AF_INET, 32767, "", 253, 2, False),
            Rule(AF_INET6, 0, "", LOCAL, 2, False),
            Rule(AF_INET6, 32766, "", MAIN, 2, False),
        ]
        self.routes: list[Route] = []
        self.neighbours: list[Neighbour] = []
        self.bridge_states: dict[int, BridgeState] = {}  #: of bridges that are not as the kernel makes them
        self.unanswered: set[tuple[int, int, str]] = set()  #: family, index and address of neighbours that do not answer
        self.counters: dict[int, Counters] = {}  #: what devices have carried, as a test says
        self.addresses: list[Address] = []
        self.has_vlans = True  #: bridges know VLANs (CONFIG_BRIDGE_VLAN_FILTERING)
        self.has_vrf_rules = False  #: there has been a VRF
        self.vlans: dict[int, dict[int, BridgeVlan]] = {}  #: of the ports of bridges, and of bridges themselves
        self.bridge_ports = BridgePorts(self)
        self.tc = TrafficControl(lambda index: index in self.links, tell)
        self._chosen: dict[int, Chosen] = {}
        self.assigned: set[int] = set()  #: the devices whose address somebody has given
        self.link_local: set[int] = set()  #: the devices that have an address of IPv6 which the kernel has made
        self._going = 0  #: the index of the device that is about to go
        self._next = 2

    def named(self, name: str) -> Link | None:
        for link in self.links.values():  # asked more often than all else together: a generator takes twice as long
            if link.name == name:
                return link
        return None

    def index_of(self, name: str) -> int:
        """0 where no device has the name."""
        link = self.named(name)
        return link.index if link else 0

    def at(self, index: int) -> Link:
        """The link. Raises Refused."""
        link = self.links.get(index)
        if link is None:
            raise Refused(errno.ENODEV if index > 0 else errno.EINVAL)
        return link

    def ports(self, bridge: int) -> list[Link]:
        return [link for link in self.links.values() if link.master == bridge]

    def add(self, link: Link, index: int = 0) -> Link:
        """A new device, under the next free index or the one that is asked for, with its settings."""
        made = link._replace(index=index or self._next, address=link.address or f"02:00:00:00:{self._next >> 8:02x}:{self._next & 255:02x}")
        self._next = max(self._next, index) + 1
        self.links[made.index] = made
        self.settings.add_device(made.name)
        if made.kind == "bridge":
            self._chosen[made.index] = Chosen(mtu=made.mtu != ETHERNET, address=bool(link.address))
        self.tell(MADE, Setting(made.index))
        self.put(made)
        if made.kind == "bridge":
            self._add_own_vlan(made)
        elif made.kind == "vrf":
            self._add_vrf_rules()
        return made

    def put(self, link: Link) -> Link:
        """A device is like ``link`` now. Nothing is told of one that is about to go."""
        self.links[link.index] = link
        if link.index != self._going:
            self.tell(ALTERED, LinkState(link, self.carrier(link)))
            self.make_link_local(link.index)
        return link

    def note(self, link: Link) -> None:
        """A device is like ``link`` now, in what the kernel tells only of devices that are up: others' alias and carrier are told later."""
        if link.up:
            self.put(link)
        else:
            self.links[link.index] = link

    def carrier(self, link: Link) -> bool:
        """Tell whether somebody is at the other end: of a tap its process, of a pair the other, of a bridge a port that is up."""
        if link.kind == "veth" and link.lower in self.links and not link.foreign_lower:
            return link.up and self.links[link.lower].up
        if link.kind == "bridge":
            return not link.up or any(port.up and self.carrier(port) for port in self.ports(link.index))
        return link.holders != 0

    def make_link_local(self, index: int) -> None:
        """A device that is up has an address of IPv6 by itself, while it has IPv6 (RFC 4862, 5.3); one that is down has none of IPv6."""
        link = self.links[index]
        wanted = link.up and index != LOOPBACK and link.kind not in WITHOUT_IPV6 and self._makes_addresses(link)
        if wanted and index not in self.link_local:
            self.link_local.add(index)
            self.tell(MADE, Address(AF_INET6, "", 64, index, 0))

    def _makes_addresses(self, link: Link) -> bool:
        mode = self.settings.get(f"net/ipv6/conf/{link.name}/addr_gen_mode")
        return mode != NO_ADDRESSES and self.has_ipv6(link) and self.carrier(link)

    def has_ipv6(self, link: Link) -> bool:
        return link.mtu >= SMALLEST_IPV6 and self.settings.get(f"net/ipv6/conf/{link.name}/disable_ipv6") != "1"

    def _lose_link_local(self, index: int) -> None:
        if index in self.link_local:
            self.link_local.discard(index)
            self.tell(GONE, Address(AF_INET6, "", 64, index, 0))

    def _set_by_hand(self, index: int, key: str) -> None:
        """Somebody has written a setting of a device."""
        if key != "disable_ipv6":
            self.tell(ALTERED, Setting(index))
        elif self.has_ipv6(self.links[index]):
            self.make_link_local(index)
        else:
            self._lose_ipv6(index)

    def remove(self, index: int) -> None:
        """Destroys a device: its bridge port, VLANs, routes, proxy neighbours and settings go, rules that name it stay."""
        link = self.links[index]
        if link.up:
            self.put(link._replace(up=False))
        self._going = index
        self._cut(index)
        for port in self.ports(index):
            self._leave(port)
        if link.master:
            self._leave(self.links[index])
        self._leave_vlans(index)
        link, self._going = self.links.pop(index), 0
        self.assigned.discard(index)
        self._drop_addresses(lambda address: address.index == index)
        self.tc.forget(index)
        self.settings.remove_device(link.name)
        self.tell(GONE, LinkState(link, False))
        for other in list(self.links.values()):
            if other.lower == index and not other.foreign_lower:
                self.remove(other.index)

    def rename(self, index: int, name: str) -> None:
        self.settings.rename_device(self.links[index].name, name)
        self.put(self.links[index]._replace(name=name))
        self.tell(ALTERED, Setting(index))

    def set_link(self, change: SetLink) -> None:
        """Does all of it or, where Linux refuses a part, what comes before that. Raises Refused."""
        link = self.at(change.index)
        if change.alias is not None and len(change.alias.encode("utf-8", "surrogateescape")) > LARGEST_ALIAS:
            raise Refused(errno.ERANGE, "Attribute failed policy validation")
        if change.address is not None:
            self._set_address(link, change.address)
        if change.mtu is not None:
            self._set_mtu(self.at(change.index), change.mtu)
        if change.alias is not None:
            self.note(self.at(link.index)._replace(alias=change.alias))
        if change.master is not None:
            self._set_master(self.at(change.index), change.master)
        if change.up is not None:
            if not change.up:
                self._cut(link.index)
            self.put(self.at(link.index)._replace(up=change.up))
            self._carry(self.at(link.index))

    def _carry(self, link: Link) -> None:
        """A device went up or down: whoever has a carrier by it may have none now."""
        other = self.links.get(link.lower) if link.kind == "veth" and not link.foreign_lower else None
        if other is not None and other.up:
            self.put(other)
            self._follow(other.master)
        self._follow(link.master)
        self.tell_port(link.index)

    def _cut(self, index: int) -> None:
        """A device that goes down loses its routes, its proxy neighbours and its IPv6 addresses. Of routes of IPv4 nothing is told then."""
        self._lose_ipv6(index)
        self.routes = [route for route in self.routes if route.index != index]
        self.neighbours = [neighbour for neighbour in self.neighbours if neighbour.index != index]

    def _lose_ipv6(self, index: int) -> None:
        for route in self.routes:
            if route.index == index and route.family == AF_INET6:
                self.tell(GONE, route)
        self.routes = [route for route in self.routes if route.index != index or route.family == AF_INET]
        self._lose_link_local(index)
        self._drop_addresses(lambda address: address.index == index and address.family == AF_INET6)

    def _drop_addresses(self, gone: Callable[[Address], bool]) -> None:
        for address in filter(gone, self.addresses):
            self.tell(GONE, address)
        self.addresses = [address for address in self.addresses if not gone(address)]

    def _set_address(self, link: Link, address: str) -> None:
        if int(address[:2], 16) & 1 or address == NO_ADDRESS:
            raise Refused(errno.EADDRNOTAVAIL)
        self.put(link._replace(address=address.lower()))
        self.assigned.add(link.index)
        if link.kind == "bridge":
            self._chosen[link.index] = self._chosen[link.index]._replace(address=True)
        self._follow(link.master)
        self.tell_port(link.index)

    def _set_mtu(self, link: Link, mtu: int) -> None:
        if mtu < SMALLEST_MTU:
            raise Refused(errno.EINVAL, "mtu less than device minimum")
        if mtu > LARGEST_MTU.get(link.kind, 65535):
            raise Refused(errno.EINVAL, "mtu greater than device maximum")
        if link.mtu >= SMALLEST_IPV6 > mtu:
            self._lose_ipv6(link.index)
        self.put(link._replace(mtu=mtu))
        if mtu >= SMALLEST_IPV6 > link.mtu:
            self.tell(MADE, Setting(link.index))
        if link.kind == "bridge":
            self._chosen[link.index] = self._chosen[link.index]._replace(mtu=True)
        self._follow(link.master)

    def _set_master(self, link: Link, master: int) -> None:
        if link.master == master:
            return
        if link.master:
            self._leave(link)
        if not master:
            return
        bridge = self.links.get(master)
        if bridge is None or link.name == "lo":
            raise Refused(errno.EINVAL)
        if bridge.kind == "vrf":
            self._cut(link.index)  # Linux takes it down and up
            self.put(self.links[link.index]._replace(master=master, port_kind="vrf"))
            return
        if bridge.kind != "bridge":
            raise Refused(errno.EOPNOTSUPP)
        if link.kind == "bridge":
            raise Refused(errno.ELOOP, "Can not enslave a bridge to a bridge")
        if len(self.ports(master)) >= MAXIMUM_PORTS:
            raise Refused(errno.EXFULL)
        self.put(self.links[link.index]._replace(master=master, port_kind="bridge"))
        self._join_default_vlan(link.index, bridge.default_pvid)
        self._follow(master)
        self.tell_port(link.index)

    def _leave(self, link: Link) -> None:
        """Takes the link out of its bridge."""
        if link.port_kind == "bridge":
            self.tell_port(link.index)
            self.tell(GONE, PortState(link.index))
        self._leave_vlans(link.index)
        self.put(self.links[link.index]._replace(master=0, port_kind=""))
        self.bridge_ports.forget(link.index)
        self._follow(link.master)

    def _follow(self, index: int) -> None:
        """A bridge takes its ports' smallest MTU and lowest address, unless its own were set."""
        bridge = self.links.get(index)
        if bridge is None or bridge.kind != "bridge":
            return
        ports, chosen = self.ports(index), self._chosen[index]
        if not chosen.mtu:
            bridge = bridge._replace(mtu=min((port.mtu for port in ports), default=ETHERNET))
        if not chosen.address:
            bridge = bridge._replace(address=min((port.address for port in ports), default=NO_ADDRESS))
        self.put(bridge)

    def tell_port(self, index: int) -> None:
        """Tell that a device may have changed as a bridge's port, if it is one."""
        if not self.bridge_ports.port(index):
            return
        link, vlans = self.links[index], tuple(sorted(self.vlans.get(index, {}).values()))
        self.tell(ALTERED, PortState(index, link.master, self.bridge_ports.port(index), vlans, self.links[link.master].address))

    def _add_vrf_rules(self) -> None:
        """Add the rules that look up the table of a packet's VRF: they come with the first VRF, and stay."""
        if self.has_vrf_rules:
            return
        self.has_vrf_rules = True
        for family in (AF_INET, AF_INET6):
            rule = Rule(family, VRF_PREFERENCE, "", 0, OF_KERNEL, plain=False, narrowed=True, more=True)
            if rule not in self.rules:
                self.add_rule(rule)

    def add_rule(self, rule: Rule) -> None:
        if rule in self.rules:
            raise Refused(errno.EEXIST)
        if len(rule.iif.encode("utf-8", "surrogateescape")) > 15:
            raise Refused(errno.ERANGE)
        later = (place for place, other in enumerate(self.rules) if (other.family, other.preference) > (rule.family, rule.preference))
        self.rules.insert(next(later, len(self.rules)), rule)
        self.tell(MADE, rule)

    def delete_rule(self, rule: Rule) -> None:
        """The first that fits: the kernel compares what it was told, so one with more selectors fits too."""
        for place, other in enumerate(self.rules):
            if other._replace(plain=True) == rule._replace(plain=True):
                del self.rules[place]
                self.tell(GONE, other)
                return
        raise Refused(errno.ENOENT)

    def add_route(self, route: Route, new: bool = False) -> None:
        """Adds or replaces (``new``: one of ours alone); ``route`` as the kernel will show it (``shown``)."""
        if route.type not in NOWHERE:
            self._check_way(route)
        for place, other in enumerate(self.routes):
            if route_key(other) == route_key(route):
                if new and other.protocol != PROTOCOL:
                    raise Refused(errno.EEXIST)
                self.routes[place] = route
                self.tell(ALTERED, route)
                return
        self.routes.append(route)
        self.tell(MADE, route)

    def _check_way(self, route: Route) -> None:
        link = self.links.get(route.index)
        if link is None:
            raise Refused(errno.ENODEV)
        if route.family == AF_INET6 and self.settings.get(f"net/ipv6/conf/{link.name}/disable_ipv6") == "1":
            raise Refused(errno.EACCES, "IPv6 is disabled on nexthop device")
        if not link.up:
            raise Refused(errno.ENETDOWN, "Device for nexthop is not up" if route.family == AF_INET else "Nexthop device is not up")

    def delete_route(self, route: Route) -> None:
        for place, other in enumerate(self.routes):
            metric = route.metric if route.metric else other.metric
            if other._replace(gateway="") == route._replace(gateway="", metric=metric) and route.gateway in ("", other.gateway):
                del self.routes[place]
                self.tell(GONE, other)
                return
        raise Refused(errno.ESRCH)

    def add_neighbour(self, neighbour: Neighbour) -> None:
        """Adds one, or restamps the one that is there."""
        self.at(neighbour.index)
        self._forget(neighbour)
        self.neighbours.append(neighbour)

    def delete_neighbour(self, neighbour: Neighbour) -> None:
        """Whatever its protocol."""
        self.at(neighbour.index)
        if not self._forget(neighbour):
            raise Refused(errno.ENOENT)

    def _forget(self, neighbour: Neighbour) -> bool:
        kept = [other for other in self.neighbours if other[:3] != neighbour[:3]]
        found = len(kept) < len(self.neighbours)
        self.neighbours = kept
        return found

    def add_vlan(self, index: int, vlan: BridgeVlan) -> None:
        port = self._bridge_port(index)
        if not 1 <= vlan.vid <= 4094:
            raise Refused(errno.EINVAL)
        if port.get(vlan.vid) == vlan:  # nothing is told of what is no change
            return
        if vlan.pvid:
            for vid, other in port.items():
                port[vid] = other._replace(pvid=False)
        port[vlan.vid] = vlan
        self.tell(MADE, PortVlan(index, vlan))
        self.tell_port(index)

    def delete_vlan(self, index: int, vid: int) -> None:
        port = self._bridge_port(index)
        if not 1 <= vid <= 4094:
            raise Refused(errno.EINVAL)
        gone = port.pop(vid, None)
        if gone is not None:
            self.tell(GONE, PortVlan(index, gone))
            self.tell_port(index)

    def _add_own_vlan(self, bridge: Link) -> None:
        """Put a new bridge into its default VLAN, and before that into the first one: what it is to have is set when it is there."""
        self._join_default_vlan(bridge.index, FIRST_PVID)
        if bridge.default_pvid != FIRST_PVID:
            self._leave_vlans(bridge.index)
            self._join_default_vlan(bridge.index, bridge.default_pvid)

    def _join_default_vlan(self, index: int, vid: int) -> None:
        """Put a bridge or a new port of it into the default VLAN; 0: into none."""
        if self.has_vlans:
            made = self.vlans[index] = {vid: BridgeVlan(vid, pvid=True, untagged=True)} if vid else {}
            self._tell_vlans(MADE, index, made)

    def _leave_vlans(self, index: int) -> None:
        self._tell_vlans(GONE, index, self.vlans.pop(index, {}))

    def _tell_vlans(self, how: str, index: int, vlans: dict[int, BridgeVlan]) -> None:
        for vlan in vlans.values():
            self.tell(how, PortVlan(index, vlan))

    def _bridge_port(self, index: int) -> dict[int, BridgeVlan]:
        if index not in self.links:
            raise Refused(errno.ENODEV, "unknown ifindex")
        if index not in self.vlans or self.links[index].kind == "bridge":
            raise Refused(errno.EOPNOTSUPP)
        return self.vlans[index]


def route_key(route: Route) -> tuple[int, int, str, int]:
    """What there is one route of."""
    return route.family, route.table, route.destination, route.metric
