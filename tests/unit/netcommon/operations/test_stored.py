"""Operations of damaged and hostile records: told apart before any of them is used, and never fatal to another NIC."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.lifecycle import check
from netcommon.operations import from_json, kind
from netcommon.operations.base import TYPES, UnknownKind, declared, fields_of, to_json
from netcommon.operations.kinds import KINDS
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, NetcommonError
from tests.support.sim import BASE, MODES, UUIDS, Sim, nic

PLANNED = [to_json(operation) for mode in MODES for operation in plan(nic(mode), Settings())]
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


def test_every_declared_type_can_be_checked() -> None:
    types = {text for name in KINDS for text in declared(kind(name)).values()}
    assert types == set(TYPES)


@given(st.sampled_from(PLANNED), st.data())
def test_whatever_stands_in_a_field(stored: dict[str, Any], data: st.DataObject) -> None:
    """An operation with a field of the declared type, or an error of ours: nothing else."""
    name = data.draw(st.sampled_from(sorted(stored)))
    changed = {**stored, name: data.draw(JUNK)}
    try:
        made = from_json(changed)
    except UnknownKind:
        return
    assert to_json(made) == {"kind": changed["kind"], **fields_of(changed)}
    for text, value in zip(declared(type(made)).values(), made._asdict().values(), strict=True):
        assert TYPES[text](value)
    assert made.describe() and made.undo()


@pytest.mark.parametrize("mode", ["bridged", "routed", "openvswitch"])
def test_the_largest_rates_survive_being_written(mode: str) -> None:
    """What an up has put on record, a down can read."""
    planned = plan(nic(mode, TAGS="netcommon:0:rate_in:1000gbit netcommon:0:rate_out:1000gbit"), Settings())
    assert sum(str(10**9) in operation.describe() for operation in planned) >= 1
    assert [from_json(json.loads(json.dumps(to_json(operation)))) for operation in planned] == list(planned)


def damage(sim: Sim, **changes: object) -> None:
    """Changes a field of every operation of the first NIC's record that has one."""
    path = Path(sim.paths.state, "nics", UUIDS[0] + ".json")
    stored = json.loads(path.read_bytes())
    for operation in stored["operations"]:
        operation.update({name: value for name, value in changes.items() if name in operation})
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize("changes", [{"ifindex": "x"}, {"setting": "nonsense"}, {"number": -3}, {"external_ids": [1]}, {"family": 7}])
@pytest.mark.parametrize("mode", ["routed, table", "openvswitch"])
def test_a_damaged_record_is_no_other_nics_concern(sim: Sim, mode: str, changes: dict[str, object]) -> None:
    sim.up(nic(mode))
    sim.tap("tap1")
    second = nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02", IP="10.0.0.6")
    sim.up(second)
    damage(sim, **changes)
    check.check(sim.node, sim.host.view(), sim.record())
    sim.host.remove_link("tap0")
    sim.host.remove_link("tap1")
    sim.gc()
    assert all(record.uuid == UUIDS[0] for record in sim.records())
    assert not [rule for rule in sim.host.kernel.rules if rule.iif == "tap1"]
    with pytest.raises(NetcommonError) if sim.records() else open(os.devnull):
        sim.down(nic(mode))


def test_the_record_keeps_what_was_not_understood(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    damage(sim, setting="nonsense")
    with pytest.raises(HostRefused, match=r"keeps what cannot be undone: .*field 'setting'"):
        sim.down(nic("routed, table"))
    kept = sim.record().operations
    assert [one.get("setting") for one in kept] == ["nonsense"] * len(kept) and kept


@pytest.mark.parametrize("uuid", UUIDS[:2])
def test_the_next_guest_on_the_tap_starts(sim: Sim, uuid: str) -> None:
    """Also the same one again. What was not understood is kept on a record of its own."""
    sim.up(nic("routed, table"))
    damage(sim, setting="nonsense")
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    assert sim.up(nic("bridged", INTERFACE_UUID=uuid)).changed
    assert check.check(sim.node, sim.host.view(), sim.record(uuid)).good
    assert any(one.get("setting") == "nonsense" for record in sim.records() for one in record.operations)
    assert not [rule for rule in sim.host.kernel.rules if rule.iif == "tap0"]


def test_a_hanging_script_of_the_last_guest_leaves_the_next_its_time(sim: Sim) -> None:
    """Site scripts of down that hang stop nothing: the next guest on the tap starts all the same."""
    if os.geteuid() != 0:
        pytest.fail("scripts must belong to root: run the tests as root")
    for folder, text in (("ifup.d", "#!/bin/sh\nexit 0\n"), ("ifdown.d", "#!/bin/sh\nexec sleep 100\n")):
        path = Path(sim.paths.etc, folder, "site")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    sim.up(nic("bridged"))
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    second = nic("bridged", INTERFACE_UUID=UUIDS[1], INSTANCE="web2", MAC="aa:00:00:00:00:02")
    assert sim.up(second, seconds=6).changed
    assert [record.uuid for record in sim.records()] == [UUIDS[1]]
    assert BASE["INTERFACE"] == sim.record(UUIDS[1]).device
