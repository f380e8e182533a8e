"""Requests about OpenFlow flows (netcommon.host.requests has the others)."""

from __future__ import annotations

import errno

from runtime.typed import NamedTuple


class PutFlows(NamedTuple):
    """Gives the port ``port`` of the real bridge exactly these flows with this cookie, in one bundle, all or none.

    Each is a text as of Flow. Others' flows are not looked at; one of theirs with the same match and priority would be replaced.
    """

    bridge: str
    port: str
    cookie: int
    flows: tuple[str, ...]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteFlows(NamedTuple):
    """Deletes every flow of the real bridge with this cookie."""

    bridge: str
    cookie: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})
