"""The hooks through a real agent leave what they leave without one; and whatever becomes of the agent, every NIC comes out right."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.hooks.protocol import SETTLED
from netcommon.host.linux.host import LinuxHost
from runtime.locks import number
from runtime.paths import Paths
from runtime.store import Store
from tests.kernel.test_doors_parallel import ended, environment, good, start
from tests.support.agent import COMMAND, Agent, agent
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import BASE, HOOKS, execute, rundoor
from tests.support.snapshot import Snapshot, diff, snapshot

pytestmark = pytest.mark.sampled(2)

GUARDED = {"TAGS": "netcommon:*:spoof_guard:yes"}
IPV6 = {"IP": "2001:db8::5", "NETWORK_SUBNET6": "2001:db8::/64", "NETWORK_GATEWAY6": "2001:db8::1"}

CASES: dict[str, dict[str, str]] = {
    "bridged": {"MODE": "bridged", "LINK": "br0", "IP": ""},
    "bridged, guarded": {"MODE": "bridged", "LINK": "br0", **GUARDED},
    "routed": {"LINK": "", "NETWORK_GATEWAY": "10.0.0.254", "NETWORK_SUBNET": "10.0.0.0/24"},
    "routed, table": {},
    "routed, table, guarded": GUARDED,
    "routed, IPv6": {"LINK": "", **IPV6},
}
SWITCHED: dict[str, dict[str, str]] = {
    "switched": {"MODE": "openvswitch", "LINK": "ovs0", "IP": ""},
    "switched, tag": {"MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10", "IP": ""},
    "switched, trunk, guarded": {"MODE": "openvswitch", "LINK": "ovs0", "VLAN": ".10:20:30", **GUARDED},
}


@pytest.fixture
def placed(node: Node) -> Node:
    """A node with a bridge, an uplink with a default route, and all of our folders."""
    node.outside("up0", "192.0.2.254/24")
    node.address("up0", "192.0.2.1/24", "2001:db8:ffff::1/64")
    run("ip", "route", "add", "default", "via", "192.0.2.254")
    node.forwarding(ipv6=True)
    node.bridge("br0")
    node.tap("tap9")
    assert rundoor("kvm-ifup", environment(9)).status == 0
    assert rundoor("kvm-ifdown", environment(9), "tap9", "hot-remove").status == 0
    return node


@contextlib.contextmanager
def locked(which: str, name: str) -> Iterator[None]:
    """Somebody else holds this lock."""
    with open(f"/run/netcommon/locks/{which}-{number(name):02d}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def served(running: Agent) -> int:
    return int(running.status()["agent"]["calls served"])


def stored() -> dict[str, Any]:
    """Every file of the records, without the times, which no two calls share."""
    found: dict[str, Any] = {}
    for path in sorted(Path("/run/netcommon").rglob("*")):
        name = str(path.relative_to("/run/netcommon"))
        if name.startswith(("agent", "locks")) or path.is_dir():
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif name.startswith("nics/"):
            record = json.loads(path.read_bytes())
            assert record.pop("created") > 0 and record.pop("monotonic") > 0
            found[name] = json.dumps(record).encode()  # in the order in which it was written
        else:
            found[name] = path.read_bytes()
    return found


def unnumbered(value: Any) -> Any:
    """A snapshot without the numbers that a switch gives its ports: each time another."""
    if isinstance(value, dict):
        return {name: unnumbered(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted((unnumbered(inner) for inner in value), key=str)
    return re.sub(r"(in_port|NXM_OF_IN_PORT\[\]|output)([=:])\d+", r"\1\2N", value) if isinstance(value, str) else value


def states(variables: dict[str, str]) -> list[tuple[Snapshot, dict[str, Any]]]:
    """Host and records after an up, a second up and a down, and what each said."""
    found = []
    for door, more in (("kvm-ifup", ()), ("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",)), ("kvm-ifdown", ("hot-remove",))):
        done = rundoor(door, variables, variables["INTERFACE"], *more)
        assert (done.status, done.stdout) == (0, ""), done
        found.append((snapshot(), stored() | {"stderr": done.stderr}))
    return found


def same(variables: dict[str, str]) -> None:
    cold = states(variables)
    with agent() as running:
        running.rested()
        warm = states(variables)
        assert served(running) == 4, running.status()
        assert "drift" not in running.output
    assert cold[0][0] != cold[-1][0], "the up must have done something"
    for before, after in zip(cold, warm, strict=True):
        assert [line for line in diff(unnumbered(before[0]), unnumbered(after[0])) if "/run/netcommon/" not in line] == []
        assert after[1] == before[1]


@pytest.mark.parametrize("case", CASES)
def test_warm_and_cold_leave_the_same(placed: Node, case: str) -> None:
    placed.tap("tap0")
    same(environment(0, **CASES[case]))


@pytest.mark.parametrize("case", SWITCHED)
def test_warm_and_cold_leave_the_same_in_open_vswitch(placed: Node, ovs: OpenVswitch, case: str) -> None:
    ovs.bridge("ovs0")
    placed.tap("tap0")
    same(environment(0, **SWITCHED[case]))


def test_what_is_refused_is_refused_in_the_same_words(placed: Node) -> None:
    placed.tap("tap0")
    wrong = [
        environment(0, MODE="brigded"),
        environment(0, MODE="bridged", LINK="br7"),
        environment(0, IP="10.0.0.300"),
        environment(0, INTERFACE="tap7"),
        environment(0, TAGS="netcommon:*:nosuch:1"),
    ]
    calls: list[tuple[str, dict[str, str], tuple[str, ...]]] = [("kvm-ifup", variables, ()) for variables in wrong]
    calls += [("kvm-ifdown", environment(0), (context,)) for context in ("sideways", "hot-remove")]
    calls.append(("kvm-nic-setup", {**environment(0), "ACTION": "x"}, ()))
    cold = [rundoor(door, variables, variables["INTERFACE"], *more)[:3] for door, variables, more in calls]
    assert {status for status, _out, _err in cold} >= {0, 64, 69}
    with agent() as running:
        assert [rundoor(door, variables, variables["INTERFACE"], *more)[:3] for door, variables, more in calls] == cold
        assert served(running) == len(calls)


def test_kvm_nic_setup_by_its_names(placed: Node) -> None:
    placed.tap("tap0")
    Path("/run/site").mkdir()
    for name in ("up", "down"):
        Path("/run/site", name).symlink_to(HOOKS / "kvm-nic-setup")
    with agent() as running:
        assert execute(["/run/site/up", "tap0"], {**BASE, **environment(0)}).status == 0
        assert good() == ["tap0"]
        assert execute(["/run/site/down", "tap0"], {**BASE, **environment(0), "MIGRATION_PHASE": ""}).status == 0
        assert served(running) == 2


def test_the_settings_are_those_of_the_moment(placed: Node) -> None:
    placed.tap("tap0")
    with agent() as running:
        for preference in (600, 700):
            Path("/etc/netcommon/config.toml").write_text(f"[rules]\npreference = {preference}\n")
            assert rundoor("kvm-ifup", environment(0)).status == 0
            assert f"{preference}:" in run("ip", "rule") and served(running) > 0
        Path("/etc/netcommon/config.toml").write_text("[rules]\npreference = 0\n")
        done = rundoor("kvm-ifup", environment(0))
        assert done.status == 78 and "config.toml:2" in done.stderr
        assert served(running) == 2


@pytest.mark.parametrize("folder", ["nics", "locks"])
def test_folders_that_were_moved_away_are_not_used(placed: Node, folder: str) -> None:
    """What the agent has open is not what a hook would open: it makes them anew, as that would."""
    with agent() as running:
        for number in (0, 1):
            placed.tap(f"tap{number}")
            assert rundoor("kvm-ifup", environment(number)).status == 0 and served(running) == number + 1
            there = {name for name in os.listdir("/run/netcommon/nics") if name.endswith(".json")}
            if number == 0:
                os.rename(f"/run/netcommon/{folder}", "/run/was")
        uuids = {f"{environment(number)['INTERFACE_UUID']}.json" for number in (0, 1)}
        assert there == (uuids if folder == "locks" else uuids - {f"{environment(0)['INTERFACE_UUID']}.json"})
        os.chmod(f"/run/netcommon/{folder}", 0o777)
        done = rundoor("kvm-ifup", environment(1))
        assert done.status == 69 and f"/run/netcommon/{folder}" in done.stderr
        os.chmod(f"/run/netcommon/{folder}", 0o700)
        assert rundoor("kvm-ifdown", environment(1), "tap1", "hot-remove").status == 0 and served(running) == 4


def test_a_hook_of_another_namespace_does_it_itself(placed: Node) -> None:
    """It finds no socket of its own namespace; and one that asks at ours all the same is sent away."""
    placed.tap("tap0")
    other = placed.namespaced()
    with agent() as running:
        name = next(name for name in os.listdir("/run/netcommon/agent") if name.startswith("hooks-"))
        with other.entered():
            os.symlink(name, f"/run/netcommon/agent/hooks-{os.stat('/proc/thread-self/ns/net').st_ino}")
            done = rundoor("kvm-ifup", environment(0))
        assert done.status == 69 and "tap0 does not exist" in done.stderr
        assert running.status()["agent"]["calls handed back"] == "1 stranger" and served(running) == 0


def sandboxed(first: str) -> tuple[str, ...]:
    """The command of an agent with mounts of its own, which the shell's commands ``first`` make, as systemd makes those of its unit."""
    return ("unshare", "--mount", "--propagation=private", "sh", "-c", f'{first} && exec "$@"', "agent", *COMMAND)


@pytest.mark.parametrize("link", ["/etc/ganeti/kvm-vif-bridge", "/etc/netcommon/ifup.d", "/etc/netcommon/ifup.d/site"])
def test_a_script_that_the_agent_cannot_see_runs_all_the_same(placed: Node, link: str) -> None:
    """Nobody would miss it: an override may be all that a site has of isolation."""
    placed.tap("tap0")
    folder, script = Path("/run/site"), Path("/run/site/script")
    folder.mkdir()
    script.write_text("#!/bin/sh\necho $INTERFACE >>/run/ran\n")
    script.chmod(0o755)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(folder if link.endswith(".d") else script, link)
    with agent(command=sandboxed("mount -t tmpfs none /run/site")) as running:
        assert rundoor("kvm-ifup", environment(0)).status == 0
        assert Path("/run/ran").read_text() == "tap0\n"
        assert running.status()["agent"]["calls handed back"] == "1 scripts" and served(running) == 0
        os.unlink(link)
        assert rundoor("kvm-ifdown", environment(0), "tap0", "hot-remove").status == 0 and served(running) == 1


def test_a_folder_that_comes_while_the_agent_runs(placed: Node) -> None:
    """One made after its start is read-only in its sandbox; a hook may write to it."""
    placed.tap("tap0")
    os.makedirs("/run/site")
    readonly = "mount --bind /run/site /run/site && mount -o remount,bind,ro /run/site"
    nic = environment(0, TAGS="netcommon:*:dhcp:nfdhcpd")
    with agent(settings='[dhcp]\nnfdhcpd_folder = "/run/site/dhcp"\n', command=sandboxed(readonly)) as running:
        wait_until(
            lambda: time.time() - os.stat("/etc/netcommon/config.toml").st_ctime > SETTLED, 10, "a file that is read only when it changes"
        )
        assert "does not exist: make it" in rundoor("kvm-ifup", nic).stderr
        os.mkdir("/run/site/dhcp", 0o755)
        assert rundoor("kvm-ifup", nic).status == 0 and os.path.exists("/run/site/dhcp/tap0")
        assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0 and os.listdir("/run/site/dhcp") == []
        assert running.status()["agent"]["calls handed back"] == "2 folders" and served(running) == 1


def test_a_script_of_the_site_runs_in_the_hooks_own_process(placed: Node) -> None:
    placed.tap("tap0")
    script = Path("/etc/netcommon/ifup.d/site")
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/sh\ncut -d' ' -f4 /proc/$PPID/stat >/run/of\n")
    script.chmod(0o755)
    with agent() as running:
        assert rundoor("kvm-ifup", environment(0)).status == 0
        assert int(Path("/run/of").read_text()) == os.getpid()
        assert served(running) == 0
        script.unlink()
        assert rundoor("kvm-ifdown", environment(0), "tap0", "hot-remove").status == 0
        assert served(running) == 1


def test_an_agent_that_is_stopped_holds_nobody(placed: Node) -> None:
    placed.tap("tap0")
    with agent() as running:
        running.rested()
        running.signal(signal.SIGSTOP)
        try:
            done = rundoor("kvm-ifup", environment(0))
            assert done.status == 0 and done.seconds > 0.4
            assert good() == ["tap0"]
        finally:
            running.signal(signal.SIGCONT)
        wait_until(lambda: running.status()["agent"]["calls at work"] == 0, 5)
        assert served(running) == 0 and good() == ["tap0"]
        running.stop(signal.SIGKILL)  # its socket stays
        assert rundoor("kvm-ifdown", environment(0), "tap0", "hot-remove").status == 0
        assert good() == []


@pytest.mark.parametrize("number_of_signal", [signal.SIGKILL, signal.SIGTERM])
def test_an_agent_that_dies_under_load(placed: Node, number_of_signal: int) -> None:
    """Eight callers bring NICs up and down while it is killed and started again: every hook ends well, every NIC is right."""
    for nic in range(8):
        placed.tap(f"tap{nic}")
        assert rundoor("kvm-ifup", environment(nic)).status == 0  # the queue that a first up brings stays
        assert rundoor("kvm-ifdown", environment(nic), f"tap{nic}", "hot-remove").status == 0
    before = snapshot()
    stop, failures, calls = threading.Event(), [], [0] * 8

    def caller(nic: int) -> None:
        with placed.namespace.entered():
            while not stop.is_set():
                for door, more in (("kvm-ifup", ()), ("kvm-ifdown", ("hot-remove",))):
                    done = rundoor(door, environment(nic), f"tap{nic}", *more)
                    calls[nic] += 1
                    if done.status:
                        failures.append(done)

    with agent() as running:
        threads = [threading.Thread(target=caller, args=(nic,)) for nic in range(8)]
        for thread in threads:
            thread.start()
        total = 0
        for _round in range(3):
            wait_until(lambda: served(running) >= 40, 60, running.output)
            total += served(running)
            running.restart(number_of_signal)
        stop.set()
        for thread in threads:
            thread.join()
        for nic in range(8):
            failures += [done for done in [rundoor("kvm-ifup", environment(nic))] if done.status]
        assert failures == [] and total >= 120
        assert good() == [f"tap{nic}" for nic in range(8)]
        assert len(run("ip", "rule").splitlines()) == 3 + 8, "no NIC is configured twice"
        for nic in range(8):
            assert rundoor("kvm-ifdown", environment(nic), f"tap{nic}", "hot-remove").status == 0
        running.rested()
    seen = LinuxHost().identity()
    with Store(Paths(), seen.netns, seen.boot) as store:  # as a later gc: what a killed agent was at goes, and the folder that it is in
        store.clean_temporary(time.time(), age=0)
        store.owners.sweep()
        store.clean_links(time.time(), age=0)
    assert [line for line in diff(before, snapshot()) if not any(part in line for part in ("/agent", "/locks/"))] == []


def test_a_slow_nic_holds_no_other(placed: Node) -> None:
    """Eight callers at once, one of whose NICs is locked by somebody."""
    for nic in range(8):
        placed.tap(f"tap{nic}")
    files = {number(f"tap{nic}") for nic in range(1, 8)}
    slow = environment(0)
    assert number("tap0") not in files
    with agent() as running:
        running.rested()
        with locked("device", "tap0"):
            waiting = start("kvm-ifup", slow)
            wait_until(lambda: running.status()["agent"]["calls at work"] == 1, 10)
            others = ended([start("kvm-ifup", environment(nic)) for nic in range(1, 8)])
            assert others == [(0, "")] * 7 and waiting.poll() is None
        assert ended([waiting]) == [(0, "")]
        assert good() == [f"tap{nic}" for nic in range(8)] and served(running) == 8


def test_a_nic_that_stays_locked_is_refused_in_time(placed: Node) -> None:
    placed.tap("tap0")
    with agent(settings="[hook]\ntimeout = 1\nservice_timeout = 1\n") as running, locked("device", "tap0"):
        done = rundoor("kvm-ifup", environment(0))
        assert done.status == 75 and "is held" in done.stderr
        assert served(running) == 1


def test_an_agent_that_is_stopped_at_work(placed: Node) -> None:
    """Nobody does it a second time: the hook says that it is to be tried again, and the agent goes on when it can."""
    placed.tap("tap0")
    with agent(settings="[hook]\ntimeout = 1\nservice_timeout = 1\n") as running:
        running.rested()
        with locked("device", "tap0"):
            waiting = start("kvm-ifup", environment(0))
            wait_until(lambda: running.status()["agent"]["calls at work"] == 1, 10)
            running.signal(signal.SIGSTOP)
        try:
            ((status, text),) = ended([waiting])
        finally:
            running.signal(signal.SIGCONT)
        assert status == 75 and "try again" in text
        assert rundoor("kvm-ifup", environment(0)).status == 0
        wait_until(lambda: running.status()["agent"]["calls at work"] == 0, 10)
        assert good() == ["tap0"]
