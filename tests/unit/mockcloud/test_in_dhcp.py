"""Check that files for DHCP servers are held against NICs and networks: files edited by hand, and a feature planted wrong, are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import netcommon.features.dhcp as dhcp
from mockcloud.cloud import MockCloud
from mockcloud.instances.table import perform
from mockcloud.invariants import always
from mockcloud.invariants import fitting as wrong
from mockcloud.networks import network_uuid
from mockcloud.stored import nic_uuid
from mockcloud.sysinfo import node_uuid
from netcommon.features.base import Part
from netcommon.host.simulated.host import MemoryHost
from netcommon.operations.file import NicFile
from tests.support.killing_steps import opened

FIRST, SECOND = node_uuid(1), node_uuid(2)
NICS = [{"network": "blue"}, {"network": "blue", "mode": "routed", "link": "guests"}, {"network": "six"}]
TOLD = {
    "resolvers": ["192.0.2.53", "2001:db8::53"],
    "search": ["example.com"],
    "routes": [{"prefix": "198.51.100.0/24", "via": "192.0.2.7"}],
    "mtu": 1400,
}
MENDED = 150.0  #: seconds in which agents have looked at everything, twice
HOSTS, OPTIONS, BINDINGS = "/var/lib/netcommon/dnsmasq", "/var/lib/netcommon/dnsmasq-options", "/var/lib/nfdhcpd"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[MockCloud]:
    """Make a cloud whose guests are told something of their network."""
    with opened(tmp_path / "cloud") as made:
        made.create(2)
        made.network("blue", {"subnet": "192.0.2.0/24", "gateway": "192.0.2.254"})
        made.registry.client().change("PATCH", f"networks/{network_uuid('blue')}", TOLD)
        made.network("six", {"subnet6": "2001:db8::/64", "gateway6": "2001:db8::1"})
        made.ready([FIRST, SECOND], 20.0)
        yield made


def running(cloud: MockCloud, server: str) -> MemoryHost:
    nics = [{**each, "network": "blue"} if server == "nfdhcpd" and each["network"] == "six" else each for each in NICS]
    perform(cloud, "create", {"name": "web1.example.com", "node": "mock1", "nics": nics, "start": True})
    for index in range(len(NICS)):
        perform(cloud, "change", {"name": "web1.example.com", "index": index, "options": {"dhcp": server}})
    cloud.scheduler.passes(5.0)
    return cloud.nodes[FIRST].host


def said(cloud: MockCloud) -> list[str]:
    found = [text.removeprefix("web1.example.com/").replace(f" on {FIRST}", "").replace(FIRST, "mock1") for text in wrong(cloud)]
    return [text.replace(nic_uuid("web1.example.com", 0), "UUID") for text in found]


@pytest.mark.parametrize("server", ["dnsmasq", "nfdhcpd"])
def test_all_of_it_is_there_and_goes(cloud: MockCloud, server: str) -> None:
    host = running(cloud, server)
    assert said(cloud) == [] == always(cloud)
    assert len(host.files.contents) == (4 if server == "dnsmasq" else 3)
    perform(cloud, "migrate", {"name": "web1.example.com", "node": "mock2"})
    cloud.scheduler.passes(10.0)
    assert said(cloud) == [] and not host.files.contents
    perform(cloud, "change", {"name": "web1.example.com", "index": 0, "options": {"addresses": "192.0.2.77", "dhcp": "nfdhcpd"}})
    assert said(cloud) == []
    for index in range(len(NICS)):
        perform(cloud, "change", {"name": "web1.example.com", "index": index, "options": {"dhcp": ""}})
    assert said(cloud) == [] and not cloud.nodes[SECOND].host.files.contents


def test_what_a_network_says_later_is_in_its_file(cloud: MockCloud) -> None:
    running(cloud, "dnsmasq")
    cloud.registry.client().change("PATCH", f"networks/{network_uuid('blue')}", {"mtu": 1300, "routes": []})
    assert any(text.startswith(f"0: {OPTIONS}/blue: it says ") for text in said(cloud)), said(cloud)
    cloud.scheduler.passes(30.0)
    assert said(cloud) == []


def edited(folder: str, before: str, after: str, name: str = "") -> Callable[[MemoryHost], None]:
    """Give what changes a word of the files of a folder."""

    def edit(host: MemoryHost) -> None:
        for place, each in [*host.files.contents.items()]:
            if place[0] == folder and name in place[1]:
                host.files.put(*place, each.content.replace(before, after))

    return edit


def gone(folder: str) -> Callable[[MemoryHost], None]:
    def edit(host: MemoryHost) -> None:
        host.files.contents = {place: each for place, each in host.files.contents.items() if place[0] != folder}

    return edit


def unreadable(host: MemoryHost) -> None:
    for place, each in [*host.files.contents.items()]:
        host.files.put(*place, each.content, 0o600)


FILE = nic_uuid("web1.example.com", 0)
#: Which server it is, what is edited, and what is said then, among other things.
EDITED: dict[str, tuple[str, Callable[[MemoryHost], None], str]] = {
    "address": ("dnsmasq", edited(HOSTS, "192.0.2.1,", "192.0.2.9,"), f"0: {HOSTS}/UUID: it has 192.0.2.9, and 192.0.2.1 is wanted"),
    "name": ("dnsmasq", edited(HOSTS, ",web1", ",web2"), f"0: {HOSTS}/UUID: it has web2, and web1 is wanted"),
    "no name": ("dnsmasq", edited(HOSTS, ",web1", ""), f"0: {HOSTS}/UUID: it has no name, and web1 is wanted"),
    "MAC": ("dnsmasq", edited(HOSTS, "02:4d:43", "02:4d:44"), ""),
    "no file": ("dnsmasq", gone(HOSTS), f"0: dhcp = dnsmasq is wanted, and {HOSTS}/UUID is not there"),
    "mode": ("dnsmasq", unreadable, f"0: dhcp = dnsmasq is wanted, and the mode of {HOSTS}/UUID is 0600"),
    "network": ("dnsmasq", edited(OPTIONS, "1400", "1500"), ""),
    "network's odd line": ("dnsmasq", edited(OPTIONS, "1400", "1400\nx"), ""),
    "no network": ("dnsmasq", gone(OPTIONS), "0: what guests of blue are told is in no file of netcommon's"),
    "bridge": ("nfdhcpd", edited(BINDINGS, "INDEV=br0", "INDEV=br1"), f"0: {BINDINGS}/tap0: INDEV is br1, and br0 is wanted"),
    "gateway": (
        "nfdhcpd",
        edited(BINDINGS, "GATEWAY=192.0.2.254", "GATEWAY="),
        f"1: {BINDINGS}/tap1: GATEWAY is , and 192.0.2.254 is wanted",
    ),
    "line": ("nfdhcpd", edited(BINDINGS, "IP=", "# "), f"0: {BINDINGS}/tap0: IP is not there, and 192.0.2.1 is wanted"),
    "another's": (
        "nfdhcpd",
        edited(BINDINGS, FILE, nic_uuid("web1.example.com", 1)),
        f"0: dhcp = nfdhcpd is wanted, and {BINDINGS}/tap0 is of another",
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_a_file_that_is_edited_is_seen_and_mended(cloud: MockCloud, name: str) -> None:
    server, edit, says = EDITED[name]
    edit(running(cloud, server))
    found = said(cloud)
    assert says in found if says else found, found
    cloud.scheduler.passes(MENDED)
    assert said(cloud) == []


def test_a_file_that_nobody_wants_is_seen(cloud: MockCloud) -> None:
    host = running(cloud, "dnsmasq")
    kept = dict(host.files.contents)
    for index in range(len(NICS)):
        perform(cloud, "change", {"name": "web1.example.com", "index": index, "options": {"dhcp": ""}})
    assert said(cloud) == []
    host.files.contents = dict(kept)
    assert "0: dhcp = none is wanted, and dnsmasq has a file of it" in said(cloud)
    perform(cloud, "delete", {"name": "web1.example.com"})
    host.files.contents = dict(kept)
    assert f"mock1: {HOSTS}/UUID of NIC UUID is nobody's" in said(cloud)


DHCP = dhcp.plan


def nothing(*_given: object) -> Part:
    return Part()


def of_another(nic: Any, settings: Any, options: Any) -> Part:
    return DHCP(nic._replace(ip="192.0.2.99"), settings, options)


def without_the_network(nic: Any, settings: Any, options: Any) -> Part:
    part = DHCP(nic, settings, options)
    return part._replace(after=tuple(each for each in part.after if isinstance(each, NicFile)))


def untold(nic: Any, settings: Any, options: Any) -> Part:
    return DHCP(nic._replace(network=nic.network._replace(gateway="192.0.2.253")), settings, options)


PLANTED: dict[str, tuple[str, Callable[..., Any], str]] = {
    "nothing": ("dnsmasq", nothing, f"0: dhcp = dnsmasq is wanted, and {HOSTS}/UUID is not there"),
    "another address": ("dnsmasq", of_another, f"0: {HOSTS}/UUID: it has 192.0.2.99, and 192.0.2.1 is wanted"),
    "no network": ("dnsmasq", without_the_network, "0: what guests of blue are told is in no file of netcommon's"),
    "another gateway": ("nfdhcpd", untold, f"0: {BINDINGS}/tap0: GATEWAY is 192.0.2.253, and 192.0.2.254 is wanted"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_wrong_is_seen(cloud: MockCloud, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    server, instead, says = PLANTED[name]
    monkeypatch.setattr(dhcp, "plan", instead)
    running(cloud, server)
    assert says in said(cloud), said(cloud)
