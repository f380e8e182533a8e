"""Another NIC's address that an up or a change has taken, and that the other gets again however that ends."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddRoute
from netcommon.lifecycle.batch import up_all
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.changed_options import read
from runtime import wanted
from runtime.errors import HostRefused
from runtime.record import UP
from tests.support.cut_off import cut_off
from tests.support.sim import UUIDS, Mortal, Sim, nic

OTHER = {"INTERFACE": "tap1", "INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", "MAC": "aa:00:00:00:00:02"}
FIRST, SECOND = nic("routed, table"), nic("routed, table", IP="10.0.0.6", **OTHER)
TAKES = nic("routed, table", **OTHER)
THIRD = nic("routed, table", INTERFACE="tap2", INTERFACE_UUID=UUIDS[2], INSTANCE="web3", MAC="aa:00:00:00:00:03", IP="10.0.0.7")


def to_first(sim: Sim) -> None:
    node = sim.node
    change(node, UUIDS[1], sim.call(), setting(node, {"addresses": "10.0.0.5"}, ()))


def together(sim: Sim) -> None:
    list(up_all(sim.node, [TAKES, THIRD], lambda _nic: sim.call()))


#: What takes the first NIC's address, on a node with the second up or not.
WAYS: dict[str, tuple[bool, Callable[[Sim], object]]] = {
    "a change": (True, to_first),
    "a second up": (True, lambda sim: sim.up(TAKES)),
    "an up": (False, lambda sim: sim.up(TAKES)),
    "several ups": (False, together),
}


def begun(folder: Path, both: bool) -> Sim:
    sim = Sim(str(folder))
    sim.tap("tap1")
    sim.tap("tap2")
    sim.up(FIRST)
    if both:
        sim.up(SECOND)
    sim.requests()
    return sim


class Interrupted(Mortal):
    """Ctrl-C right before the change of the host or of a file that has this number; all others go through."""

    def step(self, what: str) -> None:
        self.steps.append(what)
        if self.life is not None and len(self.steps) == self.life + 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("way", WAYS)
def test_after_ctrl_c(tmp_path: Path, way: str) -> None:
    """The node is as it was wherever it comes, or, where the record says so by then, as it was to become."""
    both, doing = WAYS[way]
    whole = begun(tmp_path / "whole", both)
    with Interrupted(whole) as counted:
        doing(whole)
    back = 0
    for at in range(len(counted.steps)):
        sim, like = begun(tmp_path / str(at), both), begun(tmp_path / f"like {at}", both)
        with pytest.raises(KeyboardInterrupt), Interrupted(sim, at):
            doing(sim)
        assert {record.state for record in sim.records()} == {UP}
        there = {record.uuid: record.nic for record in sim.records()}
        takes = there.get(UUIDS[1])
        taken = takes is not None and (takes.ip == TAKES.ip or bool(takes.wanted))
        if taken:
            to_first(like) if way == "a change" else like.up(TAKES)
        if UUIDS[2] in there:
            like.up(THIRD)
        assert sim.picture() == like.picture(), (at, counted.steps[at])
        assert bool(read(sim.node, UUIDS[1], []).local) == (taken and way == "a change")
        back += not taken
        sim.close()
        like.close()
    assert back > counted.steps.index("AddRoute") + 1, "it came after the address was taken"


def test_what_is_pending_cannot_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full by then: the other has its address again, and the error is that of the change."""
    count = begun(tmp_path / "count", True)
    to_first(count)
    real = wanted.write
    for place in range(len(count.requests())):
        sim = begun(tmp_path / str(place), True)
        was, writes = sim.picture(), itertools.count()

        def full(paths: object, uuid: str, one: wanted.Wanted) -> None:
            if next(writes):  # noqa: B023 - called at once
                raise HostRefused("no space left on device")
            real(paths, uuid, one)  # type: ignore[arg-type]

        with monkeypatch.context() as patch, sim.failing(place, Answer(errno.EINVAL, "no"), times=1):
            patch.setattr(wanted, "write", full)
            with pytest.raises(HostRefused) as raised:
                to_first(sim)
        assert "no space" not in str(raised.value)
        assert sim.picture() == was, place
        assert any("pending" in line for line in sim.lines) and not read(sim.node, UUIDS[1], []).local
        assert not sim.up(SECOND).changed
        sim.close()


def test_a_change_that_was_cut_off_and_one_that_is_refused(tmp_path: Path) -> None:
    """The first had taken the address; the second goes back from it, and then back from itself."""

    def first(sim: Sim) -> None:
        sim.tap("tap1")
        sim.up(nic("routed, table", IP="10.0.0.6"))
        sim.up(nic("routed, table", **OTHER))

    fresh = Sim(str(tmp_path / "fresh"))
    first(fresh)
    sim = cut_off(tmp_path, first, lambda sim: change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {"addresses": "10.0.0.5"}, ())))

    def refuse(request: object) -> Answer | None:
        return Answer(errno.EINVAL, "no") if isinstance(request, AddRoute) and request.route.destination == "10.0.0.9/32" else None

    sim.host.fail = refuse
    with pytest.raises(HostRefused):
        change(sim.node, UUIDS[0], sim.call(), setting(sim.node, {"addresses": "10.0.0.9"}, ()))
    assert sim.picture() == fresh.picture()
