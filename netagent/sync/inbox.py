"""Take in a node's stream: what is wanted of its NICs, as of one revision of the registry, and nothing by halves.

Lines of the node's own NICs and networks count when the line ``ready`` behind them says that this was all of a commit, or of the beginning;
what was cut off before that counts for nothing. The operator's values of other NICs of the cluster, of which there may be a hundred
thousand, are given on at once: each is whole, and none of them touches anything that is here.

Revisions do not run backwards. A ``ready`` alone proves nothing, though: it says no more than that nothing has come. Where the registry
tells all anew as of an earlier one, that is believed if it has told, or done, nothing later than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.messages import Option, Wanted
from netagent.sync.reading import Lie, Own, Revision, own_of, revision_of, told, wanted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LARGEST = 8 << 20  #: bytes of own NICs and networks in one batch
MOST_OWN = 20_000  #: own NICs
MOST_NETWORKS = 2_000  #: networks of the cluster in which no NIC is this node's: of more than these nothing is kept
MOST_BESIDE = 500_000  #: other NICs with options


class Foreign(Lie):
    """A NIC was told that is none of the node's. ``whole``: at the beginning of a stream, where that cannot be by a delay."""


class Beside(NamedTuple):
    """The operator's values of a NIC that is elsewhere; None: there are none any more. ``whole``: these are all that a node keeps."""

    uuid: str
    wanted: Wanted | None
    revision: str
    whole: bool = True


class Network(NamedTuple):
    """A network as the registry has told it, fields that are unknown included. ``revision``: EPOCH:REVISION."""

    revision: str
    value: Mapping[str, Any]


class Changes(NamedTuple):
    """Hold what a commit, or a beginning (``whole``), has changed for the node.

    ``underlay``: what it is to have of that by now; ``underlay_left``: nothing any more.
    """

    whole: bool
    revision: Revision
    nics: Mapping[str, Own]
    left: tuple[str, ...]
    networks: Mapping[str, Network]
    networks_left: tuple[str, ...]
    kept: frozenset[str] = frozenset()  #: of a beginning: all NICs that were told, own or not
    first: bool = False  #: nothing was told before in this run of the agent
    underlay: Network | None = None
    underlay_left: bool = False


class Inbox:
    """The picture: ``nics`` and ``networks`` as of ``ready``. ``mine`` tells whether the node has reported a NIC."""

    def __init__(self, node: str, mine: Callable[[str], bool]) -> None:
        self._node, self._mine = node, mine
        self.nics: dict[str, Own] = {}
        self.networks: dict[str, Network] = {}
        self.underlay: Network | None = None  #: what this node is to have of it; None: nothing, or nobody has said
        self.agreed: dict[str, str] = {}  #: NIC -> the address that the registry and the node had of it when they last had the same
        self._agreements = 0
        self.ready: Revision | None = None  #: up to which all was told; None: nothing is known
        self.complete = False  #: in this connection all was told once
        self.current = False  #: in this run of the agent all was told once: nothing on the node is newer
        self._last: Revision | None = None  # the highest of ``ready`` that there ever was
        self._proved: Revision | None = None  # the highest at which anything was told or done
        self._whole = False
        self.asks = False  #: this stream is to tell the underlay
        self._told_underlay = False  # up to ``ready`` that was told, too
        self._lines: list[tuple[str, str, str, Any, Revision]] = []
        self._size = 0
        self._beside: set[str] = set()
        self._before: object = None  # the line before, where that was ``ready``
        self._highest: Revision | None = None  # of the lines since ``ready``

    def begin(self, underlay: bool = False) -> str:
        """Prepare for a stream; give where it is to begin: behind what is known, "" at the beginning.

        ``underlay``: the service is asked for that too, so what it does not tell at a beginning is not there.
        """
        if underlay and not self._told_underlay:
            self.ready = None  # what was changed of it up to there was never told
        self.asks = underlay
        self._lines, self._size, self._beside, self._highest = [], 0, set(), None
        self.complete, self._whole = False, self.ready is None
        return "" if self.ready is None else str(self.ready)

    def forget(self) -> None:
        """Let the next stream begin at the beginning. What was wanted last counts until then."""
        self.ready, self.complete = None, False

    def repeats(self, said: object) -> bool:
        """Tell whether a line is a sign of life: it says, as the one before it did, up to where all was told."""
        return self.complete and said == self._before

    def line(self, said: object, size: int) -> Changes | Beside | None:
        """Take one line. Raises Lie: then nothing of the batch counts, and the stream is to be ended."""
        self._before = None
        line = told(said)
        if line is None:
            return None
        if self.ready is not None and line.revision.epoch != self.ready.epoch:
            raise Lie(f"a line is of epoch {line.revision.epoch}, not {self.ready.epoch}")
        if line.event == "ready":
            found = self._ready(line.revision)
            self._before = said
            return found
        if self._highest is not None and self._highest.epoch != line.revision.epoch:
            raise Lie(f"a line is of epoch {line.revision.epoch}, not {self._highest.epoch}")
        self._highest = max(self._highest or line.revision, line.revision)
        if line.what == "options":
            return self._other(line)
        self._size += size
        if self._size > LARGEST or len(self._lines) > MOST_OWN:
            raise Lie(f"more than {LARGEST} bytes, or {MOST_OWN} lines, of this node's NICs at once")
        value: Any = None
        if line.event != "leave":
            value = own_of(line, self._node) if line.what == "nic" else line.value
        self._lines.append((line.event, line.what, line.uuid, value, line.revision))
        return None

    def _other(self, line: Any) -> Beside:
        if line.event == "leave":
            self._beside.discard(line.uuid)
            return Beside(line.uuid, None, str(line.revision))
        if self._whole:
            self._beside.add(line.uuid)
            if len(self._beside) > MOST_BESIDE:
                raise Lie(f"more than {MOST_BESIDE} NICs with options")
        elif line.event == "change" and self.ready is not None and line.revision.number <= self.ready.number:
            raise Lie(f"NIC {line.uuid} is told as changed at {line.revision}, and all up to {self.ready} was told")
        return Beside(line.uuid, wanted_of(line), str(line.revision), line.whole)

    def proves(self, at: Revision) -> None:
        """Take that the registry has told, or done, something at a revision: what it tells as a whole cannot be earlier."""
        if self._proved is None or at.epoch != self._proved.epoch or at.number > self._proved.number:
            self._proved = at

    def _ready(self, at: Revision) -> Changes:
        last = self._last or self.ready
        if last is not None and at.epoch == last.epoch and at.number < last.number and not (self._whole and self._may_be(at)):
            raise Lie(f"revision {at} comes after {last}")
        if self._highest is not None and (self._highest.epoch != at.epoch or self._highest.number > at.number):
            raise Lie(f"a line is of {self._highest}, which is behind {at}")
        if not (self._lines or self._whole):  # what was committed is nothing of this node's: so it is mostly
            return self._taken(at, Changes(False, at, {}, (), {}, (), first=not self.current))
        nics: dict[str, Own] = {} if self._whole else dict(self.nics)
        networks: dict[str, Network] = {} if self._whole else dict(self.networks)
        told: dict[str, Network] = {}
        underlay = None if self._whole and self.asks else self.underlay
        for event, what, uuid, value, revision in self._lines:
            if what == "underlay":
                self._check_order("the underlay", self.underlay, revision)
                underlay = None if event == "leave" else Network(str(revision), value)
            elif what == "nic" and event == "leave":
                nics.pop(uuid, None)
            elif what == "nic":
                self._check(uuid, value, revision)
                nics[uuid] = value
            elif event == "leave":
                networks.pop(uuid, None)
            else:
                self._check_order(f"network {uuid}", self.networks.get(uuid), revision)
                networks[uuid] = told[uuid] = Network(str(revision), value)
        for uuid in _too_many(nics, networks):
            del networks[uuid]
        found = Changes(
            self._whole,
            at,
            {uuid: own for uuid, own in nics.items() if self.nics.get(uuid) != own},
            tuple(uuid for uuid in self.nics if uuid not in nics),
            {uuid: network for uuid, network in told.items() if uuid in networks},
            tuple(uuid for uuid in self.networks if uuid not in networks),
            kept=frozenset((*nics, *self._beside)) if self._whole else frozenset(),
            first=not self.current,
            underlay=None if underlay == self.underlay else underlay,
            underlay_left=underlay is None and (self.underlay is not None or (self._whole and self.asks)),
        )
        self.nics, self.networks, self.underlay = nics, networks, underlay
        return self._taken(at, found)

    def _taken(self, at: Revision, found: Changes) -> Changes:
        """Note that all was told up to a revision."""
        if self._highest is not None:
            self.proves(self._highest)
        self.ready = self._last = at
        self._told_underlay = self.asks
        self.complete = self.current = True
        self._lines, self._size, self._beside, self._whole, self._highest = [], 0, set(), False, None
        return found

    def _may_be(self, at: Revision) -> bool:
        return self._proved is None or self._proved.epoch != at.epoch or self._proved.number <= at.number

    def _check(self, uuid: str, own: Own, revision: Revision) -> None:
        if own.master != f"node:{self._node}" and not self._mine(uuid):
            raise Foreign(f"NIC {uuid} is none of this node's")
        before = self.nics.get(uuid)
        self._check_order(f"NIC {uuid}", None if before is None else before.wanted, revision)

    def _check_order(self, what: str, before: Wanted | Network | None, revision: Revision) -> None:
        known = revision if before is None else revision_of(before.revision)
        if known.epoch == revision.epoch and revision.number < known.number:
            raise Lie(f"{what} is told as of {revision}, and was told as of {known}")

    def agree(self, uuid: str, address: str) -> None:
        """Note that the registry and the node have the same address of a NIC."""
        if self.agreed.get(uuid) != address:
            self.agreed[uuid] = address
            self._agreements += 1

    @property
    def stand(self) -> tuple[Revision | None, int]:
        """Give what another ``document`` would be worth writing for, once it is another."""
        return self.ready, self._agreements

    @property
    def beginning(self) -> bool:
        """Tell whether the stream is one from the beginning, which has not been told whole yet."""
        return self._whole

    # -- on disk

    def document(self) -> dict[str, Any]:
        """Give what is known, for JSON."""
        nics = {
            uuid: {
                "master": own.master,
                "revision": own.wanted.revision,
                "options": [list(each) for each in own.wanted.options],
                "network": own.wanted.network,
                "tags": own.wanted.tags,
                "position": own.wanted.position,
                "ip": own.wanted.ip,
                "fields": own.fields,
                **({"agreed": self.agreed[uuid]} if uuid in self.agreed else {}),
            }
            for uuid, own in self.nics.items()
        }
        networks = {uuid: network._asdict() for uuid, network in self.networks.items()}
        underlay = None if self.underlay is None else self.underlay._asdict()
        stands = {"ready": str(self.ready), "proved": str(self._proved or self.ready)}
        return {"node": self._node, **stands, "nics": nics, "networks": networks, "underlay": underlay, "asked": self._told_underlay}

    def load(self, document: Mapping[str, Any]) -> None:
        """Take what ``document`` gave; whatever is not that counts for nothing: then all is told anew."""
        try:
            if document["node"] != self._node:
                return
            ready = revision_of(document["ready"])
            nics = {
                str(uuid): Own(
                    str(each["master"]),
                    Wanted(
                        str(revision_of(each["revision"])),
                        tuple(Option(str(name), str(value), float(until)) for name, value, until in each["options"]),
                        str(each["network"]),
                        None if each["tags"] is None else tuple(str(tag) for tag in each["tags"]),
                        None if each["position"] is None else int(each["position"]),
                        str(each["ip"]),
                    ),
                    dict(each["fields"]),
                )
                for uuid, each in document["nics"].items()
            }
            networks = {
                str(uuid): Network(str(revision_of(each["revision"])), dict(each["value"])) for uuid, each in document["networks"].items()
            }
            agreed = {str(uuid): str(each["agreed"]) for uuid, each in document["nics"].items() if "agreed" in each}
            proved = revision_of(document["proved"])
            said = document.get("underlay")  # an earlier version has not kept it
            underlay = None if said is None else Network(str(revision_of(said["revision"])), dict(said["value"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return
        self.nics, self.networks, self.agreed, self.ready, self._proved = nics, networks, agreed, ready, proved
        self.underlay, self._told_underlay = underlay, document.get("asked") is True  # an earlier version does not say it


def _too_many(nics: Mapping[str, Own], networks: Mapping[str, Network]) -> list[str]:
    """Give the networks that are beyond what is kept: always the same of the same."""
    if len(networks) <= MOST_NETWORKS:
        return []
    own = {own.wanted.network for own in nics.values()}
    return sorted(uuid for uuid in networks if uuid not in own)[MOST_NETWORKS:]
