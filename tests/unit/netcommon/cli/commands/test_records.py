"""The command line on a simulated node: looking at what is on record, repairing and collecting."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from netcommon.cli.app import App
from netcommon.cli.commands import show
from netcommon.host.api.facts import AF_INET, Link, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteRule, SetLink, SetPort
from netcommon.host.linux.snapshot import Snapshot
from netcommon.lifecycle.context import Clock
from netcommon.log import Syslog
from tests.support.cli import BRIDGED, UUIDS, Cli
from tests.support.sim import MODES, Sim, nic


@pytest.mark.parametrize("command", ["show", "check", "repair"])
def test_a_name_that_is_on_no_record(two: Cli, command: str) -> None:
    assert "NIC='tap9': expected the UUID, device or INSTANCE/INDEX" in two(command, "tap9", status=64).stderr


@pytest.mark.parametrize(
    "command",
    [
        *(("show",), ("explain",), ("check",), ("repair",), ("plan",), ("change", "rate_in=1mbit"), ("change", "--unset", "rate_in")),
        *(("down",), ("down", "--force"), ("trace", "--to", "guest")),
    ],
    ids=" ".join,
)
def test_an_index_that_two_nics_have(two: Cli, command: tuple[str, ...]) -> None:
    """As after a hot-remove: those after it have moved up, and the next new one has the last one's. Both are named, none is taken."""
    store = two.app().node(strict=False).store
    record = store.read(UUIDS[1])
    assert record
    store.write(record._replace(nic=record.nic._replace(index=0)), record)
    two.host.requests.clear()
    said = two(command[0], "web1/0", *command[1:], status=64).stderr
    assert f"{UUIDS[0]} on tap0" in said and f"{UUIDS[1]} on tap1" in said
    assert two.host.requests == []
    assert two("show", UUIDS[1]).stdout and two("check", "tap1").exit_code == 0


def test_check_and_repair(two: Cli) -> None:
    assert two("check").stdout == f"web1/0 on tap0 ({UUIDS[0]}): good\nweb1/1 on tap1 ({UUIDS[1]}): good\n"
    link = two.host.view().link("tap0")
    assert link
    two.host.execute([SetLink(link.index, master=0)], stop=True)
    said = two("check", "--all", status=1).stdout
    assert f"web1/0 on tap0 ({UUIDS[0]}): drifted\n  ip link set dev tap0 master br0: it is a port of no bridge\n" in said
    assert "web1/1" in two("check", "tap1").stdout
    (report,) = two.json("check", "web1/0", status=1)
    assert report["drift"] == [
        {"does": "ip link set dev tap0 master br0", "differs": "it is a port of no bridge"},
        {"does": "bridge link set dev tap0 mcast_router 0", "differs": "it is no port of br0"},
    ]

    two.host.requests.clear()
    assert "would repair\n  ip link set dev tap0 master br0  # it is" in two("repair", "--dry-run", "web1/0").stdout
    assert two.host.requests == []
    assert "repaired ip link set dev tap0 master br0" in two("repair", "--all").stdout
    # down, into the bridge, no router of multicast there, and up
    assert [type(request) for request in two.host.requests] == [SetLink, SetLink, SetPort, SetLink]
    two("check")


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (("change", "web1/0", "rate_in=2mbit"), ["web1/0", "web1/1"]),
        (("down", "tap0", "--force"), ["web1/1"]),
    ],
)
def test_check_tells_what_another_call_does_meanwhile_from_drift(
    two: Cli, monkeypatch: pytest.MonkeyPatch, meanwhile: tuple[str, ...], said: list[str]
) -> None:
    """It reads the records, then the host; between the two another call is at work."""
    two("change", "web1/0", "rate_in=1mbit")
    look = two.host.snapshot

    def later() -> Snapshot:
        monkeypatch.setattr(two.host, "snapshot", look)
        two(*meanwhile)
        return look()

    monkeypatch.setattr(two.host, "snapshot", later)
    assert [(row["nic"], row["good"]) for row in two.json("check")] == [(nic, True) for nic in said]


def test_gc_takes_what_a_dead_guest_left(two: Cli) -> None:
    two.host.remove_link("tap1")
    assert "device gone" in two("list").stdout
    assert "netcommon gc" in two("check", "tap1", status=1).stdout
    (would,) = two.json("gc", "--dry-run")
    assert (would["why"], would["action"]) == ("its device is gone", "would be removed")
    assert two.host.view().rules(AF_INET, "tap1")
    assert two("gc").stdout.splitlines()[1].split()[-1] == "removed"
    assert not two.host.view().rules(AF_INET, "tap1")
    assert two("gc").stdout == "nothing to collect\n"
    assert [row["state"] for row in two.json("list")] == ["up", "defined"]


def test_gc_leaves_what_others_made(two: Cli) -> None:
    foreign = Rule(AF_INET, 700, "tap5", 100, protocol=3)
    two.host.kernel.add_rule(foreign)
    assert two.json("gc") == []
    assert foreign in two.host.view().rules(AF_INET, "tap5")


def test_show_says_what_was_chosen_and_whether_it_holds(two: Cli) -> None:
    (shown,) = two.json("show", "tap1")
    rule = next(one for one in shown["operations"] if one["kind"] == "rule")
    assert rule["chose"] == {"number": 100, "found": "absent"}
    assert rule["drift"] == ""
    assert shown["record"] == f"{two.paths.state}/nics/{UUIDS[1]}.json"
    (made,) = two.host.view().rules(AF_INET, "tap1")
    two.host.kernel.delete_rule(made)
    text = two("show", "web1/1").stdout
    assert "DRIFT: the rule is gone; number 100, found absent" in text
    assert "device    tap1" in text


@pytest.mark.parametrize("mode", MODES)
def test_show_speaks_no_python(tmp_path: Path, mode: str) -> None:
    """Whatever an operation chose is said in words, as an administrator would write it."""
    sim = Sim(str(tmp_path))
    sim.up(nic(mode))
    said = show.text(show.describe(sim.node, sim.host.view(), sim.record()))
    assert not re.search(r"\b(True|False|None)\b|[(\[]'|\[\[|\(\(", said), said


def test_what_changes_the_host_needs_root_and_what_looks_does_not(two: Cli) -> None:
    two.uid = 1000
    two.host.requests.clear()
    for command in (("list",), ("show", "tap0"), ("check",), ("plan", "tap0"), ("plan", "tap0", "--resolve"), ("config",)):
        two(*command)
    for command in (("up", "tap0"), ("down", "tap0"), ("repair", "tap0"), ("gc",)):
        assert "only root" in two(*command, status=69).stderr
    assert two.host.requests == []


def test_a_damaged_record_is_reported_and_others_still_work(two: Cli) -> None:
    Path(two.paths.state, "nics", f"{UUIDS[0]}.json").write_text("{")
    said = two("list")
    assert "does not parse" in said.stderr
    assert [row["state"] for row in two.json("list")] == ["up", "defined"]


def test_repair_all_leaves_the_dead_to_gc(two: Cli) -> None:
    two.host.remove_link("tap1")
    assert two("repair", "--all").stdout == "web1/0 on tap0 is as it should be\n"
    two.uid = 1000
    assert "gc cleans up" in two("repair", "--dry-run", "tap1").stdout


def test_gc_without_doing_needs_no_root(two: Cli) -> None:
    two.host.remove_link("tap1")
    two.uid = 1000
    two.host.requests.clear()
    before = {path: path.stat().st_mtime_ns for path in two.root.rglob("*")}
    (found,) = two.json("gc", "--dry-run")
    assert "on tap1" in found["text"] and found["action"] == "would be removed"
    assert two.host.requests == [] and {path: path.stat().st_mtime_ns for path in two.root.rglob("*")} == before
    assert "only root" in two("gc", status=69).stderr


@pytest.mark.parametrize(
    "command", [("show", "x"), ("check", "x"), ("repair", "x"), ("repair", "--dry-run", "x"), ("up", "x"), ("down", "a/b/c"), ("plan", "x")]
)
def test_an_unknown_nic_is_an_error_in_json_too(two: Cli, command: tuple[str, ...]) -> None:
    said = two(*command, "--json", status=64)
    error = json.loads(said.stdout)
    assert error["status"] == 64 and command[-1].rpartition("/")[2] in error["error"]
    assert said.stderr == f"netcommon: {error['error']}\n"
    assert two(*command, status=64).stdout == ""


def test_other_errors_are_in_json_with_their_status(two: Cli) -> None:
    two.uid = 1000
    error = two.json("gc", status=69)
    assert error["status"] == 69 and "only root" in error["error"]


def test_lines_are_sent_with_the_chosen_facility(cli: Cli) -> None:
    """local1 is 17, and info is 6: RFC 3164, 4.1.1."""
    Path(cli.paths.config).parent.mkdir(parents=True, exist_ok=True)
    Path(cli.paths.config).write_text('[log]\nfacility = "local1"\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as server:
        server.bind(str(cli.root / "log"))
        app = App(cli.paths, Clock(), lambda *_: cli.host, Syslog(str(cli.root / "log")), {}, 0)
        app.node()
        app.log.info("done")
        assert server.recv(9000).startswith(b"<142>")
        app.finish()


def test_gc_says_what_could_not_be_removed(two: Cli) -> None:
    two.host.remove_link("tap1")
    two.host.fail = lambda request: Answer(1, "no") if isinstance(request, DeleteRule) else None
    said = two("gc", status=69)
    assert said.stdout.splitlines()[1].endswith("failed")
    assert "no" in said.stderr
    two.host.fail = lambda request: None
    two("gc")
    assert two("gc").stdout == "nothing to collect\n"


def test_show_says_who_shares(cli: Cli) -> None:
    cli.host.add_bridge("br2", vlan_filtering=True)
    uplink = cli.host.add_link(Link(0, "eth1"))
    bridge = cli.host.view().link("br2")
    assert bridge
    cli.host.execute([SetLink(uplink.index, master=bridge.index)], stop=True)
    for device in ("tap0", "tap1"):
        cli("define", "--interface", device, "--mode", "bridged", "--link", "br2", "--vlan", "10")
    cli("up", "--all")
    (shown,) = cli.json("show", "tap0")
    assert [one["shared_with"] for one in shown["operations"] if one["kind"] == "uplink-vlan"] == [[UUIDS[1]]]
    assert f"shared with {UUIDS[1]}" in cli("show", "tap0").stdout


def test_a_renamed_device_has_its_new_name_everywhere(cli: Cli) -> None:
    """Commands take it, and say it; doctor says what to do; a repair writes it down."""
    cli(*BRIDGED)
    cli("up", "tap0")
    cli.host.rename_link("tap0", "guest1")
    assert [nic["device"] for nic in cli.json("list") if nic["state"] == "up"] == ["guest1"]
    (checked,) = cli.json("check", "guest1", status=1)
    assert checked["device"] == "guest1" and {"does": "the device tap0", "differs": "it is called guest1 now"} in checked["drift"]
    (shown,) = cli.json("show", "guest1")
    assert shown["nic"]["INTERFACE"] == "guest1" and shown["alive"]
    assert cli.json("explain", "guest1")["nics"][0]["device"] == "guest1"
    said = cli("doctor", status=None).stdout
    assert "its device tap0 is called guest1 now" in said and "netcommon gc" not in said
    assert "it was tap0" in cli("repair", "guest1").stdout
    assert cli.json("check", "guest1")[0]["good"]
    cli("down", "guest1", "--force")
    assert [nic["state"] for nic in cli.json("list")] == ["defined"]


NAMES = ("tap0", UUIDS[0], "web1/0", "web1")
#: What is done with one NIC; those of the second row take no instance.
BY_NAME = [
    *(
        ("check",),
        ("check", "--json"),
        ("repair",),
        ("repair", "--dry-run"),
        ("change", "rate_in=8mbit"),
        ("change", "rate_in=8mbit", "--dry-run"),
    ),
    *(("show",), ("explain",), ("plan",), ("trace",), ("up",), ("down",)),
]


@pytest.mark.parametrize("command", BY_NAME, ids=" ".join)
def test_a_record_of_a_newer_version_has_one_status(two: Cli, command: tuple[str, ...]) -> None:
    """Whatever the NIC is called by, and whichever command is to do something with it, which it does not."""
    path = Path(two.paths.state, "nics", f"{UUIDS[0]}.json")
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | {"schema": 99}).encode())
    before = path.read_bytes()
    two.host.requests.clear()
    for name in NAMES[: 4 if command[0] in ("check", "repair", "change") else 3]:
        assert f"{path}: schema 99 is newer" in two(command[0], name, *command[1:], status=69).stderr
    assert path.read_bytes() == before and two.host.requests == []
    if command[0] in ("check", "repair", "change"):
        two(command[0], "tap1", *command[1:])


def test_a_record_of_a_newer_version_is_no_definition_that_waits(two: Cli) -> None:
    path = Path(two.paths.state, "nics", f"{UUIDS[0]}.json")
    path.write_bytes(json.dumps(json.loads(path.read_bytes()) | {"schema": 99}).encode())
    assert {row["device"]: row["state"] for row in two.json("list")} == {"tap0": "of a newer version", "tap1": "up"}
    Path(two.paths.state, "nics", "notes.json").write_text("an administrator's")
    said = {row["text"]: row["remedy"] for row in two.json("doctor", status=1) if row["topic"] == "records"}
    (newer, strange) = sorted(said, key=lambda text: "notes" in text)
    assert "schema 99" in newer and "install the version that wrote it" in said[newer] and "gc" not in said[newer]
    assert "notes.json" in strange and "remove it" in said[strange] and "gc" not in said[strange]
    two("gc")
    assert path.exists(), "whatever the remedy, it stays"


def test_a_bridge_that_is_down(two: Cli) -> None:
    """All that was done holds, and the guest has no network: whoever looks is told, and a NIC that comes up says it. Repair leaves it."""
    bridge = two.host.view().link("br0")
    assert bridge
    two.host.execute([SetLink(bridge.index, up=False)], stop=True)
    two.host.requests.clear()
    why, remedy = "bridge br0 is down, and forwards nothing", "ip link set dev br0 up"
    done = two("check", status=1).stdout
    assert f"{UUIDS[0]}): all of it holds, but not all of its traffic passes\n  {why}: {remedy}\n" in done
    assert [row["dropped"] for row in two.json("check", status=1)] == [[{"why": why, "remedy": remedy}], []]
    assert why in two("explain", "tap0").stdout and why in two("tree").stdout
    (finding,) = [row for row in two.json("doctor", status=1) if row["topic"] == "bridges"]
    assert (finding["level"], finding["text"], finding["remedy"]) == ("error", f"no network for web1/0: {why}", remedy)
    two.log.lines.clear()
    said = f"web1/0 on tap0 is as it should be, but not all of its traffic passes, which repair does not mend: {why}: {remedy}\n"
    for words in (["repair", "tap0"], ["repair", "tap0", "--dry-run"]):
        assert two(*words).stdout == said and two.host.requests == []
    for command in ("tree", "top --once"):
        assert "drifted (1)" in two(*command.split()).stdout, command
    two("down", "tap0", "--force")
    two.log.lines.clear()
    two("up", "tap0")
    assert [line.partition("tap=tap0 ")[2] for line in two.log.lines if line.startswith("warning")] == [f"{why}: {remedy}"]
    two.host.execute([SetLink(bridge.index, up=True)], stop=True)
    two("check")
    assert not [row for row in two.json("doctor", status=1) if row["topic"] == "bridges"]


def test_a_port_of_another_bridge_is_drift_and_no_more(two: Cli) -> None:
    """What the bridge on record is like is of no account then."""
    port, other = two.host.view().link("tap0"), two.host.add_bridge("br9", up=False)
    assert port
    two.host.execute([SetLink(port.index, master=other.index)], stop=True)
    assert two.json("check", "tap0", status=1)[0]["dropped"] == []
