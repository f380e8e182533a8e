"""Tell where the kernel drops what a routed guest sends, though all that was done for its NIC holds: rp_filter (ip-sysctl.rst).

The kernel looks up the guest's address as if a packet for it came in by the device by which the guest's own goes out, without the mark
that it had, and compares the device of that way with the guest's. In a table of its own the guest's route is found from there only if a
rule leads there. The lookup is the kernel's own: it is asked for the way of such a packet, and there is none where it would be dropped.
"""

from __future__ import annotations

from netcommon.host.api.datapath import Question
from netcommon.host.api.facts import AF_INET, PROTOCOL
from netcommon.operations.mark import TapMark, value_of
from netcommon.operations.route import GuestRoute
from netcommon.operations.routed_uplink import DEFAULT, UNICAST
from netcommon.operations.table import MAIN
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: Where a packet goes to by a default route that names no gateway: an address of nobody's (RFC 2544).
ANYWHERE = "198.18.0.1"


def dropped(view: View, operations: Sequence[Operation], own: int, every: int) -> list[tuple[str, str]]:
    """Find the guest's addresses from which nothing gets out by the default routes of its table: why, and what helps. Raises TryAgain.

    ``own``, ``every``: rp_filter of the guest's device, and of all devices.
    """
    routes = [one for one in operations if isinstance(one, GuestRoute) and one.family == AF_INET]
    mark = next((value_of(one.number, one.mask) for one in operations if isinstance(one, TapMark)), 0)
    lost = [(route, source, out) for route in routes for source, out in _of(view, route, mark)]
    return [_said(view, route, source, out, own, every) for route, source, out in lost]


def _of(view: View, route: GuestRoute, mark: int) -> Iterator[tuple[str, int]]:
    """Yield the address of ``route``, and by which device what comes from it should get out, if none of it does."""
    source, out = route.destination.partition("/")[0], 0
    for target, device in _targets(view, route.number):
        if target == source:
            continue
        if not view.way(Question(AF_INET, target, source, route.ifindex, mark)).errno:
            return  # something gets out
        back = view.way(Question(AF_INET, source, target, device))
        if not back.errno and (back.type != UNICAST or route.ifindex in (back.index, *back.paths)):
            return  # it would pass this filter: the kernel has another reason
        out = out or device
    if out:
        yield source, out


def _targets(view: View, table: int) -> list[tuple[str, int]]:
    """Return where the guest's packets go by default routes, with the devices, as they are looked up: by its table, else by main."""
    for number in dict.fromkeys((table, MAIN)):
        there = [each for each in view.routes(AF_INET, number, DEFAULT[AF_INET]) if each.type == UNICAST and each.protocol != PROTOCOL]
        found = [(each.gateway if "." in each.gateway else ANYWHERE, index) for each in there for index in each.paths or (each.index,)]
        if found:
            return found
    return []


def _said(view: View, route: GuestRoute, source: str, out: int, own: int, every: int) -> tuple[str, str]:
    device, link = route.device, view.link_at(out)
    uplink, name = link.name if link else "its uplink", device.replace(".", "/")
    text = f"rp_filter of {device} is {max(own, every)}: the kernel drops what comes from {source}, for what comes in by {uplink} "
    text += "finds no way to it through this device"
    remedies = []
    if own:
        remedies.append(f'the option rp_filter = "off", or sysctl -w net.ipv4.conf.{name}.rp_filter=0 (default.rp_filter=0 for later ones)')
    if every:
        remedies.append("sysctl -w net.ipv4.conf.all.rp_filter=0")
    rule = f"ip -4 rule add iif {uplink} lookup {route.table}" if route.table else ""
    return text, " and ".join(remedies) + (f"; or {rule}" if rule else "")
