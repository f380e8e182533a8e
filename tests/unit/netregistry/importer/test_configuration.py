"""A Ganeti configuration is read whole or not at all, and what it says is in the registry's own form."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netregistry.importer.configuration import LONGEST, parse
from netregistry.importer.difference import Known, steps
from netregistry.importer.ganeti_json import Unusable
from netregistry.model.network import Network, Range, checked
from runtime.environment import nic_from_environment
from tests.support.bootstrap import ROOT
from tests.support.ganeti_configuration import CLUSTER, NETWORKS, NICS, Cluster

GOLDEN = ROOT / "tests/fixtures/ganeti/config.data"
Change = Callable[[dict[str, Any]], Any]


def small() -> Cluster:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", tags=["b", "a"])
    cluster.nic(NICS[0], network=NETWORKS[0], ip="192.0.2.9")
    return cluster


def test_what_ganeti_wrote() -> None:
    """NICs and networks are as Ganeti 3.0.2 wrote them; what is expected was read through field by field."""
    found = parse((GOLDEN / "3.0.2.json").read_bytes())
    expected = json.loads((GOLDEN / "3.0.2.expected.json").read_text())
    assert {"networks": found.networks, "nics": found.nics} == {name: expected[name] for name in ("networks", "nics")}
    about = ["gnt.example", "dddf8c12-f2d8-4718-a35b-7804daf12a3f", "60c5bd2c-7f0e-4a7c-9d38-1b1cfb1e5b01", "node1.gnt.example", 57]
    assert [found.cluster, found.uuid, found.master, found.node, found.serial] == about
    assert (found.unread, found.problems) == (frozenset(), ())


def test_a_configuration_as_it_lay_on_a_master() -> None:
    """After gnt-network add with --add-reserved-ips and modify with --remove-reserved-ips, gnt-instance add with ip=pool, and add-tags."""
    found = parse((GOLDEN / "3.0.2-written.json").read_bytes())
    assert (found.cluster, found.node, found.serial) == ("cluster.gnt.example", "node1.gnt.example", 17)
    ((uuid, network),) = found.networks.items()
    reserved = [{"first": address, "last": address} for address in ("10.77.1.100", "10.77.1.102")]
    assert network == {
        "name": "blue",
        "subnet": "10.77.1.0/24",
        "subnet6": "fd77:1::/64",
        "gateway": "10.77.1.9",
        "gateway6": "fd77:1::9",
        "mac_prefix": "aa:77:0a",
        "tags": ["netcommon:rate_in:1mbit"],
        "reserved": reserved,
    }
    (nic,) = found.nics.values()
    assert nic == {
        "instance": "inst1.gnt.example",
        "index": 0,
        "name": "front",
        "owner": "",
        "mac": "aa:77:0a:3f:3d:2a",
        "network": uuid,
        "ip": "10.77.1.77",
        "mode": "bridged",
        "link": "br0",
        "vlan": "",
        "model": "paravirtual",
        "tags": ["netcommon:*:isolated", "role:web"],
    }


def test_what_it_leaves_unsaid() -> None:
    """Parameters of the cluster hold where a NIC has none; tags may be missing; an old NIC has the UUID that nodes give it."""
    cluster = Cluster()
    cluster.nic("", mac="AA:00:00:00:00:0F", nicparams={"link": "br7"})
    item = cluster.instance("web1.example.com")
    del item["tags"]
    item["hvparams"] = {"nic_type": "e1000"}
    ((uuid, nic),) = parse(cluster.data).nics.items()
    called = {"INSTANCE": "web1.example.com", "INTERFACE_INDEX": "0", "MAC": "AA:00:00:00:00:0F", "INTERFACE": "tap0", "MODE": "bridged"}
    assert uuid == nic_from_environment({**called, "LINK": "br7"}).uuid
    said = [nic[name] for name in ("mode", "link", "mac", "model", "tags", "ip")]
    assert said == ["bridged", "br7", "aa:00:00:00:00:0f", "e1000", [], ""]


def test_owner() -> None:
    cluster = small()
    cluster.instance("web1.example.com")["tags"] = ["owner:alice", "role:web"]
    assert parse(cluster.data).nics[NICS[0]]["owner"] == "alice"
    cluster.instance("web1.example.com")["tags"] = ["owner:alice", "owner:bob"]
    found = parse(cluster.data)
    assert found.nics[NICS[0]]["owner"] == "" and "several tags" in found.problems[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda document: document.update(version=3030000), "version"),
        (lambda document: document.update(version=True), "version"),
        (lambda document: document.pop("version"), "version"),
        (lambda document: document.update(serial_no="7"), "serial"),
        (lambda document: document.update(serial_no=-1), "serial"),
        (lambda document: document["cluster"].update(uuid="x"), "uuid"),
        (lambda document: document["cluster"].update(cluster_name="a/b"), "cluster"),
        (lambda document: document["cluster"].update(master_node="x"), "master"),
        (lambda document: document.update(instances=[]), "instances"),
        (lambda document: document.pop("networks"), "networks"),
        (lambda document: document["instances"].update(x=7), "instances"),
        (lambda document: document["instances"].update(x={"name": "web9", "nics": {}}), "nics"),
        (lambda document: document["networks"][NETWORKS[0]].update(name="a\nb"), "name"),
        (lambda document: document["networks"][NETWORKS[0]].update(name="\ud800"), "name"),
        (lambda document: document["networks"][NETWORKS[0]].update(name="x" * 256), "name"),
        (lambda document: document["networks"][NETWORKS[0]].update(tags=[["x"]]), "tags"),
        (lambda document: document["networks"][NETWORKS[0]].update(reservations="2"), "pool"),
        (lambda document: document["networks"][NETWORKS[0]].update(reservations="0" * 257), "pool"),
        (lambda document: document["networks"].update({NETWORKS[1]: {"name": "blue"}}), "another one"),
        (lambda document: nic_of(document).update(ip=7), "ip"),
        (lambda document: nic_of(document).update(name="\x1b[2J"), "name"),
        (lambda document: nic_of(document).update(uuid="13264fb6"), "UUID"),
        (lambda document: nic_of(document).update(nicparams=[1]), "parameters"),
        (lambda document: document["instances"]["uuid-of-web1.example.com"]["nics"].append(dict(nic_of(document))), "another one"),
    ],
)
def test_nothing_is_read_of_one_that_ganeti_did_not_write(changed: Change, said: str) -> None:
    cluster = small()
    changed(cluster.document)
    with pytest.raises(Unusable, match=said) as raised:
        parse(cluster.data)
    assert raised.value.status == 69 and str(raised.value).isprintable() and len(str(raised.value)) < 600


def nic_of(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["instances"]["uuid-of-web1.example.com"]["nics"][0]
    return found


@given(st.data())
def test_one_that_is_cut_off(data: st.DataObject) -> None:
    whole = small().data
    with pytest.raises(Unusable):
        parse(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff\xfe", b'{"version": NaN}', b'{"version": ' + b"9" * 5000 + b"}", b"null", b"7"])
def test_no_configuration(text: bytes) -> None:
    with pytest.raises(Unusable):
        parse(text)


def test_a_huge_one_is_not_even_looked_at() -> None:
    with pytest.raises(Unusable, match="bytes"):
        parse(b" " * (LONGEST + 1))


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"mac": "01:00:5e:00:00:01"}, "mac"),
        ({"ip": "127.0.0.1"}, "ip"),
        ({"nicparams": {"mode": "pool"}}, "mode"),
        ({"network": NETWORKS[2]}, "network"),
    ],
)
def test_what_a_registry_cannot_hold_is_left_alone(more: dict[str, Any], field: str) -> None:
    """It is there: nothing else is kept out by it, and it does not count as gone."""
    cluster = small()
    cluster.nic(NICS[1], **more)
    found = parse(cluster.data)
    assert set(found.nics) == {NICS[0]} and found.unread == {NICS[1]}
    assert len(found.problems) == 1 and f"{field} is" in found.problems[0]


def test_a_network_that_a_registry_cannot_hold_keeps_its_nics_out() -> None:
    cluster = small()
    cluster.document["networks"][NETWORKS[0]]["network6"] = "2001:db8::/128"
    found = parse(cluster.data)
    assert found.unread == {NETWORKS[0], NICS[0]} and not found.nics and not found.networks


@given(st.sets(st.integers(0, 255)), st.sets(st.integers(0, 255)), st.sets(st.integers(1, 254)))
def test_what_the_pool_does_not_give_out(inside: set[int], outside: set[int], used: set[int]) -> None:
    """Take for reserved what the bits say, less what NICs alone have and what no host can have; and a network can be so."""
    cluster = Cluster()
    bits = ["".join("1" if number in each else "0" for number in range(256)) for each in (inside, outside)]
    cluster.network(NETWORKS[0], "blue", reservations=bits[0], ext_reservations=bits[1], gateway="192.0.2.77")
    for number, last in enumerate(sorted(used)):
        uuid = f"{number:08x}-3333-4333-8333-333333333333"
        cluster.nic(uuid, mac=f"aa:00:00:00:01:{number:02x}", network=NETWORKS[0], ip=f"192.0.2.{last}")
    fields = parse(cluster.data).networks[NETWORKS[0]]
    found = {number for each in fields["reserved"] for number in range(int(IPv4Address(each["first"])), int(IPv4Address(each["last"])) + 1)}
    first = int(IPv4Network("192.0.2.0/24").network_address)
    assert found == {first + number for number in (inside - used | outside) - {0, 77, 255}}
    network = Network("", "blue", subnet="192.0.2.0/24", reserved=tuple(Range(**each) for each in fields["reserved"]))
    left = {number for begin, end in checked(network).bounds(4) for number in range(begin, end + 1)}
    assert left == set(range(first, first + 256)) - found


def test_more_ranges_than_a_network_may_have_are_rather_too_wide() -> None:
    """Bar what is too much: by a range that is too wide nothing looks as if it were reserved for the registry."""
    cluster = Cluster()
    cluster.network(NETWORKS[0], "wide", "10.0.0.0/16", ext_reservations="01" * 32768)
    found = parse(cluster.data)
    (step,) = steps(found, Known({}, {}, {}), (), together=True)
    fields = step.part["body"]
    assert len(fields["reserved"]) == 1000 and fields["reserved"][-1] == {"first": "10.0.7.207", "last": "10.0.7.207"}
    assert fields["barred"][0] == {"first": "10.0.7.209", "last": "10.0.7.209"}
    assert len(fields["barred"]) == 900 and fields["barred"][-1] == {"first": "10.0.14.215", "last": "10.0.255.253"}


def test_it_is_of_its_cluster() -> None:
    assert parse(small().data).cluster == CLUSTER
