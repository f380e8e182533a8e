"""Restore registries with an underlay in the mock cloud: histories that a search has found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mockcloud.explore.drawing import NETWORK, ROUTED, SETTINGS, SETTLE
from mockcloud.scenarios.file import Scenario, Step
from mockcloud.scenarios.running import play

UNDERLAY = {"prefix": "fd12:3456:789a::/60", "zone": "hosts.example.com", "minimum_age": 4.0, "ttl": 3, "servers": 2, "others": 0}
BACKUP = Step("backup")


def created(name: str, node: str) -> Step:
    return Step("create", given={"name": name, "node": node, "nics": [ROUTED], "start": True})


def forgotten(node: str, at: float, lasts: float) -> Step:
    return Step("forget", at=at, nodes=node, lasts=lasts)


ONCE = (created("web2", "mock1"), BACKUP, forgotten("mock1", 9.91, 6.46), Step("restore", at=10.36))
TWICE = (created("web1", "mock2"), BACKUP, Step("restore", at=10.45), forgotten("mock2", 13.08, 14.58), Step("restore", at=19.26))


@pytest.mark.parametrize(
    ("seed", "steps", "kinds", "underlay"),
    [
        (1449, ONCE, ["console", "exporter"], {}),
        (1470, TWICE, ["console"], {"minimum_age": 12.0, "ttl": 8, "servers": 1, "others": 13}),
    ],
    ids=["once", "twice"],
)
def test_no_name_leads_to_what_a_node_gave_up_that_was_forgotten_after_the_copy(
    tmp_path: Path, seed: int, steps: tuple[Step, ...], kinds: list[str], underlay: dict[str, Any]
) -> None:
    """Hold names for nodes that have not spoken yet; this one has, and says that its address is not there."""
    settings = f"{SETTINGS}endpoints = {json.dumps(kinds)}\n"
    scenario = Scenario(3, "switched", settings, SETTLE, {"blue": NETWORK}, steps, 0, {**UNDERLAY, **underlay})
    result = play(scenario, str(tmp_path / "cloud"), seed)
    assert result.violations == (), result.outcomes
