"""The planner is pure: the same input gives the same list, nothing is read or touched, and every part of the list is a plain value."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given

from netcommon.operations import from_json, kind
from netcommon.operations.base import UnknownKind, intent, to_json
from netcommon.operations.kinds import KINDS
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.environment import nic_from_environment
from tests.support.bootstrap import ROOT
from tests.support.nics import valid_environments
from tests.support.sim import MODES, nic


@given(valid_environments())
def test_the_same_nic_the_same_list(variables: dict[str, str]) -> None:
    """Also from equal values made anew, and after other NICs; every operation is written to JSON and read back the same."""
    one = plan(nic_from_environment(variables), Settings())
    plan(nic("routed, table"), Settings(rule_preference=7))
    two = plan(nic_from_environment(dict(reversed(variables.items()))), Settings())
    assert [intent(operation) for operation in one] == [intent(operation) for operation in two]
    for operation in one:
        assert from_json(json.loads(json.dumps(to_json(operation)))) == operation
        assert hash(intent(operation)) is not None
        assert operation.describe().isprintable() and "\n" not in operation.describe()


@given(valid_environments())
def test_a_plan_names_the_nics_device_alone(variables: dict[str, str]) -> None:
    """Whatever has a device has the NIC's."""
    one = nic_from_environment(variables)
    devices = {operation._asdict().get("device", one.interface) for operation in plan(one, Settings())}
    assert devices <= {one.interface}


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_touched(mode: str) -> None:
    """In a process of its own, in which every system call that opens, connects or writes is an error once planning begins."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from tests.support.sim import nic
one = nic({mode!r})
plan(one, Settings())  # imports are over
def audit(event, arguments):
    if event.split(".")[0] in ("open", "os", "socket", "subprocess", "fcntl", "shutil", "tempfile"):
        raise SystemExit(f"touched: {{event}} {{arguments}}")
sys.addaudithook(audit)
plan(one, Settings())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_reach_the_plan() -> None:
    """The preference of rules, and a bridge's uplinks."""
    rules = [operation for operation in plan(nic("routed, table"), Settings(rule_preference=7)) if operation.KIND == "rule"]
    assert [operation._asdict()["preference"] for operation in rules] == [7]
    uplinks = [
        operation for operation in plan(nic("bridged, access"), Settings(uplinks={"brv": ("eth1",)})) if operation.KIND == "uplink-vlan"
    ]
    assert [operation._asdict()["uplinks"] for operation in uplinks] == [("eth1",)]


@pytest.mark.parametrize(
    "stored", [{"kind": "no such"}, {"kind": "rule"}, {"kind": "rule", "extra": 1}, {"kind": "link", "device": "a"}, {}]
)
def test_what_is_no_operation_of_ours(stored: dict[str, object]) -> None:
    with pytest.raises(UnknownKind):
        from_json(stored)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_says_what_it_is(name: str) -> None:
    """Its fields name what is chosen and what was before; the kind it writes is the kind it is read by."""
    found = kind(name)
    fields = set(found._fields)  # type: ignore[attr-defined]
    assert name == found.KIND and found.BEFORE <= found.CHOSEN <= fields
