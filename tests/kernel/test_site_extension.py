"""The example of a site's own mode on the running kernel, through the doors: plan, up, check, drift, repair, down, gc; and without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.errors import CONFIG, UNAVAILABLE
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "site-extension" / "storage.py"
SETTINGS = '[extensions.storage]\nadds = "mode"\nparameters = { address = "198.51.100.1", mtu = 9000 }\n'
NIC = environment(MODE="ext", LINK="storage", IP="198.51.100.20")


def netcommon(*arguments: str, status: int = 0) -> str:
    """The command line, as a process of its own."""
    argv = [sys.executable, "-m", "netcommon.cli", *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def settings(text: str) -> None:
    Path("/etc/netcommon/config.toml").write_text(text)


@pytest.fixture
def site(node: Node) -> Node:
    os.makedirs("/etc/netcommon/extensions")
    shutil.copy(EXAMPLE, "/etc/netcommon/extensions/storage.py")
    settings(SETTINGS)
    node.tap("tap0")
    for door, more in (("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",))):
        assert rundoor(door, environment(LINK="100"), "tap0", *more).status == 0  # the folders are there from now on
    return node


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 60


@pytest.mark.no_agent("an agent that has not read the extension's settings repairs its kinds")
def test_a_life(site: Node) -> None:
    before = snapshot()
    assert rundoor("kvm-ifup", NIC).status == 0
    assert "mtu 9000" in run("ip", "link", "show", "tap0")
    assert "198.51.100.1/32" in run("ip", "address", "show", "dev", "tap0")
    assert "tap0 proto 174" in run("ip", "route", "get", "fibmatch", "198.51.100.20")
    assert "good" in netcommon("check", "tap0")
    for change in (
        ("link", "set", "tap0", "mtu", "1500"),
        ("route", "del", "198.51.100.20/32", "dev", "tap0"),
        ("address", "del", "198.51.100.1/32", "dev", "tap0"),
    ):
        run("ip", *change)
        assert "drifted" in netcommon("check", "tap0", status=1)
        netcommon("repair", "tap0")
        assert "good" in netcommon("check", "tap0")
    assert "mtu 9000" in netcommon("explain", "tap0")
    assert "already" in netcommon("-v", "up", "--env-file", given(), status=0)
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


def given() -> str:
    """The NIC's variables as a file."""
    path = Path("/run/nic.environ")
    path.write_text("".join(f"{name}={value}\n" for name, value in NIC.items()))
    return str(path)


@pytest.mark.no_agent("about gc: an agent undoes at once what is left of a NIC whose device has gone")
def test_gc_undoes_it_when_the_device_has_gone(site: Node) -> None:
    other = site.tap("tap1")
    before = snapshot()
    nic = {**NIC, "INTERFACE": "tap1"}
    assert rundoor("kvm-ifup", nic).status == 0
    other.close()
    assert "tap1" in netcommon("gc")
    assert "no NICs" in netcommon("list")
    site.tap("tap1")
    assert [line for line in diff(before, snapshot()) if "tap1" not in line] == []


def test_a_plan_needs_no_host(site: Node) -> None:
    """What is done, and undone, of the same list."""
    said = netcommon("plan", "--env-file", given())
    assert "ip link set dev tap0 mtu 9000" in said and said.count(" route ") == 2


def test_without_the_extension_nothing_is_lost(site: Node) -> None:
    """Its record stays with what only it can undo, says so, and is undone when the extension is back."""
    before = snapshot()
    assert rundoor("kvm-ifup", NIC).status == 0
    settings("")
    assert "extension storage" in netcommon("check", "tap0", status=1)
    down = rundoor("kvm-ifdown", NIC, "tap0", "hot-remove")
    assert down.status == UNAVAILABLE and "put the table [extensions.storage] back" in down.stderr
    assert "mtu 9000" in run("ip", "link", "show", "tap0")
    assert "198.51.100.1/32" not in run("ip", "address", "show", "dev", "tap0")
    settings(SETTINGS)
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("what", ["writable by others", "another's", "folder writable", "link", "broken", "missing", "raises"])
def test_what_is_not_roots_alone_is_not_run(site: Node, what: str) -> None:
    """An up is refused with the settings' status; the host and the records are as they were."""
    folder = "/etc/netcommon/extensions"
    path = Path(folder, "storage.py")
    {
        "writable by others": lambda: os.chmod(path, 0o646),
        "another's": lambda: os.chown(path, 65534, 65534),
        "folder writable": lambda: os.chmod(folder, 0o777),
        "link": lambda: (Path("/run/evil").mkdir(), os.chmod("/run/evil", 0o777), os.symlink("/run/evil", folder + "/more")),
        "broken": lambda: path.write_text("this is no Python\n"),
        "missing": path.unlink,
        "raises": lambda: path.write_text("def plan(nic, settings, options):\n    return 1 // 0\n"),
    }[what]()
    before = snapshot()
    refused = rundoor("kvm-ifup", NIC)
    assert refused.status == CONFIG and "extension storage" in refused.stderr
    assert diff(before, snapshot()) == [] and "no NICs" in netcommon("list")


@pytest.mark.no_agent("starts agents of its own")
def test_the_agent_does_and_keeps_it(site: Node) -> None:
    """A hook that hands its call over gets the same; what drifts is put back; and the down needs the agent no more."""
    before = snapshot()
    with agent(settings=SETTINGS) as running:
        calls = running.status()["agent"]
        assert rundoor("kvm-ifup", NIC).status == 0
        wait_until(lambda: running.status()["agent"]["nics"] == {"up": 1}, 10, "one NIC on record")
        assert calls != running.status()["agent"]
        run("ip", "link", "set", "tap0", "mtu", "1500")
        wait_until(lambda: "mtu 9000" in run("ip", "link", "show", "tap0"), 20, "the MTU is put back")
        running.logged("ip link set dev tap0 mtu 9000")
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert [line for line in diff(before, snapshot()) if " files: " not in line] == []  # the agent has files of its own
