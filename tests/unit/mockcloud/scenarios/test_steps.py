"""Steps and faults happen when, where and for as long as a scenario says, or it is said that they do not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud import own_nics, underlay
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.table import perform
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import _values, settled
from mockcloud.scenarios import running
from mockcloud.scenarios.faults import Faults
from mockcloud.scenarios.file import Scenario, Step
from mockcloud.scenarios.running import Result, play, strike
from mockcloud.state import read
from mockcloud.sysinfo import node_uuid
from runtime.errors import HostRefused, NicInvalid
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud

FIRST, SECOND = node_uuid(1), node_uuid(2)
WEB1 = Step("create", given={"name": "web1", "node": "mock1", "nics": [{"network": "blue"}], "start": True})


def played(root: Path, *steps: Step) -> Result:
    return play(Scenario(2, settle=5.0, networks={"blue": {"subnet": "192.0.2.0/24"}}, steps=(WEB1, *steps)), str(root / "cloud"), 1)


def said(result: Result) -> list[str]:
    return [each.text for each in result.outcomes]


# -- when


def test_a_task_at_a_number_of_actions_does_not_wait_for_later_ones(tmp_path: Path) -> None:
    """Check that what is due first is done first, whether a time or a number says when."""
    given = {"name": "web1"}
    found = played(tmp_path, Step("start", at=30.0, given=given), Step("stop", step=100, given=given), Step("stop", at=31.0, given=given))
    tasks = [each for each in found.outcomes if each.text.startswith(("start ", "stop "))]
    assert [each.text for each in tasks] == ["stop web1", "start web1", "stop web1"] and found.violations == ()
    assert tasks[0].at < 20.0 and 30.0 <= tasks[1].at < 31.0


def test_a_fault_at_a_number_of_actions_is_waited_for_and_is_over_before_the_end(tmp_path: Path) -> None:
    found = played(tmp_path, Step("partition", step=400, nodes="mock1", lasts=100.0))
    (struck, over) = (each for each in found.outcomes if each.text.startswith("partition of mock1"))
    assert over.at == pytest.approx(struck.at + 100.0) and found.seconds > over.at and found.violations == ()


def test_what_never_comes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "COUNTED", 5.0)
    given = {"name": "web1"}
    steps = Step("partition", step=200_000), Step("stop", step=300_000, given=given), Step("start", at=2.0, given=given)
    found = said(played(tmp_path, *steps))
    assert "start web1" in found
    for what in ("partition at step 200000", "stop at step 300000"):
        assert any(each.startswith(f"{what} does not come: there were ") for each in found), found


def test_what_matches_nothing_is_said(tmp_path: Path) -> None:
    steps = Step("node", at=2.0, nodes="mok1"), Step("stop", at=3.0, given={"name": "wbe*"}), Step("restore", at=4.0)
    found = said(played(tmp_path, *steps, Step("disk", at=5.0, chance=0.0)))
    assert found[1:] == [
        "node of mok1: no node is called so",
        "stop wbe*: no instance is called so on *",
        "restore of the registry cannot be: there is no copy: backup makes one",
    ]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("etcd",), 69, "the registry of this mock cloud is kept in no etcd"),
        (("etcd", "--lose", "kill 1"), 64, "back='': expected a program and its arguments, as lose has"),
        (("restore",), 69, "there is no copy: backup makes one"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_at_once(tmp_path: Path, words: tuple[str, ...], status: int, says: str) -> None:
    """It was noted, all the settling was waited for, and nothing was found wrong."""
    run = Mockcloud(tmp_path / "cloud")
    run("create", "1")
    before = read(str(run.folder)).time
    assert says in run("fault", *words, "--settle", "5000", status=status)
    assert read(str(run.folder)).time < before + 100.0
    assert run("fault", "backup", "--settle", "1").splitlines()[1].split()[1:] == ["backup", "of", "the", "registry"]


@pytest.mark.parametrize(("fault", "not_done"), [("fence", "it is not fenced: no"), ("forget", "it is not forgotten: no")])
def test_what_an_operator_could_not_do_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, not_done: str) -> None:
    """The node is as it was again; the exit status was 0."""

    def refuse(_cloud: MockCloud, _node: str) -> None:
        raise HostRefused("no")

    run = Mockcloud(tmp_path / "cloud")
    run("create", "1")
    monkeypatch.setattr(underlay, "_let_go", refuse)
    assert f"{fault} of mock1: {not_done}" in run("fault", fault, "mock1", "--for", "1", "--settle", "1", status=69)
    assert "in step" in run("status")


def test_a_fault_that_can_be_on_one_node_strikes_there(tmp_path: Path) -> None:
    """The others are said."""
    with opened(tmp_path / "cloud") as cloud:
        first, second = (each.uuid for each in cloud.create(2))
        cloud.ready([first, second], 30.0)
        cloud.nodes[first].sources = object()  # type: ignore[assignment]
        found = said(strike(cloud, [Step("events", lasts=1.0)], 1, 1.0))
        assert found[0].startswith("events of mock1 cannot be: ") and found[1].startswith("events of mock2 lost=")


@pytest.mark.parametrize("before", [WEB1, Step("backup")], ids=["an older one", "made anew"])
def test_a_registry_that_was_restored_is_told_what_an_operator_has_set_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Step
) -> None:
    has: list[object] = []

    def looked(cloud: MockCloud, commits: Commits) -> list[str]:
        has.extend(
            (each["nic"]["tags"], _values(each["nic"]["options"])) for each in cloud.registry.client().all("nics", belongs="instance")
        )
        return settled(cloud, commits)

    monkeypatch.setattr(running, "settled", looked)
    change = Step("change", at=5.0, given={"name": "web1", "index": 0, "options": {"rate_in": "8mbit"}})
    update = Step("update", at=6.0, given={"name": "web1", "add": ["a:b"]})
    steps = (WEB1, Step("backup", at=4.0)) if before == WEB1 else (before, Step("create", at=1.0, given=WEB1.given))
    networks = {"blue": {"subnet": "192.0.2.0/24"}}
    scenario = Scenario(2, settle=60.0, networks=networks, steps=(*steps, change, update, Step("restore", at=10.0)))
    found = play(scenario, str(tmp_path / "cloud"), 1)
    assert has == [(["a:b"], {"rate_in": "8mbit"})] and found.violations == (), said(found)


def test_an_instance_that_a_restored_registry_has_no_room_for_is_deleted_with_all_its_nics(tmp_path: Path) -> None:
    """Delete an instance with all its NICs when its first NIC's address is another's since, though its second NIC was made anew."""
    networks = {"blue": {"subnet": "192.0.2.0/24"}, "six": {"subnet6": "2001:db8::/64"}}
    nics = [{"network": "blue"}, {"network": "six"}]
    steps = (
        Step("backup"),
        Step("create", at=1.0, given={"name": "web1", "node": "mock1", "nics": nics, "start": True}),
        Step("restore", at=4.0),
        Step("stop", at=5.0, given={"name": "web1", "ifdown": True}),
        Step("create", at=15.0, given={"name": "web2", "node": "mock1", "nics": nics[:1], "start": True}),
    )
    found = play(Scenario(1, settle=60.0, networks=networks, steps=steps), str(tmp_path / "cloud"), 1)
    assert any("web1 cannot be as it was: deleted" in each for each in said(found)), said(found)
    assert found.violations == (), said(found)


def test_a_copy_that_is_damaged_is_refused_and_the_registry_serves_on(tmp_path: Path) -> None:
    with opened(tmp_path) as cloud:
        cloud.create(1)
        faults = Faults(cloud, (notes := list[str]()).append)
        faults.strike("backup", [], {}, 1.0)
        (tmp_path / "backup.sqlite").write_bytes((tmp_path / "backup.sqlite").read_bytes()[:5000])
        faults.strike("restore", [], {}, 1.0)
        assert "is damaged" in notes[-1] and not cloud.restored
        assert [each["node"]["name"] for each in cloud.registry.client().all("nodes")] == ["mock1"]


def test_fields_of_an_update_that_names_no_nic_are_refused(tmp_path: Path) -> None:
    """Refuse fields of an update that names no NIC: they were dropped without a word."""
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(1)
        perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": [{}]})
        with pytest.raises(NicInvalid, match="nic='': expected the index of the NIC whose fields are to be changed"):
            perform(cloud, "update", {"name": "web1", "fields": {"link": "br1"}})
        assert perform(cloud, "update", {"name": "web1", "nic": 0, "fields": {"link": "br1"}})["instances"][0]["nics"][0]["link"] == "br1"


# -- for how long


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    with opened(tmp_path / "cloud") as made:
        made.create(2)
        made.ready([FIRST, SECOND], 20.0)
        yield made


def state(cloud: MockCloud) -> dict[str, Any]:
    """Give what is wrong with the first node."""
    node = cloud.nodes[FIRST]
    return {"disk": node.full, "clock": node.loop.ahead, "events": getattr(node.sources, "harm", None), "hook": node._hook_ends}


STAY: dict[str, dict[str, Any]] = {"disk": {}, "clock": {"seconds": 7200.0}, "events": {"lost": 1.0}, "hook": {"request": 3}}


@pytest.mark.parametrize("name", STAY)
def test_a_boot_ends_nothing_that_does_not_go_with_the_power(cloud: MockCloud, name: str) -> None:
    faults, well = Faults(cloud, lambda _text: None), state(cloud)
    faults.strike(name, [FIRST], STAY[name], 60.0)
    wrong = state(cloud)
    assert wrong[name] != well[name]
    faults.strike("node", [FIRST], {}, 5.0)
    cloud.scheduler.passes(10.0)
    assert state(cloud)[name] == wrong[name]
    cloud.scheduler.passes(60.0)
    assert state(cloud)[name] == well[name]


def test_an_agent_that_was_killed_stays_so_while_its_version_is_another(cloud: MockCloud) -> None:
    faults = Faults(cloud, lambda _text: None)
    faults.strike("agent", [FIRST], {}, 60.0)
    faults.strike("older", [FIRST], {}, 5.0)
    cloud.scheduler.passes(1.0)
    assert not cloud.nodes[FIRST].alive
    cloud.scheduler.passes(10.0)
    assert not cloud.nodes[FIRST].alive
    cloud.scheduler.passes(60.0)
    assert cloud.nodes[FIRST].alive


# -- in another process


def test_a_restore_by_another_command_begins_another_epoch(tmp_path: Path) -> None:
    """With the seed that all have: what is drawn in one process is not drawn again in the next."""
    epochs = []
    for name in ("backup", "restore", "restore"):
        with opened(tmp_path / "cloud") as cloud:
            epochs.append(cloud.own.registry.local.view.epoch)
            Faults(cloud, lambda _text: None).strike(name, [], {}, 0.0)
    with opened(tmp_path / "cloud") as cloud:
        epochs.append(cloud.own.registry.local.view.epoch)
    assert epochs[0] == epochs[1] and len(set(epochs[1:])) == 3


def macs(cloud: MockCloud) -> list[tuple[str, str]]:
    """Give the MAC of each NIC, by the registry."""
    return sorted((each["nic"]["uuid"], each["nic"]["mac"]) for each in cloud.registry.client().all("nics"))


def test_an_administrator_tells_a_restored_registry_all_that_it_lacks(tmp_path: Path) -> None:
    """Nodes, networks, their own NICs in them, and instances, all of which came after the copy."""
    nic = {"network": "blue", "mode": "routed", "link": "guests"}
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(1)
        Faults(cloud, lambda _text: None).strike("backup", [], {}, 0.0)
        own_nics.attach(cloud, "external", "198.18.0.0/15")
        cloud.create(1)
        cloud.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        for node in ("mock1", "mock2"):
            perform(cloud, "create", {"name": f"on-{node}", "node": node, "nics": [nic], "start": True})
        nodes, nics = (
            [each["external"] for each in cloud.list()],
            sorted((each["nic"]["uuid"], each["nic"]["mac"]) for each in cloud.registry.client().all("nics")),
        )
    with opened(tmp_path / "cloud") as cloud:
        found = strike(cloud, [Step("restore")], 1, 60.0)
        assert found.violations == () and not [text for text in said(found) if "not done" in text or "deleted" in text]
        assert cloud.counted().alive == 2 and [each["external"] for each in cloud.list()] == nodes
        assert macs(cloud) == nics
        (network,) = cloud.registry.client().all("networks", name="blue")
        assert network["network"]["gateway"] == "192.0.2.254"
        assert [each.vm.state for each in Instances(cloud).all()[0]] == ["running", "running"]


def test_the_network_of_all_nodes_is_made_anew_once(tmp_path: Path) -> None:
    """Make a network in which every node has a NIC anew once: it was asked for under another UUID too, and refused."""
    with opened(tmp_path / "cloud") as cloud:
        Faults(cloud, lambda _text: None).strike("backup", [], {}, 0.0)
        cloud.create(1)
        own_nics.attach(cloud, "mock-admin")
        found = strike(cloud, [Step("restore")], 1, 60.0)
        assert found.violations == () and not [text for text in said(found) if "not done" in text], said(found)
        assert len(list(cloud.registry.client().all("networks", name="mock-admin"))) == 1


def test_a_hook_that_was_killed_before_the_node_crashed_is_killed_no_second_time(cloud: MockCloud) -> None:
    """Check that what is left of the fault is there after the boot: nothing, or so many requests."""
    for mock in (FIRST, SECOND):
        Instances(cloud).create(f"web-{mock[:4]}", mock, [])
    faults = Faults(cloud, lambda _text: None)
    faults.strike("hook", [FIRST, SECOND], {"request": 2}, 600.0)
    cloud.nodes[FIRST].end_hook(0)  # as it is when it has struck
    cloud.nodes[SECOND].end_hook(1)  # and when there was one request
    faults.strike("node", [FIRST, SECOND], {}, 5.0)
    cloud.scheduler.passes(10.0)
    assert [cloud.nodes[each].hook_ends for each in (FIRST, SECOND)] == [0, 1]


def test_a_node_that_is_deleted_is_in_memory_no_more(cloud: MockCloud) -> None:
    node = weakref.ref(cloud.nodes[SECOND])
    cloud.delete([SECOND])
    gc.collect()
    assert node() is None and cloud.scheduler._turns, "turns that are due later hold no node"
