"""The doors with bad input, as processes in a namespace: 64 and one line that says what is wrong; host and records untouched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support import warm
from tests.support.netns import run
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(3)

ROOT = Path(__file__).parents[2]

GOOD = {
    "INTERFACE": "tap0",
    "MODE": "bridged",
    "LINK": "br0",
    "MAC": "aa:00:00:12:34:56",
    "VLAN": "",
    "INSTANCE": "web1.example",
    "INTERFACE_INDEX": "0",
    "INTERFACE_UUID": "13264fb6-0667-415f-9a43-786dc01cbf24",
    "TAGS": "",
}
ROUTED = {"MODE": "routed", "LINK": "100"}

#: Variable, value, what else the NIC says, what is expected of the variable, and how the value is shown if not as it is.
INVALID: list[tuple[str, str, dict[str, str], str]] = [
    *(
        ("INTERFACE", value, {}, "an interface name")
        for value in ("tap0/x", "a" * 16, "tap 0", "tap\n0", "..", "tap%d", "lo", "$(id)", "é" * 8)[:8]
    ),
    *(("MODE", value, {}, "one of bridged, routed") for value in ("bridge", "", "../routed", "BRIDGED", "routed\n")),
    *(("LINK", value, {}, "an interface name") for value in ("", "br0/x", "b" * 16, "br0;reboot", "..")[:3]),
    *(("LINK", value, ROUTED | {"IP": "10.0.0.5"}, "a routing table") for value in ("0", "255", "4294967296", "a b", "local")),
    *(("LINK", value, {"MODE": "openvswitch"}, "an interface name") for value in ("", "ovs 0", "o/s")),
    *(
        ("MAC", value, {}, "a unicast MAC")
        for value in ("aa:00:00:12:34", "01:00:00:12:34:56", "zz:00:00:12:34:56", "aa-00-00-12-34-56", "aa:00:00:12:34:56\n")
    ),
    *(
        ("IP", value, ROUTED, "address")
        for value in ("", "10.0.0", "10.0.0.5/33", "300.1.1.1", "::1", "ff02::1", "0.0.0.0", "10.0.0.5;id", "fe80::1%eth0")
    ),
    *(("VLAN", value, {}, "VID") for value in ("0", "4095", ".10:10", "10:20", ".", "x", ":10:", "1 2")),
    *(
        ("INTERFACE_UUID", value, {}, "a UUID")
        for value in ("x", "13264fb6-0667-415f-9a43-786dc01cbf2", "../../../../etc/passwd", "13264fb6 0667 415f 9a43 786dc01cbf24")
    ),
    *(("INTERFACE_INDEX", value, {}, "a number") for value in ("-1", "65536", "1a", "01", " 1")),
    *(("INSTANCE", value, {}, "an instance name") for value in ("../x", "a/b", "-x", "a\x07b", "x" * 256)),
    *(("INTERFACE_NAME", value, {}, "name") for value in ("a\nb", "x" * 256)),
    *(("TAGS", value, {}, "tags") for value in ("a;b", "x" * 129, "a\tb")),
    *(("NETWORK_SUBNET", value, {}, "network") for value in ("10.0.0.1/24", "10.0.0.0", "fd00::/64")),
    *(("NETWORK_SUBNET6", value, {}, "network") for value in ("fd00::1/64", "10.0.0.0/24")),
    *(("NETWORK_GATEWAY", value, {}, "address") for value in ("10.0.0.1/24", "x", "fd00::1")),
    *(("NETWORK_GATEWAY6", value, {}, "address") for value in ("10.0.0.1", "fd00::1/64")),
    *(("NETWORK_UUID", value, {}, "a UUID") for value in ("x",)),
    *(("NETWORK_MAC_PREFIX", value, {}, "three octets") for value in ("aa:00", "aa:00:00:00")),
]
IDS = [f"{variable}={value[:20]!r} {more.get('MODE', '')}" for variable, value, more, _expected in INVALID]


@pytest.fixture
def br0(node: Node) -> Node:
    node.bridge("br0")
    node.tap("tap0")
    return node


@pytest.mark.parametrize("door", ["kvm-ifup", "kvm-nic-setup"])
def test_every_invalid_value(br0: Node, door: str) -> None:
    """In one namespace: none of them changes a thing."""
    before = snapshot()
    for variable, value, more, expected in sorted(INVALID, key=lambda case: case[:2] == ("IP", "")):
        environment = {**GOOD, **more, variable: value}
        argument = "tap0" if variable == "INTERFACE" else "b'tap0'"
        done = rundoor(door, environment, *([argument] if variable != "INTERFACE" else []))
        shown = value.encode("unicode_escape").decode().replace("'", "\\'")
        context = (variable, value, done)
        assert done.status == 64, context
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        # what the planner refuses, after the description was read, bears the NIC's name; by then the state directory is there
        assert line.removeprefix("netcommon: error: ").removeprefix("web1.example/0: ").startswith(f"{variable}='{shown[:120]}"), context
        assert "expected" in line and expected in line, context
        assert line.isascii() and line.isprintable()
        if "web1.example/0: " not in line:
            assert diff(before, snapshot()) == []
            assert warm.there() == []
    after = snapshot()
    assert diff(before, {**after, "files": before["files"]}) == []
    assert not any("/nics/" in path or "/owners/" in path for path in after["files"])


def test_a_value_that_is_no_text(br0: Node) -> None:
    """Bytes that are no UTF-8 are shown escaped."""
    before = snapshot()
    for variable in ("INTERFACE_NAME", "INSTANCE", "LINK", "MODE", "TAGS"):
        done = rundoor("kvm-ifup", {**GOOD, variable: "a\udcff\udc80"})
        assert done.status == 64 and len(done.stderr.splitlines()) == 1, done
        assert f"{variable}='a\\udcff\\udc80'" in done.stderr
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize(
    ("door", "environment", "arguments", "line"),
    [
        ("kvm-ifup", {}, [""], "INTERFACE"),
        ("kvm-ifup", {}, ["b''"], "INTERFACE="),
        ("kvm-ifup", {}, ["tap0"], "INTERFACE='tap0': expected a NIC described in the environment, or defined beforehand"),
        ("kvm-ifup", GOOD, ["tap1"], "INTERFACE='tap0': expected the device of the first argument, 'tap1'"),
        ("kvm-ifup", {**GOOD, "BRIDGE": "br1"}, ["tap0"], "BRIDGE='br1': expected the same as LINK"),
        ("kvm-ifdown", {}, ["../x"], "INTERFACE='../x'"),
        ("kvm-ifdown", {}, ["tap0", "sideways"], "CONTEXT='sideways': expected one of"),
        ("kvm-nic-setup", {**GOOD, "ACTION": "left"}, ["tap0"], "ACTION='left': expected up or down"),
        ("kvm-nic-setup", {"ACTION": "down"}, [""], "INTERFACE"),
    ],
)
def test_a_call_that_makes_no_sense(br0: Node, door: str, environment: dict[str, str], arguments: list[str], line: str) -> None:
    before = snapshot()
    done = rundoor(door, environment, *arguments)
    assert done.status == 64, done
    assert len(done.stderr.splitlines()) == 1 and line in done.stderr
    assert diff(before, snapshot()) == [] and warm.there() == []


@pytest.fixture
def used(node: Node) -> Node:
    """A node on which NICs have come and gone."""
    node.bridge("br0")
    node.tap("tap0")
    assert rundoor("kvm-ifup", GOOD).status == rundoor("kvm-ifdown", GOOD, "tap0", "hot-remove").status == 0
    return node


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"LINK": "nosuch"}, "bridge nosuch does not exist"),
        ({"LINK": "tap0"}, "tap0 is no Linux bridge but tun"),
        ({"VLAN": ".10"}, "is not VLAN-aware"),
        ({**ROUTED, "LINK": "nosuch", "IP": "10.0.0.5"}, "routing table nosuch is unknown"),
        ({**ROUTED, "IP": "fd00::5"}, "net.ipv6.conf.all.forwarding=1"),
        ({"MODE": "openvswitch", "LINK": "ovs9"}, "Open vSwitch bridge ovs9 does not exist"),
        ({"INTERFACE": "tap9"}, "device tap9 does not exist"),
    ],
)
def test_what_is_missing(used: Node, changes: dict[str, str], why: str) -> None:
    """69, with the remedy; host and records as before."""
    before = snapshot()
    done = rundoor("kvm-ifup", {**GOOD, **changes})
    assert done.status == 69, done
    assert why in done.stderr and len(done.stderr.splitlines()) == 1
    assert diff(before, snapshot()) == []


def test_broken_settings(used: Node) -> None:
    """78 for up, with the line; down works on regardless, from the record."""
    before = snapshot()
    assert rundoor("kvm-ifup", GOOD).status == 0
    Path("/etc/netcommon/config.toml").write_text('[hook]\ntimeout = "long"\n[nosuch]\n')
    done = rundoor("kvm-ifup", GOOD)
    assert done.status == 78 and "config.toml:2" in done.stderr and len(done.stderr.splitlines()) == 1
    done = rundoor("kvm-ifdown", GOOD, "tap0", "hot-remove")
    assert done.status == 0 and "the settings are broken" in done.stderr
    os.unlink("/etc/netcommon/config.toml")
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        ("kvm-ifdown tap0", 75, "needs root; what is left is undone by gc"),
        ("kvm-ifup tap0", 69, "needs root: nothing was done"),
        ("kvm-nic-setup tap0", 69, "needs root: nothing was done"),
        ("vif-ganeti online type_if=vif", 69, "needs root: nothing was done"),
        ("vif-ganeti offline type_if=vif", 75, "what is left is undone by gc"),
    ],
)
def test_an_ordinary_user(used: Node, call: str, status: int, said: str) -> None:
    """QEMU with -runas calls its downscript so: what is left is gc's. An up does not come right by another try."""
    before = snapshot()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("hooks", "netcommon", "runtime"):  # the checkout may be root's alone
            shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        done = run("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", f"{folder}/hooks/{call}; echo status $?", check=False)
    assert f"status {status}" in done and said in done
    assert diff(before, snapshot()) == []
