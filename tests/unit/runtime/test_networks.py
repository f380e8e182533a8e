"""Read what a registry says of networks: its JSON, the files, and whatever lies there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runtime import networks
from runtime.errors import HostRefused, NicInvalid, RecordTooNew, RecordUnreadable
from runtime.kept import LONGEST_NETWORK
from runtime.networks import from_json, network_of, to_json
from runtime.nic import NetworkWanted
from runtime.paths import Paths
from tests.support.nics import U1

SAID: dict[str, Any] = {
    "uuid": U1,
    "name": "blue",
    "master": "registry",
    "gateway": "10.0.0.1",
    "gateway6": "2001:DB8::1",
    "resolvers": ["10.0.0.53", "2001:db8::53"],
    "search": ["example.com"],
    "routes": [{"prefix": "10.1.0.0/16", "via": "10.0.0.254"}],
    "mtu": 1400,
    "vlan": 7,
    "a field of tomorrow": {"x": [1]},
}
BLUE = NetworkWanted(
    U1,
    "e:7",
    "blue",
    "10.0.0.1",
    "2001:db8::1",
    ("10.0.0.53", "2001:db8::53"),
    ("example.com",),
    (("10.1.0.0/16", "10.0.0.254"),),
    1400,
)


def test_what_a_registry_says() -> None:
    assert network_of(U1, "e:7", SAID) == BLUE
    assert network_of(U1, "e:7", {}) == NetworkWanted(U1, "e:7")
    assert from_json(to_json(BLUE), U1) == BLUE


WRONG: list[dict[str, Any]] = [
    {"gateway": "10.0.0.1/24"},
    {"gateway": "2001:db8::1"},
    {"gateway": 7},
    {"gateway": "10.0.0.1\n"},
    {"gateway6": "10.0.0.1"},
    {"resolvers": "10.0.0.53"},
    {"resolvers": ["10.0.0.53", "10.0.0.53"]},
    {"resolvers": ["here"]},
    {"resolvers": [f"10.0.0.{number}" for number in range(17)]},
    {"search": ["a,b"]},
    {"search": ["example..com"]},
    {"search": ["-a.com"]},
    {"search": ["a" * 64]},
    {"search": [f"{'a' * 60}{number}.com" for number in range(10)]},
    {"routes": {"10.1.0.0/16": "10.0.0.254"}},
    {"routes": [{"prefix": "10.1.0.1/16", "via": "10.0.0.254"}]},
    {"routes": [{"prefix": "10.1.0.0/16"}]},
    {"routes": [{"prefix": "10.1.0.0/16", "via": "10.0.0.254"}, {"prefix": "10.1.0.0/16", "via": "10.0.0.253"}]},
    {"mtu": 67},
    {"mtu": 65536},
    {"mtu": True},
    {"mtu": "1400"},
    {"name": "a\nb"},
    {"name": None},
    {"tags": ["a b"]},
    {"tags": "a"},
    {"tags": [None]},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_no_network_can_say(wrong: dict[str, Any]) -> None:
    with pytest.raises(NicInvalid) as caught:
        network_of(U1, "e:7", {**SAID, "master": "ganeti:c1", **wrong})
    assert str(caught.value).isprintable()
    stored = {**json.loads(to_json(BLUE)), **wrong}
    with pytest.raises(RecordUnreadable) as unreadable:
        from_json(json.dumps(stored).encode(), U1)
    assert str(unreadable.value).isprintable()


@pytest.mark.parametrize("revision", ["", "7", "e:x"])
def test_a_revision_that_is_none(revision: str) -> None:
    with pytest.raises(NicInvalid):
        network_of(U1, revision, SAID)


def test_files_come_and_go(tmp_path: Path) -> None:
    paths, problems = Paths.under(str(tmp_path)), list[str]()
    assert networks.read(paths, U1, problems) is None and networks.uuids(paths) == [] and not networks.remove(paths, U1)
    assert networks.write(paths, BLUE) and not networks.write(paths, BLUE)
    assert networks.read(paths, U1, problems) == BLUE and networks.uuids(paths) == [U1]
    assert networks.write(paths, BLUE._replace(mtu=1300))
    assert networks.remove(paths, U1) and networks.read(paths, U1, problems) is None and problems == []
    assert networks.read(paths, "../../etc/passwd", problems) is None


@pytest.mark.parametrize("damage", ["cut", "huge", "link", "folder", "another", "written by others", "newer"])
def test_whatever_lies_there(tmp_path: Path, damage: str) -> None:
    """Nothing counts, it is said, and its bytes stay somewhere. It is replaced by the next word, but for a newer version's."""
    paths, problems = Paths.under(str(tmp_path)), list[str]()
    networks.write(paths, BLUE)
    path = Path(paths.wanted, "networks", f"{U1}.json")
    good = path.read_bytes()
    if damage == "cut":
        path.write_bytes(good[:-20])
    elif damage == "huge":
        path.write_bytes(good + b" " * LONGEST_NETWORK)
    elif damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "another":
        path.write_bytes(good.replace(U1.encode(), U1[::-1].encode()))
    elif damage == "written by others":
        path.chmod(0o666)
    else:
        path.write_bytes(good.replace(b'"schema":1', b'"schema":2'))
    assert networks.read(paths, U1, problems, readonly=True) is None and len(problems) == 1 and os.path.lexists(path)
    assert networks.read(paths, U1, problems) is None and len(problems) == 2
    if damage == "newer":
        assert b'"schema":2' in path.read_bytes()
        with pytest.raises(RecordTooNew):
            networks.write(paths, BLUE)
        return
    assert not os.path.lexists(path) and os.path.lexists(f"{paths.wanted}/networks/quarantine/{U1}.json-0")
    assert networks.write(paths, BLUE) and networks.read(paths, U1, []) == BLUE


def test_who_else_can_write_there_is_refused(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    networks.write(paths, BLUE)
    os.chmod(f"{paths.wanted}/networks", 0o777)
    with pytest.raises(HostRefused, match="mode 0777"):
        networks.read(paths, U1, [])
