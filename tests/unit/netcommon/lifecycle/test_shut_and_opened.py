"""When a NIC's device is up: only while all that decides where its frames go stands. As tests/kernel/test_routed_leaks.py, in order."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, Route, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddRule, AddVlan, DeleteRule, NftChange, Request, SetLink, SetSysctl
from netcommon.lifecycle.batch import down_all, up_all
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.context import ADOPT, Outcome
from netcommon.lifecycle.up import up
from netcommon.operations.base import to_json
from netcommon.operations.link import LinkSetting
from netcommon.settings.model import Settings
from runtime.environment import down_hint
from runtime.errors import HostRefused
from runtime.record import CLOSING
from tests.support.sim import MODES, UUIDS, Mortal, Sim, nic

ROUTED = [mode for mode in MODES if mode.startswith("routed, ") and mode != "routed, bridge"]
OPENED = [mode for mode in MODES if mode.startswith(("bridged", "routed"))]
MARK = "mark of tap0"


def set_up(sim: Sim) -> None:
    """As `ip tuntap` and a QEMU script leave a tap."""
    sim.host.execute([SetLink(sim.index("tap0"), up=True)], stop=True)
    sim.requests()


def places(requests: list[Request]) -> tuple[list[int], list[int], list[int]]:
    """Where in a list the device goes up and down, and where something is done that decides where frames go."""
    up = [number for number, each in enumerate(requests) if isinstance(each, SetLink) and each.up is True]
    down = [number for number, each in enumerate(requests) if isinstance(each, SetLink) and each.up is False]
    kinds = AddRule | DeleteRule | NftChange | SetSysctl
    ways = [number for number, each in enumerate(requests) if isinstance(each, kinds) and "eth-" not in str(each)]
    return up, down, ways


@pytest.mark.parametrize("mask", [0, 0xFFF0000], ids=["rules", "mark"])
@pytest.mark.parametrize("mode", ROUTED)
def test_rules_and_marks_stand_while_the_device_is_up(sim: Sim, mode: str, mask: int) -> None:
    sim.settings = Settings(rule_mark=mask)
    sim.up(nic(mode))
    made, shut, ways = places(sim.requests())
    assert len(made) == 1 and shut == [] and max(ways) < made[0]
    sim.down(nic(mode))
    made, shut, ways = places(sim.requests())
    assert made == [] and len(shut) == 1 and shut[0] < min(ways)
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", OPENED)
def test_a_device_that_is_up_before_is_shut_first(sim: Sim, mode: str) -> None:
    """And left down while somebody holds it: he would speak to the node itself."""
    set_up(sim)
    sim.up(nic(mode))
    requests = sim.requests()
    made, shut, ways = places(requests)
    assert shut == [0] and len(made) == 1 and max(ways) < made[0], requests
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic(mode))
    made, shut, ways = places(sim.requests())
    assert made == [] and len(shut) == 1 and shut[0] < min(ways)
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", OPENED)
def test_nobody_holds_it(sim: Sim, mode: str) -> None:
    """Nobody can send: it is as it was."""
    sim.host.persistent.add("tap0")
    sim.host.let_go("tap0")
    set_up(sim)
    before = sim.picture()
    sim.up(nic(mode))
    sim.down(nic(mode))
    assert sim.picture() == before


def test_the_default_vlan_is_never_the_taps_while_it_is_up(sim: Sim) -> None:
    set_up(sim)
    for change in (lambda: sim.up(nic("bridged, access")), lambda: sim.down(nic("bridged, access"))):
        change()
        requests = sim.requests()
        made, shut, _ways = places(requests)
        joined = [number for number, each in enumerate(requests) if isinstance(each, SetLink) and each.master is not None]
        vlans = [number for number, each in enumerate(requests) if isinstance(each, AddVlan) and each.index == sim.index("tap0")]
        assert len(shut) == 1 and shut[0] < min(joined + vlans) and all(each > max(joined + vlans) for each in made), requests


def test_many_at_once(sim: Sim) -> None:
    set_up(sim)
    sim.tap("tap1")
    nics = [nic("routed, table"), nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], IP="10.0.0.6", MAC="aa:00:00:00:00:02")]
    assert [getattr(result, "changed", result) for _nic, result in up_all(sim.node, nics, lambda _nic: sim.call())] == [True, True]
    requests = [each for each in sim.requests() if getattr(each, "index", 0) == sim.index("tap0") or "tap0" in str(each)]
    made, shut, ways = places(requests)
    assert shut == [0] and max(ways) < made[0]


@pytest.mark.parametrize("mask", [0, 0xFFF0000], ids=["rules", "mark"])
def test_another_table_comes_before_the_first_goes(sim: Sim, mask: int) -> None:
    """The device stays up."""
    sim.settings = Settings(rule_mark=mask)
    sim.up(nic("routed, table"))
    sim.requests()
    sim.up(nic("routed, table", LINK="200"))
    requests = sim.requests()
    made, shut, _ways = places(requests)
    marks = [number for number, each in enumerate(requests) if isinstance(each, NftChange) and each.what == MARK]
    added = [number for number, each in enumerate(requests) if isinstance(each, AddRule)] + marks[:1]
    gone = [number for number, each in enumerate(requests) if isinstance(each, DeleteRule)] + marks[1:]
    assert made == shut == [] and max(added) < min(gone)
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("routed, table"))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mask", [0, 0xFFF0000], ids=["rules", "mark"])
def test_a_table_that_gets_another_number(sim: Sim, mask: int) -> None:
    """Its rule of before would come first, and stay for good."""
    sim.settings = Settings(rule_mark=mask)
    sim.up(nic("routed, table"))
    sim.host.tables["guests"] = 300
    sim.up(nic("routed, table"))
    assert [rule.table for rule in sim.host.kernel.rules if rule.protocol == 174] == [300]
    assert [route.table for route in sim.host.kernel.routes if route.protocol == 174] == [300]
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("routed, table"))
    assert sim.picture() == sim.before


def test_from_rules_to_a_mark_and_back(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    for mask in (0xFFF0000, 0):
        sim.requests()
        sim.settings = Settings(rule_mark=mask)
        sim.up(nic("routed, table"))
        requests = sim.requests()
        ways = [each for each in requests if isinstance(each, AddRule | DeleteRule | NftChange)]
        assert isinstance(ways[0], AddRule) and places(requests)[:2] == ([], [])
        assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("routed, table"))
    assert sim.picture() == sim.before


def test_out_of_a_bridge(sim: Sim) -> None:
    """Check that what it sends between the bridge and its rule would go by table main."""
    sim.up(nic("bridged"))
    sim.requests()
    sim.up(nic("routed, table"))
    made, shut, ways = places(sim.requests())
    assert shut == [0] and len(made) == 1 and max(ways) < made[0]
    assert check(sim.node, sim.host.view(), sim.record()).good


def test_into_another_table_with_another_address(sim: Sim) -> None:
    """Neither the new address goes by the former table, nor the former one by the new: the device is down until both are others."""
    sim.up(nic("routed, table"))
    sim.requests()
    sim.up(nic("routed, table", LINK="other", IP="10.0.0.6"))
    made, shut, ways = places(sim.requests())
    assert len(shut) == len(made) == 1 and shut[0] < min(ways)
    assert check(sim.node, sim.host.view(), sim.record()).good
    sim.down(nic("routed, table", LINK="other", IP="10.0.0.6"))
    assert sim.picture() == sim.before


def earlier(sim: Sim) -> None:
    """The record as versions before this one wrote it: the device came up before all else of its mode."""
    record = sim.record()
    up = next(each for each in record.operations if (each["kind"], each.get("setting")) == ("link", "up"))
    others = [each for each in record.operations if each != up]
    first = next(number for number, each in enumerate(others) if each["kind"] in ("sysctl", "rule", "mark-rule"))
    sim.node.store.write(record._replace(operations=(*others[:first], up, *others[first:])))


@pytest.mark.parametrize("mask", [0, 0xFFF0000], ids=["rules", "mark"])
def test_records_of_earlier_versions_go_in_the_same_order(sim: Sim, mask: int) -> None:
    sim.settings = Settings(rule_mark=mask)
    sim.up(nic("routed, table"))
    earlier(sim)
    sim.requests()
    sim.down(nic("routed, table"))
    requests = [each for each in sim.requests() if not isinstance(each, SetSysctl)]
    _made, shut, ways = places(requests)
    assert len(shut) == 1 and shut[0] < min(ways)
    assert sim.picture() == sim.before


def test_a_repair_goes_in_the_same_order(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    earlier(sim)
    sim.host.execute([SetLink(sim.index("tap0"), up=False)], stop=True)
    sim.host.kernel.rules = [rule for rule in sim.host.kernel.rules if rule.iif != "tap0"]
    sim.requests()
    assert repair(sim.node, UUIDS[0], sim.call()).changed
    made, _shut, ways = places(sim.requests())
    assert max(ways) < made[0]


def test_a_rule_that_is_on_no_record(sim: Sim) -> None:
    """It goes when the device is down: what its guest sends does not go by table main."""
    set_up(sim)
    sim.host.kernel.add_rule(Rule(AF_INET, 500, "tap0", 100))
    sim.up(nic("routed, table", LINK="200"))
    made, shut, ways = places(sim.requests())
    assert shut[0] == 0 and max(ways) < made[0]
    assert check(sim.node, sim.host.view(), sim.record()).good


@pytest.mark.parametrize("mode", ["routed, table", "bridged"])
def test_what_the_administrator_has_on_the_device(sim: Sim, mode: str) -> None:
    """The kernel takes a route from a device that goes down. What joins a bridge has none."""
    set_up(sim)
    theirs = Route(AF_INET, 200, "10.9.0.0/24", sim.index("tap0"), protocol=4)
    sim.host.kernel.add_route(theirs)
    sim.up(nic(mode))
    assert (theirs in sim.host.kernel.routes) == (mode == "routed, table") == (places(sim.requests())[1] == [])


def killed_again(tmp_path: Path) -> Iterator[tuple[int, Sim]]:
    """Nodes with a guarded NIC whose second up, with another address, was killed before each of its steps; and one where it was not."""
    guarded = {"TAGS": "netcommon:*:spoof_guard"}
    for life in range(1 << 30):
        sim = Sim(str(tmp_path / str(life)))
        sim.up(nic("bridged", IP="10.0.0.5", **guarded))
        with Mortal(sim, life) as process:
            sim.up(nic("bridged", IP="10.0.0.6", **guarded))
        sim.requests()
        yield life, sim
        if len(process.steps) < life:
            assert life > 5
            return


@pytest.mark.parametrize("together", [False, True])
def test_a_second_up_that_was_killed_leaves_the_guard_until_the_device_is_down(tmp_path: Path, together: bool) -> None:
    """Wherever it was killed, and whoever takes it down: one call, or one of many."""
    hint = down_hint({"INTERFACE": "tap0", "INTERFACE_UUID": UUIDS[0]})
    for life, sim in killed_again(tmp_path):
        if together:
            (result,) = (result for _hint, result in down_all(sim.node, [hint], lambda _hint, sim=sim: sim.call("hot-remove")))  # type: ignore[misc]
            assert isinstance(result, Outcome)
        else:
            sim.down(hint)
        _made, shut, ways = places(sim.requests())
        assert shut and shut[0] < min(ways), life
        assert sim.picture() == sim.before and sim.records() == [], life


def test_a_nic_that_closes_after_a_killed_second_up_comes_to_rest(tmp_path: Path) -> None:
    """One repair is enough, and down leaves nothing."""
    for life, sim in killed_again(tmp_path):
        sim.shutdown(nic("bridged"))
        assert sim.record().closing, life
        repair(sim.node, UUIDS[0], sim.call())
        sim.requests()
        assert not repair(sim.node, UUIDS[0], sim.call()).changed and sim.requests() == [], life
        assert not check(sim.node, sim.host.view(), sim.record()).drift and sim.record().state == CLOSING, life
        sim.down(nic("bridged"))
        assert sim.picture() == sim.before and sim.records() == [], life


def test_the_guest_of_an_adopted_nic_notices_nothing(sim: Sim) -> None:
    """Neither that it is adopted, nor that this fails, or was killed on the way."""
    set_up(sim)
    call = sim.call()._replace(door=ADOPT)
    with sim.failing(3, Answer(errno.EINVAL, "no"), times=1), pytest.raises(HostRefused):
        up(sim.node, nic("routed, table"), call, run_scripts=False, fresh=True)
    assert not [each for each in sim.requests() if isinstance(each, SetLink) and each.up is False]
    up(sim.node, nic("routed, table"), call, run_scripts=False, fresh=True)
    sim.down(nic("routed, table"))
    assert not [each for each in sim.requests() if isinstance(each, SetLink) and each.up is False]


def test_a_device_that_came_up_before_us_is_told(sim: Sim) -> None:
    set_up(sim)
    sim.up(nic("routed"))
    stored = json.loads(json.dumps(sim.record().operations))
    (one,) = [each for each in stored if (each["kind"], each.get("setting")) == ("link", "up")]
    made = LinkSetting(**{name: value for name, value in one.items() if name != "kind"})
    assert made.undo() == "ip link set dev tap0 down, unless nobody holds it: it was up before" and to_json(made) == one
