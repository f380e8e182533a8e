"""Reading the addresses of devices by rtnetlink: each answer is the state of now."""

from __future__ import annotations

import errno

from netcommon.host.attributes import MalformedError
from netcommon.host.netlink import untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.facts import Address
    from netcommon.host.netlink import Netlink


class AddressView:
    """The part of a live view that is about addresses; what it takes is loaded when it is asked."""

    _netlink: Netlink

    def addresses(self, index: int | None = None) -> Sequence[Address]:
        from netcommon.host.encode_address import decode, dump_addresses

        if index is not None and index <= 0:
            return []
        found = self._netlink.dump(dump_addresses(index or 0))
        if isinstance(found, list):
            try:
                made = [decode(body) for body in found]
            except MalformedError as problem:
                raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
            return [address for address in made if index in (None, address.index)]
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return []
        raise untold("addresses", found)
