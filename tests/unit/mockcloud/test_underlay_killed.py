"""Look at a cloud with an underlay after a command that was killed, and one that is opened again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mockcloud import underlay
from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import settled
from mockcloud.underlay import forgotten, replaced, set_up
from tests.support.killing_steps import Killed, everywhere, opened
from tests.unit.mockcloud.test_underlay_histories import FIRST, SECOND, SITE, SPOKEN, UNDERLAY


def test_a_forgetting_that_was_killed_is_completed_by_whoever_starts_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill it at each step: the node's agent could not be started any more, which held up whatever was done to others."""

    def prepare(cloud: MockCloud) -> None:
        cloud.create(2)
        set_up(cloud, UNDERLAY)
        cloud.network("blue", {"subnet": "192.0.2.0/24"})
        perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": [{"network": "blue"}], "start": True, **SPOKEN})

    def work(cloud: MockCloud) -> None:
        cloud.ready([FIRST, SECOND], 30.0)
        cloud.scheduler.passes(20.0)
        forgotten(cloud, FIRST)
        replaced(cloud, FIRST)
        cloud.scheduler.passes(30.0)

    def picture(cloud: MockCloud) -> object:
        cloud.ready([FIRST, SECOND], 30.0)
        cloud.scheduler.passes(20.0)
        client = cloud.registry.client()
        nodes = {(each["node"]["name"], each["alive"]) for each in client.all("nodes")}
        perform(cloud, "start", {"name": "web1"})
        cloud.scheduler.passes(5.0)
        states = [(each["node"], each["state"]) for item in client.all("endpoints") for each in item["placement"]["endpoints"]]
        files = [[each.name for each in Path(cloud.root, "servers", node).iterdir()] for node in (FIRST, SECOND)]
        return nodes, states, [each["name"] for each in client.all("names")], [sorted(each) for each in files], settled(cloud)

    assert everywhere(tmp_path, monkeypatch, prepare, work, picture) > 5
    with opened(tmp_path / "whole") as cloud:
        cloud.ready([FIRST, SECOND], 30.0)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(underlay, "_let_go", _killed)
            forgotten(cloud, FIRST)
    with opened(tmp_path / "whole") as cloud:
        cloud.ready([FIRST, SECOND], 30.0)
        cloud.scheduler.passes(5.0)
        assert [each["alive"] for each in cloud.registry.client().all("nodes")] == [True, True]


def _killed(_cloud: MockCloud, _node: str) -> None:
    raise Killed


def test_a_cloud_has_as_many_name_servers_when_it_is_opened_again(tmp_path: Path) -> None:
    for given in ({**UNDERLAY, "servers": 3}, {"prefix": SITE}, {}):
        with opened(tmp_path / "cloud") as cloud:
            if given:
                set_up(cloud, given)
            assert cloud.own.names is not None and list(cloud.own.names.servers) == ["names1", "names2", "names3"]
    said = json.loads((tmp_path / "cloud" / "cloud.json").read_text())
    assert said.pop("servers") == 3
    (tmp_path / "cloud" / "cloud.json").write_text(json.dumps(said))
    with opened(tmp_path / "cloud") as cloud:  # an older mockcloud has written it
        assert cloud.own.names is not None and list(cloud.own.names.servers) == ["names1"]
