"""Hold a port of Open vSwitch against what is wanted of its NIC: its VLANs, identifiers, rates, and the flows of its spoof guard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mockcloud.wanted import OF_GUARD
from netcommon.host.api.facts import FLOW_MARK, FLOW_MARK_MASK
from netcommon.options.addresses import link_local
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mockcloud.wanted import Wanted
    from netcommon.host.api.facts import Flow, OvsPort
    from netcommon.host.api.host import View

#: vlan_mode by whether a port has VLANs without a tag, and with one (ovs-vswitchd.conf.db(5)).
MODES = {(False, False): "", (True, False): "access", (False, True): "trunk", (True, True): "native-untagged"}
IDS = frozenset({"attached-mac", "iface-id", "iface-status", "vm-uuid"})  #: by which others know the guest behind a port
FRAME, SHARE = 524, 10  #: kbit: what a guest hands over as one frame, 64 KiB; a policer drops what is longer than its burst
GUARDED = 65000  #: the lowest priority of a guard's flows, which are all in table 0 (docs/openvswitch.md)
PRIORITY, TABLE = re.compile(r"\bpriority=([0-9]+)", re.ASCII), re.compile(r"\btable=([0-9]+)", re.ASCII)
KBIT = 1000  #: Open vSwitch counts what a guest sends in these
ANYBODY = {"::", "0.0.0.0", "fe80::/10"}  # noqa: S104 - senders that each guest may be, as the guard knows them
DROPS = " actions=drop"
#: What is dropped unless an option lets it pass: messages of DHCP servers and routers, and queries for the members of groups.
SIGNS = {
    "allow_dhcp_spoofing": {"tp_src=67", "tp_dst=68", "tp_src=547", "tp_dst=546", "icmp_type=134", "icmp_type=137"},
    "allow_mcast_router": {"icmp_type=130", "nw_dst=224.0.0.1"},
}
#: A guard goes step by step; what it says of one, of the next one, and of all that is at a step (docs/openvswitch.md).
STEP, NEXT = re.compile(r"\breg13=(\w+)/0xe0000000", re.ASCII), re.compile(r"\bload:(\w+)->NXM_NX_REG13\[29\.\.31\]", re.ASCII)
ALL = re.compile(r"priority=[0-9]+,reg13=\w+/0xe0000000 actions=.*", re.ASCII)
STEPS = 29  #: the lowest bit that tells the step
MAC, IPV4, IPV6, ARP, TARGET = (
    re.compile(rf"\b{field}=([0-9a-f:./]+)", re.ASCII) for field in ("dl_src", "nw_src", "ipv6_src", "arp_spa", "nd_target")
)
#: What a flow of a guard does that does not drop: it leads to a step, and nowhere else.
ON = re.compile(r"(?:(?:move|load):[^,]+,)*load:\w+->NXM_NX_REG13\[29\.\.31\],resubmit\(,0\)", re.ASCII)
UNTAGGED = "vlan_tci=0x0000/0x1000"
VLANS = 1 << 12
VID, TCI = re.compile(r"\bdl_vlan=([0-9]+)", re.ASCII), re.compile(r"\bvlan_tci=(0x1[0-9a-f]{3})/(0x1[0-9a-f]{3})", re.ASCII)
#: By what a sender is known, by how a flow names what is sent; what else there is has no such name.
SENDERS = dict.fromkeys(("ip", "icmp", "tcp", "udp", "sctp"), "nw_src") | {"arp": "arp_spa", "rarp": "arp_sha"}
SENDERS |= dict.fromkeys(("ipv6", "icmp6", "tcp6", "udp6", "sctp6"), "ipv6_src")


def of_switch(view: View, wanted: Wanted, port: OvsPort, nic: Mapping[str, Any]) -> Iterator[str]:
    """Say what is not so of a port that is there. ``nic``: as its guest was started with it."""
    options = wanted.options
    if (port.tag, sorted(port.trunks)) != (wanted.vlan.access, sorted(wanted.vlan.trunks)):
        yield f"VLANs {wanted.vlan or 'none'} are wanted, and its port has tag {port.tag} and trunks {[*port.trunks]}"
    vlan_mode = MODES[wanted.vlan.access is not None, bool(wanted.vlan.trunks)]
    if port.vlan_mode != vlan_mode:
        yield f"its port has the vlan_mode {port.vlan_mode or 'none'}, and {vlan_mode or 'none'} is wanted"
    if port.error or port.ofport < 1:
        yield f"Open vSwitch does not have its device: {port.error or 'without a number'}"
    ids, owner = dict(port.interface_ids), {"iface-id": nic["uuid"], "iface-status": "active"}
    owner |= {name: value for name, value in (("attached-mac", nic["mac"]), ("vm-uuid", nic["instance"])) if value}
    if port.owner != nic["uuid"] or {name: ids[name] for name in ids if name in IDS} != owner:
        yield f"its port says that it is of {port.owner}, {ids}"
    if not dict(port.external_ids).get("netcommon-instance", "").startswith(nic["instance"]):
        yield f"its port says that it is of another guest than {nic['instance']}"
    if port.policing and port.burst < max(FRAME, port.policing // SHARE):
        yield f"its port takes {port.burst} kbit at once, and more is sent as one frame, or in a tenth of a second"
    rates = {"rate_in": (port.shaping, options.rate_in // KBIT * KBIT), "rate_out": (port.policing, options.rate_out // KBIT)}
    for name, (has, value) in rates.items():
        if has != value and name not in wanted.unsure:
            yield f"{name} = {shown(name, getattr(options, name))} is wanted, and its port has {has or 'none'}"
    if not wanted.unsure & {*OF_GUARD, "flows"}:
        flows = [each for each in view.flows_from(port.bridge, port.ofport) if each.cookie & FLOW_MARK_MASK == FLOW_MARK]
        of_guard = [each for each in flows if _of_the_guard(each.text)]
        yield from _of_flows(of_guard, wanted, nic["mac"])
        if bool(options.flows) != (len(flows) > len(of_guard)):
            yield f"flows = {shown('flows', options.flows)} is wanted, and {'not' if options.flows else 'something is'} there"


def _of_the_guard(text: str) -> bool:
    table, priority = TABLE.search(text), PRIORITY.search(text)
    return (table is None or table[1] == "0") and priority is not None and int(priority[1]) >= GUARDED


def _of_flows(flows: Sequence[Flow], wanted: Wanted, mac: str) -> Iterator[str]:
    """Say what the flows of a guard let pass that they should not, or do not let pass that they should."""
    options, known = wanted.options, wanted.addresses
    if not options.spoof_guard:
        if flows:
            yield f"spoof_guard = false is wanted, and {len(flows)} flows are there"
        return
    if not flows:
        yield "spoof_guard = true is wanted, and no flow is there"
        return
    dropped = {word for each in flows if each.text.endswith(DROPS) for word in each.text.removesuffix(DROPS).split(",")}
    for name, signs in SIGNS.items():
        if signs - dropped if not getattr(options, name) else signs & dropped:
            yield f"{name} = {shown(name, getattr(options, name))} is wanted, and its flows do otherwise"
    yield from _of_steps([each.text for each in flows], options.allow_restricted_traffic)
    anything = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    yield from _of_passing([each.text for each in flows], wanted, anything)
    passing = [each.text for each in flows if not each.text.endswith(DROPS)]
    of_link = link_local(mac) if mac else ""
    for field, expression, own in (
        ("MAC", MAC, [mac] if mac and not options.allow_mac_spoofing else []),
        ("address of IPv4", IPV4, [] if anything else [*known.ipv4, *known.prefixes4]),
        ("sender of ARP", ARP, [] if anything else [*known.ipv4, *known.prefixes4]),
        ("address of IPv6", IPV6, [] if anything else [*known.ipv6, *known.prefixes6]),
        ("target of an advertisement", TARGET, [] if anything else [*known.ipv6, *known.prefixes6]),
    ):
        found = {one for text in passing for one in expression.findall(text)} - ANYBODY - {of_link}
        if found != {*own} - {of_link}:
            yield f"its flows know another {field}: {', '.join(sorted(found)) or 'none'}"


def _of_steps(flows: Sequence[str], anything: bool) -> Iterator[str]:
    """Say of which step of a guard nothing is done with what no other flow takes: the bridge's own flows would take that for checked.

    It passes after the last step alone, of which there is no flow. It is dropped at the first step, where what has a strange VLAN is left
    over, where senders are compared, and before the last step, unless all types may pass (``anything``).
    """
    steps: dict[int, list[str]] = {}
    for text in flows:
        if (found := STEP.search(text)) is not None:
            steps.setdefault(int(found[1], 0) >> STEPS, []).append(text)
    ends = {int(each, 0) for text in flows for each in NEXT.findall(text)} - steps.keys()
    if len(ends) != 1 or 0 not in steps:
        yield f"its flows go from {'the first step' if 0 in steps else 'no step'} to {len(ends)} last ones"
    for step, texts in sorted(steps.items()):
        rest = [text for text in texts if ALL.fullmatch(text)]
        last = any(int(each, 0) in ends for text in texts for each in NEXT.findall(text))
        dropped = {text.endswith(DROPS) for text in rest}
        if not rest:
            yield f"of its flows none takes the rest of step {step}"
        elif False in dropped and (step == 0 or (last and not anything) or any("dl_src=" in text for text in texts)):
            yield f"its flows let the rest of step {step} pass"
        elif True in dropped and last and anything:
            yield f"its flows do not let the rest of step {step} pass"


def _of_passing(flows: Sequence[str], wanted: Wanted, anything: bool) -> Iterator[str]:
    """Name each flow that lets pass what the others of a guard are to look at, or drop: of those that fit the highest one alone counts.

    ``anything``: a sender may have any address.
    """
    places = [(STEP.search(text), text) for text in flows]
    ends = {int(each, 0) for text in flows for each in NEXT.findall(text)} - {int(found[1], 0) >> STEPS for found, _text in places if found}
    needed = {field for field in SENDERS.values() if not anything or field == "arp_sha"}
    needed -= {"nw_src", "arp_spa"} if not (wanted.addresses.ipv4 or wanted.addresses.prefixes4) else set()
    needed -= {"ipv6_src"} if not (wanted.addresses.ipv6 or wanted.addresses.prefixes6) else set()
    tagged = {vid for text in flows if not text.endswith(DROPS) for vid in _tagged(text)}
    if tagged != {*wanted.vlan.trunks}:
        yield f"its flows know other VLANs: {', '.join(map(str, sorted(tagged))) or 'none'}"
    signs = set[str]().union(*SIGNS.values())
    for found, text in places:
        match, _actions, actions = text.partition(" actions=")
        words = set(match.split(","))
        if found is None or (actions != "drop" and not ON.fullmatch(actions)):
            yield f"one of its flows is of no step, or leads to none: {text}"
        elif actions != "drop":
            beside = [each for place, each in places if place is not None and place[1] == found[1]]
            dropping = [each for each in beside if each.endswith(DROPS) and signs & {*each.removesuffix(DROPS).split(",")}]
            fields = {word.partition("=")[0] for word in words}
            senders = {SENDERS[word] for word in words & SENDERS.keys()}
            free = wanted.options.allow_restricted_traffic and not senders
            passes = any(int(each, 0) in ends for each in NEXT.findall(text))
            unseen = "nw_frag=first" not in words and any(_priority(text) >= _priority(each) for each in dropping)
            if ALL.fullmatch(text) is None:  # of what takes the rest _of_steps speaks
                unseen |= int(found[1], 0) == 0 and UNTAGGED not in words and not _tagged(text)
                unseen |= any(MAC.search(each) for each in beside) and "dl_src" not in fields
                unseen |= passes and not free and (not senders or bool(senders & needed - fields))
            if unseen:
                yield f"one of its flows lets pass what no other has looked at: {text}"


def _tagged(text: str) -> set[int]:
    """Give the VLANs whose tags a flow is for: of one, or of all that have some bits in common."""
    found = {int(vid) for vid in VID.findall(text)}
    ranges = [(int(value, 0), int(mask, 0)) for value, mask in TCI.findall(text)]
    return found | {vid for vid in range(VLANS) for value, mask in ranges if (vid | 0x1000) & mask == value}


def _priority(text: str) -> int:
    found = PRIORITY.search(text)
    return int(found[1]) if found is not None else 0
