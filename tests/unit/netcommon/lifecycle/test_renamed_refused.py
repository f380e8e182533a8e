"""A first up whose device is renamed while it is at work, and that is refused then: it is rolled back, and is nobody else's failure."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request
from netcommon.lifecycle.batch import up_all
from runtime.errors import HostRefused, NetcommonError
from tests.support.sim import Sim, nic


def renames(sim: Sim, at: int, device: str) -> list[Request]:
    """Let the request number ``at`` of ``device`` find it renamed, and be refused; the answer has those that came to the host."""
    seen: list[Request] = []
    index = sim.index(device)

    def fail(request: Request) -> Answer | None:
        if index not in request or request._asdict().get("message"):
            return None
        seen.append(request)
        if len(seen) != at + 1:
            return None
        links = sim.host.kernel.links
        links[index] = links[index]._replace(name="guest1")
        return Answer(errno.EINVAL, "no")

    sim.host.fail = fail
    return seen


@pytest.mark.parametrize("mode", ["routed, table", "routed", "bridged, access", "bridged"])
def test_it_is_rolled_back(tmp_path: Path, mode: str) -> None:
    refused = 0
    for at in range(30):
        sim = Sim(str(tmp_path / str(at)))
        before = sim.picture()
        seen = renames(sim, at, "tap0")
        try:
            sim.up(nic(mode))
        except HostRefused as error:
            refused += 1
            assert "RuntimeError" not in str(error)
        if len(seen) <= at:
            break
        sim.host.fail = lambda _request: None
        assert [record.state for record in sim.records()] in ([], ["up"]), at
        if not sim.records():
            after = sim.picture()
            assert {name: after[name] for name in ("rules", "routes", "neighbours")} == {
                name: before[name] for name in ("rules", "routes", "neighbours")
            }
    assert refused > 2


def test_the_others_of_a_batch_come_up(tmp_path: Path) -> None:
    sim = Sim(str(tmp_path))
    nics = []
    sim.tap("tap1")
    sim.tap("tap2")
    for number in range(3):
        uuid = f"{number + 1:08x}-0000-4000-8000-000000000000"
        more = {"INTERFACE": f"tap{number}", "INTERFACE_UUID": uuid, "MAC": f"aa:00:00:00:00:0{number}", "INSTANCE": f"web{number}"}
        nics.append(nic("routed, table", IP=f"10.0.0.{number + 1}", **more))
    renames(sim, 2, "tap1")
    results = [result for _number, result in up_all(sim.node, nics, lambda _nic: sim.call())]
    assert [isinstance(result, NetcommonError) for result in results] == [False, True, False], results
    assert sorted(record.device for record in sim.records()) == ["tap0", "tap2"]
