"""Instance communication with a real dnsmasq: each guest gets its address by DHCP and reaches its node, through one daemon for all."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.bootstrap import VENV
from tests.support.dhcp import Lease, lease
from tests.support.guest import Guest
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, Outcome, execute, rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

NODE_ADDRESS = "169.254.169.254"
FOLDER = Path("/run/netcommon/communication")
MACS = ("52:54:00:66:ff:b0", "52:54:00:66:ff:b1")
UUIDS = ("2a61e303-c3c5-4759-b07e-fb1d52033ea0", "2a61e303-c3c5-4759-b07e-fb1d52033ea1")


def environment(number: int) -> dict[str, str]:
    """As Ganeti gives it for the communication NIC of an instance."""
    return {
        "INTERFACE": f"gnt.com.{number}",
        "MODE": "routed",
        "LINK": "communication_rt",
        "MAC": MACS[number],
        "IP": f"169.254.0.{number + 1}",
        "VLAN": "",
        "INSTANCE": f"inst{number}",
        "INTERFACE_INDEX": "1",
        "INTERFACE_UUID": UUIDS[number],
        "INTERFACE_NAME": f"ganeti:communication:inst{number}",
        "TAGS": "",
        "NETWORK_SUBNET": "169.254.0.0/16",
        "NETWORK_SUBNET6": "fe80::/10",
    }


def up(number: int) -> Outcome:
    return rundoor("kvm-ifup", environment(number))


def down(number: int) -> Outcome:
    return rundoor("kvm-ifdown", environment(number), f"gnt.com.{number}", "hot-remove")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """netcommon as the administrator runs it."""
    return subprocess.run([str(VENV / "bin/netcommon"), *words], capture_output=True, text=True, check=False)


def process() -> int:
    """The daemon's process, 0 where none runs."""
    return next(iter(processes()), 0)


def processes() -> list[int]:
    """Every dnsmasq on this node: by the processes there are, not by the pid file."""
    here, found = os.stat("/proc/thread-self/ns/net").st_ino, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"/dnsmasq") and os.stat(f"/proc/{pid}/ns/net").st_ino == here:
                found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.fixture
def taps(node: Node) -> Iterator[list[Tap]]:
    """Two such taps; whatever dnsmasq is left at the end is ended."""
    made = [node.tap(f"gnt.com.{number}") for number in (0, 1)]
    Path("/etc/netcommon/config.toml").write_text("[ganeti]\ntap_alias = false\n")
    for number in (0, 1):
        assert up(number).status == 0 and down(number).status == 0  # what is made once and stays
    yield made
    for left in processes():
        os.kill(left, signal.SIGKILL)


@pytest.fixture
def guests(taps: list[Tap]) -> Iterator[list[Guest]]:
    """The two guests."""
    with Guest(taps[0], MACS[0], "169.254.0.1") as first, Guest(taps[1], MACS[1], "169.254.0.2") as second:
        yield [first, second]


def test_a_guest_gets_its_address_and_reaches_the_node(guests: list[Guest]) -> None:
    """The answer is what Ganeti's own script has dnsmasq give; after down there is none, and the node is as it was."""
    before = snapshot()
    done = up(0)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    assert lease(guests[0]) == Lease("169.254.0.1", NODE_ADDRESS, "255.255.0.0", NODE_ADDRESS)
    assert guests[0].ping(NODE_ADDRESS)
    assert "1 received" in run("ping", "-c", "1", "-W", "2", "-I", NODE_ADDRESS, "169.254.0.1")
    assert process()
    assert down(0).status == 0
    assert process() == 0
    assert diff(before, snapshot()) == []


def test_only_the_guest_itself_is_answered(guests: list[Guest]) -> None:
    """Not a MAC that is no guest's, and not one guest in the other's place."""
    assert up(0).status == 0
    guests[0].mac = "52:54:00:00:00:99"
    assert lease(guests[0], 0.3) is None
    guests[0].mac = MACS[0]
    assert lease(guests[0]) is not None


def test_two_guests_share_one_daemon(guests: list[Guest]) -> None:
    """Started by the first, told of the second, without the first one's file after its down, ended with the last."""
    before = snapshot()
    assert up(0).status == 0
    first = process()
    assert up(1).status == 0
    assert process() == first and first
    assert lease(guests[0]) == Lease("169.254.0.1", NODE_ADDRESS, "255.255.0.0", NODE_ADDRESS)
    assert lease(guests[1]) == Lease("169.254.0.2", NODE_ADDRESS, "255.255.0.0", NODE_ADDRESS)
    assert guests[1].ping(NODE_ADDRESS) and guests[0].ping(NODE_ADDRESS)
    assert down(0).status == 0
    assert process() == first
    assert sorted(path.name for path in (FOLDER / "hosts").iterdir()) == [UUIDS[1]]
    assert lease(guests[1]) is not None
    run("ip", "link", "set", "gnt.com.0", "up")
    run("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "gnt.com.0")
    assert lease(guests[0], 0.3) is None
    run("ip", "address", "del", f"{NODE_ADDRESS}/32", "dev", "gnt.com.0")
    run("ip", "link", "set", "gnt.com.0", "down")
    assert down(1).status == 0
    assert process() == 0 and not FOLDER.exists()
    assert diff(before, snapshot()) == []


def test_check_finds_a_killed_daemon_and_repair_starts_it(guests: list[Guest]) -> None:
    assert up(0).status == 0 and up(1).status == 0
    assert command("check").returncode == 0
    killed = process()
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: process() == 0)
    found = command("check")
    assert found.returncode != 0 and "it does not run" in found.stdout + found.stderr
    assert command("repair", "--all").returncode == 0
    assert process() not in (0, killed)
    assert lease(guests[0]) is not None and lease(guests[1]) is not None
    assert command("check").returncode == 0


@pytest.mark.parametrize("how", ["gone", "changed", "mode", "address", "route"])
def test_drift(guests: list[Guest], how: str) -> None:
    before = snapshot()
    assert up(0).status == 0
    hosts = FOLDER / "hosts" / UUIDS[0]
    if how == "gone":
        hosts.unlink()
    elif how == "changed":
        hosts.write_text(hosts.read_text().replace("169.254.0.1", "169.254.0.77"))
    elif how == "mode":
        hosts.chmod(0o600)
    elif how == "address":
        run("ip", "address", "flush", "dev", "gnt.com.0", "to", f"{NODE_ADDRESS}/32")
    else:
        run("ip", "route", "del", "169.254.0.1/32")
    assert command("check").returncode != 0
    assert command("repair", "--all").returncode == 0
    assert command("check").returncode == 0
    assert lease(guests[0]) == Lease("169.254.0.1", NODE_ADDRESS, "255.255.0.0", NODE_ADDRESS)
    assert guests[0].ping(NODE_ADDRESS)
    assert down(0).status == 0
    assert diff(before, snapshot()) == []


def test_gc_ends_what_nobody_needs(node: Node, taps: list[Tap]) -> None:
    """One guest was killed and nobody called down, of the other the record is lost: its file goes, and dnsmasq is told."""
    before = snapshot()
    assert up(0).status == 0 and up(1).status == 0
    taps[1].close()
    assert command("gc").returncode == 0
    assert process() and [path.name for path in (FOLDER / "hosts").iterdir()] == [UUIDS[0]]
    again = node.tap("gnt.com.1")
    assert up(1).status == 0
    first = process()
    (Path("/run/netcommon/nics") / f"{UUIDS[1]}.json").unlink()
    again.close()
    assert command("gc").returncode == 0
    assert process() == first and [path.name for path in (FOLDER / "hosts").iterdir()] == [UUIDS[0]]
    taps[0].close()
    assert command("gc").returncode == 0
    assert process() == 0 and not FOLDER.exists()
    links = ("/run/netcommon/devices/", "/run/netcommon/instances/")  # of the lost record: they go when they are a minute old
    assert [line for line in diff(before, snapshot()) if "/run/netcommon" in line and not any(link in line for link in links)] == []


def test_the_hook_answers_at_once(guests: list[Guest]) -> None:
    """Ganeti reads both outputs to their end: the daemon has none of the hook's descriptors, and a session of its own."""
    done = up(0)
    assert done.status == 0 and done.seconds < 5
    pid = process()
    held = {os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)}
    assert held == {"/dev/null"}
    files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    assert [name for name in files if "netcommon/locks" in name or "/dev/net/tun" in name] == []
    assert os.getsid(pid) != os.getsid(0)
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")[:-1]
    assert {word.split(b"=")[0] for word in words} == {b"PATH", b"LC_ALL"}


def test_without_dnsmasq(taps: list[Tap]) -> None:
    """Refused before anything is touched, with what to install."""
    before = snapshot()
    run("mount", "--bind", "/dev/null", "/usr/sbin/dnsmasq")
    try:
        done = up(0)
    finally:
        run("umount", "/usr/sbin/dnsmasq")
    assert done.status == 69 and "apt install dnsmasq-base" in done.stderr
    assert diff(before, snapshot()) == []


def test_the_sites_own_script(guests: list[Guest]) -> None:
    """It takes the place of all of it; Ganeti's own under its name does not."""
    script = Path("/etc/ganeti/kvm-ifup-os")
    script.write_text("#!/bin/sh\nenv >/run/site\n")
    script.chmod(0o755)
    assert up(0).status == 0
    assert f"MAC={MACS[0]}" in Path("/run/site").read_text() and process() == 0
    assert down(0).status == 0
    script.unlink()
    assert up(0).status == 0 and process()


def test_a_daemon_of_another_is_left_alone(taps: list[Tap]) -> None:
    """The pid file leads to another process, or to none of ours: it gets no signal, and a daemon is started."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert up(0).status == 0
        os.kill(process(), signal.SIGKILL)
        (FOLDER / "pid").write_text(f"{other.pid}\n")
        assert up(1).status == 0
        assert process() not in (0, other.pid) and other.poll() is None
        (FOLDER / "pid").write_text(f"{other.pid}\n")
        assert execute([str(HOOKS / "kvm-ifdown"), "gnt.com.1", "hot-remove"], {**BASE, **environment(1)}).status == 0
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def as_ganeti_reads_it() -> list[str]:
    """What Ganeti's GenerateTapName (hypervisor/hv_base.py) takes for the lines with names: every second one of `ip link show`."""
    return [line.split(": ")[1] for line in run("ip", "link", "show").splitlines()[::2]]


def test_ganeti_can_name_the_next_tap(guests: list[Guest], node: Node) -> None:
    """Not while any device has an alias, on which Ganeti stumbles: that is said, with the setting that ends it."""
    settings = Path("/etc/netcommon/config.toml")
    text = settings.read_text()
    settings.unlink()
    assert up(0).status == 0
    assert "gnt.com.0" in as_ganeti_reads_it()
    node.bridge("br0")
    node.tap("tap0")
    other = {**environment(1), "INTERFACE": "tap0", "MODE": "bridged", "LINK": "br0", "IP": "", "INTERFACE_UUID": UUIDS[0][:-1] + "9"}
    assert rundoor("kvm-ifup", other).status == 0
    with pytest.raises(IndexError):
        as_ganeti_reads_it()
    assert "tap_alias = false" in up(1).stderr
    settings.write_text(text)
    assert rundoor("kvm-ifup", other).status == 0
    assert {"tap0", "gnt.com.0", "gnt.com.1"} <= set(as_ganeti_reads_it())


def test_both_at_once(taps: list[Tap]) -> None:
    """Started and stopped in parallel, as a node that boots does: always one daemon, and at last none."""
    with ThreadPoolExecutor(2) as pool:
        for _round in range(5):
            assert [done.status for done in pool.map(up, (0, 1))] == [0, 0]
            assert len(processes()) == 1 and len(list((FOLDER / "hosts").iterdir())) == 2
            assert [done.status for done in pool.map(down, (0, 1))] == [0, 0]
            assert processes() == [] and not FOLDER.exists()


def test_two_nodes_on_one_machine(node: Node, taps: list[Tap]) -> None:
    """They share /run, and each has a daemon of its own, which the other one's last down does not end."""
    assert up(0).status == 0
    first, other = process(), node.namespaced()
    with other.entered():
        tap = Tap("gnt.com.1")
        try:
            assert up(1).status == 0
            second = process()
            assert second not in (0, first)
            assert down(1).status == 0 and processes() == []
            assert up(1).status == 0
        finally:
            tap.close()
        assert process()
        assert command("gc").returncode == 0 and processes() == []
    assert process() == first
    assert command("gc").returncode == 0 and process() == first


def test_every_tap_has_one_mac(guests: list[Guest]) -> None:
    """A guest that has migrated goes on with the neighbour it knows."""
    assert up(0).status == 0 and up(1).status == 0
    assert {guest.resolve(NODE_ADDRESS) for guest in guests} == {"fe:00:a9:fe:a9:fe"}
