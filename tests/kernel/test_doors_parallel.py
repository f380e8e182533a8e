"""Doors at the same time: one NIC's calls go one after the other, different NICs' side by side, and nothing of them is left."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from netcommon.lifecycle.check import check
from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.gc import gc
from netcommon.log import recording
from tests.support import warm
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.snapshot import diff, snapshot


def environment(number: int = 0, **changes: str) -> dict[str, str]:
    """NIC ``number``, routed with a table, on its own tap."""
    return {
        "INTERFACE": f"tap{number}",
        "MODE": "routed",
        "LINK": "100",
        "IP": f"10.0.0.{number + 1}",
        "MAC": f"aa:00:00:00:00:{number:02x}",
        "VLAN": "",
        "INSTANCE": f"web{number // 2}",
        "INTERFACE_INDEX": str(number % 2),
        "INTERFACE_UUID": f"{number:08x}-0667-415f-9a43-786dc01cbf24",
        "TAGS": "",
        **changes,
    }


def start(door: str, variables: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    argv = [str(HOOKS / door), *(arguments or (variables["INTERFACE"],))]
    return subprocess.Popen(argv, env={**BASE, **variables}, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(started: list[subprocess.Popen[bytes]]) -> list[tuple[int, str]]:
    found = []
    for child in started:
        out, err = child.communicate(timeout=60 * slowness())
        found.append((child.returncode, (out + err).decode()))
    return found


def good() -> list[str]:
    """The devices of all NICs that are as they should be; fails on any that is not."""
    with ours() as node:
        records, problems = node.store.all()
        reports = [check(node, node.host.snapshot(), record) for record in records]
    assert problems == [] and all(report.good for report in reports), reports
    return sorted(record.device for record in records)


def collect(seconds: float = 1000) -> list[str]:
    """gc, so much later that what a killed hook was writing is seen to be abandoned."""
    with ours() as node:
        log, _lines = recording()
        later = node._replace(clock=Clock(wall=lambda: Clock().wall() + seconds))
        return [f"{found.action} {found.text}" for found in gc(later, Call(log, node.clock.now() + 20))]


def leftovers() -> list[str]:
    """Files below /run/netcommon but locks, the marker of the namespace, the settings as they were read last, and an idle agent's own."""
    return [
        str(path)
        for path in Path("/run/netcommon").rglob("*")
        if not path.is_dir() and path.parent.name != "locks" and not path.name.startswith(("netns.", "settings.json"))
        if not warm.agents_own(str(path))
    ]


@pytest.fixture
def taps(node: Node) -> Node:
    node.bridge("br0")
    node.tap("tap0")
    for variables, more in ((environment(), ()), (environment(MODE="bridged", LINK="br0"), ())):
        assert rundoor("kvm-ifup", variables).status == 0
        assert rundoor("kvm-ifdown", variables, "tap0", "hot-remove", *more).status == 0
    return node


def test_one_nic_at_once_by_many(taps: Node) -> None:
    """Ups of two kinds and downs, all at the same time, in three rounds: each answers well, and what is left is one state, whole."""
    before = snapshot()
    kinds = [environment(), environment(MODE="bridged", LINK="br0", IP="")]
    for _ in range(3):
        started = [start("kvm-ifup", kinds[number % 2]) for number in range(4)]
        started += [start("kvm-ifdown", kinds[0], "tap0", "hot-remove") for _ in range(2)]
        started += [start("kvm-ifup", kinds[0]) for _ in range(2)]
        assert [status for status, _text in ended(started)] == [0] * 8
        assert good() in ([], ["tap0"])
    assert ended([start("kvm-ifup", kinds[1])])[0][0] == 0
    assert good() == ["tap0"]
    assert "iif tap0" not in run("ip", "rule")
    started = [start("kvm-ifdown", kinds[0], "tap0", "hot-remove") for _ in range(8)]
    assert [status for status, _text in ended(started)] == [0] * 8
    assert diff(before, snapshot()) == []


def test_twenty_nics_side_by_side(taps: Node) -> None:
    """Each comes up whole, and all go again, with instances' folders and the links in them shared by two."""
    for number in range(1, 20):
        taps.tap(f"tap{number}")
        run("ip", "link", "set", f"tap{number}", "up")
        run("ip", "link", "set", f"tap{number}", "down")
    before = snapshot()
    nics = [environment(number, **({"MODE": "bridged", "LINK": "br0"} if number % 3 == 0 else {})) for number in range(20)]
    for _ in range(2):
        assert ended([start("kvm-ifup", nic) for nic in nics]) == [(0, "")] * 20
        assert len(good()) == 20
        assert ended([start("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove") for nic in nics]) == [(0, "")] * 20
        assert leftovers() == []
        assert diff(before, snapshot()) == []


def test_one_tap_of_two_nics_at_once(taps: Node) -> None:
    """A guest and its successor on the same tap: one of them has it, whole, and the other's down does not touch it."""
    first, second = environment(), environment(INTERFACE_UUID="99999999-0667-415f-9a43-786dc01cbf24", INSTANCE="other", IP="10.0.0.99")
    before = snapshot()
    for _ in range(3):
        assert [status for status, _ in ended([start("kvm-ifup", nic) for nic in (first, second) * 3])] == [0] * 6
        assert good() == ["tap0"]
        (record,) = Path("/run/netcommon/nics").glob("*.json")
        stored = json.loads(record.read_bytes())["nic"]
        loser = second if stored["INTERFACE_UUID"] == first["INTERFACE_UUID"] else first
        assert ended([start("kvm-ifdown", loser, "tap0", "hot-remove")])[0][0] == 0
        assert good() == ["tap0"]
    for nic in (first, second):
        ended([start("kvm-ifdown", nic, "tap0", "hot-remove")])
    assert diff(before, snapshot()) == []


def test_gc_beside_working_hooks(taps: Node) -> None:
    """A gc in a loop while NICs come and go takes nothing from any of them."""
    for number in range(1, 6):
        taps.tap(f"tap{number}")
    nics = [environment(number) for number in range(6)]
    for _ in range(4):
        started = [start("kvm-ifup", nic) for nic in nics]
        while any(child.poll() is None for child in started):
            collect(0)
        assert ended(started) == [(0, "")] * 6
        assert len(good()) == 6
        collect()
        assert len(good()) == 6
        ended([start("kvm-ifdown", nic, nic["INTERFACE"], "hot-remove") for nic in nics])
        assert leftovers() == []


@pytest.mark.no_agent("about gc: an agent undoes at once what is left of a NIC whose device has gone")
def test_a_dead_node_is_clean_after_one_gc(taps: Node) -> None:
    """QEMUs killed, no down called, taps gone: rules go, the administrator's stay."""
    run("ip", "rule", "add", "iif", "tap1", "lookup", "200", "priority", "600")
    held = [taps.tap(f"tap{number}") for number in (1, 2, 3)]
    for number in (1, 2, 3):
        assert rundoor("kvm-ifup", environment(number)).status == 0
    for tap in held:
        tap.close()
    wait_until(lambda: "tap1" not in run("ip", "-br", "link"), 5)
    assert run("ip", "rule").count("tap") == 4
    assert sorted(line.split()[0] for line in collect()) == ["removed"] * 3
    assert "600:	from all iif tap1 [detached] lookup 200" in run("ip", "rule")
    assert run("ip", "rule").count("tap") == 1 and leftovers() == []
