"""Tell a restored registry what was taken away since its copy was made, and how networks were; and see what nobody has told it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mockcloud import own_nics, sysinfo
from mockcloud.cloud import MockCloud
from mockcloud.invariants import fitting
from mockcloud.networks import own_uuid
from mockcloud.scenarios.faults import Faults
from mockcloud.scenarios.file import Step
from mockcloud.scenarios.running import strike
from mockcloud.sysinfo import node_uuid
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
GATEWAY = {"subnet": "198.18.0.0/24", "gateway": "198.18.0.254", "subnet6": "2001:db8::/64"}


def test_what_was_taken_away_since_the_copy_goes_again(tmp_path: Path) -> None:
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(3)
        own_nics.attach(cloud, "ext", "198.18.0.0/24")
        Faults(cloud, lambda _text: None).strike("backup", [], {}, 0.0)
        own_nics.detach(cloud, "ext")
        cloud.delete([SECOND])
    with opened(tmp_path / "cloud") as cloud:
        found = strike(cloud, [Step("restore")], 1, 60.0)
        assert found.violations == () and not [each.text for each in found.outcomes if "not done" in each.text]
        client = cloud.registry.client()
        nics = sorted((each["nic"]["instance"], each["nic"]["name"]) for each in client.all("nics"))
        assert nics == [("mock1", "admin"), ("mock3", "admin")]
        assert sorted(each["node"]["name"] for each in client.all("nodes")) == ["mock1", "mock3"]


def test_a_network_is_made_anew_with_all_that_it_had(tmp_path: Path) -> None:
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(2)
        Faults(cloud, lambda _text: None).strike("backup", [], {}, 0.0)
        cloud.network("ext", GATEWAY)
        cloud.network("unused", {"subnet": "203.0.113.0/24"})
        own_nics.attach(cloud, "ext")
        before = {each["network"]["name"]: each["network"] for each in cloud.registry.client().all("networks")}
    with opened(tmp_path / "cloud") as cloud:
        assert strike(cloud, [Step("restore")], 1, 60.0).violations == ()
        assert {each["network"]["name"]: each["network"] for each in cloud.registry.client().all("networks")} == before


def _other_address(cloud: MockCloud) -> None:
    one = sysinfo.read(cloud.root, FIRST)
    assert one is not None
    sysinfo.write(cloud.root, one._replace(admin=one.admin._replace(address="100.64.9.9")))


def _no_nic(cloud: MockCloud) -> None:
    cloud.gone(f"nics/{own_uuid(FIRST, 'ext')}")


def _no_node(cloud: MockCloud) -> None:
    cloud.stop([SECOND])
    (Path(cloud.root) / "servers" / SECOND / "sysinfo.json").rename(Path(cloud.root) / "away.json")
    (Path(cloud.root) / "servers" / SECOND).rename(Path(cloud.root) / "away")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_other_address, {"NIC admin of mock1 has 02:4d:43"}),
        (_no_nic, {"NIC ext of mock1 has 02:4d:43"}),
        (_no_node, {"NIC admin of mock2 is in the registry, and no node's", "node mock2 is in the registry, and no node's"}),
    ],
)
def test_what_a_node_and_the_registry_have_otherwise_is_seen(tmp_path: Path, harm: Callable[[MockCloud], None], says: set[str]) -> None:
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(2)
        own_nics.attach(cloud, "ext", "198.18.0.0/24")
        cloud.ready([FIRST, SECOND], 20.0)
        assert fitting(cloud) == []
        harm(cloud)
        found = fitting(cloud)
        assert all(any(text.startswith(each) for text in found) for each in says), found


def test_of_nodes_that_are_refused_or_deleted_nothing_is_said(tmp_path: Path) -> None:
    with opened(tmp_path / "cloud") as cloud:
        cloud.create(3)
        cloud.ready([FIRST], 20.0)
        cloud.delete([node_uuid(3)])
        (Path(cloud.root) / "servers" / SECOND / "sysinfo.json").write_text("{")
        assert fitting(cloud) == []
