"""Several NICs that are done together, told to end at any line: what is begun of one comes to its end, and no other is touched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from netcommon.lifecycle import batch
from runtime.environment import DownHint
from runtime.errors import Interrupted
from runtime.nic import Nic
from runtime.record import UP
from tests.support.sample import sample
from tests.support.sim import Sim, nic
from tests.support.told_to_end import Lines, at_request

#: A signal before the first step of Locks.__exit__ leaves it to the interpreter to close the files.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def guest(number: int) -> Nic:
    uuid, mac = f"{number:08x}-0000-4000-8000-000000000000", f"aa:00:00:00:00:{number:02x}"
    return nic("routed", INTERFACE=f"tap{number}", INTERFACE_UUID=uuid, MAC=mac, INSTANCE=f"web{number}", IP=f"10.0.0.{number}")


GUESTS = [guest(number) for number in (1, 2, 3)]
HINTS = [DownHint(one.uuid, one.interface, one.instance, one.index, one.mac) for one in GUESTS]


def begun(folder: Path) -> Sim:
    sim = Sim(str(folder))
    for one in GUESTS:
        sim.tap(one.interface)
    sim.before = sim.picture()
    return sim


def all_up(folder: Path) -> Sim:
    sim = begun(folder)
    for one in GUESTS:
        sim.up(one)
    return sim


def down(sim: Sim) -> None:
    call = sim.call("hot-remove")
    list(batch.down_all(sim.node, HINTS, lambda _hint: call))


def up(sim: Sim) -> None:
    call = sim.call()
    list(batch.up_all(sim.node, GUESTS, lambda _nic: call))


def lines_of(make: Callable[[Path], Sim], work: Callable[[Sim], None], folder: Path) -> int:
    """Count the lines of the whole work, once its modules are loaded."""
    for name in ("first", "whole"):
        sim = make(folder / name)
        with Lines() as all_of_it:
            work(sim)
    return all_of_it.count


def whole(sim: Sim) -> int:
    """Tell how many are up; each is, or it is down, and nothing of it is left."""
    records = sim.records()
    assert {record.state for record in records} <= {UP}
    routes = {route.destination for route in sim.host.kernel.routes if route.protocol == 174 and route.table == 254}
    assert routes == {f"10.0.0.{record.device[3:]}/32" for record in records}
    if not records:
        assert sim.picture() == sim.before
    return len(records)


def test_down_before_each_request(tmp_path: Path) -> None:
    left = []
    for number in range(60):
        sim = all_up(tmp_path / f"{number}")
        with at_request(sim.host, number) as told, suppress(Interrupted):
            down(sim)
        left.append(whole(sim))
        if not told():
            break
    assert number > 5 and not any(left)  # each of them was on its way when the first request was made


def test_down_at_any_line(tmp_path: Path) -> None:
    count = lines_of(all_up, down, tmp_path)
    left = set()
    for at in sample(range(count), 40, 500):
        sim = all_up(tmp_path / f"{at}")
        with Lines(at) as lines, suppress(Interrupted):
            down(sim)
        assert lines.where
        left.add(whole(sim))
    assert {0, 3} <= left


def test_up_at_any_line(tmp_path: Path) -> None:
    count = lines_of(begun, up, tmp_path)
    left = set()
    for at in sample(range(count), 40, 500):
        sim = begun(tmp_path / f"{at}")
        with Lines(at) as lines, suppress(Interrupted):
            up(sim)
        assert lines.where
        left.add(whole(sim))
    assert {0, 3} <= left
