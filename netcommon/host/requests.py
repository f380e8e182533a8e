"""Requests: what can be asked of a host, one class each.

The ``gone`` of each holds the errors that mean, when something is being undone, that there is nothing left to undo. (A property, since
every annotation in a NamedTuple is a field.) A new request is a class here, a line in the union, and a line in SERVICES.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from netcommon.host.facts import BridgeVlan, Neighbour, OvsPort, Route, Rule


class SetLink(NamedTuple):
    """Changes of a link; None leaves a thing as it is. ``master`` 0 takes it out of its bridge."""

    index: int  # type: ignore[assignment]
    address: str | None = None
    mtu: int | None = None
    up: bool | None = None
    master: int | None = None
    alias: str | None = None

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENODEV})


class AddRule(NamedTuple):
    """Adds a rule (NLM_F_EXCL); EEXIST means that there is one with the same selectors, preference, table and protocol."""

    rule: Rule

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteRule(NamedTuple):
    """Deletes one rule of this interface, preference, table and protocol; the kernel does not compare other selectors."""

    rule: Rule

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ESRCH})


class AddRoute(NamedTuple):
    """Adds a route, or replaces the one of the same destination, table and metric (NLM_F_REPLACE)."""

    route: Route

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteRoute(NamedTuple):
    """Deletes exactly this route: destination, table, interface, protocol and scope must all match."""

    route: Route

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ESRCH, errno.ENODEV, errno.ENOENT})


class AddNeighbour(NamedTuple):
    neighbour: Neighbour

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteNeighbour(NamedTuple):
    """Deletes a proxy neighbour; the kernel does not compare the protocol, so look first."""

    neighbour: Neighbour

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.ENXIO})


class AddVlan(NamedTuple):
    index: int  # type: ignore[assignment]
    vlan: BridgeVlan

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteVlan(NamedTuple):
    index: int  # type: ignore[assignment]
    vid: int

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})


class SetSysctl(NamedTuple):
    path: str
    value: str

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


class PutOvsPort(NamedTuple):
    """Makes the port so, in one OVSDB transaction: a port of this owner on this bridge gets its VLANs and our external_ids in place,
    whatever else had the name is replaced. ``bridge`` may be a fake bridge, for a port without VLANs of its own (ovs-vsctl(8)).

    Answers only after vswitchd has taken it (cur_cfg), or failed to: its error is the answer's text.
    """

    port: OvsPort

    @property
    def gone(self) -> frozenset[int]:
        return frozenset()


class DeleteOvsPort(NamedTuple):
    """Deletes the port ``name`` if its Port row is owned by ``owner`` (our mark).

    ``wait``: until vswitchd has let go of the device, for a while; what it does to the device at that comes before what we do next.
    """

    name: str
    owner: str
    wait: bool = False

    @property
    def gone(self) -> frozenset[int]:
        return frozenset({errno.ENOENT})


Request = (
    SetLink
    | AddRule
    | DeleteRule
    | AddRoute
    | DeleteRoute
    | AddNeighbour
    | DeleteNeighbour
    | AddVlan
    | DeleteVlan
    | SetSysctl
    | PutOvsPort
    | DeleteOvsPort
)


def achieved(request: Request, number: int) -> bool:
    """Whether the refusal ``number`` (an errno) of ``request`` says that what it asks for is so already."""
    return isinstance(request, AddRule) and number == errno.EEXIST


#: Which service of a host carries a request out; the ones that are not named are rtnetlink's, and travel together.
RTNETLINK = "rtnetlink"
SERVICES: dict[type[Request], str] = {
    SetSysctl: "procfs",
    PutOvsPort: "ovsdb",
    DeleteOvsPort: "ovsdb",
}


def service(request: Request) -> str:
    """The name of the service that carries ``request`` out."""
    return SERVICES.get(type(request), RTNETLINK)
