"""The site's scripts through the doors, as processes in a namespace: order, environment, failures, limits, and no recursion."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from netcommon.scripts.door_files import MARKER
from tests.support.bootstrap import VENV
from tests.support.netns import ask, run, slowness
from tests.support.node import Node
from tests.support.processes import alive
from tests.support.rundoor import BASE, HOOKS, execute, rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
UUIDS = (UUID, "23264fb6-0667-415f-9a43-786dc01cbf24")
GOOD = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": "aa:00:00:12:34:56",
    "VLAN": "",
    "INSTANCE": "web1.example",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": UUID,
    "TAGS": "b a",
    "STRANGE": "two\nlines $(id) 'x'",
}
UP_CUSTOM, DOWN_CUSTOM, VIF_BRIDGE = (f"/etc/ganeti/{name}" for name in ("kvm-ifup-custom", "kvm-ifdown-custom", "kvm-vif-bridge"))
OURS = {"NETCOMMON_CONTEXT", "NETCOMMON_MIGRATION_PHASE", "NETCOMMON_RECORD", "NETCOMMON_DOOR", "NETCOMMON_SCRIPT"}
SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}


@pytest.fixture
def br0(node: Node) -> Node:
    node.bridge("br0")
    node.tap("tap0")
    for door, more in (("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",))):
        assert rundoor(door, {**GOOD, "MODE": "routed", "LINK": "100", "IP": "10.0.0.5"}, "tap0", *more).status == 0
    os.makedirs("/etc/netcommon/ifup.d")
    os.makedirs("/etc/netcommon/ifdown.d")
    return node


def script(path: str, body: str, mode: int = 0o755) -> None:
    Path(path).write_text(f"#!/bin/sh\n{body}\n")
    os.chmod(path, mode)


def noting(path: str, name: str, more: str = "") -> None:
    """A script that notes its name, arguments and the tap's bridge."""
    script(path, f'echo "{name} $# $1 $2 $(ip -o link show tap0 | grep -o "master [^ ]*")" >>/run/noted\n{more}')


def noted() -> list[str]:
    path = Path("/run/noted")
    found = [line.strip() for line in path.read_text().splitlines()] if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def is_up() -> bool:
    return bool(ask("ip", "-j", "link", "show", "tap0")[0].get("master") == "br0")


def test_order(br0: Node) -> None:
    """After the built-in up, before the built-in down; Ganeti's first, then by name, names as run-parts takes them."""
    noting(UP_CUSTOM, "custom")
    noting(DOWN_CUSTOM, "custom")
    for folder in ("ifup.d", "ifdown.d"):
        for name in ("20-b", "10-a", "z.sh", "c~", "30-c"):
            noting(f"/etc/netcommon/{folder}/{name}", name)
        script(f"/etc/netcommon/{folder}/40-off", "echo off >>/run/noted", 0o644)
    done = rundoor("kvm-ifup", GOOD)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    assert noted() == [f"{name} 2 tap0 up master br0" for name in ("custom", "10-a", "20-b", "30-c")]
    assert rundoor("kvm-ifup", GOOD).status == 0
    assert noted() == []
    assert rundoor("kvm-ifdown", {"INTERFACE_UUID": UUID}, "tap0", "false").status == 0
    assert noted() == [f"{name} 2 tap0 hot-remove master br0" for name in ("custom", "10-a", "20-b", "30-c")]
    assert rundoor("kvm-ifdown", GOOD, "tap0", "false").status == 0
    assert noted() == []


@pytest.mark.parametrize(("door", "action"), [("kvm-ifup", ""), ("kvm-nic-setup", "up")])
def test_environment(br0: Node, door: str, action: str) -> None:
    """Exactly what the hypervisor gave at up, also at down, whatever that one is given; and four variables of ours."""
    for folder in ("ifup.d", "ifdown.d"):
        script(f"/etc/netcommon/{folder}/env", f"/usr/bin/env -0 >/run/env-{folder}")
    given = {**GOOD, **({"ACTION": action, "MIGRATION_PHASE": "pre"} if action else {})}
    assert rundoor(door, given).status == 0
    assert rundoor("kvm-ifdown", {"INTERFACE_UUID": UUID, "TAGS": "other", "NEW": "1"}, "tap0", "migrate").status == 0
    for folder, context in (("ifup.d", "up"), ("ifdown.d", "migrate")):
        found = dict(pair.split("=", 1) for pair in Path(f"/run/env-{folder}").read_text().split("\0") if pair)
        ours = {name: found.pop(name) for name in OURS}
        assert {name: value for name, value in found.items() if name not in SHELL} == {**BASE, **given}
        assert ours["NETCOMMON_CONTEXT"] == context
        assert ours["NETCOMMON_RECORD"] == f"/run/netcommon/nics/{UUID}.json"
        assert ours["NETCOMMON_MIGRATION_PHASE"] == ("pre" if action and folder == "ifup.d" else "")


@pytest.mark.parametrize("body", ["echo the reason; exit 3", "kill -9 $$", "exec /nosuch"])
def test_a_failing_ifup_script(br0: Node, body: str) -> None:
    """The NIC is rolled back, the script and its last words are named, those after it do not run, those of down do."""
    noting("/etc/netcommon/ifup.d/10-first", "first")
    script("/etc/netcommon/ifup.d/20-bad", body)
    noting("/etc/netcommon/ifup.d/30-last", "last")
    noting("/etc/netcommon/ifdown.d/10-down", "down")
    before = snapshot()
    done = rundoor("kvm-ifup", GOOD)
    assert done.status == 69 and done.stdout == ""
    assert "/etc/netcommon/ifup.d/20-bad" in done.stderr
    assert "the reason" in done.stderr or "echo" not in body
    assert noted() == ["first 2 tap0 up master br0", "down 2 tap0 rollback master br0"]
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_script_that_takes_the_device_away(br0: Node, again: bool, replaced: bool) -> None:
    """The NIC is not up then: it is rolled back, and the hypervisor hears of it; another device of the name is left as it is."""
    if again:
        assert rundoor("kvm-ifup", GOOD).status == 0 and is_up()
    script("/etc/netcommon/ifup.d/10-takes", "ip link delete tap0" + ("\nip tuntap add tap0 mode tap" if replaced else ""))
    noting("/etc/netcommon/ifdown.d/10-down", "down")
    done = rundoor("kvm-ifup", {**GOOD, "TAGS": "other"})
    why = "was replaced by another device" if replaced else "has gone"
    assert done.status == 69 and f"tap0 {why} while the site's scripts ran" in done.stderr
    assert "stays up" not in done.stderr and noted() == ["down 2 tap0 rollback"]
    assert os.listdir("/run/netcommon/nics") == os.listdir("/run/netcommon/devices") == []
    links = {link["ifname"]: link for link in ask("ip", "-j", "link")}
    assert ("tap0" in links) == replaced
    if replaced:
        assert not {"master", "ifalias"} & set(links["tap0"]) and "UP" not in links["tap0"]["flags"]
    os.unlink("/etc/netcommon/ifup.d/10-takes")
    if replaced:
        run("ip", "link", "delete", "tap0")
    br0.tap("tap0")
    assert rundoor("kvm-ifup", GOOD).status == 0 and is_up()


def test_a_failing_ifdown_script_stops_nothing(br0: Node) -> None:
    before = snapshot()
    script("/etc/netcommon/ifdown.d/10-bad", "exit 1")
    noting("/etc/netcommon/ifdown.d/20-next", "next")
    assert rundoor("kvm-ifup", GOOD).status == 0
    done = rundoor("kvm-ifdown", GOOD, "tap0", "false")
    assert done.status == 0 and "10-bad" in done.stderr
    assert noted() == ["next 2 tap0 hot-remove master br0"]
    for path in Path("/etc/netcommon/ifdown.d").iterdir():
        path.unlink()
    assert [line for line in diff(before, snapshot()) if "ifdown.d" not in line] == []


@pytest.mark.parametrize("how", ["world-writable", "group-writable", "not root's", "folder"])
def test_a_script_that_others_can_write(br0: Node, how: str) -> None:
    """Not run, and named; nothing is done."""
    path = "/etc/netcommon/ifup.d/10-open"
    noting(path, "open")
    if how == "folder":
        os.chmod("/etc/netcommon/ifup.d", 0o777)
    elif how == "not root's":
        os.chown(path, 65534, 0)
    else:
        os.chown(path, 0, 65534)
        os.chmod(path, 0o757 if how == "world-writable" else 0o775)
    before = snapshot()
    done = rundoor("kvm-ifup", GOOD)
    assert done.status == 69 and "10-open" in done.stderr and len(done.stderr.splitlines()) == 1
    assert noted() == [] and diff(before, snapshot()) == []


@pytest.mark.parametrize("name", [VIF_BRIDGE, UP_CUSTOM])
@pytest.mark.parametrize("how", ["symlink", "hard link", "copy", "wrapper", "indirect"])
def test_our_own_door_under_a_custom_name(br0: Node, name: str, how: str) -> None:
    """Whichever way a site wires us in: no recursion, and the built-in does its work."""
    door = str(HOOKS / "kvm-ifup")
    if how == "symlink":
        os.symlink(door, name)
    elif how in ("copy", "hard link"):
        Path(name).write_bytes(Path(door).read_bytes())
        os.chmod(name, 0o755)
    elif how == "wrapper":
        script(name, f'exec {door} "$@"')
    else:
        script(name, f'echo called >>/run/noted\n[ -n "$1" ] || set -- tap0\n{door} "$@" || exit 1\ntrue')
    before = snapshot()
    started = [door, "b'tap0'"] if how in ("copy", "hard link") else ([name] if name == VIF_BRIDGE else [name, "tap0"])
    done = execute(started if how != "indirect" else [door, "tap0"], {**BASE, **GOOD})
    instead = how == "indirect" and name == VIF_BRIDGE  # a script of the site's called kvm-vif-bridge takes the built-in's place
    assert (done.status, bool(done.stderr)) == ((69, True) if instead else (0, False)), done
    assert len(noted()) == (1 if how == "indirect" else 0)
    assert is_up() != instead
    assert rundoor("kvm-ifdown", GOOD, "tap0", "false").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize(
    ("order", "name", "built_in"),
    [("", VIF_BRIDGE, False), ("after", VIF_BRIDGE, True), ("instead", UP_CUSTOM, False), ("", UP_CUSTOM, True)],
)
def test_instead_of_the_built_in(br0: Node, order: str, name: str, built_in: bool) -> None:
    """kvm-vif-bridge by itself, as Ganeti does it; kvm-ifup-custom where the settings say so."""
    if order:
        Path("/etc/netcommon/config.toml").write_text(f'[custom]\norder = "{order}"\n')
    noting(name, "site")
    noting("/etc/netcommon/ifup.d/10-a", "a")
    before = snapshot()
    assert rundoor("kvm-ifup", GOOD).status == 0
    master = "master br0" if built_in else ""
    first = f"site 0   {master}" if name == VIF_BRIDGE else f"site 2 tap0 up {master}"
    assert noted() == [first.strip(), f"a 2 tap0 up {master}".strip()]
    assert is_up() == built_in
    assert rundoor("kvm-ifdown", GOOD, "tap0", "false").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("name", [UP_CUSTOM, VIF_BRIDGE, "/etc/ganeti/network/bridged/up"])
@pytest.mark.parametrize("called", ["kvm-ifup", "kvm-nic-setup", "the installed one"])
def test_a_script_instead_of_the_built_in_that_calls_it(br0: Node, name: str, called: str) -> None:
    """It cannot have both: whoever starts the guest hears that it has no network, and why; a script that does no more is left out."""
    Path("/etc/netcommon/config.toml").write_text('[custom]\norder = "instead"\n')
    os.makedirs("/etc/ganeti/network/bridged")
    before = snapshot()
    if called == "the installed one":
        script("/run/kvm-ifup", f'{MARKER}\nexec {HOOKS}/kvm-ifup "$@"')
        script(name, 'exec /run/kvm-ifup "$@"')
        done = rundoor("kvm-ifup", GOOD)
        assert (done.status, done.stderr, is_up()) == (0, "", True)
        return
    script(name, f'echo called >>/run/noted\nexec {HOOKS}/{called} "$@"')
    done = rundoor("kvm-ifup", GOOD)
    assert (done.status, is_up(), noted()) == (69, False, ["called"])
    assert name in done.stderr and 'order = "after"' in done.stderr
    os.unlink(name)
    assert diff(before, snapshot()) == []


def test_a_script_that_hangs(br0: Node) -> None:
    """Ended at the limit, with its children; the NIC is rolled back, and the answer comes in time."""
    Path("/etc/netcommon/config.toml").write_text("[hook]\ntimeout = 1\nservice_timeout = 1\n")
    script("/etc/netcommon/ifup.d/10-hangs", "trap '' TERM\nsleep 1001 & echo $! $$ >/run/pids\nsleep 1002\nsleep 1003")
    before = snapshot()
    done = rundoor("kvm-ifup", GOOD, timeout=60)
    assert done.status in (69, 75) and "10-hangs" in done.stderr and "time limit" in done.stderr, done
    assert done.seconds < 6 * slowness()
    pids = Path("/run/pids").read_text().split()
    assert [pid for pid in pids if alive(pid)] == []
    os.unlink("/run/pids")
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("how", ["sleep 1004 &", "setsid sleep 1004 & echo $! >/run/daemon", "exec 9>&1; sleep 1004 >&9 2>&9 &"])
def test_no_output_is_held_open(br0: Node, how: str) -> None:
    """A child in the background that holds the script's outputs: the door's own are closed at once."""
    script("/etc/netcommon/ifup.d/10-daemon", how + "\necho started")
    done = rundoor("kvm-ifup", GOOD, timeout=30)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")
    assert done.seconds < 3 * slowness()
    if os.path.exists("/run/daemon"):
        pid = Path("/run/daemon").read_text().strip()
        if alive(pid):
            os.kill(int(pid), 9)


def test_a_flood_of_output(br0: Node) -> None:
    """Megabytes of it neither block nor reach our own output."""
    script("/etc/netcommon/ifup.d/10-talks", "head -c 5000000 /dev/zero | tr '\\0' x; echo; seq 100000")
    done = rundoor("kvm-ifup", GOOD)
    assert (done.status, done.stdout, done.stderr) == (0, "", "")


def test_mode_ext_is_the_scripts_alone(br0: Node) -> None:
    noting("/etc/netcommon/ifup.d/10-a", "a")
    noting("/etc/netcommon/ifdown.d/10-a", "a")
    before = snapshot()
    assert rundoor("kvm-ifup", {**GOOD, "MODE": "ext", "LINK": "any thing"}).status == 0
    assert noted() == ["a 2 tap0 up"]
    assert diff({**before, "files": {}}, {**snapshot(), "files": {}}) == []
    assert rundoor("kvm-ifdown", {}, "tap0", "false").status == 0
    assert noted() == ["a 2 tap0 hot-remove"]
    assert diff(before, snapshot()) == []


def test_a_script_may_call_other_doors(br0: Node) -> None:
    """One for another NIC is not ours to suppress."""
    br0.tap("tap1")
    other = "23264fb6-0667-415f-9a43-786dc01cbf24"
    script(
        "/etc/netcommon/ifup.d/10-other",
        f'[ "$1" = tap0 ] || exit 0\nINTERFACE=tap1 INTERFACE_UUID={other} INTERFACE_INDEX=1 {HOOKS}/kvm-ifup tap1',
    )
    done = rundoor("kvm-ifup", GOOD)
    assert (done.status, done.stderr) == (0, ""), done
    assert sorted(os.listdir("/run/netcommon/nics")) == [f"{UUID}.json", f"{other}.json"]


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        *(("ifup.d", words) for words in ("up --all", "down --force tap0")),
        *(("ifdown.d", words) for words in ("up --all", "down --force tap0", "repair tap0")),
    ],
)
def test_a_command_in_a_script_does_not_wait_for_its_own_nic(br0: Node, folder: str, words: str) -> None:
    """The door waits for the script: the command says so at once, does what is asked for other NICs, and the NIC is as without it."""
    br0.tap("tap1")
    cli = f"{VENV}/bin/netcommon"
    for number in range(2):
        defined = ("--interface", f"tap{number}", "--mode", "bridged", "--link", "br0", "--uuid", UUIDS[number])
        assert execute([cli, "define", *defined], BASE).status == 0
    script(f"/etc/netcommon/{folder}/50-all", f'[ "$1" = tap0 ] || exit 0\n{cli} {words} >/run/said 2>&1\necho $? >>/run/said')
    if folder == "ifdown.d":
        assert rundoor("kvm-ifup", {}, "tap0").status == 0
    began = time.monotonic()
    done = rundoor(*(("kvm-ifup", {}, "tap0") if folder == "ifup.d" else ("kvm-ifdown", {}, "tap0", "hot-remove")))
    took, said = time.monotonic() - began, Path("/run/said").read_text()
    assert (done.status, done.stderr, is_up()) == (0, "", folder == "ifup.d"), (done, said)
    assert "waits until this script has ended" in said and said.endswith("\n75\n") and took < 5 * slowness(), (took, said)
    assert (f"{UUIDS[1]}.json" in os.listdir("/run/netcommon/nics")) == (words == "up --all")


@pytest.mark.parametrize("clean", ["", "env -u INTERFACE -u INTERFACE_UUID "])
def test_a_script_may_take_down_another_nic_of_plain_qemu(br0: Node, clean: str) -> None:
    """Known by its device alone, in the environment of the NIC that the script runs for."""
    br0.tap("tap1")
    other = {**GOOD, "INTERFACE": "tap1", "INTERFACE_UUID": "23264fb6-0667-415f-9a43-786dc01cbf24", "INTERFACE_INDEX": "1"}
    assert rundoor("kvm-ifup", other, "tap1").status == 0
    script("/etc/netcommon/ifup.d/10-other", f"{clean}{HOOKS}/kvm-ifdown tap1 false && {clean}{HOOKS}/kvm-ifdown tap0 false")
    identity = {"INSTANCE", "MAC", "INTERFACE_INDEX"} if clean else set()
    done = rundoor("kvm-ifup", {name: value for name, value in GOOD.items() if name not in identity}, "tap0")
    assert (done.status, done.stderr) == (0, ""), done
    assert os.listdir("/run/netcommon/nics") == [f"{UUID}.json"] and is_up()


def test_a_terminated_door_rolls_back(br0: Node) -> None:
    """SIGTERM while a script runs: what was begun is undone."""
    script("/etc/netcommon/ifup.d/10-waits", "touch /run/waits; exec sleep 1005")
    before = snapshot()
    code = f"{HOOKS}/kvm-ifup tap0 & door=$!; while [ ! -e /run/waits ]; do sleep 0.05; done; kill -TERM $door; wait $door"
    start = time.monotonic()
    done = execute(["/bin/sh", "-c", code], {**BASE, **GOOD})
    assert done.status == 75 and "ended by signal 15" in done.stderr
    assert time.monotonic() - start < 10 * slowness()
    os.unlink("/run/waits")
    assert diff(before, snapshot()) == []
    assert "sleep 1005" not in run("ps", "-eo", "args")
