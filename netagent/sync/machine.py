"""Synchronise a node with a registry: events in, requests out; no clock, socket or file of its own, so that every history can be tried.

Out: whatever changes of a NIC marks it (netagent.sync.outbox). In: what is wanted comes by one stream (netagent.sync.inbox), and is done on
the node (netagent.sync.jobs), never by halves. NICs that the registry does not know are added before anything goes
(netagent.sync.ownership), and what may go is found by whole lists (netagent.sync.reaping). One request is in flight; what has no answer is
sent again until it has one. After an error there is a pause, always as long, but for chance: so a whole cluster comes back by and by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netagent.sync.awaited import awaited
from netagent.sync.became import Did
from netagent.sync.connection import UNREACHABLE, Connection
from netagent.sync.inbox import Beside, Changes, Foreign, Inbox
from netagent.sync.jobs import UNDERLAY, Jobs
from netagent.sync.laid import UnderlayMarked
from netagent.sync.messages import (
    AboutMarked,
    Alarm,
    Answered,
    Ask,
    AskNode,
    Beat,
    Close,
    Ended,
    Failed,
    Failure,
    Hello,
    Line,
    List,
    Look,
    Looked,
    Lost,
    Marked,
    Save,
    Send,
    Stray,
    Survey,
    Surveyed,
    Tell,
    Watch,
)
from netagent.sync.outbox import PREFIXES, Outbox
from netagent.sync.ownership import Ownership
from netagent.sync.reading import Lie, refusals, revision_of
from netagent.sync.reaping import told_devices
from netagent.sync.sent import Looking
from netagent.sync.strays import ABLE, Strays
from netagent.sync.wishes import Wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from netagent.sync.messages import Asking, Event, Local, Request
    from netagent.sync.rules import Rules

GATHER = 0.2  #: seconds for which marks gather, and between what the registry refuses and what is sent next
SAVED = 30.0  #: seconds between two documents for the disk
REFUSED = "registry-refused"  #: the alarm: of NICs that are not what is wanted, or not as the registry takes them


class Machine:
    """See the module. ``request`` gives an id for a request, ``chance`` 0 to 1; ``now``, everywhere, is monotonic seconds.

    ``life``: the agent's incarnation, which ends with the boot. What the registry has from it is not told again.
    """

    def __init__(
        self,
        node: str,
        rules: Rules,
        request: Callable[[], str],
        chance: Callable[[], float],
        now: float,
        kept: Mapping[str, Any] | None = None,
        life: str = "",
    ) -> None:
        self.node, self.rules, self._request, self._chance, self._life = node, rules, request, chance, life
        self.outbox = Outbox(self._is_wanted, self._is_refused)
        self.inbox = Inbox(node, self.outbox.mine)
        if kept is not None:
            self.inbox.load(kept)
        self.jobs = Jobs()
        self.wishes = Wishes(node, self.inbox, self.outbox, self.jobs, rules.every)
        self.line = Connection(now, rules.check)
        parts = self.outbox, self.inbox, self.line
        self.strays = Strays(node, self.line, self.inbox, self.jobs, request, self.tell)
        self.ownership = Ownership(node, rules, parts, request, chance, (self.alarm, self.tell), now)
        self.outbox.about = True
        self._looking: Looking | None = None
        self._gathered = now
        self._alarms: dict[str, str] = {}
        self._said: list[Request] = []
        self._saved = (now, self.inbox.stand)
        self._retried = now + rules.every
        self._calm, self._wakes = False, now  # nothing has happened since the last turn; when it has something to do then

    # -- what happens

    def take(self, event: Event, now: float) -> None:
        """Take what has happened."""
        if isinstance(event, Line) and self._is_sign(event):
            self.line.streamed(now)
            return
        self._calm = False
        if isinstance(event, Marked):
            self.wishes.marked(event.uuid)
            self.mark(event.uuid, now)
        elif isinstance(event, AboutMarked):
            self.outbox.about = True
            self._gathered = max(self._gathered, now + GATHER)
        elif isinstance(event, UnderlayMarked):
            if self.outbox.able and not self.outbox.underlay:
                self.outbox.underlay = True
                self._gathered = max(self._gathered, now + GATHER)
        elif isinstance(event, Lost):
            self.ownership.begin(now)
        elif isinstance(event, Looked):
            self._looked(event, now)
        elif isinstance(event, Surveyed):
            self.wishes.retry(False)
            self._settle(event.nics)
            self.ownership.surveyed(event, now)
        elif isinstance(event, Did):
            uuid = self.wishes.did(event, now, now + self._pause())
            if uuid is not None:
                self.mark(uuid, now)
        elif isinstance(event, Line):
            self._line(event, now)
        elif isinstance(event, Ended):
            self._ended(event.failure, now)
        elif isinstance(event, Answered):
            self._answered(event, now)
        else:
            self._failed(event, now)

    def mark(self, uuid: str, now: float) -> None:
        """Note that a NIC is to be told."""
        self._calm = False
        if not self.outbox.dirty:
            self._gathered = now + GATHER
        self.outbox.mark(uuid)

    def _is_wanted(self, uuid: str) -> bool:
        return uuid in self.inbox.nics or not self.inbox.complete

    def _is_refused(self, uuid: str) -> str:
        return self.wishes.why(uuid)

    # -- what is to be done

    def turn(self, now: float) -> list[Request]:
        """Give what is to be asked for and done now."""
        if self._calm and now < self._wakes:
            return []
        self.outbox.turn(now)
        if now >= self._retried:
            self._retry(now)
        if now < max(self.line.rest, self.line.rewatch) and awaited(self.outbox, self.inbox):
            self.line.hurry()
        self.ownership.turn(now)
        self.wishes.turn(now)
        if self.wishes.anew or self.ownership.anew:
            self._ask_anew()
        found: list[Request] = [*self.jobs.start(now)]
        if self._looking is None and (wanted := self._next_look(now)) is not None:
            self._looking = wanted
            found.append(Look(wanted.uuids, wanted.about, told_devices(self.outbox.told), wanted.underlay))
        if self.ownership.survey_due:
            self.ownership.survey_due = False
            found.append(Survey())
        if (asking := self._next_asking(now)) is not None:
            self.line.flight = asking
            found.append(asking)
        self.ownership.turned(now)
        self.line.hold(self.outbox.unstated, self.outbox.stated and not self.inbox.asks, now)
        if self.line.close and not self.line.closing:
            self.line.closing = True
            found.append(Close())
        if self.line.may_watch(now):
            self.line.stream = True
            self.wishes.begin()
            underlay = self.outbox.stated and self.line.can(UNDERLAY, now)
            found.append(Watch(self.inbox.begin(underlay), underlay))
        self._notice(now)
        if now >= self._saved[0] + SAVED and self._saveable:
            self._saved = now, self.inbox.stand
            found.append(Save(self.inbox.document()))
        found += self._said
        self._said = []
        self._calm, self._wakes = True, self._due(now)
        return found

    def due(self, now: float) -> float:
        """Give when ``turn`` has something to do if nothing happens before."""
        return self._wakes if self._calm else self._due(now)

    def _due(self, now: float) -> float:
        line = self.line
        times = [self.jobs.due(now), self.wishes.due(), self.ownership.due(now), line.due(now), self._retried]
        if line.flight is None and line.greeted and line.ready:
            if self.outbox.flight is not None or self.ownership.asks:
                times.append(line.rest)
            elif self.outbox.due and self._looking is None and line.can("reports", now):
                times.append(max(self._gathered, line.rest))
        if self._saveable:
            times.append(self._saved[0] + SAVED)
        return min((*times, *self.outbox.unclear.values()))

    def _next_look(self, now: float) -> Looking | None:
        if (uuids := self.ownership.look(now)) is not None:
            return Looking(uuids, owning=True)
        if (stray := self.strays.look()) is not None:
            return stray
        if self.outbox.due and now >= self._gathered and self.line.may_report(now):
            return Looking(*self.outbox.batch())
        return None

    def _next_asking(self, now: float) -> Asking | None:
        line = self.line
        if line.flight is not None or now < line.rest:
            return None
        if not line.greeted:
            return Hello()
        if not line.known:
            return self.strays.asking() or AskNode()
        if not line.listed:
            return List("reports")
        if self.outbox.flight is not None and line.can("reports", now):
            return self.outbox.sends()
        if (asked := self.ownership.asking(now)) is not None:
            return asked
        if line.beats(now):
            return Beat()
        return AskNode() if line.checks(now) else None

    def _retry(self, now: float) -> None:
        """Let what was refused be tried again, also what an older service could not do."""
        self._retried = now + self.rules.every
        self.outbox.retry()
        self.line.again()
        self.strays.known()
        self.ownership.retry()
        self.wishes.retry(True)

    # -- answers of the registry

    def _answered(self, event: Answered, now: float) -> None:
        asked, self.line.flight = self.line.flight, None
        if asked is None:
            return
        self.line.answered(asked, now)
        try:
            if event.revision:
                self.inbox.proves(revision_of(event.revision))
            if isinstance(asked, Hello):
                if self.line.hello(event.body):
                    self._another_epoch(now)
                    self.line.greeted = True
                self.outbox.can_tell_underlay(self.line.can(UNDERLAY, now), self.line.can(ABLE, now))
                self.outbox.can_tell_prefixes(self.line.can(PREFIXES, now))
            elif isinstance(asked, AskNode):
                self._known(self.line.node(event.body, now), event.body)
            elif isinstance(asked, List):
                self._listed(asked, event, now)
            elif isinstance(asked, Send):
                self._sent(event.revision, now)
            elif isinstance(asked, Ask):
                self.ownership.done(asked, event.revision)
            elif isinstance(asked, Stray):
                self.strays.answered()
            else:
                self.line.beaten(now)
                self.outbox.alive()
        except (Lie, KeyError, TypeError, ValueError, AttributeError) as error:
            self._lied(f"an answer that is none: {error}", now)

    def _known(self, after: str, said: Mapping[str, Any]) -> None:
        """Take after which reports the next ones come. Where these are others than our latest, somebody has removed what we had said."""
        self.strays.known()
        if self.outbox.flight is not None:
            return  # it may be that; sent again it tells
        self.line.counts = said.get("life", "") == self._life != ""  # an older service does not say it
        if self.line.counts:
            self.outbox.has_about(said["about"])
        self.outbox.has_underlay(said.get(UNDERLAY))
        if after != self.outbox.after:
            self.line.listed = False
        self.outbox.after = after

    def _listed(self, asked: List, event: Answered, now: float) -> None:
        if self.line.listed or asked.what != "reports":
            self.ownership.listed(asked.what, event.body, now)
            return
        self.outbox.listed([item["report"] for item in event.body if item["node"] == self.node], self.line.counts)
        self.line.listed = True
        self.ownership.begin(now)
        if event.revision:
            self.ownership.reported(self.outbox.told, event.revision)
            self._catch_up()

    def _sent(self, revision: str, now: float) -> None:
        about = self.outbox.tells_about
        said = self.outbox.done(revision)
        self.line.known = self.line.known and not about  # what the registry misses on the node may be another
        self.ownership.reported(said, revision)
        self._catch_up()

    def _catch_up(self) -> None:
        if self.inbox.complete and self.inbox.ready is not None:  # the stream may have told more than that already
            self.ownership.told(self.inbox.ready)

    def _failed(self, event: Failed, now: float) -> None:
        asked, self.line.flight = self.line.flight, None
        failure = self.strays.unless_forgotten(event.failure)
        self.line.failed(asked, failure, now, self._pause())
        self.outbox.tried = self.outbox.tried or isinstance(asked, Send)
        if failure.lie:
            self._lied(failure.text, now)
        elif failure.kind == "epoch":
            self._another_epoch(now)
        elif isinstance(asked, Send | Beat) and failure.kind in ("missing", "method"):
            self.line.lacks("reports" if isinstance(asked, Send) else "beat", now + self.rules.every)
            self.outbox.not_done()
        elif isinstance(asked, Send):
            self._not_sent(failure, now)
        elif isinstance(asked, Ask):
            self.ownership.failed(asked, failure, now)
            self.line.known = self.line.known and failure.kind != "stale"  # our reports may be others than we know
        elif isinstance(asked, List) and self.line.listed:
            self.ownership.not_listed()
        elif isinstance(asked, AskNode) and failure.kind == "missing":
            self.strays.unknown(now)
        elif isinstance(asked, Stray):
            self.strays.failed(failure)

    def _not_sent(self, failure: Failure, now: float) -> None:
        """Reports were refused. Where nobody has answered, or all are asked to wait, the same is sent again."""
        if failure.kind == "stale":
            self.outbox.not_done()
            self.line.known = self.line.listed = False  # an operator has fenced the node, or a copy of it is at work
        elif failure.kind == "forbidden":
            self.outbox.not_done()
            self.line.known = False
            self.line.stranger(failure.text)
        elif failure.kind in ("invalid", "too-large"):
            self.outbox.not_taken(failure.text)
            self.line.rest = now + GATHER

    def _another_epoch(self, now: float) -> None:
        """The registry was restored or moved: what it has from us, and what was told of it, is to be compared as a whole."""
        self.line.begin_anew()
        self.inbox.forget()
        self.outbox.forget()
        self.ownership.forget()
        self._gathered = now + self._chance() * self.rules.pause
        if self.line.stream:
            self.line.close = True

    # -- the stream

    def _is_sign(self, event: Line) -> bool:
        """Tell whether a line is a sign of life and nothing else: one that comes every few seconds, and changes nothing."""
        line = self.line
        expected = line.stream and not (line.close or line.doubtful or self.ownership.waits or self._alarms.get(UNREACHABLE))
        return expected and self.inbox.repeats(event.said)

    def _line(self, event: Line, now: float) -> None:
        if not self.line.stream or self.line.close:
            return
        self.line.streamed(now)
        self.outbox.alive()
        try:
            found = self.inbox.line(event.said, event.size)
        except Foreign as lie:
            whole = self.inbox.beginning
            self.inbox.forget()
            self.line.close = True
            if whole:
                self._lied(str(lie), now)
            return
        except Lie as lie:
            self._lied(str(lie), now)
            return
        if isinstance(found, Beside):
            self.wishes.beside(found)
        elif found is not None:
            self._changes(found, now)

    def _changes(self, found: Changes, now: float) -> None:
        for uuid in self.wishes.take(found):
            self.mark(uuid, now)
        if any(uuid in self.outbox.told for uuid in found.left):
            self.line.known = False  # the node may be fenced
        self.line.honest()
        self.ownership.told(found.revision, found)

    def _ended(self, failure: Failure, now: float) -> None:
        line, failure = self.line, self.strays.unless_forgotten(failure)
        line.stream = line.close = line.closing = False
        self.inbox.complete = line.greeted = False
        if failure.kind == "epoch":
            self._another_epoch(now)
        elif failure.kind == "compacted":
            self.inbox.forget()
            self.line.listed = False
        elif failure.lie:
            self._lied(failure.text, now)
        elif failure.kind == "twin":
            line.stranger(failure.text)
        elif failure.kind in ("missing", "forbidden"):
            line.known = False
        line.ended(failure, now, self._pause())

    def _lied(self, text: str, now: float) -> None:
        """The registry cannot be believed: nothing of it counts, and it is asked for all of it again after a pause."""
        self.line.lied(text, now + self._pause())
        self._ask_anew()

    def _ask_anew(self) -> None:
        """Let the stream tell all of it again."""
        self.wishes.anew = self.ownership.anew = False
        self.inbox.forget()
        if self.line.stream:
            self.line.close = True

    def _pause(self) -> float:
        return self.rules.pause * (0.5 + self._chance())

    # -- on the node

    def _looked(self, event: Looked, now: float) -> None:
        looking, self._looking = self._looking, None
        if looking is None:
            return
        if looking.owning:
            self.ownership.looked(event, now)
            return
        if looking.stray:
            self.strays.looked(event.underlay)
            return
        self.outbox.tried = self.outbox.tried or (looking.underlay and event.underlay is None)
        self.outbox.unclear |= {uuid: now + self._pause() for uuid in event.unclear}
        if (looking.about and event.about is None) or (looking.underlay and event.underlay is None):
            self._gathered = now + self._pause()
        self._settle(event.nics)
        if self.line.ready:
            self.outbox.looked(event, self._request)
        else:
            self.outbox.not_done()  # it was cut off, or is another, while we looked

    def _settle(self, nics: Mapping[str, Local]) -> None:
        for uuid, local in nics.items():
            own = self.inbox.nics.get(uuid)
            if own is not None:
                self.ownership.seen(uuid, local, own)
            elif self.inbox.complete:
                self.ownership.missing(uuid, local)
        self.wishes.settle(nics)

    # -- what people are told

    def _notice(self, now: float) -> None:
        self.alarm(REFUSED, refusals(self.outbox.refused, *self.ownership.not_taken, self.wishes.refused()))
        for name, text in self.line.alarms(now, self.outbox.telling).items():
            self.alarm(name, text)

    def alarm(self, name: str, text: str) -> None:
        """Turn an alarm on, or off with the text ""."""
        if self._alarms.get(name, "") != text:
            self._alarms[name] = text
            self._said.append(Alarm(name, text))

    def tell(self, text: str) -> None:
        """Say something in the log."""
        self._said.append(Tell(text))

    # -- on disk

    @property
    def _saveable(self) -> bool:
        return self.inbox.complete and self.inbox.stand != self._saved[1] and not self.jobs and not self.wishes.telling

    def last(self) -> Save | None:
        """Give what is to be kept on disk at the end."""
        return Save(self.inbox.document()) if self._saveable else None

    @property
    def marks(self) -> int:
        """Count what is to be told."""
        return self.outbox.marks

    @property
    def idle(self) -> bool:
        """Tell whether nothing is left to be told, done or decided."""
        return self.inbox.complete and not (self.marks or len(self.jobs) or self.line.flight or self._looking or self.ownership.busy)
