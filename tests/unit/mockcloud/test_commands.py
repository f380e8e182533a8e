"""The commands for nodes: what they print, what bad input gets, and that one that was killed is completed by the next."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mockcloud import limits, own_nics, state
from mockcloud.cloud import MockCloud
from mockcloud.limits import Room
from mockcloud.sysinfo import node_uuid
from runtime.errors import HostRefused
from tests.support.bootstrap import ROOT
from tests.support.killing_steps import everywhere, opened
from tests.support.mockcloud import Mockcloud


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    return Mockcloud(tmp_path / "cloud")


def names(said: dict[str, object]) -> list[str]:
    nodes = said["nodes"]
    assert isinstance(nodes, list)
    return [each["hostname"] for each in nodes]


def test_nodes_are_created_counted_listed_and_deleted(run: Mockcloud) -> None:
    made = run.json("create", "2")["nodes"]
    assert [each["uuid"] for each in made] == [node_uuid(1), node_uuid(2)] and all(each["system_type"] == "Virtual" for each in made)
    assert run("create").splitlines()[1].split()[:3] == ["mock3", node_uuid(3), "plain"]
    assert names(run.json("list")) == ["mock1", "mock2", "mock3"]
    assert run.json("count")["nodes"] == 3
    assert names(run.json("delete", "mock2", node_uuid(1).upper(), "mock2")) == ["mock1", "mock2"]
    assert names(run.json("list")) == ["mock3"]
    assert run.json("count", "1")["nodes"] == 1 and run.json("count", "3", "--profile", "single")["nodes"] == 3
    assert [each["profile"] for each in run.json("list")["nodes"]] == ["plain", "single", "single"]
    assert run("count", "0") == "0 nodes, 0 alive by the registry\n" and names(run.json("list")) == []


def test_status_runs_the_agents(run: Mockcloud) -> None:
    run("create", "3")
    first = run.json("status")
    assert [(each["alive"], each["agent"]["registry"]) for each in first["nodes"]] == [(True, "in step")] * 3
    assert [each["alive"] for each in run.json("list")["nodes"]] == [True] * 3, "time stands still in between"
    second = run.json("status", "mock2", "--seconds", "60")
    assert names(second) == ["mock2"] and 60.0 <= second["now"] - first["now"] < 65.0
    assert [each["alive"] for each in run.json("list")["nodes"]] == [False, True, False], "the others did not run"
    assert run("status", "mock3").split()[-5:] == ["mock3", "yes", "0", "in", "step"]


def test_every_node_gets_a_nic_in_a_network(run: Mockcloud) -> None:
    run("create", "2")
    assert "there is no network 'external'" in run("nics", "external", status=69)
    made = run.json("nics", "external", "--subnet", "198.18.0.0/24")["nodes"]
    assert [each["external"][0]["address"] for each in made] == ["198.18.0.1", "198.18.0.2"]
    assert run.json("nics", "external")["nodes"] == made, "once"
    (third,) = run.json("create")["nodes"]
    assert third["external"][0]["address"] == "198.18.0.3"
    run("status")
    with MockCloudIn(run.folder) as cloud:
        nodes = {each["node"]["name"]: each["about"]["interfaces"] for each in cloud.registry.client().all("nodes")}
        for node in (*made, third):
            (own,) = [each for each in nodes[node["hostname"]] if each["name"] == "external"]
            assert (own["mac"], own["addresses"], own["up"]) == (node["external"][0]["mac"], [node["external"][0]["address"]], True)
        held = [each["nic"]["ip"] for each in cloud.registry.client().all("nics", belongs="server") if each["nic"]["name"] == "external"]
        assert sorted(held) == ["198.18.0.1", "198.18.0.2", "198.18.0.3"]
    assert [each["external"] for each in run.json("nics", "external", "--remove")["nodes"]] == [[], [], []]
    with MockCloudIn(run.folder) as cloud:
        assert [each["nic"]["name"] for each in cloud.registry.client().all("nics")] == ["admin"] * 3
    assert run.json("create")["nodes"][0]["external"] == []


class MockCloudIn:
    """The cloud of a folder, between two commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> MockCloud:
        self._cloud = MockCloud(str(self._folder))
        return self._cloud

    def __exit__(self, *_: object) -> None:
        self._cloud.close()


def test_agents_that_run_see_a_nic_come_and_go(tmp_path: Path) -> None:
    with MockCloudIn(tmp_path) as cloud:
        (node,) = cloud.create(1)
        cloud.start(20.0)

        def interfaces() -> list[str]:
            (known,) = cloud.registry.client().all("nodes")
            return [each["name"] for each in known["about"]["interfaces"]]

        before = interfaces()
        own_nics.attach(cloud, "external", "198.18.0.0/24")
        cloud.scheduler.passes(700.0)
        assert interfaces() == [*before, "external"] and cloud.nodes[node.uuid].host.kernel.named("external") is not None
        own_nics.detach(cloud, "external")
        cloud.scheduler.passes(700.0)
        assert interfaces() == before


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("create", "0"), 64, "NUMBER='0': expected a number from 1 on"),
        (("count", "--", "-1"), 64, "NUMBER='-1': expected a number from 0 on"),
        (("create", "many"), 2, "'many' is not a valid integer"),
        (("create", "1000000000"), 69, "1000000000 nodes are more than this machine can hold: "),
        (("count", "1000000000"), 69, "1000000000 nodes are more than this machine can hold: "),
        (("create", "--profile", "huge"), 2, "'huge' is not one of"),
        (("delete",), 2, "Missing argument 'NODE...'"),
        (("delete", "mock7"), 64, "NODE='mock7': expected the UUID or hostname of a node"),
        (("delete", "mock1", "web\x1b[31m"), 64, "NODE='web\\x1b[31m': expected"),
        (("status", "mock0"), 64, "NODE='mock0': expected"),
        (("status", "--seconds", "0"), 64, "--seconds='0': expected more than 0"),
        (("status", "--seconds", "nan"), 64, "--seconds='nan': expected more than 0"),
        (("nics", "eth0", "--subnet", "198.18.0.0/24"), 64, "NETWORK='eth0': expected a name that no device has: every node has one"),
        (
            ("nics", "br1", "--subnet", "198.18.0.0/24"),
            64,
            "NETWORK='br1': expected a name that no device has: nodes of the profile plain",
        ),
        (("nics", "tap0", "--subnet", "198.18.0.0/24"), 64, "NETWORK='tap0': expected a name that no device has: taps of guests"),
        (("nics", "admin", "--subnet", "198.18.0.0/24"), 64, "NETWORK='admin': expected a name that no device has: the NIC behind eth0"),
        (("nics", "a/b", "--subnet", "198.18.0.0/24"), 64, "NETWORK='a/b': expected an interface name"),
        (("nics", "external", "--subnet", "198.18.0.1/24"), 64, "--subnet='198.18.0.1/24': expected"),
        (("nics", "external", "--subnet", "2001:db8::/64"), 64, "--subnet='2001:db8::/64': expected"),
        (("nics", "external", "--remove"), 69, "no node has a NIC of its own in 'external'"),
        (("nics", "external", "--remove", "--subnet", "198.18.0.0/24"), 2, "give one of them"),
        (("lst",), 2, "No such command 'lst'"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(run: Mockcloud, words: tuple[str, ...], status: int, said: str) -> None:
    run("create")
    before = run.json("list")
    assert said in run(*words, status=status)
    assert run.json("list") == before


@pytest.mark.parametrize("command", ["list", "status", "delete mock1", "nics external", "count", "count 0"])
def test_a_cloud_that_is_not_there_is_not_made(run: Mockcloud, command: str) -> None:
    assert "there is no mock cloud in" in run(*command.split(), status=69)
    assert not run.folder.exists()


def test_what_does_not_fit_begins_no_cloud(run: Mockcloud) -> None:
    assert "more than this machine can hold" in run("create", "1000000000", status=69)
    assert not run.folder.exists()


def test_two_do_not_work_on_one_cloud(run: Mockcloud) -> None:
    run("create")
    descriptor = os.open(run.folder / state.LOCK, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "another process is at work on the mock cloud" in run("list", status=75)
    os.close(descriptor)
    assert names(run.json("list")) == ["mock1"]


@pytest.mark.parametrize("said", ["", "[]", '{"starts": 1}', '{"starts": 1, "time": NaN, "closed": true, "external": []}'])
def test_a_cloud_that_somebody_has_edited_is_refused(run: Mockcloud, said: str) -> None:
    run("create")
    (run.folder / state.FILE).write_text(said)
    assert "cloud.json is not what mockcloud has written" in run("list", status=69)


@pytest.mark.parametrize("time", ["Infinity", "-Infinity", "NaN", "1e300", "253402300800.0"])
def test_a_cloud_with_a_time_that_no_clock_says_is_refused(run: Mockcloud, time: str) -> None:
    """Refuse a time in cloud.json that no clock can show: it was taken, and a later command ended with an OverflowError."""
    run("create")
    path = run.folder / state.FILE
    said = path.read_text()
    path.write_text(re.sub(r'"time": [^,]*', f'"time": {time}', said))
    assert "cloud.json is not what mockcloud has written" in run("list", status=69)
    path.write_text(re.sub(r'"time": [^,]*', '"time": 253402300799.0', said))
    run("list")


def test_a_node_that_somebody_has_edited_is_named_and_the_others_go_on(run: Mockcloud) -> None:
    run("create", "2")
    path = run.folder / "servers" / node_uuid(1) / "sysinfo.json"
    path.write_text(path.read_text().replace("Virtual", "Physical"))
    said = run.json("status")
    assert names(said) == ["mock2"] and str(path) in said["refused"][0]
    assert run.json("count")["refused"] == 1
    run("delete", "mock1")
    assert run.json("list")["refused"] == [] and not path.parent.exists()


def test_what_names_a_node_that_somebody_has_edited_is_refused(run: Mockcloud) -> None:
    """Refuse a command that names an edited node, and do not strike the others alone; one that names none says which it left alone."""
    run("create", "3")
    path = run.folder / "servers" / node_uuid(3) / "sysinfo.json"
    path.write_text("{")
    why = f"{path} is not what mockcloud has written: put it back, or delete the node"
    for words in (("fault", "node", "mock3"), ("fault", "agent", "mock1", "mock3"), ("nictags", "mock3", "--add", "guests")):
        assert run(*words, status=69) == f"mockcloud: {why}\n"
    assert run.json("nictags", "--add", "guests")["refused"] == [why]
    first, *others = [each["text"] for each in run.json("fault", "agent", "--for", "1", "--settle", "5")["outcomes"]]
    assert first == f"left alone: {why}" and {each.split()[2] for each in others} == {"mock1", "mock2"}
    path.unlink()
    assert "was not made or not deleted to the end" in run("fault", "node", "mock3", status=69)


@pytest.mark.parametrize("said", ["{", "", None], ids=["damaged", "empty", "gone"])
def test_a_node_that_has_lost_what_it_joined_with_is_named_and_the_others_go_on(run: Mockcloud, said: str | None) -> None:
    run("create", "2")
    path = run.folder / "servers" / node_uuid(1) / "var/lib/netcommon/node.json"
    path.unlink() if said is None else path.write_text(said)
    found = run.json("status")
    assert names(found) == ["mock2"] and len(found["refused"]) == 1
    assert found["refused"][0] == f"mock1: {path} does not say which node this is: delete it, and make another one"
    assert run("status").splitlines()[1].split() == ["mock2", "yes", "0", "in", "step"]
    assert "does not say which node this is: delete it" in run("fault", "clock", "--settle", "1", status=69)
    run("delete", "mock1")
    assert names(run.json("status")) == ["mock2"]


def test_status_says_of_each_node_how_it_stands_with_its_registry(run: Mockcloud) -> None:
    """Its agent says nothing of one that it does not ask, and where it cannot start."""
    run("create", "2")
    path = run.folder / "servers" / node_uuid(1) / "etc/netcommon/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[registry]\nsync = false\n")
    assert "away: its agent asks none" in run("status").splitlines()[1]
    with MockCloudIn(run.folder) as cloud:
        cloud.start()
        cloud.crash(node_uuid(2))
        cloud.boot(node_uuid(2))
        cloud.nodes[node_uuid(2)].full = True
        cloud.scheduler.passes(2.0)
        assert str(cloud.status(node_uuid(2))["registry"]).startswith("away: its agent cannot start: ")


def machine(root: Path, free: int, watches: int, most: str = "max", used: int = 0) -> tuple[str, str]:
    """Write what a machine says of itself."""
    (root / "sys/fs/inotify").mkdir(parents=True)
    (root / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {free >> 10} kB\n")
    (root / "sys/fs/inotify/max_user_watches").write_text(f"{watches}\n")
    (root / "memory.max").write_text(f"{most}\n")
    (root / "memory.current").write_text(f"{used}\n")
    return str(root), str(root)


@pytest.mark.parametrize(
    ("free", "watches", "most", "used", "room"),
    [
        (limits.BASE + 100 * limits.MEMORY, 10**6, "max", 0, (100, "memory")),
        (1 << 40, 30, "max", 0, (10, "watches")),
        (1 << 40, 10**6, str(limits.BASE + 60 * limits.MEMORY), 10 * limits.MEMORY, (50, "memory")),
        (1 << 10, 10**6, "max", 0, (0, "memory")),
    ],
)
def test_what_fits_is_said_by_what_there_is_least_of(
    tmp_path: Path, free: int, watches: int, most: str, used: int, room: tuple[int, str]
) -> None:
    proc, cgroup = machine(tmp_path / "machine", free, watches, most, used)
    found = limits.room(str(tmp_path / "not" / "there"), proc, cgroup)
    assert found[:2] == room
    limits.check(found.nodes, found)
    with pytest.raises(HostRefused, match=f"{found.nodes + 1} nodes are more .*: {found.nodes} fit, by .* free, .* for a node"):
        limits.check(found.nodes + 1, found)


@pytest.mark.parametrize(
    ("free", "watches", "there", "running", "room"),
    [
        (100, 10**6, 10, 0, (100, "memory")),  # those that are on disk have no memory yet
        (100, 10**6, 40, 30, (130, "memory")),  # those that run have theirs, and what is free is for others
        (100, 360, 40, 30, (120, "watches")),  # which are limited for all together
    ],
)
def test_nodes_that_run_need_no_more_memory(
    tmp_path: Path, free: int, watches: int, there: int, running: int, room: tuple[int, str]
) -> None:
    proc, cgroup = machine(tmp_path / "machine", limits.BASE + free * limits.MEMORY, watches, "max", 0)
    assert limits.room(str(tmp_path), proc, cgroup, there=there, running=running)[:2] == room


def test_nodes_that_speak_tls_need_memory_for_it(tmp_path: Path) -> None:
    proc, cgroup = machine(tmp_path / "machine", limits.BASE + 100 * (limits.MEMORY + limits.OF_TLS), 10**6, "max", 0)
    assert limits.room(str(tmp_path), proc, cgroup, sockets=limits.SOCKETS, tls=True)[:2] == (100, "memory")


def test_nodes_that_are_on_disk_need_no_more_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, cgroup = machine(tmp_path / "machine", 1 << 40, 10**6, "max", 0)
    found = os.statvfs(tmp_path)
    values = [*found[:5], limits.INODES * 9, limits.INODES * 5, limits.INODES * 5, *found[8:]]
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(values))
    assert limits.room(str(tmp_path), proc, cgroup)[:2] == (5, "inodes")
    assert limits.room(str(tmp_path), proc, cgroup, there=10, running=10)[:2] == (15, "inodes")


def test_a_cloud_at_the_limit_counts_goes_on_and_shrinks(run: Mockcloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is free, and the nodes that are there have what they need."""
    run("create", "3")
    room = limits.room

    def full(*given: Any, there: int = 0, running: int = 0, **named: Any) -> Room:
        return Room(min(there, running), "memory", 0, 1)

    with opened(run.folder) as cloud, monkeypatch.context() as patch:
        cloud.start(1.0)
        patch.setattr(limits, "room", full)
        cloud.start(1.0)
        assert cloud.count(3).nodes == 3
        with pytest.raises(HostRefused, match=r"4 nodes are more .*: 3 fit"):
            cloud.create(1)
    monkeypatch.setattr(limits, "room", lambda *given, there=0, **named: room(*given, **named)._replace(nodes=there, least="disk"))
    assert "3 fit, by room on disk" in run("count", "4", status=69)
    run("count", "2")
    assert run.json("count")["nodes"] == 2


def test_a_machine_that_says_nothing_limits_little(tmp_path: Path) -> None:
    assert limits.room(str(tmp_path), str(tmp_path / "none"), str(tmp_path / "none")).least in ("numbers", "disk", "inodes")


def test_help_is_quick() -> None:
    """Help imports neither a node nor a registry."""
    code = (
        "import sys; from mockcloud.cli import main; sys.argv = ['mockcloud', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('mockcloud.', 'netagent', 'netregistry')) or name == 'json'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "Exit status" in done.stdout
    assert done.stdout.splitlines()[-1] == str(["mockcloud.cli", "mockcloud.cli.group"])


def test_errors_are_said_in_json_too(run: Mockcloud) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mockcloud", "list", "--json", "--cloud", str(run.folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 69 and json.loads(done.stdout)["schema"] == "netcommon-error"
    assert done.stderr.startswith("mockcloud: there is no mock cloud in ")


def test_a_network_that_has_no_room_for_all_nodes_changes_nothing(run: Mockcloud) -> None:
    run("create", "3")
    before = run.json("list")
    for _ in range(2):
        said = run("nics", "ext", "--subnet", "198.21.0.0/30", status=69)
        assert "mock3 gets no NIC of its own in ext: ext has no free IPv4 address" in said and "nothing has changed" in said
        assert run.json("list") == before
    (made,) = run.json("create")["nodes"]
    assert (made["hostname"], made["external"]) == ("mock4", [])
    run("status")
    nodes = run.json("nics", "ext", "--subnet", "198.21.0.0/24")["nodes"]
    assert [each["external"][0]["address"] for each in nodes] == [f"198.21.0.{number}" for number in range(1, 5)]


def test_a_node_that_finds_no_room_in_a_network_is_refused_and_the_way_out_is_said(run: Mockcloud) -> None:
    run("create", "2")
    run("nics", "ext", "--subnet", "198.21.0.0/30")
    before, way_out = run.json("list"), "mockcloud nics ext --remove takes these NICs from all nodes"
    for words in (("create", "1"), ("count", "5"), ("create", "1", "--underlay", "fd00:1::/48")):
        said = run(*words, status=69)
        assert "mock3 gets no NIC of its own in ext" in said and said.endswith(f": {way_out}\n")
        assert run.json("list") == before and len(list((run.folder / "servers").iterdir())) == 2
    run("nics", "ext", "--remove")
    assert names(run.json("create", "1", "--underlay", "fd00:2::/48")) == ["mock3"], "nothing that was refused has left an underlay"


def test_external_nics_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(cloud: MockCloud) -> None:
        cloud.create(2)

    def picture(cloud: MockCloud) -> object:
        """Give what everybody has, where folders and registry agree; which MACs they are is drawn by chance."""
        nics = {(each["nic"]["instance"], each["nic"]["name"]): each["nic"] for each in cloud.registry.client().all("nics")}
        has = {(node["hostname"], each["name"]): each for node in cloud.list() for each in node["external"]}
        assert all(nics[which]["mac"] == each["mac"] and nics[which]["ip"] == each["address"] for which, each in has.items())
        return sorted(has), sorted((*which, each["ip"]) for which, each in nics.items()), cloud.external

    def attach(cloud: MockCloud) -> None:
        own_nics.attach(cloud, "external", "198.18.0.0/24")

    def attached(cloud: MockCloud) -> None:
        prepare(cloud)
        attach(cloud)

    assert everywhere(tmp_path / "attach", monkeypatch, prepare, attach, picture) > 6
    assert everywhere(tmp_path / "detach", monkeypatch, attached, lambda cloud: own_nics.detach(cloud, "external"), picture) >= 5


@pytest.mark.parametrize(
    ("option", "typed", "kept"),
    [("--subnet6", "2001:DB8::/64", "2001:db8::/64"), ("--subnet6", "2001:db8:0::/64", "2001:db8::/64")],
)
def test_a_network_may_be_asked_for_in_any_spelling(run: Mockcloud, option: str, typed: str, kept: str) -> None:
    """Take the prefix of a network in any spelling: the network was made, and said to be refused, each time."""
    run("create", "1")
    for _time in range(2):
        assert kept in run("network", "six", option, typed)
    refused = run("network", "six", option, "2001:db8:1::/64", status=64)
    assert f"{option}='2001:db8:1::/64': expected that of six, which is {kept}, or none" in refused
    assert f"{option}='nonsense': expected an IPv6 prefix" in run("network", "six", option, "nonsense", status=64)
