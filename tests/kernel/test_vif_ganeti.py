"""hooks/vif-ganeti in a real namespace, called as libxl calls it; xenstore's commands are stand-ins."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import xenstore
from tests.support.bootstrap import VENV
from tests.support.netns import ask, run
from tests.support.nics import FIXTURES
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import BASE, HOOKS, Outcome, execute
from tests.support.snapshot import diff, snapshot

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
BRIDGED = FIXTURES / "xen-nic-files" / "inst1.gnt.example" / "3"
CUSTOM = Path("/etc/xen/scripts/vif-custom")


class Xen:
    """Domain 5, an HVM guest: its second NIC is routed, its fourth bridged; each has two devices."""

    def __init__(self, node: Node, root: Path) -> None:
        node.bridge("br0")
        for device in ("vif5.1", "vif5.3"):
            run("ip", "link", "add", device, "type", "veth", "peer", "name", f"guest{device[-1]}")
        node.tap("vif5.3-emu")
        files = Path("/var/run/ganeti/xen-hypervisor/nic/inst1.gnt.example")
        files.mkdir(parents=True)
        (files / "1").write_text(NIC)
        (files / "3").write_bytes(BRIDGED.read_bytes())
        self.xenstore = xenstore.Store(root)
        self.xenstore.domain(5, "inst1.gnt.example", "", "ae:77:0a:4d:1f:32", "", "aa:77:0a:4d:01:33")

    def environ(self, devid: int) -> dict[str, str]:
        return {
            **BASE,
            "PATH": f"{self.xenstore.programs}:{BASE['PATH']}",
            "script": "/etc/xen/scripts/vif-ganeti",
            "XENBUS_TYPE": "vif",
            "XENBUS_PATH": f"backend/vif/5/{devid}",
            "XENBUS_BASE_PATH": "backend",
            "netdev": "",
            "INTERFACE": f"vif5.{devid}-emu",
            "vif": f"vif5.{devid}",
        }

    def call(self, action: str, devid: int) -> Outcome:
        kind = "tap" if action in ("add", "remove") else "vif"
        return execute([str(HOOKS / "vif-ganeti"), action, f"type_if={kind}"], self.environ(devid))

    def told(self, devid: int) -> list[str]:
        """What xenstore was told of the device since the last time."""
        return [line.removeprefix(f"backend/vif/5/{devid}/") for line in self.xenstore.written()]


@pytest.fixture
def xen(node: Node, tmp_path: Path) -> Iterator[Xen]:
    CUSTOM.parent.mkdir(parents=True)
    yield Xen(node, tmp_path)
    shutil.rmtree("/etc/xen")


def custom(body: str, mode: int = 0o755) -> None:
    CUSTOM.write_text(f"#!/bin/sh\n{body}\n")
    CUSTOM.chmod(mode)


def masters() -> dict[str, str]:
    return {link["ifname"]: link.get("master", "") for link in ask("ip", "-j", "link") if link["ifname"].startswith("vif")}


def records() -> list[str]:
    return sorted(os.listdir("/run/netcommon/devices")) if os.path.isdir("/run/netcommon/devices") else []


def test_online_and_offline(xen: Xen) -> None:
    before = ask("ip", "-j", "rule")
    done = xen.call("online", 1)
    assert (done.status, done.stderr) == (0, "")
    assert xen.told(1) == ["hotplug-status connected"]
    assert [rule["table"] for rule in ask("ip", "-j", "rule") if rule.get("iif") == "vif5.1"] == ["100"]
    assert [route["dst"] for route in ask("ip", "-j", "route", "show", "table", "100")] == ["10.77.31.50"]
    assert "UP" in run("ip", "link", "show", "vif5.1")
    assert not Path("/run/pwned").exists()

    run("ip", "link", "del", "vif5.1")
    done = xen.call("offline", 1)
    assert (done.status, done.stderr) == (0, "")
    assert ask("ip", "-j", "rule") == before
    assert xen.told(1) == []

    done = xen.call("online", 1)
    assert done.status == 69
    assert "device vif5.1 does not exist" in done.stderr
    error, status = xen.told(1)
    assert error.startswith("hotplug-error ") and "device vif5.1 does not exist" in error
    assert status == "hotplug-status error"
    assert ask("ip", "-j", "rule") == before


def test_both_devices_of_a_guest(xen: Xen) -> None:
    """As libxl calls for an HVM guest: both at start; at its end QEMU's device is gone before the calls."""
    for action in ("online", "add", "remove", "offline"):
        assert xen.call(action, 3).status == 0
    before = snapshot()
    for action in ("online", "add"):
        done = xen.call(action, 3)
        assert (done.status, done.stderr) == (0, "")
    assert xen.told(3) == ["hotplug-status connected"] * 2  # for the vif alone, each time
    assert masters() == {"vif5.1": "", "vif5.3": "br0", "vif5.3-emu": "br0"}
    assert records() == ["vif5.3", "vif5.3-emu"]
    assert xen.call("remove", 3).status == 0
    assert (masters()["vif5.3"], masters()["vif5.3-emu"], records()) == ("br0", "", ["vif5.3"])
    assert xen.call("add", 3).status == 0
    assert xen.call("offline", 3).status == 0
    assert (masters()["vif5.3"], masters()["vif5.3-emu"], records()) == ("", "br0", ["vif5.3-emu"])
    assert xen.call("remove", 3).status == 0
    for action in ("offline", "remove"):
        assert xen.call(action, 3).status == 0
    assert diff(before, snapshot()) == []


def test_vif_custom_takes_over(xen: Xen) -> None:
    """Ganeti's vif-ganeti becomes it, for every call: the same arguments, environment, outputs and exit status."""
    custom(
        'echo "$0 $*" >>/run/called; env -0 >/run/env; grep SigIgn /proc/self/status >/run/ignored; echo said; echo complained >&2; exit 7'
    )
    for action, kind in (("online", "vif"), ("add", "tap"), ("remove", "tap"), ("offline", "vif")):
        done = xen.call(action, 3)
        assert (done.status, done.stdout, done.stderr) == (7, "said\n", "complained\n")
        assert Path("/run/called").read_text() == f"{CUSTOM} {action} type_if={kind}\n"
        Path("/run/called").unlink()
    found = dict(pair.split("=", 1) for pair in Path("/run/env").read_text().split("\0") if pair)
    assert {name: found.get(name) for name in xen.environ(3)} == xen.environ(3)
    assert set(found) - set(xen.environ(3)) <= {"NETCOMMON_VIF_CUSTOM", "PWD", "OLDPWD", "SHLVL", "_"}
    ignored = int(Path("/run/ignored").read_text().split()[1], 16)
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []
    assert execute([str(HOOKS / "vif-ganeti"), "strange"], xen.environ(3)).status == 7
    assert (xen.told(3), records()) == ([], [])


def test_vif_custom_may_ask_for_the_built_in(xen: Xen) -> None:
    custom(f'{HOOKS}/vif-ganeti "$@" || exit 1; echo "$1 $vif" >>/run/called')
    for action in ("online", "add"):
        assert xen.call(action, 3).status == 0
    assert (records(), xen.told(3)) == (["vif5.3", "vif5.3-emu"], ["hotplug-status connected"])
    for action in ("remove", "offline"):
        assert xen.call(action, 3).status == 0
    assert (records(), masters()["vif5.3"]) == ([], "")
    assert Path("/run/called").read_text().split() == ["online", "vif5.3", "add", "vif5.3", "remove", "vif5.3", "offline", "vif5.3"]


def test_vif_custom_comes_after_the_start(xen: Xen) -> None:
    """What we have set up is undone by us; then the script has its say."""
    assert xen.call("online", 3).status == 0
    custom("echo called >>/run/called")
    assert xen.call("offline", 3).status == 0
    assert (records(), masters()["vif5.3"], Path("/run/called").read_text()) == ([], "", "called\n")


def test_vif_custom_that_others_can_write(xen: Xen) -> None:
    custom("touch /run/called", 0o777)
    done = xen.call("online", 3)
    assert done.status == 69 and "vif-custom can be written by everybody" in done.stderr
    assert xen.told(3)[1] == "hotplug-status error"
    assert xen.call("offline", 3).status == 0
    assert (Path("/run/called").exists(), records()) == (False, [])


def test_vif_custom_that_cannot_be_started(xen: Xen) -> None:
    CUSTOM.write_text("#!/nosuch/shell\n")
    CUSTOM.chmod(0o755)
    done = xen.call("online", 3)
    assert done.status == 69 and f"{CUSTOM}: No such file or directory" in done.stderr
    assert xen.told(3)[1] == "hotplug-status error"


@pytest.mark.parametrize("kind", ["link", "wrapper", "not executable"])
def test_vif_custom_that_is_ours_or_none(xen: Xen, kind: str) -> None:
    if kind == "link":
        CUSTOM.symlink_to(HOOKS / "vif-ganeti")
    elif kind == "wrapper":
        custom(f'exec {HOOKS}/vif-ganeti "$@"')
    else:
        custom("exit 7", 0o644)
    assert xen.call("online", 3).status == 0
    assert (records(), xen.told(3)) == (["vif5.3"], ["hotplug-status connected"])


def test_the_sites_scripts(xen: Xen) -> None:
    """Those for every hypervisor run, and a mode's override; what Ganeti has for KVM does not."""
    Path("/etc/netcommon/ifup.d").mkdir()
    Path("/etc/ganeti/network/bridged").mkdir(parents=True)
    scripts = {name: f"/etc/ganeti/{name}" for name in ("kvm-vif-bridge", "kvm-ifup-custom", "kvm-ifdown-custom")}
    for name, path in {"ifup": "/etc/netcommon/ifup.d/10-site", **scripts}.items():
        Path(path).write_text(f'#!/bin/sh\necho "{name} $1" >>/run/called\n')
        Path(path).chmod(0o755)
    assert xen.call("online", 3).status == 0
    assert masters()["vif5.3"] == "br0"
    assert xen.call("offline", 3).status == 0
    for action in ("up", "down"):
        path = Path(f"/etc/ganeti/network/bridged/{action}")
        path.write_text('#!/bin/sh\necho "override $ACTION $INTERFACE $MODE $LINK $#" >>/run/called\n')
        path.chmod(0o755)
    assert xen.call("online", 3).status == 0
    assert (masters()["vif5.3"], records(), xen.told(3)) == ("", ["vif5.3"], ["hotplug-status connected"] * 2)
    assert xen.call("offline", 3).status == 0
    assert Path("/run/called").read_text().splitlines() == [
        "ifup vif5.3",
        "override up vif5.3 bridged br0 0",
        "ifup vif5.3",
        "override down vif5.3 bridged br0 0",
    ]


def isolated() -> dict[str, bool]:
    """Tell whether each device of NIC 3 is kept from other isolated ports."""
    ports = ask("bridge", "-d", "-j", "link")
    return {port["ifname"]: bool(port["isolated"]) for port in ports if port["ifname"].startswith("vif5.3")}


def change(*words: str) -> None:
    done = execute([str(VENV / "bin/netcommon"), "change", *words], BASE)
    assert done.status == 0, done


def indexes() -> dict[str, int | None]:
    with ours() as node:
        return {record.device: record.nic.index for record in node.store.all()[0]}


def test_a_change_reaches_the_emulated_twin(xen: Xen) -> None:
    """By any name of the NIC: an HVM guest chooses by which of its devices it sends."""
    for action in ("online", "add"):
        assert xen.call(action, 3).status == 0
    found = indexes()
    assert found == {"vif5.3": 3, "vif5.3-emu": None}
    for name in ("inst1.gnt.example/3", "vif5.3", "inst1.gnt.example", "vif5.3-emu", "--all"):
        change(name, "isolated=yes")
        assert isolated() == {"vif5.3": True, "vif5.3-emu": True}, name
        change(name, "--unset", "isolated")
        assert isolated() == {"vif5.3": False, "vif5.3-emu": False}, name
    Path("/run/new-tags").write_text("netcommon:3:isolated")
    change("inst1.gnt.example/3", "--tags-from", "/run/new-tags")
    assert isolated() == {"vif5.3": True, "vif5.3-emu": True}
    assert indexes() == found


def test_a_twin_that_comes_back_has_what_was_changed_of_its_nic(xen: Xen) -> None:
    """A guest's own drivers have QEMU close the emulated device; it is back when the guest boots anew, and has what its NIC has then."""
    for action in ("online", "add"):
        assert xen.call(action, 3).status == 0
    for words, kept in (("isolated=yes",), True), (("--unset", "isolated"), False), (("isolated=yes", "--for", "2s"), True):
        run("ip", "link", "del", "vif5.3-emu")
        change("vif5.3", *words)
        assert isolated() == {"vif5.3": kept}
        run("ip", "tuntap", "add", "vif5.3-emu", "mode", "tap")
        assert xen.call("add", 3).status == 0
        assert isolated() == {"vif5.3": kept, "vif5.3-emu": kept}, words
    deadline = time.monotonic() + 30
    while isolated()["vif5.3"] and time.monotonic() < deadline:
        assert xen.call("online", 1).status == 0  # another NIC's hook
        assert xen.call("offline", 1).status == 0
    assert isolated() == {"vif5.3": False, "vif5.3-emu": False}
    assert os.listdir("/var/lib/netcommon/wanted") == []


def test_a_twin_whose_device_is_gone_keeps_no_change_from_its_nic(xen: Xen) -> None:
    """The guest's own drivers have QEMU close the emulated device, and nothing is called; by its own name it is said not to be up."""
    for action in ("online", "add"):
        assert xen.call(action, 3).status == 0
    run("ip", "link", "del", "vif5.3-emu")
    for name in ("inst1.gnt.example/3", "vif5.3", "inst1.gnt.example"):
        change(name, "isolated=yes")
        assert isolated() == {"vif5.3": True}, name
        change(name, "--unset", "isolated")
        assert isolated() == {"vif5.3": False}, name
    for names in (["vif5.3-emu"], ["vif5.3", "vif5.3-emu"]):
        done = execute([str(VENV / "bin/netcommon"), "change", *names, "isolated=yes"], BASE)
        assert done.status == 64 and "a NIC that is up" in done.stderr
        assert isolated() == {"vif5.3": False}
