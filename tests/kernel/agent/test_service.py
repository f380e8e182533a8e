"""The agent as a service on a real node: asked, told, watched, killed; hooks that report to it; scripts that run outside of its unit."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netagent.script_launcher import __file__ as launch
from netcommon.doors.agent_report import folder, tell
from tests.kernel.test_doors_parallel import environment
from tests.support import bootstrap
from tests.support.agent import PYTHON, Agent, agent, watched
from tests.support.bootstrap import ROOT
from tests.support.netns import mounted_over, run, slowness, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot
from tests.support.tap import Tap

CONFIG = Path("/etc/netcommon/config.toml")

METRICS = """[agent]
metrics_file = "/run/netcommon.prom"
metrics_listen = "127.0.0.1:9642"
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``netcommon agent ...`` as somebody types it."""
    argv = [PYTHON, "-m", "netcommon.cli", "agent", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def said(running: Agent, seconds: float, until: str = "") -> list[str]:
    """What the service manager hears within ``seconds``, a line each; not longer than to the line ``until``."""
    lines: list[str] = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and until not in lines:
        running._notified.settimeout(left)
        try:
            lines += running._notified.recv(4096).decode().split("\n")
        except TimeoutError:
            break
    return lines


def well_formed(text: str) -> bool:
    """Tell whether Prometheus finds nothing wrong with metrics."""
    promtool = bootstrap.unpacked("prometheus") / "usr/bin/promtool"
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60)
    return (done.returncode, done.stdout, done.stderr) == (0, "", "")


def scraped() -> dict[str, float]:
    """The metrics as Prometheus gets them: by HTTP."""
    with socket.create_connection(("127.0.0.1", 9642), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n")
        data = b""
        while part := client.recv(65536):
            data += part
    head, _, body = data.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.0 200 OK\r\n")
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in body.splitlines() if not line.startswith("#"))}


@pytest.fixture
def bridged(node: Node) -> Node:
    """A node with a bridge and one tap, whose NIC is up."""
    run("ip", "link", "set", "lo", "up")
    node.bridge("br0")
    node.tap("tap0")
    assert rundoor("kvm-ifup", environment(0) | {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"}).status == 0
    return node


def test_status(bridged: Node) -> None:
    assert command("status").returncode == 69
    with agent() as running:
        wait_until(lambda: running.status()["agent"]["nics"] == {"up": 1}, 5, "one NIC on record")
        status = running.status()
        assert (status["pid"], status["state"], status["settings"], status["alarms"]) == (running.pid, "running", "in force", {})
        shown = command("status")
        assert shown.returncode == 0
        assert shown.stdout.startswith(f"agent {status['version']}, process {running.pid}: running for ")
        assert "  nics: 1 up\n" in shown.stdout
        assert running.stop() == 0
    none = command("status")
    said = "netcommon: no agent runs in this network namespace\nnetcommon: next: systemctl start"
    assert none.returncode == 69 and none.stderr.startswith(said)


def test_only_one(bridged: Node) -> None:
    with agent() as running:
        second = command("run")
        assert second.returncode == 75
        said = f"netcommon: an agent of this network namespace runs already: process {running.pid}\n"
        assert second.stderr == f"{said}netcommon: next: netcommon agent status shows how the other one is\n"
        assert running.status()["pid"] == running.pid


def test_settings_are_read_again(bridged: Node) -> None:
    """A broken file keeps the old ones, by which the agent works on, and says so until it is mended."""
    with agent(settings="[repair]\nlink = 'off'\n") as running, watched() as node:
        assert node.mended(lambda: run("ip", "link", "set", "tap0", "nomaster")) < 5
        CONFIG.write_text("[repair]\nlink = 'sometimes'\nbridge-port = 'off'\n")
        running.signal(signal.SIGHUP)
        wait_until(lambda: "settings" in json.loads(command("status", "--json").stdout)["alarms"], 5, "an alarm")
        shown = command("status")
        assert shown.returncode == 1
        assert "  settings: broken, those from before are in force: config.toml:2: repair.link = 'sometimes'" in shown.stdout
        running.logged("alarm settings: broken, those from before are in force: config.toml:2: repair.link")
        CONFIG.write_text("[repair]\nlink = 'on'\n")
        running.signal(signal.SIGHUP)
        running.logged("alarm settings is over")
        running.logged("the settings were read again")
        assert node.mended(lambda: run("ip", "link", "set", "tap0", "down")) < 5
        assert command("status").returncode == 0


def test_a_broken_file_at_the_start_is_refused(bridged: Node) -> None:
    CONFIG.write_text("[agent]\nresync = 'often'\n")
    refused = command("run")
    assert refused.returncode == 78
    assert "config.toml:2: agent.resync = 'often': expected seconds, 1 to 86400" in refused.stderr


def test_signs_of_life(bridged: Node) -> None:
    with agent({"WATCHDOG_USEC": "200000"}) as running:
        lines = said(running, 2.0)
        assert 5 <= lines.count("WATCHDOG=1") <= 21 * slowness()
        running.signal(signal.SIGSTOP)
        said(running, 0.2)
        assert said(running, 1.0) == []
        running.signal(signal.SIGCONT)
        assert "WATCHDOG=1" in said(running, 5.0, "WATCHDOG=1")
        running.signal(signal.SIGHUP)
        lines = said(running, 5.0, "READY=1")
        assert lines.index("RELOADING=1") < lines.index("READY=1")
        running.signal(signal.SIGTERM)
        assert "STOPPING=1" in said(running, 5.0, "STOPPING=1")


def test_another_processes_watchdog_is_not_ours(bridged: Node) -> None:
    with agent({"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}) as running:
        assert "WATCHDOG=1" in said(running, 0.2) or said(running, 1.0).count("WATCHDOG=1") == 0


@pytest.mark.parametrize("path", ["warm", "cold"])
def test_hooks_are_counted(bridged: Node, path: str) -> None:
    """By door, mode and outcome; those of another network namespace by nobody."""
    switch = "" if path == "warm" else "[agent]\nhook_socket = false\n"
    with agent(settings=METRICS.replace("[agent]\n", switch or "[agent]\n")) as running:
        ok = 'netcommon_hook_calls_total{door="kvm-%s",mode="%s",outcome="%s"' + f',path="{path}"}}'
        describe = environment(0) | {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"}
        for _ in range(3):
            assert rundoor("kvm-ifup", describe).status == 0
        assert rundoor("kvm-ifup", describe | {"MAC": "nonsense"}).status == 64
        assert rundoor("kvm-ifup", describe | {"LINK": "br9", "BRIDGE": "br9"}).status == 69
        assert rundoor("kvm-ifdown", describe, "tap0", "hot-remove").status == 0
        assert rundoor("kvm-ifdown", {}, "tap5").status == 0
        wanted = {
            ok % ("ifup", "bridged", "ok"): 3,
            ok % ("ifup", "bridged", "invalid"): 1,
            ok % ("ifup", "bridged", "refused"): 1,
            ok % ("ifdown", "bridged", "ok"): 1,
            ok % ("ifdown", "unknown", "ok"): 1,
        }
        wait_until(lambda: {name: value for name, value in scraped().items() if "hook_calls" in name} == wanted, 5, "five kinds of calls")
        found = scraped()
        assert found[f'netcommon_hook_seconds_count{{door="kvm-ifup",mode="bridged",path="{path}"}}'] == 5
        assert 0 < found[f'netcommon_hook_seconds_sum{{door="kvm-ifup",mode="bridged",path="{path}"}}'] < 5 * 30
        text = Path("/run/netcommon.prom").read_text()
        assert set(re.findall(r"(?m)^([a-z]+)_", text)) == {"netcommon"}, "node_exporter has process_* of its own, and would drop both"
        assert "process_open_fds" in found
        assert well_formed(text)
        assert running.stop() == 0
    assert not Path("/run/netcommon.prom").exists()


def test_a_hook_pays_nothing_for_no_agent(node: Node) -> None:
    """Nobody there, and somebody killed: less than a tenth of a millisecond each."""
    os.makedirs(folder("/run/netcommon", 1))

    def median() -> float:
        times = []
        for _ in range(500):
            begun = time.perf_counter()
            assert not tell("/run/netcommon", "kvm-ifup", "bridged", 0, 0.01)
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    assert median() < 0.0001 * slowness()
    with agent() as running:
        assert tell("/run/netcommon", "kvm-ifup", "bridged", 0, 0.01)
        running.stop(signal.SIGKILL)
        assert median() < 0.0001 * slowness()


def test_killed_at_any_moment_nothing_is_lost(bridged: Node) -> None:
    """The next agent takes over locks, sockets and records, and no NIC notices."""
    with agent() as running:
        before = snapshot()
        for _ in range(3):
            first = running.pid
            running.restart(signal.SIGKILL)
            assert running.pid != first
            assert running.status()["pid"] == running.pid
            assert [line for line in diff(before, snapshot()) if "/run/netcommon/agent/" not in line] == []
            assert tell("/run/netcommon", "kvm-ifup", "bridged", 0, 0.01)


#: What `systemd-run --wait --pipe` promises: the command runs as nobody's child of ours, with its own environment, on our descriptors.
STAND_IN = """#!/usr/bin/python3 -IS
import json, os, subprocess, sys
with open("/run/systemd-run.json", "w") as file:
    json.dump(sys.argv[1:], file)
command = sys.argv[sys.argv.index("--") + 1 :]
sys.exit(subprocess.run(command, env={"LANG": "C"}, cwd="/", start_new_session=True).returncode)
"""

SCRIPT = """#!/bin/sh
echo "$1 $2 $INTERFACE_UUID ${INVOCATION_ID:-none} $(umask)" >/run/site.log
"""


@pytest.fixture
def stand_in(node: Node) -> Iterator[None]:
    with mounted_over("/usr/local/sbin", "tmpfs", "mode=0755"):
        path = Path("/usr/local/sbin/systemd-run")
        path.write_text(STAND_IN)
        path.chmod(0o755)
        yield


def test_scripts_run_outside_of_the_unit(node: Node, stand_in: None) -> None:
    """A NIC that went without a down: the site's script runs in a transient unit, with what a hook would give it."""
    node.bridge("br0")
    script = Path("/etc/netcommon/ifdown.d/50-site")
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)
    describe = environment(0) | {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"}
    tap = Tap("tap0")
    assert rundoor("kvm-ifup", describe).status == 0
    with agent({"INVOCATION_ID": "0123456789abcdef0123456789abcdef"}) as running:
        wait_until(lambda: running.status()["state"] == "running", 5, "the agent runs")
        tap.close()
        wait_until(Path("/run/site.log").exists, 20, f"the script has run:\n{running.output}")
        wait_until(lambda: running.status()["agent"]["nics"] == {}, 10, "the NIC is gone")
    assert Path("/run/site.log").read_text() == f"tap0 device-gone {describe['INTERFACE_UUID']} none 0077\n"
    argv = json.loads(Path("/run/systemd-run.json").read_text())
    assert argv[:6] == ["--wait", "--collect", "--pipe", "--quiet", "--no-ask-password", "--service-type=exec"]
    assert argv[argv.index("--") + 1 :] == [PYTHON, "-IS", os.path.realpath(launch)]
    assert any(word.startswith("--property=NetworkNamespacePath=/proc/") for word in argv), "it is not systemd's namespace"


def found(running: Agent) -> bool:
    """Tell whether ``netcommon agent status`` finds that agent."""
    answer = command("status", "--json")
    return answer.returncode == 0 and json.loads(answer.stdout)["pid"] == running.pid


def second() -> subprocess.CompletedProcess[bytes]:
    """A second agent of this namespace, which is to refuse."""
    return subprocess.run([PYTHON, "-m", "netagent"], cwd=ROOT, capture_output=True, check=False, timeout=60)


@pytest.mark.no_agent("it starts its own")
@pytest.mark.parametrize("gone", ["agent", "agent/*/lock", "agent/*/control", "agent/*/reports", "agent/hooks-*", "agent/*"])
def test_what_is_removed_of_it_is_made_again(node: Node, gone: str) -> None:
    """By somebody, or by systemd-tmpfiles: whole folders, or single files."""
    node.bridge("br0")
    with agent() as running:
        running.rested()
        assert "made again" not in running.output, "nobody has removed anything yet"
        before = sorted(path.name for path in Path("/run/netcommon/agent").rglob("*"))
        run("sh", "-c", f"rm -r /run/netcommon/{gone}")
        wait_until(lambda: sorted(path.name for path in Path("/run/netcommon/agent").rglob("*")) == before, 5, running.output)
        wait_until(lambda: found(running), 10, running.output)
        refused = second()
        assert refused.returncode == 75 and f"process {running.pid}".encode() in refused.stderr
        node.tap("tap0")
        assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="")).status == 0
        assert running.status()["agent"]["calls served"] == 1
        assert "alarm" not in running.output


@pytest.mark.no_agent("it starts its own")
def test_of_two_the_one_that_lost_its_lock_ends(node: Node) -> None:
    """The lock was removed, and another agent came before the first one noticed."""
    with agent() as running:
        running.rested()
        running.signal(signal.SIGSTOP)
        run("rm", "-r", "/run/netcommon/agent")
        with agent() as other:
            assert found(other)
            running.signal(signal.SIGCONT)
            assert running._process is not None and running._process.wait(60) == 75, running.output
            assert f"process {other.pid}" in running.output
            wait_until(lambda: found(other), 15, other.output)
            assert second().returncode == 75
