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
    """Adds it, or changes the same one, as a kernel does: of IPv6 that is one of any length, which stays. Raises Refused."""
    link = kernel.at(asked.index)
    address = _shown(asked)
    if address.family == AF_INET6 and kernel.settings.get(f"net/ipv6/conf/{link.name}/disable_ipv6") == "1":
        raise Refused(errno.EACCES, "IPv6 is disabled on this device")
    same = [other for other in kernel.addresses if _is_same(other, address)]
    address = address._replace(length=same[0].length) if same else address
    kernel.addresses = [other for other in kernel.addresses if other not in same]
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


def _is_same(one: Address, other: Address) -> bool:
    return (one.family, one.address, one.index) == (other.family, other.address, other.index) and (
        one.family == AF_INET6 or one.length == other.length
    )


def _shown(address: Address) -> Address:
    return address._replace(address=show_address(address.family, pack_address(address.family, address.address)))
