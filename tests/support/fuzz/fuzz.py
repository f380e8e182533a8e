"""Sends fuzz frames in batches, judges what arrives, finds which frame did it, and makes that frame small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from tests.support.fuzz import grammar, honest
from tests.support.fuzz.offload import NEEDS_CSUM, raw
from tests.support.fuzz.oracle import IPV4, IPV6, PLAIN, UDP, judge
from tests.support.fuzz.oracle6 import walk
from tests.support.fuzz.place import Place, Sent
from tests.support.fuzz.reason import Reason
from tests.support.fuzz.receivers import Arrival
from tests.support.fuzz.shrink import shrunk

HONEST = 4  #: of them are frames that must arrive
CUT = ("malformed", "dhcp-fragment", "dhcp-short", "dhcp6-message", "headers-cut")  #: what is wrong with a piece of a whole that is right
MESSAGES = ("dhcp6-message", "chaddr", "dhcp-short", "dhcp-operation", "dhcp-server")  #: what a message to a server says
LATE = 50  #: how often a switch is asked again for what it has not sent on yet
MISSING = 10  #: honest frames that are printed
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
        self.sent = self.arrived = 0
        self.violations = Counter[Key]()
        self.limits = Counter[str]()
        self.receivers: dict[Key, set[str]] = {}
        self.examples: dict[Key, list[Violation]] = {}
        self.missing: list[tuple[str, Sent]] = []

    def __str__(self) -> str:
        lines = [f"{self.sent} frames sent, {self.arrived} arrivals judged, {sum(self.violations.values())} violations"]
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
        self.honest = honest.Grammar(place.mode, place.facts)

    def run(self, frames: int, examples: int = EXAMPLES) -> Result:
        """Sends so many frames, and as many honest ones among them as it takes."""
        while self.result.sent < frames:
            self.batch(examples)
        return self.result

    def batch(self, examples: int) -> None:
        """One batch: honest frames lie among the others, so that what is lost by these is seen."""
        rng, place, result = self.rng, self.place, self.result
        made: list[Sent] = [grammar.frame(rng, place.world) for _ in range(place.batch - HONEST)]
        wanted = [each for each in (self.honest.frame(rng) for _ in range(HONEST)) if len(each.sent[1]) <= place.longest]
        made += [each.sent for each in wanted]
        rng.shuffle(made)
        result.sent += len(made)
        arrivals = place.exchange(made)
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
                self.found(made, arrival, reason, examples)

    def complete(self, wanted: Sequence[honest.Honest], arrivals: Sequence[Arrival]) -> list[Arrival]:
        """Every part of every honest frame must be with every one who should get it. Returns what has come late.

        A frame that a switch has no entry for is overtaken by those that it has one for.
        """
        late: list[Arrival] = []
        for _ in range(LATE if self.place.mode == "openvswitch" else 1):
            found = list(self.missing(wanted, [*arrivals, *late]))
            if not found:
                return late
            late += self.place.exchange([])
        self.result.missing += found
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
        if any(self.by_checksum(sent, arrival, reason) for sent in made):
            result.limits["checksum offload: the two bytes that it wrote made the difference"] += 1
            return
        key = reason.kind
        result.receivers.setdefault(key, set()).add(arrival.receiver)
        if len(result.examples.get(key, ())) >= examples:
            result.violations[key] += 1
            return
        for sent in made:
            again = self.again(sent, key, arrival.receiver)
            if again is not None:
                if (limit := self.limit(sent, *again)) is not None:
                    result.limits[limit] += 1
                    return
                result.violations[key] += 1
                small = shrunk(sent, lambda each: self.again(each, key, arrival.receiver, limits=False) is not None)
                came = self.again(small, key, arrival.receiver) or again
                result.examples.setdefault(key, []).append(Violation(self.place.mode, small, *came))
                return
        # It takes several frames, or came by chance: the first one of the batch stands for all.
        result.violations[key] += 1
        result.examples.setdefault(key, []).append(
            Violation(self.place.mode, (PLAIN, b""), arrival, reason._replace(text=f"{reason.text} (not by one frame alone)"))
        )

    def again(self, sent: Sent, key: Key, receiver: str = "", limits: bool = True) -> tuple[Arrival, Reason] | None:
        """Sends one frame once more; what of it broke the rule. Without ``limits``: and is no known limit."""
        for arrival in self.place.exchange([sent]):
            if receiver and arrival.receiver != receiver:
                continue
            for reason in judge(arrival.frame, self.place.seen_by(arrival), arrival.header):
                if reason.kind == key and (limits or self.limit(sent, arrival, reason) is None):
                    return arrival, reason
        return None

    def by_checksum(self, sent: Sent, arrival: Arrival, reason: Reason) -> bool:
        """Whether the arrival is what was sent but for the checksum, and without that would have broken nothing."""
        header, frame = sent
        place = header.csum_start + header.csum_offset
        came = arrival.frame
        if not header.flags & NEEDS_CSUM or place + 2 > len(came):
            return False
        if came[:place] != frame[:place] or came[place + 2 :] != frame[place + 2 :]:
            return False
        return reason.rule not in {each.rule for each in judge(frame, self.place.seen_by(arrival), arrival.header)}

    def without_checksum(self, sent: Sent, arrival: Arrival, reason: Reason) -> bool:
        """Whether the frame arrives without offload too, is the same but for two bytes there, and breaks nothing."""
        header, frame = sent
        place, came = header.csum_start + header.csum_offset, arrival.frame
        for simpler in (header._replace(flags=header.flags & ~NEEDS_CSUM), PLAIN):
            for other in self.place.exchange([(simpler, frame)]):
                same = other.receiver == arrival.receiver
                same = same and other.frame[:place] == came[:place] and other.frame[place + 2 :] == came[place + 2 :]
                if same and reason.rule not in {each.rule for each in judge(other.frame, self.place.seen_by(other), other.header)}:
                    return True
        return False

    def limit(self, sent: Sent, arrival: Arrival, reason: Reason) -> str | None:
        """The documented limit by which this frame has come through, None: there is none."""
        header, _ = sent
        if header.flags & NEEDS_CSUM and self.without_checksum(sent, arrival, reason):
            return "checksum offload: the two bytes that it wrote made the difference"
        facts = self.place.seen_by(arrival)
        if header.kind == 3 and reason.rule in CUT and _whole(sent[1]) and reason.rule not in {each.rule for each in judge(sent[1], facts)}:
            return "UDP fragmentation: a message that was compared as a whole arrives in pieces"
        if header.kind == 5 and reason.rule in MESSAGES and _to_server(arrival.frame):
            return "UDP segmentation: of a DHCP client's messages the first one alone is compared"
        return None


def _whole(frame: bytes) -> bool:
    """Whether it is no fragment."""
    return frame[12:14] == IPV6 or (frame[12:14] == IPV4 and not int.from_bytes(frame[20:22], "big") & 0x3FFF)


def _to_server(frame: bytes) -> bool:
    """Whether it is UDP to a DHCP or DHCPv6 server, and not from one."""
    packet = frame[14:]
    if frame[12:14] == IPV6:
        way = walk(packet)
        return way is not None and way.protocol == UDP and packet[way.at + 2 : way.at + 4] == b"\x02\x23" != packet[way.at : way.at + 2]
    at = (packet[0] & 15) * 4
    return packet[9] == UDP and packet[at + 2 : at + 4] == b"\0\x43" and packet[at : at + 2] != b"\0\x43"
