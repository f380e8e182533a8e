"""Say as values what happens to a node's synchronisation, and what it asks for: netagent.sync.machine has no socket, file or clock.

Each request but ``Close``, ``Save`` and ``Alarm`` is answered by one event, sooner or later or never: ``Watch`` by lines and one ``Ended``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from netagent.sync.became import Did
from netagent.sync.laid import DropUnderlay, SetUnderlay, UnderlayMarked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netagent.sync.bare import Bare
    from netagent.sync.laid import Standing
    from netagent.sync.sent import Sent
    from netregistry.model.nic import Report
    from netregistry.model.node import About


class Option(NamedTuple):
    """One option that the registry's operator has set. ``until``: seconds since the epoch, 0 for good."""

    name: str
    value: str
    until: float = 0.0


class Wanted(NamedTuple):
    """Hold what the registry wants of one NIC."""

    revision: str  #: EPOCH:REVISION
    options: tuple[Option, ...] = ()
    network: str = ""  #: UUID of its network, "" for none
    tags: tuple[str, ...] | None = None  #: those that its Ganeti cluster has; None where that does not say them
    position: int | None = None  #: of the NIC in its instance, by which its tags are to be read; None where nobody says it
    ip: str = ""  #: its address in the network; "" where none is said


class Local(NamedTuple):
    """One NIC as it is on this node."""

    report: Report
    fields: Mapping[str, Any]  #: netregistry.rules.masters.OF_NODE, where the node is its master, and its address
    ganeti: bool = False  #: a Ganeti cluster is its master
    network: str = ""  #: UUID of that in which it is by its hypervisor, or whose values it was told; "" for none
    told: str = ""  #: EPOCH:REVISION of those; "" where it was told none
    unread: bool = False  #: its definition is there and says nothing, so nobody knows its fields
    endpoints: tuple[str, ...] = ()  #: kinds of what speaks for its guest on this node, while it is here


FORGOTTEN = "forgotten"  #: the reason for which a certificate is refused, and the kind of that failure


class Failure(NamedTuple):
    """Why a request of the registry was not done.

    ``kind``: what a problem's type ends in (netregistry.refusal.KINDS); "": there is no answer, so it may be done; FORGOTTEN: as "", and
    the certificate that was shown counts no more since the node was forgotten. ``lie``: what came is nothing that a registry says.
    """

    kind: str
    text: str
    lie: bool = False


class Marked(NamedTuple):
    """Something of a NIC has changed: its record, its definition, what was repaired."""

    uuid: str


class AboutMarked(NamedTuple):
    """Say that what there is on the node has changed: bridges, tables, switches, addresses."""


class Lost(NamedTuple):
    """Events of the node were lost: any NIC may have changed."""


class Looked(NamedTuple):
    """Answer a Look. ``nics``: those of them that are there; ``unclear``: those of which nobody can tell."""

    nics: Mapping[str, Local]
    unclear: frozenset[str] = frozenset()
    about: About | None = None
    wall: float = 0.0  #: seconds since the epoch
    underlay: Standing | None = None


class Surveyed(NamedTuple):
    """Answer a Survey: every NIC that is here or is defined here. ``problem``: why this is not all of them, "" where it is.
    ``defined``: how many are. ``bare``: taps that may be those of NICs on no record. ``bridges``: those of the kernel that there are.
    ``kept``: NICs of which something is here, though nobody can tell how they are, or they are stopped: their definition, a record.
    """

    nics: Mapping[str, Local]
    problem: str = ""
    defined: int = 0
    bare: tuple[Bare, ...] = ()
    kept: frozenset[str] = frozenset()
    bridges: frozenset[str] = frozenset()


# -- what comes from the registry


class Answered(NamedTuple):
    """The registry has answered the request that is in flight. ``revision``: of the answer, EPOCH:REVISION."""

    body: Any
    revision: str = ""


class Failed(NamedTuple):
    """The registry has not done the request that is in flight, or nobody knows."""

    failure: Failure


class Line(NamedTuple):
    """One line of the stream, as it was read, and how long it was (bytes)."""

    said: Any
    size: int


class Ended(NamedTuple):
    """The stream is over."""

    failure: Failure


Event = Marked | AboutMarked | UnderlayMarked | Lost | Looked | Surveyed | Did | Answered | Failed | Line | Ended

# -- what is asked for: of the registry, one at a time


class Hello(NamedTuple):
    """Ask what the registry can do (GET /v1)."""


class AskNode(NamedTuple):
    """Ask what the registry knows of this node (GET /v1/nodes/NODE)."""


class List(NamedTuple):
    """List all of something: "reports" of this node, "nics" that it has reported, or "mastered" ones, whose master it is."""

    what: Literal["reports", "nics", "mastered"]


class Send(NamedTuple):
    """Send reports (POST /v1/nodes/NODE/reports). ``id``: of the request; the same again decides what became of one without answer."""

    id: str
    body: Mapping[str, Any]


class Stray(NamedTuple):
    """Say which /64 this node has to a registry that does not know it (POST /v1/nodes/NODE/reports)."""

    id: str
    body: Mapping[str, Any]


class Ask(NamedTuple):
    """Ask for a change of a wanted NIC as its master. ``match``: EPOCH:REVISION at which it was read; of a new one EPOCH:0."""

    id: str
    method: Literal["POST", "PATCH", "DELETE"]
    uuid: str
    body: Mapping[str, Any] | None
    match: str


class Beat(NamedTuple):
    """Give a sign of life, where there is no stream."""


class Watch(NamedTuple):
    """Begin the stream behind a revision; "": at the beginning. Beside the request that is in flight.

    ``underlay``: the service can tell what it gives the node of an underlay, and is to.
    """

    start: str
    underlay: bool = False


class Close(NamedTuple):
    """End the stream; nothing more of it is wanted."""


# -- of the node


class Look(NamedTuple):
    """Look at some NICs, at what there is on the node, and of the underlay there.

    ``devices``: on which the registry has NICs (reaping.told_devices).
    """

    uuids: tuple[str, ...]
    about: bool = False
    devices: Mapping[str, Sent] = {}
    underlay: bool = False


class Survey(NamedTuple):
    """Take an inventory of all NICs."""


class Apply(NamedTuple):
    """Set a NIC to what is wanted of it, where it is up; keep that on disk, where it is not."""

    key: tuple[str, str]
    wanted: Wanted


class Keep(NamedTuple):
    """Keep on disk what is wanted of a NIC that is not up. One that is up stays what it is.

    ``whole``: this is all that a node keeps of the NIC; else it is not to be taken for the NIC at its revision.
    """

    key: tuple[str, str]
    wanted: Wanted
    whole: bool = True


class Drop(NamedTuple):
    """Forget what is wanted of a NIC that is not here. One that is here stays what it is."""

    key: tuple[str, str]
    revision: str


class SetNetwork(NamedTuple):
    """Keep what is said of a network; ``value`` is the registry's, fields that are unknown included."""

    key: tuple[str, str]
    value: Mapping[str, Any]
    revision: str


class DropNetwork(NamedTuple):
    """Forget what was said of a network."""

    key: tuple[str, str]
    revision: str


class Retain(NamedTuple):
    """Forget what is wanted of all NICs that are not here and not among these, and of all other networks: they were not told again."""

    key: tuple[str, str]
    nics: frozenset[str]
    networks: frozenset[str]
    revision: str


class Check(NamedTuple):
    """Look whether what is wanted of NICs, and said of networks (their revisions), lies on disk; ``left`` names what does not.

    ``parts``: also which NICs there are, whosever, of which the disk has only a part of what is wanted.
    """

    key: tuple[str, str]
    nics: Mapping[str, Wanted]
    networks: Mapping[str, str]
    parts: bool = False


class Save(NamedTuple):
    """Keep a document on disk, for the next start. What it says was done is done."""

    document: Mapping[str, Any]


class Alarm(NamedTuple):
    """Turn an alarm on, or off with the text ""."""

    name: str
    text: str


class Tell(NamedTuple):
    """Say something in the log."""

    text: str


Asking = Hello | AskNode | List | Send | Stray | Ask | Beat
Doing = Apply | Keep | Drop | SetNetwork | DropNetwork | SetUnderlay | DropUnderlay | Retain | Check
Request = Asking | Doing | Watch | Close | Look | Survey | Save | Alarm | Tell
