"""Reports of hooks: one datagram, never waited for, counted by the agent of the hook's own network namespace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from netagent.observe.hook_reports import DOORS, Reports, count
from netagent.observe.metrics import Metrics
from netcommon.doors import agent_report
from netcommon.doors.agent_report import folder, tell
from netcommon.host.linux.host import LinuxHost
from runtime.errors import HostRefused
from runtime.folder import Folder
from runtime.paths import Paths
from tests.support.bootstrap import PYTHON, ROOT
from tests.support.netns import wait_until
from tests.support.sources import sources


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def reports(within: Folder, metrics: Metrics) -> Iterator[Reports]:
    made = Reports(within, metrics)
    made.start()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("data", "labels", "seconds"),
    [
        (b"1 kvm-ifup bridged 0 12345", ("kvm-ifup", "bridged", "ok"), 0.012345),
        (b"1 kvm-ifdown - 64 0", ("kvm-ifdown", "unknown", "invalid"), 0.0),
        (b"1 vif-ganeti routed 69 1", ("vif-ganeti", "routed", "refused"), 1e-6),
        (b"1 kvm-nic-setup ext 75 1000000", ("kvm-nic-setup", "ext", "again"), 1.0),
        (b"1 kvm-ifup openvswitch 78 1", ("kvm-ifup", "openvswitch", "settings"), 1e-6),
        (b"1 kvm-ifup bridged 1 1", ("kvm-ifup", "bridged", "failed"), 1e-6),
        (b"1 shell pirate 0 1", ("other", "unknown", "ok"), 1e-6),
    ],
)
def test_what_a_report_counts(metrics: Metrics, data: bytes, labels: tuple[str, str, str], seconds: float) -> None:
    assert count(data, metrics)
    door, mode, outcome = labels
    assert metrics.value("netcommon_hook_calls_total", door=door, mode=mode, outcome=outcome, path="cold") == 1
    assert metrics.value("netcommon_hook_seconds", door=door, mode=mode, path="cold") == 1
    assert f'netcommon_hook_seconds_sum{{door="{door}",mode="{mode}",path="cold"}} ' in metrics.text()
    assert abs(float(metrics.text().split("_sum{")[1].split("} ")[1].split("\n")[0]) - seconds) < 1e-9


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"1", b"2 kvm-ifup bridged 0 1", b"1 kvm-ifup bridged 0", b"1 kvm-ifup bridged 0 1 1", b"1 kvm-ifup bridged x 1"),
        *(b"1 kvm-ifup bridged 0 -1", b"1 kvm-ifup bridged 0 1.5", b"1 kvm-ifup bridged 0 " + b"9" * 13, b"\xff" * 200),
        "1 kvm-ifup bridged 0 \u0661".encode(),
    ],
)
def test_what_is_no_report_counts_nothing(metrics: Metrics, data: bytes) -> None:
    assert not count(data, metrics)
    assert metrics.text() == ""


def test_a_report_arrives(state: str, reports: Reports, metrics: Metrics) -> None:
    assert tell(state, "kvm-ifup", "bridged", 0, 0.0123)
    wait_until(lambda: metrics.value("netcommon_hook_calls_total", door="kvm-ifup", mode="bridged", outcome="ok", path="cold") == 1)


def test_no_agent_no_report(state: str) -> None:
    assert not tell(state, "kvm-ifup", "bridged", 0, 0.0123)
    assert not tell(state + "/" + "x" * 200, "kvm-ifup", "bridged", 0, 0.0123)
    assert not tell("/proc/\0", "kvm-ifup", "bridged", 0, 0.0123)
    assert os.listdir(state) == []


def test_an_agent_that_was_killed_is_no_agent(state: str, within: Folder, metrics: Metrics) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.bind(f"{within.path}/{agent_report.SOCKET}")
    left.close()
    assert not tell(state, "kvm-ifup", "bridged", 0, 0.0)
    made = Reports(within, metrics)
    made.start()
    assert tell(state, "kvm-ifup", "bridged", 0, 0.0)
    made.close()
    assert within.names() == []


def test_a_hook_does_not_wait_for_an_agent_that_takes_nothing(state: str, within: Folder) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stuck:
        stuck.bind(f"{within.path}/{agent_report.SOCKET}")
        begun = time.monotonic()
        told = [tell(state, "kvm-ifup", "bridged", 0, 0.0) for _ in range(2000)]
        assert time.monotonic() - begun < 5.0
        assert told[0] and not told[-1]


def test_no_mode_that_is_none_gets_through(state: str, reports: Reports, metrics: Metrics) -> None:
    for mode in ("", "a b", "\udcff", "routed 0 1\n", "\u0661"):
        assert tell(state, "kvm-ifup", mode, 0, 0.0)
    wait_until(lambda: metrics.value("netcommon_hook_calls_total", door="kvm-ifup", mode="unknown", outcome="ok", path="cold") == 5)


def test_only_root_is_counted(state: str, reports: Reports, metrics: Metrics) -> None:
    """Even where the mode of the socket would let another in: who has sent it is asked of the kernel."""
    os.chmod(state, 0o755)
    path = f"{folder(state, LinuxHost(Paths()).identity().netns)}/{agent_report.SOCKET}"
    assert os.stat(path).st_mode & 0o777 == 0o600
    code = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'1 kvm-ifup routed 0 1', {path!r})"
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PYTHON, "-IS", "-c", code]
    assert subprocess.run(other, capture_output=True, check=False).returncode == 1
    os.chmod(path, 0o666)
    assert subprocess.run(other, capture_output=True, check=False).returncode == 0
    assert tell(state, "kvm-ifup", "bridged", 0, 0.0)
    wait_until(lambda: metrics.value("netcommon_hook_calls_total", door="kvm-ifup", mode="bridged", outcome="ok", path="cold") == 1)
    assert "routed" not in metrics.text()


def test_a_socket_that_cannot_be_made_is_an_error(within: Folder, metrics: Metrics) -> None:
    os.mkdir(f"{within.path}/{agent_report.SOCKET}")
    with pytest.raises(HostRefused, match="reports"):
        Reports(within, metrics).start()


def test_a_namespaces_agent_only(state: str, reports: Reports, metrics: Metrics) -> None:
    """Two nodes of one machine share /run: a report goes to the agent of the hook's own network namespace."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from netcommon.doors.agent_report import tell; "
        f"print(tell({state!r}, 'kvm-ifup', 'ext', 0, 0.0))"
    )
    python = [PYTHON, "-IS", "-c", code]
    ran = [subprocess.run([*wrap, *python], capture_output=True, text=True, check=True) for wrap in ([], ["unshare", "-n"])]
    assert [one.stdout.strip() for one in ran] == ["True", "False"]
    wait_until(lambda: metrics.value("netcommon_hook_calls_total", door="kvm-ifup", mode="ext", outcome="ok", path="cold") == 1)


def test_without_cookies_the_namespaces_inode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 5.14; as a host's identity."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        assert agent_report._netns(one) == LinuxHost(Paths()).identity().netns
        monkeypatch.setattr(agent_report, "SO_NETNS_COOKIE", 9999)
        assert agent_report._netns(one) == os.stat("/proc/self/ns/net").st_ino


def test_it_costs_the_hooks_no_import() -> None:
    """It imports nothing that a hook has not loaded already."""
    code = f"""import sys, json; sys.path.insert(0, {str(ROOT)!r})
import netcommon.doors, netcommon.log
before = set(sys.modules)
import netcommon.doors.agent_report
print(json.dumps(sorted(set(sys.modules) - before)))"""
    ran = subprocess.run([PYTHON, "-IS", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == ["netcommon.doors.agent_report"]


def test_every_door_has_its_label() -> None:
    """What the doors call themselves is what is counted."""
    named = set()
    for source in sources("netcommon/doors"):
        for line in source.text.splitlines():
            if line.strip().startswith('run("'):
                named.add(line.split('"')[1])
    assert named == DOORS
