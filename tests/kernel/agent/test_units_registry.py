"""Publish by what the registry's unit allows the names of an underlay."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bootstrap import ROOT
from tests.support.nameserver import ADDRESS, PORT, NameServer
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.registry_process import Registry

UNIT = ROOT / "packaging/systemd/netcommon-registry.service"
SITE, ZONE = "fd12:3456:789a::/48", "u.example.net"
FOLDERS = ("var/lib/netregistry", "run/netregistry")  #: StateDirectory=, RuntimeDirectory=


class Confined(Registry):
    """A registry whose service runs in the sandbox of its unit."""

    def argv(self, *words: str) -> list[str]:
        argv = super().argv(*words)
        if words != ("serve",):
            return argv
        writable = ",".join(str(self._root / each) for each in FOLDERS)
        inside = f"cd {ROOT} && exec {sys.executable} -m tests.support.sandbox {UNIT} {writable} {' '.join(argv)}"
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", inside]


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    run("ip", "link", "set", "lo", "up")
    with NameServer.started({ZONE: ""}) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path, server: NameServer) -> Iterator[Confined]:
    made = Confined(tmp_path)
    try:
        yield made
    finally:
        made.kill()


def begins(registry: Confined, folder: Path, key: Path) -> None:
    config = folder / "etc/netcommon/config.toml"
    config.write_text(f'[registry]\nzone_servers = ["{ADDRESS}:{PORT}"]\nzone_key_file = "{key}"\n')
    registry.start()
    with registry.client() as operator:
        operator.change("PUT", "underlay", {"prefix": SITE, "zone": ZONE})


@pytest.mark.parametrize("place", ["etc", "credential"])
def test_a_key_that_root_alone_can_read_is_enough(registry: Confined, server: NameServer, tmp_path: Path, place: str) -> None:
    """In a file of /etc, or as what LoadCredential= hands over, which has the mode 0400."""
    key = tmp_path / ("etc/netcommon/zone.key" if place == "etc" else "run/credentials/zone.key")
    key.parent.mkdir(exist_ok=True)
    key.write_text(server.key_file.read_text())
    key.chmod(0o600 if place == "etc" else 0o400)
    begins(registry, tmp_path, key)
    wait_until(lambda: "_generation" in " ".join(server.content(ZONE)), 20, "the zone is published")


def test_it_is_confined(registry: Confined, server: NameServer, tmp_path: Path) -> None:
    """Hold that the sandbox is one: no capability, a filter of system calls, nobody's home, and nothing to write but its own folders."""
    begins(registry, tmp_path, Path("/root/zone.key"))
    inside = Path(f"/proc/{registry.pid}")
    status = dict(line.split(":", 1) for line in (inside / "status").read_text().splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")
    options = {line.split()[1]: line.split()[3].split(",") for line in (inside / "mounts").read_text().splitlines()}
    assert "ro" in options["/"] and "rw" in options[str(tmp_path / FOLDERS[0])]
    assert stat.S_IMODE((inside / "root/root").stat().st_mode) == 0 and list((inside / "root/root").iterdir()) == []
