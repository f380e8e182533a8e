"""Answer requests: request, identity, clock and the view of the store in; a response, and what is to be done to get it, out.

Nothing here reads, writes or waits. What an answer needs of the store is an *effect*, which a generator gives and whose result it is sent:
``netregistry.local`` does them on a store of its own process, a service on whatever it has, a simulation under its own clock. Randomness
is the request's id, time is what the shell says: the same requests in the same order give the same registry, byte for byte.

The way of a request: planned against the view (netregistry.view says how that is safe), committed with its entry of the history, planned
anew where something has changed, sent again where no answer came. An id that has been is answered what it was answered, and done once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, NamedTuple, cast

from netregistry.actions import ACTIONS, ALONE, MOST_PARTS, Batch
from netregistry.draft import Commit, Draft
from netregistry.model import keys, kinds
from netregistry.model.codec import Invalid, load, read
from netregistry.model.history import Entry
from netregistry.refusal import Refused
from netregistry.request import Done, Part, Response, made
from netregistry.roles import check
from netregistry.rules import masters
from netregistry.rules.nodes import signed_on
from netregistry.rules.reports import reported
from runtime.errors import NetcommonError
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from netregistry.model.history import Identity
    from netregistry.request import Call
    from netregistry.view import View

    Steps = Generator["Effect", "Result", Response]

ATTEMPTS = 50  #: of a request that others keep on overtaking
AGAIN = 5  #: times that a commit without answer is sent
REMEMBERED = 10_000  #: refusals
LONGEST_REFUSAL = 4096  #: characters of one that is remembered with all that it says
ALWAYS = ("type", "title", "status", "detail")  #: what is remembered of a longer one
LATE = 3_600_000  #: milliseconds for which every request is remembered, at least
EARLY = 300_000  #: milliseconds that the clock of who asks may be fast
BACK = 86_400_000  #: milliseconds that a request may be old when it comes for the first time: its id is its place in the history


def anybody() -> None:
    """Admit whoever asks: by a socket of root's, or in this process."""


class CatchUp(NamedTuple):
    """Let the view take in what has been committed, up to a revision at least; 0: up to the newest that there is."""

    revision: int = 0


class Read(NamedTuple):
    """Read one key from the store; the result is a Found."""

    key: str


class Oldest(NamedTuple):
    """Read the first keys of a prefix, values too; the result is a Some."""

    prefix: str
    limit: int


class Grant(NamedTuple):
    """Begin a lease; the result is a Granted."""

    seconds: float


class Compact(NamedTuple):
    """Forget what was overwritten up to a revision; the result is a Forgotten."""

    revision: int


class Committed(NamedTuple):
    """A commit was done."""

    revision: int


class Conflicted(NamedTuple):
    """A commit was not done: a test of this key does not hold."""

    key: str


class Unanswered(NamedTuple):
    """A commit was sent, and may be done."""


class Found(NamedTuple):
    """What was read, and the revision at which it was written; None: it is not there."""

    value: bytes | None
    revision: int = 0


class Some(NamedTuple):
    """Keys and values that were read."""

    items: tuple[tuple[str, bytes], ...]


class Granted(NamedTuple):
    """A lease was begun."""

    lease: int


class Forgotten(NamedTuple):
    """Say up to which revision what was overwritten is forgotten, by this or before."""

    floor: int


class Nothing(NamedTuple):
    """The effect was done, and has no result."""


Effect = Commit | CatchUp | Read | Oldest | Grant | Compact
Result = Committed | Conflicted | Unanswered | Found | Some | Granted | Forgotten | Nothing


class _Identified(NamedTuple):
    id: kinds.Uuid


class _Writer(NamedTuple):
    master: kinds.Master


class _Incarnation(NamedTuple):
    incarnation: kinds.Uuid


class Core:
    """A registry's behaviour. ``view``: kept by who runs this; ``now``: seconds since the epoch.

    A refused request changes nothing in the store, so that is not where its refusal is remembered: a copy that comes later is refused as
    long as this Core is there, and judged anew by another one.
    """

    def __init__(self, view: View, now: Callable[[], float]) -> None:
        self.view, self.now = view, now
        self._refused: dict[tuple[str, ...], Response] = {}  # by request, what it asked, and who made it; the oldest first

    @property
    def moment(self) -> float:
        """Give the seconds since the epoch at which a request of now is made: where the clock was fast, behind what is not remembered."""
        floor = self.view.ledger.floor
        return max(self.now(), floor // 1000 + 1.0 if floor else 0.0)

    def answer(self, call: Call, who: Identity, admit: Callable[[], None] = anybody) -> Steps:
        """Answer a request; never raises Refused: a refusal is a response with a problem document.

        ``admit``: raises Refused where the certificate of who asks counts no more by the view as it is. It is called before each planning:
        what is committed of that has tested the ledger, which a revocation advances, so nothing is done by a certificate after it.
        """
        what = asked(call)
        same: tuple[str, ...] = ()
        try:
            call = call._replace(id=read(_Identified, {"id": call.id}).id)
            same = call.id, what, who.role, who.name
            if same in self._refused:
                return self._refused[same]
            return (yield from self._answered(call, who, what, admit))
        except Invalid as error:
            refused = Refused("invalid", str(error), field=error.field, expected=error.expected)
        except Refused as error:
            refused = error
        response = Response(refused.code, refused.problem())
        # a certificate is no part of what is asked: who has another one that counts is to be heard
        if same and response.status < 500 and not call.dry_run and refused.kind != "certificate":
            self._refused[same] = _short(response)
            if len(self._refused) > REMEMBERED:
                del self._refused[next(iter(self._refused))]
        return response

    def planned(self, call: Call, who: Identity) -> Draft:
        """Plan a request by the view as it is, and commit nothing. Raises Refused, Invalid: it would be refused."""
        draft = Draft(self.view, read(_Identified, {"id": call.id}).id, who, self.now())
        _planned(draft, call)
        return draft

    def sign_on(self, who: Identity, incarnation: str, seconds: float) -> Generator[Effect, Result, int]:
        """Let a node be alive; give the lease that is to be kept. Raises Refused where another agent has its identity."""
        read(_Incarnation, {"incarnation": incarnation})
        lease = cast("Granted", (yield Grant(seconds))).lease
        for _ in range(ATTEMPTS):
            yield CatchUp()
            result = yield signed_on(self.view, who, incarnation, lease, self.now())
            if isinstance(result, Committed):
                yield from self._seen(result.revision)
                return lease
        raise Refused("busy", "others have kept on overtaking it")

    # -- one request

    def _answered(self, call: Call, who: Identity, what: str, admit: Callable[[], None]) -> Steps:
        try:
            read(_Writer, {"master": masters.identity(who)})
        except Invalid as error:
            raise Refused("forbidden", f"{who.role} {who.name!a:.80} can be nobody's master: {error}") from None
        current = call.dry_run
        if current:
            yield CatchUp()
        for _ in range(ATTEMPTS):
            admit()
            try:
                if call.action == "report":
                    commit, done = reported(self.view, call.id, who, call.body, self.now()), Done(200, keys.reports(who.name))
                else:
                    yield from self._in_time(call)
                    draft = Draft(self.view, call.id, who, self.now())
                    done = _planned(draft, call)
                    if call.dry_run:
                        return Response(done.status, {"body": done.body, "changes": [each._asdict() for each in draft.changes]})
                    commit = draft.commit(call.action, done.key or call.target, done.status, done.body, what)
            except (Refused, Invalid):
                # what it was judged by may be old; and what was done already looks as if somebody else had done it
                if isinstance(earlier := (yield from self._earlier(call, who, what)), Response):
                    return earlier
                if current:
                    raise
            else:
                unchanged = self.view.shown_revision(done.key)
                result = yield from self._committed(commit)
                if isinstance(result, Committed):
                    yield from self._seen(result.revision)
                    wrote = not done.key or any(change.key == done.key for change in commit.changes)
                    return Response(done.status, done.body, f"{self.view.epoch}:{result.revision}" if wrote else unchanged)
                if isinstance(result, Unanswered):
                    raise Refused(
                        "unsure", "the store has not answered: it may be done; the same request with the same id tells", id=call.id
                    )
                if isinstance(earlier := (yield from self._earlier(call, who, what)), Response):
                    return earlier
            yield CatchUp()
            current = True
        raise Refused("busy", "others have kept on overtaking it")

    def _committed(self, commit: Commit) -> Generator[Effect, Result, Result]:
        """Send a commit until there is an answer. A conflict after a commit without answer may be with itself.

        Raises what the store raises where nothing was sent, the first time alone: what was sent before may be done.
        """
        result: Result = Unanswered()
        for attempt in range(AGAIN):
            try:
                result = yield commit
            except NetcommonError:
                if attempt:
                    break
                raise
            if not isinstance(result, Unanswered):
                break
        return result

    def _seen(self, revision: int) -> Generator[Effect, Result, None]:
        """Let the view take in what was done. It is done all the same where the store can say no more: then it is taken in later."""
        with contextlib.suppress(NetcommonError):
            yield CatchUp(revision)

    def _in_time(self, call: Call) -> Generator[Effect, Result, None]:
        """Raise Refused for a request of which nobody remembers if it was done, for one of a time to come, and for a new one of long ago.

        Who asks chooses the id: what he does must not stand where the history is cut next, or far from when he has done it.
        The floor is a time that is not yet where the history was cut while the clock was fast: requests are made behind it until then.
        A refusal says behind which time one is made anew. That is the present moment, and not the latest that is too old: by then this
        has moved on.
        """
        at, moment = made(call.id), int(self.moment * 1000)
        if at > moment + EARLY:
            detail = f"the request was made at {local_time(at / 1000)}, which is not yet: make it anew, or set the clocks of both sides"
            raise Refused("outdated", detail, id=call.id, floor=moment)
        if at > max(self.view.ledger.floor, moment - BACK):
            return
        found = cast("Found", (yield Read(keys.history(call.id))))
        if found.value is None:
            detail = "requests as old as this are not remembered: make it anew, after the floor, if it is wanted still"
            raise Refused("outdated", detail, id=call.id, floor=moment)

    def _earlier(self, call: Call, who: Identity, what: str) -> Generator[Effect, Result, Response | None]:
        """Give what the request was answered when it was done; None where it was not. Raises Refused for an id that was another's."""
        if call.action == "report":
            yield CatchUp()
            latest = self.view.reports(who.name)
            done = latest is not None and latest.request == call.id
            return Response(200, None, self.view.shown_revision(keys.reports(who.name))) if done else None
        found = cast("Found", (yield Read(keys.history(call.id))))
        if found.value is None:
            return None
        try:
            entry = load(Entry, found.value)
        except Invalid:
            raise Refused("unavailable", f"what {call.id} was answered cannot be read: the registry is damaged") from None
        another = entry.asked not in ("", what)  # of before that was noted it is ""
        if another or (entry.action, entry.who.role, entry.who.name) != (call.action, who.role, who.name):
            raise Refused("exists", f"the id {call.id} was another request's", id=call.id)
        yield from self._seen(found.revision)
        return Response(entry.status, entry.body, f"{self.view.epoch}:{found.revision}")


def _short(refusal: Response) -> Response:
    """Give a refusal as it is remembered: there are thousands, and what one lists beside may be long."""
    if len(json.dumps(refusal.body)) <= LONGEST_REFUSAL:
        return refusal
    kept = {name: value[:LONGEST_REFUSAL] if isinstance(value, str) else value for name, value in refusal.body.items() if name in ALWAYS}
    return refusal._replace(body=kept)


def asked(call: Call) -> str:
    """Give what tells what a request asks for from what another one does; "" for reports, which have an order of their own."""
    if call.action == "report":
        return ""
    said = json.dumps([call.action, call.target, call.body], sort_keys=True, default=repr)
    return hashlib.sha256(said.encode("ascii")).hexdigest()[:16]


def _planned(draft: Draft, call: Call) -> Done:
    """Do a request in a draft. Raises Refused, Invalid."""
    if call.action != "batch":
        return _done(draft, Part(call.action, call.target, call.body, call.match))
    parts = read(Batch, call.body).parts
    if not 0 < len(parts) <= MOST_PARTS:
        raise Invalid("parts", len(parts), f"1 to {MOST_PARTS} requests")
    bodies = []
    for place, part in enumerate(parts):
        try:
            bodies.append(_done(draft, part, beside=True).body)
        except Refused as error:
            raise Refused(error.kind, f"parts[{place}]: {error.detail}", part=place, **error.more) from None
        except Invalid as error:
            raise Invalid(f"parts[{place}].{error.field}", error.value, error.expected) from None
    return Done(200, "", bodies)


def _done(draft: Draft, part: Part, beside: bool = False) -> Done:
    """Do one request in a draft. ``beside``: it is a part of a batch. Raises Refused, Invalid."""
    action = ACTIONS.get(part.action)
    if action is None:
        raise Invalid("action", part.action, f"one of {', '.join(ACTIONS)}")
    check(part.action, draft.who.role)
    if beside and part.action in ALONE:
        raise Invalid("action", part.action, "what may be part of a batch: this has an endpoint of its own")
    return action.rule(draft, part)
