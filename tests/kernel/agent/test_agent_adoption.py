"""The agent takes over running guests on the kernel: processes that hold taps as Ganeti's QEMU does, and a real cluster's files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netagent.reap.adoption import Adopter
from netcommon.lifecycle.context import Call, Clock, open_node
from netcommon.lifecycle.gc import gc
from netcommon.log import recording
from netcommon.settings.model import Settings
from runtime.paths import Paths
from tests.support.netns import ask, run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import rundoor

FIXTURES = Path(__file__).parents[2] / "fixtures/ganeti/3.0.2"
GANETI = Path("/var/run/ganeti/kvm-hypervisor")
INSTANCE = "inst2.gnt.example"

#: The example of design-ifdown.rst, as Ganeti 3.0.2 has played it: three NICs; the first unplugged, a fourth plugged in.
FIRST, LATER = "26-index-start", "30-index-hotadd"

#: Holds taps at descriptors, as it is told on its input ("tap0 20", "- 20" closes), says so, and goes on.
HOLD = """
import fcntl, os, struct, sys
print("ready", flush=True)
for line in sys.stdin:
    name, number = line.split()
    if name == "-":
        os.close(int(number))
    else:
        tap = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
        os.dup2(tap, int(number))
        os.close(tap)
    print("done", flush=True)
"""


def runtime(step: str) -> bytes:
    return (FIXTURES / step / "node1/kvm-hypervisor/conf" / f"{INSTANCE}.runtime").read_bytes()


def nics(step: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(runtime(step))[1]
    return found


class Qemu:
    """The process of inst2, started with the three NICs of the first step."""

    def __init__(self) -> None:
        words = ["-name", INSTANCE]
        for one, descriptor in zip(nics(FIRST), (20, 21, 22), strict=True):
            device = one["hvinfo"]["id"]
            words += ["-netdev", f"type=tap,id={device},fd={descriptor}"]
            words += ["-device", f"virtio-net-pci,id={device},mac={one['mac']},netdev={device}"]
        self.process = subprocess.Popen([sys.executable, "-c", HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"
        for tap, descriptor in (("tap0", 20), ("tap1", 21), ("tap2", 22)):
            self.hold(tap, descriptor)

    def hold(self, tap: str, descriptor: int) -> None:
        """Opens a tap; "-": closes the descriptor."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{tap} {descriptor}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def write(step: str, pid: int) -> None:
    """Ganeti's files after a step, as they were captured, and its pid file."""
    for name in ("conf", "nic", "pid"):
        (GANETI / name).mkdir(parents=True, exist_ok=True)
    (GANETI / "nic" / INSTANCE).mkdir(exist_ok=True)
    for file in sorted((FIXTURES / step / "node1/kvm-hypervisor/nic" / INSTANCE).iterdir()):
        (GANETI / "nic" / INSTANCE / file.name).write_bytes(file.read_bytes())
    (GANETI / "pid" / INSTANCE).write_text(f"{pid}\n")
    (GANETI / "conf" / f"{INSTANCE}.runtime").write_bytes(runtime(step))


@pytest.fixture
def qemu(node: Node, ovs: OpenVswitch) -> Iterator[Qemu]:
    """The guest as Ganeti's own scripts have set it up."""
    node.bridge("br0")
    ovs.vsctl("add-br", "ovs0", "--", "set", "bridge", "ovs0", "datapath_type=netdev")
    made = Qemu()
    for tap in ("tap0", "tap1"):
        run("ip", "link", "set", tap, "up", "master", "br0")
    run("ip", "link", "set", "tap2", "up")
    ovs.vsctl("add-port", "ovs0", "tap2")
    yield made
    if made.process.poll() is None:
        made.kill()


class Agent:
    """An adopter on this node, and what it said."""

    def __init__(self) -> None:
        self.adopter = Adopter()
        self.log, self.lines = recording()

    def run(self, *instances: str) -> dict[str, tuple[str, str]]:
        made = open_node(Paths(), Settings(), Clock())
        try:
            found = self.adopter.run(made, Call(self.log, made.clock.now() + 60, "agent"), instances or None)
        finally:
            made.store.close()
            made.host.close()
        return {one.uuid or one.instance: (one.device, one.action) for one in found}

    def collect(self) -> None:
        made = open_node(Paths(), Settings(), Clock())
        try:
            gc(made, Call(self.log, made.clock.now() + 60, "agent"))
        finally:
            made.store.close()
            made.host.close()


def test_at_its_start_and_when_ganetis_files_change(qemu: Qemu, ovs: OpenVswitch) -> None:
    """All three NICs; then, with indices that lie, the fourth, on the first one's tap; nothing of the host is changed for the guest."""
    agent = Agent()
    assert agent.run() == {}
    write(FIRST, qemu.process.pid)
    uuids = [one["uuid"] for one in nics(FIRST)]
    row = ovs.vsctl("get", "port", "tap2", "_uuid")
    assert agent.run(INSTANCE) == {uuid: (f"tap{number}", "adopted") for number, uuid in enumerate(uuids)}
    assert sum("adopted, it had no record" in line for line in agent.lines) == 3
    assert ovs.vsctl("get", "port", "tap2", "_uuid") == row and f'"{uuids[2]}"' in ovs.vsctl("get", "port", "tap2", "external_ids")
    assert [link["master"] for link in ask("ip", "-j", "link", "show", "master", "br0") if link["ifname"].startswith("tap")] == ["br0"] * 2
    agent.lines.clear()
    assert agent.run() == {} and not [line for line in agent.lines if "adopted" in line]

    qemu.hold("-", 20)
    wait_until(lambda: not Path("/sys/class/net/tap0").exists(), what="the first NIC's tap goes")
    agent.collect()
    qemu.hold("tap0", 20)
    run("ip", "link", "set", "tap0", "up", "master", "br0")
    write(LATER, qemu.process.pid)
    fourth = nics(LATER)[2]["uuid"]
    assert agent.run() == {fourth: ("tap0", "adopted")}
    assert json.loads(Path(f"/run/netcommon/nics/{fourth}.json").read_bytes())["door"] == "adopt"
    qemu.kill()
    wait_until(lambda: not Path("/sys/class/net/tap1").exists(), what="the taps go")
    agent.collect()
    assert not list(Path("/run/netcommon/nics").iterdir()) and "tap2" not in ovs.vsctl("list-ports", "ovs0")


def test_it_never_guesses(qemu: Qemu, node: Node) -> None:
    """Two NICs plugged in since, on taps in the same bridge: which is whose, nobody can tell. They are left alone, and told of once."""
    write(FIRST, qemu.process.pid)
    stored = json.loads(runtime(FIRST))
    extra = [
        {**stored[1][0], "uuid": f"{letter * 8}-0667-415f-9a43-786dc01cbf24", "mac": f"aa:00:00:00:00:0{letter}", "hvinfo": {"id": letter}}
        for letter in "ab"
    ]
    stored[1] += extra
    (GANETI / "conf" / f"{INSTANCE}.runtime").write_text(json.dumps(stored))
    for tap, descriptor in (("tap3", 30), ("tap4", 31)):
        qemu.hold(tap, descriptor)
        run("ip", "link", "set", tap, "up", "master", "br0")
    links = [ask("ip", "-j", "link", "show", "dev", tap) for tap in ("tap3", "tap4")]
    agent = Agent()
    found = agent.run()
    assert {found[one["uuid"]] for one in extra} == {("", "skipped")}
    assert sorted(action for _device, action in found.values()) == ["adopted"] * 3 + ["skipped"] * 2
    assert sum("not adopted" in line for line in agent.lines) == 2
    agent.run()
    assert sum("not adopted" in line for line in agent.lines) == 2
    assert [ask("ip", "-j", "link", "show", "dev", tap) for tap in ("tap3", "tap4")] == links
    assert not Path("/run/netcommon/devices/tap3").is_symlink()


def test_a_guest_of_our_own_hooks_is_left_as_it_is(qemu: Qemu) -> None:
    """The hook knew the tags; adopt, which does not, must not undo what they asked for."""
    first = nics(FIRST)[0]
    nic = {
        "INTERFACE": "tap0",
        "MODE": "bridged",
        "LINK": "br0",
        "MAC": first["mac"],
        "VLAN": "",
        "INSTANCE": INSTANCE,
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": first["uuid"],
        "TAGS": "netcommon:*:spoof_guard",
    }
    done = rundoor("kvm-ifup", nic)
    assert (done.status, done.stderr) == (0, "")
    record = Path(f"/run/netcommon/nics/{first['uuid']}.json").read_bytes()
    write(FIRST, qemu.process.pid)
    assert first["uuid"] not in Agent().run()
    assert Path(f"/run/netcommon/nics/{first['uuid']}.json").read_bytes() == record
    assert "in-" in run("nft", "list", "ruleset")
