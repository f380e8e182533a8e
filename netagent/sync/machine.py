"""The node's side of a registry as a state machine: events in, requests out, without a clock, a socket or a file of its own.

It has one request in flight and one stream. Where something fails it waits a constant time with some chance in it: a whole cluster comes
back at a bounded rate. A revision of another epoch begins everything anew: what the registry has of the node is listed, all is reported,
and the stream tells all that is wanted.

What the stream tells counts from its next ``ready`` on: whoever is cut off before goes on behind the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.marks import Marks
from netagent.sync.requests import Add, Alarm, Delete, Inventory, Listing, Send, Want, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from netagent.sync.marks import Here
    from netagent.sync.requests import Asked, Request, Value

Name = tuple[str, str]  #: what ("nic", "options", "network") and its UUID

PAUSE = 5.0  #: seconds until something that failed is tried again, and up to twice that, by chance
SLOW = 3600.0  #: until what this service cannot do, or refuses for good, is tried again; and from one comparison to the next
FIRST = (120.0, 600.0)  #: seconds after the start within which, by chance, the first comparison is
NEVER = float("inf")
MOST_TOLD = 200_000  #: lines without a ``ready``
MOST = 10  #: NICs that are deleted by one comparison: more is no administrator's doing

#: What the registry refuses that is so again a moment later, by the kinds of its problems.
LATER = frozenset(("busy", "waiting", "unsure", "too-many", "unavailable", "full"))
#: And what tells that our picture of it is old.
STALE = frozenset(("stale", "epoch", "compacted", "match"))


class Machine:
    """``uuid``: the node's; ``new_id``: an id for a request; ``chance``: 0 to 1; ``now``: monotonic seconds, as in all methods.

    ``kept``: what is on disk as last known: what and UUID of each Want that was done.
    """

    def __init__(
        self, uuid: str, here: Here, new_id: Callable[[], str], chance: Callable[[], float], now: float, kept: Iterable[Name] = ()
    ) -> None:
        self.uuid, self._here, self._new_id, self._chance = uuid, here, new_id, chance
        self.marks = Marks(here)
        self.own: dict[str, Value] = {}  #: NICs that are wanted here, as far as the stream has told
        self.complete = False  #: that is all of them
        self.asked: Asked | None = None  #: in flight
        self.at = ""  #: EPOCH:REVISION of the last ``ready``
        self.since: float | None = now  #: since when the registry cannot be reached; None: it can
        self.alarms: dict[str, str] = {}
        self._kept: dict[Name, str] = dict.fromkeys(kept, "")  # -> revision; "": of an earlier life
        self._told: dict[Name, tuple[str, Value | None]] = {}  # by the stream, and not yet ``ready``
        self._anew: set[Name] | None = None  # what was told since the stream began anew; None: it did not
        self._watching = False
        self._watch_at = self._ask_at = now
        self._reap_from = now + FIRST[0] + (FIRST[1] - FIRST[0]) * chance()
        self._compare_at = self._reap_from
        self._unknown: dict[str, None] = {}  # NICs that came or changed here, of which the registry may not know
        self._known: dict[str, str] = {}  # NIC -> EPOCH:REVISION at which it was added
        self._added: dict[str, float] = {}  # NIC -> until when it is not added again
        self._missing: frozenset[str] = frozenset()  # NICs of which the last comparison has found no definition
        self._deleting: dict[str, str] = {}  # NIC -> the revision of what is wanted of it
        self._outdated = False  # what the registry has of this node is another than we know
        self._repeat: Asked | None = None  # no answer came: it is sent again as it was
        self._out: list[Request] = []

    # -- what happens on the node

    def touched(self, nic: str) -> None:
        """A NIC came, changed or went."""
        self.marks.mark(nic)
        self._unknown[nic] = None

    def applied(self, nic: str) -> None:
        """What is wanted of a NIC was done, or refused: that is reported."""
        self.marks.mark(nic)

    def changed_about(self) -> None:
        """Something of the node itself did."""
        self.marks.mark_about()

    def inventory(self, nics: Iterable[str] | None, now: float) -> None:
        """Take in all NICs that there are on the node, up or defined; None: that could not be told, or not for sure.

        What the registry has beside these is gone: reports, and wanted NICs that this node alone decides on.
        """
        self._compare_at = now + SLOW if now >= self._reap_from else self._reap_from
        if nics is None:
            self._alarm("inventory", "which NICs there are on this node cannot be told: nothing is deleted in the registry")
            return
        self._alarm("inventory", "")
        there = frozenset(nics)
        for nic in [*sorted(there), *self.marks.reported]:
            self.touched(nic)
        if not self.complete or now < self._reap_from:
            return
        gone = [nic for nic, value in self.own.items() if value.get("master") == f"node:{self.uuid}" and nic not in there]
        # one that was never reported may be about to come: its definition is written after the registry has given it an address
        missing, self._missing = self._missing, frozenset(gone)
        gone = [nic for nic in gone if nic in self.marks.reported or nic in missing]
        if len(gone) > MOST or (gone and not there):
            self._alarm("reaping", f"{len(gone)} NICs of this node are defined no more, which is too much to be meant: none is deleted")
            return
        self._alarm("reaping", "")
        self._deleting = {nic: self._kept.get(("nic", nic), "") for nic in gone}

    # -- what the stream tells

    def opened(self) -> None:
        """The stream is open."""
        self.since = None

    def line(self, event: str, what: str, uuid: str, revision: str, value: Value | None) -> str:
        """Take in a line of the stream; give what is wrong with it ("": nothing): then the stream is to be ended."""
        if event == "ready":
            wrong = self._ready(revision)
        elif event not in ("enter", "change", "leave") or what not in ("nic", "network", "options") or not uuid:
            wrong = f"a line says {event!a:.20} {what!a:.20}"
        else:
            self._told[what, uuid] = revision, value if event != "leave" else None
            wrong = f"more than {MOST_TOLD} things at once" if len(self._told) > MOST_TOLD else ""
        if wrong:
            self._alarm("registry", f"what the registry tells cannot be so, and does not count: {wrong}")
        elif event == "ready":
            self._alarm("registry", "")
        return wrong

    def ended(self, why: str, now: float) -> None:
        """The stream has ended, was refused for a while, or was not to be had. What it has told since its last ``ready`` does not count."""
        self._told.clear()
        self._watching, self._watch_at = False, self._later(now)
        if self.since is None:
            self.since = now

    def compacted(self, now: float) -> None:
        """The stream cannot go on where it was: it begins anew."""
        self._begin_anew()
        self._watching, self._watch_at = False, now

    def _begin_anew(self) -> None:
        self._told.clear()
        self.at, self.complete, self._anew = "", False, set()

    def _ready(self, revision: str) -> str:
        """Let what was told count."""
        epoch, _, number = revision.rpartition(":")
        before, _, last = self.at.rpartition(":")
        if not epoch or not (number.isascii() and number.isdecimal()):
            return f"a line is of the revision {revision!a:.80}"
        if self.at and epoch != before:
            return f"its epoch was {before!a:.40} and is {epoch!a:.40} within one stream"
        if self.at and int(number) < int(last):
            return f"its revision was {last} and is {number}, in one epoch"
        told, self._told = self._told, {}
        if self._anew is not None:
            self._anew |= {name for name, (_at, value) in told.items() if value is not None}
            told |= {name: (revision, None) for name in self._kept if name not in self._anew}
            self._anew, fresh = None, True
        else:
            fresh = not self.complete
        self.at, self.complete = revision, True
        self._outdated = self._outdated or self.marks.at.rpartition(":")[0] not in ("", epoch)
        self._take(told)
        if fresh:
            for nic in self.marks.reported:
                self.marks.mark(nic)
        return ""

    def _take(self, told: Mapping[Name, tuple[str, Value | None]]) -> None:
        for (what, uuid), (at, value) in told.items():
            if what == "nic":
                if value is None:
                    self.own.pop(uuid, None)
                else:
                    self.own[uuid] = value
                self._deleting.pop(uuid, None)
                self.marks.mark(uuid)  # what was stopped may go now, and what is here may be another's
            other = {"nic": "options", "options": "nic"}.get(what, "")
            if value is None and (there := told.get((other, uuid))) is not None and there[1] is not None:
                self._kept.pop((what, uuid), None)  # it is told otherwise now: what is kept of it stays, without a moment in between
                continue
            if value is None and (what, uuid) not in self._kept:
                continue
            if value is not None and self._kept.get((what, uuid)) == at:
                continue
            if value is None:
                self._kept.pop((what, uuid), None)
            else:
                self._kept[what, uuid] = at
            self._out.append(Want(what, uuid, at, value))

    # -- what comes of requests

    def listed(self, at: str, reports: Iterable[Value], now: float) -> None:
        """Take in what the registry has of the node's reports."""
        if isinstance(self.asked, Listing):
            self.asked = None
            self._reached(now)
            if at.rpartition(":")[0] != self.marks.at.rpartition(":")[0]:
                self._known.clear()
            self.marks.listed(at, reports)
            self._out.append(Inventory())  # it may know less than it did, of any of them

    def done(self, at: str, now: float) -> None:
        """Take in that what was asked for was done, at EPOCH:REVISION."""
        asked, self.asked = self.asked, None
        self._reached(now)
        if isinstance(asked, Send):
            self.marks.done(asked, at)
            why = next(iter(self.marks.refused.values()), "")
            self._alarm("refused", f"what this node reports is refused: {why}" if why else "")
        elif isinstance(asked, Add):
            self._known[asked.nic] = at
            self._alarm("unknown", "")
        elif isinstance(asked, Delete):
            self.marks.mark(asked.nic)

    def refused(self, kind: str, why: str, now: float) -> None:
        """Take in that what was asked for was refused: the kind of problem, and what it says."""
        asked, self.asked = self.asked, None
        self._reached(now)
        if kind in LATER:
            self._repeat, self._ask_at = asked, self._later(now)
        elif isinstance(asked, Delete):
            pass  # the next comparison looks again
        elif isinstance(asked, Add) and kind in STALE:
            self._unknown[asked.nic] = None
            self._outdated = True
        elif isinstance(asked, Add):
            if kind != "exists":
                self._alarm("unknown", f"NIC {asked.nic} is here, and the registry does not take it: {why}")
            self._added[asked.nic] = now + SLOW
        elif kind in STALE:
            self._outdated = True
        elif kind == "invalid" and isinstance(asked, Send):
            self.marks.invalid(why)
            self._alarm("refused", f"what this node reports is refused: {why}")
        else:
            if isinstance(asked, Send):
                self.marks.undone()
            self._alarm("refused", f"the registry refuses this node: {why}")
            self._ask_at = now + SLOW if kind == "forbidden" else self._later(now)

    def unanswered(self, now: float) -> None:
        """Take in that no answer came, and none will: it may be done. The same is asked again, by the same id."""
        self._repeat, self.asked = self.asked, None
        self._ask_at = self._later(now)
        if self.since is None and not self._watching:
            self.since = now

    def _reached(self, now: float) -> None:
        self._ask_at = now

    # -- what is to be done

    def requests(self, now: float) -> list[Request]:
        """Give what is to be done now; each once."""
        if not self._watching and now >= self._watch_at:
            self._watching = True
            if not self.at:
                self._begin_anew()
            self._out.append(Watch(self.at))
        if now >= self._compare_at:
            self._compare_at = NEVER
            self._out.append(Inventory())
        if self.asked is None and now >= self._ask_at and (following := self._following(now)) is not None:
            self.asked = following
            self._out.append(following)
        found, self._out = self._out, []
        return found

    def next(self) -> float:
        """Give the time at which ``requests`` is to be called again, if nothing happens before."""
        times = [self._compare_at]
        times += [] if self._watching else [self._watch_at]
        times += [self._ask_at] if self.asked is None and not self._said else []
        return min(times)

    @property
    def clean(self) -> bool:
        """Tell whether everything was said, and nothing is under way."""
        return self._said and self.asked is None and not self._deleting

    @property
    def _said(self) -> bool:
        return self.marks.clean and bool(self.marks.at) and self._repeat is None and not self._outdated

    def _following(self, now: float) -> Asked | None:
        if self._outdated:  # it was restored, or an operator has fenced the node
            self.marks.undone()
            self.marks.at, self._repeat, self._outdated = "", None, False
        if self._repeat is not None:
            repeat, self._repeat = self._repeat, None
            return repeat
        if not self.marks.at:
            return Listing()
        sent = self.marks.send(self._new_id(), self.own, self.complete)
        if sent is not None:
            return sent
        for nic in list(self._unknown):
            if nic in self.own and self.own[nic].get("master") in (f"node:{self.uuid}", "registry"):
                del self._unknown[nic]
            elif self._heard(nic):
                del self._unknown[nic]
                body = self._here.definition(nic) if self._added.get(nic, 0.0) <= now else None
                if body is not None:
                    return Add(self._new_id(), nic, self.marks.at, body)
        if self._deleting:
            nic = next(iter(self._deleting))
            return Delete(self._new_id(), nic, self._deleting.pop(nic))
        return None

    def _heard(self, nic: str) -> bool:
        """Tell whether the stream would have told by now that the NIC is wanted, had the registry known it when it got its report."""
        said = [each.rpartition(":") for each in (self.marks.reported.get(nic), self._known.get(nic)) if each]
        epoch, _, ready = self.at.rpartition(":")
        return self.complete and all(at == epoch and int(ready) >= int(number) for at, _, number in said)

    def _later(self, now: float) -> float:
        return now + PAUSE * (1 + self._chance())

    def _alarm(self, name: str, text: str) -> None:
        if self.alarms.get(name, "") != text:
            self.alarms = {**{known: said for known, said in self.alarms.items() if known != name}, **({name: text} if text else {})}
            self._out.append(Alarm(name, text))
