"""The doors of KVM: which NIC a call means whatever else is in the environment, and what a door does about its surroundings."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from netcommon.doors.call import Door
from netcommon.doors.kvm import called_for, described, ifdown
from netcommon.lifecycle.context import Node
from netcommon.log import Log, Recorder
from runtime import definitions
from runtime.environment import nic_from_environment
from runtime.errors import NicInvalid
from runtime.paths import Paths
from tests.support.bootstrap import ROOT

U1 = "13264fb6-0667-415f-9a43-786dc01cbf24"
U2 = "23264fb6-0667-415f-9a43-786dc01cbf24"
LEAST = {"INTERFACE": "tap0", "MODE": "bridged", "LINK": "br0", "INTERFACE_UUID": U1}
GANETI = {**LEAST, "INTERFACE_UUID": U2, "MAC": "aa:00:00:12:34:56", "INSTANCE": "web1", "INTERFACE_INDEX": "0", "VLAN": ""}
STRAY = {
    "IP": "10.0.0.9",
    "TAGS": "stray",
    "VLAN": "7",
    "BRIDGE": "br9",
    "INTERFACE_NAME": "stray",
    "INTERFACE_INDEX": "3",
    "NETWORK_NAME": "stray",
    "NETWORK_SUBNET": "10.0.0.0/24",
}


class KvmDoor(Door):
    """A door that must not get as far as the node."""

    def __init__(self, root: Path) -> None:
        super().__init__("kvm-ifup", Paths.under(str(root)))
        self.lines = Recorder()
        self.log = Log(self.lines)

    def node(self, strict: bool) -> Node:
        raise AssertionError("the host was looked at")


@pytest.fixture
def door(tmp_path: Path) -> KvmDoor:
    """tap0 is defined as U1, with no more than it needs."""
    made = KvmDoor(tmp_path)
    definitions.write(made.paths, nic_from_environment(LEAST))
    return made


@pytest.mark.parametrize(
    "stray",
    [
        {},
        {"MODE": "release"},
        {"INTERFACE": "tap1"},
        {"INTERFACE": "eth0", "MODE": "bridged"},
        {"INTERFACE": "tap0"},
        STRAY,
        {**STRAY, "MODE": "routed", "MAC": "aa:00:00:00:00:09", "INSTANCE": "stray", "INTERFACE_UUID": U2},
    ],
)
def test_stray_variables_are_no_part_of_a_defined_nic(door: KvmDoor, stray: dict[str, str]) -> None:
    nic = described(door, {**stray, "HOME": "/root", "PATH": "/bin"}, ["tap0"])
    assert nic._replace(environment={}) == nic_from_environment(LEAST)._replace(environment={})
    assert nic.environment == {**LEAST, "BRIDGE": "br0", "VLAN": "", "HOME": "/root", "PATH": "/bin"}


@pytest.mark.parametrize("argv", [[], ["b'tap0'"], ["tap0"]])
def test_a_hypervisors_description_counts(door: KvmDoor, argv: list[str]) -> None:
    assert described(door, GANETI, argv) == nic_from_environment(GANETI)
    assert described(door, {**LEAST, "INTERFACE_UUID": "", "MAC": GANETI["MAC"]}, argv).mac == GANETI["MAC"]


def test_a_description_may_leave_the_device_to_the_argument(door: KvmDoor) -> None:
    nic = described(door, {**GANETI, "INTERFACE": ""}, ["b'tap7'"])
    assert nic._replace(environment={}) == nic_from_environment({**GANETI, "INTERFACE": "tap7"})._replace(environment={})


@pytest.mark.parametrize("mark", ["INSTANCE", "INTERFACE_UUID", "MAC"])
def test_a_hypervisor_that_contradicts_itself(door: KvmDoor, mark: str) -> None:
    call = {"INTERFACE": "tap1", "MODE": "bridged", "LINK": "br0", mark: GANETI[mark]}
    with pytest.raises(NicInvalid, match=r"^INTERFACE='tap1': expected the device of the first argument"):
        described(door, call, ["tap0"])
    with pytest.raises(NicInvalid, match=r"^MODE=''"):
        described(door, {**call, "MODE": ""}, ["tap0"])


@pytest.mark.parametrize(
    ("environ", "argv", "variable"),
    [
        ({}, [], "INTERFACE"),
        ({"LINK": "br0"}, [""], "INTERFACE"),
        ({"INTERFACE": "tap0"}, [], "MODE"),
        ({"INTERFACE": "tap0", "MODE": "bridged", "LINK": "br0"}, ["tap0"], "INTERFACE_UUID"),
        ({"MODE": "bridged", "LINK": "br0"}, ["tap5"], "INTERFACE"),
        ({"MODE": "bridged"}, ["a/b"], "INTERFACE"),
    ],
)
def test_what_is_missing_is_named(door: KvmDoor, environ: dict[str, str], argv: list[str], variable: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        described(door, environ, argv)
    assert caught.value.variable == variable


def test_a_down_never_acts_on_a_guess(door: KvmDoor) -> None:
    """Two devices and no UUID: said on stderr, 0, and not even the host is looked at."""
    environ = {**GANETI, "INTERFACE_UUID": "", "INTERFACE": "tap1"}
    assert ifdown(door, environ, ["tap0", "false"]) == 0
    assert "the argument 'tap0' is not INTERFACE='tap1'" in door.log.summary() and "nothing was done" in door.log.summary()


def test_what_a_call_is_for() -> None:
    assert [called_for(argv) for argv in ([], [""], ["b'tap0'"], ["tap0", "false"], ["a/b"])] == ["", "", "tap0", "tap0", ""]


def test_the_chosen_facility_is_used(tmp_path: Path) -> None:
    """daemon is 3, local1 17, error 3: RFC 3164, 4.1.1. From the first line on."""
    paths = Paths.under(str(tmp_path))
    for path in (paths.log, paths.config):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as server:
        server.bind(paths.log)
        for text, first in (("", b"<27"), ('[log]\nfacility = "local1"\n', b"<139")):
            Path(paths.config).write_text(text)
            door = Door("kvm-ifup", paths)
            door.load()
            door.log.error("no")
            door.log.close()
            assert server.recv(9000).partition(b">")[0] == first


def test_broken_settings_are_said_when_they_are_needed(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    os.makedirs(os.path.dirname(paths.config))
    Path(paths.config).write_text("[nosuch]\n")
    door = Door("kvm-ifup", paths)
    door.load()
    assert door.log.summary() == "" and door.settings.syslog_facility == "daemon"


@pytest.mark.parametrize("closed", [(), (2,), (0,), (0, 1, 2), (1,)])
def test_closed_descriptors(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """No file that a door opens gets the number of an output, and with stderr closed nothing is written to it."""
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.doors.call import _say, open_standard\n"
        "open_standard()\n"
        "first = os.open(sys.argv[2], os.O_CREAT | os.O_RDWR)\n"
        "os.write(first, str(first).encode())\n"
        "_say('said')\n"
        "kept = [os.get_inheritable(number) for number in (0, 1, 2)]\n"
        "os.write(first, b' ' + str(all(kept)).encode())\n"
    )
    closing = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    command = ["/bin/sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "file").read_text() == "3 True"
    assert done.stderr == ("" if 2 in closed else "said")


def test_nothing_is_said_to_what_has_taken_the_number_of_stderr(tmp_path: Path) -> None:
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from netcommon.doors.call import _say\n"
        "assert os.open(sys.argv[2], os.O_CREAT | os.O_RDWR) == 2\n"
        "_say('said')\n"
    )
    command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-IS", "-c", program, str(ROOT), str(tmp_path / "file")]
    subprocess.run(command, check=True)
    assert (tmp_path / "file").read_text() == ""
