"""The uplinks of routed NICs while default routes, rules, devices and VRFs come and go: what was found stays until something as good is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, Link, Neighbour, Route, Rule
from netcommon.host.api.requests import SetLink
from netcommon.lifecycle.check import check, repair
from netcommon.lifecycle.record_upgrade import backfill
from netcommon.operations.routed_uplink import uplinks
from netcommon.operations.sysctl import path_of
from runtime.record import APPLYING, UP
from tests.support.sim import UUIDS, Sim, nic

TABLE, MAIN = 100, 254
PREFIX = {AF_INET: "0.0.0.0/0", AF_INET6: "::/0"}
GUEST = nic("routed, IPv6", TAGS="netcommon:*:uplink_proxy:both netcommon:0:addresses:10.0.0.5")  #: LINK is table 100
FAMILIES = pytest.mark.parametrize("family", PREFIX)


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    """A node whose table main leads to eth-br0, another network than the guests'."""
    made = Sim(str(tmp_path))
    made.host.kernel.rules = [rule for rule in made.host.kernel.rules if rule.iif != "eth-br0"]
    return made


def default(family: int, index: int, table: int = TABLE, metric: int = 1024) -> Route:
    return Route(family, table, PREFIX[family], index, 3, 0, "fe80::1" if family == AF_INET6 else "192.0.2.9", metric)


def lead(sim: Sim, *devices: str, table: int = TABLE) -> None:
    """The default routes of a table, in both families, are these from now on."""
    kernel = sim.host.kernel
    kernel.routes = [route for route in kernel.routes if route.table != table or route.destination not in PREFIX.values()]
    for family in PREFIX:
        for number, device in enumerate(devices):
            kernel.add_route(default(family, sim.index(device), table, 1024 + number))


def vrf(sim: Sim, *ports: str, name: str = "blue", table: int = TABLE) -> Link:
    made = sim.host.add_link(Link(0, name, "vrf", up=True, table=table))
    for port in ports:
        sim.host.add_link(Link(0, port, "", up=True))
        sim.host.kernel.set_link(SetLink(sim.index(port), master=made.index))
    return made


def entries(sim: Sim) -> dict[str, list[str]]:
    """Give of each device the addresses that the node answers for on it, by our mark."""
    found: dict[str, list[str]] = {}
    for entry in sorted(sim.host.kernel.neighbours):
        if entry.protocol == 174:
            found.setdefault(sim.host.kernel.at(entry.index).name, []).append(entry.address)
    return found


BOTH = ["10.0.0.5", "fd00::5"]


def switch(sim: Sim, device: str) -> str | None:
    return sim.host.view().sysctl(path_of(AF_INET6, device, "proxy_ndp"))


def drift(sim: Sim) -> list[str]:
    return sorted({text for _, text in check(sim.node, sim.host.view(), sim.record()).drift})


def mend(sim: Sim) -> bool:
    return repair(sim.node, sim.record().key, sim.call()).changed


def test_a_default_route_that_goes_for_a_moment(sim: Sim) -> None:
    """Neither check, nor repair, nor a second up looks for another uplink meanwhile; and all is good when it comes back."""
    lead(sim, "eth-br1")
    sim.up(GUEST)
    assert (entries(sim), switch(sim, "eth-br1"), switch(sim, "eth-br0")) == ({"eth-br1": BOTH}, "1", "0")
    for _ in range(3):
        lead(sim)
        sim.requests()
        assert drift(sim) == [] and not mend(sim) and not sim.up(GUEST).changed
        assert sim.requests() == [] and entries(sim) == {"eth-br1": BOTH}
        lead(sim, "eth-br1")
        assert drift(sim) == [] and not mend(sim)
    sim.down(GUEST)
    assert (entries(sim), switch(sim, "eth-br1"), sim.records()) == ({}, "0", [])


def test_an_uplink_that_flaps_loses_its_entries_too(sim: Sim) -> None:
    """They come back on it, whether its default route is back or not."""
    lead(sim, "eth-br1")
    sim.up(GUEST)
    sim.host.kernel.set_link(SetLink(sim.index("eth-br1"), up=False))
    assert entries(sim) == {}
    assert mend(sim) and entries(sim) == {"eth-br1": BOTH} and drift(sim) == []
    sim.host.kernel.set_link(SetLink(sim.index("eth-br1"), up=True))
    lead(sim, "eth-br1")
    assert drift(sim) == [] and not mend(sim)


@pytest.mark.parametrize("call", ["repair", "up"])
def test_an_uplink_that_is_made_anew(sim: Sim, call: str) -> None:
    """Nothing can be done meanwhile, and nothing is; it bears another index then."""
    sim.host.add_link(Link(0, "wan0", "", up=True))
    lead(sim, "wan0")
    sim.up(GUEST)
    sim.host.remove_link("wan0")
    assert drift(sim) == [] and not mend(sim) and not sim.up(GUEST).changed and entries(sim) == {}
    sim.host.add_link(Link(0, "wan0", "", up=True))
    assert drift(sim) == [] and not mend(sim) and entries(sim) == {}
    lead(sim, "wan0")
    assert drift(sim) == ["the entry on wan0 is gone", "wan0 is another device now"]
    assert mend(sim) if call == "repair" else sim.up(GUEST).changed
    assert (drift(sim), entries(sim), switch(sim, "wan0"), switch(sim, "eth-br0")) == ([], {"wan0": BOTH}, "1", "0")
    assert len([one for one in sim.record().operations if one["kind"] == "neighbour"]) == 2
    sim.down(GUEST)
    assert (entries(sim), switch(sim, "wan0"), sim.records()) == ({}, "0", [])


def test_an_up_that_was_killed_and_an_uplink_that_went(sim: Sim) -> None:
    """The next up brings the NIC up without it."""
    sim.host.add_link(Link(0, "wan0", "", up=True))
    lead(sim, "wan0")
    sim.up(GUEST)
    sim.node.store.write(sim.record()._replace(state=APPLYING))
    sim.host.remove_link("wan0")
    assert sim.up(GUEST).changed and sim.record().state == UP and (drift(sim), entries(sim)) == ([], {})


def test_a_default_route_that_moves(sim: Sim) -> None:
    """Also by way of a moment without one."""
    lead(sim, "eth-br1")
    sim.up(GUEST)
    lead(sim)
    assert not mend(sim)
    lead(sim, "eth-br2")
    assert drift(sim) == ["uplink is eth-br2 now, not eth-br1"] and mend(sim)
    assert (drift(sim), entries(sim), switch(sim, "eth-br1")) == ([], {"eth-br2": BOTH}, "0")


def test_one_of_several_goes(sim: Sim) -> None:
    lead(sim, "eth-br1", "eth-br2")
    sim.up(GUEST)
    assert entries(sim) == {"eth-br1": BOTH, "eth-br2": BOTH}
    lead(sim)
    assert not mend(sim) and not sim.up(GUEST).changed and entries(sim) == {"eth-br1": BOTH, "eth-br2": BOTH}
    lead(sim, "eth-br2")
    assert mend(sim) and entries(sim) == {"eth-br2": BOTH} and drift(sim) == []


def test_what_is_stronger_takes_over(sim: Sim) -> None:
    """The table's own default route, of main's, which were all there was when the guest came up."""
    sim.up(GUEST)
    assert entries(sim) == {"eth-br0": BOTH}
    lead(sim, "eth-br2", table=MAIN)
    assert drift(sim) == ["uplink is eth-br2 now, not eth-br0"] and mend(sim)
    lead(sim, "eth-br1")
    assert drift(sim) == ["uplink is eth-br1 now, not eth-br2"] and mend(sim)
    assert (drift(sim), entries(sim)) == ([], {"eth-br1": BOTH})


@FAMILIES
def test_a_rule_that_goes_for_a_moment(sim: Sim, family: int) -> None:
    sim.host.kernel.add_rule(rule := Rule(family, 400, "eth-br2", TABLE, 4))
    sim.up(GUEST)
    address = BOTH[family == AF_INET6]
    assert entries(sim)["eth-br2"] == [address]
    sim.host.kernel.delete_rule(rule)
    assert drift(sim) == [] and not mend(sim) and entries(sim)["eth-br2"] == [address]


@pytest.mark.parametrize("flapping", [False, True])
def test_a_record_of_an_earlier_version(sim: Sim, flapping: bool) -> None:
    """It does not tell how its uplinks were found: that is filled in where it can be told, and it follows what is there now."""
    lead(sim, "eth-br1")
    sim.up(GUEST)
    path = Path(sim.paths.state, "nics", UUIDS[0] + ".json")
    stored = json.loads(path.read_bytes())
    for operation in stored["operations"]:
        operation.pop("found_by", None)
    path.write_text(json.dumps(stored | {"schema": 3}))
    if flapping:
        lead(sim)
    assert backfill(sim.node, UUIDS[0], sim.call())
    lead(sim)
    assert mend(sim) == flapping
    lead(sim, "eth-br1")
    assert mend(sim) == flapping
    assert (drift(sim), entries(sim)) == ([], {"eth-br1": BOTH})


def test_the_table_of_a_vrf(sim: Sim) -> None:
    """Its ports, but for guests; not main's uplinks, which are another network's. A port that goes for a moment keeps its place."""
    blue = vrf(sim, "eth8", "eth9")
    sim.tap("tap7")
    sim.host.kernel.set_link(SetLink(sim.index("tap7"), master=blue.index))
    sim.up(GUEST)
    assert entries(sim) == {"eth8": BOTH, "eth9": BOTH}
    assert (switch(sim, "eth8"), switch(sim, "eth-br0"), switch(sim, "blue"), drift(sim)) == ("1", "0", "0", [])
    for port in ("eth8", "eth9"):
        sim.host.kernel.set_link(SetLink(sim.index(port), master=0))
    sim.host.remove_link("blue")
    assert drift(sim) == [] and not mend(sim)
    lead(sim, "eth9")
    assert mend(sim) and (drift(sim), entries(sim)) == ([], {"eth9": BOTH})


def test_the_vrfs_own_default_route(sim: Sim) -> None:
    vrf(sim, "eth8", "eth9")
    lead(sim, "eth9")
    sim.host.kernel.routes.append(default(AF_INET6, 0)._replace(type=7, metric=4278198272))  # what VRFs are advised to have
    sim.up(GUEST)
    assert entries(sim) == {"eth9": BOTH}
    lead(sim)
    assert drift(sim) == [] and not mend(sim)


def test_a_vrf_without_ports(sim: Sim) -> None:
    """Nobody answers anywhere, and the up says so; its ports are found when it has some."""
    sim.up(GUEST)
    assert entries(sim) == {"eth-br0": BOTH}  # before there was a VRF
    blue = vrf(sim)
    assert drift(sim) == ["uplink is nothing now, not eth-br0"] and mend(sim)
    assert (entries(sim), switch(sim, "eth-br0"), drift(sim)) == ({}, "0", [])
    assert any("table guests has no IPv6 default route, and its VRF no port" in line for line in sim.lines)
    sim.host.add_link(Link(0, "eth8", "", up=True))
    sim.host.kernel.set_link(SetLink(sim.index("eth8"), master=blue.index))
    assert drift(sim) == ["uplink is eth8 now, not nothing"] and mend(sim)
    assert (entries(sim), drift(sim)) == ({"eth8": BOTH}, [])
    sim.down(GUEST)
    assert (entries(sim), sim.records()) == ({}, [])


@pytest.mark.parametrize("way", ["default", "multipath", "rule"])
def test_what_leads_to_a_vrf_leads_to_its_ports(sim: Sim, way: str) -> None:
    blue, where = vrf(sim, "eth8", "eth9", table=300), TABLE
    if way == "rule":
        sim.host.kernel.add_rule(Rule(AF_INET6, 400, "blue", TABLE, 4))
    elif way == "default":
        lead(sim, "blue", table=(where := MAIN))
    else:
        sim.host.kernel.routes.append(default(AF_INET6, 0)._replace(paths=(blue.index, sim.index("eth-br2"))))
    found = uplinks(sim.host.view(), AF_INET6, where)
    assert found.names == ("eth8", "eth9", "eth-br2")[: 3 if way == "multipath" else 2]
    lead(sim, "eth9", table=300)
    assert uplinks(sim.host.view(), AF_INET6, where).names[0] == "eth9"


def test_vrfs_that_lead_into_each_other(sim: Sim) -> None:
    """By mistake, and without an end."""
    vrf(sim, "eth8"), vrf(sim, "eth9", name="red", table=300)
    lead(sim, "red"), lead(sim, "blue", table=300)
    assert uplinks(sim.host.view(), AF_INET6, TABLE).names == ("eth8",)


def test_somebody_elses_entry_on_an_uplink_that_waits(sim: Sim) -> None:
    lead(sim, "eth-br1")
    theirs = Neighbour(AF_INET6, "fd00::5", sim.index("eth-br1"), 4)
    sim.host.kernel.add_neighbour(theirs)
    sim.up(GUEST)
    lead(sim)
    assert not mend(sim)
    sim.down(GUEST)
    assert theirs in sim.host.kernel.neighbours and entries(sim) == {}
