"""The request for rules in the words of nft(8): what templates write."""

from __future__ import annotations

import errno

from runtime.typed import NamedTuple


class LoadRules(NamedTuple):
    """The tables of a firewall profile (netcommon.host.nflayout): what is forwarded to a device of the set ``nics`` goes by these rules.

    In one transaction; what is in the set stays. ``family``: netcommon.host.nftables.BRIDGE or INET. ``alone``: no rules but those of
    profiles look at connections; ``older``: devices that are in tables of earlier versions, by index.
    """

    family: int
    table: str
    rules: tuple[str, ...]
    alone: bool = False
    older: tuple[int, ...] = ()

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})
