"""Keep what the registry is still to be told: marks, not messages. What is sent of a NIC is what it is when it is sent.

One request of reports is in flight. It holds the node's next reports after those that the registry has (``after``), so a copy of it that
comes late is refused; and where no answer came the same is sent again until there is one. What the registry refuses is sent by itself, then
left aside: it holds up nothing else, and is sent again when it has changed, or is to be tried again (``retry``).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from netagent.sync.laid import Standing
from netagent.sync.messages import Local, Looked, Send
from netagent.sync.reading import ENDPOINTS, OF_REGISTRY, endpoints_of, note, report_of, said_of, standing_of
from netagent.sync.sent import Aside, Sent, sent_of
from netregistry.model.codec import Invalid, read, write
from netregistry.model.nic import Report
from netregistry.model.node import About

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST = 50  #: NICs of one request
STOPPED: Final = "stopped"
PREFIXES = "prefixes"
ABOUT: Final = "about"  #: stands for what there is on the node, among UUIDs of NICs
UNDERLAY: Final = "underlay"  #: stands for what of the underlay is there
MOST_ENDPOINTS = 16  #: kinds of one NIC


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
        self.about = self.underlay = False  #: what there is on the node is to be told, and what of the underlay
        self.able = False  #: the service has an underlay, and takes what is there of it
        self.stated = False  #: the registry has heard in its epoch what of the underlay is here: nothing goes by what it does not know
        self.tried = False  #: that was to be said, and could not
        self._whole = False  # the service takes the node's prefix, too
        self.prefixes = False  #: the service takes the prefixes that guests have as a whole
        self.aside: dict[str, Aside] = {}  #: what the registry refuses: NICs, and what there is on the node (ABOUT)
        self.leaving: set[str] = set()  #: stopped NICs that run elsewhere by now: what we have said of them goes
        self.absent: set[str] = set()  #: NICs that are ours and not here, of which nothing was ever said: that is to be said
        self.unclear: dict[str, float] = {}  #: NICs of which nothing could be told: when (monotonic seconds) they are looked at again
        self.flight: Send | None = None
        self._reading: tuple[str, ...] = ()
        self._flying: dict[str, Sent | None] = {}
        self._node_flying: dict[str, int] = {}  # ABOUT, UNDERLAY -> the hash of what was said
        self._node_told: dict[str, int] = {}
        self._node_reading: tuple[str, ...] = ()
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
        return ABOUT in self._node_flying

    @property
    def marks(self) -> int:
        """Count what is to be told, in flight or not."""
        aside = sum(1 for each in self.aside if each not in self.dirty)
        of_node = self.about + self.underlay + len(self._node_reading) + len(self._node_flying)
        return sum(map(len, (self.dirty, self._reading, self._flying, self.unclear))) + of_node + aside

    @property
    def telling(self) -> bool:
        """Tell whether anything is to be told that is neither left aside nor unclear, in flight or not."""
        return self.flight is not None or self.due or bool(self._reading) or bool(self._node_reading)

    @property
    def speaks(self) -> bool:
        """Tell whether anything is to be told of NICs or of the underlay, in flight or not."""
        return self.flight is not None or self.underlay or bool(self.dirty or self._reading)

    def batch(self) -> tuple[tuple[str, ...], bool, bool]:
        """Take what is to be looked at for the next request: NICs, and whether also what there is on the node, and of the underlay."""
        of_node = [what for what, is_marked in ((ABOUT, self.about), (UNDERLAY, self.underlay)) if is_marked]
        marked = (*of_node, *self.dirty)
        alone = next((each for each in marked if each in self._alone), None)
        others = [each for each in marked if each not in self._alone][:MOST]
        self._was_alone = alone is not None and not (self._was_alone and others)
        taken = [alone] if self._was_alone and alone is not None else others
        self._node_reading = tuple(each for each in taken if each in of_node)
        self._reading = tuple(each for each in taken if each not in of_node)
        about, underlay = ABOUT in taken, UNDERLAY in taken
        self.about, self.underlay = self.about and not about, self.underlay and not underlay
        for uuid in self._reading:
            del self.dirty[uuid]
        return self._reading, about, underlay

    @property
    def due(self) -> bool:
        """Tell whether there is anything to look at for a request."""
        return self.flight is None and (self.about or self.underlay or bool(self.dirty))

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
            if report is not None and not self.prefixes:
                report = report._replace(prefixes=())
            endpoints = self._endpoints(local)
            sent = None if report is None else sent_of(report, endpoints=endpoints)
            if not self._is_known(uuid, sent, before):
                flying[uuid] = sent
                if report is None:
                    removed.append(uuid)
                else:
                    said = {name: value for name, value in write(report).items() if name not in OF_REGISTRY}
                    said = {name: value for name, value in said.items() if value or name != PREFIXES}  # an older service knows none
                    nics.append({**said, ENDPOINTS: list(endpoints)} if endpoints else said)
        self._reading = ()
        body: dict[str, Any] = {"after": self.after, "nics": nics, "removed": removed}
        reading, self._node_reading = self._node_reading, ()
        for what in reading:
            self._add_of_node(what, looked, body)
        if not flying and not self._node_flying:
            return None
        self._flying = flying
        self.flight = Send(request(), body)
        return self.flight

    def _add_of_node(self, what: str, looked: Looked, body: dict[str, Any]) -> None:
        """Let a request say what was looked at of the node itself, if the registry does not know it."""
        found = looked.about if what == ABOUT else looked.underlay
        if found is None:
            self._mark_node(what)  # it is looked at again
        elif not self._is_known(what, said := self._hash_of(found), self._node_told.get(what, 0)):
            self._node_flying[what] = said
            body[what] = found.said(self._whole, not self.stated) if isinstance(found, Standing) else write(found)
        elif what == UNDERLAY and what not in self.aside:
            self.stated = True

    def _hash_of(self, found: About | Standing) -> int:
        return hash(found.shown(self._whole) if isinstance(found, Standing) else found)

    @property
    def unstated(self) -> bool:
        """Tell whether what of the underlay is here is to be said before anything of it is told."""
        return self.able and not (self.stated or self.tried or UNDERLAY in self.aside)

    def _mark_node(self, *what: str) -> None:
        self.about = self.about or ABOUT in what
        self.underlay = (self.underlay or UNDERLAY in what) and self.able

    def _endpoints(self, local: Local | None) -> tuple[str, ...]:
        """Give the kinds of endpoints to be said of a NIC; none to a service that has no underlay."""
        return local.endpoints[:MOST_ENDPOINTS] if local is not None and self.able else ()

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
        return sent is not None and sent == sent_of(self._said(uuid, local), endpoints=self._endpoints(local))

    @property
    def refused(self) -> dict[str, str]:
        """Say of which NICs the registry does not take the reports, and why; ABOUT stands for what there is on the node."""
        return {each: f"reports: {aside.why}" for each, aside in self.aside.items()}

    # -- what became of a request

    def done(self, revision: str) -> dict[str, Sent | None]:
        """Take that the request in flight was done; give what it has said."""
        said, self._flying, self.flight = self._flying, {}, None
        for what in self._node_flying:
            self._agreed(what)
        self.stated = self.stated or UNDERLAY in self._node_flying
        self._node_told |= self._node_flying
        self._node_flying = {}
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
        self.about = True
        self._node_told.pop(ABOUT, None)
        for uuid, sent in self.told.items():
            self.told[uuid] = sent._replace(hash=0)
            self.dirty.setdefault(uuid)

    def not_done(self) -> None:
        """Take that the request in flight was not done: what it said is to be told still."""
        for uuid in (*self._flying, *self._reading):
            self.dirty.setdefault(uuid)
        self._mark_node(*self._node_reading, *self._node_flying)
        self._flying, self._reading, self._node_reading, self.flight, self._node_flying = {}, (), (), None, {}
        if self._again:
            self._tell_again()

    def not_taken(self, why: str) -> None:
        """Take that the registry will not have what the request in flight says: each part is sent by itself, and such a one left aside."""
        parts: dict[str, Sent | int | None] = {**self._flying, **self._node_flying}
        self._alone.update(parts)
        if len(parts) == 1:
            self.aside |= {each: Aside(why, said) for each, said in parts.items()}
            self._flying, self._node_flying = {}, {}
        self.not_done()

    def has_about(self, said: Mapping[str, Any]) -> None:
        """Take what the registry has from this life on what there is on the node."""
        with contextlib.suppress(Invalid):
            self._node_told[ABOUT] = hash(read(About, said))

    def has_underlay(self, said: object) -> None:
        """Take what the registry has of the underlay on the node, as it was said in its epoch; None: nothing."""
        self._node_told[UNDERLAY] = self._hash_of(standing_of(said))
        self.stated = self.stated or said is not None

    def can_tell_prefixes(self, able: bool) -> None:
        """Take whether the service takes prefixes of guests. What it was not told of NICs before is told then."""
        if able and not self.prefixes:
            self.dirty |= dict.fromkeys(self.told)
        self.prefixes = able

    def can_tell_underlay(self, able: bool, whole: bool) -> None:
        """Take whether the service has an underlay, and takes the ``whole`` of it. What it was not told of NICs before is told then."""
        self._whole = whole
        if able and not self.able:
            self.dirty |= dict.fromkeys(self.told)
        self.able = self.underlay = able
        if not able:
            self._agreed(UNDERLAY)

    def listed(self, reports: Iterable[Mapping[str, Any]], counts: bool) -> None:
        """Take what the registry has from us, as it lists that. ``counts``: it is of this life: what is as it says is not told anew.

        Raises Lie.
        """
        has = dict(map(report_of, reports := list(reports)))
        self.told, self.noted = {}, {}
        for each in reports:
            said = said_of(each)
            self.told[each["nic"]] = Sent(has[each["nic"]], 0) if said is None else sent_of(said, counts, endpoints_of(each))
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
        self.after, self.about, self._node_told, self.stated, self.tried = "", True, {}, False, False
        for uuid in self.told:
            self.dirty.setdefault(uuid)
        self.told = {}

    def retry(self) -> None:
        """Let what was refused be tried again."""
        refused, self.aside = self.aside, {}
        self._mark_node(*(what for what in (ABOUT, UNDERLAY) if refused.pop(what, None) is not None))
        for uuid in refused:
            self.dirty.setdefault(uuid)
