"""Many NICs repaired at once: the host is as after one by one, with as few pictures of it, and each failure is one NIC's."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from netcommon.host.api.facts import PROTOCOL
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import NftChange, Request, SetLink
from netcommon.lifecycle import batch
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import Outcome
from runtime.errors import HostRefused, NetcommonError
from tests.support.many import COUNT, alike, forbidden, machine, nics, pictures, up_all
from tests.support.sim import MODES, Sim

pytestmark = pytest.mark.sampled(2)


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return machine(tmp_path)


def flush(sim: Sim) -> None:
    """nft flush ruleset."""
    sim.host.nftables.flush()


def unplug(sim: Sim) -> None:
    """Every tap leaves its bridge, and is down."""
    for number in range(COUNT):
        sim.host.execute([SetLink(sim.index(f"tap{number}"), master=0), SetLink(sim.index(f"tap{number}"), up=False)], stop=True)


def unroute(sim: Sim) -> None:
    """The rules and routes of all are gone."""
    kernel = sim.host.kernel
    for family in (2, 10):
        for route in [route for route in sim.host.view().routes(family) if route.protocol == PROTOCOL]:
            kernel.delete_route(route)
        kernel.rules = [rule for rule in kernel.rules if rule.protocol != PROTOCOL]


DAMAGE: dict[str, Callable[[Sim], None]] = {"flush": flush, "unplug": unplug, "unroute": unroute}


def repair_all(sim: Sim) -> list[object]:
    keys = sorted(record.key for record in sim.records())
    found = list(batch.repair_all(sim.node, keys, lambda _record: sim.call()))
    assert [key for key, _result in found] == keys
    return [result for _key, result in found]


def good(sim: Sim) -> bool:
    return all(check(sim.node, sim.host.view(), record).good for record in sim.records())


#: "routed, all options" gives all NICs the same further addresses, which lead to the one that was repaired last.
ALIKE = [mode for mode in MODES if mode not in ("ext", "routed, all options")]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("mode", ALIKE)
def test_as_one_by_one(mode: str, damage: str, tmp_path: Path) -> None:
    together, alone = machine(tmp_path / "together"), machine(tmp_path / "alone")
    for made in (together, alone):
        up_all(made, nics(mode))
        DAMAGE[damage](made)
    said = repair_all(together)
    each = [repair(alone.node, key, alone.call()) for key in sorted(record.key for record in alone.records())]
    assert [getattr(one, "changed", one) for one in said] == [one.changed for one in each]
    assert alike(together.picture()) == alike(alone.picture()) and good(together)
    assert [record._replace(created=0, monotonic=0) for record in together.records()] == [
        record._replace(created=0, monotonic=0) for record in alone.records()
    ]
    assert [getattr(one, "changed", one) for one in repair_all(together)] == [False] * COUNT
    batch_down(together, mode)


def batch_down(sim: Sim, mode: str) -> None:
    for nic in nics(mode):
        sim.down(nic)
    assert sim.picture() == sim.before and sim.files() == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_few_pictures_of_the_host(damage: str, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that what they share is made by one of each table; then all others go together, and none is looked at alone."""
    up_all(sim, nics("routed, table"))
    DAMAGE[damage](sim)
    monkeypatch.setattr(batch, "repair", forbidden)
    taken = pictures(sim, monkeypatch)
    assert all(isinstance(result, Outcome) for result in repair_all(sim))
    assert good(sim) and len(taken) <= 6, len(taken)


def test_a_refusal_is_one_nics(sim: Sim) -> None:
    """Its guard is refused: that is said for it, and the guards of the others stand."""
    up_all(sim, nics("bridged, access"))
    flush(sim)

    def fail(request: Request) -> Answer | None:
        mine = isinstance(request, NftChange) and request.what == "spoof guard of tap3"
        return Answer(errno.EPERM, "refused by the test") if mine else None

    sim.host.fail = fail
    said = repair_all(sim)
    sim.host.fail = lambda _request: None
    assert [isinstance(one, NetcommonError) for one in said] == [nic.interface == "tap3" for nic in nics("bridged, access")]
    assert isinstance(said[3], HostRefused) and "refused by the test" in str(said[3])
    reports = {record.device: check(sim.node, sim.host.view(), record).good for record in sim.records()}
    assert reports == {nic.interface: nic.interface != "tap3" for nic in nics("bridged, access")}


def test_only_what_is_wanted(sim: Sim) -> None:
    """An operation that is not to be repaired stays as it is, for the one NIC that this is said of."""
    up_all(sim, nics("bridged"))
    flush(sim)
    unplug(sim)
    keys = sorted(record.key for record in sim.records())
    list(batch.repair_all(sim.node, keys, lambda _record: sim.call(), lambda key, one: key != keys[2] or one.KIND != "guard"))
    left = {record.key: [does for does, _text in check(sim.node, sim.host.view(), record).drift] for record in sim.records()}
    assert [key for key in keys if left[key]] == [keys[2]] and all("guard" in does for does in left[keys[2]])
