"""Write a scenario as a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator


def text(scenario: Scenario) -> str:
    """Write a scenario as a file that is read as the same."""
    return "".join(f"{line}\n" for line in _written(scenario))


def _written(scenario: Scenario) -> Iterator[str]:
    usual = Scenario()
    for name in ("nodes", "profile", "etcd", "settings", "settle"):
        value = getattr(scenario, name)
        if name == "nodes" or value != getattr(usual, name):
            yield f"{name} = {_value(value)}"
    if scenario.underlay:
        yield from ("", "[underlay]", *(f"{name} = {_value(value)}" for name, value in scenario.underlay.items()))
    for network, fields in scenario.networks.items():
        yield from ("", f"[networks.{_value(network)}]")
        yield from (f"{name} = {_value(value)}" for name, value in fields.items())
    for step in scenario.steps:
        yield from ("", "[[steps]]")
        yield f"step = {step.step}" if step.step else f"at = {_value(step.at)}"
        yield f"{'fault' if step.is_fault else 'task'} = {_value(step.what)}"
        yield from (f"{name} = {_value(value)}" for name, value in step.given.items())
        for name, value, usually in (("nodes", step.nodes, "*"), ("chance", step.chance, 1.0), ("count", step.number, 0)):
            if value != usually:
                yield f"{name} = {_value(value)}"
        if step.is_fault and FAULTS[step.what].ends is not None:
            yield f"for = {_value(step.lasts)}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(name)} = {_value(each)}" for name, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # texts, numbers and truths are written alike in both
