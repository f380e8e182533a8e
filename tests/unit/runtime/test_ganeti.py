"""Ganeti's KVM runtime and nic/ files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from runtime import ganeti
from runtime.environment import environment_of, nic_from_environment
from runtime.paths import Paths
from tests.support.nics import FIXTURES, U1, U2, calls, nic

INSTANCE = "web1.example"


@pytest.fixture
def folder(paths: Paths) -> Path:
    """nic/<instance>, made as Ganeti makes it."""
    made = Path(paths.kvm_run, "nic", INSTANCE)
    made.mkdir(parents=True)
    made.chmod(0o775)
    return made


def test_every_runtime_fixture_gives_the_nics_of_its_calls() -> None:
    environments = [variables for _, variables, _ in calls()]
    compared = 0
    files = sorted(FIXTURES.glob("**/*.runtime"))
    for file in files:
        runtime = ganeti.parse_runtime(file.read_bytes(), file.stem)
        assert not runtime.problems
        assert runtime.command[0] == "/usr/bin/qemu-system-x86_64"
        assert any(isinstance(part, int) for part in runtime.command)
        for found in runtime.nics:
            assert found.device_id
            called = [one for one in environments if one["INTERFACE_UUID"] == found.uuid and one["MAC"] == found.mac]
            for variables in called:
                ours = nic_from_environment(found.environment(file.stem, variables["INTERFACE"]))
                theirs = nic_from_environment(variables)
                # the file does not hold the instance's tags; indices shift; Ganeti keeps tags in no order
                assert sorted(ours.network.tags) == sorted(theirs.network.tags)
                network = theirs.network._replace(tags=ours.network.tags)
                assert ours == theirs._replace(tags=(), index=ours.index, network=network, environment=ours.environment)
                compared += 1
    assert len(files) >= 10
    assert compared > 50


def test_old_files() -> None:
    old = {"mac": "aa:00:00:00:00:01", "nicparams": {"mode": "bridged", "link": "br0"}, "pci": 5}
    runtime = ganeti.parse_runtime(json.dumps([["kvm", "-m", 128], [old], {}]).encode(), INSTANCE)
    (found,) = runtime.nics
    assert (found.uuid, found.device_id, found.vlan) == ("", "", "")
    made = nic_from_environment(found.environment(INSTANCE, "tap0"))
    assert found.identity(INSTANCE) == made.uuid == runtime.uuid_at(0)
    assert runtime.by_uuid(made.uuid) == found
    assert (runtime.uuid_at(1), runtime.uuid_at(-1), runtime.by_uuid(U1)) == ("", "", None)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"[[],{}]", b"[" * 100000, b"\xff", b'"x"', b"[1]"])
def test_what_is_no_runtime_is_named(data: bytes) -> None:
    runtime = ganeti.parse_runtime(data, "a\nb")
    assert runtime.nics == ()
    assert len(runtime.problems) == 1
    assert runtime.problems[0].isprintable()


def test_damaged_nics_keep_their_places() -> None:
    items = [7, {"uuid": U1, "mac": 3, "nicparams": [], "netinfo": {"tags": [1, "a"], "name": None}, "hvinfo": "x"}, {"uuid": "no\nuuid"}]
    runtime = ganeti.parse_runtime(json.dumps([{}, items]).encode(), INSTANCE)
    assert [runtime.uuid_at(index) for index in range(4)] == ["", U1, "", ""]
    assert len(runtime.problems) == 1
    assert dict(runtime.nics[1].network) == {"NETWORK_TAGS": "a"}


def test_read_runtime(paths: Paths) -> None:
    assert ganeti.read_runtime(paths, INSTANCE) is None
    assert ganeti.instances(paths) == []
    conf = Path(paths.kvm_run, "conf")
    conf.mkdir(parents=True)
    (conf / f"{INSTANCE}.runtime").write_bytes(json.dumps([[], [{"uuid": U1}]]).encode())
    (conf / "other.runtime").symlink_to("/etc/passwd")
    (conf / "-x.runtime").write_bytes(b"[]")
    runtime = ganeti.read_runtime(paths, INSTANCE)
    assert runtime is not None
    assert runtime.uuid_at(0) == U1
    refused = ganeti.read_runtime(paths, "other")
    assert refused is not None
    assert len(refused.problems) == 1
    assert ganeti.instances(paths) == ["other", INSTANCE]


def test_nic_files(paths: Paths, folder: Path, tmp_path: Path) -> None:
    assert ganeti.nic_files(paths, "absent") == {}
    (folder / "0").write_text("tap0")
    (folder / "1").symlink_to(U1)
    (folder / U1).write_text("tap1\n")
    (tmp_path / "2").write_text("tap2")
    (folder / "2").symlink_to(tmp_path / "2")  # out of the folder
    (folder / "3").symlink_to("4")
    (folder / "4").symlink_to("3")
    (folder / "5").write_text("../../x")
    (folder / "6").write_text("x" * 100)
    (folder / "7").write_bytes(b"\xff")
    (folder / "8").mkdir()
    (folder / "note").write_text("tap9")
    assert ganeti.nic_files(paths, INSTANCE) == {"0": "tap0", "1": "tap1", U1: "tap1"}
    assert ganeti.instances_with_tap(paths, "tap1") == [INSTANCE]
    assert ganeti.instances_with_tap(paths, "tap2") == []


def test_nic_file_as_design_ifdown_has_it(paths: Paths, folder: Path) -> None:
    (folder / "0").write_text("tap7")  # of a NIC that has this index no more, written by Ganeti
    assert ganeti.write_nic_file(paths, nic())
    assert (folder / U1).read_bytes() == b"tap0"
    assert stat.S_IMODE((folder / U1).stat().st_mode) == 0o600
    assert os.readlink(folder / "0") == U1
    assert ganeti.nic_files(paths, INSTANCE) == {"0": "tap0", U1: "tap0"}
    assert ganeti.write_nic_file(paths, nic(INTERFACE_UUID=U2, INTERFACE="tap1"))
    assert ganeti.nic_files(paths, INSTANCE) == {"0": "tap1", U1: "tap0", U2: "tap1"}
    assert ganeti.remove_nic_file(paths, nic())
    assert not ganeti.remove_nic_file(paths, nic())
    assert ganeti.nic_files(paths, INSTANCE) == {"0": "tap1", U2: "tap1"}
    assert not ganeti.remove_nic_file(paths, nic(INTERFACE_UUID=U2, INTERFACE="tap5"))  # it is on another tap by now
    assert ganeti.remove_nic_file(paths, nic(INTERFACE_UUID=U2, INTERFACE="tap1"))
    assert not folder.exists()


def test_a_former_index_leads_to_the_nic_no_more(paths: Paths, folder: Path) -> None:
    """A file that Ganeti has written in its place stays, and what leads to another NIC."""
    assert ganeti.write_nic_file(paths, nic())
    assert ganeti.write_nic_file(paths, nic(INTERFACE_UUID=U2, INTERFACE="tap1", INTERFACE_INDEX="3"))
    (folder / "1").write_text("tap0")
    assert ganeti.write_nic_file(paths, nic(INTERFACE_INDEX="2"))
    assert sorted(os.listdir(folder)) == sorted([U1, U2, "1", "2", "3"])
    assert (os.readlink(folder / "2"), os.readlink(folder / "3"), (folder / "1").read_text()) == (U1, U2, "tap0")


def test_ganetis_own_index_file_stays(paths: Paths, folder: Path) -> None:
    ganeti.write_nic_file(paths, nic())
    (folder / "0").unlink()
    (folder / "0").write_text("tap0")
    assert ganeti.remove_nic_file(paths, nic())
    assert sorted(os.listdir(folder)) == ["0"]


def test_no_nic_file_without_ganeti_or_instance(paths: Paths, tmp_path: Path) -> None:
    assert not ganeti.write_nic_file(paths, nic())
    assert not ganeti.remove_nic_file(paths, nic())
    assert list(tmp_path.iterdir()) == []
    Path(paths.kvm_run, "nic").mkdir(parents=True)
    assert not ganeti.write_nic_file(paths, nic(INSTANCE=""))
    assert ganeti.write_nic_file(paths, nic(INTERFACE_INDEX=""))
    assert ganeti.nic_files(paths, INSTANCE) == {U1: "tap0"}


@pytest.mark.parametrize(("text", "pid"), [("4711\n", 4711), ("1", 0), ("-5", 0), ("", 0), ("x", 0), ("9" * 40, 0), ("٣٣", 0)])
def test_instance_pid(paths: Paths, text: str, pid: int) -> None:
    assert ganeti.instance_pid(paths, INSTANCE) == 0
    file = Path(paths.kvm_run, "pid", INSTANCE)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert ganeti.instance_pid(paths, INSTANCE) == pid
    assert ganeti.instance_pid(paths, "../pid/" + INSTANCE) == 0


def test_environment_matches_ours() -> None:
    made = nic(MODE="routed", LINK="", BRIDGE="", IP="10.0.0.5")
    found = ganeti.RuntimeNic(0, made.uuid, made.mac, made.ip, "", "routed", "", "").environment(INSTANCE, "tap0")
    assert found == environment_of(made)
