"""Define what the service answers beside the registry's own objects; schemas are made of these."""

from __future__ import annotations

from typing import Any, NamedTuple

from netregistry.model.certificate import Authority, Holder, Holding
from netregistry.model.claim import Claim
from netregistry.model.history import Entry
from netregistry.model.importing import Import
from netregistry.model.network import Network
from netregistry.model.nic import Nic, Report
from netregistry.model.node import About, Node
from netregistry.model.underlay import Name, NodePrefix, Placement, Underlay
from netregistry.state import Conflict, Shown


class NetworkItem(NamedTuple):
    """A network as it is wanted."""

    revision: str
    network: Network
    nics: int  #: how many NICs are in it


class NicItem(NamedTuple):
    """A NIC as it is wanted, and what is seen of it."""

    revision: str
    nic: Nic
    shown: Shown
    label: str


class NodeItem(NamedTuple):
    """A node, and what it says of itself. ``reported``: when, 0 for never; ``reports``: EPOCH:REVISION of its latest.

    ``life``: the incarnation of its agent whose those are, where that was in this epoch; "" where nobody knows.
    """

    revision: str
    node: Node
    alive: bool
    since: float
    reported: float
    reports: str
    nics: int
    missing: tuple[str, ...]  #: tags of networks that it should provide and does not
    about: About
    life: str


class ReportItem(NamedTuple):
    """What one node says of one NIC."""

    revision: str
    node: str
    report: Report


class ClaimItem(NamedTuple):
    """A MAC or an address of one scope, and how it stands."""

    revision: str
    key: str
    standing: str
    claim: Claim


class ConflictItem(NamedTuple):
    """A MAC or an address that more than one NIC wants, or is reported with."""

    conflict: Conflict


class ImportItem(NamedTuple):
    """How far the import of a Ganeti cluster is."""

    revision: str
    cluster: str
    imported: Import


class UnderlayItem(NamedTuple):
    """The site's prefix for nodes and guests' host side, and how it is used.

    ``given``: /64s that nodes have, or that are in quarantine; ``left``: those that there are to give; ``without``: the first hundred nodes
    that have none; ``endpoints``, ``names``: how many there are; ``zone``: the generation of the zone; ``problems``: the first hundred.
    """

    revision: str
    underlay: Underlay
    given: int
    left: int
    without: tuple[str, ...]
    endpoints: int
    names: int
    zone: int
    problems: tuple[str, ...]


class PrefixItem(NamedTuple):
    """The /64 of a node, with the node's name ("" of one that is forgotten) and own address."""

    revision: str
    node: str
    name: str
    address: str
    prefix: NodePrefix


class PlacementItem(NamedTuple):
    """Say where an instance's endpoints are, and what is wrong with that."""

    revision: str
    placement: Placement
    problems: tuple[str, ...]


class NameItem(NamedTuple):
    """A name, and where it leads."""

    revision: str
    name: str
    leads: Name


class HistoryItem(NamedTuple):
    """One request that was done."""

    revision: str
    entry: Entry


class AuthorityItem(NamedTuple):
    """An authority whose certificates count. ``signs``: it is the one that signs now."""

    revision: str
    authority: Authority
    signs: bool


class CertificateItem(NamedTuple):
    """List who has certificates: the latest of them, and whether all that there are so far are revoked.

    ``foreign``: the authority that has signed the latest counts no more, so it does not count either.
    """

    revision: str
    certificate: Holder
    revoked: bool
    foreign: bool


class TokenItem(NamedTuple):
    """A token, but for what it is known by. ``used``: when, 0 for not yet; ``by``: who has joined by it."""

    revision: str
    id: str
    role: Holding
    name: str
    made: float
    until: float
    used: float
    by: str


class Issued(NamedTuple):
    """A certificate that was signed (PEM), what it says, and the authorities (PEM) that count, by which the service is known."""

    role: Holding
    name: str
    serial: str
    since: float
    until: float
    authority: str
    certificate: str
    authorities: tuple[str, ...]


class FoundItem(NamedTuple):
    """Something whose name, UUID, MAC or address has the text that was looked for.

    ``kind``: networks, nics, nodes; macs, addresses for what no NIC has and is not given out. ``uuid``: of a MAC or an address that of the
    NIC that had it last; "" for none. ``label``: its name; of a MAC or an address why it is not given out.
    """

    kind: str
    uuid: str
    label: str
    text: str  #: what of it has the text


class Page(NamedTuple):
    """A part of a list; all parts are of one ``revision``. ``next``: what ``cursor`` gives the following part; "": there is none."""

    revision: str
    items: tuple[Any, ...]
    next: str = ""


class Abilities(NamedTuple):
    """What this service can do: a newer client leaves alone what an older service cannot."""

    name: str
    version: str
    epoch: str
    revision: str
    abilities: tuple[str, ...]
    actions: tuple[str, ...]


class Status(NamedTuple):
    """How the service is."""

    version: str
    epoch: str
    revision: str
    leader: bool
    networks: int
    nics: int
    nodes: int
    alive: int
    conflicts: int
    streams: int
    history: int
    unreadable: tuple[str, ...]  #: keys whose values cannot be read
    waiting: tuple[str, ...]  #: live nodes that have not reported since a restore: nothing is given out before
    held: int  #: seconds for which no option or quarantine ends yet, since the clock has jumped, or looked wrong at the start
    store: str  #: what keeps the registry: file or etcd


class Compacted(NamedTuple):
    """What a compaction has done: bytes of the file before and after it, and up to which revision nothing older is remembered."""

    before: int
    after: int
    revision: str


class Heartbeat(NamedTuple):
    """A sign of life of a node without an open stream. ``incarnation``: a UUID that its agent makes at each start."""

    incarnation: str


class Alive(NamedTuple):
    """For how long a node is alive now, in seconds."""

    seconds: float


class Problem(NamedTuple):
    """Why a request was refused (RFC 9457). More fields say more: ``field``, ``holder``, ``master``, ``command``, ``revision``."""

    type: str
    title: str
    status: int
    detail: str
