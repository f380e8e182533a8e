"""A NIC as tree and graph show it: from its record and what check found, never from what the settings say today."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netcommon.lifecycle.check import Report
from netcommon.lifecycle.execute import decode
from netcommon.operations.base import Operation
from netcommon.operations.firewall import FirewallMember
from netcommon.operations.flows import Flows
from netcommon.operations.guard.flows import GUARD
from netcommon.operations.guard.rules import ANY_LINK_LOCAL, FREE_DHCP, FREE_MAC, FREE_TYPE
from netcommon.operations.guard.table import QUIET, NicGuard
from netcommon.operations.ovs import Port as OvsPort
from netcommon.operations.port import PortFlag
from netcommon.operations.rate import Police, Shaper
from netcommon.operations.route import GuestRoute, PrefixRoute
from netcommon.views.topology.model import DRIFTED, GONE, GOOD, UNFINISHED, UNTOLD, Drift, NicView
from runtime.record import UP

KBIT = 1000

#: What a guest may do that the guard lets pass, by the set that it is in.
FREE = {FREE_MAC: "any MAC", FREE_DHCP: "DHCP server", FREE_TYPE: "any frames"}


def nic_view(report: Report, untold: Sequence[Drift] = (), also: Sequence[str] = ()) -> NicView:
    """What is known of one NIC; ``untold`` as in the model, ``also``: the labels of its instance's others."""
    record, nic = report.record, report.record.nic
    seen = NicView(
        label=nic.label,
        instance=nic.instance,
        number=nic.index,
        key=record.key,
        uuid=record.uuid,
        device=record.device,
        mode=nic.mode,
        link=nic.link,
        mac=nic.mac,
        addresses=(),
        access=nic.vlan.access if nic.mode != "routed" else None,
        trunks=nic.vlan.trunks if nic.mode != "routed" else (),
        guarded=False,
        exceptions=(),
        firewall="",
        isolated=False,
        rate_in=0,
        rate_out=0,
        dhcp=False,
        state=record.state,
        condition=condition(report, untold),
        drift=drift(report),
        untold=tuple(untold),
        unknown=report.unknown,
        owed=report.owed,
        also=tuple(also),
        unguarded=report.unguarded,
    )
    operations = decode(record)[0]
    for operation in operations:
        seen = _with(seen, operation)
    return seen._replace(addresses=_addresses([nic.ip, *(text for each in operations for text in _told(each))]))


def drift(report: Report) -> tuple[Drift, ...]:
    """What of a NIC does not hold, and why its traffic does not pass."""
    return (*(Drift(does, differs) for does, differs in report.drift), *(Drift("its traffic", why) for why, _ in report.dropped))


def condition(report: Report, untold: Sequence[Drift]) -> str:
    """One of netcommon.views.topology.model.CONDITIONS."""
    if not report.alive:
        return GONE
    if report.record.state != UP:
        return UNFINISHED
    if not report.good:
        return DRIFTED
    return UNTOLD if untold else GOOD


def _with(seen: NicView, operation: Operation) -> NicView:
    """``seen`` with what one operation gives the NIC."""
    match operation:
        case NicGuard():
            free = [FREE.get(name, name) for name in operation.free if name not in QUIET and name != ANY_LINK_LOCAL]
            return seen._replace(guarded=True, exceptions=tuple(free))
        case Flows() if GUARD in operation.templates:
            return seen._replace(guarded=True)
        case FirewallMember():
            return seen._replace(firewall=operation.profile)
        case PortFlag(flag="isolated", wanted=True):
            return seen._replace(isolated=True)
        case Shaper():
            return seen._replace(rate_in=operation.rate)
        case Police():
            return seen._replace(rate_out=operation.rate)
        case OvsPort():
            return seen._replace(rate_in=operation.shaping * KBIT or seen.rate_in, rate_out=operation.policing * KBIT or seen.rate_out)
    return seen._replace(dhcp=True) if operation.KIND in ("file", "daemon") else seen


def _told(operation: Operation) -> Iterable[str]:
    """The guest's addresses, as far as an operation knows them."""
    match operation:
        case NicGuard():
            return (*operation.addresses, *operation.prefixes)
        case Flows():
            return [text for name, texts in operation.lists if name in ("ipv4", "ipv6") for text in texts]
        case GuestRoute() | PrefixRoute():
            return (operation.destination,)
    return ()


def _addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order in which they come, an address without the length of one."""
    found: dict[str, str] = {}
    for text in texts:
        address, _, length = text.partition("/")
        if address:
            found.setdefault(address, address if length == ("128" if ":" in address else "32") else text)
    return tuple(found.values())
