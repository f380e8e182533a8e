"""Hold a port of Open vSwitch against what is wanted of its NIC: its VLANs, its identifiers, its rates, the flows of its spoof guard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mockcloud.wanted import OF_GUARD
from netcommon.options.addresses import link_local
from netcommon.options.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mockcloud.wanted import Wanted
    from netcommon.host.api.facts import Flow, OvsPort
    from netcommon.host.api.host import View

KBIT = 1000  #: Open vSwitch counts what a guest sends in these
ANYBODY = {"::", "0.0.0.0", "fe80::/10"}  # noqa: S104 - senders that each guest may be, as the guard knows them
MAC, IPV4, IPV6 = (re.compile(rf"\b{field}=([0-9a-f:./]+)", re.ASCII) for field in ("dl_src", "nw_src", "ipv6_src"))


def of_switch(view: View, wanted: Wanted, port: OvsPort, nic: Mapping[str, Any]) -> Iterator[str]:
    """Say what is not so of a port that is there. ``nic``: as its guest was started with it."""
    options = wanted.options
    if (port.tag, sorted(port.trunks)) != (wanted.vlan.access, sorted(wanted.vlan.trunks)):
        yield f"VLANs {wanted.vlan or 'none'} are wanted, and its port has tag {port.tag} and trunks {[*port.trunks]}"
    ids = dict(port.interface_ids)
    if (port.owner, ids.get("iface-id"), ids.get("attached-mac", "")) != (nic["uuid"], nic["uuid"], nic["mac"]):
        yield f"its port says that it is of {port.owner}, {ids}"
    rates = {"rate_in": (port.shaping, options.rate_in // KBIT * KBIT), "rate_out": (port.policing, options.rate_out // KBIT)}
    for name, (has, value) in rates.items():
        if has != value and name not in wanted.unsure:
            yield f"{name} = {shown(name, getattr(options, name))} is wanted, and its port has {has or 'none'}"
    if not wanted.unsure & {*OF_GUARD, "flows"}:
        yield from _of_flows(view.flows_from(port.bridge, port.ofport), wanted, nic["mac"])


def _of_flows(flows: Sequence[Flow], wanted: Wanted, mac: str) -> Iterator[str]:
    """Say what the flows of a guard let pass that they should not, or do not let pass that they should."""
    options, known = wanted.options, wanted.addresses
    if not options.spoof_guard:
        if flows and not options.flows:
            yield f"spoof_guard = false is wanted, and {len(flows)} flows are there"
        return
    if not flows:
        yield "spoof_guard = true is wanted, and no flow is there"
        return
    anything = options.allow_ip_spoofing or options.allow_dhcp_spoofing
    passing = [each.text for each in flows if not each.text.endswith("actions=drop")]
    of_link = link_local(mac) if mac else ""
    for field, expression, own in (
        ("MAC", MAC, [mac] if mac and not options.allow_mac_spoofing else []),
        ("address of IPv4", IPV4, [] if anything else [*known.ipv4, *known.prefixes4]),
        ("address of IPv6", IPV6, [] if anything else [*known.ipv6, *known.prefixes6]),
    ):
        found = {one for text in passing for one in expression.findall(text)} - ANYBODY - {of_link}
        if found != {*own} - {of_link}:
            yield f"its flows know another {field}: {', '.join(sorted(found)) or 'none'}"
