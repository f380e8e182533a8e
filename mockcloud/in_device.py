"""Hold how the device of a NIC is set, and what its bridge or its router does for it, against what is wanted of the NIC.

What must be so is derived from what docs/options.md, docs/routed.md and docs/vlan.md promise, and by nothing of the plan that made it.
"""

from __future__ import annotations

import struct
from socket import inet_pton
from typing import TYPE_CHECKING, Any

from mockcloud.wanted import OF_ADDRESSES, OF_GUARD
from netcommon.host.api.facts import AF_INET, AF_INET6, STATIC
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.wanted import Told, Wanted
    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import View

ARP, ARP_OUT = 3, 1  #: a family of nftables, and its hook of what is sent (linux/netfilter.h, linux/netfilter_arp.h)
ARP_TABLE, GATEWAYS = "netcommon-arp", "gateways"
BLACKHOLE = 6  #: RTN_BLACKHOLE (linux/rtnetlink.h)
OURS = 174  #: the number of netcommon among routing protocols
MAIN = 254
GATEWAY6, GATEWAY_LENGTH = "fe80::1", 64
OPENVSWITCH = "openvswitch"  #: the kind of a port of the kernel's datapath
REVERSE_PATH = {"off": "0", "strict": "1", "loose": "2"}  #: rp_filter (ip-sysctl.rst)
#: Options of a port of a bridge, and the kernel's names of them.
PORT = {"isolated": "isolated", "mcast_flood": "mcast_flood", "mcast_fast_leave": "fastleave", "mcast_to_unicast": "mcast_to_unicast"}


def of_device(view: View, wanted: Wanted, link: Link, nic: Mapping[str, Any], told: Told) -> Iterator[str]:
    """Say what is not so. ``nic``: as its guest was started with it; ``told``: what is said of its network."""
    yield from _of_addresses(view, link, nic["mode"])
    yield from _of_master(view, link, nic)
    yield from _of_answers(view, link, nic["mode"])
    if nic["mode"] == "routed":
        yield from _of_mac(wanted, link, nic["mac"])
        yield from _of_settings(view, wanted, link)
        yield from _of_gateway(view, wanted, link, told.gateway)
        yield from _of_gateway6(view, wanted, link, told.gateway6)
    elif nic["mode"] == "bridged":
        yield from _of_port(view, wanted, link)
        yield from _of_bridge(view, wanted, link, nic)


def table_of(view: View, name: str) -> int:
    """Give the number of the table that a routed NIC's LINK names; table main where it names none."""
    return view.table(name or "main") or MAIN


def blackholes(view: View) -> list[Route]:
    """Give the blackholes that netcommon has made."""
    return [each for family in (AF_INET, AF_INET6) for each in view.routes(family) if (each.type, each.protocol) == (BLACKHOLE, OURS)]


def _of_addresses(view: View, link: Link, mode: str) -> Iterator[str]:
    """Name each address of ours that a device should not have. The device of a routed NIC has its gateway's, of IPv6; no other has one."""
    for each in view.addresses(link.index):
        if each.protocol == OURS and (each.family == AF_INET or mode != "routed"):
            yield f"its device has the address {each.address}, which is not wanted"


def _of_master(view: View, link: Link, nic: Mapping[str, Any]) -> Iterator[str]:
    """A guest on no bridge has none of its frames there, and one that is on a bridge can send what that takes (docs/lifecycle.md)."""
    mode = nic["mode"]
    if link.master and (mode == "routed" or (mode == "openvswitch" and link.port_kind != OPENVSWITCH)):
        master = view.link_at(link.master)
        yield f"its device is a port of {master.name if master is not None else link.master}, which is not wanted"
    bridge = view.link(nic["link"]) if mode != "routed" else None
    if bridge is not None and link.mtu < bridge.mtu and (mode == "openvswitch" or link.master == bridge.index):
        yield f"the MTU of its device is {link.mtu}, and that of {bridge.name} {bridge.mtu}"


def _of_answers(view: View, link: Link, mode: str) -> Iterator[str]:
    """Name each address for which the node answers a guest by an entry of ours; those of its gateway of IPv6 are looked at elsewhere."""
    for family in (AF_INET, AF_INET6) if mode != "routed" else (AF_INET,):
        for each in view.neighbours(family, link.index):
            if each.protocol == OURS:
                yield f"the node answers it for {each.address}, which is not wanted"


# -- routed


def _of_mac(wanted: Wanted, link: Link, mac: str) -> Iterator[str]:
    """Without the option it is made of the guest's own MAC, and another one than that."""
    value = wanted.options.tap_mac or (("fa" if mac.startswith("fe") else "fe") + mac[2:] if mac else "")
    if value and link.address != value and "tap_mac" not in wanted.unsure:
        yield f"tap_mac = {shown('tap_mac', wanted.options.tap_mac)} is wanted, {value}, and its device has {link.address}"


def _of_settings(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
    """Expect what an option leaves alone as for a new device. Without an address of a family nothing is forwarded, or a guard drops it."""
    options, families = wanted.options, wanted.addresses.families
    every = options.spoof_guard or options.allow_ip_spoofing or options.allow_dhcp_spoofing
    settings: list[tuple[str, str, str | None]] = [
        ("rp_filter", "ipv4 rp_filter", REVERSE_PATH.get(options.rp_filter, view.sysctl("net/ipv4/conf/default/rp_filter"))),
        ("accept_local", "ipv4 accept_local", "1" if options.accept_local else view.sysctl("net/ipv4/conf/default/accept_local")),
    ]
    if not wanted.unsure & (OF_GUARD | OF_ADDRESSES):
        four, six = (every or family in families for family in (AF_INET, AF_INET6))
        settings += [("", "ipv4 forwarding", "1"), ("", "ipv4 proxy_arp", "1")] if four else [("", "ipv4 forwarding", "0")]
        settings += [("", "ipv6 forwarding", "1"), ("", "ipv6 proxy_ndp", "1")] if six else [("", "ipv6 disable_ipv6", "1")]
        settings += [("", "ipv6 disable_ipv6", "0")] if AF_INET6 in families else []
    for option, place, value in settings:
        family, name = place.split()
        has = view.sysctl(f"net/{family}/conf/{link.name}/{name}")
        if has not in (None, value) and option not in wanted.unsure:
            what = f"{option} = {shown(option, getattr(options, option))}" if option else f"{name} = {value} of {family}"
            yield f"{what} is wanted, and {name} of its device is {has}"


def _of_gateway(view: View, wanted: Wanted, link: Link, gateway: str) -> Iterator[str]:
    """The node asks the guest in the name of its gateway, where the network has one: by a map, and a rule that looks into it."""
    if "gateway_arp" in wanted.unsure:
        return
    key, there = struct.pack("=I", link.index), view.nft_table(ARP, ARP_TABLE) is not None
    elements = view.nft_elements(ARP, ARP_TABLE) if there else ()
    has = {each.value for each in elements if (each.set, each.key) == (GATEWAYS, key)}
    value = {inet_pton(AF_INET, gateway)} if wanted.options.gateway_arp and gateway else set[bytes]()
    if has != value:
        said = f"{shown('gateway_arp', wanted.options.gateway_arp)} is wanted, by {gateway or 'no gateway'}"
        yield f"gateway_arp = {said}, and {'another is' if has and value else 'something is' if has else 'not'} there"
    if value and not looks(view, ARP, ARP_TABLE, ARP_OUT, GATEWAYS):
        yield "gateway_arp = true is wanted, and no rule does it"


def looks(view: View, family: int, table: str, hook: int, name: str) -> bool:
    """Tell whether what passes a hook of the kernel's is looked for in a set of a table, by a rule of a chain there.

    The rules of a firewall profile are text on a simulated host.
    """
    there = view.nft_table(family, table)
    if there is None or there.dormant:
        return False
    chains = {each.name for each in view.nft_chains_of(family, table) if each.hook == hook}
    words = f"{name}\0".encode(), f"@{name} ".encode()
    return any(each.chain in chains and any(word in each.expressions for word in words) for each in view.nft_rules(family, table))


def _of_gateway6(view: View, wanted: Wanted, link: Link, gateway: str) -> Iterator[str]:
    """A link-local gateway is an address of the device; the node answers for another one, unless that is the guest itself."""
    if wanted.unsure & {"gateway_link_local", *OF_ADDRESSES}:
        return
    local = gateway.startswith(("fe8", "fe9", "fea", "feb"))
    six = AF_INET6 in wanted.addresses.families
    own = {name for name in (GATEWAY6 if wanted.options.gateway_link_local else "", gateway if local else "") if name and six}
    addresses = [each for each in view.addresses(link.index) if each.family == AF_INET6]
    for each in addresses:
        if each.address in own and (each.length != GATEWAY_LENGTH or each.deprecated):
            yield f"its gateway {each.address} is of /{each.length}{', and deprecated' if each.deprecated else ''}"
    has = {each.address: each.protocol for each in addresses}
    yield from (f"its gateway {name} is no address of its device" for name in sorted(own - has.keys()))
    if GATEWAY6 in has.keys() - own:
        yield f"gateway_link_local = false is wanted, and its device has the address {GATEWAY6}"
    more = {name for name, protocol in has.items() if protocol == OURS} - {*own, GATEWAY6}
    yield from (f"its device has the address {name}, which is not wanted" for name in sorted(more))
    entries = [each for each in view.neighbours(AF_INET6, link.index) if each.protocol == OURS]
    answered = {each.address for each in entries}
    expected = {gateway} - {*wanted.addresses.ipv6, *own, ""} if six else set[str]()
    yield from (f"nobody answers it for its gateway {name}" for name in sorted(expected - answered))
    yield from (f"the node answers it for {name}, which is no gateway of it" for name in sorted(answered - expected))
    yield from (f"the node answers it for {each.address} as for no router" for each in entries if not each.router)


# -- bridged


def _of_port(view: View, wanted: Wanted, link: Link) -> Iterator[str]:
    """Say what a port of a bridge does otherwise than is wanted."""
    port, options = view.port(link.index), wanted.options
    if port is None:
        return
    for name, field in PORT.items():
        value = getattr(options, name)
        if getattr(port, field) != value and name not in wanted.unsure:
            yield f"{name} = {shown(name, value)} is wanted, and its port does otherwise"
    router = options.allow_mcast_router or not options.spoof_guard
    if port.mcast_router != router and not wanted.unsure & {"allow_mcast_router", "spoof_guard"}:
        yield f"its port {'can become' if port.mcast_router else 'can not become'} one of a multicast router, which is not wanted"
    static = options.static_fdb
    if (port.learning, port.flood) != (not static, not static) and "static_fdb" not in wanted.unsure:
        yield f"static_fdb = {shown('static_fdb', static)} is wanted, and its port does otherwise"


def _of_bridge(view: View, wanted: Wanted, link: Link, nic: Mapping[str, Any]) -> Iterator[str]:
    """Say what VLANs its port has otherwise, and of the static entry of its MAC; of a bridge that it is not on nothing."""
    bridge = view.link(nic["link"])
    if bridge is None or bridge.index != link.master:
        return
    vids = {0}
    if bridge.vlan_filtering and "default_vlan" not in wanted.unsure:
        vlans = _vlans(wanted, bridge.default_pvid)
        has = {each.vid: (each.pvid, each.untagged) for each in view.vlans(link.index)}
        if has != vlans:
            yield f"VLANs {wanted.vlan or 'none'} are wanted, and its port has {', '.join(map(str, has)) or 'none'}, or otherwise tagged"
        ways = [each for each in view.ports(bridge.index) if each.kind != "tun"]
        for vid in wanted.vlan.vids:
            if ways and not any(vid in {each.vid for each in view.vlans(way.index)} for way in ways):
                yield f"VLAN {vid} is wanted, and ends at its bridge"
        vids = set(vlans)
    if "static_fdb" in wanted.unsure or not nic["mac"]:
        return
    for vid in sorted(vids):
        entry = view.fdb_entry(bridge.index, nic["mac"], vid)
        own = entry is not None and (entry.kind, entry.index) == (STATIC, link.index)
        if wanted.options.static_fdb and not (own and entry is not None and entry.sticky):
            there = f"{entry.kind}, and {'may move' if entry.index == link.index else 'of another port'}" if entry is not None else "gone"
            yield f"static_fdb = true is wanted, and the entry of {nic['mac']} in VLAN {vid} is {there}"
        elif own and not wanted.options.static_fdb:
            yield f"static_fdb = false is wanted, and {nic['mac']} has an entry in VLAN {vid}"


def _vlans(wanted: Wanted, default: int) -> dict[int, tuple[bool, bool]]:
    """Give the VLANs of a port, each with whether what comes in without a tag is in it, and whether what goes out in it has none."""
    access, trunks = wanted.vlan
    found = dict.fromkeys(trunks, (False, False)) | ({access: (True, True)} if access is not None else {})
    if default and (not found or wanted.options.default_vlan):
        found.setdefault(default, (access is None, True))
    return found
