"""hooks/vif-ganeti in a real namespace, called as libxl calls it; xenstore's commands are stand-ins."""

from __future__ import annotations

from pathlib import Path

from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.rundoor import BASE, HOOKS, Outcome, execute

NIC = """TAGS="role:web"
MAC=ae:77:0a:4d:1f:32
IP=10.77.31.50
INTERFACE_INDEX=1
INTERFACE_NAME=$(touch /run/pwned)
INTERFACE_UUID=0b67074c-de04-4502-ba5f-e9fd8ae7449c
MODE=routed
LINK=100
VLAN=
"""
BACKEND = "/local/domain/0/backend/vif/5/1"


def call(programs: Path, action: str) -> Outcome:
    environment = {**BASE, "PATH": f"{programs}:{BASE['PATH']}", "XENBUS_PATH": BACKEND, "vif": "vif5.1", "XENBUS_TYPE": "vif"}
    return execute([str(HOOKS / "vif-ganeti"), action, "type_if=vif"], environment)


def test_online_and_offline(node: Node, tmp_path: Path) -> None:
    run("ip", "link", "add", "vif5.1", "type", "veth", "peer", "name", "guest")
    files = Path("/var/run/ganeti/xen-hypervisor/nic/web1")
    files.mkdir(parents=True)
    (files / "1").write_text(NIC)
    written = tmp_path / "written"
    for name, text in (("xenstore-read", "echo web1"), ("xenstore-write", f'printf "%s\\n" "$@" >>{written}')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    before = ask("ip", "-j", "rule")

    done = call(tmp_path, "online")
    assert (done.status, done.stderr) == (0, "")
    assert written.read_text().splitlines() == [f"{BACKEND}/hotplug-status", "connected"]
    assert [rule["table"] for rule in ask("ip", "-j", "rule") if rule.get("iif") == "vif5.1"] == ["100"]
    assert [route["dst"] for route in ask("ip", "-j", "route", "show", "table", "100")] == ["10.77.31.50"]
    assert "UP" in run("ip", "link", "show", "vif5.1")
    assert not Path("/run/pwned").exists()

    run("ip", "link", "del", "vif5.1")
    done = call(tmp_path, "offline")
    assert (done.status, done.stderr) == (0, "")
    assert ask("ip", "-j", "rule") == before

    written.unlink()
    done = call(tmp_path, "online")
    assert done.status == 69
    assert "device vif5.1 does not exist" in done.stderr
    assert written.read_text().splitlines()[2:] == [f"{BACKEND}/hotplug-status", "error"]
    assert ask("ip", "-j", "rule") == before
