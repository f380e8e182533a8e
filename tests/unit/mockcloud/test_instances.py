"""Instances on simulated nodes: each command, what bad input gets, kills at any point, and fifty nodes with two hundred of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud import stored
from mockcloud.cloud import MockCloud
from mockcloud.hypervisor import HookFailed
from mockcloud.instances.side import Side
from mockcloud.instances.tasks import SECONDS, Instances, NotShown
from mockcloud.invariants import fitting as wrong
from mockcloud.invariants import settled
from mockcloud.sysinfo import node_uuid
from runtime.folder import TEMPORARY
from tests.support import mock_nodes
from tests.support.killing_steps import Killed, everywhere, killed, opened
from tests.support.mockcloud import Mockcloud
from tests.support.sample import FULL

FIRST, SECOND = node_uuid(1), node_uuid(2)
TWO = ({"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"})
PAIR = ("--nic", "network=blue", "--nic", "network=blue,mode=routed,link=guests")


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """The same in this process."""
    with opened(tmp_path / "cloud") as made:
        prepare(made)
        yield made


def prepare(cloud: MockCloud) -> None:
    cloud.create(2)
    cloud.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})


def one(said: dict[str, Any]) -> Any:
    (found,) = said["instances"]
    return found


def checked(run: Mockcloud) -> list[str]:
    """Hold all against each other, with every agent running."""
    with opened(run.folder) as cloud:
        cloud.ready([FIRST, SECOND], 5.0)
        return wrong(cloud)


# -- each command


def test_an_instance_is_created_started_stopped_and_deleted(run: Mockcloud) -> None:
    made = one(run.json("instance", "create", "web1", "--node", "mock1", *PAIR, "--tag", "netcommon:0:rate_in:8mbit"))
    assert (made["node"], made["state"], [nic["shown"] for nic in made["nics"]]) == ("mock1", "stopped", ["provisioning"] * 2)
    assert [(nic["ip"], nic["mode"], nic["link"]) for nic in made["nics"]] == [
        ("192.0.2.1", "bridged", "br0"),
        ("192.0.2.2", "routed", "guests"),
    ]
    started = one(run.json("instance", "start", "web1"))
    assert (started["state"], [(nic["tap"], nic["shown"]) for nic in started["nics"]]) == (
        "running",
        [("tap0", "running"), ("tap1", "running")],
    )
    assert run.json("instance", "list")["instances"] == [started]
    assert one(run.json("instance", "start", "web1")) == started, "it runs already"
    assert checked(run) == []
    stopped = one(run.json("instance", "stop", "web1"))
    assert (stopped["state"], [(nic["tap"], nic["shown"]) for nic in stopped["nics"]]) == ("stopped", [("", "stopped")] * 2)
    assert checked(run) == []
    assert run.json("instance", "delete", "web1")["instances"] == []
    assert run.json("instance", "list")["instances"] == [] and checked(run) == []


def test_what_was_stopped_when_it_was_deleted_is_forgotten_with_time(run: Mockcloud) -> None:
    """An agent that was started after the crash does not know what was reported before; its first comparison does."""
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "crash", "web1")
    run("instance", "delete", "web1")
    with opened(run.folder) as cloud:
        cloud.ready([FIRST, SECOND], 5.0)
        cloud.scheduler.passes(700.0)
        assert list(cloud.registry.client().all("reports")) == [] and wrong(cloud) == []


def test_tags_and_networks_come_to_the_hook(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--tag", "netcommon:0:rate_in:8mbit", "--start")
    (path,) = (run.folder / "servers" / FIRST / "run/netcommon/nics").glob("*.json")
    environment = json.loads(path.read_text())["nic"]
    assert {**environment, "MAC": ""} == {
        "INTERFACE": "tap0",
        "INTERFACE_UUID": stored.nic_uuid("web1", 0),
        "INTERFACE_INDEX": "0",
        "INSTANCE": "web1",
        "MODE": "bridged",
        "LINK": "br0",
        "BRIDGE": "br0",
        "MAC": "",
        "IP": "192.0.2.1",
        "VLAN": "",
        "TAGS": "netcommon:0:rate_in:8mbit",
        "NETWORK_NAME": "blue",
        "NETWORK_UUID": environment["NETWORK_UUID"],
        "NETWORK_SUBNET": "192.0.2.0/24",
        "NETWORK_GATEWAY": "192.0.2.254",
        "NETWORK_MAC_PREFIX": "02:4d:43",
    }


def test_a_reboot_is_another_process_with_the_same_description(run: Mockcloud) -> None:
    before = one(run.json("instance", "create", "web1", "--node", "mock1", *PAIR, "--start"))
    assert one(run.json("instance", "update", "web1", "0", "link=br1"))["nics"][0]["shown"] == "pending restart"
    after = one(run.json("instance", "reboot", "web1"))
    assert after["pid"] > before["pid"] and after["nics"][0]["shown"] == "pending restart" and checked(run) == []
    run("instance", "stop", "web1")
    assert one(run.json("instance", "start", "web1"))["nics"][0]["shown"] == "running", "a start has what is wanted"


def test_a_crash_leaves_ganetis_files_and_nothing_else(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    crashed = one(run.json("instance", "crash", "web1"))
    assert (crashed["state"], [nic["shown"] for nic in crashed["nics"]]) == ("crashed", ["stopped"] * 2)
    assert (run.folder / "servers" / FIRST / "var/run/ganeti/kvm-hypervisor/conf/web1.runtime").exists() and checked(run) == []
    assert "web1 does not run: it is crashed" in run("instance", "crash", "web1", status=69)
    assert one(run.json("instance", "start", "web1"))["state"] == "running" and checked(run) == []


def test_a_migration_takes_everything_with_it(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "change", "web1", "0", "rate_in=8mbit")
    moved = one(run.json("instance", "migrate", "web1", "mock2"))
    assert (moved["node"], [nic["shown"] for nic in moved["nics"]]) == ("mock2", ["running"] * 2)
    assert checked(run) == []
    with opened(run.folder) as cloud:
        (report,) = cloud.registry.client().all("reports", nic=stored.nic_uuid("web1", 0), node=SECOND)
        assert [each["value"][:1] for each in report["report"]["options"] if each["name"] == "rate_in"] == ["8"]
    assert one(run.json("instance", "migrate", "web1", "mock2")) == moved, "it is there already"


def test_a_migration_that_fails_leaves_the_guest_where_it_is(run: Mockcloud) -> None:
    started = one(run.json("instance", "create", "web1", "--node", "mock1", *PAIR, "--start"))
    assert one(run.json("instance", "migrate", "web1", "mock2", "--fail")) == started and checked(run) == []


def test_on_the_target_a_guest_is_incoming_first(cloud: MockCloud) -> None:
    """The real lifecycle tells it by Ganeti's files: what only one node may have is owed until the guest is there."""
    instances = Instances(cloud)
    instances.create("web1", FIRST, TWO)
    instances.start("web1")
    seen: list[tuple[str, str, bool]] = []
    waiting = instances._waiting

    def watched(lack: Callable[[], str], blind: bool = False) -> Iterator[None]:
        yield from waiting(lack, blind)
        for node in (FIRST, SECOND):
            for path in Path(cloud.root, "servers", node, "run/netcommon/nics").glob("*.json"):
                record = json.loads(path.read_text())
                seen.append((node, record["nic"]["MODE"], record.get("incoming", False)))

    instances._waiting = watched  # type: ignore[method-assign]
    instances.migrate("web1", SECOND)
    before = [(FIRST, "routed", False), (FIRST, "bridged", False), (SECOND, "bridged", True)]
    assert sorted(seen[:3]) == sorted(before), "the guest is on its way"
    assert sorted(seen[-2:]) == sorted([(SECOND, "bridged", False), (SECOND, "routed", False)])


def test_a_failover_stops_and_starts(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "crash", "web1")
    moved = one(run.json("instance", "failover", "web1", "mock2"))
    assert (moved["node"], moved["state"]) == ("mock2", "running") and checked(run) == []
    assert one(run.json("instance", "failover", "web1", "mock1"))["node"] == "mock1" and checked(run) == []


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("ifdown", [(), ("--ifdown",)])
def test_nics_are_plugged_and_unplugged(run: Mockcloud, runs: bool, ifdown: tuple[str, ...]) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, *(("--start",) if runs else ()))
    plugged = one(run.json("instance", "plug", "web1", "network=blue", "link=br1"))
    assert [nic["tap"] for nic in plugged["nics"]] == (["tap0", "tap1", "tap2"] if runs else [""] * 3)
    assert checked(run) == []
    left = one(run.json("instance", "unplug", "web1", "0", *ifdown))
    assert [(nic["index"], nic["uuid"], nic["tap"]) for nic in left["nics"]] == [
        (place, nic["uuid"], nic["tap"]) for place, nic in enumerate(plugged["nics"][1:])
    ]
    assert checked(run) == []
    again = one(run.json("instance", "plug", "web1", "network=blue"))
    assert again["nics"][2]["uuid"] == stored.nic_uuid("web1", 3), "no UUID comes twice"
    run("instance", "stop" if runs else "start", "web1", *(ifdown if runs else ()))
    assert checked(run) == []


@pytest.mark.parametrize("ifdown", [(), ("--ifdown",)])
def test_a_down_is_called_where_that_is_asked_for(run: Mockcloud, ifdown: tuple[str, ...]) -> None:
    """Without it, as with Ganeti 3.0, the agent undoes what was done when it sees that the tap is gone."""
    run("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--start")
    run("instance", "stop", "web1", *ifdown)
    (log,) = [path.read_text() for path in (run.folder / "servers" / FIRST / "logs").iterdir() if "stop-web1" in path.name]
    assert ("mock1 info: web1/0 is down on tap0\n" in log) == bool(ifdown) and "undone: nft: tap0 is guarded" in log
    assert checked(run) == []


def test_what_an_operator_changes_is_in_force_when_the_command_returns(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    for value, shaped in (("rate_in=8mbit", True), ("rate_in=9mbit", True), ("rate_in=", False)):
        run("instance", "change", "web1", "0", value)
        with opened(run.folder) as cloud:
            cloud.ready([FIRST], 5.0)
            host = cloud.nodes[FIRST].host
            link = host.kernel.named("tap0")
            assert link is not None
            assert (host.view().root_qdisc(link.index) is not None) == shaped, value
    assert checked(run) == []


def test_tags_come_and_go(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")

    def tags() -> list[list[str]]:
        with opened(run.folder) as cloud:
            nics = sorted(
                (each["nic"]["index"], each["nic"]["tags"])
                for each in cloud.registry.client().all("nics", instance="web1")
                if each["nic"]["belongs"] == "instance"
            )
            return [found for _index, found in nics]

    run("instance", "update", "web1", "--tag", "a", "--tag", "b")
    assert tags() == [["a", "b"]] * 2
    run("instance", "update", "web1", "--untag", "a", "--tag", "c")
    assert tags() == [["b", "c"]] * 2 and checked(run) == []


def test_nic_tags_of_nodes(run: Mockcloud) -> None:
    run("status")
    said = run.json("nictags", "--add", "br0", "--add", "blue")["nodes"]
    assert [(each["hostname"], each["provides"], each["missing"]) for each in said] == [
        ("mock1", ["br0", "blue"], ["blue"]),
        ("mock2", ["br0", "blue"], ["blue"]),
    ]
    assert [each["provides"] for each in run.json("nictags", "mock1", "--remove", "blue")["nodes"]] == [["br0"]]
    assert [each["provides"] for each in run.json("nictags")["nodes"]] == [["br0"], ["br0", "blue"]]


def test_each_command_leaves_a_log_on_its_nodes(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "migrate", "web1", "mock2")
    names = {
        node: [path.name.partition("-")[2] for path in sorted((run.folder / "servers" / node / "logs").iterdir())]
        for node in (FIRST, SECOND)
    }
    assert names == {FIRST: ["create-web1.log", "migrate-web1.log"], SECOND: ["migrate-web1.log"]}


def test_a_node_goes_with_its_instances(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--start")
    run("instance", "create", "web2", "--node", "mock2", *PAIR, "--start")
    run("delete", "mock1")
    assert [each["name"] for each in run.json("instance", "list")["instances"]] == ["web2"]
    with opened(run.folder) as cloud:
        assert {each["nic"]["instance"] for each in cloud.registry.client().all("nics", belongs="instance")} == {"web2"}


def test_a_node_whose_instance_somebody_has_edited_leaves_none_of_its_nics(cloud: MockCloud) -> None:
    Instances(cloud).create("web1", FIRST, [{"network": "blue", "ip": "192.0.2.5"}, {"network": "blue"}])
    Instances(cloud).create("web2", FIRST, [{"network": "blue"}])
    Instances(cloud).create("web3", SECOND, [{"network": "blue"}])
    Path(cloud.root, "servers", FIRST, "vms", f"{stored.vm_uuid('web1')}.json").write_text("{")
    cloud.delete([FIRST])
    assert [each["nic"]["instance"] for each in cloud.registry.client().all("nics", belongs="instance")] == ["web3"]


def test_a_nic_that_an_instance_of_the_name_has_left_is_made_anew(cloud: MockCloud) -> None:
    Instances(cloud).create("web1", FIRST, [{"network": "blue", "ip": "192.0.2.5"}])
    cloud.vms.forget(FIRST, stored.vm_uuid("web1"))
    made = Instances(cloud).create("web1", FIRST, [{"network": "blue", "ip": "192.0.2.77"}])
    assert [each.nic.ip for each in made.vm.interfaces] == ["192.0.2.77"]


def test_a_node_is_made_at_once_under_the_number_of_one_that_was_deleted(cloud: MockCloud) -> None:
    """Wait for the registry, which removes what that one has reported with time, and refuses another one of the number before."""
    Instances(cloud).create("web1", SECOND, [{"network": "blue"}])
    Instances(cloud).start("web1")
    cloud.delete([SECOND])
    assert cloud.count(2).nodes == 2


# -- what is refused


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("create", "Web1", "--node", "mock1"), 64, "INSTANCE='Web1': expected 1 to 63 of a-z"),
        (("create", "../web", "--node", "mock1"), 64, "INSTANCE='../web': expected"),
        (("create", "web1", "--node", "mock1"), 69, "there is an instance web1 on mock1"),
        (("create", "web2", "--node", "mock7"), 64, "NODE='mock7': expected"),
        (("create", "web2", "--node", "mock1", "--nic", "colour=blue"), 64, "--nic='colour=blue': expected one of network, mode"),
        (("create", "web2", "--node", "mock1", "--nic", "network=green"), 64, "network='green': expected the name or UUID of a network"),
        (("create", "web2", "--node", "mock1", "--nic", "network"), 64, "--nic='network': expected NAME=VALUE"),
        (("create", "web2", "--node", "mock1", *("--nic", "network=blue") * 9), 64, "--nic='9': expected at most 8 NICs"),
        (("create", "web2", "--node", "mock1", "--tag", "a\tb"), 64, "--tag='a\\tb': expected"),
        (("start", "web9"), 64, "INSTANCE='web9': expected the name of an instance"),
        (("migrate", "web1", "mock2"), 69, "web1 does not run: it is stopped: start it first"),
        (("reboot", "web1"), 69, "web1 does not run"),
        (("migrate", "web1", "mock9"), 64, "NODE='mock9': expected"),
        (("unplug", "web1", "2"), 64, "INDEX='2': expected that of a NIC of web1, which has 2"),
        (("update", "web1"), 2, "name what is to change"),
        (("update", "web1", "0"), 2, "name a field behind INDEX"),
        (("update", "web1", "x", "ip=192.0.2.9"), 64, "INDEX='x': expected"),
        (("update", "web1", "0", "ip=198.51.100.9"), 64, "ip is '198.51.100.9': expected an address in blue"),
        (("change", "web1", "0", "rate_in=fast"), 64, "options[0].value is 'fast': expected"),
        (("change", "web1", "0", "colour=blue"), 64, "options[0].name is 'colour': expected"),
        (("snapshot", "web1", "--force"), 69, "a mock cloud has no snapshot"),
        (("images",), 69, "a mock cloud has no images"),
        (("metadata", "web1"), 69, "a mock cloud has no metadata"),
        (("clone", "web1"), 2, "No such command 'clone'"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(run: Mockcloud, words: tuple[str, ...], status: int, said: str) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR)
    before = run.json("instance", "list")
    assert said in run("instance", *words, status=status)
    assert run.json("instance", "list") == before and checked(run) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("network", "blue", "--subnet", "198.51.100.0/24"), "--subnet='198.51.100.0/24': expected that of blue, which is 192.0.2.0/24"),
        (("network", "green", "--subnet", "nonsense"), "subnet is 'nonsense': expected"),
        (("network", "green", "--subnet", "198.51.100.0/24", "--gateway", "192.0.2.1"), "gateway is '192.0.2.1': expected"),
        (("nictags", "mock7"), "NODE='mock7': expected"),
        (("nictags", "--add", "a\tb"), "add='a\\tb': expected"),
    ],
)
def test_networks_and_tags_that_are_none_are_refused(run: Mockcloud, words: tuple[str, ...], said: str) -> None:
    assert said in run(*words, status=64)


def test_a_hook_that_fails_starts_nothing(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR, "--nic", "network=blue,link=br7")
    assert "kvm-ifup of web1/2 on mock1 has ended with 69: web1/2: bridge br7 does not exist" in run("instance", "start", "web1", status=69)
    assert [each["state"] for each in run.json("instance", "list")["instances"]] == ["stopped"] and checked(run) == []
    run("instance", "update", "web1", "2", "link=br1")
    run("instance", "start", "web1")
    assert "bridge br7 does not exist" in run("instance", "plug", "web1", "network=blue", "link=br7", status=69)
    assert len(one(run.json("instance", "list"))["nics"]) == 3 and checked(run) == []


def test_broken_settings_of_a_node_are_its_hooks_error(run: Mockcloud) -> None:
    run("instance", "create", "web1", "--node", "mock1", *PAIR)
    path = run.folder / "servers" / FIRST / "etc/netcommon/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("nonsense")
    assert "mock1: config.toml:1: Expected '='" in run("instance", "start", "web1", status=69)
    said = run.json("status")
    assert [each["hostname"] for each in said["nodes"]] == ["mock2"] and said["refused"][0].startswith("mock1: config.toml:1: ")
    path.write_text('[nic]\nrate_in = "8mbit"\n')
    run("instance", "start", "web1")
    assert checked(run) == []


def test_settings_that_break_while_an_agent_runs_are_its_hooks_error(cloud: MockCloud) -> None:
    instances = Instances(cloud)
    instances.create("web1", FIRST, TWO)
    cloud.ready([FIRST, SECOND], 5.0)
    path = Path(cloud.root, "servers", FIRST, "etc/netcommon/config.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("nonsense")
    with pytest.raises(HookFailed, match=r"kvm-ifup of web1/0 on mock1 has ended with 78"):
        instances.start("web1")
    path.unlink()
    instances.start("web1")
    assert wrong(cloud) == []


def test_a_registry_that_does_not_show_it_in_time_is_said(cloud: MockCloud) -> None:
    instances = Instances(cloud)
    instances.create("web1", FIRST, TWO)
    cloud.ready([FIRST], 5.0)
    cloud.registry.wire.cut[FIRST] = "both"
    before = cloud.scheduler.now
    with pytest.raises(NotShown, match=r"after 5 s the registry does not show it: web1/0 \(.*\) on mock1 is not reported, and not running"):
        instances.start("web1")
    assert SECONDS <= cloud.scheduler.now - before < SECONDS + 1.0
    cloud.registry.wire.cut.clear()
    cloud.scheduler.passes(60.0)
    assert instances.find("web1").vm.state == "running"
    cloud.ready([SECOND], 5.0)
    assert wrong(cloud) == [], "it is done all the same"


def test_a_target_that_is_cut_off_gets_no_guest(cloud: MockCloud) -> None:
    instances = Instances(cloud)
    instances.create("web1", FIRST, TWO)
    instances.start("web1")
    cloud.ready([SECOND], 5.0)
    cloud.registry.wire.cut[SECOND] = "both"
    with pytest.raises(NotShown):
        instances.migrate("web1", SECOND)
    assert instances.find("web1").node == FIRST
    cloud.registry.wire.cut.clear()
    cloud.scheduler.passes(60.0)
    assert wrong(cloud) == []
    assert instances.migrate("web1", SECOND).node == SECOND and wrong(cloud) == []


@pytest.mark.parametrize("said", ["", "{", "[]", '{"uuid": 1}'])
def test_an_instance_that_somebody_has_edited_is_named_and_the_others_go_on(run: Mockcloud, said: str) -> None:
    for name in ("web1", "web2"):
        run("instance", "create", name, "--node", "mock1", *PAIR, "--start")
    path = run.folder / "servers" / FIRST / "vms" / f"{stored.vm_uuid('web1')}.json"
    path.write_text(said or path.read_text().replace('"running"', '"flying"'))
    found = run.json("instance", "list")
    assert [each["name"] for each in found["instances"]] == ["web2"] and str(path) in found["refused"][0]
    assert str(path) in run("instance", "start", "web1", status=69)
    assert one(run.json("instance", "reboot", "web2"))["state"] == "running"


@pytest.mark.parametrize("harm", ["tap", "twice", "none", "process"])
def test_taps_that_no_guest_can_have_are_an_edited_file(run: Mockcloud, harm: str) -> None:
    for name in ("web1", "web2"):
        run("instance", "create", name, "--node", "mock1", *PAIR, "--start")
    path = run.folder / "servers" / FIRST / "vms" / f"{stored.vm_uuid('web1')}.json"
    said = json.loads(path.read_text())
    nics = said["interfaces"]
    if harm == "tap":
        nics[0]["tap"] = "br0"
    elif harm == "twice":
        nics[1].update(tap=nics[0]["tap"], device=nics[0]["device"])
    elif harm == "none":
        nics[0].update(tap="", device=0)
    else:
        said["pid"] = 0
    path.write_text(json.dumps(said))
    found = run.json("instance", "list")
    assert [each["name"] for each in found["instances"]] == ["web2"] and str(path) in found["refused"][0]
    assert one(run.json("instance", "reboot", "web2"))["state"] == "running"


def test_a_tap_that_two_instances_have_stops_their_node_alone(run: Mockcloud) -> None:
    for name in ("web1", "web2"):
        run("instance", "create", name, "--node", "mock1", *PAIR, "--start")
        path = run.folder / "servers" / FIRST / "vms" / f"{stored.vm_uuid(name)}.json"
        said = json.loads(path.read_text())
        said["interfaces"][0].update(tap="tap7", device=700)
        path.write_text(json.dumps(said))
    found = run.json("status")
    assert [each["hostname"] for each in found["nodes"]] == ["mock2"]
    assert "mock1: web2 has the device or process of another: 700, tap7" in found["refused"][0]


def test_an_instance_that_is_refused_leaves_nothing(run: Mockcloud) -> None:
    """Check that what is right the next time has what is said then, and all of it goes with its deletion."""
    three = ("--nic", "network=blue,ip=192.0.2.5", "--nic", "network=blue", "--nic", "network=blue,mode=bridgd")
    run("instance", "create", "web1", "--node", "mock1", *three, status=64)
    assert run.json("instance", "list")["instances"] == [] and checked(run) == []
    made = one(run.json("instance", "create", "web1", "--node", "mock2", "--nic", "network=blue,ip=192.0.2.77"))
    assert [nic["ip"] for nic in made["nics"]] == ["192.0.2.77"]
    run("instance", "delete", "web1")
    with opened(run.folder) as cloud:
        assert list(cloud.registry.client().all("nics", belongs="instance")) == []


def test_a_creation_that_was_killed_is_made_again_as_it_is_said_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "cloud") as cloud:
        prepare(cloud)
        with killed(monkeypatch, 6), pytest.raises(Killed):
            Instances(cloud).create("web1", FIRST, [{"network": "blue", "ip": "192.0.2.5"}, {"network": "blue"}, {"network": "blue"}])
        assert len(list(cloud.registry.client().all("nics", belongs="instance"))) == 2
    with opened(tmp_path / "cloud") as cloud:
        made = Instances(cloud).create("web1", FIRST, [{"network": "blue", "ip": "192.0.2.77"}])
        assert [each["nic"]["ip"] for each in cloud.registry.client().all("nics", belongs="instance")] == ["192.0.2.77"]
        assert made.vm.state == "stopped"


# -- kills, and another process


def told(cloud: MockCloud) -> tuple[list[Any], list[Any]]:
    """Give what the registry has been told by nodes, and what was changed in it."""
    client = cloud.registry.client()
    return [each["report"] for each in client.all("reports")], [each["entry"] for each in client.all("history")]


def on_record(root: Path) -> list[dict[str, Any]]:
    """Give the records of NICs, without which of them has made a table that is shared."""
    found = [json.loads(path.read_text()) for path in sorted((root / "servers" / FIRST / "run/netcommon/nics").iterdir())]
    for record in found:
        for operation in record["operations"]:
            operation.pop("now", None)
    return found


def test_another_process_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    """The same on the host, on record and in the registry; an agent that starts has nothing to tell."""
    with opened(tmp_path / "cloud") as cloud:
        prepare(cloud)
        instances = Instances(cloud)
        instances.create("web1", FIRST, TWO, ["netcommon:0:rate_in:8mbit"])
        instances.start("web1")
        instances.plug("web1", {"network": "blue", "link": "br1"})
        instances.change("web1", 1, {"rate_out": "9mbit"})
        cloud.scheduler.passes(5.0)
        before, said = mock_nodes.picture(cloud.nodes[FIRST]), told(cloud)
        records = on_record(tmp_path / "cloud")
    with opened(tmp_path / "cloud") as cloud:
        cloud.ready([FIRST], 5.0)
        cloud.scheduler.passes(60.0)
        assert mock_nodes.picture(cloud.nodes[FIRST]) == before
        assert told(cloud) == said
        assert on_record(tmp_path / "cloud") == records


Work = Callable[[Instances], object]
KILLED: dict[str, tuple[tuple[Work, ...], Work]] = {
    "create": ((), lambda i: _unless(i, "web1", lambda: i.create("web1", FIRST, TWO))),
    "start": ((lambda i: i.create("web1", FIRST, TWO),), lambda i: i.start("web1")),
    "stop": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.stop("web1", ifdown=True)),
    "reboot": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.reboot("web1")),
    "crash": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: _if_runs(i, i.crash)),
    "migrate": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.migrate("web1", SECOND)),
    "failover": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.failover("web1", SECOND)),
    "delete": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: _if_there(i, i.delete)),
    "plug": (
        (lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")),
        lambda i: i.plug("web1", {"network": "blue"}),
    ),
    "unplug": (
        (lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")),
        lambda i: i.unplug("web1", 0),
    ),
    "update": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.update("web1", 0, {"link": "br1"}, ["a"])),
    "change": ((lambda i: i.create("web1", FIRST, TWO), lambda i: i.start("web1")), lambda i: i.change("web1", 0, {"rate_in": "8mbit"})),
}


def _unless(instances: Instances, name: str, work: Callable[[], object]) -> None:
    """Do it, unless it is done: a creation of what is there is refused."""
    if not [each for each in instances.all()[0] if each.vm.name == name and each.vm.state != "making"]:
        work()


def _if_runs(instances: Instances, work: Callable[[str], object]) -> None:
    if instances.find("web1").vm.runs:
        work("web1")


def _if_there(instances: Instances, work: Callable[[str], object]) -> None:
    if instances.all()[0]:
        work("web1")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("task", KILLED)
def test_a_task_may_be_killed_at_any_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    """Make a task again that was cut off: it comes to what it comes to uncut, and all fits together."""
    before, work = KILLED[task]

    def begin(cloud: MockCloud) -> None:
        prepare(cloud)
        cloud.ready([FIRST, SECOND], 5.0)
        for each in before:
            each(Instances(cloud))

    def picture(cloud: MockCloud) -> object:
        cloud.ready([FIRST, SECOND], 5.0)
        cloud.scheduler.passes(30.0)
        found = []
        for placed in Instances(cloud).all()[0]:
            said = Instances(cloud).shown(placed)
            nics = [(nic["index"], nic["mode"], nic["vlan"], bool(nic["tap"]), nic["shown"]) for nic in said["nics"]]
            found.append((said["name"], said["node"], said["state"], nics))
        return found, wrong(cloud)

    assert everywhere(tmp_path, monkeypatch, begin, lambda cloud: work(Instances(cloud)), picture) >= 2


@pytest.mark.parametrize("done", ["the same again", "something else"])
@pytest.mark.parametrize(("task", "left"), [("plug", [0, 1, 2]), ("unplug", [1])])
def test_a_nic_that_was_begun_when_the_task_was_killed_is_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, left: list[int], done: str
) -> None:
    """Kill it when the instance's file is written, and the registry has the old indices still."""
    work: Work = (lambda i: i.plug("web1", {"network": "blue"})) if task == "plug" else (lambda i: i.unplug("web1", 0))

    def ends(*_given: object) -> None:
        raise Killed

    with opened(tmp_path / "cloud") as cloud:
        prepare(cloud)
        Instances(cloud).create("web1", FIRST, TWO)
        Instances(cloud).start("web1")
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(*((Instances, "_after", ends) if task == "plug" else (Side, "patch", ends)))
            work(Instances(cloud))
    with opened(tmp_path / "cloud") as cloud:
        if done == "the same again":
            work(Instances(cloud))
        else:
            Instances(cloud).stop("web1")
        nics = Instances(cloud).find("web1").vm.interfaces
        assert [each.nic.uuid for each in nics] == [stored.nic_uuid("web1", number) for number in left]
        cloud.ready([FIRST, SECOND], 5.0)
        assert wrong(cloud) == []
        Instances(cloud).unplug("web1", 0)
        Instances(cloud).plug("web1", {"network": "blue"})
        work(Instances(cloud))
        assert len(Instances(cloud).find("web1").vm.interfaces) == len(left) + (1 if task == "plug" else -1), (
            "what was done is not begun any more"
        )


# -- all together


def test_many_nodes_and_instances(tmp_path: Path) -> None:
    """Create, migrate, crash and delete instances, two hundred of them in a full run; what the registry says is what the nodes are."""
    count = 200 if FULL else 40
    with opened(tmp_path / "cloud", seed=7) as cloud:
        nodes = [each.uuid for each in cloud.create(count // 4)]
        cloud.network("blue", {"subnet": "10.0.0.0/16"})
        cloud.ready(nodes, 10.0)
        instances, chance = Instances(cloud), cloud.scheduler.chance
        names = [f"web{number}" for number in range(count)]
        for number, name in enumerate(names):
            instances.create(name, nodes[number % len(nodes)], [TWO[number % 2], {"network": "blue", "link": "br1"}][: 1 + number % 3 // 2])
            instances.start(name)
        assert wrong(cloud) == []
        for name in chance.sample(names, count * 3 // 10):
            here = instances.find(name).node
            instances.migrate(name, chance.choice([node for node in nodes if node != here]), fail=chance.random() < 0.2)
        assert wrong(cloud) == []
        crashed = chance.sample(names, count // 5)
        for name in crashed:
            instances.crash(name)
        assert wrong(cloud) == []
        for name in crashed[: count // 10]:
            instances.delete(name)
        for name in crashed[count // 10 : count * 3 // 20]:
            instances.start(name)
        assert wrong(cloud) == []
        states = [each.vm.state for each in instances.all()[0]]
        assert (states.count("running"), states.count("crashed"), len(states)) == (count * 17 // 20, count // 20, count * 9 // 10)
    with opened(tmp_path / "cloud", seed=8) as cloud:
        cloud.ready(nodes, 10.0)
        cloud.scheduler.passes(30.0)
        assert wrong(cloud) == [], "another process goes on with them"


def test_an_agent_tidies_what_killed_processes_have_left(tmp_path: Path) -> None:
    """The files bear this machine's date, which is years ahead of the node's, and its clock stands still meanwhile."""
    run = tmp_path / "servers" / FIRST / "run/netcommon"
    left = [f"{path} on mock1 is left" for path in (run / "devices/tap77", run / "nics" / f"{TEMPORARY}1-0")]
    with opened(tmp_path) as cloud:
        prepare(cloud)
        Instances(cloud).create("web1", FIRST, TWO)
        Instances(cloud).start("web1")
    (run / "nics" / f"{TEMPORARY}1-0").touch()
    (run / "devices/tap77").symlink_to(f"../nics/{stored.nic_uuid('web1', 7)}.json")
    with opened(tmp_path) as cloud:
        cloud.ready([FIRST, SECOND], 5.0)
        assert [text for text in settled(cloud) if text.endswith("is left")] == left, "a process that lives may be at work with it"
        cloud.scheduler.passes(700.0)
        assert settled(cloud) == []


@pytest.mark.parametrize("harm", ["record", "report", "device", "tap", "process", "claim"])
def test_the_checker_sees_it(cloud: MockCloud, harm: str) -> None:
    instances = Instances(cloud)
    instances.create("web1", FIRST, TWO)
    instances.start("web1")
    cloud.ready([SECOND], 5.0)
    assert wrong(cloud) == []
    folder, node, uuid = Path(cloud.root, "servers", FIRST), cloud.nodes[FIRST], stored.nic_uuid("web1", 0)
    if harm == "record":
        (folder / "run/netcommon/nics" / f"{uuid}.json").unlink()
    elif harm == "report":
        client = cloud.registry.client()
        client.change("POST", f"nodes/{FIRST}/fence", match=client.get(f"nodes/{FIRST}").body["revision"], force=True)
    elif harm == "device":
        node.host.remove_link("tap0")
    elif harm == "tap":
        node.host.add_tap("tap9", holder=1)
    elif harm == "process":
        (folder / "proc/5").mkdir()
    else:
        cloud.registry.client().change("DELETE", f"nics/{uuid}", force=True)
    assert wrong(cloud) != []
