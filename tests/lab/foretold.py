"""Read what a rehearsal foretells of a NIC, and what then becomes of it on its node; and say how the two differ."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from netcommon.lifecycle.execute import decode
from netcommon.operations.base import Operation, intent
from runtime.record import from_json

TAP = "TAP"  #: stands for the name of a NIC's own device, which is another one on a simulated host
NOTES = ("file /run/netcommon/", "file /var/lib/netcommon/wanted/")
GOES = ("undone", "released", "replaced")


class Became(NamedTuple):
    """Say what becomes of one NIC. ``gone``, ``made``: operations in words; ``refused``: why it stays as it is, "" where it does not."""

    gone: Mapping[str, int] = {}
    made: Mapping[str, int] = {}
    refused: str = ""

    @property
    def visible(self) -> bool:
        """Tell whether a host is another by it: a file may be written anew with what it says already, since a template sees tags."""
        return self.gone != self.made

    @property
    def words(self) -> str:
        """Give it in few words: the kinds of operations."""
        parts = ((what, " ".join(_times(kinds))) for what, kinds in (("-", self.gone), ("+", self.made)) if kinds)
        return f"refused: {self.refused}" if self.refused else ", ".join(f"{what} {text}" for what, text in parts) or "stays"


def _times(operations: Mapping[str, int]) -> Iterable[str]:
    kinds = Counter[str]()
    for text, number in operations.items():
        kinds[text.partition(": ")[0]] += number
    return (kind if number == 1 else f"{number} {kind}" for kind, number in sorted(kinds.items()))


def without(text: str, device: str, others: Mapping[str, str] | None = None) -> str:
    """Give a text with TAP for a device, and for each word of ``others`` what stands there."""
    for word, instead in {device: TAP, **(others or {})}.items():
        text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", instead, text)
    return text


def foretold(result: Mapping[str, Any], others: Mapping[str, str]) -> Became:
    """Read it from a NIC's part of what ``mockcloud rehearse --json`` prints. ``others``: the copy's names -> the nodes' own."""

    def told(words: Sequence[str]) -> Counter[str]:
        found = (each for word in words for each in result[word])
        return Counter(f"{each['kind']}: {without(each['text'], result['device'], others)}" for each in found)

    refused = result["refused"] or {"text": ""}
    return Became(told(GOES), told(("done",)), without(refused["text"], result["device"], others))


def happened(before: Mapping[str, Any], after: Mapping[str, Any], error: str) -> Became:
    """Compare two records of a NIC, as files of its node have them; ``error``: of its change."""
    (had, was), (has, now) = (_operations(each) for each in (before, after))
    gone = Counter(_said(each, was) for each in had if intent(_placed(each, was)) not in {intent(_placed(one, now)) for one in has})
    made = Counter(_said(each, now) for each in has if intent(_placed(each, now)) not in {intent(_placed(one, was)) for one in had})
    return Became(gone, made, without(error, now))


def _operations(record: Mapping[str, Any]) -> tuple[list[Operation], str]:
    read = from_json(json.dumps(record).encode())
    return decode(read)[0], read.device


def _placed(operation: Operation, device: str) -> Operation:
    """Give an operation as it would be on TAP: a guest that starts anew has a device of another name."""
    made: Operation = cast("Any", type(operation))(**{name: _named(value, device) for name, value in operation._asdict().items()})
    return made


def _named(value: Any, device: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_named(each, device) for each in value)
    return without(value, device) if isinstance(value, str) else value


def _said(operation: Operation, device: str) -> str:
    return f"{operation.KIND}: {without(operation.describe(), device)}"


def differences(told: Became, came: Became) -> list[str]:
    """Say how what came differs from what was told."""
    found = [f"refused as {came.refused!r}, and foretold was {told.refused!r}"] if told.refused != came.refused else []
    for what, one, other in (("goes", told.gone, came.gone), ("comes", told.made, came.made)):
        found += [f"foretold, and not what {what}: {text}" for text in (Counter(one) - Counter(other)).elements()]
        found += [f"not foretold, and {what}: {text}" for text in (Counter(other) - Counter(one)).elements()]
    return found


def of_nic(lines: Iterable[str], words: Iterable[str]) -> set[str]:
    """Give the lines of a node's whole state (tests.lab.whole) that name a NIC by one of ``words``.

    Not among them is what netcommon itself notes: its record, and what a registry wants.
    """
    wanted = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words if word))
    return {line for line in lines if wanted.search(line) and not line.startswith(NOTES)}
