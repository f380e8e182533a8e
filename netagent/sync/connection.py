"""Say how a node stands with its registry: what of the beginning is done, what the service cannot do, who rests until when."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.jobs import NEVER, UNDERLAY
from netagent.sync.messages import Ask, Beat, List, Send, Stray
from netagent.sync.reading import Lie, revision_of

if TYPE_CHECKING:
    from netagent.sync.messages import Asking, Failure

UNREACHABLE, LYING, STRANGER, LACKING = "registry", "registry-lies", "registry-node", "registry-provides"
#: Answers after which the same request is sent again; "" is none.
AGAIN = frozenset(("", "busy", "waiting", "unsure", "unavailable", "too-many"))
#: Answers to reports after which something else is asked first, or said.
OTHERWISE = frozenset(("stale", "forbidden", "invalid", "too-large", "missing", "method"))
SILENT = 60.0  #: seconds without an answer, or in which the same is asked for in vain, after which there is an alarm
ALIVE = 5.0  #: seconds between two signs of life where there is no stream
SOONER = 0.4  #: of the usual pause, where nobody has answered and somebody waits for this node
PATIENT = 30.0  #: seconds for which a node that is refused as its own twin waits for its earlier lease to end


@lru_cache(8)
def _words(said: tuple[str, ...]) -> frozenset[str]:
    """Give what a service can do, as one value for all agents of a process that ask it."""
    return frozenset(said)


def _soon(failure: Failure, now: float, pause: float) -> float:
    """Give when to ask again at the earliest. Who has answered has a say in it: it may have too much to do."""
    return now + (pause if failure.kind or failure.lie else SOONER * pause)


class Vain(NamedTuple):
    """A request that was not done, and is asked for again as it was: since when that is so, and why."""

    asked: Asking
    since: float
    why: str


class Connection:
    """The state. ``greeted``, ``known``, ``listed``: what is known of the service, of the node there, of the node's reports there.

    ``check``: seconds between two looks at the node there.
    """

    def __init__(self, now: float, check: float) -> None:
        self.greeted = self.known = self.listed = False
        self.flight: Asking | None = None
        self.counts = False  #: what the registry has from the node is of this life, and of its epoch
        self.stream = False  #: it is open, or being opened
        self.close = self.closing = False  #: it is to be ended, is being ended
        self.holds = False  #: it is not begun before something is said
        self.rest = 0.0  #: until when nothing is asked
        self.rewatch = 0.0  #: until when no stream is begun
        self._soon = self._soon_watch = 0.0  # the same where somebody waits for this node
        self.epoch = self.version = self.reason = ""
        self.cut = "no line has come"  #: why the stream has ended
        self.since = now  #: when anything was last heard
        self._streamed = now  # when a line of the stream was
        self._check, self._check_at = check, now
        self._abilities: frozenset[str] = frozenset()
        self._actions: frozenset[str] = frozenset()
        self._lacking: dict[str, float] = {}
        self._lie = self._strange = self._missing = ""
        self._strange_since: float | None = None
        self._next_beat = 0.0
        self._vain: Vain | None = None
        self._untold: float | None = None  # since when reports that are to be told are refused, each time; there are answers
        self._untaken = ""  # why
        self._dropped: Asking | None = None  # what was in flight when all was forgotten: it is not asked for as it was

    # -- what came

    def heard(self, now: float) -> None:
        """Note that the registry has said something."""
        self.since, self.reason = now, ""

    def answered(self, asked: Asking, now: float) -> None:
        """Note that a request was done."""
        self.heard(now)
        self._over(asked)
        if isinstance(asked, Send):
            self._untold = None

    def streamed(self, now: float) -> None:
        """Note that a line of the stream has come."""
        self._streamed = now
        self.heard(now)

    def hello(self, body: Any) -> bool:
        """Take what the service is; tell whether it is of another epoch than before. Raises Lie, KeyError, TypeError."""
        epoch, actions = body["epoch"], body["actions"]
        revision_of(f"{epoch}:0")
        if not all(isinstance(each, str) for each in (*actions, *body["abilities"])):
            raise Lie("what it can do is no list of words")
        self._abilities, self._actions = _words(tuple(body["abilities"])), _words(tuple(actions))
        self.version = str(body.get("version", ""))[:80]
        other = bool(self.epoch) and epoch != self.epoch
        self.epoch, self.greeted = epoch, True
        return other

    def node(self, body: Any, now: float) -> str:
        """Take what the registry knows of the node; give EPOCH:REVISION of its latest reports. Raises Lie, KeyError, TypeError."""
        after, missing = str(revision_of(body["reports"])), body.get("missing", [])
        self._missing = ", ".join(str(each) for each in missing[:5]) if isinstance(missing, list) else ""
        self.known, self._strange, self._strange_since = True, "", None
        self._check_at = now + self._check
        return after

    def failed(self, asked: Asking | None, failure: Failure, now: float, pause: float) -> None:
        """Note that a request was not done."""
        if failure.kind:
            self.heard(now)
        self.reason = failure.text
        self.rest, self._soon = now + pause, _soon(failure, now, pause)
        # of a service that has no reports (an older one) they are not asked for
        if failure.kind == "epoch" or (isinstance(asked, Send) and failure.kind not in ("missing", "method")):
            self._untaken = failure.text
            self._untold = now if self._untold is None else self._untold
        if not failure.kind:
            self._untold = None
            self.greeted = False  # the service may be another one when it comes back
        before = self._vain
        if asked is not None and asked is not self._dropped and self._is_repeated(asked, failure):
            self._vain = Vain(asked, before.since if before is not None and before.asked == asked else now, failure.text)
        else:
            self._over(asked)

    def _over(self, asked: Asking | None) -> None:
        """Note that a request was done, or will not be asked for as it was."""
        if self._vain is not None and self._vain.asked == asked:
            self._vain = None

    def _is_repeated(self, asked: Asking, failure: Failure) -> bool:
        if failure.lie or failure.kind == "epoch":
            return False
        if isinstance(asked, Ask):
            return failure.kind in AGAIN and asked.method != "DELETE"
        if isinstance(asked, Stray):
            return failure.kind in AGAIN
        if isinstance(asked, List):
            return not self.listed  # a comparison is tried again much later
        return failure.kind not in (OTHERWISE if isinstance(asked, Send) else ("missing", "method"))

    @property
    def vain(self) -> Vain | None:
        """Give the request that is asked for again and again; None where there is none."""
        vain = self._vain
        return None if vain is None or (self.stream and isinstance(vain.asked, Beat)) else vain

    def ended(self, failure: Failure, now: float, pause: float) -> None:
        """Note that the stream has ended."""
        self.cut = failure.text
        self.rewatch = max(self.rewatch, now + pause)
        self._soon_watch = max(self._soon_watch, _soon(failure, now, pause))

    def hurry(self) -> None:
        """Let neither requests nor the stream wait as long as usual for a registry that has not answered."""
        self.rest, self.rewatch = min(self.rest, self._soon), min(self.rewatch, self._soon_watch)

    def begin_anew(self) -> None:
        """Forget what is known of the registry."""
        self.greeted = self.known = self.listed = False
        self._vain, self._dropped = None, self.flight

    def stranger(self, text: str) -> None:
        """Note that the registry does not take the node for what it says to be."""
        self._strange = text
        if self._strange_since is None:
            self._strange_since = self.since

    @property
    def doubtful(self) -> bool:
        """Tell whether the registry is not believed, or does not take the node for what it is, until a stream shows otherwise."""
        return bool(self._lie or self._strange)

    def lied(self, text: str, until: float) -> None:
        """Note that what came cannot be so."""
        self._lie = text
        self.rest = self.rewatch = self._soon = self._soon_watch = until
        self.known = self.listed = False

    def honest(self) -> None:
        """Note that a whole stream could be believed."""
        self._lie = ""
        self._strange, self._strange_since = "", None

    # -- what can be done

    @property
    def ready(self) -> bool:
        """Tell whether reports can be made: it is known after which."""
        return self.known and self.listed

    def can(self, what: str, now: float) -> bool:
        """Tell whether the service can do something: "watch", "reports", "beat", "underlay", or an action such as "nic.add"."""
        if self._lacking.get(what, 0.0) > now:
            return False
        return what in ("reports", "beat") or what in self._abilities or what in self._actions

    def lacks(self, what: str, until: float) -> None:
        """Note that the service cannot do something."""
        self._lacking[what] = until

    def again(self) -> None:
        """Let everything be asked again of which the service was not able."""
        self._lacking.clear()
        self.greeted = False

    def may_report(self, now: float) -> bool:
        return self.greeted and self.ready and now >= self.rest and self.flight is None and self.can("reports", now)

    def may_watch(self, now: float) -> bool:
        return (
            not (self.stream or self.holds)
            and self.greeted
            and self.ready
            and now >= max(self.rewatch, self.rest)
            and self.can("watch", now)
        )

    def hold(self, holds: bool, anew: bool, now: float) -> None:
        """Begin no stream before the registry has heard what of the underlay is on the node. ``anew``: one that does not tell it ends."""
        self.holds = holds and self.can("reports", now)
        self.close = self.close or (anew and self.stream and self.can(UNDERLAY, now))

    def checks(self, now: float) -> bool:
        """Tell whether the node is to be asked for again: no stream tells what it should provide."""
        return self.greeted and self.ready and now >= self._check_at

    def beats(self, now: float) -> bool:
        """Tell whether a sign of life is due, since the service has no streams."""
        return not self.stream and not self.can("watch", now) and self.can("beat", now) and now >= self._next_beat

    def beaten(self, now: float) -> None:
        """Note that a sign of life was taken."""
        self._next_beat = now + ALIVE

    def due(self, now: float) -> float:
        """Give when something is to be asked again."""
        times = [NEVER]
        if self.flight is None and not (self.greeted and self.ready):
            times.append(self.rest)
        if self.greeted and self.ready and not self.stream:
            if self.can("watch", now):
                times += [] if self.holds else [max(self.rewatch, self.rest)]
            elif self.flight is None and self.can("beat", now):
                times.append(max(self._next_beat, self.rest))
        if self.flight is None and self.greeted and self.ready:
            times.append(max(self._check_at, self.rest))
        vain = [] if self._vain is None else [self._vain.since]
        vain += [] if self._untold is None else [self._untold]
        times += [when + SILENT for when in (self.since, self._streamed, *vain) if when + SILENT > now]
        if self._strange_since is not None and self._strange_since + PATIENT > now:
            times.append(self._strange_since + PATIENT)
        return min(times)

    def alarms(self, now: float, telling: bool) -> dict[str, str]:
        """Give what is wrong, by alarm; "" where nothing is. ``telling``: there are reports to be told."""
        self._untold = self._untold if telling else None
        silent = now >= self.since + SILENT and not self.stream
        # who answers, and tells nothing: not who says why
        mute = now >= self._streamed + SILENT and self.greeted and self.can("watch", now) and self._strange_since is None and not self._lie
        vain = self.vain
        said = f"it does not do what this node asks it for: {vain.why}" if vain is not None and now >= vain.since + SILENT else ""
        strange = self._strange_since is not None and now >= self._strange_since + PATIENT
        if not said and self._untold is not None and now >= self._untold + SILENT and not (strange or self._lie):
            said = f"it takes no reports of this node: {self._untaken}"
        return {
            UNREACHABLE: f"it does not answer: {self.reason}" if silent else f"its stream tells nothing: {self.cut}" if mute else said,
            LYING: f"it is not believed, and the node is as before: {self._lie}" if self._lie else "",
            STRANGER: self._strange if strange else "",
            LACKING: f"this node should provide what is not there: {self._missing}" if self._missing else "",
        }
