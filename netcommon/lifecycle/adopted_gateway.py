"""Tell the guest of an adopted routed NIC that its gateway's MAC, which is the tap's, has changed: it goes on without a pause.

The tap has a MAC by chance until then, and its guest has it in its neighbour cache. After a migration the guest would go on sending to it,
for half a minute and longer, since the tap on the other node has the steady one.
"""

from __future__ import annotations

from netcommon.features.gateway_mac import GatewayMac
from netcommon.host.api.facts import AF_INET
from netcommon.lifecycle.run_effects import perform
from netcommon.options.addresses import LINK_LOCAL_GATEWAY, addresses_of
from netcommon.options.networks import completed
from netcommon.options.sources import options_of
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from runtime.nic import Nic

#: Why the MAC stays as it is: nobody could be told of another one.
UNTOLD = "its tap keeps its MAC, since no IPv4 gateway of its network is known: after a migration it is unreachable for half a minute"


class Gateways(NamedTuple):
    """Hold what the guest of a routed NIC sends to first; ``known``: nothing that it needs is missing."""

    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    known: bool = True


def gateways_of(node: Node, nic: Nic) -> Gateways:
    """Return the gateways of ``nic``, none for one that is not routed. Raises NicInvalid.

    Those for IPv6 do not depend on its addresses, since an adopted NIC may have some that only tags tell. Some are known in any case: the
    tap's own link-local ones, which a daemon may have advertised.
    """
    if nic.mode != "routed":
        return Gateways()
    nic = completed(nic, node.settings)
    families, own = addresses_of(nic, options_of(nic, node.settings)).families, nic.network
    ipv4 = (own.gateway,) if own.gateway and AF_INET in families else ()
    ipv6 = (*((own.gateway6,) if own.gateway6 else ()), LINK_LOCAL_GATEWAY)
    return Gateways(ipv4, ipv6, bool(ipv4) or AF_INET not in families)


def tell(node: Node, view: View, device: str, gateways: Gateways, before: str, call: Call) -> None:
    """Tell the guest on ``device`` the MAC of its gateways, if that was ``before`` and is another now. A failure is a warning."""
    link = view.link(device)
    if link is None or link.address == before:
        return
    perform(node, [GatewayMac(device, gateways.ipv4, gateways.ipv6)], call.log)
    call.log.info(f"{device} had the MAC {before}, and has {link.address}")
