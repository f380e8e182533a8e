"""Keep what the registry is still to be told: marks, not messages. What is sent of a NIC is what it is when it is sent.

One request of reports is in flight. It holds the node's next reports after those that the registry has (``after``), so a copy of it that
comes late is refused; and where no answer came the same is sent again until there is one. What the registry refuses is sent by itself, then
left aside: it holds up nothing else, and is sent again when it has changed, or is to be tried again (``retry``).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from netagent.sync.messages import Local, Looked, Send, Sent
from netagent.sync.reading import OF_REGISTRY, note, report_of, said_of
from netregistry.model.codec import Invalid, read, write
from netregistry.model.nic import Report
from netregistry.model.node import About

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST = 50  #: NICs of one request
STOPPED: Final = "stopped"
ABOUT: Final = "about"  #: stands for what there is on the node, among UUIDs of NICs


class Aside(NamedTuple):
    """Keep what the registry has refused by itself. ``said``: that; the hash of what there is on the node; None: that a NIC is gone."""

    why: str
    said: Sent | int | None


class Outbox:
    """The marks. ``wanted`` tells whether the registry wants a NIC; True where that is not known.

    ``refused`` says why a NIC is not as it is wanted; "" where it is.
    """

    def __init__(self, wanted: Callable[[str], bool], refused: Callable[[str], str]) -> None:
        self._wanted, self._refused = wanted, refused
        self.after = ""  #: EPOCH:REVISION of the node's latest reports; "" where that is not known
        self.told: dict[str, Sent] = {}  #: what the registry has from us
        self.ever: set[str] = set()  #: NICs that it has had from us since it was last asked for all
        self.noted: dict[str, str] = {}  #: NICs that were refused before this start -> why, until that is known anew
        self.dirty: dict[str, None] = {}
        self.about = False  #: what there is on the node is to be told
        self.aside: dict[str, Aside] = {}  #: what the registry refuses: NICs, and what there is on the node (ABOUT)
        self.leaving: set[str] = set()  #: stopped NICs that run elsewhere by now: what we have said of them goes
        self.absent: set[str] = set()  #: NICs that are ours and not here, of which nothing was ever said: that is to be said
        self.unclear: dict[str, float] = {}  #: NICs of which nothing could be told: when (monotonic seconds) they are looked at again
        self.flight: Send | None = None
        self._reading: tuple[str, ...] = ()
        self._flying: dict[str, Sent | None] = {}
        self._about_flying = self._about_told = 0  # the hash of what was said of the node itself; 0 for nothing
        self._reads_about = False
        self._alone: set[str] = set()  # they are sent one by one: one of them is refused
        self._was_alone = False  # the latest batch was one of these: the next one is what else there is to say
        self._early: bool | None = False  # reports were sent before the node was alive; None: it is, and they count
        self._again = False  # and what is in flight may be of them

    def mark(self, uuid: str) -> None:
        """Note that a NIC is to be told."""
        self.dirty[uuid] = None

    def turn(self, now: float) -> None:
        """Mark again what could not be told when it was looked at, where that is due."""
        for uuid in [uuid for uuid, when in self.unclear.items() if when <= now] if self.unclear else ():
            del self.unclear[uuid]
            self.mark(uuid)

    def mine(self, uuid: str) -> bool:
        """Tell whether the registry may have a NIC from us."""
        return uuid in self.ever or uuid in self._flying

    @property
    def tells_about(self) -> bool:
        """Tell whether the request in flight says what there is on the node."""
        return self._about_flying != 0

    @property
    def marks(self) -> int:
        """Count what is to be told, in flight or not."""
        aside = sum(1 for each in self.aside if each not in self.dirty)
        about = self.about + self._reads_about + (self._about_flying != 0)
        return sum(map(len, (self.dirty, self._reading, self._flying, self.unclear))) + about + aside

    @property
    def telling(self) -> bool:
        """Tell whether anything is to be told that is neither left aside nor unclear, in flight or not."""
        return self.flight is not None or self.due or bool(self._reading) or self._reads_about

    def batch(self) -> tuple[tuple[str, ...], bool]:
        """Take what is to be looked at for the next request: NICs, and whether also what there is on the node."""
        marked = (ABOUT, *self.dirty) if self.about else (*self.dirty,)
        alone = next((each for each in marked if each in self._alone), None)
        others = [each for each in marked if each not in self._alone][:MOST]
        self._was_alone = alone is not None and not (self._was_alone and others)
        taken = [alone] if self._was_alone and alone is not None else others
        self._reads_about = ABOUT in taken
        self._reading = tuple(each for each in taken if each != ABOUT)
        self.about = self.about and not self._reads_about
        for uuid in self._reading:
            del self.dirty[uuid]
        return self._reading, self._reads_about

    @property
    def due(self) -> bool:
        """Tell whether there is anything to look at for a request."""
        return self.flight is None and (self.about or bool(self.dirty))

    def looked(self, looked: Looked, request: Callable[[], str]) -> Send | None:
        """Make a request of what was looked at; None where the registry knows all of it. ``request`` gives its id."""
        nics, removed, flying = [], [], dict[str, Sent | None]()
        for uuid in self._reading:
            if uuid in looked.unclear:
                continue  # it is looked at again
            local, before = looked.nics.get(uuid), self.told.get(uuid)
            kept = self._wanted(uuid) and uuid not in self.leaving
            self.leaving.discard(uuid)
            if local is None and before is not None and before.state == STOPPED and kept:
                self._agreed(uuid)
                continue  # it is not here, and that was told
            report = self._report(uuid, local, looked.wall, kept)
            self.absent.discard(uuid)
            sent = None if report is None else _sent(report)
            if not self._is_known(uuid, sent, before):
                flying[uuid] = sent
                if report is None:
                    removed.append(uuid)
                else:
                    nics.append({name: value for name, value in write(report).items() if name not in OF_REGISTRY})
        self._reading = ()
        body: dict[str, Any] = {"after": self.after, "nics": nics, "removed": removed}
        reads_about, self._reads_about = self._reads_about, False
        if reads_about and looked.about is None:
            self.about = True  # it is looked at again
        elif reads_about:
            about = hash(looked.about)
            if not self._is_known(ABOUT, about, self._about_told):
                self._about_flying = about
                body[ABOUT] = write(looked.about)
        if not flying and not self._about_flying:
            return None
        self._flying = flying
        self.flight = Send(request(), body)
        return self.flight

    def _agreed(self, what: str) -> None:
        """Take that the registry has something as it is: nothing of it is refused any more."""
        self.aside.pop(what, None)
        self._alone.discard(what)

    def _is_known(self, what: str, said: Sent | int | None, before: Sent | int | None) -> bool:
        """Tell whether the registry has something as it is, or has refused that."""
        if said == before:
            self._agreed(what)
        return said == before or (what in self.aside and self.aside[what].said == said)

    def _report(self, uuid: str, local: Local | None, wall: float, kept: bool) -> Report | None:
        """Give what is to be said of a NIC; None: nothing. One that is not here is stopped as long as it is wanted."""
        if local is not None:
            return self._said(uuid, local)
        return Report(uuid, STOPPED, since=wall) if kept and (uuid in self.told or uuid in self.absent) else None

    def _said(self, uuid: str, local: Local) -> Report:
        return local.report._replace(refused=note(self._refused(uuid) or self.noted.get(uuid, "")))

    def knows(self, uuid: str, local: Local) -> bool:
        """Tell whether the registry has a NIC from us as it is."""
        sent = self.told.get(uuid)
        return sent is not None and sent == _sent(self._said(uuid, local))

    @property
    def refused(self) -> dict[str, str]:
        """Say of which NICs the registry does not take the reports, and why; ABOUT stands for what there is on the node."""
        return {each: f"reports: {aside.why}" for each, aside in self.aside.items()}

    # -- what became of a request

    def done(self, revision: str) -> dict[str, Sent | None]:
        """Take that the request in flight was done; give what it has said."""
        said, self._flying, self.flight = self._flying, {}, None
        if self._about_flying:
            self._agreed(ABOUT)
        self._about_told, self._about_flying = self._about_flying or self._about_told, 0
        for uuid, sent in said.items():
            self._agreed(uuid)
            if sent is None:
                self.told.pop(uuid, None)
            else:
                self.told[uuid] = sent
                self.ever.add(uuid)
        self.after = revision
        if self._again:
            self._tell_again()
        return said

    def sends(self) -> Send | None:
        """Give the request in flight, to be sent."""
        if self._early is not None:
            self._early = True
        return self.flight

    def alive(self) -> None:
        """Take that the registry knows that this agent is alive.

        What it was told before is of the life that it took the node to have then, and is not believed (netregistry.view.View.heard).
        """
        early, self._early = self._early, None
        if early and self.flight is not None:
            self._again = True  # it is not known before which of the two it was done
        elif early:
            self._tell_again()

    def _tell_again(self) -> None:
        self._again = False
        self.about, self._about_told = True, 0
        for uuid, sent in self.told.items():
            self.told[uuid] = sent._replace(hash=0)
            self.dirty.setdefault(uuid)

    def not_done(self) -> None:
        """Take that the request in flight was not done: what it said is to be told still."""
        for uuid in (*self._flying, *self._reading):
            self.dirty.setdefault(uuid)
        self.about = self.about or self._reads_about or self._about_flying != 0
        self._flying, self._reading, self._reads_about, self.flight, self._about_flying = {}, (), False, None, 0
        if self._again:
            self._tell_again()

    def not_taken(self, why: str) -> None:
        """Take that the registry will not have what the request in flight says: each part is sent by itself, and such a one left aside."""
        parts: dict[str, Sent | int | None] = {**self._flying, **({ABOUT: self._about_flying} if self._about_flying else {})}
        self._alone.update(parts)
        if len(parts) == 1:
            self.aside |= {each: Aside(why, said) for each, said in parts.items()}
            self._flying, self._about_flying = {}, 0
        self.not_done()

    def has_about(self, said: Mapping[str, Any]) -> None:
        """Take what the registry has from this life on what there is on the node."""
        with contextlib.suppress(Invalid):
            self._about_told = hash(read(About, said))

    def listed(self, reports: Iterable[Mapping[str, Any]], counts: bool) -> None:
        """Take what the registry has from us, as it lists that. ``counts``: it is of this life: what is as it says is not told anew.

        Raises Lie.
        """
        has = dict(map(report_of, reports := list(reports)))
        self.told, self.noted = {}, {}
        for each in reports:
            said = said_of(each)
            self.told[each["nic"]] = Sent(has[each["nic"]], 0) if said is None else _sent(said, counts)
            if counts and said is not None and said.refused:
                self.noted[said.nic] = said.refused
        self.ever = set(self.told)
        self.dirty |= dict.fromkeys(self.told)

    def compared(self, reports: Iterable[Mapping[str, str]]) -> None:
        """Hold what the registry has from us against what we know of that; what differs is told again. Raises Lie."""
        has = dict(map(report_of, reports))
        if self.flight is not None:
            return  # nobody knows whether that is in it
        for uuid in [uuid for uuid, sent in self.told.items() if has.get(uuid) != sent.state]:
            del self.told[uuid]
            self.mark(uuid)
        for uuid in has.keys() - self.told.keys():
            self.told[uuid] = Sent(has[uuid], 0)
            self.ever.add(uuid)
            self.mark(uuid)

    def forget(self) -> None:
        """Take that nothing is known of what the registry has from us, nor of what it takes."""
        self.not_done()
        self.retry()
        self.after, self.about, self._about_told = "", True, 0
        for uuid in self.told:
            self.dirty.setdefault(uuid)
        self.told = {}

    def retry(self) -> None:
        """Let what was refused be tried again."""
        refused, self.aside = self.aside, {}
        self.about = refused.pop(ABOUT, None) is not None or self.about
        for uuid in refused:
            self.dirty.setdefault(uuid)


def _sent(report: Report, counts: bool = True) -> Sent:
    return Sent(report.state, (hash(report) or 1) if counts else 0, report.tap, report.mode or "", report.link)
