"""The spoof guard's flows as our own template makes them (templates/ovs/spoof-guard.j2), without jinja2 and ovs-ofctl.

To load jinja2, have it compile the template, and ask ovs-ofctl what it made takes a hook 100 ms. So what our template says is said here
again, each flow as Open vSwitch prints it, and a test holds that both are the same, character by character. The template is what a
site copies to change; where it has, jinja2 makes the flows.
"""

from __future__ import annotations

from runtime.names import digest
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netcommon.host.api.host import View

    #: The name under which what a flow drops is counted, "" for none, and the flow.
    Named = tuple[str, str]

#: The template.
GUARD = "ovs/spoof-guard.j2"
#: SHA-256 of the template that this follows.
FOLLOWED = "61932cacc683ff1f7648c7b0361e500d040932dc3143fab81814415c90b63933"

LINK_LOCAL = "fe80::/10"
#: The ports or the type of a first fragment go where a flow can match them, and from there again; netcommon.host.ovs.openflow_codec writes
#: these.
PORTS = "move:NXM_OF_UDP_SRC[]->NXM_NX_REG14[0..15],move:NXM_OF_UDP_DST[]->NXM_NX_REG14[16..31],"
TYPE = "move:NXM_NX_ICMPV6_TYPE[]->NXM_NX_REG14[0..7],"
CLEARED = "load:0->NXM_NX_REG14[],"
NO_ADDRESS = "0.0.0.0"  # noqa: S104 - what a guest without an address sends from, as the template says
ALL_OF_TCI = 0x1FFF


def guard_flows(words: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> Iterator[Named]:
    """The flows for what a template is given (see Flows), in the template's order."""
    yield from _tags(lists["vlans"])
    yield from _sources(words["mac"] if words["check_mac"] else "")
    yield from _messages(words)
    yield from _fragments(words)
    yield from _targets(words, lists)
    yield from _senders(words, lists)


def _flow(priority: int, state: int, protocol: str = "", *fields: str, to: int = -1, first: str = "") -> str:
    """Make a flow for frames in ``state`` that drops them, or does ``first`` and takes them to the state ``to``."""
    at = f"reg13={state * 0x20000000:#x}/0xe0000000" if state else "reg13=0/0xe0000000"
    match = ",".join(filter(None, (f"priority={priority}", protocol, at, *fields)))
    return f"{match} actions=" + (f"{first}load:{to:#x}->NXM_NX_REG13[29..31],resubmit(,0)" if to >= 0 else "drop")


def _tags(vlans: Sequence[str]) -> Iterator[Named]:
    yield "", _flow(65010, 0, "", "vlan_tci=0x0000/0x1000", to=1)
    for tci in vlans:
        value, mask = (int(part, 16) for part in tci.split("/"))
        yield "", _flow(65010, 0, "", f"dl_vlan={value & 0xFFF}" if mask == ALL_OF_TCI else f"vlan_tci={value:#06x}/{mask:#06x}", to=1)
    yield "vlan", _flow(65000, 0)
    for ethertype in ("0x8100", "0x88a8"):
        yield "vlan", _flow(65020, 0, "", f"dl_type={ethertype}")


def _sources(mac: str) -> Iterator[Named]:
    if mac:
        yield "", _flow(65010, 1, "", f"dl_src={mac}", to=2)
        yield "mac", _flow(65000, 1)
    else:
        yield "", _flow(65000, 1, to=2)


def _messages(words: Mapping[str, str]) -> Iterator[Named]:
    if not words["allow_dhcp_spoofing"]:
        for protocol, server, client in (("udp", 67, 68), ("udp6", 547, 546)):
            yield "dhcp", _flow(65040, 2, protocol, f"tp_src={server}")
            yield "dhcp", _flow(65040, 2, protocol, f"tp_dst={client}")
        for kind in (134, 137):
            yield "ra", _flow(65040, 2, "icmp6", f"icmp_type={kind}")
    for protocol in ("udp", "udp6"):
        yield "", _flow(65045, 2, protocol, "nw_frag=first", to=5, first=PORTS)
    if not words["allow_mcast_router"]:
        yield "query", _flow(65040, 2, "ip", "nw_dst=224.0.0.1", "nw_proto=2")
        yield "query", _flow(65040, 2, "icmp6", "icmp_type=130")
        yield "", _flow(65045, 2, "icmp6", "nw_frag=first", to=5, first=TYPE)
    if not words["in_front"]:
        for protocol in ("ipv6", "ip"):
            yield "malformed", _flow(65040, 2, protocol, "nw_proto=0")
        for protocol in ("udp", "udp6"):
            yield "malformed", _flow(65040, 2, protocol, "nw_frag=no", "tp_src=0", "tp_dst=0")
    for header in (135, 139, 140):
        yield "malformed", _flow(65040, 2, "ipv6", f"nw_proto={header}")
    if words["check_mac"] or words["check_ipv4"]:
        yield "malformed", _flow(65040, 2, "arp", "arp_op=0")
    yield "malformed", _flow(65050, 2, "icmp6", "nw_ttl=255", "nw_frag=first")
    if words["check_mac"]:
        for kind, option, after in ((135, "nd_sll", 3), (136, "nd_tll", 4)):
            one = (f"icmp_type={kind}", "icmp_code=0")
            yield "mac", _flow(65030, 2, "icmp6", *one, "nd_target=::")
            for mac in (words["mac"], "00:00:00:00:00:00"):
                yield "", _flow(65020, 2, "icmp6", *one, f"{option}={mac}", to=after)
            yield "mac", _flow(65010, 2, "icmp6", f"icmp_type={kind}")
    elif words["check_ipv6"] or words["check_link_local"]:
        yield "", _flow(65010, 2, "icmp6", "icmp_type=136", to=4)
    yield "", _flow(65000, 2, to=3)


def _fragments(words: Mapping[str, str]) -> Iterator[Named]:
    if not words["allow_dhcp_spoofing"]:
        for protocol, source, destinations in (("udp", 67, (67, 68)), ("udp6", 547, (546,))):
            yield "dhcp", _flow(65010, 5, protocol, f"reg14={source:#x}/0xffff")
            for port in destinations:
                yield "dhcp", _flow(65010, 5, protocol, f"reg14={port << 16:#x}/0xffff0000")
    if not words["allow_mcast_router"]:
        yield "query", _flow(65010, 5, "icmp6", "reg14=0x82")
    if not words["in_front"]:
        yield "malformed", _flow(65010, 5, "", "reg14=0")
    yield "", _flow(65000, 5, to=3, first=CLEARED)


def _targets(words: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> Iterator[Named]:
    if not words["check_ipv6"] and not words["check_link_local"]:
        yield "", _flow(65000, 4, to=3)
        return
    one = ("icmp6", "icmp_type=136", "icmp_code=0")
    hidden = ("::",)  #: the target of an advertisement that is cut off
    free = hidden if words["in_front"] and words["check_ipv6"] else ()
    for address in (*(lists["ipv6"] if words["check_ipv6"] else ()), *lists["link_local"], *free):
        yield "", _flow(65010, 4, *one, f"nd_target={address}", to=3)
    if not words["check_ipv6"]:
        for address in (LINK_LOCAL, *(() if words["in_front"] else hidden)):
            yield "ip", _flow(65007, 4, *one, f"nd_target={address}")
        yield "", _flow(65005, 4, *one, to=3)
    yield "ip", _flow(65000, 4)


def _senders(words: Mapping[str, str], lists: Mapping[str, Sequence[str]]) -> Iterator[Named]:
    mac = words["mac"] if words["check_mac"] else ""
    sender = (f"arp_sha={mac}",) if mac else ()
    if words["check_ipv4"]:
        for address in (NO_ADDRESS, *lists["ipv4"]):
            yield "", _flow(65010, 3, "arp", f"arp_spa={address}", *sender, to=7)
            yield "", _flow(65010, 3, "ip", f"nw_src={address}", to=7)
        yield "ip", _flow(65007, 3, "arp", *sender)
        yield "ip", _flow(65005, 3, "ip")
    else:
        yield "", _flow(65010, 3, "arp", *sender, to=7)
        yield "", _flow(65010, 3, "ip", to=7)
    if mac:
        yield "mac", _flow(65005, 3, "arp")
    if words["check_ipv6"] or words["check_link_local"]:
        for address in (*(("::", *lists["ipv6"]) if words["check_ipv6"] else ()), *lists["link_local"]):
            yield "", _flow(65010, 3, "ipv6", f"ipv6_src={address}", to=7)
    if words["check_ipv6"]:
        yield "ip", _flow(65005, 3, "ipv6")
    elif words["check_link_local"]:
        yield "ip", _flow(65007, 3, "ipv6", f"ipv6_src={LINK_LOCAL}")
        yield "", _flow(65005, 3, "ipv6", to=7)
    else:
        yield "", _flow(65010, 3, "ipv6", to=7)
    if words["mac"]:
        own = (f"arp_sha={words['mac']}", f"arp_tha={words['mac']}")
        yield "", _flow(65010, 3, "rarp", "arp_spa=0.0.0.0", "arp_tpa=0.0.0.0", "arp_op=3", *own, to=7)
    if words["allow_restricted_traffic"]:
        yield "", _flow(65000, 3, to=7)
    else:
        yield "type", _flow(65000, 3)


def unchanged(template: str) -> bool:
    """Tell whether a text of the guard's template is the shipped one."""
    return digest(template).hex() == FOLLOWED


def in_front(view: View, bridge: str) -> bool:
    """Tell whether frames meet the guard of nftables before a bridge of Open vSwitch.

    They do where the kernel forwards for it. Where a site has a template of its own for the flows, that alone says what passes.
    Of a bridge that is not there just now nothing can be told: a guard that stands in front of it stays there.
    """
    switch = view.ovs_switch(bridge)
    return not (switch is not None and switch.userspace) and unchanged(view.template(GUARD))
