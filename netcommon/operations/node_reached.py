"""Tell whether guests on a bridge may be meant to reach the node itself there: no hook loads this."""

from __future__ import annotations

from ipaddress import ip_address

from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.operations.routed_uplink import UNICAST
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Address, Link
    from netcommon.host.api.host import View

#: IFAPROT_KERNEL_LL (linux/if_addr.h, 5.18 and later): the kernel has made the address by itself. RTPROT_KERNEL: with it, the route.
OF_ITSELF, WITH_ADDRESS = 3, 2


def node_reached(view: View, link: Link) -> bool:
    """Tell whether the node has something at its own side of a bridge, ``link``, by which guests may be meant to reach it, or others by it.

    That is an address but the link-local one that the kernel makes by itself, a device upon it that is switched on, such as a VLAN
    interface or a macvlan, or a route by it: with one a proxy answers, or a link-local gateway leads on. What guests ask for there
    nobody knows. A kernel before 5.18 does not tell which addresses are its own: there each counts. Raises TryAgain.
    """
    if any(not _by_itself(each) for each in view.addresses(link.index)) or any(each.up for each in view.uppers(link.index)):
        return True
    routes = (route for family in (AF_INET, AF_INET6) for route in view.routes_of(family, 0, UNICAST, link.index))
    return any(route.protocol != WITH_ADDRESS for route in routes)


def _by_itself(each: Address) -> bool:
    return each.protocol == OF_ITSELF and ip_address(each.address).is_link_local
