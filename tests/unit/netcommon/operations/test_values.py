"""Operations one by one on a simulated node: resolve, apply, differs and revert agree with each other, and each is idempotent."""

from __future__ import annotations

import pytest

from netcommon.host.api.requests import Request
from netcommon.operations import from_json
from netcommon.operations.base import Operation, to_json
from netcommon.operations.link import orphan
from netcommon.plan.planner import plan
from tests.support.sim import MODES, Sim, nic


def resolved(sim: Sim, mode: str) -> list[Operation]:
    view, warnings = sim.host.view(), list[str]()
    return [made for planned in plan(nic(mode), sim.settings) for made in planned.resolve(view, warnings)]


def carry_out(sim: Sim, requests: list[Request]) -> None:
    for request, answer in zip(requests, sim.host.execute(requests, stop=False), strict=True):
        assert answer.ok or answer.errno in request.gone or type(request).__name__ == "AddRule", (request, answer)


#: What undoes things that no device takes along.
LASTING = {"DeleteFile", "DeleteFlows", "DeleteNeighbour", "DeleteOvsPort", "DeleteRoute", "DeleteRule", "DeleteVlan", "SetSysctl"}
LASTING |= {"NftChange"}


@pytest.mark.parametrize("mode", MODES)
def test_resolve_changes_nothing_and_says_the_same_twice(sim: Sim, mode: str) -> None:
    assert resolved(sim, mode) == resolved(sim, mode)
    assert sim.picture() == sim.before and sim.requests() == []


@pytest.mark.parametrize("mode", MODES)
def test_apply_makes_it_hold_and_twice_is_once(sim: Sim, mode: str) -> None:
    operations = resolved(sim, mode)
    for operation in operations:
        carry_out(sim, list(operation.apply()))
        assert operation.differs(sim.host.view()) == ""
        once = sim.picture()
        carry_out(sim, list(operation.apply()))
        assert sim.picture() == once
    assert [operation.differs(sim.host.view()) for operation in operations] == [""] * len(operations)


@pytest.mark.parametrize("mode", MODES)
def test_revert_undoes_it_and_twice_is_once(sim: Sim, mode: str) -> None:
    operations = [from_json(to_json(operation)) for operation in resolved(sim, mode)]
    for operation in operations:
        carry_out(sim, list(operation.apply()))
    for operation in reversed(operations):
        carry_out(sim, list(operation.revert(sim.host.view())))
        once = sim.picture()
        carry_out(sim, list(operation.revert(sim.host.view())))
        assert sim.picture() == once
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", MODES)
def test_reverting_what_was_never_applied_is_harmless(sim: Sim, mode: str) -> None:
    for operation in resolved(sim, mode):
        carry_out(sim, list(operation.revert(sim.host.view())))
        assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", MODES)
def test_reverting_after_the_device_has_gone(sim: Sim, mode: str) -> None:
    """Nothing is asked of a device that is not there, nor of another that bears its name now."""
    operations = resolved(sim, mode)
    for operation in operations:
        carry_out(sim, list(operation.apply()))
    sim.host.remove_link("tap0")
    sim.tap("tap0")
    new = sim.host.kernel.named("tap0")
    for operation in reversed([*operations, *map(orphan, operations)]):
        requests = list(operation.revert(sim.host.view()))
        assert {type(request).__name__ for request in requests} <= LASTING and "/tap0/" not in str(requests)
        carry_out(sim, requests)
    assert sim.host.kernel.named("tap0") == new
    sim.host.remove_link("tap0")
    empty = Sim(sim.paths.state + "-empty")
    empty.host.remove_link("tap0")
    assert sim.picture() == empty.picture()


@pytest.mark.parametrize("mode", MODES)
def test_places_are_known_and_each_is_taken_once(sim: Sim, mode: str) -> None:
    places = [operation.place() for operation in resolved(sim, mode) if operation.place()]
    assert len(places) == len(set(places))
    assert {operation.KIND for operation in resolved(sim, mode) if not operation.place()} <= {"sysctl"}
