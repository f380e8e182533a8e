"""Check that what leads to a routed guest, and what its packets are looked up in, is looked for: plans gone wrong are seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import netcommon.modes.routed as routed
from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import always
from mockcloud.invariants import fitting as wrong
from mockcloud.sysinfo import node_uuid
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations.route import PrefixRoute
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
OPTIONS = {"eui64": "true", "prefixes": "10.7.0.0/28", "blackhole": "true"}
SETTINGS = {"rules": "[nic]\nspoof_guard = true\n", "marks": "[nic]\nspoof_guard = true\n[rules]\nmark = 0xfff0000\n"}


@pytest.fixture(params=SETTINGS)
def cloud(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MockCloud]:
    """Make a cloud with a network of both families, whose nodes have a rule for each NIC, or one for each table."""
    with opened(tmp_path / "cloud") as made:
        for one in made.create(2):
            settings = Path(made.root, "servers", one.uuid, "etc/netcommon/config.toml")
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(SETTINGS[request.param])
        made.network("dual", {"subnet": "192.0.2.0/24", "subnet6": "2001:db8::/64", "gateway6": "2001:db8::1"})
        made.ready([FIRST, SECOND], 20.0)
        yield made


def running(cloud: MockCloud, **options: str) -> MemoryHost:
    nics = [{"network": "dual", "mode": "routed", "link": "guests"}, {"network": "dual"}]
    perform(cloud, "create", {"name": "web1", "node": "mock1", "nics": nics, "start": True})
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {**OPTIONS, **options}})
    return cloud.nodes[FIRST].host


def said(cloud: MockCloud) -> list[str]:
    found = [text.removeprefix("web1/").replace(f" on {FIRST}", "").replace(FIRST, "mock1") for text in wrong(cloud)]
    for each in cloud.registry.client().all("nics", belongs="instance"):
        found = [text.replace(address, "ADDRESS") for text in found for address in (each["nic"]["addresses"] or ["-"])[:1]]
    return found


def test_all_of_it_is_there_and_goes(cloud: MockCloud) -> None:
    running(cloud)
    assert said(cloud) == [] == always(cloud)
    for options in ({"allow_ip_spoofing": "true"}, {"allow_ip_spoofing": "", "spoof_guard": "false"}, {"eui64": ""}, {"prefixes": ""}):
        perform(cloud, "change", {"name": "web1", "index": 0, "options": options})
        assert said(cloud) == []
    perform(cloud, "migrate", {"name": "web1", "node": "mock2"})
    cloud.scheduler.passes(10.0)
    assert said(cloud) == [] == always(cloud)
    perform(cloud, "delete", {"name": "web1"})
    assert wrong(cloud) == []


def test_a_prefix_that_is_taken_away_and_stays_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    running(cloud)
    monkeypatch.setattr(PrefixRoute, "revert", lambda *_given: [])
    perform(cloud, "change", {"name": "web1", "index": 0, "options": {"prefixes": "", "blackhole": ""}})
    assert said(cloud) == ["0: 10.7.0.0/28 is routed to it, and is not its own"]


@pytest.mark.parametrize(("left", "lacks"), [(AF_INET6, "IPv4"), (AF_INET, "IPv6")])
def test_a_family_without_a_rule_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch, left: int, lacks: str) -> None:
    planned = routed._selected
    monkeypatch.setattr(
        routed, "_selected", lambda nic, settings, families: planned(nic, settings, tuple({left} & {*families}) or families)
    )
    running(cloud)
    perform(cloud, "reboot", {"name": "web1"})
    assert f"0: no rule leads what it sends by {lacks} to table 100" in said(cloud)
