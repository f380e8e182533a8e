"""Define a node: what it should be, what it says that it is, and the signs of its life."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from netregistry.model import kinds


class Node(NamedTuple):
    """A node that has joined. ``epoch``: of the registry at that time."""

    uuid: kinds.Uuid
    name: kinds.Name
    cluster: kinds.Cluster = ""
    kind: Literal["physical", "virtual"] = "physical"
    provides: Annotated[tuple[kinds.Tag, ...], kinds.Hundred] = ()  #: the tags of networks that it should provide
    joined: kinds.Time = 0.0
    epoch: str = ""


class Interface(NamedTuple):
    """A NIC of the node itself."""

    uuid: kinds.Uuid
    name: kinds.Name
    mac: kinds.Mac = ""
    up: bool = False
    addresses: Annotated[tuple[kinds.Address, ...], kinds.Hundred] = ()


class About(NamedTuple):
    """What is there on a node, as its agent says."""

    version: kinds.NameOrNone = ""  #: of the agent
    addresses: Annotated[tuple[kinds.Address, ...], kinds.Hundred] = ()
    interfaces: Annotated[tuple[Interface, ...], kinds.Hundred] = ()
    bridges: Annotated[tuple[kinds.Name, ...], kinds.Thousand] = ()
    tables: Annotated[tuple[kinds.Name, ...], kinds.Thousand] = ()
    switches: Annotated[tuple[kinds.Name, ...], kinds.Hundred] = ()
    vlans: Annotated[tuple[kinds.VlanId, ...], kinds.Vlans] = ()
    provided: Annotated[tuple[kinds.Tag, ...], kinds.Hundred] = ()


class Reports(NamedTuple):
    """The node's latest commit of reports: each tests the one before.

    ``epoch``: in which it was made. ``incarnation``: of the node that made it, Alive's; "" where it was not alive then.
    """

    request: kinds.Uuid
    epoch: str
    time: kinds.Time
    about: About = About()
    incarnation: kinds.UuidOrNone = ""


class Alive(NamedTuple):
    """A node is alive: the key has a lease. ``incarnation``: one for each boot; tells two that say to be the same node apart."""

    incarnation: kinds.Uuid
    since: kinds.Time = 0.0


class Gone(NamedTuple):
    """A node's lease has ended, seen by the leader at this time."""

    since: kinds.Time
