"""The Xen door on a simulated node, with stand-ins for xenstore's commands that answer from a folder and keep what is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netcommon.doors.call import Door
from netcommon.doors.xen import vif
from netcommon.host.facts import AF_INET
from netcommon.host.memory import MemoryHost
from netcommon.lifecycle.node import Node
from netcommon.log import Log, Recorder
from netcommon.settings import load
from runtime.errors import HostRefused, NetcommonError, NicInvalid, SettingsInvalid, TryAgain
from runtime.paths import Paths
from runtime.store import Store

BRIDGED = """TAGS="role:web\\ tenant:alpha"
NETWORK_NAME="net-br"
MAC=aa:77:0a:4d:01:32
INTERFACE_INDEX=0
INTERFACE_NAME=front
INTERFACE_UUID=13264fb6-0667-415f-9a43-786dc01cbf24
MODE=bridged
LINK=br0
VLAN=
"""
ROUTED = """MAC=ae:77:0a:4d:1f:32
IP=10.77.31.50
INTERFACE_INDEX=1
INTERFACE_UUID=0b67074c-de04-4502-ba5f-e9fd8ae7449c
MODE=routed
LINK=gntroute
VLAN=
"""
UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
BACKEND = "/local/domain/0/backend/vif/5"

READ = """#!/bin/sh
[ "$#" = 1 ] && exec cat "@store@/${1#/}"
exit 2
"""
WRITE = """#!/bin/sh
for word; do printf '%s\\n' "$word"; done >>@store@/written
"""


class XenDoor(Door):
    """A door on a simulated node."""

    def __init__(self, root: Path, host: MemoryHost) -> None:
        super().__init__("vif-ganeti", Paths.under(str(root)))
        self.simulated = host
        self.lines = Recorder()
        self.log = Log(self.lines)

    def node(self, strict: bool) -> Node:
        try:
            self.settings = load(self.paths)
        except SettingsInvalid:
            if strict:
                raise
        identity = self.simulated.identity()
        store = Store(self.paths, identity.netns, identity.boot)
        return Node(self.paths, self.settings, self.simulated, store, identity, self.clock)


class Xen:
    """Domain 5 is web1, with a bridged and a routed NIC; the devices are there."""

    def __init__(self, root: Path) -> None:
        self.root, self.host = root, MemoryHost({"gntroute": 100})
        self.host.add_bridge("br0")
        for name in ("vif5.0", "vif5.1", "vif5.0-emu", "vif5.1-emu"):
            self.host.add_tap(name)
        self.files = Path(Paths.under(str(root)).xen_run, "nic/web1")
        self.files.mkdir(parents=True)
        (self.files / "0").write_text(BRIDGED)
        (self.files / "1").write_text(ROUTED)
        self.xenstore, programs = root / "xenstore", root / "bin"
        self.name("web1")
        programs.mkdir()
        for name, text in (("xenstore-read", READ), ("xenstore-write", WRITE)):
            (programs / name).write_text(text.replace("@store@", str(self.xenstore)))
            (programs / name).chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"

    def name(self, name: str) -> None:
        """The domain's name."""
        folder = self.xenstore / "local/domain/5"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(name + "\n")

    def call(self, action: str, devid: int = 0, **more: str) -> list[str]:
        """One call of the script as libxl makes it; what was written to xenstore."""
        device = f"vif5.{devid}"
        twin = action in ("add", "remove")
        environ = {
            "PATH": self.path,
            "XENBUS_TYPE": "vif",
            "XENBUS_PATH": f"{BACKEND}/{devid}",
            "vif": device,
            "script": "/etc/xen/scripts/vif-ganeti",
        }
        environ |= {"INTERFACE": f"{device}-emu"} if twin else {}
        (self.xenstore / "written").unlink(missing_ok=True)
        self.door = XenDoor(self.root, self.host)
        try:
            assert vif(self.door, environ | more, [action, f"type_if={'tap' if twin else 'vif'}"]) == 0
        finally:
            self.written = (self.xenstore / "written").read_text().splitlines() if (self.xenstore / "written").exists() else []
        return self.written

    def store(self) -> Store:
        return Store(Paths.under(str(self.root)), 1, "simulated-boot", readonly=True)


@pytest.fixture
def xen(tmp_path: Path) -> Xen:
    return Xen(tmp_path)


def test_online_joins_the_device_and_says_so(xen: Xen) -> None:
    assert xen.call("online", MAC="nonsense", IP="10.0.0.9", SITE="kept") == [f"{BACKEND}/0/hotplug-status", "connected"]
    record = xen.store().read(UUID)
    assert record
    assert (record.device, record.nic.instance, record.nic.index, record.nic.tags, record.door) == (
        "vif5.0",
        "web1",
        0,
        ("role:web", "tenant:alpha"),
        "vif-ganeti",
    )
    assert (record.nic.mac, record.nic.ip) == ("aa:77:0a:4d:01:32", "")
    assert record.nic.environment["SITE"] == "kept"
    assert record.nic.environment["BRIDGE"] == "br0"
    link, bridge = xen.host.view().link("vif5.0"), xen.host.view().link("br0")
    assert link and bridge and (link.master, link.up) == (bridge.index, True)


def test_offline_undoes_it_by_the_device(xen: Xen) -> None:
    xen.call("online")
    (xen.files / "0").unlink()
    (xen.xenstore / "local/domain/5/name").unlink()
    assert xen.call("offline") == []
    link = xen.host.view().link("vif5.0")
    assert link and link.master == 0
    assert xen.store().all() == ([], [])
    assert xen.call("offline") == []
    assert "nothing is known of vif5.0" in xen.door.lines.lines[-1]


def test_routed(xen: Xen) -> None:
    xen.call("online", 1)
    assert [rule.table for rule in xen.host.view().rules(AF_INET, "vif5.1")] == [100]
    xen.host.remove_link("vif5.1")
    xen.call("offline", 1)
    assert xen.host.view().rules(AF_INET, "vif5.1") == []


def test_the_emulated_twin_is_undone_by_itself(xen: Xen) -> None:
    xen.call("online")
    assert xen.call("add") == []
    assert sorted(record.device for record in xen.store().all()[0]) == ["vif5.0", "vif5.0-emu"]
    assert xen.store().by_instance("web1", 0) == xen.store().read(UUID)
    assert {record.state for record in xen.store().all()[0]} == {"up"}
    xen.call("remove")
    assert [record.device for record in xen.store().all()[0]] == ["vif5.0"]
    link = xen.host.view().link("vif5.0")
    assert link and link.master


def test_the_emulated_twin_of_a_routed_nic_leaves_the_route_alone(xen: Xen) -> None:
    xen.call("online", 1)
    xen.call("add", 1)
    link = xen.host.view().link("vif5.1")
    assert link and [route.index for route in xen.host.view().routes(AF_INET, 100)] == [link.index]
    assert [record.device for record in xen.store().all()[0]] == ["vif5.1"]
    xen.call("remove", 1)
    assert len(xen.store().all()[0]) == 1


def test_a_domain_that_moves_in(xen: Xen) -> None:
    xen.name("web1--incoming")
    xen.call("online")
    record = xen.store().read(UUID)
    assert record and record.nic.instance == "web1"


def test_devices_of_other_names_are_told_by_xenbus_path(xen: Xen) -> None:
    xen.host.add_tap("front")
    xen.call("online", vif="front")
    record = xen.store().by_device("front")
    assert record and record.uuid == UUID


def test_older_conventions(xen: Xen) -> None:
    """The device as dev, nothing but the environment, no XENBUS_PATH."""
    door = XenDoor(xen.root, xen.host)
    assert vif(door, {"PATH": xen.path, "dev": "vif5.0", "type_if": "vif"}, ["add"]) == 0
    assert xen.store().by_device("vif5.0")
    assert vif(door, {"PATH": xen.path, "dev": "vif5.0", "type_if": "vif"}, ["remove"]) == 0
    assert xen.store().all() == ([], [])
    assert not (xen.xenstore / "written").exists()


@pytest.mark.parametrize(
    ("spoil", "error", "text"),
    [
        ("bridge", HostRefused, "bridge br0 does not exist"),
        ("file", HostRefused, "Ganeti has written no file for NIC 0 of web1"),
        ("name", HostRefused, "xenstore-read /local/domain/5/name ended with status 1"),
        ("program", HostRefused, "xenstore-read /local/domain/5/name could not be started"),
        ("slow", TryAgain, "was ended at the time limit"),
        ("assignment", NicInvalid, "NIC file='rm -rf /'"),
        ("settings", SettingsInvalid, "config.toml:2"),
    ],
)
def test_a_failure_is_told_to_libxl(xen: Xen, spoil: str, error: type[NetcommonError], text: str) -> None:
    etc = Path(Paths.under(str(xen.root)).etc)
    if spoil == "bridge":
        xen.host.remove_link("br0")
    elif spoil == "file":
        (xen.files / "0").unlink()
    elif spoil == "name":
        (xen.xenstore / "local/domain/5/name").unlink()
    elif spoil == "program":
        (xen.root / "bin/xenstore-read").unlink()
    elif spoil == "slow":
        (xen.root / "bin/xenstore-read").write_text("#!/bin/sh\nexec sleep 60\n")
        etc.mkdir(parents=True)
        (etc / "config.toml").write_text("[hook]\nservice_timeout = 0.1\n")
    elif spoil == "assignment":
        (xen.files / "0").write_text("rm -rf /\n")
    else:
        etc.mkdir(parents=True)
        (etc / "config.toml").write_text("[hook]\ntimeout = 0\n")
    with pytest.raises(error) as raised:
        xen.call("online")
    assert text in str(raised.value)
    assert xen.written[0] == f"{BACKEND}/0/hotplug-error"
    assert text.splitlines()[0][:20] in " ".join(xen.written)
    assert xen.written[-2:] == [f"{BACKEND}/0/hotplug-status", "error"]
    assert xen.host.changes == []
    assert xen.store().all() == ([], [])


def test_offline_works_with_broken_settings(xen: Xen) -> None:
    xen.call("online")
    etc = Path(Paths.under(str(xen.root)).etc)
    etc.mkdir(parents=True)
    (etc / "config.toml").write_text("[hook]\ntimeout = 0\n")
    xen.call("offline")
    assert xen.store().all() == ([], [])


@pytest.mark.parametrize(
    ("argv", "environ", "variable"),
    [
        ([], {"vif": "vif5.0"}, "ACTION"),
        (["up"], {"vif": "vif5.0"}, "ACTION"),
        (["online"], {}, "vif"),
        (["online"], {"vif": "a/b", "XENBUS_PATH": f"{BACKEND}/0"}, "vif"),
        (["online"], {"vif": "front"}, "XENBUS_PATH"),
        (["online"], {"vif": "vif5.x"}, "XENBUS_PATH"),
        (["online"], {"vif": "vif5.0", "XENBUS_PATH": "-s"}, "XENBUS_PATH"),
        (["online"], {"vif": "vif5.0", "XENBUS_PATH": "/local/$(id)/0"}, "XENBUS_PATH"),
        (["online", "type_if=x"], {"vif": "vif5.0", "XENBUS_PATH": f"{BACKEND}/0"}, "type_if"),
        (["offline"], {"vif": "vif5.0x"}, "XENBUS_PATH"),
    ],
)
def test_what_makes_no_sense_changes_nothing(xen: Xen, argv: list[str], environ: dict[str, str], variable: str) -> None:
    with pytest.raises(NicInvalid) as raised:
        vif(XenDoor(xen.root, xen.host), {"PATH": xen.path, **environ}, argv)
    assert raised.value.variable == variable
    assert xen.host.changes == []


def test_a_domains_name_that_is_no_instance(xen: Xen) -> None:
    xen.name("../web1")
    with pytest.raises(NicInvalid, match="the domain's name"):
        xen.call("online")
