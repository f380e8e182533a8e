"""Strike the nodes or the registry of a cloud that is there with one fault, as a command or a program asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mockcloud import sysinfo
from mockcloud.nodes import whole
from mockcloud.parameters import TEXTS, fits
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import LATEST, SETTLE, Step, Wrong, number, of_parameter
from mockcloud.scenarios.running import strike
from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.scenarios.running import Result

LASTS = 30.0  #: seconds
SEEDS = 1 << 63


def struck(cloud: MockCloud, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Let a fault begin and end, and look what becomes of it: the document of the schema mockcloud-run, without its name.

    ``given``: parameters of the fault; ``nodes`` that it strikes, by UUID or hostname, all of them by default; ``for`` and ``settle``, in
    seconds, and ``seed``, as the command has them. Raises NicInvalid; HostRefused, TryAgain.
    """
    if name not in FAULTS:
        raise NicInvalid("task", name, f"one of {', '.join(FAULTS)}")
    fault = FAULTS[name]
    takes = {each: of_parameter(parameter) for each, parameter in fault.takes.items()}
    takes |= {"settle": lambda value: number(value, 0.0, LATEST), "seed": _seed}
    takes |= {"for": lambda value: number(value, 0.0, LATEST)} if fault.ends is not None else {}
    takes |= {"nodes": _texts} if fault.of_node else {}
    found: dict[str, Any] = {"for": LASTS, "settle": SETTLE, "seed": 1, "nodes": []}
    for each, value in given.items():
        if each not in takes:
            raise NicInvalid(each, value, f"no such parameter; there are {', '.join(takes)}")
        try:
            found[each] = takes[each](value)
        except Wrong as wrong:
            raise NicInvalid(each, value, str(wrong)) from None
    wanted = [each.hostname for each in whole(cloud, found["nodes"])] if found["nodes"] else ["*"]
    left = [{"at": 0.0, "text": f"left alone: {text}"} for text in sysinfo.look(cloud.root).refused.values()]
    more = {each: found[each] for each in fault.takes if each in found}
    steps = [Step(name, given=more, nodes=each, lasts=found["for"]) for each in wanted]
    said = document(strike(cloud, steps, found["seed"], found["settle"]))
    return {**said, "outcomes": [*left, *said["outcomes"]]}


def document(result: Result) -> dict[str, Any]:
    """Give what a run came to as the document of the schema mockcloud-run, without its name."""
    said = {**result._asdict(), "outcomes": [each._asdict() for each in result.outcomes]}
    return {**said, "violations": [each._asdict() for each in result.violations]}


def _seed(value: Any) -> int:
    if type(value) is not int or not -SEEDS <= value < SEEDS:
        raise Wrong("a whole number")
    return value


def _texts(value: Any) -> list[str]:
    if not fits(TEXTS, value):
        raise Wrong(TEXTS)
    found: list[str] = value
    return found
