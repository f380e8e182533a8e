"""The interface of a host: what can be read of it (View), what it answers, and who is asked (Host).

Both backends, linux and memory, pass one contract suite.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from netcommon.host.facts import BridgeVlan, Link, Neighbour, OvsPort, Route, Rule
from netcommon.host.requests import Request


class View(Protocol):
    """What can be read. A live view asks each time; a snapshot answers from one complete picture.

    Every method raises TryAgain where the kernel or the service does not answer in time; an answer is never partial.
    """

    def link(self, name: str) -> Link | None: ...
    def link_at(self, index: int) -> Link | None: ...
    def links(self) -> Sequence[Link]: ...
    def ports(self, bridge: int) -> Sequence[Link]: ...
    def rules(self, family: int, iif: str | None = None) -> Sequence[Rule]: ...
    def routes(self, family: int, table: int | None = None, destination: str | None = None) -> Sequence[Route]:
        """Unicast, blackhole and other routes of ``table`` (None: all), optionally only those to ``destination`` exactly."""
        ...

    def neighbours(self, family: int, index: int | None = None) -> Sequence[Neighbour]: ...
    def vlans(self, index: int) -> Sequence[BridgeVlan]: ...
    def sysctl(self, path: str) -> str | None:
        """The value of /proc/sys/``path``, or None where there is no such file. ``path`` uses slashes: "net/ipv4/ip_forward"."""
        ...

    def table(self, name: str) -> int | None:
        """The number of the routing table ``name`` (/etc/iproute2/rt_tables, rt_tables.d, or a number), None if unknown."""
        ...

    def ovs_bridge(self, name: str) -> bool: ...
    def ovs_port(self, name: str) -> OvsPort | None: ...
    def ovs_ports(self) -> Sequence[OvsPort]:
        """Every port that bears our mark. Empty where Open vSwitch is not there at all."""
        ...


class Answer(NamedTuple):
    """What became of one request: errno 0 done; ECANCELED not tried since an earlier one failed; ETIMEDOUT unknown."""

    errno: int = 0
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.errno == 0


DONE = Answer()
NOT_TRIED = Answer(errno.ECANCELED, "not tried")


class Service(Protocol):
    """What carries the requests of one service out, one after the other (netcommon.host.requests.SERVICES)."""

    def execute(self, request: Any) -> Answer: ...


class Identity(NamedTuple):
    """Where and when a record was made: ``boot`` is /proc/sys/kernel/random/boot_id, ``netns`` SO_NETNS_COOKIE (socket(7))."""

    boot: str
    netns: int


class Host(Protocol):
    """The machine, or a simulated one."""

    def identity(self) -> Identity: ...
    def view(self) -> View:
        """A live view: each answer is the state of now."""
        ...

    def snapshot(self) -> View:
        """A view of one moment, for work over many NICs: each table is read once, whole, when first asked for."""
        ...

    def execute(self, requests: Sequence[Request], stop: bool) -> list[Answer]:
        """Carries the requests out in order, in as few messages as the services take; one answer each.

        ``stop``: after the first failure the rest is not tried. Neighbouring SetLink requests for one link travel as one
        message; if that is refused they are sent one by one, so that the answer names the one that failed.
        """
        ...

    def holder(self, device: str, candidates: Iterable[int]) -> int:
        """The first process among ``candidates`` that has the tap ``device`` open (/proc/PID/fdinfo, "iff:"), else 0."""
        ...
