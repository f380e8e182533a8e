"""Reading a device's traffic control by rtnetlink: each answer is the state of now."""

from __future__ import annotations

import errno

from netcommon.host.attributes import MalformedError
from netcommon.host.netlink import untold
from runtime.errors import TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.facts import Filter, Qdisc
    from netcommon.host.netlink import Netlink


class TcView:
    """The part of a live view that is about traffic control; what it takes is loaded when it is asked."""

    _netlink: Netlink

    def root_qdisc(self, index: int) -> Qdisc | None:
        return self._qdisc(index, root=True)

    def clsact(self, index: int) -> Qdisc | None:
        return self._qdisc(index, root=False)

    def filters(self, index: int) -> Sequence[Filter]:
        from netcommon.host import encode_tc

        filters: list[Filter] = []
        for egress in (False, True):
            found = self._netlink.dump(encode_tc.dump_filters(index, egress))
            if isinstance(found, list):
                try:
                    filters += encode_tc.filters(found, egress)
                except MalformedError as problem:
                    raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
            elif found.errno not in (errno.EINVAL, errno.ENODEV, errno.ENOENT, errno.EOPNOTSUPP):  # nothing to hang filters on
                raise untold("filters", found)
        return filters

    def _qdisc(self, index: int, root: bool) -> Qdisc | None:
        from netcommon.host import encode_tc

        found = self._netlink.get(encode_tc.get_qdisc(index, encode_tc.TC_H_ROOT if root else encode_tc.TC_H_CLSACT))
        if isinstance(found, bytes):
            try:
                qdisc = encode_tc.qdisc(found)
            except MalformedError as problem:
                raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
            return qdisc if qdisc.handle else None  # the kernel's own default
        if found.errno in (0, errno.ENOENT, errno.ENODEV, errno.EINVAL):
            return None
        raise untold("qdiscs", found)
