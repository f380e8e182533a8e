"""Take in a node's stream: what is wanted of its NICs, as of one revision of the registry, and nothing by halves.

Lines of the node's own NICs and networks count when the line ``ready`` behind them says that this was all of a commit, or of the beginning;
what was cut off before that counts for nothing. The operator's values of other NICs of the cluster, of which there may be a hundred
thousand, are given on at once: each is whole, and none of them touches anything that is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.messages import Option, Wanted
from netagent.sync.reading import Lie, Own, Revision, own_of, revision_of, told, wanted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LARGEST = 8 << 20  #: bytes of own NICs and networks in one batch
MOST_OWN = 20_000  #: own NICs
MOST_BESIDE = 500_000  #: other NICs with options


class Foreign(Lie):
    """A NIC was told that is none of the node's. ``whole``: at the beginning of a stream, where that cannot be by a delay."""


class Beside(NamedTuple):
    """The operator's values of a NIC that is elsewhere; None: there are none any more."""

    uuid: str
    wanted: Wanted | None
    revision: str


class Changes(NamedTuple):
    """Hold what a commit, or a beginning (``whole``), has changed for the node."""

    whole: bool
    revision: Revision
    nics: Mapping[str, Own]
    left: tuple[str, ...]
    networks: Mapping[str, tuple[Mapping[str, Any], str]]  #: values and revisions
    networks_left: tuple[str, ...]
    kept: frozenset[str] = frozenset()  #: of a beginning: all NICs that were told, own or not


class Inbox:
    """The picture: ``nics`` and ``networks`` (revisions) as of ``ready``. ``mine`` tells whether the node has reported a NIC."""

    def __init__(self, node: str, mine: Callable[[str], bool]) -> None:
        self._node, self._mine = node, mine
        self.nics: dict[str, Own] = {}
        self.networks: dict[str, str] = {}
        self.ready: Revision | None = None  #: up to which all was told; None: nothing is known
        self.complete = False  #: in this connection all was told once
        self._last: Revision | None = None  #: the highest of ``ready`` that there ever was
        self._whole = False
        self._lines: list[tuple[str, str, str, Any, Revision]] = []
        self._size = 0
        self._beside: set[str] = set()

    def begin(self) -> str:
        """Prepare for a stream; give where it is to begin: behind what is known, "" at the beginning."""
        self._lines, self._size, self._beside = [], 0, set()
        self.complete, self._whole = False, self.ready is None
        return "" if self.ready is None else str(self.ready)

    def forget(self) -> None:
        """Let the next stream begin at the beginning. What was wanted last counts until then."""
        self.ready, self.complete = None, False

    def line(self, said: object, size: int) -> Changes | Beside | None:
        """Take one line. Raises Lie: then nothing of the batch counts, and the stream is to be ended."""
        line = told(said)
        if line is None:
            return None
        if self.ready is not None and line.revision.epoch != self.ready.epoch:
            raise Lie(f"a line is of epoch {line.revision.epoch}, not {self.ready.epoch}")
        if line.event == "ready":
            return self._ready(line.revision)
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
        return Beside(line.uuid, wanted_of(line), str(line.revision))

    def _ready(self, at: Revision) -> Changes:
        last = self._last or self.ready
        if last is not None and at.epoch == last.epoch and at.number < last.number:
            raise Lie(f"revision {at} comes after {last}")
        nics: dict[str, Own] = {} if self._whole else dict(self.nics)
        networks: dict[str, str] = {} if self._whole else dict(self.networks)
        values: dict[str, Mapping[str, Any]] = {}
        for event, what, uuid, value, revision in self._lines:
            if revision.epoch != at.epoch or revision.number > at.number:
                raise Lie(f"{what} {uuid} is of {revision}, which is behind {at}")
            if what == "nic" and event == "leave":
                nics.pop(uuid, None)
            elif what == "nic":
                self._check(uuid, value, revision)
                nics[uuid] = value
            elif event == "leave":
                networks.pop(uuid, None)
            else:
                networks[uuid], values[uuid] = str(revision), value
        found = Changes(
            self._whole,
            at,
            {uuid: own for uuid, own in nics.items() if self.nics.get(uuid) != own},
            tuple(uuid for uuid in self.nics if uuid not in nics),
            {uuid: (value, networks[uuid]) for uuid, value in values.items() if uuid in networks},
            tuple(uuid for uuid in self.networks if uuid not in networks),
            frozenset((*nics, *self._beside)) if self._whole else frozenset(),
        )
        self.nics, self.networks, self.ready, self.complete, self._last = nics, networks, at, True, at
        self._lines, self._size, self._beside, self._whole = [], 0, set(), False
        return found

    def _check(self, uuid: str, own: Own, revision: Revision) -> None:
        if own.master != f"node:{self._node}" and not self._mine(uuid):
            raise Foreign(f"NIC {uuid} is none of this node's")
        before = self.nics.get(uuid)
        if before is not None:
            known = revision_of(before.wanted.revision)
            if known.epoch == revision.epoch and revision.number < known.number:
                raise Lie(f"NIC {uuid} is told as of {revision}, and was told as of {known}")

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
                "fields": own.fields,
            }
            for uuid, own in self.nics.items()
        }
        return {"node": self._node, "ready": str(self.ready), "nics": nics, "networks": dict(self.networks)}

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
                    ),
                    dict(each["fields"]),
                )
                for uuid, each in document["nics"].items()
            }
            networks = {str(uuid): str(revision_of(each)) for uuid, each in document["networks"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return
        self.nics, self.networks, self.ready = nics, networks, ready
