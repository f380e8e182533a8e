"""Versions of Ganeti and hardware profiles: hooks are called as real Ganeti was seen to call them, and all ends alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from mockcloud.node import MockNode
from mockcloud.sysinfo import NEW, OLD, VERSIONS, node_uuid
from runtime.errors import HostRefused
from tests.support import mock_nodes
from tests.support.instance_history import COVERING, PAIR, drawn, prepare
from tests.support.killing_steps import opened
from tests.support.mockcloud import Mockcloud

FIRST, SECOND = node_uuid(1), node_uuid(2)
Call = tuple[str, str, str, str, str]  #: node, name, first argument, ACTION and MIGRATION_PHASE


def cloud_of(folder: Path, version: str, profile: str = "plain", hooked: bool = False, nodes: int = 2) -> MockCloud:
    made = MockCloud(str(folder / "cloud"), profile=profile, ganeti=version, hooked=hooked)
    prepare(made, nodes)
    return made


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Give the calls of hooks, which are done."""
    found: list[Call] = []
    hook = MockNode.hook

    def hears(self: MockNode, name: str, parent: int, argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
        found.append((self.name, name, argv[0], environ.get("ACTION", ""), environ.get("MIGRATION_PHASE", "")))
        return hook(self, name, parent, argv, environ)

    monkeypatch.setattr(MockNode, "hook", hears)
    return found


UP0, UP1 = ("kvm-nic-setup", "b'tap0'", "up", ""), ("kvm-nic-setup", "b'tap1'", "up", "")
DOWN0, DOWN1 = ("kvm-nic-setup", "tap0", "down", ""), ("kvm-nic-setup", "tap1", "down", "")
DOWN = (DOWN0, DOWN1, DOWN0, DOWN1)  #: while QEMU runs, and after it


def test_ganeti_3_2_calls_as_it_was_seen_to(tmp_path: Path, heard: list[Call]) -> None:
    """In the laboratory, with hv_kvm of its master: start, plug, migration, reboot, failover, crash, shutdown."""
    cloud = cloud_of(tmp_path, NEW)
    try:
        instances = Instances(cloud)

        def calls(node: str) -> tuple[tuple[str, ...], ...]:
            found = tuple(call[1:] for call in heard if call[0] == node)
            heard[:] = [call for call in heard if call[0] != node]
            return found

        instances.create("web1", FIRST, PAIR)
        instances.start("web1")
        assert calls("mock1") == (UP0, UP1)
        instances.migrate("web1", SECOND)
        assert calls("mock2") == (UP0, ("kvm-nic-setup", "tap1", "up", "post")), "the routed one when the guest has come"
        assert calls("mock1") == (DOWN0, DOWN1), "on the source, before its QEMU ends"
        instances.migrate("web1", FIRST, fail=True)
        assert calls("mock1") == (UP0,) and calls("mock2") == ()
        instances.plug("web1", {"network": "blue"})
        assert calls("mock2") == (("kvm-nic-setup", "b'tap2'", "up", ""),)
        instances.unplug("web1", 2)
        assert calls("mock2") == ()
        instances.reboot("web1")
        assert calls("mock2") == (*DOWN, UP0, UP1)
        instances.failover("web1", FIRST)
        assert (calls("mock2"), calls("mock1")) == (DOWN, (UP0, UP1))
        instances.crash("web1")
        assert calls("mock1") == ()
        instances.start("web1")
        instances.stop("web1")
        assert calls("mock1") == (UP0, UP1, *DOWN) and wrong(cloud) == []
        with pytest.raises(HostRefused, match="calls kvm-nic-setup, and no kvm-ifdown"):
            instances.stop("web1", ifdown=True)
    finally:
        cloud.close()


def test_ganeti_3_0_calls_its_up_alone(tmp_path: Path, heard: list[Call]) -> None:
    cloud = cloud_of(tmp_path, OLD)
    try:
        instances = Instances(cloud)
        instances.create("web1", FIRST, PAIR)
        instances.start("web1")
        instances.migrate("web1", SECOND)
        instances.stop("web1")
        assert [call[:3] for call in heard] == [
            *(("mock1", "kvm-ifup", tap) for tap in ("tap0", "tap1")),
            *(("mock2", "kvm-ifup", tap) for tap in ("tap0", "tap1")),
        ]
        assert {call[3:] for call in heard} == {("", "")}
    finally:
        cloud.close()


@pytest.mark.parametrize("hooked", [False, True], ids=["", "ganeti-hook"])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_of_it_holds_after_every_step(tmp_path: Path, seed: int, hooked: bool) -> None:
    """With 3.2, and Ganeti's own hook."""
    cloud = cloud_of(tmp_path, NEW, hooked=hooked, nodes=3)
    try:
        for step in drawn(seed, 3, 15) if seed else COVERING:
            if "kvm-ifdown" not in step.words:
                step.work(Instances(cloud))
                cloud.start(10.0)
                assert wrong(cloud) == [], step.words
        lines = [line for line in cloud.log if "ganeti-hook" in line]
        assert all(line.endswith(": 0") for line in lines) and bool(lines) == hooked, lines
    finally:
        cloud.close()


def test_the_hook_undoes_what_is_left_and_completes_what_came(tmp_path: Path) -> None:
    """Without an agent's doing: it is called before any event is read."""
    cloud = cloud_of(tmp_path, OLD, hooked=True)
    try:
        instances = Instances(cloud)
        instances.create("web1", FIRST, PAIR)
        instances.start("web1")
        node = cloud.nodes[FIRST]
        assert len(mock_nodes.records(node)) == 2
        placed = instances.find("web1")
        cloud.hypervisors[FIRST].stop(placed.vm)
        assert len(mock_nodes.records(node)) == 2, "3.0 calls nothing"
        cloud.hypervisors[FIRST].after("OP_INSTANCE_SHUTDOWN", placed.vm)
        assert mock_nodes.records(node) == []
    finally:
        cloud.close()


OVS = (
    {"network": "blue", "mode": "openvswitch", "link": "ovs0", "vlan": ".10"},
    {"network": "blue", "mode": "openvswitch", "link": "ovs0"},
)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_nics_of_open_vswitch(tmp_path: Path, version: str) -> None:
    """Started, plugged, migrated, changed, and there again in another process."""
    cloud = cloud_of(tmp_path, version, "switched")
    try:
        instances = Instances(cloud)
        instances.create("web1", FIRST, OVS)
        instances.start("web1")
        cloud.start(10.0)
        host = cloud.nodes[FIRST].host
        assert sorted((port.name, port.bridge, port.tag) for port in host.view().ovs_ports()) == [
            ("tap0", "ovs0", 10),
            ("tap1", "ovs0", None),
        ]
        instances.plug("web1", OVS[1])
        instances.change("web1", 0, {"rate_in": "8mbit"})
        assert wrong(cloud) == []
        instances.migrate("web1", SECOND)
        cloud.start(10.0)
        assert wrong(cloud) == [] and list(host.view().ovs_ports()) == []
    finally:
        cloud.close()
    with opened(tmp_path / "cloud", 2) as again:
        again.start(30.0)
        assert wrong(again) == []
        assert sorted(port.name for port in again.nodes[SECOND].host.view().ovs_ports()) == ["tap0", "tap1", "tap2"]


def test_by_commands(tmp_path: Path) -> None:
    run = Mockcloud(tmp_path / "cloud")
    made = run.json("create", "1", "--ganeti", NEW, "--ganeti-hook", "--profile", "switched")["nodes"]
    more = run.json("create", "1")["nodes"]
    assert [(node["ganeti"], node["ganeti_hook"], node["profile"], node["depth"]) for node in (*made, *more)] == [
        (NEW, True, "switched", "tree"),
        (OLD, False, "plain", "tree"),
    ]
    run("network", "blue", "--subnet", "192.0.2.0/24")
    nic = "network=blue,mode=openvswitch,link=ovs0"
    (there,) = run.json("instance", "create", "web1", "--node", "mock1", "--nic", nic, "--start")["instances"]
    assert (there["state"], there["nics"][0]["shown"]) == ("running", "running")
    assert "no Open vSwitch" in run("create", "1", "--depth", "namespace", "--profile", "switched", status=69)
    run("create", "1", "--ganeti", "2.16", status=2)


def test_what_is_no_version_is_refused(tmp_path: Path) -> None:
    for given in ({"ganeti": "2.16"}, {"depth": "deep"}, {"profile": "huge"}):
        with pytest.raises(HostRefused, match="there is no"):
            MockCloud(str(tmp_path), **given)  # type: ignore[arg-type]
    assert VERSIONS == (OLD, NEW)
