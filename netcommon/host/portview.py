"""Reading bridge ports and forwarding databases by rtnetlink: each answer is the state of now."""

from __future__ import annotations

import errno

from netcommon.host.attributes import MalformedError
from netcommon.host.encode import dump_vlans, get_link
from netcommon.host.netlink import Reply, untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.facts import FdbEntry, Port
    from netcommon.host.netlink import Netlink


class PortView:
    """The part of a live view that is about bridge ports; what it takes is loaded when it is asked."""

    _netlink: Netlink

    def port(self, index: int) -> Port | None:
        from netcommon.host.encode_port import port

        found = self._netlink.get(get_link(index=index)) if 0 < index < 1 << 31 else Reply(errno.ENODEV)
        if isinstance(found, bytes):
            try:
                return port(found)
            except MalformedError as problem:
                raise _senseless(problem) from problem
        if found.errno in (errno.ENODEV, errno.ENXIO):
            return None
        raise untold("bridge ports", found)

    def fdb_entry(self, bridge: int, mac: str, vid: int) -> FdbEntry | None:
        from netcommon.host.encode_port import entry, get_entry

        found = self._netlink.get(get_entry(bridge, mac, vid)) if bridge > 0 else Reply(errno.ENODEV)
        if isinstance(found, bytes):
            try:
                return entry(found)
            except MalformedError as problem:
                raise _senseless(problem) from problem
        # no entry; no such device; the device is no bridge
        if found.errno in (errno.ENOENT, errno.ENODEV, errno.EINVAL, errno.EOPNOTSUPP):
            return None
        raise untold("forwarding databases", found)

    def carriers(self, vid: int) -> Sequence[int]:
        from netcommon.host.encode_port import carriers

        found = self._netlink.dump(dump_vlans())
        if isinstance(found, list):
            try:
                return list(carriers(found, vid))
            except MalformedError as problem:
                raise _senseless(problem) from problem
        if found.errno == errno.EOPNOTSUPP:  # a kernel without VLAN filtering
            return []
        raise untold("VLANs", found)


def _senseless(problem: MalformedError) -> TryAgain:
    return TryAgain(f"the kernel's answer makes no sense: {problem}")
