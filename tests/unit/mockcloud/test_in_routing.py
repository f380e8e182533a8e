"""Check that what leads to a routed guest, and where its packets are looked up, is looked for: wrong plans and edited hosts are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import netcommon.modes.routed as routed
from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import always
from mockcloud.invariants import fitting as wrong
from mockcloud.sysinfo import node_uuid
from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Route, Rule
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations.route import PrefixRoute
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
MENDED = 150.0  #: seconds in which agents have looked at everything, twice
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
    return [text.removeprefix("web1/").replace(f" on {FIRST}", "").replace(FIRST, "mock1") for text in wrong(cloud)]


def by_rules(cloud: MockCloud) -> bool:
    return any(rule.iif for rule in cloud.nodes[FIRST].host.kernel.rules)


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

    def fewer(nic: Any, settings: Any, families: tuple[int, ...]) -> Any:
        return planned(nic, settings, (left,) if left in families else families)

    monkeypatch.setattr(routed, "_selected", fewer)
    running(cloud)
    perform(cloud, "reboot", {"name": "web1"})
    assert f"0: no rule leads what it sends by {lacks} to table 100" in said(cloud)


def edited(change: Callable[[Rule], Rule]) -> Callable[[MemoryHost], None]:
    def edit(host: MemoryHost) -> None:
        host.kernel.rules = [change(rule) if (rule.protocol, rule.family) == (174, AF_INET) else rule for rule in host.kernel.rules]

    return edit


def ruled(rule: Rule) -> Callable[[MemoryHost], None]:
    return lambda host: host.kernel.rules.append(rule)


def led(device: str, fact: Route) -> Callable[[MemoryHost], None]:
    return lambda host: host.kernel.routes.append(fact._replace(index=host.kernel.index_of(device)))


def addressed(host: MemoryHost) -> None:
    host.kernel.addresses.append(Address(AF_INET, "203.0.113.3", 32, host.kernel.index_of("tap0")))


def behind(host: MemoryHost) -> None:
    host.kernel.routes = [
        route._replace(metric=7) if route.destination == "192.0.2.1/32" and route.index else route for route in host.kernel.routes
    ]


def by_another(gateway: str, destination: str = "10.7.0.0/28") -> Callable[[MemoryHost], None]:
    def edit(host: MemoryHost) -> None:
        host.kernel.routes = [
            route._replace(gateway=gateway) if (route.destination, route.type) == (destination, 1) else route
            for route in host.kernel.routes
        ]

    return edit


def some(host: MemoryHost) -> None:
    host.kernel.routes = [
        route._replace(tos=4) if (route.destination, route.type) == ("192.0.2.1/32", 1) else route for route in host.kernel.routes
    ]


#: How a host is edited, and what is said then.
EDITED: dict[str, tuple[Callable[[MemoryHost], None], str]] = {
    "preference": (edited(lambda rule: rule._replace(preference=7)), "0: the rule for what it sends by IPv4 is of preference 7, not 500"),
    "second table": (
        ruled(Rule(AF_INET, 400, "tap0", 77)),
        "0: a rule leads what it sends by IPv4 to table 77, which is not wanted",
    ),
    "rule of a mark": (
        ruled(Rule(AF_INET, 500, "", 77, mark=77, mask=255)),
        "mock1: a rule leads what bears the mark 0x4d to table 77, which is no NIC's",
    ),
    "rule of another mark": (
        ruled(Rule(AF_INET, 500, "", 100, mark=5, mask=255)),
        "mock1: a rule leads what bears the mark 0x5 to table 100, which is no NIC's",
    ),
    "rule of a bridge's NIC": (
        ruled(Rule(AF_INET6, 500, "tap1", 100)),
        "1: a rule leads what it sends by IPv6 to table 100, which is not wanted",
    ),
    "metric": (behind, "0: 192.0.2.1/32 is routed to it behind a route that leads nowhere"),
    "second route": (led("tap0", Route(AF_INET, 77, "192.0.2.1/32", 0)), "0: 192.0.2.1/32 is routed to it in table 77, too"),
    "stray route": (led("br0", Route(AF_INET, 254, "203.0.113.0/28", 0)), "mock1: 203.0.113.0/28 is routed to br0, which is no NIC's"),
    "stray prefix": (led("tap0", Route(AF_INET, 100, "203.0.113.0/28", 0)), "0: 203.0.113.0/28 is routed to it, and is not its own"),
    "gateway": (by_another("192.0.2.77"), "0: 10.7.0.0/28 is routed to it by the gateway 192.0.2.77, and by 192.0.2.1 is wanted"),
    "no gateway": (by_another(""), "0: 10.7.0.0/28 is routed to it by the gateway none, and by 192.0.2.1 is wanted"),
    "gateway of an address": (
        by_another("192.0.2.77", "192.0.2.1/32"),
        "0: 192.0.2.1/32 is routed to it by the gateway 192.0.2.77, and by none is wanted",
    ),
    "some packets": (some, "0: 192.0.2.1/32 is not routed to it"),
    "unreachable": (
        led("lo", Route(AF_INET, 100, "10.7.0.0/29", 0, type=7)),
        "mock1: 10.7.0.0/29 in table 100 is refused by a route of type 7, which nobody wants",
    ),
    "unreachable before it": (
        led("lo", Route(AF_INET, 100, "192.0.2.1/32", 0, type=7)),
        "0: 192.0.2.1/32 is routed to it behind a route that leads nowhere",
    ),
    "stray address": (addressed, "0: its device has the address 203.0.113.3, which is not wanted"),
}


@pytest.mark.parametrize("name", EDITED)
def test_a_host_that_is_edited_is_seen(cloud: MockCloud, name: str) -> None:
    edit, says = EDITED[name]
    edit(running(cloud))
    assert says in said(cloud)


def test_marks_that_are_not_given_are_seen_and_mended(cloud: MockCloud) -> None:
    host = running(cloud)
    if by_rules(cloud):
        return
    for (_family, name), table in host.nftables.tables.items():
        if name.startswith("netcommon-mark-"):
            table.elements.clear()
    assert said(cloud) == [f"0: no rule leads what it sends by {name} to table 100" for name in ("IPv4", "IPv6")]
    cloud.scheduler.passes(MENDED)
    assert said(cloud) == []


def test_marks_of_a_device_that_is_nobodys_are_seen(cloud: MockCloud) -> None:
    host = running(cloud)
    if by_rules(cloud):
        return
    for (_family, name), table in host.nftables.tables.items():
        if name.startswith("netcommon-mark-"):
            key, each = next(iter(table.elements.items()))
            table.elements |= {(key[0], b"\1\0\0\0"): each._replace(key=b"\1\0\0\0")}
    assert said(cloud) == ["mock1: the set taps of netcommon-mark-100-fff0000 has the device 1, which is nobody's"] * 2
