"""Tell the guest of an adopted routed NIC that its gateway's MAC, which is the tap's, has changed: it goes on without a pause.

The tap has a MAC by chance until then, and its guest has it in its neighbour cache. After a migration the guest would go on sending to it,
for half a minute and longer, since the tap on the other node has the steady one.
"""

from __future__ import annotations

from netcommon.features.gateway_mac import GatewayMac
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.lifecycle.run_effects import perform
from netcommon.operations.routed_uplink import UNICAST
from netcommon.options.addresses import LINK_LOCAL_GATEWAY, addresses_of
from netcommon.options.networks import completed
from netcommon.options.sources import options_of
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.facts import Link
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from runtime.nic import Nic

#: Why the MAC stays as it is: nobody could be told of another one.
UNTOLD = "its tap keeps its MAC, since not every gateway that it uses is known: after a migration it is unreachable for half a minute"


class Gateways(NamedTuple):
    """Hold what the guest of a routed NIC sends to first; ``known``: nothing that it needs is missing."""

    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    known: bool = True


def gateways_of(node: Node, view: View, nic: Nic) -> Gateways:
    """Return the gateways of ``nic``, none for one that is not routed. Raises NicInvalid.

    An adopted NIC may have addresses that only tags tell, so what it uses is told from the node's routes to it: of each family in which
    there is one, the gateway must be known. No address of the guest's own is among them: it would take the node for somebody with that.
    """
    if nic.mode != "routed":
        return Gateways()
    nic = completed(nic, node.settings)
    options = options_of(nic, node.settings)
    link = view.link(nic.interface)
    led = {family: _led(view, family, link) for family in (AF_INET, AF_INET6)}
    own, network = addresses_of(nic, options), nic.network
    ipv4 = tuple(each for each in (network.gateway,) if each and f"{each}/32" not in led[AF_INET])
    named = (network.gateway6, LINK_LOCAL_GATEWAY if options.gateway_link_local else "")
    ipv6 = tuple(each for each in named if each and f"{each}/128" not in led[AF_INET6])
    used = [family for family in led if led[family] or (family in own.families and own.hosts(family))]
    known = {AF_INET: bool(ipv4), AF_INET6: bool(network.gateway6 and ipv6)}
    return Gateways(ipv4, ipv6, all(known[family] for family in used))


def _led(view: View, family: int, link: Link | None) -> set[str]:
    """Return what the node routes to the guest, in any table: all that leads to its device, but for what every device has."""
    routes = view.routes_of(family, 0, UNICAST, link.index) if link is not None else ()
    return {route.destination for route in routes if not route.destination.startswith(("fe80:", "ff00:"))}


def tell(node: Node, view: View, device: str, gateways: Gateways, before: str, call: Call) -> None:
    """Tell the guest on ``device`` the MAC of its gateways, if that was ``before`` and is another now. A failure is a warning."""
    link = view.link(device)
    if link is None or link.address == before:
        return
    perform(node, [GatewayMac(device, gateways.ipv4, gateways.ipv6)], call.log)
    call.log.info(f"{device} had the MAC {before}, and has {link.address}")
