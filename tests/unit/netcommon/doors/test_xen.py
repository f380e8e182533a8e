"""The Xen door on a simulated node, with stand-ins for xenstore's commands."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from netcommon.cli.app import App
from netcommon.cli.group import netcommon
from netcommon.doors.call import Door
from netcommon.doors.xen import vif
from netcommon.host.api.facts import AF_INET
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, SetLink
from netcommon.host.simulated.host import MemoryHost
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Call, Clock, Node, Outcome
from netcommon.lifecycle.ends import end_due, end_some
from netcommon.log import Log, Recorder
from netcommon.options.sources import options_of
from netcommon.settings.load import load
from runtime.errors import HostRefused, Interrupted, NetcommonError, NicInvalid, SettingsInvalid, TryAgain
from runtime.paths import Paths
from runtime.store import Store
from runtime.xen import parse
from tests.support import xenstore
from tests.support.nics import FIXTURES

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
BACKEND = "backend/vif/5"
MACS = ("aa:77:0a:4d:01:32", "ae:77:0a:4d:1f:32")


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
        return Node(self.paths, self.settings, self.simulated, store, identity, self.clock, lambda delays, action, node, log: None)


class Xen:
    """Domain 5 is web1, an HVM guest with a bridged and a routed NIC; the devices are there."""

    def __init__(self, root: Path) -> None:
        self.root, self.host = root, MemoryHost({"gntroute": 100})
        self.host.add_bridge("br0")
        for name in ("vif5.0", "vif5.1", "vif5.0-emu", "vif5.1-emu"):
            self.host.add_tap(name)
        self.paths = Paths.under(str(root))
        self.files = Path(self.paths.xen_run, "nic/web1")
        self.files.mkdir(parents=True)
        (self.files / "0").write_text(BRIDGED)
        (self.files / "1").write_text(ROUTED)
        self.xenstore = xenstore.Store(root)
        self.xenstore.domain(5, "web1", *MACS)
        self.path = f"{self.xenstore.programs}:{os.environ['PATH']}"

    def environ(self, devid: int = 0, domain: int = 5) -> dict[str, str]:
        """What libxl adds to its own environment, for both calls (libxl_linux.c, get_hotplug_env)."""
        return {
            "PATH": self.path,
            "script": "/etc/xen/scripts/vif-ganeti",
            "XENBUS_TYPE": "vif",
            "XENBUS_PATH": f"backend/vif/{domain}/{devid}",
            "XENBUS_BASE_PATH": "backend",
            "netdev": "",
            "INTERFACE": f"vif{domain}.{devid}-emu",
            "vif": f"vif{domain}.{devid}",
        }

    def call(self, action: str, devid: int = 0, domain: int = 5, **more: str) -> list[str]:
        """One call of the script as libxl makes it; what was written to xenstore."""
        kind = "tap" if action in ("add", "remove") else "vif"
        self.xenstore.calls()
        self.door = XenDoor(self.root, self.host)
        try:
            assert vif(self.door, self.environ(devid, domain) | more, [action, f"type_if={kind}"]) == 0
        finally:
            self.written = self.xenstore.written()
        return self.written

    def settings(self, text: str) -> None:
        Path(self.paths.etc).mkdir(parents=True, exist_ok=True)
        Path(self.paths.config).write_text(text)

    def store(self) -> Store:
        return Store(self.paths, 1, "simulated-boot", readonly=True)

    def devices(self) -> list[str]:
        """The devices that are on record."""
        return sorted(record.device for record in self.store().all()[0])

    def master(self, device: str) -> str:
        view = self.host.view()
        link = view.link(device)
        bridge = view.link_at(link.master) if link and link.master else None
        return bridge.name if bridge else ""


@pytest.fixture
def xen(tmp_path: Path) -> Xen:
    return Xen(tmp_path)


def test_online_joins_the_device_and_says_so(xen: Xen) -> None:
    assert xen.call("online", MAC="nonsense", IP="10.0.0.9", SITE="kept") == [f"{BACKEND}/0/hotplug-status connected"]
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


@pytest.mark.parametrize("file", sorted((FIXTURES / "xen-nic-files").glob("*/*")), ids=lambda file: file.name)
def test_every_captured_file(xen: Xen, file: Path) -> None:
    """Written by Ganeti's own driver: each NIC comes up on both devices as the file says, and goes again."""
    said = parse(file.read_bytes())
    xen.host.add_ovs_bridge("ovs0")
    for name in ("vif9.7", "vif9.7-emu"):
        xen.host.add_tap(name)
    copy = Path(xen.paths.xen_run, "nic", file.parent.name, "7")
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    xen.xenstore.domain(9, file.parent.name)
    xen.xenstore.put("backend/vif/9/7/mac", said["MAC"])
    if ":" in said.get("IP", ""):
        xen.host.kernel.settings.write("net/ipv6/conf/all/forwarding", "1")
    if said["MODE"] == "bridged" and said["LINK"] != "br0":
        xen.host.add_bridge(said["LINK"])
    assert xen.call("online", 7, 9) == ["backend/vif/9/7/hotplug-status connected"]
    xen.call("add", 7, 9)
    record = xen.store().read(said["INTERFACE_UUID"])
    assert record and (record.device, record.nic.mode, record.nic.link) == ("vif9.7", said["MODE"], said["LINK"])
    assert xen.devices() == (["vif9.7"] if said["MODE"] == "routed" else ["vif9.7", "vif9.7-emu"])
    xen.call("offline", 7, 9)
    xen.call("remove", 7, 9)
    assert xen.store().all() == ([], [])


def test_libxl_has_its_answer_before_options_of_other_nics_end(xen: Xen, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr("netcommon.doors.xen.end_due", lambda _node, _call: told.append(xen.xenstore.written()))
    xen.call("online")
    assert told == [[f"{BACKEND}/0/hotplug-status connected"]]


def test_offline_undoes_it_by_the_device(xen: Xen) -> None:
    xen.call("online")
    (xen.files / "0").unlink()
    xen.xenstore.file("/local/domain/5/name").unlink()
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


def test_the_two_devices_of_one_nic(xen: Xen) -> None:
    """Two records, each undone by itself, in the order in which libxl makes the calls and in the other one."""
    for first, second in (("offline", "remove"), ("remove", "offline")):
        xen.call("online")
        assert xen.call("add") == []
        records = xen.store().all()[0]
        assert sorted((record.device, record.state) for record in records) == [("vif5.0", "up"), ("vif5.0-emu", "up")]
        assert len({record.uuid for record in records}) == 2
        assert xen.store().by_instance("web1", 0) == xen.store().read(UUID)
        assert (xen.master("vif5.0"), xen.master("vif5.0-emu")) == ("br0", "br0")
        xen.call(first)
        gone, left = ("vif5.0", "vif5.0-emu") if first == "offline" else ("vif5.0-emu", "vif5.0")
        assert (xen.devices(), xen.master(gone), xen.master(left)) == ([left], "", "br0")
        xen.call(second)
        assert (xen.devices(), xen.master(left)) == ([], "")


def test_both_devices_have_the_options_of_the_nic(xen: Xen) -> None:
    """Tags that name the NIC by its index or UUID count for its twin too: a guard on one device alone guards nothing."""
    for which in ("0", UUID, "front"):
        (xen.files / "0").write_text(BRIDGED.replace("tenant:alpha", f"netcommon:{which}:spoof_guard"))
        xen.call("online")
        xen.call("add")
        options = [options_of(record.nic, xen.door.settings) for record in xen.store().all()[0]]
        assert [each.spoof_guard for each in options] == [True, True]
        xen.call("offline")
        xen.call("remove")


@pytest.mark.parametrize("which", ["0", UUID, "front"])
def test_new_tags_leave_the_twin_a_twin(xen: Xen, which: str) -> None:
    """It has no index, dnsmasq is told of the NIC's own device alone, and tags that name the NIC count for both."""
    xen.settings('[nic]\ndhcp = "dnsmasq"\n')
    xen.host.files.folders.add("/var/lib/netcommon/dnsmasq")
    (xen.files / "0").write_text("IP=10.77.0.5\n" + BRIDGED)
    xen.call("online")
    xen.call("add")
    files = [file.content for file in xen.host.view().files()]
    before = {record.device: record.nic for record in xen.store().all()[0]}
    node = xen.door.node(strict=True)
    for nic in before.values():
        assert change(node, nic.uuid, xen.door.call(), tags=[f"netcommon:{which}:isolated", "role:db"]).changed
    node.store.close()
    assert len(files) == 1 and [file.content for file in xen.host.view().files()] == files
    for record in xen.store().all()[0]:
        old = before[record.device]
        tags = (f"netcommon:{which}:isolated", "role:db")
        assert record.nic == old._replace(tags=tags, environment={**old.environment, "TAGS": " ".join(tags)})
        assert options_of(record.nic, xen.door.settings).isolated
    assert [record.nic.index for record in xen.store().all()[0] if record.device == "vif5.0-emu"] == [None]
    assert xen.store().by_instance("web1", 0) == xen.store().read(UUID)


def wants_isolation(xen: Xen) -> dict[str, bool]:
    """Tell of each device's record whether its NIC is isolated."""
    return {record.device: options_of(record.nic, xen.door.settings).isolated for record in xen.store().all()[0]}


@pytest.mark.parametrize("end", [end_due, end_some])
def test_a_twin_has_what_was_changed_of_its_nic_until_that_ends(xen: Xen, end: Callable[[Node, Call], object]) -> None:
    """Also one that was not there when it was changed, and one that the change of both has not reached: one file holds it for both."""
    xen.call("online")
    node = xen.door.node(strict=True)
    later = node._replace(clock=Clock(lambda: node.clock.now() + 3600, lambda: node.clock.wall() + 3600))
    assert change(node, UUID, xen.door.call(), setting(node, {"isolated": "yes"}, (), 1800)).changed
    xen.call("add")
    assert wants_isolation(xen) == {"vif5.0": True, "vif5.0-emu": True}
    assert sorted(os.listdir(xen.paths.wanted)) == [f"{UUID}.json", "ends"]
    ahead = end_due(later._replace(store=xen.store()), xen.door.call()._replace(deadline=later.clock.now() + 60))
    twin = next(record.uuid for record in xen.store().all()[0] if record.device == "vif5.0-emu")
    assert [(uuid, type(became)) for uuid, became in ahead] == [(twin, Outcome), (UUID, Outcome)], "neither for a reason of its own"
    assert wants_isolation(xen) == {"vif5.0": True, "vif5.0-emu": True}
    end(later, xen.door.call()._replace(deadline=later.clock.now() + 60))
    assert wants_isolation(xen) == {"vif5.0": False, "vif5.0-emu": False}
    assert os.listdir(xen.paths.wanted) == []
    assert change(node, UUID, xen.door.call(), setting(node, {"isolated": "yes"}, ())).changed
    assert wants_isolation(xen) == {"vif5.0": True, "vif5.0-emu": False}  # killed between the two
    end_due(node, xen.door.call())
    assert wants_isolation(xen) == {"vif5.0": True, "vif5.0-emu": True}
    node.store.close()


@pytest.mark.parametrize("words", [("--all", "isolated=yes"), ("--all", "--unset", "isolated")])
def test_a_twin_that_is_changed_alone_is_foretold(xen: Xen, words: tuple[str, ...]) -> None:
    """It has what is kept of its NIC, which is not changed: its guest shuts down."""
    xen.call("online")
    xen.call("add")
    node = xen.door.node(strict=True)
    for record in xen.store().all()[0] if "--unset" in words else ():
        change(node, record.uuid, xen.door.call(), setting(node, {"isolated": "yes"}, ()))
    ran = partial(CliRunner().invoke, netcommon, obj=App(xen.paths, Clock(), lambda *_: xen.host, Recorder(), {}, 0), prog_name="netcommon")
    assert ran(["change", *words, "--dry-run"]).exit_code == 0
    record = xen.store().read(UUID)
    assert record is not None
    node.store.write(record.closed())
    node.store.close()
    ahead, done = ran(["change", *words, "--dry-run"]), ran(["change", *words])
    assert ahead.exit_code == done.exit_code == 69 and ahead.stderr == done.stderr and "twin" in done.stderr


def test_an_end_that_the_twin_refuses_is_due_for_both(xen: Xen) -> None:
    """Else nobody but gc and the agent would look at the twin again."""
    xen.call("online")
    xen.call("add")
    node = xen.door.node(strict=True)
    twin = next(record.uuid for record in xen.store().all()[0] if record.device == "vif5.0-emu")
    wanted = setting(node, {"isolated": "yes"}, (), 1800)
    for uuid in (UUID, twin):
        assert change(node, uuid, xen.door.call(), wanted).changed
    later = node._replace(clock=Clock(lambda: node.clock.now() + 3600, lambda: node.clock.wall() + 3600))
    call = xen.door.call()._replace(deadline=later.clock.now() + 60)
    index = xen.host.view().link("vif5.0-emu").index  # type: ignore[union-attr]
    xen.host.fail = lambda request: Answer(errno.EBUSY, "busy") if getattr(request, "index", 0) == index else None
    end_some(later, call)
    assert wants_isolation(xen) == {"vif5.0": True, "vif5.0-emu": True}
    xen.host.fail = lambda _request: None
    end_some(later, call)
    assert wants_isolation(xen) == {"vif5.0": False, "vif5.0-emu": False}
    node.store.close()


def test_the_emulated_twin_of_a_routed_nic_leaves_the_route_alone(xen: Xen) -> None:
    xen.call("online", 1)
    xen.call("add", 1)
    link = xen.host.view().link("vif5.1")
    assert link and [route.index for route in xen.host.view().routes(AF_INET, 100)] == [link.index]
    assert xen.devices() == ["vif5.1"]
    xen.call("remove", 1)
    assert len(xen.store().all()[0]) == 1


def test_a_stub_domain(xen: Xen) -> None:
    """Its device is the guest's emulated twin, though it is a vif and another domain's."""
    xen.xenstore.domain(6, "web1-dm", "00:16:3e:00:00:01", stub_of=5)
    xen.host.add_tap("vif6.0")
    assert xen.call("online", domain=6) == ["backend/vif/6/0/hotplug-status connected"]
    xen.call("online")
    assert xen.devices() == ["vif5.0", "vif6.0"]
    assert {record.nic.instance for record in xen.store().all()[0]} == {"web1"}
    xen.call("offline", domain=6)
    assert (xen.devices(), xen.master("vif5.0"), xen.master("vif6.0")) == (["vif5.0"], "br0", "")


def test_an_instance_called_like_a_stub_domain(xen: Xen) -> None:
    xen.files.rename(xen.files.parent / "web1-dm")
    xen.xenstore.domain(5, "web1-dm", *MACS)
    xen.call("online")
    record = xen.store().read(UUID)
    assert record and record.nic.instance == "web1-dm"


def test_a_domain_that_moves_in(xen: Xen) -> None:
    xen.xenstore.domain(5, "web1--incoming", *MACS)
    xen.call("online")
    record = xen.store().read(UUID)
    assert record and (record.nic.instance, record.incoming) == ("web1", False)


def test_devices_of_other_names_are_told_by_xenbus_path(xen: Xen) -> None:
    xen.host.add_tap("front")
    xen.call("online", vif="front")
    record = xen.store().by_device("front")
    assert record and record.uuid == UUID


@pytest.mark.parametrize(("action", "kind"), [("online", "tap"), ("offline", "tap"), ("add", "vif"), ("remove", "vif"), ("add", "")])
def test_calls_that_ask_for_nothing(xen: Xen, action: str, kind: str) -> None:
    """As in vif-common.sh, which takes a call without type_if for one about a vif."""
    xen.call("online")
    xen.call("add")
    before = xen.store().all()
    assert vif(XenDoor(xen.root, xen.host), xen.environ(), [action, *([f"type_if={kind}"] if kind else [])]) == 0
    assert xen.store().all() == before
    assert xen.xenstore.calls() == []


def test_udevs_convention(xen: Xen) -> None:
    """The device alone: the place in xenstore follows from its name. And a word of the command line counts before the environment."""
    door = XenDoor(xen.root, xen.host)
    assert vif(door, {"PATH": xen.path, "INTERFACE": "vif5.0-emu"}, ["add", "type_if=tap"]) == 0
    assert vif(door, {"PATH": xen.path, "vif": "vif9.9"}, ["vif=vif5.0", "online"]) == 0
    assert xen.devices() == ["vif5.0", "vif5.0-emu"]
    assert xen.xenstore.written() == [f"{BACKEND}/0/hotplug-status connected"]
    assert vif(door, {"INTERFACE": "vif5.0-emu", "type_if": "tap"}, ["remove"]) == 0
    assert vif(door, {"vif": "vif5.0"}, ["offline"]) == 0
    assert xen.devices() == []


FAILURES = [
    ("bridge", HostRefused, "bridge br0 does not exist"),
    ("file", HostRefused, "/nic/web1/0: it does so when it starts an instance, and not for a live migration"),
    ("owner", HostRefused, "could be written by others than root"),
    ("other", HostRefused, "is about another NIC: it says MAC aa:00:00:00:00:01, and vif5.0 has aa:77:0a:4d:01:32"),
    ("name", HostRefused, "xenstore-read /local/domain/5/name ended with status 1"),
    ("instance", NicInvalid, "the domain's name"),
    ("program", HostRefused, "xenstore-read /local/domain/5/name could not be started"),
    ("slow", TryAgain, "was ended at the time limit"),
    ("assignment", NicInvalid, "NIC file='rm -rf /'"),
    ("settings", SettingsInvalid, "config.toml:2"),
]


def test_a_signal_is_told_to_libxl(xen: Xen) -> None:
    """It waits for an answer whatever ended us; a down that was ended fails nothing, or the device would be in xenstore for ever."""

    def ended(_request: Request) -> Answer | None:
        raise Interrupted("ended by signal 15")

    xen.host.fail = ended
    with pytest.raises(Interrupted):
        xen.call("online")
    assert xen.written == [f"{BACKEND}/0/hotplug-error ended by signal 15", f"{BACKEND}/0/hotplug-status error"]
    xen.host.fail = lambda _request: None
    xen.call("online")
    xen.host.fail = ended
    xen.call("offline")
    assert xen.devices() == ["vif5.0"]


@pytest.mark.parametrize(("spoil", "error", "text"), FAILURES, ids=[failure[0] for failure in FAILURES])
@pytest.mark.parametrize("action", ["online", "add"])
def test_a_failure_is_told_to_libxl(xen: Xen, spoil: str, error: type[NetcommonError], text: str, action: str) -> None:
    if spoil == "bridge":
        xen.host.remove_link("br0")
    elif spoil == "file":
        (xen.files / "0").unlink()
    elif spoil == "owner":
        os.chown(xen.files / "0", 4711, 0)
    elif spoil == "other":
        (xen.files / "0").write_text(BRIDGED.replace("aa:77:0a:4d:01:32", "aa:00:00:00:00:01"))
    elif spoil == "name":
        xen.xenstore.file("/local/domain/5/name").unlink()
    elif spoil == "instance":
        xen.xenstore.put("/local/domain/5/name", "../web1")
    elif spoil == "program":
        (xen.xenstore.programs / "xenstore-read").unlink()
    elif spoil == "slow":
        xen.xenstore.command("xenstore-read", "#!/bin/sh\nexec sleep 60\n")
        xen.settings("[hook]\nservice_timeout = 1\n")  # which the programs that write the failure have too
    elif spoil == "assignment":
        (xen.files / "0").write_text("rm -rf /\n")
    else:
        xen.settings("[hook]\ntimeout = 0\n")
    with pytest.raises(error) as raised:
        xen.call(action)
    assert text.replace("vif5.0 has", "vif5.0-emu has" if action == "add" else "vif5.0 has") in str(raised.value)
    assert xen.written == [f"{BACKEND}/0/hotplug-error {raised.value}", f"{BACKEND}/0/hotplug-status error"]
    assert xen.host.changes == []
    assert xen.store().all() == ([], [])


def test_connected_cannot_be_told(xen: Xen) -> None:
    """The guest could never connect: a failure, after which libxl takes the device back by an offline."""
    xen.xenstore.command("xenstore-write", f'#!/bin/sh\n[ "$2" != connected ] || exit 3\n{xenstore.WRITE}')
    with pytest.raises(HostRefused, match=f"xenstore-write {BACKEND}/0/hotplug-status ended with status 3"):
        xen.call("online")
    assert xen.xenstore.get(f"{BACKEND}/0/hotplug-status") == "error"
    xen.call("offline")
    assert xen.devices() == []


def test_xenstore_without_the_device(xen: Xen) -> None:
    """It has been removed meanwhile: nothing is set up, and no piece of it is written anew."""
    xen.xenstore.file(f"{BACKEND}/0/mac").unlink()
    with pytest.raises(HostRefused, match=f"xenstore has no device at {BACKEND}/0"):
        xen.call("online")
    assert (xen.written, xen.host.changes, xen.devices()) == ([], [], [])
    assert "xenstore was not told" in xen.door.lines.lines[-1]


def test_a_long_failure_fits_into_one_message(xen: Xen) -> None:
    (xen.files / "0").write_text("x" * 9000 + "\n")
    with pytest.raises(NicInvalid):
        xen.call("online")
    assert 0 < len(xen.xenstore.get(f"{BACKEND}/0/hotplug-error")) <= 1000


def test_offline_works_with_broken_settings(xen: Xen) -> None:
    xen.call("online")
    xen.settings("[hook]\ntimeout = 0\n")
    xen.call("offline")
    assert xen.store().all() == ([], [])


def test_what_offline_cannot_undo_is_left_for_gc(xen: Xen) -> None:
    """libxl would leave a detached device in xenstore if the script failed."""
    xen.call("online")
    xen.host.fail = lambda request: Answer(errno.EBUSY) if isinstance(request, SetLink) else None
    assert xen.call("offline") == []
    assert xen.devices() == ["vif5.0"]
    assert "on record, for gc" in xen.door.lines.lines[-1]


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
    assert xen.xenstore.calls() == []
    assert raised.value.variable == variable
    assert xen.host.changes == []


def test_a_migration_to_the_same_node(xen: Xen) -> None:
    """The new domain's devices come before the old one's go; the late offline is about the old one alone."""
    xen.call("online")
    xen.call("add")
    xen.xenstore.domain(7, "web1--incoming", *MACS)
    for name in ("vif7.0", "vif7.0-emu"):
        xen.host.add_tap(name)
    xen.call("online", domain=7)
    xen.call("add", domain=7)
    assert xen.devices() == ["vif5.0", "vif5.0-emu", "vif7.0", "vif7.0-emu"]
    xen.xenstore.domain(5, "web1--migratedaway", *MACS)
    xen.call("offline")
    xen.host.remove_link("vif5.0-emu")
    xen.call("remove")
    assert xen.devices() == ["vif7.0", "vif7.0-emu"]
    assert (xen.master("vif5.0"), xen.master("vif7.0"), xen.master("vif7.0-emu")) == ("", "br0", "br0")
    record = xen.store().by_instance("web1", 0)
    assert record and (record.device, record.uuid) == ("vif7.0", UUID)
