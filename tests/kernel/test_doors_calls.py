"""The doors as hypervisors call them, as processes in a namespace: each convention, each surrounding, and what they answer when busy."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import definitions
from runtime.environment import nic_from_environment
from runtime.locks import number
from runtime.paths import Paths
from tests.support import loads
from tests.support.joined import said
from tests.support.netns import ask, run, slowness, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import BASE, HOOKS, Outcome, execute, rundoor
from tests.support.snapshot import Snapshot, diff, snapshot

pytestmark = pytest.mark.sampled(3)

UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
OTHER = "23264fb6-0667-415f-9a43-786dc01cbf24"
GOOD = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": "aa:00:00:12:34:56",
    "VLAN": "",
    "INSTANCE": "web1.example",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUID,
    "TAGS": "a b",
}
ROUTED = {**GOOD, "MODE": "routed", "LINK": "100", "IP": "10.0.0.5"}


@pytest.fixture
def br0(node: Node) -> Node:
    node.bridge("br0")
    node.tap("tap0")
    warm()
    return node


def warm() -> None:
    """As on a node where NICs have come and gone on this tap: the state directory is there, and the queue that a first up brings."""
    fine(rundoor("kvm-ifup", ROUTED))
    fine(rundoor("kvm-ifdown", ROUTED, "tap0", "hot-remove"))


def settings(text: str) -> None:
    Path("/etc/netcommon/config.toml").write_text(text)


def port_of(tap: str) -> str:
    found: str = ask("ip", "-j", "link", "show", tap)[0].get("master", "")
    return found


def records() -> dict[str, dict[str, object]]:
    folder = Path("/run/netcommon/nics")
    return {path.stem: json.loads(path.read_bytes()) for path in folder.glob("*.json")}


def fine(done: Outcome) -> None:
    assert (done.status, done.stdout, done.stderr) == (0, "", ""), done


@pytest.mark.parametrize("argument", ["b'tap0'", 'b"tap0"', "tap0"])
def test_as_ganeti_calls(br0: Node, argument: str) -> None:
    before = snapshot()
    fine(rundoor("kvm-ifup", GOOD, argument))
    assert port_of("tap0") == "br0"
    fine(rundoor("kvm-ifdown", GOOD, argument, "false"))
    assert diff(before, snapshot()) == []


def test_without_arguments(br0: Node) -> None:
    """As Ganeti executes kvm-vif-bridge: all that names the device is INTERFACE."""
    before = snapshot()
    fine(execute([str(HOOKS / "kvm-ifup")], {**BASE, **GOOD}))
    assert port_of("tap0") == "br0"
    fine(execute([str(HOOKS / "kvm-ifdown")], {**BASE, **GOOD}))
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize(
    ("context", "waits"),
    [
        ("", True),
        ("true", True),
        ("shutdown", True),
        ("false", False),
        ("hot-remove", False),
        ("migrate", False),
        ("migrate-failed", False),
    ],
)
def test_contexts_while_the_tap_is_held(br0: Node, context: str, waits: bool) -> None:
    """By a process that is not our caller's parent: here the test itself is, so a shell stands between."""
    fine(rundoor("kvm-ifup", ROUTED))
    before = snapshot()
    door = f"{HOOKS}/kvm-ifdown tap0 {context}; exit $?"
    fine(execute(["/bin/sh", "-c", door], {**BASE, **ROUTED}))
    if waits:
        assert [line for line in diff(before, snapshot()) if "/run/netcommon" not in line] == []
        assert records()[UUID]["state"] == "closing"
    else:
        assert records() == {} and "10.0.0.5" not in run("ip", "route", "show", "table", "all")


def test_qemus_own_downscript_is_final(br0: Node) -> None:
    """Its parent holds the tap: this process does."""
    before = snapshot()
    fine(rundoor("kvm-ifup", ROUTED))
    fine(rundoor("kvm-ifdown", {}, "tap0"))
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("name", ["kvm-nic-setup", "up", "down"])
def test_nic_setup(br0: Node, tmp_path: Path, name: str) -> None:
    """Ganeti 3.2: by ACTION, or by the name under which it found us."""
    folder = tmp_path / "network" / "bridged"
    folder.mkdir(parents=True)
    for link in ("up", "down"):
        (folder / link).symlink_to(HOOKS / "kvm-nic-setup")
    before = snapshot()
    up, down = ({**GOOD, "ACTION": "up"}, {**GOOD, "ACTION": "down"}) if name == "kvm-nic-setup" else (GOOD, GOOD)
    doors = [str(HOOKS / name)] * 2 if name == "kvm-nic-setup" else [str(folder / "up"), str(folder / "down")]
    fine(execute([doors[0], "b'tap0'"], {**BASE, **up}))
    assert port_of("tap0") == "br0"
    fine(execute([doors[1], "b'tap0'"], {**BASE, **down}))
    assert diff(before, snapshot()) == []


def test_plain_qemu_by_definition(br0: Node) -> None:
    """Nothing in the environment; what tap0 is was defined beforehand."""
    definitions.write(Paths(), nic_from_environment(ROUTED))
    before = snapshot()
    fine(rundoor("kvm-ifup", {}, "tap0"))
    assert "10.0.0.5 dev tap0" in run("ip", "route", "show", "table", "100")
    assert list(records()) == [UUID]
    fine(rundoor("kvm-ifdown", {}, "tap0"))
    assert diff(before, snapshot()) == []


def test_plain_qemu_in_a_strange_environment(br0: Node) -> None:
    """QEMU's scripts get what QEMU was started in. Whatever it is called like, the argument says which NIC, the definition which."""
    br0.tap("tap1")
    stray = {"INTERFACE": "tap1", "MODE": "release", "IP": "10.0.0.9", "TAGS": "x", "VLAN": ".7", "NETWORK_SUBNET": "10.9.0.0/24"}
    definitions.write(Paths(), nic_from_environment(ROUTED))
    fine(rundoor("kvm-ifup", {**GOOD, "INTERFACE": "tap1", "INTERFACE_UUID": OTHER, "INTERFACE_INDEX": "1"}, "tap1"))
    before = snapshot()
    fine(rundoor("kvm-ifup", stray, "tap0"))
    assert "10.0.0.5 dev tap0" in run("ip", "route", "show", "table", "100")
    environment = records()[UUID]["nic"]
    assert "10.0.0.9" not in str(environment) and "10.9.0.0" not in str(environment)
    up = snapshot()
    said = rundoor("kvm-ifdown", {**stray, "INSTANCE": "web1.example"}, "tap0", "false")
    assert said.status == 0 and "nothing was done" in said.stderr and diff(up, snapshot()) == []
    fine(rundoor("kvm-ifdown", stray, "tap0", "false"))
    assert diff(before, snapshot()) == [] and port_of("tap1") == "br0"


def test_a_tap_that_nobody_knows(br0: Node) -> None:
    """A late, repeated or unknown down is no failure."""
    before = snapshot()
    for arguments in (["tap7"], ["tap0", "hot-remove"], ["tap0", "shutdown"]):
        fine(rundoor("kvm-ifdown", {}, *arguments))
        fine(rundoor("kvm-ifdown", {**GOOD, "INTERFACE_UUID": OTHER}, *arguments))
    assert diff(before, snapshot()) == []


def test_up_twice_and_down_twice(br0: Node) -> None:
    """The second up emits no event of netlink, the second down changes nothing."""
    before = snapshot()
    fine(rundoor("kvm-ifup", ROUTED))
    up = snapshot()
    with monitored() as events:
        fine(rundoor("kvm-ifup", ROUTED))
    assert events == []
    assert diff(up, snapshot()) == []
    for _ in range(2):
        fine(rundoor("kvm-ifdown", ROUTED, "tap0", "hot-remove"))
        assert diff(before, snapshot()) == []


@contextlib.contextmanager
def monitored() -> Iterator[list[str]]:
    """The lines of ``ip monitor`` in between; an event of our own shows that all before it were heard."""
    found: list[str] = []
    heard = b""
    monitor = subprocess.Popen(["ip", "monitor", "link", "address", "route", "rule"], stdout=subprocess.PIPE)
    assert monitor.stdout is not None
    descriptor = monitor.stdout.fileno()
    os.set_blocking(descriptor, False)

    def hears(mark: str) -> bool:
        nonlocal heard
        run("ip", "route", "add", "blackhole", mark, "table", "9999")
        run("ip", "route", "del", "blackhole", mark, "table", "9999")
        with contextlib.suppress(BlockingIOError):
            heard += os.read(descriptor, 1 << 20)
        return mark.encode() in heard

    try:
        wait_until(lambda: hears("203.0.113.1"), 5)
        yield found
        wait_until(lambda: hears("203.0.113.2"), 5)
    finally:
        monitor.kill()
        monitor.communicate()
    found += [line for line in heard.decode().splitlines() if line.strip() and "203.0.113." not in line]


def test_poor_surroundings(br0: Node) -> None:
    """umask 0077 and no folder to be in; standard input, output and error closed; an error output that is full."""
    before = snapshot()
    door, down = f"{HOOKS}/kvm-ifup", f"{HOOKS}/kvm-ifdown"
    for closing in ("<&-", "<&- >&- 2>&-", ">&- 2>&-", "2>/dev/full", "</dev/null >/dev/full 2>/dev/full"):
        fine(execute(["/bin/sh", "-c", f"umask 0777; exec {door} tap0 {closing}"], {**BASE, **GOOD}))
        assert port_of("tap0") == "br0"
        mode = os.stat(f"/run/netcommon/nics/{UUID}.json").st_mode & 0o777
        assert (mode, os.stat("/run/netcommon").st_mode & 0o777) == (0o600, 0o755)
        fine(execute(["/bin/sh", "-c", f"umask 0777; exec {down} tap0 hot-remove {closing}"], {**BASE, **GOOD}))
        assert diff(before, snapshot()) == []
        failed = execute(["/bin/sh", "-c", f"exec {door} tap0 {closing}"], {**BASE, **GOOD, "LINK": "nosuch"})
        assert failed.status == 69, (closing, failed)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, bytes(65536))
    os.set_blocking(writer, True)
    full = subprocess.run([door, "tap0"], env={**BASE, **GOOD, "LINK": "nosuch"}, stderr=writer, timeout=20 * slowness(), check=False)
    os.close(writer)
    os.close(reader)
    assert full.returncode == 69
    with open("/dev/full", "wb") as nowhere:
        for link, status in (("nosuch", 69), (GOOD["LINK"], 0)):
            variables = {**BASE, **GOOD, "LINK": link}
            done = subprocess.run([door, "tap0"], env=variables, stdout=nowhere, stderr=nowhere, timeout=60, check=False)
            assert done.returncode == status
    assert len(records()) == 1


def test_no_environment_at_all(br0: Node) -> None:
    """Not even a PATH."""
    fine(execute([str(HOOKS / "kvm-ifup"), "tap0"], GOOD))
    fine(execute([str(HOOKS / "kvm-ifdown"), "tap0", "false"], {}))
    assert records() == {}


@pytest.mark.no_agent("about gc: an agent undoes at once what is left of a NIC whose device has gone")
def test_ganetis_hook(br0: Node) -> None:
    """After the guest has gone, for its instance alone; in other phases and for other objects nothing."""
    taps = {"tap0": br0.tap("tap1"), "tap2": br0.tap("tap2")}
    fine(rundoor("kvm-ifup", {**ROUTED, "INTERFACE": "tap1"}))
    fine(rundoor("kvm-ifup", {**ROUTED, "INTERFACE": "tap2", "INTERFACE_UUID": OTHER, "INSTANCE": "web2", "IP": "10.0.0.6"}))
    variables = {"GANETI_INSTANCE_NAME": "web1.example", "GANETI_HOOKS_PHASE": "post", "GANETI_OBJECT_TYPE": "INSTANCE"}
    fine(execute([str(HOOKS / "ganeti-hook")], {**BASE, **variables}))
    assert set(records()) == {UUID, OTHER}
    for tap in taps.values():
        tap.close()
    wait_until(lambda: "tap1" not in run("ip", "link"), 5)
    for changes in ({"GANETI_HOOKS_PHASE": "pre"}, {"GANETI_OBJECT_TYPE": "NODE"}, {"GANETI_INSTANCE_NAME": "web3"}):
        fine(execute([str(HOOKS / "ganeti-hook")], {**BASE, **variables, **changes}))
        assert set(records()) == {UUID, OTHER}
    fine(execute([str(HOOKS / "ganeti-hook")], {**BASE, **variables}))
    assert set(records()) == {OTHER}
    assert "iif tap1" not in run("ip", "rule") and "iif tap2" in run("ip", "rule")
    bad = execute([str(HOOKS / "ganeti-hook")], {**BASE, **variables, "GANETI_INSTANCE_NAME": "../../x"})
    assert bad.status == 64 and "GANETI_INSTANCE_NAME" in bad.stderr


@pytest.mark.parametrize("name", ["device-{device}", "uuid-{uuid}", "key-{key}"])
@pytest.mark.parametrize("door", ["kvm-ifup", "kvm-ifdown"])
def test_a_busy_lock(br0: Node, name: str, door: str) -> None:
    """75 within the limit, naming who holds it; nothing is touched, nothing is left."""
    settings("[hook]\ntimeout = 1\nservice_timeout = 0.5\n")
    if door == "kvm-ifdown":
        fine(rundoor("kvm-ifup", ROUTED))
    key = "rule-2-tap0-500-100"
    numbers = {"device": f"{number('tap0'):02d}", "uuid": f"{number(UUID):02d}", "key": f"{number(key):02d}"}
    path = "/run/netcommon/locks/" + name.format(**numbers)
    before = snapshot()
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = rundoor(door, ROUTED, "tap0", *(["hot-remove"] if door == "kvm-ifdown" else []))
        changed: Snapshot = snapshot()  # as long as it is busy: an agent goes on with the down when it is not any more
    assert done.status == 75, done
    assert f"held by process {os.getpid()}" in done.stderr and len(done.stderr.splitlines()) == 1
    assert 0.9 < done.seconds < 3 * slowness()
    left = [line for line in diff(before, changed) if '"state"' not in line and "state" not in line]
    assert left == []
    fine(rundoor(door, ROUTED, "tap0", *(["hot-remove"] if door == "kvm-ifdown" else [])))


@pytest.mark.parametrize("daemon", ["ovsdb-server", "ovs-vswitchd"])
def test_a_frozen_open_vswitch(node: Node, ovs: OpenVswitch, daemon: str) -> None:
    """75 within the limit; once it answers again, nothing of the failed call is there, and the next one does it."""
    ovs.bridge("ovs0")
    node.tap("tap0")
    warm()
    settings("[hook]\ntimeout = 4\nservice_timeout = 0.5\n")
    nic = {**GOOD, "MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10"}
    before = snapshot()
    ovs.freeze(daemon)
    done = rundoor("kvm-ifup", nic)
    ovs.thaw(daemon)
    assert done.status == 75 and done.seconds < 6 * slowness(), done
    fine(rundoor("kvm-ifdown", nic, "tap0", "hot-remove"))
    assert diff(before, snapshot()) == []
    fine(rundoor("kvm-ifup", nic))
    assert ovs.vsctl("get", "Port", "tap0", "tag") == "10"
    ovs.freeze("ovsdb-server")
    done = rundoor("kvm-ifdown", nic, "tap0", "hot-remove")
    ovs.thaw("ovsdb-server")
    assert done.status == 75 and done.seconds < 6 * slowness(), done
    fine(rundoor("kvm-ifdown", nic, "tap0", "hot-remove"))
    assert diff(before, snapshot()) == []


def test_what_a_door_loads(br0: Node) -> None:
    """No more than the number in tests/support/loads.py, and nothing that is dear or for others."""
    bare = execute(["/usr/bin/python3", "-X", "importtime", "-IS", "-c", "import os"], BASE)
    hooks = [("kvm-ifup", GOOD), ("kvm-ifdown", GOOD), ("kvm-ifup", ROUTED), ("kvm-ifdown", ROUTED), ("kvm-ifup", {**GOOD, "MODE": "ext"})]
    for door, variables in hooks:
        loaded = _loads(door, variables, _loaded(bare))
        # a guard was removed: the hook does not wait for the end of that socket (and has announced nothing: there is no uplink here)
        assert ("netcommon.doors.deferred_close" in loaded) == (door == "kvm-ifdown"), (door, variables["MODE"])
    rundoor("kvm-ifdown", GOOD, "tap0", "hot-remove")


@pytest.mark.parametrize("options", [{}, {"isolated": "no"}], ids=["nothing", "an option"])
def test_what_a_door_loads_on_a_node_that_has_joined_a_registry(br0: Node, options: dict[str, str]) -> None:
    """One module more, whether it wants an option of the NIC or not: what ends, is under way or is damaged is looked at by others."""
    nic = {**GOOD, "TAGS": "netcommon:0:isolated:no"}
    without = [_loaded(_imports(door, nic)) for door in ("kvm-ifup", "kvm-ifdown")]
    said(UUID, options)
    joined = [_loaded(_imports(door, nic)) for door in ("kvm-ifup", "kvm-ifdown")]
    assert [more - less for more, less in zip(joined, without, strict=True)] == [{"runtime.kept"}, {"runtime.kept"}]


@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_door_loads_for_open_vswitch(node: Node, ovs: OpenVswitch, guarded: bool) -> None:
    """Nothing that starts a process is in it, with the spoof guard neither."""
    ovs.bridge("ovs0")
    node.tap("tap0")
    bare = _loaded(execute(["/usr/bin/python3", "-X", "importtime", "-IS", "-c", "import os"], BASE))
    nic = {**GOOD, "MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10", "TAGS": "" if guarded else "netcommon:0:spoof_guard:off"}
    for door in ("kvm-ifup", "kvm-ifdown"):
        _loads(door, nic, bare, "" if guarded else " unguarded")


def _loads(door: str, variables: dict[str, str], bare: set[str], how: str = "") -> set[str]:
    done = _imports(door, variables)
    assert done.status == 0 and "netcommon.lifecycle.execute" in _loaded(done), done.stderr[-500:]
    loaded, mode = _loaded(done) - bare, variables["MODE"]
    others = {name for name in loaded for start in loads.ELSEWHERE[mode] if f"{name}.".startswith(f"{start}.")}
    assert (loaded & loads.DEAR, others) == (set(), set()), (door, mode)
    assert len(loaded) <= loads.MOST[mode + how, door.removeprefix("kvm-if")], (door, mode, len(loaded), " ".join(sorted(loaded)))
    return loaded


def _imports(door: str, variables: dict[str, str]) -> Outcome:
    code = ["-X", "importtime", "-IS", str(HOOKS / "cold" / door), "tap0", *(["hot-remove"] if door == "kvm-ifdown" else [])]
    return execute(["/usr/bin/python3", *code], {**BASE, **variables})


def _loaded(done: Outcome) -> set[str]:
    """What -X importtime says was loaded."""
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")} - {"imported package"}
