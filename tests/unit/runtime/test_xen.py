"""NIC files of Ganeti's Xen driver: parsed, never run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import xen
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NicInvalid
from runtime.paths import Paths
from tests.support.nics import FIXTURES, calls

FILES = sorted((FIXTURES / "xen-nic-files").glob("*/*"))


def test_fixtures_are_the_nics_that_kvm_was_given() -> None:
    environments: dict[str, dict[str, str]] = {}
    for where, variables, _ in calls():
        if where.startswith("3.0.2/"):
            environments.setdefault(variables["INTERFACE_UUID"], variables)  # a later call may have another MAC
    assert len(FILES) == 8
    for file in FILES:
        found = nic_from_environment(xen.parse(file.read_bytes()) | {"INTERFACE": "vif1.0", "INSTANCE": file.parent.name})
        other = nic_from_environment(environments[found.uuid])
        assert sorted(found.tags) == sorted(other.tags) == ["role:web", "tenant:alpha"]
        assert sorted(found.network.tags) == sorted(other.network.tags)
        ours, theirs = (
            one._replace(interface="", tags=(), environment={}, network=one.network._replace(tags=())) for one in (found, other)
        )
        assert ours == theirs


def test_quotes() -> None:
    parsed = xen.parse(b'TAGS="a\\ b"\nNETWORK_NAME="n\\"x"\nMAC=aa\nINTERFACE_NAME="as it is" $(reboot)\nVLAN=\n')
    assert parsed == {"TAGS": "a b", "NETWORK_NAME": 'n"x', "MAC": "aa", "INTERFACE_NAME": '"as it is" $(reboot)', "VLAN": ""}


@pytest.mark.parametrize(
    "data",
    [
        b"reboot\n",
        b"=x\n",
        b"A B=x\n",
        b"export A=1\n",
        b"a=1\n",
        b"1A=1\n",
        b'A="x\n',
        b'A="x"; reboot\n',
        b'A="x\\"\n',
        b"MAC=1\nMAC=2\n",
        b"INTERFACE_NAME=x\nINSTANCE=other\nMODE=ext\n",  # a line break in the name
        b"INTERFACE_NAME=x\nMODE=routed\nINTERFACE_UUID=u\nMODE=bridged\n",
        b"INTERFACE_NAME=x\nIP=10.0.0.1\n",
        b"\xff=\xff\n",
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(NicInvalid) as caught:
        xen.parse(data)
    assert str(caught.value).isprintable()


@given(st.one_of(st.binary(max_size=80), st.text("ABC_=\"\\ \n$`;'é", max_size=60).map(str.encode)))
def test_random_files_are_refused_or_parsed(data: bytes) -> None:
    try:
        assert all(value.count("\n") == 0 for value in xen.parse(data).values())
    except NicInvalid as error:
        assert str(error).isprintable()


def test_older_files_and_all_of_a_network() -> None:
    """Ganeti before 2.12 gave a network's values no quotes and wrote no tags; the last line may lack its end."""
    parsed = xen.parse(b"NETWORK_NAME=net1\nNETWORK_SUBNET=10.0.0.0/24\nMAC=aa:00:00:00:00:01\nMODE=bridged\nLINK=br0")
    assert parsed == {
        "NETWORK_NAME": "net1",
        "NETWORK_SUBNET": "10.0.0.0/24",
        "MAC": "aa:00:00:00:00:01",
        "MODE": "bridged",
        "LINK": "br0",
    }
    assert xen.parse(b'TAGS=""\nNETWORK_TAGS="a:b c:d"\n') == {"TAGS": "", "NETWORK_TAGS": "a:b c:d"}


def test_a_file_that_others_could_have_written(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    file = Path(paths.xen_run, "nic", "inst1", "0")
    file.parent.mkdir(parents=True)
    for owner, mode in ((4711, 0o600), (0, 0o620), (0, 0o602)):
        file.write_bytes(FILES[0].read_bytes())
        os.chown(file, owner, 0)
        file.chmod(mode)
        with pytest.raises(HostRefused, match="could be written by others than root"):
            xen.read(paths, "inst1", 0)
        file.unlink()
    file.mkdir()
    with pytest.raises(HostRefused, match="is not a plain file"):
        xen.read(paths, "inst1", 0)


def test_read(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    assert xen.read(paths, "inst1", 0) is None
    folder = Path(paths.xen_run, "nic", "inst1")
    folder.mkdir(parents=True)
    (folder / "0").write_bytes(FILES[0].read_bytes())
    found = xen.read(paths, "inst1", 0)
    assert found is not None
    assert found["INSTANCE"] == "inst1"
    assert xen.read(paths, "inst1", 1) is None
    (folder / "2").symlink_to("0")
    with pytest.raises(HostRefused):
        xen.read(paths, "inst1", 2)
    with pytest.raises(NicInvalid):
        xen.read(paths, "../nic/inst1", 0)
    with pytest.raises(NicInvalid):
        xen.read(paths, "inst1", -1)
