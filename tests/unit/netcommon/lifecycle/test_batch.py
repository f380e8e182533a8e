"""Many NICs at once: the host is as after one by one, each failure is one NIC's, and the locks and records are those of any up and down."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.facts import AF_INET
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteFlows, NftChange, Request
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle import batch, execute
from netcommon.lifecycle.bring_up import BringUp
from netcommon.lifecycle.context import Outcome
from runtime.environment import DownHint
from runtime.errors import HostRefused, NetcommonError
from runtime.nic import Nic
from runtime.record import CLOSING, UP, Record
from runtime.store import Store
from tests.support.many import COUNT, alike, forbidden, machine, nics, pictures, up_all
from tests.support.sim import MODES, TELLING, Sim

pytestmark = pytest.mark.sampled(2)


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return machine(tmp_path)


def down_all(sim: Sim, wanted: Sequence[Nic], **more: Any) -> list[object]:
    hints = [DownHint(nic.uuid, nic.interface) for nic in wanted]
    found = list(batch.down_all(sim.node, hints, lambda _hint: sim.call(more.get("context", "hot-remove"))))
    assert [hint for hint, _result in found] == hints
    return [result for _hint, result in found]


def states(sim: Sim) -> list[tuple[str, str]]:
    return sorted((record.device, record.state) for record in sim.records())


def refusing(sim: Sim, device: str, number: int, refused: list[Request]) -> Callable[[Request], Answer | None]:
    """The ``number``-th request about the device is refused, and again when it is tried by itself."""
    seen: list[Request] = []

    def fail(request: Request) -> Answer | None:
        if isinstance(request, (*TELLING, DeleteFlows)) or sim.target(request) != device:
            return None
        seen.append(request)
        if len(seen) != number + 1 and request not in refused:
            return None
        refused.append(request)
        return Answer(errno.EIO, "refused by the test")

    return fail


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "ext"])
def test_as_one_by_one(mode: str, tmp_path: Path) -> None:
    together, alone = machine(tmp_path / "together"), machine(tmp_path / "alone")
    said = up_all(together, nics(mode))
    assert said == [alone.up(nic) for nic in nics(mode)]
    assert alike(together.picture()) == alike(alone.picture()) != alike(alone.before)
    assert [record._replace(created=0, monotonic=0) for record in together.records()] == [
        record._replace(created=0, monotonic=0) for record in alone.records()
    ]
    assert together.files() == alone.files()
    said = down_all(together, nics(mode))
    assert said == [alone.down(nic) for nic in nics(mode)]
    assert together.picture() == alone.picture() == together.before
    assert together.files() == []


@pytest.mark.parametrize("mode", ["bridged", "routed, table", "bridged, hybrid", "bridged, told"])
def test_one_picture_of_the_host(mode: str, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are refused nothing are not looked at one by one."""
    sim.up(nics(mode)[0])  # what they share is there
    monkeypatch.setattr(batch, "up", forbidden)
    taken = pictures(sim, monkeypatch)
    rest = nics(mode)[1:]
    assert all(isinstance(result, Outcome) and result.changed for result in up_all(sim, rest))
    assert len(taken) == 1
    monkeypatch.undo()
    down_all(sim, nics(mode))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", ["bridged", "routed, all options", "bridged, hybrid", "openvswitch, guarded"])
@pytest.mark.parametrize("number", range(8))
def test_a_refusal_is_one_nics(mode: str, number: int, sim: Sim, tmp_path: Path) -> None:
    others = [nic for nic in nics(mode) if nic.interface != "tap3"]
    without = machine(tmp_path / "without")
    up_all(without, others)
    refused: list[Request] = []
    sim.host.fail = refusing(sim, "tap3", number, refused)
    said = up_all(sim, nics(mode))
    sim.host.fail = lambda _request: None
    if not refused:
        assert isinstance(said[3], Outcome)
        return
    if isinstance(said[3], NetcommonError):
        assert [isinstance(one, NetcommonError) for one in said] == [one.interface == "tap3" for one in nics(mode)]
        if all(not isinstance(request, NftChange) for request in refused):
            assert "refused by the test" in str(said[3])
    down_all(sim, nics(mode))
    sim.gc()
    assert sim.picture() == sim.before and sim.files() == []
    down_all(without, others)


def test_what_was_refused_is_undone_at_once(sim: Sim, tmp_path: Path) -> None:
    refused: list[Request] = []
    sim.host.fail = refusing(sim, "tap3", 1, refused)
    said = up_all(sim, nics("bridged"))
    sim.host.fail = lambda _request: None
    assert refused and isinstance(said[3], HostRefused)
    others = [nic for nic in nics("bridged") if nic.interface != "tap3"]
    without = machine(tmp_path / "without")
    up_all(without, others)
    assert states(sim) == states(without) == [(nic.interface, UP) for nic in others]
    assert alike(sim.picture()) == alike(without.picture())


def test_what_cannot_be_undone_stays_on_its_record(sim: Sim) -> None:
    wanted = nics("routed, table")
    up_all(sim, wanted)
    refused: list[Request] = []
    sim.host.fail = refusing(sim, "tap3", 0, refused)
    said = down_all(sim, wanted)
    sim.host.fail = lambda _request: None
    assert [isinstance(one, NetcommonError) for one in said] == [nic.interface == "tap3" for nic in wanted]
    (record,) = sim.records()
    assert record.device == "tap3" and record.operations
    assert isinstance(down_all(sim, wanted[3:4])[0], Outcome)
    assert sim.picture() == sim.before and sim.files() == []


def test_the_intent_is_on_disk_and_the_locks_are_held(sim: Sim) -> None:
    first, *wanted = nics("bridged")
    sim.up(first)  # what they share is there
    seen: list[tuple[int, bool]] = []

    def look(_request: Request) -> None:
        records = sim.node.store.all()[0]
        with sim.node.store.locks(0, lambda: 0, lambda _seconds: None) as asked:
            seen.append((len(records), all(asked.held(nic.uuid) for nic in wanted)))

    sim.host.fail = look
    up_all(sim, wanted)
    assert set(seen) == {(COUNT, True)}
    seen.clear()
    down_all(sim, wanted)
    assert (COUNT, True) in seen


def test_two_of_one_device_or_uuid(sim: Sim) -> None:
    """As one by one: the last one has it."""
    first, second, third = nics("bridged", 3)
    said = up_all(sim, [first, second._replace(interface="tap0"), third._replace(uuid=first.uuid)])
    assert all(isinstance(one, Outcome) for one in said)
    assert [record.device for record in sim.records() if record.state == UP] == ["tap2", "tap0"] or len(sim.records()) >= 2
    down_all(sim, [first, second, third])
    for record in sim.records():
        sim.down(record.nic)
    sim.gc()
    assert sim.picture() == sim.before


def test_again_changes_nothing(sim: Sim) -> None:
    wanted = nics("bridged")
    up_all(sim, wanted)
    sim.requests()
    assert all(isinstance(one, Outcome) and not one.changed for one in up_all(sim, wanted))
    assert sim.requests() == []
    down_all(sim, wanted)
    assert all(isinstance(one, Outcome) and not one.changed for one in down_all(sim, wanted))


def test_a_missing_device_is_its_own_failure(sim: Sim) -> None:
    wanted = nics("bridged")
    sim.host.remove_link("tap2")
    said = up_all(sim, wanted)
    assert [isinstance(one, HostRefused) for one in said] == [nic.interface == "tap2" for nic in wanted]
    assert len(sim.records()) == COUNT - 1


def test_who_is_held_only_closes(sim: Sim) -> None:
    wanted = nics("bridged")
    up_all(sim, wanted)
    sim.host.let_go("tap1")
    said = down_all(sim, wanted, context="shutdown")
    assert all(isinstance(one, Outcome) for one in said)
    assert states(sim) == [(nic.interface, CLOSING) for nic in wanted if nic.interface != "tap1"]


def test_an_interrupted_one_is_undone(sim: Sim) -> None:
    calls: list[Request] = []

    def interrupt(request: Request) -> None:
        calls.append(request)
        if len(calls) == COUNT + 2:
            raise KeyboardInterrupt

    sim.host.fail = interrupt
    with pytest.raises(KeyboardInterrupt):
        up_all(sim, nics("routed"))
    sim.host.fail = lambda _request: None
    assert sim.picture() == sim.before and sim.records() == []


def test_more_than_fit_together(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "TOGETHER", 2)
    assert all(isinstance(one, Outcome) and one.changed for one in up_all(sim, nics("bridged, hybrid")))
    assert len(sim.records()) == COUNT
    down_all(sim, nics("bridged, hybrid"))
    assert sim.picture() == sim.before


def test_what_is_said_again_is_said_by_one(sim: Sim) -> None:
    """A process for each of thousands would be a fork for each."""
    up_all(sim, nics("routed"))
    assert len(sim.scheduled) <= 2
    for _delays, action in sim.scheduled:
        assert action()
    down_all(sim, nics("routed"))
    assert not any(action() for _delays, action in sim.scheduled)


@pytest.mark.parametrize("uplinks", [True, False])
def test_where_it_is_said_is_looked_up_once_for_all(uplinks: bool, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node without a default route nobody is to be told: each of thousands of NICs would list all routes to find that out."""
    if not uplinks:
        sim.host.kernel.routes, sim.host.kernel.rules = [], []
    asked: list[object] = []
    route_list = MemoryView.route_list

    def listed(view: MemoryView, family: int, table: int | None = None) -> object:
        asked.append((family, table))
        return route_list(view, family, table)

    monkeypatch.setattr(MemoryView, "route_list", listed)
    assert all(isinstance(result, Outcome) and result.changed for result in up_all(sim, nics("routed, table")))
    times = Counter(asked)
    assert times.pop((AF_INET, 100)) == 2, "by the picture for all NICs, and by the look for where it is said"
    assert set(times.values()) <= {1}
    assert bool(sim.scheduled) == uplinks


def test_none(sim: Sim) -> None:
    assert up_all(sim, []) == down_all(sim, []) == []


#: Where an extension of the site's, or a fault of ours, may fail for one NIC: the module or class, and what of it is called for each NIC.
PLACES = {
    "plan": (BringUp, "plan"),
    "intent": (BringUp, "begin"),
    "end": (BringUp, "end"),
    "requests": (execute, "requests_of"),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_one_raises_is_no_others_failure(sim: Sim, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name = PLACES[place]
    real = getattr(where, name)

    def fails(first: Any, *rest: Any, **more: Any) -> Any:
        operations = first if isinstance(first, (list, tuple)) else ()
        if getattr(first, "nic", None) == nics("bridged")[3] or any(each._asdict().get("device") == "tap3" for each in operations):
            raise ValueError("an extension's own")
        return real(first, *rest, **more)

    monkeypatch.setattr(where, name, fails)
    said = up_all(sim, nics("bridged"))
    monkeypatch.undo()
    assert [isinstance(one, NetcommonError) for one in said] == [one.interface == "tap3" for one in nics("bridged")], said
    assert "an extension's own" in str(said[3])
    assert [each for each in states(sim) if each[0] != "tap3"] == [
        (one.interface, UP) for one in nics("bridged") if one.interface != "tap3"
    ]


def test_whatever_one_down_raises_is_no_others_failure(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    up_all(sim, nics("bridged"))
    real = Store.remove

    def fails(store: Store, record: Record) -> None:
        if record.device == "tap3":
            raise ValueError("a fault")
        real(store, record)

    monkeypatch.setattr(Store, "remove", fails)
    said = down_all(sim, nics("bridged"))
    monkeypatch.undo()
    assert [isinstance(one, NetcommonError) for one in said] == [one.interface == "tap3" for one in nics("bridged")], said
    assert [device for device, _state in states(sim)] == ["tap3"]
