"""The unit files: systemd takes them, and what the agent's allows is enough for its work."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import TEMPORARY
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import COMMAND, agent, watched
from tests.support.bootstrap import ROOT
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sandbox import settings
from tests.support.tap import Tap

UNITS = ROOT / "packaging/systemd"
AGENT = UNITS / "netcommon-agent.service"

#: The worst that `systemd-analyze security` may say of a unit, in tenths: what is left is what its work needs.
EXPOSURE = {"netcommon-agent.service": 40, "netcommon-importer.service": 20, "netcommon-registry.service": 18}


def capabilities() -> list[str]:
    (bounding,) = settings(AGENT)["CapabilityBoundingSet"]
    return bounding.split()


def verified(*units: Path) -> str:
    """What systemd finds wrong with them."""
    argv = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout or f"exit {done.returncode}" * (done.returncode != 0)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units as they would be installed, but that what they start is there."""
    made = []
    for unit in sorted(UNITS.iterdir()):
        made.append(tmp_path / unit.name)
        made[-1].write_text(unit.read_text().replace("/usr/lib/netcommon/.venv/bin/netcommon", "/bin/true"))
    return made


def test_systemd_takes_them(units: list[Path]) -> None:
    assert [unit.name for unit in units] == [
        "netcommon-agent.service",
        "netcommon-gc.service",
        "netcommon-gc.timer",
        "netcommon-importer.service",
        "netcommon-nics.service",
        "netcommon-registry.service",
    ]
    assert verified(*units) == ""


def test_systemd_would_say_so(units: list[Path]) -> None:
    """Of what it does not know."""
    units[0].write_text(units[0].read_text().replace("NoNewPrivileges=", "NoNewPriviliges="))
    assert "NoNewPriviliges" in verified(units[0])


def test_the_agent_may_read_what_a_hook_reads() -> None:
    """The site's settings, extensions and scripts may be links into /root or /home, and are the same for both."""
    found = settings(AGENT)
    assert found["ProtectHome"] == ["read-only"]
    assert not {"InaccessiblePaths", "TemporaryFileSystem", "RootDirectory", "ExecPaths", "NoExecPaths"} & found.keys()


@pytest.mark.parametrize("name", EXPOSURE)
def test_what_a_daemon_is_exposed_to(units: list[Path], name: str) -> None:
    (unit,) = [unit for unit in units if unit.name == name]
    argv = ["systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={EXPOSURE[name]}", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_each_capability_has_its_reason() -> None:
    comment = " ".join(line for line in AGENT.read_text().splitlines() if line.startswith("#   CAP_"))
    assert re.findall(r"CAP_[A-Z_]+", comment) == capabilities()


def test_the_registry_starts_once_the_network_is_there() -> None:
    """Over an etcd, or with an address to listen on, it would begin by failing at each boot; and what passes does not end it for good."""
    found = settings(UNITS / "netcommon-registry.service")
    assert found["Wants"] == found["After"] == ["network-online.target"]
    assert found["Restart"] == ["always"] and str(TEMPORARY) not in found["RestartPreventExitStatus"]


def test_what_outlives_the_agent() -> None:
    """Records and the DHCP server of instance communication are not its own."""
    found = settings(AGENT)
    assert found["RuntimeDirectoryPreserve"] == ["yes"]
    assert found["KillMode"] == ["process"]


@pytest.mark.parametrize("mode", ["bridged", "routed"])
def test_its_capabilities_are_enough(node: Node, mode: str) -> None:
    """With those of the unit alone, and no new privileges, it mends and cleans up as ever."""
    node.router()
    node.bridge("br0")
    bounding = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities())])
    bridged = {"MODE": "bridged", "LINK": "br0", "BRIDGE": "br0"} if mode == "bridged" else {}
    damages: list[Callable[[], object]] = [lambda: run("nft", "flush", "ruleset")]
    if mode == "bridged":
        damages.append(lambda: run("ip", "link", "set", "tap0", "nomaster"))
    else:
        damages.append(lambda: run("ip", "rule", "delete", "iif", "tap0"))
        damages.append(lambda: run("ip", "route", "flush", "table", "100"))
        damages.append(lambda: run("sysctl", "-qw", "net.ipv4.conf.tap0.proxy_arp=0"))
    tap = Tap("tap0")
    assert rundoor("kvm-ifup", environment(0) | bridged | {"IP": "192.0.2.77"}).status == 0
    command = ["setpriv", "--bounding-set", bounding, "--inh-caps", "-all", "--no-new-privs", *COMMAND]
    with agent(command=command) as running, watched() as seen:
        status = Path(f"/proc/{running.pid}/status").read_text()
        assert int(re.findall(r"CapEff:\s*(\w+)", status)[0], 16).bit_count() == len(capabilities())
        for damage in damages:
            assert seen.mended(damage, limit=20) < 20
        tap.close()
        wait_until(lambda: not seen.records, 10, running.output)
        assert running.status()["alarms"] == {}
        assert "EPERM" not in running.output and "not permitted" not in running.output
