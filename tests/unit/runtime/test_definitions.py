"""NICs defined by hand."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from runtime import definitions
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import HostRefused, NicInvalid
from runtime.paths import Paths
from tests.support.nics import U1, U2, U3, nic, valid_environments


def defined(**changes: str):  # type: ignore[no-untyped-def]
    made = nic(**changes)
    return made._replace(environment=environment_of(made))


@given(valid_environments())
def test_round_trip(variables: dict[str, str]) -> None:
    made = nic_from_environment(variables)
    made = made._replace(environment=environment_of(made))
    assert definitions.parse(definitions.render(made), made.uuid, "x.toml") == made
    with tempfile.TemporaryDirectory() as top:
        paths = Paths.under(top)
        definitions.write(paths, made)
        assert definitions.read(paths, made.uuid) == definitions.find(paths, made.interface) == made
        assert definitions.all_of(paths) == ([made], [])


def test_file_is_readable_and_survives(paths: Paths) -> None:
    path = Path(definitions.write(paths, defined(TAGS="a b", IP="10.0.0.5", NETWORK_SUBNET="10.0.0.0/24")))
    assert path == Path(paths.definitions, f"{U1}.toml")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    text = path.read_text()
    for line in ('device = "tap0"', "index = 0", 'tags = ["a", "b"]', "[network]", 'subnet = "10.0.0.0/24"'):
        assert line in text.splitlines()
    assert os.readlink(path.parent / "by-device/tap0") == f"../{U1}.toml"


def test_quotes_and_backslashes_survive() -> None:
    made = defined(INTERFACE_NAME='a\\b"c\\n', NETWORK_NAME="\\u0041'")
    assert definitions.parse(definitions.render(made), U1, "x") == made


def test_nothing_defined(paths: Paths, tmp_path: Path) -> None:
    assert definitions.read(paths, U1) is None
    assert definitions.find(paths, "tap0") is None
    assert definitions.all_of(paths) == ([], [])
    assert not definitions.remove(paths, U1)
    assert list(tmp_path.iterdir()) == []


def test_an_index_of_an_instance_has_one_definition(paths: Paths) -> None:
    """Whatever its device; without an index, or without an instance, there may be many."""
    second = {"INTERFACE_UUID": U2, "INTERFACE": "tap1"}
    for free in ({"INTERFACE_INDEX": ""}, {"INSTANCE": ""}):
        definitions.write(paths, defined(**free))
        definitions.write(paths, defined(**second, **free))
    definitions.write(paths, defined())
    with pytest.raises(NicInvalid, match=f"web1.example/0.*{U1} on tap0"):
        definitions.write(paths, defined(**second))
    definitions.write(paths, defined(INTERFACE="tap2"))
    definitions.write(paths, defined(**second, INTERFACE_INDEX="1"))
    assert definitions.all_of(paths)[1] == []


def test_a_device_has_one_definition(paths: Paths) -> None:
    definitions.write(paths, defined())
    with pytest.raises(NicInvalid, match=U1):
        definitions.write(paths, defined(INTERFACE_UUID=U2))
    definitions.write(paths, defined(INTERFACE="tap1"))
    assert os.listdir(Path(paths.definitions, "by-device")) == ["tap1"]
    assert definitions.find(paths, "tap0") is None
    definitions.write(paths, defined(INTERFACE_UUID=U2, INTERFACE_INDEX="1"))
    first, second = definitions.find(paths, "tap1"), definitions.find(paths, "tap0")
    assert first is not None
    assert second is not None
    assert (first.uuid, second.uuid) == (U1, U2)
    assert definitions.remove(paths, U1)
    assert not definitions.remove(paths, U1)
    assert definitions.find(paths, "tap1") is None
    assert sorted(os.listdir(Path(paths.definitions, "by-device"))) == ["tap0"]


def test_files_written_by_hand_are_found(paths: Paths) -> None:
    definitions.write(paths, defined())
    folder = Path(paths.definitions)
    (folder / f"{U2}.toml").write_text('device = "tap1"\nmode = "ext"\n')
    (folder / f"{U3}.toml").write_text("tap1 is what I want")
    (folder / "note.toml").write_text("x")
    (folder / "by-device/tap9").symlink_to(f"../{U1}.toml")
    found = definitions.find(paths, "tap1")
    assert found is not None
    assert (found.uuid, found.mode) == (U2, "ext")
    assert definitions.find(paths, "tap9") is None
    nics, problems = definitions.all_of(paths)
    assert [one.uuid for one in nics] == [U1, U2]
    assert len(problems) == 1
    assert U3 in problems[0]
    for device in ("../x", "", "a\udcffb"):
        with pytest.raises(NicInvalid):
            definitions.find(paths, device)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("mode = \n", "line 1"),
        ('mode = "ext"\nmode = "ext"\n', "line 2"),
        ('mode = "ext"\n# comment\n\ndevise = "tap0"', "line 4"),
        ('mode = "ext"\ndevice = 5', "line 2"),
        ('mode = "ext"\ndevice = "a b"', "line 2"),
        ('device = "tap0"\nmode = "ext"\nindex = "0"', "line 3"),
        ('device = "tap0"\nmode = "ext"\nindex = true', "line 3"),
        ('device = "tap0"\nmode = "ext"\nindex = -1', "line 3"),
        ('device = "tap0"\nmode = "ext"\ntags = "a"', "line 3"),
        ('device = "tap0"\nmode = "ext"\ntags = ["a b"]', "line 3"),
        ('device = "tap0"\nmode = "ext"\nnetwork = 1', "line 3"),
        ('device = "tap0"\nmode = "ext"\n[network]\nname = "x"\nsubnet = "10.0.0.1/24"', "line 5"),
        ('device = "tap0"\nmode = "ext"\n[network]\nlink = "x"', "line 4"),
        ('device = "tap0"\nmode = "ext"\n[other]\nlink = "x"', "line 3"),
        ('device = "tap0"', "MODE"),
        ("\0", "line 1"),
        ("a = " + "[" * 20000, "no TOML"),
    ],
)
def test_errors_say_where(text: str, where: str) -> None:
    with pytest.raises(NicInvalid) as caught:
        definitions.parse(text.encode(), U1, "/etc/x.toml")
    assert str(caught.value).startswith("/etc/x.toml")
    assert where in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.status == 64


def test_bytes_that_are_no_utf8() -> None:
    with pytest.raises(NicInvalid):
        definitions.parse(b"\xff", U1, "x")


def test_a_folder_that_others_can_write_to_is_refused(paths: Paths) -> None:
    definitions.write(paths, defined())
    file = Path(paths.definitions, f"{U1}.toml")
    file.chmod(0o666)
    with pytest.raises(NicInvalid, match="others"):
        definitions.find(paths, "tap0")
    file.chmod(0o644)
    Path(paths.definitions).chmod(0o777)
    with pytest.raises(HostRefused):
        definitions.find(paths, "tap0")


def test_as_mapping() -> None:
    assert definitions.as_mapping(defined(TAGS="a"))["tags"] == ["a"]
