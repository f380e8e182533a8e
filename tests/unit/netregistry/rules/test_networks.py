"""Networks: what fits together, whose field is whose, and none is deleted under its NICs."""

from __future__ import annotations

import pytest

from tests.support.registry import GANETI, OPERATOR, Registry


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"subnet": "192.0.2.0/31"}, "subnet"),
        ({"subnet": "192.0.2.1/24"}, "subnet"),
        ({"subnet6": "2001:db8::/127"}, "subnet6"),
        ({"subnet": "2001:db8::/64"}, "subnet"),
        ({"subnet": "192.0.2.0/24", "gateway": "198.51.100.1"}, "gateway"),
        ({"gateway": "192.0.2.1"}, "gateway"),
        ({"mtu": 575}, "mtu"),
        ({"mtu": 9001}, "mtu"),
        ({"mtu": 1500.0}, "mtu"),
        ({"vlan": 4095}, "vlan"),
        ({"mac_prefix": "01:00:00"}, "mac_prefix"),
        ({"subnet": "192.0.2.0/24", "ranges": [{"first": "192.0.2.9", "last": "192.0.2.8"}]}, "ranges[0]"),
        ({"subnet": "192.0.2.0/24", "ranges": [{"first": "192.0.2.9", "last": "192.0.3.8"}]}, "ranges[0]"),
        ({"subnet": "192.0.2.0/24", "ranges": [{"first": "192.0.2.9", "last": "2001:db8::1"}]}, "ranges[0]"),
        ({"subnet": "192.0.2.0/24", "ranges": [{"first": f"192.0.2.{one}", "last": "192.0.2.9"} for one in (1, 5)]}, "ranges[1]"),
        ({"routes": [{"prefix": "10.0.0.0/8", "via": "192.0.2.1"}, {"prefix": "10.0.0.0/8", "via": "192.0.2.2"}]}, "routes"),
        ({"resolvers": ["192.0.2.1"] * 2}, "resolvers"),
        ({"search": ["a b"]}, "search[0]"),
        ({"imported": ["mtu"]}, "imported"),
        ({"name": ""}, "name"),
    ],
)
def test_what_does_not_fit(registry: Registry, body: dict[str, object], field: str) -> None:
    assert registry.refused("network.add", "", {"name": "blue", **body})["field"] == field
    uuid = registry.network("green", "10.0.0.0/8") if "subnet" not in body else registry.network("green")
    if field not in ("gateway", "name") or "subnet" in body:
        assert registry.refused("network.set", uuid, body)["field"] == field


def test_both_families_and_link_local_gateways(registry: Registry) -> None:
    uuid = registry.network(subnet6="2001:db8::/64", gateway6="fe80::1", mtu=576, vlan=4094, resolvers=["192.0.2.53", "2001:db8::53"])
    found = registry.local.view.network(uuid)
    assert found and found.families == (4, 6) and (found.mtu, found.vlan) == (576, 4094)


def test_none_is_deleted_under_its_nics(registry: Registry) -> None:
    blue = registry.network()
    nics = [registry.nic(network=blue, instance=f"web{number}", index=0, allocate=["ipv4"]) for number in range(12)]
    problem = registry.refused("network.delete", blue)
    assert problem["kind"] == "in-use" and problem["count"] == 12 and set(problem["nics"]) == {nic.uuid for nic in nics}
    assert "web0/0" in problem["detail"]
    for nic in nics:
        registry.do("nic.delete", nic.uuid)
    registry.do("network.delete", blue)
    assert registry.local.view.all("addresses") != {}
    registry.passes(1)
    assert registry.local.view.all("addresses") == {} == registry.local.view.all("macs"), "the leader sweeps what is left of it"
    assert registry.refused("network.delete", blue)["kind"] == "missing"


def test_a_subnet_does_not_leave_its_nics(registry: Registry) -> None:
    blue = registry.network()
    nic = registry.nic(network=blue, ip="192.0.2.200")
    assert registry.refused("network.set", blue, {"subnet": "192.0.2.0/25"})["nics"] == [nic.uuid]
    assert registry.refused("network.set", blue, {"gateway": "192.0.2.200"})["holder"] == nic.uuid
    registry.do("network.set", blue, {"subnet": "192.0.0.0/16", "gateway": "192.0.2.1"})


def test_names_are_once_in_a_cluster(registry: Registry) -> None:
    registry.network("blue")
    assert registry.refused("network.add", "", {"name": "blue"})["field"] == "name"
    registry.network("blue", cluster="a.example.com")
    other = registry.network("green")
    assert registry.refused("network.set", other, {"name": "blue"})["field"] == "name"


def test_masters_of_a_network(registry: Registry) -> None:
    """What Ganeti has said is Ganeti's; where it has none the registry's operator decides, until it has."""
    uuid = registry.do("network.add", "", {"name": "net1", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}, GANETI)["uuid"]
    for field, value, command in (
        ("gateway", "192.0.2.2", "gnt-network modify --gateway=ADDRESS net1"),
        ("mac_prefix", "aa:00:00", "gnt-network modify --mac-prefix=PREFIX net1"),
        ("subnet", "192.0.0.0/16", "gnt-network remove net1, and add it anew"),
        ("tags", ["x"], "gnt-network add-tags net1 TAG, or remove-tags"),
        (
            "reserved",
            [{"first": "192.0.2.9", "last": "192.0.2.9"}],
            "gnt-network modify --add-reserved-ips=ADDRESSES net1, or --remove-reserved-ips",
        ),
    ):
        problem = registry.refused("network.set", uuid, {field: value})
        assert (problem["master"], problem["field"], problem["command"]) == ("ganeti:gnt.example.com", field, command)
    registry.do("network.set", uuid, {"subnet6": "2001:db8::/64", "gateway6": "fe80::1", "mtu": 1400, "resolvers": ["192.0.2.53"]})
    problem = registry.refused("network.set", uuid, {"mtu": 1500}, GANETI)
    assert (problem["master"], problem["command"]) == ("registry", "netcommon registry network set net1 mtu=...")
    registry.do("network.set", uuid, {"gateway6": "2001:db8::1", "subnet6": "2001:db8::/64"}, GANETI)
    assert registry.refused("network.set", uuid, {"gateway6": "fe80::1"})["command"] == "gnt-network modify --gateway6=ADDRESS net1"
    registry.do("network.set", uuid, {"gateway6": ""}, GANETI)
    registry.do("network.set", uuid, {"gateway6": "fe80::1"})
    assert registry.refused("network.set", uuid, {"name": "x"}, GANETI._replace(name="other.example.com"))["status"] == 403
    assert registry.refused("network.delete", uuid)["command"] == "gnt-network remove net1"
    registry.do("network.delete", uuid, None, GANETI)


def test_what_ganeti_imports_is_taken_as_it_is(registry: Registry) -> None:
    """A NIC outside its subnet, or with its gateway's address, is there whether it may be or not."""
    uuid = registry.do("network.add", "", {"name": "net1", "subnet": "192.0.2.0/24", "gateway": "192.0.2.1"}, GANETI)["uuid"]
    registry.nic(GANETI, network=uuid, ip="192.0.2.1")
    registry.nic(GANETI, network=uuid, ip="198.51.100.1")
    registry.do("network.set", uuid, {"subnet": "192.0.2.0/25"}, GANETI)
    assert registry.ask("network.set", uuid, {"mtu": 1400}, OPERATOR).status == 200


def test_what_a_network_reserves_is_released_where_it_is_said(registry: Registry) -> None:
    """It is no claim: whoever would release it is told who reserves it, and how that is changed."""
    reserved = [{"first": "192.0.2.50", "last": "192.0.2.60"}]
    said = {"subnet": "192.0.2.0/24", "reserved": reserved}
    theirs = registry.do("network.add", "", {"name": "net1", **said}, GANETI)["uuid"]
    own = registry.network("blue", **said)
    problem = registry.refused("claim.release", f"addresses/{theirs}/192.0.2.55")
    assert (problem["kind"], problem["master"]) == ("forbidden", "ganeti:gnt.example.com")
    assert problem["command"] == "gnt-network modify --remove-reserved-ips=192.0.2.55 net1" and problem["command"] in problem["detail"]
    problem = registry.refused("claim.release", f"addresses/{own}/192.0.2.55")
    assert (problem["kind"], problem["command"]) == ("forbidden", "netcommon registry network set blue reserved=...")
    assert registry.refused("claim.release", f"addresses/{own}/192.0.2.61")["kind"] == "missing"
