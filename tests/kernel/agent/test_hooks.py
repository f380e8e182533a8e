"""The agent and hooks at work on the same NICs, agents of several network namespaces, lost events, bursts, and a kill at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import environment, start
from tests.support.agent import agent, seconds_until, watched
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, rundoor
from tests.support.sample import FULL
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

HANGING = "#!/bin/sh\necho $$ >/run/site.pid\nexec sleep 1000\n"


@pytest.fixture
def placed(node: Node) -> Node:
    """Each folder of ours is there."""
    node.tap("tap9")
    assert rundoor("kvm-ifup", environment(9)).status == 0
    assert rundoor("kvm-ifdown", environment(9), "tap9", "hot-remove").status == 0
    return node


def site_script(name: str, text: str) -> None:
    path = Path(f"/etc/ganeti/{name}")
    path.write_text(text)
    path.chmod(0o755)


def killed_in_its_script(seen_state: str, door: str = "kvm-ifup", *arguments: str) -> subprocess.Popen[bytes]:
    """A hook that hangs in a site's script: its record is not final, and it holds the NIC's lock."""
    child = start(door, environment(), *arguments)
    wait_until(lambda: os.path.exists("/run/site.pid"), 10, seen_state)
    return child


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the hook, then to the script that it leaves behind."""
    child.kill()
    child.wait()
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()
    os.kill(int(Path("/run/site.pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("present", [True, False])
def test_a_hook_that_died_is_reverted_at_once(placed: Node, present: bool) -> None:
    """Nobody holds the lock of its record any more, which is not final: whether the tap is there does not matter."""
    with agent() as running, watched() as seen:
        running.rested()
        tap = Tap("tap0")
        before = snapshot()
        site_script("kvm-ifup-custom", HANGING)
        Path("/etc/netcommon/config.toml").write_text('[custom]\norder = "after"\n')
        running.signal(signal.SIGHUP)
        running.logged("read again")
        child = killed_in_its_script("applying")
        assert seen.records["tap0"].state == "applying"
        if not present:
            tap.close()
        assert seen.records["tap0"].state == "applying", "a hook is at work on it"
        site_script("kvm-ifup-custom", "#!/bin/sh\n")
        kill(child)
        took = seconds_until(lambda: not seen.records, 5, running.output)
        os.unlink("/etc/ganeti/kvm-ifup-custom")
        os.unlink("/etc/netcommon/config.toml")
        print(f"killed hook, tap {'there' if present else 'gone'}: reverted after {took * 1e3:.0f} ms")
        if present:
            left = [line for line in diff(before, snapshot()) if "/run/site.pid" not in line and "qdisc" not in line]
            assert left == []
        assert "tap0" not in run("ip", "rule") + run("nft", "list", "ruleset")
        tap.close()


def test_a_hook_at_work_is_left_alone(placed: Node) -> None:
    """For as long as it takes: what looks like drift, or like a record that is not final, is the hook's. It costs next to nothing."""
    site_script("kvm-ifup-custom", HANGING)
    with agent(settings='[custom]\norder = "after"\n[agent]\nresync = 1\n') as running, watched() as seen:
        running.rested()
        placed.tap("tap0")
        child = killed_in_its_script("applying")
        run("ip", "rule", "del", "iif", "tap0")
        used, surveys = running.cpu, running.surveys()
        wait_until(lambda: running.surveys() >= surveys + 3, 20, running.output)
        assert running.cpu - used < 1.5, "it does not spin"
        assert seen.records["tap0"].state == "applying" and "iif tap0" not in run("ip", "rule")
        os.kill(int(Path("/run/site.pid").read_text()), signal.SIGTERM)  # the script fails: the hook rolls back, and ends
        child.communicate(timeout=60)
        wait_until(lambda: not seen.records, 5, running.output)


def test_what_went_while_a_hook_was_at_work_is_mended_after_it(placed: Node) -> None:
    """The hook had made it before, and did not look again."""
    site_script("kvm-ifup-custom", "#!/bin/sh\necho $$ >/run/site.pid\nwhile [ ! -e /run/go ]; do sleep 0.1; done\n")
    with agent(settings='[custom]\norder = "after"\n') as running, watched() as seen:
        running.rested()
        placed.tap("tap0")
        child = killed_in_its_script("applying")
        run("ip", "rule", "del", "iif", "tap0")
        Path("/run/go").touch()
        assert child.wait(60) == 0
        child.communicate()
        seconds_until(lambda: not seen.drift(), 5, running.output)


def test_agents_of_two_namespaces_that_share_run(placed: Node) -> None:
    """The same tap names, the same UUIDs: each touches its own only."""
    other = placed.namespaced()
    with agent() as running, watched() as seen:
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        with other.entered(), agent() as theirs, watched() as seen_there:
            # /sys shows the first namespace still, which nothing of ours reads
            tap_there = Tap("tap0")
            assert rundoor("kvm-ifup", environment()).status == 0
            assert seen_there.records["tap0"].netns != seen.records["tap0"].netns
            rules_there = run("ip", "rule")
            tap.close()
            seconds_until(lambda: not seen.records, 5, running.output)
            assert seen_there.records and seen_there.drift() == [] and run("ip", "rule") == rules_there
            run("ip", "rule", "del", "iif", "tap0")
            seconds_until(lambda: not seen_there.drift(), 5, theirs.output)
            tap_there.close()
            seconds_until(lambda: not seen_there.records, 5, theirs.output)
        assert running.output.count("undone: ip -4 rule") == 1


def test_lost_events_are_made_up_for(placed: Node) -> None:
    """The agent sleeps while more happens than the kernel keeps for it."""
    with agent() as running, watched() as seen:
        running.rested()
        placed.tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        running.rested().signal(signal.SIGSTOP)
        flood()
        run("ip", "rule", "del", "iif", "tap0")
        assert seen.drift() != []
        running.signal(signal.SIGCONT)
        running.logged("events of rtnetlink were lost")
        took = seconds_until(lambda: not seen.drift(), 10, running.output)
        print(f"after an overrun: mended {took * 1e3:.0f} ms later")


def flood() -> None:
    """More events than a buffer of 16 MB holds: each costs the kernel at least a page's share."""
    on, off = "link set dev tap9 mtu 1400\n", "link set dev tap9 mtu 1500\n"
    run("ip", "-batch", "-", stdin=(on + off) * 9000)


def test_a_burst_of_ups(placed: Node) -> None:
    """Many NICs come up: that is watched, not examined. No snapshot for each, and next to no look."""
    count = 500 if FULL else 100
    with agent() as running, watched() as seen:
        running.rested()
        surveys, looks, used, descriptors = running.surveys(), running.looks(), running.cpu, running.descriptors
        for number in range(20, 20 + count):
            placed.tap(f"tap{number}")
        begun = time.monotonic()
        bulk([environment(number, IP=f"10.0.{number // 200}.{number % 200 + 1}", MAC=mac(number)) for number in range(20, 20 + count)])
        took = time.monotonic() - begun
        running.rested(60)
        assert len(seen.records) == count and running.status()["agent"]["nics"] == {"up": count}
        made, looked, cpu = running.surveys() - surveys, running.looks() - looks, running.cpu - used
        print(f"{count} ups in {took:.1f} s: {made} snapshots, {looked} looks, {cpu / count * 1e3:.2f} ms of the agent's CPU each")
        assert made <= 2 + took // 50 and looked <= count
        assert running.descriptors <= descriptors + 60  # threads' sockets and folders, hooks' too, not one for each NIC


def mac(number: int) -> str:
    return f"aa:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def bulk(nics: list[dict[str, str]]) -> None:
    """Brings them up by the door, four at a time."""
    waiting = list(nics)
    going: list[subprocess.Popen[bytes]] = []
    while waiting or going:
        while waiting and len(going) < 4:
            nic = waiting.pop()
            argv = [str(HOOKS / "kvm-ifup"), nic["INTERFACE"]]
            going.append(subprocess.Popen(argv, env={**BASE, **nic}, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        assert going.pop(0).wait(60) == 0


def test_killed_again_and_again(placed: Node) -> None:
    """kill -9 while it works: the next one ends what it began, and disturbs nobody."""
    with agent() as running, watched() as seen:
        before = snapshot()
        keep = Tap("tap1")
        assert rundoor("kvm-ifup", environment(1)).status == 0
        for number in range(15):
            tap = Tap("tap0")
            assert rundoor("kvm-ifup", environment()).status == 0
            tap.close()
            deadline = time.monotonic() + number * 0.004
            while time.monotonic() < deadline and seen.records:
                pass
            running.stop(signal.SIGKILL)
            assert seen.drift("tap1") == []
            running.start()
            seconds_until(lambda: "tap0" not in seen.records, 5, f"{number}: {running.output}")
            assert seen.drift("tap1") == []
        keep.close()
        seconds_until(lambda: not seen.records, 5, running.output)
        # killed between a record's end and that of its links it leaves these, which lead nowhere, and go with the next inventory
        seen.node.store.clean_links(time.time(), age=0)
        assert [line for line in diff(before, snapshot()) if "/agent/" not in line] == []


def test_the_state_directory_is_removed_under_it(placed: Node) -> None:
    """rm -r of the records by an administrator: the agent watches the new folders."""
    with agent(settings="[agent]\nresync = 1\n") as running, watched() as seen:
        running.rested()
        shutil.rmtree("/run/netcommon/nics")
        wait_until(lambda: os.path.isdir("/run/netcommon/nics"), 10, running.output)
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        tap.close()
        path = seen.node.store.path(environment()["INTERFACE_UUID"])
        seconds_until(lambda: not os.path.exists(path), 5, running.output)


def test_a_folder_that_cannot_be_used_stops_nothing_else(placed: Node) -> None:
    """It is said at each resync; when somebody has put it right, the agent watches it again."""
    with agent(settings="[agent]\nresync = 1\n") as running, watched() as seen:
        running.rested()
        os.chmod("/run/netcommon/nics", 0o777)
        running.logged("records are not watched: ", times=2, seconds=10)
        os.chmod("/run/netcommon/nics", 0o700)
        tap = Tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        tap.close()
        path = seen.node.store.path(environment()["INTERFACE_UUID"])
        seconds_until(lambda: not os.path.exists(path), 5, running.output)


def test_a_record_that_does_not_parse_is_put_away(placed: Node) -> None:
    """Whoever wrote it, it is in quarantine at once, and the others are looked after as ever."""
    with agent() as running, watched() as seen:
        running.rested()
        placed.tap("tap0")
        assert rundoor("kvm-ifup", environment()).status == 0
        bad = Path("/run/netcommon/nics/11111111-0667-415f-9a43-786dc01cbf24.json")
        with bad.open("wb") as file:
            bad.chmod(0o600)
            file.write(b'{"nic":')
            file.flush()
            assert bad.exists(), "it is written still"
        seconds_until(lambda: not bad.exists(), 5, running.output)
        assert os.listdir("/run/netcommon/quarantine")
        # not only at the next reaping, which may be in twenty minutes
        seconds_until(lambda: "quarantine" in running.status()["alarms"].get("records", ""), 5, running.output)
        run("ip", "rule", "del", "iif", "tap0")
        seconds_until(lambda: not seen.drift(), 5, running.output)
