"""Sends fuzz frames in batches, judges what arrives, finds which frame did it, and makes that frame small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.support.fuzz import grammar, honest
from tests.support.fuzz.limits import CHECKSUM, REMEMBERED, Limits, remembered, without_id
from tests.support.fuzz.offload import NEEDS_CSUM, UDP_EACH, raw
from tests.support.fuzz.oracle import PLAIN, Header, judge
from tests.support.fuzz.place import Place, Sent
from tests.support.fuzz.reason import Reason
from tests.support.fuzz.receivers import Arrival
from tests.support.fuzz.shrink import shrunk

USO = Header(NEEDS_CSUM, UDP_EACH, 42, 16, 34, 6)
HONEST = 4  #: of them are frames that must arrive
LATE = 50  #: how often a switch is asked again for what it has not sent on yet
ALONE = 5  #: and how often it is sent again by itself, where the switch's program is asked about it
MISSING = 10  #: honest frames that are printed
HEADERS = 80  #: bytes by which a frame and its arrival are known
EXAMPLES = 2  #: frames that are looked for and made small, for each way to break a rule


class Violation(NamedTuple):
    """A frame that should not have arrived."""

    mode: str
    sent: Sent
    arrival: Arrival
    reason: Reason

    def line(self) -> str:
        """For the list of regressions."""
        header, frame = self.sent
        return f"{self.mode} {raw(header).hex()} {frame.hex()} {self.reason.rule}"

    def __str__(self) -> str:
        header, frame = self.sent
        came = self.arrival
        arrived = "the same" if (header, frame) == came[1:] else f"{came.frame.hex()} ({len(came.frame)} bytes)"
        offloads = "none" if header == PLAIN else ", ".join(f"{name} {value}" for name, value in header._asdict().items() if value)
        return (
            f"{self.reason.rule} ({self.reason.level}): {self.reason.text}\n  offloads {offloads}; {len(frame)} bytes\n"
            f"  arrived  at {came.receiver}: {arrived}\n  line     {self.line()}"
        )


Key = tuple[str, str, str]


class Result:
    """What a run has found."""

    def __init__(self) -> None:
        self.sent = self.refused = self.arrived = 0
        self.violations = Counter[Key]()
        self.limits = Counter[str]()
        self.receivers: dict[Key, set[str]] = {}
        self.examples: dict[Key, list[Violation]] = {}
        self.missing: list[tuple[str, Sent]] = []

    def __str__(self) -> str:
        lines = [f"{self.sent} frames sent, {self.refused} of them not taken by the kernel"]
        lines.append(f"{self.arrived} arrivals judged, {self.violations.total()} violations")
        lines += [f"  limit: {name}: {count}" for name, count in sorted(self.limits.items())]
        lines += [f"  missing: {name}: {header} {frame.hex()}" for name, (header, frame) in self.missing[:MISSING]]
        for key, count in self.violations.most_common():
            lines.append(f"== {count} x {' / '.join(filter(None, key))}, at {', '.join(sorted(self.receivers[key]))}")
            lines += map(str, self.examples.get(key, ()))
        return "\n".join(lines)


class Fuzz:
    """One guest's fuzz at a place, from a seed."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.rng, self.result = place, Random(seed), Result()
        self.shrinks = True
        self.limits = Limits(place)
        self.before: list[Sent] = []  #: the last batch: what a switch has no entry for may come late
        self.honest = honest.Grammar(place.mode, place.facts, place.takes(USO), place.passes_fragments)

    def run(self, frames: int, examples: int = EXAMPLES) -> Result:
        """Sends so many frames, and as many honest ones among them as it takes."""
        while self.result.sent < frames:
            self.batch(examples)
        return self.result

    def finds(self, frames: int) -> bool:
        """Tell whether anything is found among so many; sends no more than it takes, and makes nothing small."""
        self.shrinks = False
        while self.result.sent < frames and not self.result.violations and not self.result.missing:
            self.batch(1)
        return bool(self.result.violations or self.result.missing)

    def batch(self, examples: int) -> None:
        """One batch: honest frames lie among the others, so that what is lost by these is seen."""
        rng, place, result = self.rng, self.place, self.result
        made: list[Sent] = [grammar.frame(rng, place.world) for _ in range(place.batch - HONEST)]
        wanted = [each for each in (self.honest.frame(rng) for _ in range(HONEST)) if len(each.sent[1]) <= place.longest]
        made += [each.sent for each in wanted]
        rng.shuffle(made)
        result.sent += len(made)
        refused = place.refused
        arrivals = place.exchange(made)
        result.refused += place.refused - refused
        result.arrived += len(arrivals)
        arrivals += self.complete(wanted, arrivals)
        judged = set[tuple[bool, bool, bytes]]()
        for arrival in arrivals:
            facts = place.seen_by(arrival)
            mark = (facts.wire, arrival.header.kind == 3, arrival.frame)
            if mark in judged:
                continue
            judged.add(mark)
            for reason in judge(arrival.frame, facts, arrival.header):
                self.found([*made, *self.before], arrival, reason, examples)
        self.before = made

    def complete(self, wanted: Sequence[honest.Honest], arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Every part of every honest frame must be with every one who should get it. Returns what has come late.

        A frame that a switch has no entry for is overtaken by those that it has one for.
        """
        late = self.alone(wanted, arrivals)
        found = list(self.missing(wanted, [*arrivals, *late]))
        for sent in frames(found):
            if (waited := remembered(self.place, sent)) is not None:
                self.result.limits[REMEMBERED] += 1
                late += waited
        if found:
            late += self.alone(wanted, [*arrivals, *late])
        self.result.missing += self.missing(wanted, [*arrivals, *late])
        return late

    def alone(self, wanted: Sequence[honest.Honest], arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Sends what is missing by itself, some times. Returns what has come late."""
        late: list[Arrival] = []
        for _ in range(ALONE if self.place.upcalls else LATE if self.place.mode == "openvswitch" else 1):
            found = list(self.missing(wanted, [*arrivals, *late]))
            if not found:
                return late
            # the queue of what the switch is asked about may have been full: a datagram that is cut up fills half of it
            for sent in frames(found) if self.place.upcalls else ():
                late += self.place.exchange([sent])
            late += self.place.exchange([])
        return late

    def missing(self, wanted: Sequence[honest.Honest], arrivals: Sequence[Arrival]) -> Iterator[tuple[str, Sent]]:
        """Honest frames that have not come, and where."""
        for receiver in self.place.receivers:
            if receiver.name.startswith("node"):
                continue
            whole = b"".join(arrival.frame for arrival in arrivals if arrival.receiver == receiver.name)
            for each in wanted:
                if each.reaches(receiver.name) and not all(mark in whole for mark in each.marks):
                    yield f"{each.name}, at {receiver.name}", each.sent

    def found(self, made: Sequence[Sent], arrival: Arrival, reason: Reason, examples: int) -> None:
        """A reason why an arrival should not be. Known limits are counted by their names, with the proof that they are nothing else."""
        result = self.result
        if any(self.limits.by_checksum(sent, arrival, reason) for sent in made):
            result.limits[f"{CHECKSUM} ({reason.rule})"] += 1
            return
        key = reason.kind
        if len(result.examples.get(key, ())) < examples:
            example = self.example(made, arrival, reason)
            if isinstance(example, str):
                result.limits[f"{example} ({reason.rule})"] += 1
                return
            result.examples.setdefault(key, []).append(example)
        result.violations[key] += 1
        result.receivers.setdefault(key, set()).add(arrival.receiver)

    def example(self, made: Sequence[Sent], arrival: Arrival, reason: Reason) -> Violation | str:
        """The frame that did it, made small; or the limit by which it did.

        A limit holds for the very arrival alone: another frame of the batch may have broken the same rule in another way.
        """
        key, receiver = reason.kind, arrival.receiver
        others: list[Sent] = []
        for sent in sorted(made, key=lambda each: _common(each[1], arrival.frame), reverse=True):
            came = self.again(sent, key, receiver)
            same = [each for each in came if without_id(each[0].frame) == without_id(arrival.frame)]
            if same:
                limit = self.limits.name(sent, *same[0])
                return limit if limit is not None else self.small(sent, key, receiver, same[0])
            others += [sent] if came else []
        for sent in others:
            if (bad := self.beyond(sent, key, receiver)) is not None:
                return self.small(sent, key, receiver, bad)
        # It takes several frames, or came by chance.
        return Violation(self.place.mode, (PLAIN, b""), arrival, reason._replace(text=f"{reason.text} (not by one frame alone)"))

    def small(self, sent: Sent, key: Key, receiver: str, came: tuple[Arrival, Reason]) -> Violation:
        """The frame as small as it can be while it is no limit."""
        if not self.shrinks:
            return Violation(self.place.mode, sent, *came)
        small = shrunk(sent, lambda each: self.beyond(each, key, receiver) is not None)
        return Violation(self.place.mode, small, *(self.beyond(small, key, receiver) or came))

    def beyond(self, sent: Sent, key: Key, receiver: str) -> tuple[Arrival, Reason] | None:
        """Sends one frame once more; what of it broke the rule, and is no known limit."""
        return next((each for each in self.again(sent, key, receiver) if self.limits.name(sent, *each) is None), None)

    def again(self, sent: Sent, key: Key, receiver: str) -> list[tuple[Arrival, Reason]]:
        """Sends one frame once more; all of it that breaks the rule there. What has come by the switch's program may come by it alone."""
        found = self.once(sent, key, receiver)
        if not found and self.place.entries is not None:
            self.place.entries.forget()
            found = self.once(sent, key, receiver)
        return found

    def once(self, sent: Sent, key: Key, receiver: str) -> list[tuple[Arrival, Reason]]:
        """List what of a frame breaks the rule there when it is sent."""
        came = [arrival for arrival in self.place.exchange([sent]) if arrival.receiver == receiver]
        reasons = ((each, reason) for each in came for reason in judge(each.frame, self.place.seen_by(each), each.header))
        return [(each, reason) for each, reason in reasons if reason.kind == key]


def frames(found: Sequence[tuple[str, Sent]]) -> list[Sent]:
    """Each frame that is missing somewhere, once."""
    return list({frame: (header, frame) for _, (header, frame) in found}.values())


def _common(one: bytes, other: bytes) -> int:
    """Count the bytes that two frames have in common in their headers; one may begin some eight bytes further on (limits.SHARED)."""
    return max(sum(a == b for a, b in zip(one[at:HEADERS], other, strict=False)) for at in (0, 8, 16))
