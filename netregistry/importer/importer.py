"""Bring configurations into a registry, one after the other: pure, with the registry and the time passed in.

What is imported is remembered: nobody else decides these fields, so what the registry has need not be listed before each import. It is
after anything that was refused, every few minutes, and at once where another epoch has begun: a registry that was restored has what Ganeti
said some time ago.

What a configuration has no more is deleted only by a second one, read some seconds after the first in which it was missing, and in no
configuration in between was it there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from netregistry.client import Problem
from netregistry.importer import difference
from netregistry.model.codec import write
from netregistry.model.importing import Reading
from netregistry.request import ANY
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from netregistry.importer.configuration import Configuration
    from netregistry.importer.difference import Known, Step
    from netregistry.model.importing import Seen

ABSENT = 5.0  #: seconds from the first reading in which something is missing to that by which it is deleted
COMPARED = 300.0  #: seconds until the registry is asked again what it has
ROUNDS = 2  #: what was refused by what is known no more is asked for anew, once
NEVER = float("inf")
PLACE = re.compile(r"parts\[\d+\](: |\.)")  #: which part of a batch is refused


class Registry(Protocol):
    """The registry, asked as the importer of this cluster."""

    def known(self) -> tuple[Known, str]:
        """Give what it has of this cluster, and its epoch. Raises Problem, TryAgain, HostRefused."""
        ...

    def epoch(self) -> str:
        """Give its epoch alone. Raises Problem, TryAgain, HostRefused."""
        ...

    def batch(self, parts: list[dict[str, Any]]) -> tuple[list[Any], str]:
        """Have requests done together, or none; give what each was answered, and the epoch. Raises Problem, TryAgain, HostRefused."""
        ...


class Outcome(NamedTuple):
    """What has become of a configuration. ``refused``: UUID -> why the registry does not take it."""

    made: int = 0
    changed: int = 0
    deleted: int = 0
    refused: Mapping[str, str] = {}
    absent: int = 0  #: what is missing, and not yet for long enough; what is refused to be deleted is not among it
    apart: tuple[str, ...] = ()  #: nodes that have its NICs, and are not of this cluster: netregistry.importer.difference.Known


class Importer:
    """One cluster's importer. Times are monotonic seconds."""

    def __init__(self, registry: Registry, absent: float = ABSENT) -> None:
        self._registry, self._patience = registry, absent
        self._known: Known | None = None
        self._epoch = ""
        self._compare_at = 0.0
        self._lineage: tuple[Any, ...] = ()  # cluster and master of the configuration before, and who were the masters before that
        self._held: tuple[Any, ...] = ()  # the lineage of which the registry was told though there was nothing else to tell
        self._absent: dict[str, float] = {}  # UUID -> since when it is missing
        self._kept: set[str] = set()  # of it, what was asked to be deleted, and refused

    @property
    def due(self) -> float:
        """Give the time by which something is missing for long enough: the configuration is to be read again then.

        What the registry refuses to delete is asked for anew whenever the configuration is read, and no reason to read it.
        """
        return min((since for uuid, since in self._absent.items() if uuid not in self._kept), default=NEVER) + self._patience

    def outdated(self) -> bool:
        """Tell whether the registry has begun another epoch since it was asked what it has. Raises Problem, TryAgain, HostRefused."""
        if self._known is None or self._registry.epoch() == self._epoch:
            return False
        self._known = None
        return True

    def take(self, wanted: Configuration, seen: Sequence[Seen], now: float) -> Outcome:
        """Let the registry have what a configuration says. ``seen``: the other masters that this node has seen, the last one last.

        Raises Problem where it is refused as a whole ("fenced"), or for now; TryAgain, HostRefused where nobody answers.
        """
        try:
            return self._taken(wanted, seen, now)
        except NetcommonError as error:
            self._known = None
            self._absent.clear()
            if isinstance(error, Problem):
                raise Problem({**error.document, "detail": PLACE.sub("", str(error))}) from None
            raise

    def _taken(self, wanted: Configuration, seen: Sequence[Seen], now: float) -> Outcome:
        lineage = wanted.uuid, wanted.master, tuple(seen)
        if lineage != self._lineage:
            self._absent.clear()
        if lineage != self._lineage or now >= self._compare_at:
            self._known = None
        self._lineage = lineage
        self.outdated()
        done = dict.fromkeys(("add", "set", "delete"), 0)
        for _ in range(ROUNDS):
            refused: dict[str, str] = {}
            known = self._now_known(now)
            hold = _hold(wanted, seen, known)
            self._missing(difference.absent(wanted, known), now)
            gone = {uuid for uuid, since in self._absent.items() if now - since >= self._patience}
            todo = difference.steps(wanted, known, gone, together=True)
            (first, *more) = [*difference.batches(todo)] or [[]]
            if more or (first and self._taken_in(known, hold, first, done) is not None):
                apart = difference.steps(wanted, known, gone, together=False)
                refused = self._asked(known, hold, difference.batches(apart) if more else ([each] for each in apart), done)
                refused = {**self._asked(known, hold, difference.batches(difference.settled(wanted, known)), done), **refused}
            if not todo and not (_holds(known, wanted) and (lineage == self._held or _unbroken(known, seen))):
                self._ask(known, hold, [])
                self._held = lineage
            if not refused and self._known is not None:
                break
            self._known = None
        self._kept = gone & refused.keys() & self._absent.keys()
        for uuid, why in difference.left_out(wanted, known).items():
            refused.setdefault(uuid, why)
        return Outcome(done["add"], done["set"], done["delete"], refused, len(self._absent) - len(self._kept), known.apart)

    def _now_known(self, now: float) -> Known:
        if self._known is None:
            self._known, self._epoch = self._registry.known()
            self._compare_at = now + COMPARED
        return self._known

    def _missing(self, absent: set[str], now: float) -> None:
        self._absent = {uuid: self._absent.get(uuid, now) for uuid in absent}

    def _asked(self, known: Known, hold: dict[str, Any], batches: Iterable[list[Step]], done: dict[str, int]) -> dict[str, str]:
        """Ask for everything, one batch after the other; give what was refused: UUID and why."""
        refused: dict[str, str] = {}
        for batch in batches:
            if len(batch) > 1 and self._taken_in(known, hold, batch, done) is None:
                continue
            for step in batch:
                why = self._taken_in(known, hold, [step], done)
                if why is None:
                    continue
                refused[step.uuid] = f"{step.label}: {why}"
                for each in difference.parts(step):
                    self._taken_in(known, hold, [each], done)
        return refused

    def _taken_in(self, known: Known, hold: dict[str, Any], some: list[Step], done: dict[str, int]) -> str | None:
        """Ask for some things together; give why they are refused, None where they are done. Raises what stops all the others too."""
        try:
            self._ask(known, hold, some)
        except Problem as error:
            if error.retry or error.kind == "fenced":
                raise
            return PLACE.sub("", str(error))
        for step in some:
            done[step.action.partition(".")[2]] += not step.only_bars
            if step.action.endswith(".delete"):
                self._absent.pop(step.uuid, None)
        return None

    def _ask(self, known: Known, hold: dict[str, Any], some: list[Step]) -> None:
        (imported, *bodies), epoch = self._registry.batch([hold, *(step.part for step in some)])
        known.imported.update(imported)
        for step, body in zip(some, bodies, strict=True):
            difference.apply(known, step, body)
        if epoch != self._epoch:
            self._known = None


def _hold(wanted: Configuration, seen: Sequence[Seen], known: Known) -> dict[str, Any]:
    """Give the request that lets an import go on. Of the masters that were seen it names that whose import is there, else the last one."""
    last = next((each for each in seen if each.master == known.imported.get("master")), seen[-1] if seen else None)
    fence = write(Reading(wanted.uuid, wanted.master, wanted.node, wanted.serial, last))
    return {"action": "importer.hold", "target": wanted.cluster, "body": fence, "match": ANY}


def _holds(known: Known, wanted: Configuration) -> bool:
    """Tell whether the registry has this master's import already, and of no later configuration."""
    there = known.imported
    return (there.get("uuid"), there.get("master")) == (wanted.uuid, wanted.master) and there["serial"] <= wanted.serial


def _unbroken(known: Known, seen: Sequence[Seen]) -> bool:
    """Tell whether no other master was seen since the last import."""
    return all(each.serial <= known.imported.get("serial", 0) for each in seen)
