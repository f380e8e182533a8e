"""Which of the node's NICs are to be reported: marks, and not messages. What is sent is what is so at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from netagent.sync.requests import Send

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from netagent.sync.requests import Value

AT_ONCE = 50  #: NICs of one request: netregistry.rules.nodes.Reporting


class Here(Protocol):
    """What the node has now."""

    def report(self, nic: str) -> Value | None:
        """Give what is so of a NIC, as the registry has it (POST /v1/nodes/NODE/reports, ``nics``); None: it is not here."""
        ...

    def about(self) -> Value:
        """Give what there is on the node itself."""
        ...

    def definition(self, nic: str) -> Value | None:
        """Give the body by which a NIC is made known that is here, and nobody else's to decide; None where a Ganeti cluster does."""
        ...


class Marks:
    """The marks, and what the registry has of this node. ``at``: EPOCH:REVISION of its latest reports; "": not known."""

    def __init__(self, here: Here) -> None:
        self._here = here
        self.at = ""
        self.reported: dict[str, str] = {}  #: NIC -> EPOCH:REVISION at which the registry has got what it has of it
        self.stopped: set[str] = set()  #: of those the ones that it has as stopped
        self.refused: dict[str, str] = {}  #: NIC ("": the node itself) -> why the registry does not take what is said of it
        self._dirty: dict[str, None] = {}
        self._about = True
        self._sent: tuple[dict[str, None], bool] = {}, False  # the marks that the request in flight has taken
        self._alone: dict[str, None] = {}  # one by one: together with others they were refused

    @property
    def count(self) -> int:
        return len(self._dirty) + len(self._alone) + self._about

    @property
    def clean(self) -> bool:
        return not self.count

    def mark(self, nic: str) -> None:
        """Let a NIC be reported: something of it is another, or it is gone."""
        self._dirty[nic] = None

    def mark_about(self) -> None:
        self._about = True

    def listed(self, at: str, reports: Iterable[Value]) -> None:
        """Take in what the registry has of this node: all of it is compared with what is here by being sent."""
        self.at = at
        found = {str(each["nic"]): each for each in reports}
        self.reported = dict.fromkeys(found, at)
        self.stopped = {nic for nic, each in found.items() if each.get("state") == "stopped"}
        self._dirty |= dict.fromkeys(found)
        self._about = True
        self.refused.clear()

    def send(self, new_id: str, wanted: Container[str], complete: bool) -> Send | None:
        """Give the next reports; None where nothing is to be said.

        ``wanted``: NICs that the registry wants here; all of them if ``complete``. One that has gone is reported as stopped as long as it
        is wanted, or may be, and then no more.
        """
        while not self.clean:
            taken = dict.fromkeys(list(self._dirty)[:AT_ONCE] or list(self._alone)[:1])
            about = self._about
            nics: list[Value] = []
            removed: list[str] = []
            for nic in taken:
                said = self._here.report(nic)
                if said is not None:
                    nics.append(said)
                elif nic in self.reported and complete and nic not in wanted:
                    removed.append(nic)
                elif nic in self.reported and nic not in self.stopped:
                    nics.append({"nic": nic, "state": "stopped"})
            self._dirty = {nic: None for nic in self._dirty if nic not in taken}
            self._alone = {nic: None for nic in self._alone if nic not in taken}
            self._about = False
            if nics or removed or about:
                self._sent = taken, about
                return Send(new_id, self.at, tuple(nics), tuple(removed), self._here.about() if about else None)
        return None

    def done(self, sent: Send, at: str) -> None:
        """Take in that reports were taken, at EPOCH:REVISION."""
        self.at = at
        for each in sent.nics:
            nic = str(each["nic"])
            self.reported[nic] = at
            (self.stopped.add if each["state"] == "stopped" else self.stopped.discard)(nic)
            self.refused.pop(nic, None)
        for nic in sent.removed:
            self.reported.pop(nic, None)
            self.stopped.discard(nic)
        self._sent = {}, False

    def undone(self) -> None:
        """Take in that what was sent was not taken: the marks stand again."""
        taken, about = self._sent
        self._dirty = {**taken, **self._dirty}
        self._about = self._about or about
        self._sent = {}, False

    def invalid(self, why: str) -> None:
        """Take in that the registry refuses what was sent for what it says: each NIC is tried alone, and one that is alone is left."""
        taken, about = self._sent
        self._sent = {}, False
        if len(taken) + about > 1:
            self._alone |= taken
            self._about = self._about or about
        else:
            self.refused |= dict.fromkeys(taken or ("",), why)
