"""Make a simulated host that has what the NICs of a copy are on: bridges, routing tables, switches, uplinks, folders of daemons."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from mockcloud.hardware import FORWARDING
from netcommon.host.api.facts import AF_INET, AF_INET6, Link, Route
from netcommon.host.linux.rt_tables import BUILT_IN
from netcommon.host.simulated.host import MemoryHost
from netcommon.options.types import is_interface

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mockcloud.rehearsal.copied import Copy, Hardware
    from netcommon.settings.model import Settings

PROCESS = 4242  #: what has the taps open
STATIC = 4  #: RTPROT_STATIC: what administrators make
MAIN = 254
MODES = ("bridged", "openvswitch", "routed")  #: of NICs that are on a link, in the order of the fields of Links


class Links(NamedTuple):
    """Hold what the NICs of a whole copy are on, by mode; where nodes have not said what they have, they have this."""

    bridges: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    tagged: frozenset[str] = frozenset()  #: bridges with a NIC that has VLANs: they filter them


def links_of(copy: Copy) -> Links:
    """Give what the NICs of a copy are on. What a routed NIC is on is a table, unless it is a bridge's name."""
    links: dict[str, set[str]] = {mode: set() for mode in MODES}
    tagged = set()
    for nic in copy.nics:
        if nic.link and nic.mode in links:
            links[nic.mode].add(nic.link)
            tagged |= {nic.link} if nic.mode == "bridged" and nic.vlan else set()
    tables = links["routed"] - links["bridged"]
    return Links(*map(frozenset, (links["bridged"], links["openvswitch"], tables, tagged)))


def made(number: int, links: Links, said: Hardware | None, settings: Iterable[Settings], system: bool = False) -> MemoryHost:
    """Make the host.

    ``number``: its network namespace; ``said``: what the node has, as far as it says it; ``settings``: those to serve; ``system``: its
    switches are of the kernel's datapath.
    """
    settings = tuple(settings)
    uplinks = {bridge: ports for each in settings for bridge, ports in each.uplinks.items()}
    bridges, switches, tables = (
        (links.bridges, links.switches, links.tables) if said is None else map(frozenset, (said[0], said[2], said[1]))
    )
    bridges |= frozenset(uplinks) if said is None else frozenset()
    if all(map(str.isdecimal, tables)):
        tables |= links.tables  # an older agent tells numbers alone, and never the names by which NICs call them
    named = sorted(table for table in tables if not table.isdecimal() and table not in BUILT_IN)
    # which number a table has no copy tells: low ones, so that a mark has room for them
    free = (each for each in count(1) if each not in BUILT_IN.values() and str(each) not in tables)
    host = MemoryHost(dict(zip(named, free, strict=False)), "rehearsal", number)
    for bridge in sorted(filter(is_interface, switches)):
        host.add_ovs_bridge(bridge, system)
    for place, bridge in enumerate(sorted(filter(is_interface, bridges - switches))):
        index = host.add_bridge(bridge, vlan_filtering=bridge in links.tagged).index
        for port in uplinks.get(bridge, (f"uplink{place}",)):
            if host.kernel.named(port) is None:
                host.add_link(Link(0, port, "", up=True, master=index))
    if host.kernel.named("uplink") is None:
        way = host.add_link(Link(0, "uplink", "", up=True)).index
        host.kernel.add_route(Route(AF_INET, MAIN, "0.0.0.0/0", way, STATIC, 0, "192.0.2.1"))
        host.kernel.add_route(Route(AF_INET6, MAIN, "::/0", way, STATIC, 0, "fe80::fe", 1024))
    for setting in FORWARDING:
        host.kernel.settings.write(f"net/{setting}", "1")
    host.files.folders |= {folder for each in settings for folder in each.folders}
    return host
