"""Do what must happen by time, as whichever service holds the leader's lease: every step is a commit that two may try and one does.

Options that end, quarantines that are over and claims of deleted networks are requests like others, with a history. That a node is gone,
reports of forgotten nodes, and the history's own length are no wishes of anybody, and have none.
"""

from __future__ import annotations

import hashlib
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple, cast

from netregistry.core import BACK, LATE, CatchUp, Committed, Compact, Forgotten, Grant, Granted, Oldest, Some
from netregistry.draft import Commit, Draft
from netregistry.model import keys
from netregistry.model.codec import Invalid, dump, load
from netregistry.model.history import Entry, Identity
from netregistry.model.nic import Report
from netregistry.model.node import Gone
from netregistry.refusal import Refused
from netregistry.request import Call, made, new_id
from netregistry.rules import ends
from netregistry.rules.reports import SETTLING
from netregistry.steady import JUMP, Steady, written
from netregistry.stores.base import Delete, Expect, Put
from netregistry.underlay import healing
from netregistry.underlay.marks import Marks
from netregistry.underlay.placing import Placing
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from netregistry.core import Core, Effect, Result
    from netregistry.stores.base import Batch, Item, Store
    from netregistry.view import View

    Work = Generator[Effect, Result, None]

AT_ONCE = 100  #: keys deleted by one commit
AT_A_TURN = 40  #: commits of one kind: where thousands of nodes are gone, or of quarantines over, requests come in between
TRIMMED = 10  #: commits that cut the history
CLOCK_KEPT = 600.0  #: seconds from one writing of since when the clock has gone without a jump to the next
EVERY = 60.0  #: seconds from one look at the history's length to the next
LONG = 0.5  #: seconds of a turn behind which steps of the underlay wait for the next one
LOOKED_AT = 500  #: instances at a turn, to see whether a step of the underlay is due
FORGOTTEN = 5000  #: revisions at a turn: after a start there may be hundreds of thousands
LONGEST_WAIT = 60.0  #: seconds for which nodes are waited for at most, however the clock is set meanwhile
MOST_SETTLING = 10_000  #: reports whose time is counted at once; those beyond wait for these
KEPT = 3600.0  #: seconds for which the store remembers what was overwritten, for watches and listings


class Rest(NamedTuple):
    """Say that by a view, as it was at one revision, nothing is due between two times: the earliest and the first behind them."""

    view: View
    revision: int
    since: float
    until: float


class Leader:
    """Do the leader's work. ``name``: of the service, see deposed(); ``passed``: seconds by a clock that nobody sets, see Steady."""

    def __init__(self, core: Core, name: str, passed: Callable[[], float] | None = None) -> None:
        self._core, self._name = core, name
        self._elected = 0  # the revision at which it was
        self._steady = Steady(core.now, passed)
        self._passed = passed if passed is not None else core.now
        self._opening = "", 0.0  # since when nodes have their time in which epoch, by ``passed``
        self._begun = core.now()
        self._looked = float("-inf")
        self._rest: Rest | None = None
        self._patient = float("-inf")  # until then no node is taken for gone
        self._marks: list[tuple[float, int]] = []  # when the store was at which revision, the oldest first
        self._old, self._floor = 0, 0  # up to which revision all may be forgotten, and is
        self._settling: dict[
            tuple[str, float], float
        ] = {}  # a report that is to be settled, as it says so -> since when that is known here
        self._due = Marks()  # of whom a step of the underlay may be due
        self._undone: dict[tuple[str, str], Exception] = {}  # of whom it was not taken, by a fault

    def elected(self, seconds: float) -> Generator[Effect, Result, int]:
        """Try to become the leader; give the lease that is to be kept, 0 where another one is."""
        lease = cast("Granted", (yield Grant(seconds))).lease
        result = yield Commit((Expect(keys.LEADER, 0),), (Put(keys.LEADER, self._name.encode(), lease),))
        if not isinstance(result, Committed):
            return 0
        self._elected = result.revision
        return lease

    def is_elected(self, there: Item | None) -> bool:
        """Tell whether this one leads still. ``there``: the leader's key; another service of this name may have it now, see deposed()."""
        return there is not None and there.revision == self._elected

    def hear(self, batch: Batch | None) -> None:
        """Take in what the view has taken in, also while another one leads: one commit; None: all of it anew."""
        view = self._core.view
        if not healing.opening(view):
            self._opening = "", 0.0
        elif view.epoch != self._opening[0]:
            self._opening = view.epoch, self._passed()
        self._due.hear(view, batch)

    def holds(self) -> bool:
        """Tell whether names of the underlay are held where they are, since nodes may have more to say of that after a restore."""
        view, (epoch, since) = self._core.view, self._opening
        return healing.opening(view) and not (epoch == view.epoch and self._passed() - since > healing.HELD)

    def begin(self) -> None:
        """Hold the clock against what is written in the registry."""
        view = self._core.view
        self._steady.begin(written(view), view.get(keys.CLOCK))

    def look(self) -> str:
        """Look whether the clock has jumped; say so once, "" for no. To be done every second or so, whoever leads."""
        self._steady.look()
        return self._steady.told()

    @property
    def held(self) -> float:
        """Give for how many seconds no option or quarantine ends yet, since the clock has jumped; 0: they do."""
        return self._steady.held(self._core.view.settings.quarantine)

    def _wanted(self) -> tuple[str, ...]:
        """Give what there is to be asked for, of what may be done by the clock as it is."""
        view, now = self._core.view, self._core.now()  # before the look: what has jumped by then is seen
        return ends.wanted(view, now, self._steady.ends(view.settings.quarantine), self._steady.forgets)

    def _next_end(self, view: View) -> float:
        """Give when something of a view ends; where nothing may end for now that is looked at again in a minute."""
        return ends.next_end(view) if self._steady.ends(view.settings.quarantine) else float("inf")

    def wait(self, seconds: float) -> None:
        """Take no node for gone for so many seconds: its lease may have ended because nobody was there to keep it."""
        self._patient = self._core.now() + min(seconds, LONGEST_WAIT)
        self._rest = None

    def _waits(self) -> bool:
        return 0 < self._patient - self._core.now() <= LONGEST_WAIT

    @property
    def rests(self) -> bool:
        """Tell whether nothing can be due: that takes a look at all nodes, so it is found out once for each state of the registry."""
        now, view, rest = self._core.now(), self._core.view, self._rest
        if rest is None or rest.view is not view or rest.revision != view.revision or self._floor < self._old:
            return False
        return (
            not self._due
            and not healing.opening(view)
            and rest.since <= now < min(rest.until, self._looked + EVERY)
            and now >= self._looked
        )

    def work(self) -> Work:
        """Do all that is due; also where the store takes nothing, let it forget."""
        refused: NetcommonError | None = None
        try:
            yield from self.forget()
        except NetcommonError as error:  # told when the rest is done, as what else is not done
            refused = error
        yield from self._opened()
        began, view = self._core.now(), self._core.view
        latest = self._patient if self._waits() else float("inf")
        due, undone = yield from self._requests()
        refused = refused or undone
        noted = yield from self._noted_or_swept()
        yield from self._placed()
        refused = refused or self._not_placed()
        settled = min(self._settling.values(), default=float("inf")) + SETTLING
        until = min(self._next_end(view), settled, latest)
        self._rest = None if due or noted or self._undone else Rest(view, view.revision, began, until)
        now = self._core.now()
        if now - self._looked >= EVERY or now < self._looked:
            yield from self._clock_kept(now)
            self._due.all(view)  # whose name another one had may have it now
            more = yield from self._trimmed()
            self._looked = float("-inf") if more else now
        if refused is not None:
            raise refused

    def forget(self) -> Work:
        """Let the store forget what was overwritten a while ago. It needs no room, and who does not lead may do it too."""
        now = self._core.now()
        if not self._marks or not 0 <= now - self._marks[-1][0] < EVERY:
            self._noted()
        if self._floor < self._old:
            until = min(self._floor + FORGOTTEN, self._old)
            self._floor = cast("Forgotten", (yield Compact(until))).floor

    def _requests(self) -> Generator[Effect, Result, tuple[bool, Refused | None]]:
        """Ask for what has ended; for so much at a turn that others have theirs. Tell whether anything had.

        What is refused by the rules keeps nothing else waiting, and is told.
        """
        core, who = self._core, Identity("leader", "", self._name)
        refused: dict[str, Refused] = {}
        for turn in range(AT_A_TURN):
            if not (due := [action for action in self._wanted() if action not in refused]):
                return turn > 0, next(iter(refused.values()), None)
            for action in due:
                # of one state of the registry there is one such request, whoever makes it
                request = new_id(core.moment, hash_of(f"{action}/{core.view.epoch}/{core.view.at(keys.LEDGER)}"))
                response = yield from core.answer(Call(request, action), who)
                if response.status >= 500:  # by the store, or since others are quicker
                    return True, next(iter(refused.values()), None)
                if response.status != 200:
                    refused[action] = Refused("unavailable", f"{action} is refused: {response.body['detail']}")
        return True, next(iter(refused.values()), None)

    def _noted_or_swept(self) -> Generator[Effect, Result, bool]:
        """Note which nodes are gone, and migrations that are over; sweep what is left of forgotten nodes. Tell whether there were any."""
        commit = None
        for commit in islice(chain(self._gone(), self._settled(), self._forgotten()), AT_A_TURN):
            result = yield commit  # where it is not done somebody else has been quicker, or the next turn will do it
            if isinstance(result, Committed):
                yield CatchUp(result.revision)
        return commit is not None

    def _placed(self) -> Work:
        """Take the steps of the underlay that are due: several in one commit, and so many at a turn that others have theirs."""
        core, who = self._core, Identity("leader", "", self._name)
        ends = self._steady.ends(core.view.settings.quarantine)
        if ends:
            self._due.ended(core.view, core.now(), LOOKED_AT)
        for instance in self._undone:
            self._due.mark(instance)
        marked, began = self._due.some(LOOKED_AT), core.now()
        for _ in range(AT_A_TURN):
            if not 0 <= core.now() - began < LONG:
                return  # each step of a node with thousands of endpoints may take a while
            draft, taken = Draft(core.view, "", who, core.now()), list[tuple[str, str]]()
            placing = Placing(draft, ends=ends)
            while marked and placing.advance(*marked[0]):
                self._undone.pop(marked[0], None)
                taken.append(marked.pop(0))
            self._undone |= placing.failed
            if not taken:
                if not marked:
                    return
                taken = [marked.pop(0)]  # something of it cannot be read, and nothing is written over that; or it is at fault
            commit = placing.commit()
            result = (yield commit) if commit.changes else None
            if result is None or isinstance(result, Committed):
                for instance in taken:
                    self._due.over(instance)
            if commit.changes:
                yield CatchUp(result.revision if isinstance(result, Committed) else 0)

    def _not_placed(self) -> Refused | None:
        """Say of which instance a step was not taken by a fault."""
        for (cluster, instance), why in self._undone.items():
            whose = f"{instance} of {cluster}" if cluster else instance
            return Refused("unavailable", f"endpoints and names of {whose} stay as they are: {why!r}; {len(self._undone)} instances in all")
        return None

    def _opened(self) -> Work:
        """Note that an epoch has begun, and that nodes have had their time in it. It is no request: what cannot be read refuses none."""
        view, (epoch, since) = self._core.view, self._opening
        over = epoch == view.epoch and self._passed() - since > healing.WAIT
        if (commit := healing.opened(view, self._core.now(), over)) is not None:
            result = yield commit
            yield CatchUp(result.revision if isinstance(result, Committed) else 0)

    def _gone(self) -> Iterator[Commit]:
        """Note since when nodes have no lease: the engine only removes their keys."""
        view = self._core.view
        if self._waits():
            return
        for key in tuple(view.all("nodes")):
            node = key.partition("/")[2]
            if view.node(node) is not None and view.alive(node) is None and view.gone(node) is None:
                tests = (Expect(keys.alive(node), 0), Expect(keys.gone(node), 0), Expect(key, view.at(key)))
                yield Commit(tests, (Put(keys.gone(node), dump(Gone(self._core.now()))),))

    def _settled(self) -> Iterator[Commit]:
        """Note that a migration's source has had its time: if its guest still runs there too, that is a conflict from now on.

        The time is counted here, from when this leader has first seen the report: it was taken in by another service, perhaps, whose clock
        may be minutes ahead or behind.
        """
        view, now = self._core.view, self._core.now()
        there = [(key, view.get(key).settles) for key in view.due(Report, float("inf"), MOST_SETTLING)]
        self._settling = {each: min(self._settling.get(each, now), now) for each in there}
        for (key, settles), since in tuple(self._settling.items()):
            report: Report | None = view.get(key)  # another service may have taken in another one since
            if now >= since + SETTLING and report is not None and report.settles == settles:
                settled = report._replace(came_from="", settles=0.0)
                yield Commit((Expect(key, view.at(key)),), (Put(key, dump(settled)),))

    def _forgotten(self) -> Iterator[Commit]:
        """Sweep what is left of nodes that were forgotten; their reports last, for which one that joins again waits."""
        view = self._core.view
        left: dict[str, list[str]] = {}
        for (node,) in view.groups("on"):
            if view.node(node) is None:
                left.setdefault(node, []).extend(view.members("on", node))
        for kind in ("gone", "speakers", "confirmed", "reports"):
            for key in tuple(view.all(kind)):
                node = key.partition("/")[2]
                if view.node(node) is None:
                    left.setdefault(node, []).append(key)
        for node, found in left.items():
            for place in range(0, len(found), AT_ONCE):
                yield Commit((Expect(keys.node(node), 0),), tuple(Delete(key) for key in found[place : place + AT_ONCE]))

    def _clock_kept(self, now: float) -> Work:
        """Write since when the clock has gone without a jump, now and then and after one: a service begun anew goes on from there."""
        view, clock = self._core.view, self._steady.clock
        there = view.get(keys.CLOCK)
        seen = there.seen if there is not None else self._begun
        jumped = there is not None and clock is not None and abs(clock.since - there.since) > JUMP
        if clock is not None and (jumped or not 0 <= now - seen < CLOCK_KEPT) and keys.CLOCK not in view.unreadable:
            result = yield Commit((Expect(keys.CLOCK, view.at(keys.CLOCK)),), (Put(keys.CLOCK, dump(clock)),))
            if isinstance(result, Committed):
                yield CatchUp(result.revision)

    def _trimmed(self) -> Generator[Effect, Result, bool]:
        """Delete the oldest entries of the history: by age and number, and never what a late copy of a request may still ask for.

        There may be a million: so many are deleted at a turn that others have theirs. Tell whether there are more.

        How old one is says the time at which it was done; its id, which who asks has chosen, says no more than where it is kept: behind
        a time that is not yet where the history was cut while the clock was fast. Of what was done by such a clock only the number counts.
        The ledger's floor rises in the same commit: what is not remembered any more is refused from then on.
        """
        core = self._core
        for _ in range(TRIMMED):
            view, settings, now = core.view, core.view.settings, core.now()
            if keys.LEDGER in view.unreadable:
                return False
            some = cast("Some", (yield Oldest("history/", AT_ONCE)))
            ledger, excess = view.ledger, view.ledger.kept - settings.history_entries
            oldest = (now - settings.history_seconds) * 1000 if self._steady.forgets else float("-inf")
            cut: list[str] = []
            for key, value in some.items:
                at = made(key.partition("/")[2])
                done = _done(value) or at
                if done > now * 1000 + BACK and self._steady.forgets:
                    done = int(now * 1000) - LATE - 1  # it was done while the clock was fast, and before it was set right a day ago
                if done >= now * 1000 - LATE or not (len(cut) < excess or done < oldest):
                    break
                cut.append(key)
                ledger = ledger._replace(kept=ledger.kept - 1, floor=max(ledger.floor, at))
            if not cut:
                return False
            advanced = Put(keys.LEDGER, dump(ledger))
            result = yield Commit((Expect(keys.LEDGER, view.at(keys.LEDGER)),), (advanced, *map(Delete, cut)))
            if not isinstance(result, Committed):
                return True
            yield CatchUp(result.revision)
        return True

    def _noted(self) -> None:
        """Note what was overwritten a while ago: the store may forget it."""
        now = self._core.now()
        self._marks = [mark for mark in self._marks if mark[0] <= now] + [(now, self._core.view.revision)]
        old = [revision for at, revision in self._marks if at <= now - KEPT]
        if old:
            self._marks = self._marks[len(old) :]
            self._old = old[-1]


def deposed(store: Store, name: str = "") -> None:
    """Let nobody lead any more, so that the next one need not wait until the lease ends: who led is known to be gone.

    ``name``: of the service that is gone; where another one leads, that goes on. One that has the name and lives, as on a machine that was
    copied, sees by the key that it leads no more.
    """
    there = store.get(keys.LEADER)
    if there is not None and name.encode() in (b"", there.value):
        store.commit((Expect(keys.LEADER, there.revision),), (Delete(keys.LEADER),))


def _done(value: bytes) -> int:
    """Give the time at which an entry of the history was done, milliseconds since the epoch; 0 where nobody can read it."""
    try:
        return int(load(Entry, value).time * 1000)
    except Invalid:
        return 0


def hash_of(text: str) -> int:
    """Give a number that is the same for the same text, in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:10], "big")
