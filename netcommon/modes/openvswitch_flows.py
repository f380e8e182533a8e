"""OpenFlow flows of a NIC on Open vSwitch: the spoof guard's, and those of the site's templates (docs/openvswitch.md)."""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.flows import Flows, FlowsEnd
from netcommon.operations.guard.flows import GUARD
from netcommon.options.addresses import addresses_of, link_local
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from netcommon.options.model import Options
    from runtime.nic import Nic

#: vlan_tci of a frame with a tag (ovs-fields(7)): this bit, and the VID below it.
TAGGED, VID = 0x1000, 0xFFF


def flows(nic: Nic, options: Options) -> tuple[FlowsEnd, Flows]:
    """Before the port, and after it, which gives the number that the flows need. A site's template is called ovs/NAME.j2."""
    templates: tuple[str, ...] = (GUARD,) if options.spoof_guard else ()
    templates += tuple(f"ovs/{name}.j2" for name in options.flows)
    found = addresses_of(nic, options)
    free = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    ipv4, ipv6 = ((*found.hosts(family), *found.prefixes(family)) for family in (AF_INET, AF_INET6))
    truths = {
        "check_mac": bool(nic.mac) and not options.allow_mac_spoofing,
        "check_ipv4": bool(ipv4) and not free,
        "check_ipv6": bool(ipv6) and not free,
        "check_link_local": options.link_local == "eui64" and bool(nic.mac) and not free,
        "allow_dhcp_spoofing": options.allow_dhcp_spoofing,
        "allow_mcast_router": options.allow_mcast_router,
        "allow_restricted_traffic": options.allow_restricted_traffic,
    }
    words = {
        "uuid": nic.uuid,
        "device": nic.interface,
        "bridge": nic.link,
        "mac": nic.mac,
        "instance": nic.instance,
        "index": "" if nic.index is None else str(nic.index),
        "name": nic.name,
        "network": nic.network.name,
        **{name: "yes" if true else "" for name, true in truths.items()},
    }
    lists = {
        "ipv4": ipv4,
        "ipv6": ipv6,
        "link_local": (link_local(nic.mac),) if options.link_local == "eui64" and nic.mac else ("fe80::/10",),
        "vlans": tuple(masks(nic.vlan.trunks)),
        "tags": nic.tags,
    }
    made = Flows(nic.interface, nic.link, nic.uuid, templates, tuple(words.items()), tuple(lists.items()))
    return FlowsEnd(nic.interface, nic.link, nic.uuid), made


def masks(vids: Iterable[int]) -> Iterator[str]:
    """The VIDs as few values of vlan_tci with masks: a whole trunk would be thousands of flows."""
    left = sorted(set(vids))
    known = set(left)
    while left:
        size = 1
        while left[0] % (2 * size) == 0 and all(vid in known for vid in range(left[0], left[0] + 2 * size)):
            size *= 2
        yield f"{TAGGED | left[0]:#x}/{TAGGED | (VID & ~(size - 1)):#x}"
        left = left[size:]
