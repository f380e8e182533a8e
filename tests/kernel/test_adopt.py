"""adopt in a real namespace: a process that holds taps as Ganeti's QEMU does, set up the way Ganeti's kvm-ifup leaves them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.netns import ask, run, wait_until
from tests.support.node import Node

ROOT = Path(__file__).parents[2]
BRIDGED, ROUTED = "13264fb6-0667-415f-9a43-786dc01cbf24", "0b67074c-de04-4502-ba5f-e9fd8ae7449c"

#: Opens tap0 and tap1 at descriptors 20 and 22, says so, and waits.
HOLD = """
import fcntl, os, struct, sys
for name, number in (("tap0", 20), ("tap1", 22)):
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
    os.dup2(tap, number)
    os.close(tap)
print("ready", flush=True)
sys.stdin.read()
"""


def nic(uuid: str, mac: str, mode: str, link: str, ip: str = "") -> dict[str, Any]:
    """A NIC as the runtime file has it."""
    made = {"uuid": uuid, "mac": mac, "nicparams": {"mode": mode, "link": link, "vlan": ""}, "hvinfo": {"id": f"nic-{uuid[:18]}"}}
    return made | ({"ip": ip} if ip else {})


@pytest.fixture
def qemu(node: Node) -> Iterator[subprocess.Popen[str]]:
    """The instance web, one bridged and one routed NIC, brought up by Ganeti's script; its process."""
    node.bridge("br0")
    nics = [nic(BRIDGED, "aa:00:00:00:00:01", "bridged", "br0"), nic(ROUTED, "aa:00:00:00:00:02", "routed", "100", "10.0.0.5")]
    words = ["-name", "web"]
    for one, descriptor in zip(nics, (20, 22), strict=True):
        device = one["hvinfo"]["id"]
        words += [
            "-netdev",
            f"type=tap,id={device},fd={descriptor}",
            "-device",
            f"virtio-net-pci,id={device},mac={one['mac']},netdev={device}",
        ]
    process = subprocess.Popen([sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    files = Path("/var/run/ganeti/kvm-hypervisor")
    for name, text in (("conf/web.runtime", json.dumps([["qemu"], nics, {}, []])), ("pid/web", f"{process.pid}\n"), ("nic/web/0", "tap1")):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(text)
    run("ip", "link", "set", "tap0", "up", "master", "br0")
    run("ip", "link", "set", "tap1", "up")
    run("ip", "rule", "add", "iif", "tap1", "lookup", "100")
    run("ip", "route", "replace", "10.0.0.5", "dev", "tap1", "table", "100")
    yield process
    process.kill()
    process.communicate()


def netcommon(*arguments: str) -> str:
    """Runs the command line."""
    done = subprocess.run([sys.executable, "-m", "netcommon.cli", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.no_agent("an agent adopts by itself")
def test_a_running_guest_comes_under_management_and_leaves_nothing(qemu: subprocess.Popen[str]) -> None:
    rules = [rule for rule in ask("ip", "-j", "rule") if rule.get("iif") != "tap1"]
    would = json.loads(netcommon("adopt", "--all", "--dry-run", "--json"))["nics"]
    assert [(one["uuid"], one["device"], one["action"]) for one in would] == [
        (BRIDGED, "tap0", "would adopt"),
        (ROUTED, "tap1", "would adopt"),
    ]
    assert not Path("/run/netcommon").exists()
    done = json.loads(netcommon("adopt", "web", "--json"))["nics"]
    assert [one["action"] for one in done] == ["adopted", "adopted"]
    assert [(rule["priority"], rule["table"], rule["protocol"]) for rule in ask("ip", "-j", "-d", "rule") if rule.get("iif") == "tap1"] == [
        (500, "100", "174")
    ]
    assert [(route["dst"], route["dev"], route["protocol"]) for route in ask("ip", "-j", "-d", "route", "show", "table", "100")] == [
        ("10.0.0.5", "tap1", "174")
    ]
    assert "master br0" in run("ip", "link", "show", "tap0")
    netcommon("check")
    assert {one["action"] for one in json.loads(netcommon("adopt", "--all", "--json"))["nics"]} == {"managed already"}

    qemu.kill()
    wait_until(lambda: not any(Path("/sys/class/net", tap).exists() for tap in ("tap0", "tap1")), what="the taps go")
    netcommon("gc")
    assert ask("ip", "-j", "rule") == rules
    assert json.loads(netcommon("list", "--json"))["nics"] == []


@pytest.mark.no_agent("an agent adopts by itself")
def test_a_running_guests_device_keeps_its_mtu(qemu: subprocess.Popen[str]) -> None:
    """Though the bridge has less by now, and so has one of its ports, which is named."""
    run("ip", "link", "add", "eth9", "type", "veth", "peer", "name", "peer9")
    run("ip", "link", "set", "eth9", "master", "br0")
    run("ip", "link", "set", "tap0", "mtu", "9000")
    run("ip", "link", "set", "br0", "mtu", "1500")
    netcommon("adopt", "web")
    found = {one["device"]: one for one in json.loads(netcommon("check", "--json"))["nics"]}["tap0"]
    assert ask("ip", "-d", "-j", "link", "show", "tap0")[0]["mtu"] == 9000
    assert found["good"] and [each["why"] for each in found["idle"]] == [
        "for what leaves br0 by eth9, which has 1500: ip link set dev eth9 mtu 9000, if what is behind it takes that"
    ]


def test_down_takes_a_living_guest_out(qemu: subprocess.Popen[str]) -> None:
    netcommon("adopt", "--all")
    assert "still held" in netcommon("down", "tap0")
    netcommon("down", "--all", "--force")
    assert "master" not in run("ip", "link", "show", "tap0")
    assert "state DOWN" in run("ip", "link", "show", "tap1")
    assert "10.0.0.5" not in run("ip", "route", "show", "table", "100", check=False)
    assert not [rule for rule in ask("ip", "-j", "rule") if rule.get("iif")]
