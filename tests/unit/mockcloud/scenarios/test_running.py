"""Scenarios that run: what each fault does, that all heals, that what must not be is seen, and that a seed says everything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud import stored
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.instances.table import perform
from mockcloud.invariants import always, fitting, settled
from mockcloud.scenarios.faults import FAULTS, Faults
from mockcloud.scenarios.file import Scenario, Step, parsed
from mockcloud.scenarios.running import Result, play
from mockcloud.scenarios.writing import text
from mockcloud.sysinfo import node_uuid
from netagent.sync.driver import ABOUT_OFTEN
from netregistry.stores.base import Batch, Changed
from runtime.errors import HostRefused, TryAgain
from runtime.folder import TEMPORARY
from tests.support import mock_nodes
from tests.support.bootstrap import ROOT
from tests.support.killing_steps import opened
from tests.support.sample import FULL

FIRST, SECOND = node_uuid(1), node_uuid(2)
#: Agents that compare all soon, so that nothing has to be waited for.
SOON = """
[agent]
resync = 20
start_delay = 5
reap_interval = 10
reap_grace = 5
[registry]
compare_delay = 20
compare_interval = 60
"""
PAIR = [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}]
NETWORKS = {"blue": {"subnet": "192.0.2.0/24"}}


def create(name: str, node: str, at: float = 0.0) -> Step:
    return Step("create", at=at, given={"name": name, "node": node, "nics": PAIR, "start": True})


def scenario(*steps: Step) -> Scenario:
    first = create("web1", "mock1"), create("web2", "mock2", 1.0), Step("backup", at=2.0)
    return Scenario(3, "plain", SOON, 90.0, NETWORKS, (*first, *steps))


def played(root: Path, *steps: Step, seed: int = 1) -> Result:
    return play(scenario(*steps), str(root / "cloud"), seed)


def said(result: Result) -> list[str]:
    return [each.text for each in result.outcomes]


# -- faults

MIGRATE = Step("migrate", at=10.5, given={"name": "web1", "node": "mock*", "blind": True})
CHANGE = Step("change", at=11.0, given={"name": "web2", "index": 0, "options": {"rate_in": "8mbit"}})
CREATE = create("web3", "mock3", 11.5)
STOP = Step("stop", at=12.0, given={"name": "web2"})
POINTS = FAULTS["agent"].takes["point"].choices
EACH: list[tuple[str, dict[str, Any]]] = [
    *(("partition", {"way": way}) for way in FAULTS["partition"].takes["way"].choices),
    *(("agent", {"point": point, "number": number}) for point in POINTS for number in (1, 3)),
    *(("hook", {"request": number}) for number in (1, 2, 5, 9)),
    *(("older", {"lacks": ability}) for ability in FAULTS["older"].takes["lacks"].choices),
    *(("clock", {"seconds": seconds}) for seconds in (7200.0, -7200.0)),
    ("slow", {"seconds": 30.0}),
    ("copies", {"share": 1.0}),
    ("events", {"lost": 0.5, "repeated": 0.5, "late": 0.5}),
    *((name, {}) for name in ("node", "disk", "registry", "restore")),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "given"), EACH, ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())))
def test_whatever_goes_wrong_heals(tmp_path: Path, name: str, given: dict[str, Any]) -> None:
    """While it is so guests migrate, start and stop, and an operator changes something; on all nodes, and on one."""
    fault = Step(name, at=10.0, given=given, lasts=8.0)
    for number, nodes in enumerate(("*", "mock1") if FAULTS[name].of_node else ("*",)):
        result = played(tmp_path / str(number), fault._replace(nodes=nodes), MIGRATE, CHANGE, CREATE, STOP)
        assert result.violations == (), said(result)
        assert any(each.startswith(f"{name} of ") for each in said(result))


def cloud_of_two(root: Path) -> MockCloud:
    cloud = MockCloud(str(root), 1)
    cloud.create(2)
    cloud.network("blue", {"subnet": "192.0.2.0/24"})
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": PAIR, "start": True})
    cloud.ready([FIRST, SECOND], 30.0)
    return cloud


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    made = cloud_of_two(tmp_path / "cloud")
    yield made
    made.close()


@pytest.fixture
def faults(cloud: MockCloud) -> Faults:
    return Faults(cloud, lambda text: None)


def registry(cloud: MockCloud, node: str) -> str:
    return str(cloud.nodes[node].agent.status()["registry"]).partition(":")[0]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "the registry of this mock cloud is kept in no etcd"),
        ({"lose": "kill 1", "back": "true"}, "the registry of this mock cloud is kept in no etcd"),
        ({"lose": "kill 1"}, "back=''"),
        ({"back": "true"}, "lose=''"),
        ({"lose": "kill '1", "back": "true"}, "lose='kill "),
    ],
)
def test_a_member_that_nobody_can_end_is_refused(cloud: MockCloud, given: dict[str, str], says: str) -> None:
    said: list[str] = []
    Faults(cloud, said.append).strike("etcd", [""], given, 1.0)
    assert len(said) == 1 and said[0].startswith("etcd of the registry cannot be: ") and says in said[0]


def test_a_partition_ends_by_itself_and_the_latest_counts(cloud: MockCloud, faults: Faults) -> None:
    cut = cloud.registry.wire.cut
    faults.strike("partition", [FIRST], {}, 5.0)
    cloud.scheduler.passes(3.0)
    faults.strike("partition", [FIRST], {"way": "answers"}, 5.0)
    cloud.scheduler.passes(4.0)
    assert cut == {FIRST: "answers"}
    cloud.scheduler.passes(2.0)
    assert cut == {}


def test_by_one_way_only_the_other_is_open(cloud: MockCloud, faults: Faults) -> None:
    asked = cloud.registry.wire.asked
    faults.strike("partition", [FIRST, SECOND], {"way": "requests"}, 60.0)
    perform_quietly(cloud, "stop", name="web1")
    cloud.scheduler.passes(10.0)
    own = cloud.registry.wire.asked - asked
    assert {each["report"]["state"] for each in cloud.registry.client().all("reports")} == {"running"}
    assert registry(cloud, FIRST) == "in step", f"streams are heard, {own}"


def perform_quietly(cloud: MockCloud, task: str, **given: Any) -> str:
    try:
        perform(cloud, task, given)
    except Exception as error:
        return str(error)
    return ""


def test_a_hook_is_killed_and_nothing_is_done_after_it(cloud: MockCloud, faults: Faults) -> None:
    machine = cloud.nodes[SECOND]
    before = mock_nodes.picture(machine)
    faults.strike("hook", [SECOND], {"request": 2}, 60.0)
    requests = len(cloud.log)
    assert "has ended with 137: killed" in perform_quietly(cloud, "create", name="web2", node="mock2", nics=PAIR[1:], start=True)
    after = mock_nodes.picture(machine)
    assert (before != after) == (before["links"] != after["links"]) and requests == len(cloud.log)
    cloud.scheduler.passes(5.0)
    assert mock_nodes.picture(machine) == before and mock_nodes.records(machine) == [], "the agent undoes what the hook has begun"


def test_an_agent_that_is_killed_saves_nothing_and_hooks_do_without_it(cloud: MockCloud, faults: Faults) -> None:
    known = Path(cloud.root, "servers", FIRST, "var/lib/netcommon/registry/known.json")
    cloud.scheduler.passes(40.0)
    before = known.read_bytes()
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {"rate_in": "8mbit"}})
    faults.strike("agent", [FIRST], {}, 20.0)
    assert not cloud.nodes[FIRST].alive and known.read_bytes() == before
    perform_quietly(cloud, "create", name="web2", node="mock1", nics=PAIR, start=True)
    assert sorted(mock_nodes.records(cloud.nodes[FIRST])) and len(mock_nodes.records(cloud.nodes[FIRST])) == 4, "the hooks have worked"
    cloud.scheduler.passes(60.0)
    assert cloud.nodes[FIRST].alive and registry(cloud, FIRST) == "in step" and fitting(cloud) == []


@pytest.mark.parametrize("point", [point for point in POINTS if point != "now"])
def test_an_agent_is_killed_at_each_point(cloud: MockCloud, faults: Faults, point: str) -> None:
    faults.strike("agent", [FIRST], {"point": point}, 1000.0)
    assert cloud.nodes[FIRST].alive
    if point == "request":
        cloud.nodes[FIRST].host.nftables.flush()
    perform_quietly(cloud, "change", name="web1", index=0, options={"rate_in": "8mbit"})
    cloud.scheduler.passes(100.0)
    assert not cloud.nodes[FIRST].alive


def test_a_node_that_crashes_loses_what_is_in_memory_and_boots_anew(cloud: MockCloud, faults: Faults) -> None:
    root = Path(cloud.root, "servers", FIRST)
    faults.strike("node", [FIRST], {}, 30.0)
    vm = stored.kept(cloud.root, FIRST, stored.vm_uuid("web1"))
    assert vm is not None and vm.state == "crashed" and FIRST in cloud.off
    assert "mock1 has crashed: it has to boot first" in perform_quietly(cloud, "start", name="web1")
    perform(cloud, "failover", {"name": "web1", "node": "mock2"})
    cloud.scheduler.passes(60.0)
    assert stored.counters(cloud.root, FIRST).boot == 2 and not list((root / "run/netcommon/nics").glob("*"))
    assert cloud.nodes[FIRST].host.identity().boot == "boot-2" and fitting(cloud) == []
    assert not [link for link in cloud.nodes[FIRST].host.kernel.links.values() if link.kind == "tun"]


def test_nothing_is_written_to_a_full_disk(cloud: MockCloud, faults: Faults) -> None:
    faults.strike("disk", [SECOND], {}, 30.0)
    failed = perform_quietly(cloud, "create", name="web2", node="mock2", nics=PAIR, start=True)
    assert "cannot write" in failed and "File too large" in failed
    perform(cloud, "create", {"name": "web3", "node": "mock1", "nics": PAIR, "start": True})
    cloud.scheduler.passes(60.0)
    perform(cloud, "start", {"name": "web2"})
    assert fitting(cloud) == []


def test_the_date_of_one_node_is_wrong(cloud: MockCloud, faults: Faults) -> None:
    faults.strike("clock", [FIRST], {"seconds": -3600.0}, 10.0)
    assert cloud.nodes[FIRST].loop.wall() == pytest.approx(cloud.nodes[SECOND].loop.wall() - 3600.0)
    cloud.scheduler.passes(11.0)
    assert cloud.nodes[FIRST].loop.wall() == cloud.nodes[SECOND].loop.wall()


def test_an_older_registry_begins_another_epoch(cloud: MockCloud, faults: Faults) -> None:
    epoch = cloud.registry.registry.local.view.epoch
    faults.strike("restore", [], {}, 0.0)
    assert cloud.registry.registry.local.view.epoch == epoch and not cloud.restored, "there is no copy"
    faults.strike("backup", [], {}, 0.0)
    perform(cloud, "create", {"name": "web2", "node": "mock2", "nics": PAIR})
    faults.strike("restore", [], {}, 0.0)
    assert cloud.registry.registry.local.view.epoch != epoch and cloud.restored
    labels = {each["label"] for each in cloud.registry.client().all("nics", belongs="instance")}
    assert labels == {"web1/0", "web1/1"}


def test_a_node_of_an_older_version_does_without(cloud: MockCloud, faults: Faults) -> None:
    faults.strike("older", [FIRST], {"lacks": "watch"}, 30.0)
    cloud.scheduler.passes(20.0)
    assert cloud.registry.registry.streams.of(FIRST) == [] and len(cloud.registry.registry.streams.of(SECOND)) == 1
    known = {each["node"]["uuid"]: each["alive"] for each in cloud.registry.client().all("nodes")}
    assert known == {FIRST: True, SECOND: True}, "by signs of life of its own"
    cloud.scheduler.passes(30.0)
    assert len(cloud.registry.registry.streams.of(FIRST)) == 1


# -- when, where, by chance


def test_steps_are_done_when_so_many_actions_were_run(tmp_path: Path) -> None:
    result = played(tmp_path, Step("partition", step=600, nodes="mock1", lasts=5.0), Step("stop", step=900, given={"name": "web2"}))
    (cut,) = (each for each in result.outcomes if each.text.startswith("partition of mock1 way"))
    (stop,) = (each for each in result.outcomes if each.text == "stop web2")
    assert 2.0 < cut.at < stop.at and result.violations == ()


def test_chance_and_count_choose_among_what_matches(tmp_path: Path) -> None:
    steps = Step("partition", at=5.0, nodes="mock[12]", number=1), Step("stop", at=60.0, given={"name": "web*"}, nodes="mock2")
    for seed in (1, 2, 3):
        texts = said(played(tmp_path / str(seed), *steps, Step("disk", at=6.0, chance=0.0), seed=seed))
        assert sum("way=both" in each for each in texts) == 1 and not any(each.startswith("disk") for each in texts)
        assert "stop web2" in texts and "stop web1" not in texts


def test_what_is_refused_is_an_outcome(tmp_path: Path) -> None:
    texts = said(
        played(tmp_path, Step("stop", at=3.0, given={"name": "none"}), Step("migrate", at=4.0, given={"name": "web1", "node": "mars"}))
    )
    assert any("stop none: INSTANCE" in each for each in texts) and any("migrate web1: NODE" in each for each in texts)


# -- the same seed

ALL = (
    Step("events", at=4.0, lasts=30.0),
    Step("partition", at=5.0, chance=0.5, lasts=5.0),
    MIGRATE,
    Step("agent", at=10.9, given={"point": "worked"}, number=1, lasts=3.0),
    CHANGE,
    Step("node", at=11.2, nodes="mock2", lasts=5.0),
    CREATE,
    Step("restore", at=30.0),
)
PROGRAM = """
import sys, tempfile
from mockcloud.scenarios.file import read
from mockcloud.scenarios.running import play
with tempfile.TemporaryDirectory() as root:
    print(play(read(sys.argv[1]), root + "/cloud", int(sys.argv[2])).sha256)
"""


def hashed(file: Path, seed: int, number: int) -> str:
    environ = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(ROOT), "TMPDIR": str(file.parent)}
    command = [sys.executable, "-c", PROGRAM, str(file), str(seed)]
    return subprocess.run(command, check=True, env=environ, capture_output=True, text=True, timeout=600).stdout.strip()


def test_the_same_seed_the_same_log_whatever_python_makes_of_sets(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text(scenario(*ALL)))
    found = [hashed(file, 1, number) for number in range(10 if FULL else 2)]
    assert len(set(found)) == 1 and len(found[0]) == 64
    assert hashed(file, 2, 0) != found[0]


# -- what must not be is seen


def harmed(cloud: MockCloud, harm: Callable[[MockCloud], object]) -> list[str]:
    assert always(cloud) == []
    harm(cloud)
    return always(cloud)


def _vm(cloud: MockCloud, node: str, **changes: Any) -> None:
    vm = stored.kept(cloud.root, FIRST, stored.vm_uuid("web1"))
    assert vm is not None
    stored.keep(cloud.root, node, vm._replace(**changes))


def _record_goes(cloud: MockCloud) -> None:
    next(Path(cloud.root, "servers", FIRST, "run/netcommon/nics").iterdir()).unlink()


def _also_there(cloud: MockCloud) -> None:
    _vm(cloud, SECOND)


def _two_routes(cloud: MockCloud) -> None:
    here, there = (cloud.nodes[each].host.kernel for each in (FIRST, SECOND))
    cloud.nodes[SECOND].host.add_tap("tap9", 7)
    link = there.named("tap9")
    assert link is not None
    there.routes.append(next(each for each in here.routes if each.destination.endswith("/32"))._replace(index=link.index))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda cloud: cloud.nodes[FIRST].host.let_go("tap0"), "its guest runs, and its device is None"),
        (_record_goes, "its guest runs, and it is on no record"),
        (_also_there, "runs on 2 nodes"),
        (_two_routes, "is routed on mock1 and mock2"),
    ],
)
def test_what_must_never_be_is_seen(cloud: MockCloud, harm: Callable[[MockCloud], object], says: str) -> None:
    assert any(says in each for each in harmed(cloud, harm))


NIC, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
WANTED = b'{"mac": "aa:00:00:00:00:01", "network": "n"}'


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (((f"nics/{NIC}", WANTED), ("macs/n/aa:00:00:00:00:01", b'{"holder": "%s"}' % NIC.encode())), ""),
        (((f"nics/{NIC}", WANTED),), "wants aa:00:00:00:00:01, and has no claim to it"),
        (((f"nics/{NIC}", WANTED), ("macs/n/aa:00:00:00:00:01", b'{"holder": "%s"}' % OTHER.encode())), "has no claim to it"),
        ((("macs/n/aa:00:00:00:00:01", b'{"holder": "%s"}' % NIC.encode()),), "which does not want it"),
    ],
)
def test_a_commit_that_parts_a_nic_from_its_claims_is_seen(changes: tuple[tuple[str, bytes], ...], says: str) -> None:
    commits = Commits()
    commits.hear(None, Batch(5, tuple(Changed(*each) for each in changes)))  # type: ignore[arg-type]
    assert (commits.found == []) if not says else any(says in each for each in commits.found)


def test_a_claim_that_is_freed_before_its_nic_is_seen() -> None:
    commits = Commits()
    key, held = "macs/n/aa:00:00:00:00:01", b'{"holder": "%s"}' % NIC.encode()
    commits.hear(None, Batch(5, (Changed(f"nics/{NIC}", WANTED), Changed(key, held))))  # type: ignore[arg-type]
    commits.hear(None, Batch(6, (Changed(key, b"{}"),)))  # type: ignore[arg-type]
    assert len(commits.found) == 1 and "is wanted by NIC" in commits.found[0]


def test_what_does_not_fit_when_all_is_quiet_is_seen(cloud: MockCloud) -> None:
    commits = Commits()
    cloud.registry.listen(lambda registry: commits.begin(registry.items()))
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {"rate_in": "8mbit"}})
    cloud.scheduler.passes(ABOUT_OFTEN + 1.0)  # each node has looked by then at what there is on it, which is a mark for a moment
    assert settled(cloud, commits) == []
    wanted = next(Path(cloud.root, "servers", SECOND, "var/lib/netcommon/wanted").glob("*.json"))
    kept = wanted.read_text()
    wanted.unlink()
    assert ["lies on mock2's disk" in each for each in settled(cloud, commits)] == [True]
    wanted.write_text(kept)
    cloud.nodes[SECOND].kill()
    assert any("the agent of mock2 is killed" in each for each in settled(cloud, commits))


def test_memory_and_descriptors_that_are_not_given_back_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    close = MockCloud.close

    def keeps(cloud: MockCloud) -> None:
        kept.extend([cloud.nodes[FIRST], os.open("/dev/null", os.O_RDONLY)])
        close(cloud)

    monkeypatch.setattr(MockCloud, "close", keeps)
    found = [each.text for each in played(tmp_path).violations]
    os.close(kept[1])
    assert any("are in memory still" in each for each in found) and any("descriptors are open still" in each for each in found)


def test_a_cloud_that_another_process_goes_on_with_has_booted(tmp_path: Path) -> None:
    with opened(tmp_path / "cloud") as first:
        first.create(2)
        first.ready([FIRST, SECOND], 30.0)
        first.crash(FIRST)
        first.boot(FIRST)
        first.scheduler.passes(10.0)
    with opened(tmp_path / "cloud") as second:
        second.ready([FIRST], 30.0)
        assert second.nodes[FIRST].host.identity().boot == "boot-2"


def test_the_file_of_the_documentation_is_one() -> None:
    assert parsed(text(scenario(*ALL))).steps[3:] == ALL


def test_a_node_that_boots_while_its_disk_is_full_has_an_agent_once_there_is_room(tmp_path: Path) -> None:
    """As systemd starts one that has ended: seeds of the search were red, and an agent's start was tried once."""
    steps = Step("disk", at=5.0, lasts=12.0), Step("node", at=8.0, lasts=1.0, nodes="mock2")
    both = []
    for folder in ("a", "b"):
        log = tmp_path / f"{folder}.log"
        with log.open("w", encoding="utf-8") as file:
            both.append(play(Scenario(2, "plain", SOON, 90.0, NETWORKS, steps), str(tmp_path / folder / "cloud"), 1, file))
        assert both[-1].violations == ()
        said = [line for line in log.read_text().splitlines() if "mock2 error: the agent cannot start: cannot write 'CLOUD/" in line]
        assert len(said) == 4 and TEMPORARY not in log.read_text(), said
    assert both[0].sha256 == both[1].sha256


def test_an_agent_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_agent: object) -> None:
        raise HostRefused("planted")

    with opened(tmp_path / "cloud") as cloud:
        cloud.create(1)
        monkeypatch.setattr("netagent.agent.Agent.start", broken)
        with pytest.raises(TryAgain, match=r"mock1 is not in step with the registry: it cannot start: planted$"):
            cloud.ready([FIRST], 10.0)
        monkeypatch.undo()
        cloud.scheduler.passes(20.0)
        assert cloud.nodes[FIRST].agent.status()["registry"] == "in step" and cloud.nodes[FIRST].failed == ""


def test_an_agent_that_is_killed_while_it_cannot_start_is_started_by_nobody_else(tmp_path: Path) -> None:
    """Check that a crash and the end of the fault `agent` find one agent: no second one is begun by what waits."""
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(1)
        cloud.ready([FIRST], 20.0)
        cloud.crash(FIRST)
        cloud.boot(FIRST)
        node = cloud.nodes[FIRST]
        node.full = True
        cloud.scheduler.passes(5.0)
        assert node.failed and node.alive
        node.kill()
        cloud.scheduler.passes(10.0)
        assert not node.alive
        node.revive()  # onto the full disk: it cannot start there either
        assert node.failed
        node.full = False
        cloud.scheduler.passes(20.0)
        assert settled(cloud) == [] and node.failed == ""
