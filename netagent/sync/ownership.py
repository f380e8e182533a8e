"""Keep the wanted NICs whose master this node is: add what the registry does not know, say what was defined anew, let go what is gone.

A NIC is unknown to the registry when it has our report, and the stream, which has told all up to that revision, has not told the NIC. It is
added before anything goes. What may go was found by whole lists and a whole inventory (netagent.sync.reaping), and is looked at once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync.connection import AGAIN
from netagent.sync.jobs import NEVER
from netagent.sync.messages import Ask, List
from netagent.sync.outbox import STOPPED
from netagent.sync.reading import ADDRESS, revision_of
from netagent.sync.reaping import Stray, found
from netregistry.rules.masters import OF_NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from netagent.sync.connection import Connection
    from netagent.sync.inbox import Changes, Inbox
    from netagent.sync.messages import Asking, Failure, Local, Looked, Sent, Surveyed
    from netagent.sync.outbox import Outbox
    from netagent.sync.reading import Own, Revision
    from netagent.sync.reaping import Found
    from netagent.sync.rules import Rules

REAPING, INVENTORY = "registry-reaping", "registry-inventory"
#: What a NIC has of its network.
PLACED = ("network",)
INCOMING, RUNNING = "incoming", "running"
ADD, SET, DELETE = "nic.add", "nic.set", "nic.delete"
METHODS: dict[str, Any] = {ADD: "POST", SET: "PATCH", DELETE: "DELETE"}
#: Answers that say that it was changed meanwhile: what is to be done is found anew.
CHANGED = frozenset(("stale", "match", "missing", "epoch"))
OFTEN = 6  #: comparisons that are tried until the next one is due, where one was not possible
HELD = 30.0  #: seconds until a NIC is asked for again that the registry had as another's, or that was not in time twice
SURVEY_AGAIN = 60.0  #: seconds until an inventory that was not complete is taken again, and again as many each time, up to a comparison's


class _Candidate(NamedTuple):
    action: str
    uuid: str
    match: str


class Ownership:
    """See the module. ``alarm`` and ``tell`` are the machine's."""

    def __init__(
        self,
        node: str,
        rules: Rules,
        parts: tuple[Outbox, Inbox, Connection],
        request: Callable[[], str],
        chance: Callable[[], float],
        said: tuple[Callable[[str, str], None], Callable[[str], None]],
        now: float,
    ) -> None:
        self._node, self._rules, self._request, self._chance = node, rules, request, chance
        self._outbox, self._inbox, self._line = parts
        self._alarm, self._tell = said
        self.refused: dict[str, str] = {}  #: NIC -> why the registry will not have what this node says of it
        self._untimely: dict[str, str] = {}  # NICs whose last request was not in time -> why, "" where it was in time before
        self.apart: dict[str, str] = {}  #: NIC -> how its address here and in the registry differ, and nobody can tell which one is newer
        self.foreign: set[str] = set()  #: NICs of a Ganeti cluster that the registry does not know
        self.reaped = 0
        self.survey_due = False
        self.anew = False  #: the stream is to tell all again: what is known of a NIC of ours lacks its address
        self._asked_anew = False
        self._held: dict[str, float] = {}  # NICs that the registry had when it was to add them, or another node: until when
        # NICs of which nothing could be told when they were looked at, or that were not in time twice: until when they are left alone
        self._unclear: dict[str, float] = {}
        self._homeless: set[str] = set()  # NICs whose network the registry does not know
        self._unconfirmed: dict[str, int] = {}  # NIC -> revision of our report
        self._unknown: dict[str, None] = {}
        self._differing: dict[str, None] = {}
        self._strays: list[tuple[float, Stray]] = []  # when each may go
        self._candidate: _Candidate | None = None
        self._doubt: Ask | None = None
        first, last = rules.first
        self._compare_at = now + first + (last - first) * chance()
        self._survey: Surveyed | None = None
        self._lists: list[Any] = []
        self._comparing = False
        self._survey_at = NEVER  # when the inventory of the beginning is due, or another one after one that was not complete
        self._incomplete = 0  # inventories that were not complete, one after the other
        self._undecided = ""  # why the latest comparison has removed nothing

    @property
    def busy(self) -> bool:
        """Tell whether anything is under way but the wait for the next comparison."""
        pending = self._unknown.keys() - self._held.keys() or self._differing or self._unconfirmed or self._strays
        return bool(pending or self._candidate or self._doubt or self._comparing or self._survey_at < NEVER)

    @property
    def waits(self) -> bool:
        """Tell whether anything depends on up to where the stream has told all."""
        nics = self._inbox.nics
        return bool(self._unconfirmed) or any(uuid in nics for uuids in (self._unknown, self.foreign) for uuid in uuids)

    # -- what is known

    def begin(self, now: float) -> None:
        """Let an inventory be taken: it is known what the registry has from us, and all that is here is to be told."""
        self._survey_at = now

    def forget(self) -> None:
        """Take that nothing is known of what the registry has."""
        self._unconfirmed.clear()
        self._unknown.clear()
        self._differing.clear()
        self._unclear.clear()
        self._untimely.clear()
        self._strays.clear()
        self.apart.clear()
        self._inbox.agreed.clear()  # with another registry, or an older one
        self._doubt = self._candidate = None
        self._abort()

    def retry(self) -> None:
        """Let what was refused be tried again."""
        for uuid in self.refused:
            if uuid in self._outbox.told and uuid not in self._inbox.nics:
                self._unknown[uuid] = None
            self._outbox.mark(uuid)
        self.refused.clear()
        self._held.clear()
        self._homeless.clear()

    def reported(self, said: Mapping[str, Sent | None], revision: str) -> None:
        """Take that the registry has reports of ours as of a revision."""
        for uuid, sent in said.items():
            if sent is None:
                self._unknown.pop(uuid, None)
                self._unconfirmed.pop(uuid, None)
                self.foreign.discard(uuid)
            elif uuid not in self._inbox.nics:
                self._unconfirmed[uuid] = revision_of(revision).number

    def told(self, at: Revision, changes: Changes | None = None) -> None:
        """Take that the stream has told all up to a revision."""
        nics, here = self._inbox.nics, self._outbox.told
        for uuid in changes.left if changes is not None else ():
            self.apart.pop(uuid, None)
            self._inbox.agreed.pop(uuid, None)
        missing: Iterable[str] = () if changes is None else here if changes.whole else changes.left
        for uuid in missing:
            if uuid in here and uuid not in nics and uuid not in self._unconfirmed:
                self._unknown[uuid] = None
        for uuid, number in list(self._unconfirmed.items()):
            if uuid in nics or at.number >= number:
                del self._unconfirmed[uuid]
                if uuid not in nics:
                    self._unknown[uuid] = None
        for uuid in [uuid for uuid in (*self._unknown, *self.foreign) if uuid in nics]:
            if not nics[uuid].master.startswith("node:") or nics[uuid].master == f"node:{self._node}":
                self._unknown.pop(uuid, None)
            self.foreign.discard(uuid)
            self.refused.pop(uuid, None)

    def seen(self, uuid: str, local: Local, own: Own) -> None:
        """Hold what is here of a wanted NIC against what the registry has of it."""
        self._compare_address(uuid, local, own)
        if self._differs(uuid, local, own) and uuid not in self.refused:
            self._differing[uuid] = None
        else:
            self._differing.pop(uuid, None)
        if self._left(local, own):
            self._unknown[uuid] = None

    def missing(self, uuid: str, local: Local) -> None:
        """Take that a NIC is here, and that the registry, which has our report of it, wants none: it was gone when it was to be added."""
        told = uuid in self._outbox.told and uuid not in self._unconfirmed
        if told and uuid not in self.refused and not local.ganeti and local.report.state != INCOMING:
            self._unknown[uuid] = None

    def _ours(self, local: Local, own: Own) -> bool:
        return own.master == f"node:{self._node}" and not local.ganeti and local.report.state != INCOMING

    def _differs(self, uuid: str, local: Local, own: Own) -> dict[str, Any]:
        """Give what was defined anew here. The operator may change the address too: it is ours only where the registry's is as it was."""
        if not self._ours(local, own):
            return {}
        names = OF_NODE | {ADDRESS} if own.fields.get(ADDRESS) == self._inbox.agreed.get(uuid) is not None else OF_NODE
        return {name: value for name, value in local.fields.items() if name in names and own.fields.get(name) != value}

    def _compare_address(self, uuid: str, local: Local, own: Own) -> None:
        """Note where both have the same address; say where the registry's was changed, or nobody knows which one was."""
        self.apart.pop(uuid, None)
        if not self._ours(local, own) or ADDRESS not in local.fields:
            return
        here, there = local.fields[ADDRESS], own.fields.get(ADDRESS)
        if here == there:
            self._inbox.agree(uuid, here)
        elif there is None:  # as a version has kept it that did not ask
            self.anew, self._asked_anew = not self._asked_anew, True
        elif there != self._inbox.agreed.get(uuid):
            tap = local.report.tap or "TAP"
            commands = f"netcommon define --interface {tap} --ip ADDRESS on this node, or netcommon registry nic set {uuid} ip=ADDRESS"
            self.apart[uuid] = f"its address is {here or 'none'} here, and {there or 'none'} in the registry: {commands}"

    # -- one change after the other

    def look(self, now: float) -> tuple[str, ...] | None:
        """Give what is to be looked at for the next change of what is wanted; None: there is none."""
        if self._candidate or self._doubt or not (self._line.ready and self._inbox.complete):
            return None
        self._candidate = self._next(now)
        return None if self._candidate is None else (self._candidate.uuid,)

    def _next(self, now: float) -> _Candidate | None:
        can = self._line.can
        for uuid in [uuid for uuid in self._unknown if uuid not in self._outbox.told]:
            del self._unknown[uuid]  # what has not been reported comes back when it has
        for uuid in self._unknown if can(ADD, now) else ():
            if uuid not in self.refused and uuid not in self._unclear and self._held.get(uuid, 0.0) <= now:
                return _Candidate(ADD, uuid, self._outbox.after)
        for uuid in self._differing if can(SET, now) else ():
            if uuid not in self._unclear:
                return _Candidate(SET, uuid, "")
        if self._strays and self._strays[0][0] <= now and can(DELETE, now) and not self._unconfirmed:
            _when, stray = self._strays.pop(0)
            return _Candidate(DELETE, stray.uuid, stray.revision)
        return None

    def looked(self, event: Looked, now: float) -> None:
        """Make a request of what was looked at, if it is still needed. What could not be told is looked at again after a pause."""
        one, self._candidate = self._candidate, None
        if one is None or self._doubt is not None:
            return
        local, own = event.nics.get(one.uuid), self._inbox.nics.get(one.uuid)
        if one.uuid in event.unclear:
            self._unclear[one.uuid] = now + self._rules.pause * (0.5 + self._chance())
        if one.uuid in event.unclear or not self._inbox.complete:
            return
        if one.action == ADD:
            self._unknown.pop(one.uuid, None)
            self._held.pop(one.uuid, None)
            if local is not None and local.ganeti:
                self.foreign.add(one.uuid)
            elif local is not None and not local.unread and self._may_add(local, own):
                # of reports that are not the latest any more it is not done: a copy may come late
                fields = {name: value for name, value in local.fields.items() if name not in PLACED or one.uuid not in self._homeless}
                self._ask(one._replace(match=self._outbox.after), {**fields, "uuid": one.uuid, "found": True})
        elif one.action == SET:
            self._differing.pop(one.uuid, None)
            if local is not None and own is not None and (fields := self._differs(one.uuid, local, own)):
                self._ask(one._replace(match=own.wanted.revision), {**fields, "found": True})
        elif local is None and own is not None and own.wanted.revision == one.match and self._is_stopped(one.uuid):
            self._ask(one, None)

    def _may_add(self, local: Local, own: Own | None) -> bool:
        """Tell whether a NIC is to be made ours: the registry does not know it, or it was another node's, and its guest has come here."""
        if own is None:
            return local.report.state != INCOMING
        return self._left(local, own)

    def _left(self, local: Local, own: Own) -> bool:
        return own.master.startswith("node:") and own.master != f"node:{self._node}" and local.report.state == RUNNING and not local.ganeti

    def _is_stopped(self, uuid: str) -> bool:
        sent = self._outbox.told.get(uuid)
        return sent is not None and sent.state == STOPPED

    def _ask(self, one: _Candidate, body: dict[str, Any] | None) -> None:
        self._doubt = Ask(self._request(), METHODS[one.action], one.uuid, body, one.match)

    def done(self, asked: Ask, revision: str) -> None:
        """Take that the registry has done it. Raises Lie."""
        self._doubt = None
        self._untimely.pop(asked.uuid, None)
        if asked.method == "DELETE":
            self.reaped += 1
            self._tell(f"the registry wants NIC {asked.uuid} no more: it is not defined on this node")
        elif asked.method == "POST":
            self._unconfirmed[asked.uuid] = revision_of(revision).number

    def failed(self, asked: Ask, failure: Failure, now: float) -> None:
        """Take that it was not done, or that nobody knows: then the same is sent again, which decides it.

        A removal is not: the NIC may have come back, so it is looked at again, and asked for anew at the same revision.
        """
        if failure.kind in AGAIN and asked.method != "DELETE":
            return
        self._doubt = None
        if failure.kind in AGAIN:
            self._strays.insert(0, (now + self._rules.confirm, Stray(asked.uuid, asked.match, asked.uuid)))
            return
        self._outbox.mark(asked.uuid)
        before = self._untimely.pop(asked.uuid, None)
        if failure.kind == "outdated":
            self._not_in_time(asked, failure.text, before, now)
        elif failure.kind in ("invalid", "forbidden") and asked.body is not None and asked.body.get("network"):
            self._homeless.add(asked.uuid)  # the network is another registry's, gone, or not for such a NIC
            self._unknown[asked.uuid] = None
        elif failure.kind == "exists":
            # it is another's, the stream is about to tell it, or the node that the guest has left has not said so yet
            self._held[asked.uuid] = now + HELD * self._about_one()
        elif failure.kind not in CHANGED:
            self.refused[asked.uuid] = failure.text
        elif asked.method == "POST":
            self._unknown[asked.uuid] = None

    def _not_in_time(self, asked: Ask, why: str, before: str | None, now: float) -> None:
        """Make a request anew that was made too late, or at a time that is not yet. Where that too is not in time, a clock is wrong."""
        if asked.method == "DELETE":
            self.refused[asked.uuid] = why  # the next comparison finds it again
            return
        (self._unknown if asked.method == "POST" else self._differing)[asked.uuid] = None
        if before is None:
            self._untimely[asked.uuid] = ""
        else:
            self._untimely[asked.uuid] = before or why
            self._unclear[asked.uuid] = now + HELD * self._about_one()

    @property
    def not_taken(self) -> tuple[Mapping[str, str], ...]:
        """Say of which NICs the registry does not take what is said of them, and why; a later part is stronger."""
        return self._by_clock(), self.apart, self.refused

    def _by_clock(self) -> dict[str, str]:
        if not self._untimely:
            return {}
        doing = self._doubt or self._candidate
        asked = {*self._unknown, *self._differing, doing.uuid if doing is not None else ""}
        return {uuid: why for uuid, why in self._untimely.items() if why and uuid in asked}

    def turned(self, now: float) -> None:
        """Take that what could be asked was: a removal that has to wait is for another look, since the NIC may come back meanwhile."""
        doubt = self._doubt
        if doubt is not None and doubt.method == "DELETE" and self._line.flight is not doubt:
            self._doubt = None
            self._strays.insert(0, (now + self._rules.confirm, Stray(doubt.uuid, doubt.match, doubt.uuid)))

    # -- the comparison

    def turn(self, now: float) -> None:
        """Begin what is due: the inventory of the beginning, the comparison."""
        for uuid in [uuid for uuid, until in self._unclear.items() if until <= now] if self._unclear else ():
            del self._unclear[uuid]
        if now >= self._survey_at:
            self._survey_at = now + SURVEY_AGAIN
            self.survey_due = True
        if now < self._compare_at or self._comparing:
            return
        self._compare_at = now + self._rules.every / OFTEN * self._about_one()
        if self._line.ready and self._inbox.complete and not self._strays:
            self._comparing = self.survey_due = True
            self._survey, self._lists = None, []

    def surveyed(self, event: Surveyed, now: float) -> None:
        """Take an inventory: what of it the registry does not know is marked.

        One that is not complete is taken again soon: a hook at work is no alarm, unless there is one still.
        """
        here, told = event.nics, self._outbox.told
        for uuid, local in here.items():
            if not self._outbox.knows(uuid, local):
                self._outbox.mark(uuid)
        self._incomplete = self._incomplete + 1 if event.problem else 0
        if event.problem:
            longest = self._rules.every / OFTEN
            wait = min(SURVEY_AGAIN * (self._incomplete - 1), longest) if self._incomplete > 1 else self._rules.confirm
            self._survey_at = now + wait
        else:
            self._survey_at = NEVER
            for uuid in told:
                if uuid not in here:
                    self._outbox.mark(uuid)
        if self._comparing:
            self._survey = event
        if event.problem:
            self._abort()
        self._alarm(INVENTORY, _nothing(found(self._node, event, told, (), ()).problem) if self._incomplete > 1 else self._undecided)

    def asking(self, now: float) -> Asking | None:
        """Give what is to be asked of the registry."""
        if self._doubt is not None:
            return self._doubt
        if not self._comparing or self._survey is None:
            return None
        return List(("reports", "nics", "mastered")[len(self._lists)])

    def listed(self, what: str, items: Any, now: float) -> None:
        """Take a whole list. Raises KeyError, TypeError."""
        if not self._comparing or self._survey is None:
            return
        if what == "reports":
            self._outbox.compared([item["report"] for item in items if item["node"] == self._node])
        self._lists.append(items)
        if what == "mastered":
            self._compare_at = now + self._rules.every * self._about_one()
            self._decide(found(self._node, self._survey, self._outbox.told, *self._lists[1:]), now)

    def _decide(self, what: Found, now: float) -> None:
        """Do what a comparison has found: few at a time, and nothing without a whole picture."""
        self._abort()
        self._undecided = _nothing(what.problem) or (f"not removed from the registry: {what.withheld}" if what.withheld else "")
        self._alarm(INVENTORY, self._undecided)
        if what.problem:
            return
        for uuid in what.reports:
            self._outbox.leaving.add(uuid)
            self._outbox.mark(uuid)
        for uuid in what.unsaid:
            self._outbox.absent.add(uuid)
            self._outbox.mark(uuid)
        doing = self._rules.reap == "on"
        going = what.strays[: self._rules.cap] if doing else ()
        self._strays = [(now + self._rules.confirm, stray) for stray in going]
        left = what.strays[len(going) :] if self._rules.reap != "off" else ()
        named = ", ".join(f"{stray.label} ({stray.uuid})" for stray in left[:5])
        text = f"{len(left)} wanted NICs of this node are not defined on it any more, and {'wait for the next run' if doing else 'stay'}"
        self._alarm(REAPING, f"{text}: {named}" if left else "")

    def not_listed(self) -> None:
        """Take that a list cannot be had: the comparison is tried again later."""
        self._abort()

    def _abort(self) -> None:
        self._comparing, self._survey, self._lists = False, None, []

    def _about_one(self) -> float:
        return 0.9 + 0.2 * self._chance()

    @property
    def asks(self) -> bool:
        """Tell whether anything is to be asked of the registry."""
        return self._doubt is not None or (self._comparing and self._survey is not None)

    def due(self, now: float) -> float:
        """Give when there is something to do if nothing happens before."""
        times = [self._survey_at, self._compare_at if not self._comparing else NEVER]
        if self._strays and self._strays[0][0] > now:
            times.append(self._strays[0][0])
        times += [self._held[uuid] for uuid in self._unknown if self._held.get(uuid, 0.0) > now]
        times += self._unclear.values()
        return min(times)


def _nothing(why: str) -> str:
    return f"nothing is removed from the registry: {why}" if why else ""
