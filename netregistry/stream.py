"""Tell one node what concerns it, as it changes: pure, from the view and the commits that it takes in.

A node's own are the NICs that it has reported, and those whose master it is, with their networks. Of every other NIC of its cluster it is
told the operator's values: they lie on a migration's target before the guest comes. A line is ``enter`` (the whole value), ``change`` (the
whole value too: who has missed one loses nothing), ``leave`` or ``ready``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from netregistry.model import keys
from netregistry.model.codec import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.model.network import Network
    from netregistry.model.nic import Nic
    from netregistry.model.node import Node
    from netregistry.stores.base import Batch

What = Literal["nic", "network", "options"]


class Known(Protocol):
    """What a stream is made from: a View, or what one was at an earlier revision. Its methods are View's."""

    epoch: str
    revision: int

    def get(self, key: str) -> Any: ...

    def at(self, key: str) -> int: ...

    def members(self, name: str, *of: str) -> tuple[str, ...]: ...

    def network(self, uuid: str) -> Network | None: ...

    def nic(self, uuid: str) -> Nic | None: ...

    def node(self, uuid: str) -> Node | None: ...


class Line(NamedTuple):
    """One line of a stream. ``revision``: EPOCH:REVISION of what it tells; of ``ready``: up to which all was told."""

    event: Literal["enter", "change", "leave", "ready"]
    what: Literal["nic", "network", "options", ""] = ""
    uuid: str = ""
    value: Any = None
    revision: str = ""


class Stream:
    """What one node has been told. Of one commit, or of one view, it is told in an order that nothing else has a say in."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._told: dict[tuple[What, str], int] = {}  # -> revision of the value

    def begin(self, view: Known) -> Iterator[Line]:
        """Tell all that concerns the node, and that this was all; also again, of a view made anew: then what differs."""
        wanted = self._all(view)
        for what, uuid in wanted:
            yield from self._tell(view, what, uuid, True)
        for what, uuid in sorted((told for told in self._told if told not in wanted), key=lambda told: (told[0] == "network", told)):
            yield from self._tell(view, what, uuid, False)
        yield Line("ready", revision=f"{view.epoch}:{view.revision}")

    def next(self, view: Known, batch: Batch) -> Iterator[Line]:
        """Tell what a commit changes for the node, after the view has taken it in.

        A network enters before its NICs, and leaves after them.
        """
        nics: dict[str, None] = {}
        networks: dict[str, None] = {}
        for change in batch.changes:
            kind, _, rest = change.key.partition("/")
            if kind == "nodes" and rest == self.node:
                yield from self.begin(view)  # it may be in another cluster
                return
            if kind == "nics":
                nics[rest] = None
            elif kind == "networks" and ("network", rest) in self._told:
                networks[rest] = None
            elif kind == "seen" and rest.startswith(f"{self.node}/"):
                nics[rest.partition("/")[2]] = None
        lines = [line for uuid in nics for line in self._about(view, uuid)]
        if not lines and not networks:
            return
        wanted = {uuid: None for what, uuid in sorted(self._told) if what == "network"}
        if any(line.what == "nic" for line in lines):
            before, wanted = wanted, self._networks(view)
            networks |= {uuid: None for uuid in (*before, *wanted) if (uuid in before) != (uuid in wanted)}
        gone = [uuid for uuid in networks if uuid not in wanted or view.network(uuid) is None]
        for uuid in networks:
            if uuid not in gone:
                yield from self._tell(view, "network", uuid, True)
        yield from lines
        for uuid in gone:
            yield from self._tell(view, "network", uuid, False)

    def _about(self, view: Known, uuid: str) -> Iterator[Line]:
        nic = view.nic(uuid)
        own = nic is not None and self._own(view, nic)
        yield from self._tell(view, "options", uuid, nic is not None and not own and self._beside(view, nic))
        yield from self._tell(view, "nic", uuid, own)

    def _tell(self, view: Known, what: What, uuid: str, concerned: bool) -> Iterator[Line]:
        key = keys.network(uuid) if what == "network" else keys.nic(uuid)
        told, at = self._told.get((what, uuid)), view.at(key)
        if not concerned:
            if told is not None:
                del self._told[what, uuid]
                yield Line("leave", what, uuid, revision=f"{view.epoch}:{view.revision}")
        elif told != at:
            self._told[what, uuid] = at
            value = view.get(key)
            said = write(value.options) if what == "options" else write(value)
            yield Line("change" if told is not None else "enter", what, uuid, said, f"{view.epoch}:{at}")

    def _all(self, view: Known) -> dict[tuple[What, str], None]:
        """Give all that the node is to be told, in that order."""
        found: dict[tuple[What, str], None] = {("network", uuid): None for uuid in self._networks(view)}
        own = dict.fromkeys(sorted(self._owns(view)))
        found |= {("nic", uuid): None for uuid in own}
        node = view.node(self.node)
        for key in sorted(view.members("optioned", node.cluster)) if node else ():
            uuid = key.partition("/")[2]
            if uuid not in own:
                found["options", uuid] = None
        return found

    def _owns(self, view: Known) -> Iterator[str]:
        """Give the node's own NICs."""
        for key in (*view.members("on", self.node), *view.members("mastered", f"node:{self.node}")):
            uuid = key.rpartition("/")[2]
            if view.nic(uuid) is not None:
                yield uuid

    def _networks(self, view: Known) -> dict[str, None]:
        """Give the networks of the node's own NICs."""
        found = sorted({nic.network for uuid in self._owns(view) if (nic := view.nic(uuid)) is not None})
        return {uuid: None for uuid in found if uuid and view.network(uuid) is not None}

    def _own(self, view: Known, nic: Nic) -> bool:
        return view.get(keys.seen(self.node, nic.uuid)) is not None or nic.master == f"node:{self.node}"

    def _beside(self, view: Known, nic: Nic) -> bool:
        node = view.node(self.node)
        return node is not None and node.cluster != "" and node.cluster == nic.cluster and bool(nic.options)
