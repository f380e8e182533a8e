"""Requests about ports of a Linux bridge and its forwarding database (netcommon.host.requests has the others)."""

from __future__ import annotations

import errno

from runtime.typed import NamedTuple


class SetPort(NamedTuple):
    """Sets one flag of a bridge port: a field of netcommon.host.facts.Port."""

    index: int  # type: ignore[assignment]
    flag: str
    value: bool

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV, errno.EOPNOTSUPP})


class AddFdb(NamedTuple):
    """Makes ``mac`` a static, sticky entry on the bridge port, wherever it was before.

    ``vid`` 0: for every VLAN that the port has now, and for the bridge while it is not VLAN-aware. Another must be one of the port's.
    """

    index: int  # type: ignore[assignment]
    mac: str
    vid: int = 0

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFdb(NamedTuple):
    """Deletes the entry if it is on this port; ``vid`` as of AddFdb."""

    index: int  # type: ignore[assignment]
    mac: str
    vid: int = 0

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL})  # EINVAL: the port has left the VLAN
