"""Modes and features declare what fits together."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.options.model import COMMUNICATION_OPTIONS, INSTANCE_COMMUNICATION, mode_of
from netcommon.options.schema import OPTIONS
from netcommon.plan.planner import WANTED
from runtime.modules import load
from runtime.nic import MODES
from tests.support.bootstrap import ROOT
from tests.support.sim import nic


def modules(package: str) -> list[str]:
    """The modules of a package of netcommon that plan."""
    names = [path.stem for path in sorted(Path(ROOT, "netcommon", package).glob("*.py")) if path.stem != "__init__"]
    return [name for name in names if hasattr(load(f"netcommon.{package}.{name}"), "plan")]


def test_the_modes() -> None:
    assert set(modules("modes")) == {*MODES, INSTANCE_COMMUNICATION}


@pytest.mark.parametrize("mode", modules("modes"))
def test_a_mode_has_its_features_in_one_order(mode: str) -> None:
    """That of the table that says when each is asked for."""
    features = load("netcommon.modes." + mode).FEATURES
    assert list(features) == [name for name in WANTED if name in features] and isinstance(load("netcommon.modes." + mode).MARKED, bool)


def test_each_feature_has_its_condition_and_a_mode() -> None:
    assert set(modules("features")) == set(WANTED)
    assert {name for mode in modules("modes") for name in load("netcommon.modes." + mode).FEATURES} == set(WANTED)


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"MODE": "routed", "INTERFACE": "gnt.com.0"}, INSTANCE_COMMUNICATION),
        ({"MODE": "routed", "INTERFACE": "tap0"}, "routed"),
        ({"MODE": "bridged", "INTERFACE": "gnt.com.0", "LINK": "br0"}, "bridged"),
    ],
)
def test_the_mode_of_a_nic(changes: dict[str, str], mode: str) -> None:
    assert mode_of(nic("routed, table", **changes)) == mode


def test_options_that_mean_something_for_instance_communication() -> None:
    one = nic("routed, table", INTERFACE="gnt.com.0")
    assert tuple(option.name for option in OPTIONS if option.means_something(one)) == COMMUNICATION_OPTIONS
