"""Addresses of the devices of a simulated node: those that were asked for, without the ones that a kernel makes by itself."""

from __future__ import annotations

import errno

from netcommon.host.api.facts import AF_INET6
from netcommon.host.rtnetlink.attributes import pack_address, show_address
from netcommon.host.simulated.events import GONE, MADE
from netcommon.host.simulated.kernel import Refused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.facts import Address
    from netcommon.host.simulated.kernel import Kernel


def add(kernel: Kernel, asked: Address) -> None:
    """Adds it, or replaces the same one. Raises Refused."""
    link = kernel.at(asked.index)
    address = _shown(asked)
    if address.family == AF_INET6 and kernel.settings.get(f"net/ipv6/conf/{link.name}/disable_ipv6") == "1":
        raise Refused(errno.EACCES, "IPv6 is disabled on this device")
    kernel.addresses = [other for other in kernel.addresses if other[:4] != address[:4]]
    kernel.addresses.append(address)
    kernel.tell(MADE, address)


def delete(kernel: Kernel, asked: Address) -> None:
    """Whatever its protocol. Raises Refused."""
    kernel.at(asked.index)
    address = _shown(asked)
    kept = [other for other in kernel.addresses if other[:4] != address[:4]]
    if len(kept) == len(kernel.addresses):
        raise Refused(errno.EADDRNOTAVAIL)
    kernel.addresses = kept
    kernel.tell(GONE, address)


def _shown(address: Address) -> Address:
    return address._replace(address=show_address(address.family, pack_address(address.family, address.address)))
