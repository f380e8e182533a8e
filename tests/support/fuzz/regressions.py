"""The frames that have once come through a guard: replayed before anything new is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.fuzz.limits import Limits
from tests.support.fuzz.offload import parsed
from tests.support.fuzz.oracle import judge
from tests.support.fuzz.place import Place, Sent

LIST = Path(__file__).with_suffix(".txt")


class Line(NamedTuple):
    """A line of the list."""

    mode: str
    sent: Sent
    rule: str


def lines() -> Iterator[Line]:
    """The list. A frame of bridged NICs is one of Open vSwitch's too."""
    for text in LIST.read_text().splitlines():
        if text and not text.startswith("#"):
            mode, header, frame, rule = text.split()
            yield Line(mode, (parsed(bytes.fromhex(header)), bytes.fromhex(frame)), rule)


def replayed(place: Place) -> list[str]:
    """Those of the list that come through at this place, not by a documented limit."""
    found = []
    limits = Limits(place)
    for line in lines():
        if line.mode != place.mode and {line.mode, place.mode} != {"bridged", "openvswitch"}:
            continue
        for arrival in place.exchange([line.sent]):
            for reason in judge(arrival.frame, place.seen_by(arrival), arrival.header):
                if limits.name(line.sent, arrival, reason) is not None:
                    continue
                found.append(f"{line.rule}: {reason.text}, at {arrival.receiver}: {line.sent[1].hex()}")
    return found
