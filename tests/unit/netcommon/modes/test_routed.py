"""Plans of routed NICs with options, and what of their operations the golden folders do not show."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, Address, Link, Route, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddRoute, DeleteRoute, Request, SetLink
from netcommon.host.linux.sockets import merged
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle import batch, check
from netcommon.lifecycle.check import repair
from netcommon.operations.base import FOREIGN, Operation
from netcommon.operations.blackhole import Blackhole
from netcommon.operations.link import LinkSetting
from netcommon.plan.planner import plan
from netcommon.settings.model import Settings
from runtime.environment import DownHint
from runtime.errors import HostRefused, NicInvalid
from runtime.nic import Nic
from runtime.record import CLOSING, UP, Record
from runtime.store import Store
from tests.support.sim import UUIDS, Sim, nic


def kinds(operations: list[Operation]) -> list[str]:
    return [operation.KIND for operation in operations]


def planned(mode: str = "routed, IPv6", *options: str, **changes: str) -> list[Operation]:
    return plan(nic(mode, TAGS=" ".join(f"netcommon:0:{each}" for each in options), **changes), Settings())


def test_an_uplinks_switch_stays_while_something_is_in_quarantine(sim: Sim) -> None:
    """A record that cannot be read may need it, and the kernel has no place for a mark: the records alone tell."""
    path = "net/ipv6/conf/eth-br0/proxy_ndp"
    assert sim.host.view().sysctl(path) == "0"
    sim.up(nic("routed, IPv6"))
    assert sim.host.view().sysctl(path) == "1"
    kept = Path(sim.paths.state, "quarantine")
    kept.mkdir()
    (kept / "00000009-0000-4000-8000-000000000009.json.1.0").write_text("?")
    sim.down(nic("routed, IPv6"))
    assert sim.host.view().sysctl(path) == "1" and sim.records() == []
    assert any(f"kept, shared with whoever is in quarantine: echo 1 >/proc/sys/{path}" in line for line in sim.lines)


def test_an_uplinks_switch_goes_with_its_last_nic(sim: Sim) -> None:
    sim.up(nic("routed, IPv6"))
    sim.down(nic("routed, IPv6"))
    assert sim.host.view().sysctl("net/ipv6/conf/eth-br0/proxy_ndp") == "0"


def other(**changes: str) -> Nic:
    """Another NIC, on tap1, that has the first one's address."""
    return nic("routed", **{"INTERFACE": "tap1", "INTERFACE_UUID": UUIDS[1], "INSTANCE": "web2", **changes})


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        (4242, "10.0.0.5/32 leads to tap0: its guest loses it, two NICs have one address"),
        (0, "10.0.0.5/32 leads to tap0, where web1/0 is up: two NICs have one address; if that guest is gone: netcommon down tap0"),
    ],
)
def test_an_address_that_another_nic_has(sim: Sim, holder: int, said: str) -> None:
    """With or without a process at its device; and it is said once, not by each up after it."""
    sim.host.remove_link("tap0")
    sim.tap("tap0", holder)
    sim.tap("tap1")
    sim.up(nic("routed"))
    sim.up(other())
    assert [line for line in sim.lines if "one address" in line and said in line]
    del sim.lines[:]
    sim.up(other())
    assert not [line for line in sim.lines if "one address" in line]


def leads_to(sim: Sim) -> list[int]:
    return [route.index for route in sim.host.view().routes(AF_INET, None, "10.0.0.5/32")]


@pytest.mark.parametrize("together", [False, True])
def test_an_up_that_fails_gives_the_address_back(sim: Sim, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had taken from another NIC, which is up, leads there again."""
    sim.tap("tap1")
    sim.up(nic("routed"))
    assert leads_to(sim) == [sim.index("tap0")]
    real = Store.write

    def write(self: Store, record: Record, earlier: Record | None = None) -> None:
        if record.state == UP and record.device == "tap1":
            assert leads_to(sim) == [sim.index("tap1")]
            raise HostRefused("refused by the test")
        real(self, record, earlier)

    monkeypatch.setattr(Store, "write", write)
    if together:
        (_nic, result), *_ = batch.up_all(sim.node, [other()], lambda _nic: sim.call())
        assert isinstance(result, HostRefused)
    else:
        with pytest.raises(HostRefused):
            sim.up(other())
    assert leads_to(sim) == [sim.index("tap0")] and len(sim.records()) == 1
    assert any("has its address back: web1/0 on tap0: repaired ip -4 route replace 10.0.0.5/32 dev tap0" in line for line in sim.lines)


def third(**changes: str) -> Nic:
    return other(**{"INTERFACE": "tap2", "INTERFACE_UUID": UUIDS[2], "INSTANCE": "web3", **changes})


@pytest.mark.parametrize("by", ["down", "many", "gc", "device gone", "another address", "another NIC on its device", "another mode"])
def test_who_goes_gives_the_address_back(sim: Sim, by: str) -> None:
    """To the NIC that had it before, at once, whichever way the other one lets go of it."""
    sim.tap("tap1")
    sim.up(nic("routed"))
    sim.up(other())
    assert leads_to(sim) == [sim.index("tap1")]
    gone = other()
    if by == "down":
        sim.down(gone)
    elif by == "many":
        hint = DownHint(gone.uuid, gone.interface, gone.instance, gone.index, gone.mac)
        assert [result.changed for _hint, result in batch.down_all(sim.node, [hint], lambda _hint: sim.call("hot-remove"))] == [True]  # type: ignore[union-attr]
    elif by in ("gc", "device gone"):
        sim.host.remove_link("tap1")
        assert sim.gc() if by == "gc" else sim.down(gone).changed
    elif by == "another address":
        sim.up(other(IP="10.0.0.9"))
    elif by == "another mode":
        sim.up(nic("bridged", INTERFACE="tap1", INTERFACE_UUID=gone.uuid))
    else:
        sim.host.remove_link("tap1")
        sim.tap("tap1")
        sim.up(third(INTERFACE="tap1", IP="10.0.0.9"))
    assert leads_to(sim) == [sim.index("tap0")]
    assert any("has its address back: web1/0 on tap0" in line for line in sim.lines)


def test_who_had_it_last_gets_it_back(sim: Sim) -> None:
    """And the one before that when it goes too; who took it back by a repair lets go of it as well."""
    sim.tap("tap1")
    sim.tap("tap2")
    for each in (nic("routed"), other(), third()):
        sim.up(each)
    sim.down(third())
    assert leads_to(sim) == [sim.index("tap1")]
    assert repair(sim.node, nic("routed").uuid, sim.call()).changed and leads_to(sim) == [sim.index("tap0")]
    sim.down(nic("routed"))
    assert leads_to(sim) == [sim.index("tap1")]
    sim.down(other())
    assert leads_to(sim) == []


def test_an_address_that_a_third_has_stays_there(sim: Sim) -> None:
    sim.tap("tap1")
    sim.tap("tap2")
    for each in (nic("routed"), other(), third()):
        sim.up(each)
    sim.down(other())
    assert leads_to(sim) == [sim.index("tap2")]


def test_two_nics_with_one_address_in_one_batch(sim: Sim) -> None:
    """As one by one: the second is warned of, and has it."""
    sim.tap("tap1")
    assert all(result.changed for _nic, result in batch.up_all(sim.node, [nic("routed"), other()], lambda _nic: sim.call()))  # type: ignore[union-attr]
    assert leads_to(sim) == [sim.index("tap1")]
    assert [line for line in sim.lines if "10.0.0.5/32 leads to tap0" in line and "two NICs have one address" in line]


def test_a_route_that_came_since_it_was_looked_for_stays(sim: Sim) -> None:
    """The NIC is refused, and leaves nothing; somebody else's route is as it was."""
    before = sim.picture()
    theirs: list[Route] = []

    def comes(request: Request) -> Answer | None:
        if isinstance(request, AddRoute):
            theirs.append(request.route._replace(index=sim.index("eth-br0"), protocol=4))
            sim.host.kernel.add_route(theirs[0])
        return None

    sim.host.fail = comes
    with pytest.raises(HostRefused):
        sim.up(nic("routed"))
    sim.host.kernel.delete_route(*theirs)
    assert sim.picture() == before


def unheld(sim: Sim) -> None:
    """The tap is up before its NIC, and stays up: nobody holds it, and could send by it."""
    sim.host.persistent.add("tap0")
    sim.host.let_go("tap0")
    sim.host.execute([SetLink(sim.index("tap0"), up=True)], stop=True)


@pytest.mark.parametrize("changes", [{"metric": 50}, {"protocol": 3, "metric": 50}, {"scope": 0, "metric": 50}])
def test_somebody_elses_route_to_the_guest_stays(sim: Sim, changes: dict[str, int]) -> None:
    """Also one with our protocol: the kernel would take it for ours, whose metric is none."""
    unheld(sim)
    sim.up(nic("routed"))
    (ours,) = sim.host.view().routes(AF_INET, None, "10.0.0.5/32")
    theirs = ours._replace(**changes)
    sim.host.execute([DeleteRoute(ours), AddRoute(theirs)], stop=True)
    sim.down(nic("routed"))
    assert list(sim.host.view().routes(AF_INET, None, "10.0.0.5/32")) == [theirs]


@pytest.mark.parametrize("case", ["down", "closing", "gone", "the same NIC elsewhere"])
def test_an_address_whose_former_nic_is_on_its_way_out(sim: Sim, case: str) -> None:
    """What every replacement of a guest meets, with a down that is late, is no matter for a warning."""
    sim.tap("tap1")
    sim.up(nic("routed"))
    if case == "down":
        sim.down(nic("routed"))
    elif case == "closing":
        sim.shutdown(nic("routed"))
        assert [record.state for record in sim.records()] == [CLOSING]
    if case == "gone":
        sim.host.remove_link("tap0")
    else:
        kernel = sim.host.kernel
        kernel.links[sim.index("tap0")] = kernel.links[sim.index("tap0")]._replace(holders=0)
    sim.up(other() if case != "the same NIC elsewhere" else nic("routed", INTERFACE="tap1"))
    assert not [line for line in sim.lines if "one address" in line]


def test_a_nic_without_any_address() -> None:
    with pytest.raises(NicInvalid, match=r"IP=.*addresses, prefixes or eui64"):
        planned("routed", IP="")
    with pytest.raises(NicInvalid, match="IP="):
        planned("routed", "eui64", IP="")  # no subnet


@pytest.mark.parametrize("option", ["addresses:fd00::5", "prefixes:fd00::/64", "eui64"])
def test_ipv6_alone(option: str) -> None:
    made = planned("routed, table", option, IP="", NETWORK_SUBNET6="fd00::/64")
    families = {operation._asdict().get("family") for operation in made if operation.KIND in ("rule", "route", "neighbour")}
    assert families == {AF_INET6}


def test_where_the_uplink_is_left_alone() -> None:
    assert {"neighbour", "uplink-sysctl"} & set(kinds(planned("routed, IPv6", "uplink_proxy:off"))) == set()
    assert {"neighbour", "uplink-sysctl"} & set(kinds(planned("routed"))) == set()
    assert kinds(planned("routed", "uplink_proxy:both")).count("neighbour") == 1
    assert "uplink-sysctl" not in kinds(planned("routed", "uplink_proxy:both"))
    assert {"neighbour", "uplink-sysctl"} & set(kinds(planned("routed, IPv6", IP="fd00::/64"))) == set()
    assert {"neighbour", "uplink-sysctl"} & set(kinds(planned("routed, IPv6", IP="fe80::5"))) == set()


def test_the_routes_come_last_and_the_prefixes_after_the_way_to_them() -> None:
    made = kinds(planned("routed", "addresses:fd00::5", "prefixes:10.9.0.0/24", "prefixes:fd02::/64", "blackhole"))
    assert made[-8:] == ["blackhole"] * 4 + ["route", "prefix-route", "route", "prefix-route"]


def test_tap_mac_comes_before_up() -> None:
    made = [operation for operation in planned("routed", "tap_mac:fe:00:00:00:00:01") if isinstance(operation, LinkSetting)]
    assert [operation.setting for operation in made] == ["alias", "address", "master", "up"]
    with pytest.raises(NicInvalid, match="MAC="):
        planned("routed", "tap_mac:aa:00:00:00:00:01")


@pytest.mark.parametrize(
    ("gateway", "options", "expected"),
    [
        ("", [], []),
        ("fd00::1", [], ["gateway-neighbour"]),
        ("fd00::1", ["gateway_link_local"], ["address", "gateway-neighbour"]),
        ("fe80::1", [], ["address"]),
        ("fe80::1", ["gateway_link_local"], ["address"]),
        ("fe80::2", ["gateway_link_local"], ["address", "address"]),
        ("fd00::5", [], []),  # the guest's own
    ],
)
def test_gateways(gateway: str, options: list[str], expected: list[str]) -> None:
    made = planned("routed, IPv6", *options, NETWORK_GATEWAY6=gateway)
    assert [kind for kind in kinds(made) if kind in ("address", "gateway-neighbour")] == expected
    if gateway:
        assert "gateway-neighbour" not in kinds(planned("routed", NETWORK_GATEWAY6=gateway))  # no IPv6, no gateway


@pytest.mark.parametrize("length", [64, 128])
def test_a_foreign_address_is_left(sim: Sim, length: int) -> None:
    """Whatever its length. On a kernel that keeps no mark too, where the record alone says whose it is."""
    six = nic("routed, IPv6", TAGS="netcommon:0:gateway_link_local")
    tap = sim.index("tap0")
    unheld(sim)  # a device that goes down loses it
    sim.host.kernel.addresses.append(Address(AF_INET6, "fe80::1", length, tap, 0))
    sim.up(six)
    assert not sim.up(six).changed
    assert [one["found"] for one in sim.record().operations if one["kind"] == "address"] == [FOREIGN]
    sim.down(six)
    assert sim.host.kernel.addresses == [Address(AF_INET6, "fe80::1", length, tap, 0)]
    sim.host.kernel.addresses.clear()
    sim.up(six)
    sim.host.kernel.addresses = [one._replace(protocol=0) for one in sim.host.kernel.addresses]  # the old kernel's answer
    assert not sim.up(six).changed
    sim.down(six)
    assert sim.host.kernel.addresses == []


def test_somebodys_ipv6_route_that_comes_first(sim: Sim) -> None:
    """One of a lower metric than ours: the NIC is refused, as with IPv4; made since, it is drift. By the tap itself it does no harm."""
    one, uplink = nic("routed, IPv6"), sim.index("eth-br0")
    sim.up(one)
    (ours,) = (each for each in sim.host.view().routes(AF_INET6) if each.index == sim.index("tap0") and each.destination.endswith("/128"))
    theirs = ours._replace(index=uplink, protocol=186, metric=20)
    sim.host.kernel.add_route(theirs._replace(index=ours.index))
    assert check.check(sim.node, sim.host.view(), sim.record()).good
    sim.host.kernel.add_route(theirs)
    (drift,) = check.check(sim.node, sim.host.view(), sim.record()).drift
    assert drift[1] == "a route of metric 20 comes first, by eth-br0 (protocol 186)"
    with pytest.raises(HostRefused, match="is already routed to eth-br0"):
        check.repair(sim.node, sim.record().key, sim.call())
    sim.down(one)
    with pytest.raises(HostRefused, match="is already routed to eth-br0"):
        sim.up(one)


def test_a_route_in_the_blackholes_place(sim: Sim) -> None:
    """Whatever is there by another's hand: a blackhole is left, a route that leads somewhere is in the way."""
    made = Blackhole(AF_INET6, "fd00::5/128", "guests")
    theirs = Route(AF_INET6, 100, "fd00::5/128", 1, 4, 0, metric=1025, type=6)
    sim.host.kernel.add_route(theirs)
    (resolved,) = made.resolve(sim.host.view(), [])
    assert resolved.apply() == resolved.revert(sim.host.view()) == [] and resolved.differs(sim.host.view()) == ""
    sim.host.kernel.add_route(theirs._replace(type=1, index=sim.index("eth-br0")))
    with pytest.raises(HostRefused, match=r"metric 1025.*protocol 4"):
        made.resolve(sim.host.view(), [])


def test_reverse_path_filter_of_all_is_told(sim: Sim) -> None:
    sim.host.kernel.settings.write("net/ipv4/conf/all/rp_filter", "1")
    sim.up(nic("routed", TAGS="netcommon:0:rp_filter:off"))
    assert [line for line in sim.lines if "all.rp_filter is 1" in str(line)]


def test_an_uplink_without_forwarding_is_told(sim: Sim) -> None:
    sim.host.kernel.settings.write("net/ipv6/conf/eth-br0/forwarding", "0")
    sim.up(nic("routed, IPv6", LINK=""))
    assert [line for line in sim.lines if "eth-br0.forwarding is 0" in str(line)]


@pytest.mark.parametrize("table", ["", "main"])
def test_a_guest_is_no_uplink(sim: Sim, table: str) -> None:
    """The node's default route may lead to a guest that is a router: not even that one's own address is answered for on its tap."""
    kernel = sim.host.kernel
    kernel.routes = [route for route in kernel.routes if route.destination != "::/0"]
    kernel.set_link(SetLink(sim.index("tap0"), up=True))
    kernel.add_route(Route(AF_INET6, 254, "::/0", sim.index("tap0"), 3, 0, "fd00::5", 1024))
    sim.up(nic("routed, IPv6", LINK=table))
    assert [entry for entry in kernel.neighbours if entry.protocol == 174] == []
    assert [line for line in sim.lines if ": table main has no IPv6 default route" in str(line)]


@pytest.mark.parametrize("call", ["second up", "repair"])
def test_a_table_is_listed_once_whatever_the_number_of_addresses(sim: Sim, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The kernel tells a table only as a whole, thousands of routes on some nodes: twice as many addresses are no list more."""
    lists = []

    def listed(view: MemoryView, family: int, table: int | None = None) -> object:
        lists.append((family, table))
        found = routes(view, family, table)
        return SimpleNamespace(to=lambda destination, _metric: [route for route in found if route.destination == destination])

    def asked(view: MemoryView, family: int, table: int | None = None, destination: str | None = None) -> object:
        lists.append((family, table))
        return routes(view, family, table, destination)

    routes = MemoryView.routes
    monkeypatch.setattr(MemoryView, "route_list", listed)
    monkeypatch.setattr(MemoryView, "routes", asked)
    counted = []
    for more in ("", "addresses:10.0.0.6 netcommon:0:addresses:10.0.0.7 netcommon:0:addresses:10.0.0.8"):
        guest = nic("routed, table", TAGS=f"netcommon:0:{more}" if more else "")
        sim.up(guest)
        sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap0", 100))  # there is something to mend
        lists.clear()
        if call == "repair":
            assert check.repair(sim.node, UUIDS[0], sim.call()).changed
        else:
            assert sim.up(guest).changed
        counted.append(sorted(lists))
        sim.down(guest)
    assert counted[0] == counted[1] != []


def test_a_node_whose_new_devices_have_no_ipv6(sim: Sim) -> None:
    """The guest has an IPv6 address, so its tap has IPv6, whoever takes it away meanwhile; after the NIC it is as it was."""
    setting, settings = "net/ipv6/conf/tap1/disable_ipv6", sim.host.kernel.settings
    settings.write("net/ipv6/conf/default/disable_ipv6", "1")
    sim.tap("tap1")
    six = nic("routed, IPv6", INTERFACE="tap1")
    sim.up(six)
    assert settings.get(setting) == "0" and sim.host.view().routes(AF_INET6, 100, "fd00::5/128")
    settings.write(setting, "1")
    assert "repaired echo 0 >/proc/sys/" + setting in check.repair(sim.node, UUIDS[0], sim.call()).text
    assert settings.get(setting) == "0"
    sim.down(six)
    assert settings.get(setting) == "1"
    sim.up(nic("routed", INTERFACE="tap1"))
    assert settings.get(setting) == "1"  # nothing of its business


@pytest.mark.parametrize("mend", ["repair", "second up", "down and up"])
def test_a_tap_that_somebody_puts_into_a_bridge(sim: Sim, mend: str) -> None:
    """The bridge would take the guest's frames: it is drift, and never again what is put back."""
    sim.up(nic("routed"))
    if mend == "down and up":
        sim.host.persistent.add("tap0")
    sim.host.execute([SetLink(sim.index("tap0"), master=sim.index("br0"))], stop=True)
    (report,) = [check.check(sim.node, sim.host.view(), record) for record in sim.records()]
    assert report.drift == (("ip link set dev tap0 nomaster", "it is a port of br0"),)
    if mend == "repair":
        assert check.repair(sim.node, UUIDS[0], sim.call()).changed
    elif mend == "second up":
        assert sim.up(nic("routed")).changed
    else:
        sim.down(nic("routed"))
        assert sim.host.kernel.links[sim.index("tap0")].master == sim.index("br0")  # somebody's own, and of no NIC now
        with pytest.raises(HostRefused, match="tap0 is a port of br0, so nothing can be routed to it"):
            sim.up(nic("routed"))
        return
    assert sim.host.kernel.links[sim.index("tap0")].master == 0
    assert not sim.up(nic("routed")).changed
    sim.down(nic("routed"))
    assert not sim.host.kernel.links[sim.index("tap0")].master


@pytest.mark.parametrize(
    ("address", "protocol", "lost"), [("2001:db8:77::1", 0, True), ("2001:db8:77::1", 2, False), ("fe80::9", 0, False)]
)
def test_somebodys_ipv6_addresses_are_not_lost(sim: Sim, address: str, protocol: int, lost: bool) -> None:
    """A NIC without IPv6 and without the guard has it off on its tap. Those of router advertisements come again."""
    before = sim.picture()
    sim.host.kernel.addresses.append(Address(AF_INET6, address, 64, sim.index("tap0"), protocol))
    without = nic("routed", TAGS="netcommon:*:spoof_guard:no")
    if lost:
        with pytest.raises(HostRefused, match="has the IPv6 address 2001:db8:77::1, which it would lose"):
            sim.up(without)
        assert sim.host.kernel.addresses and sim.records() == []
        sim.host.kernel.addresses.clear()
    sim.up(without)
    sim.host.kernel.addresses.clear()
    sim.down(without)
    assert sim.picture() == before
    sim.host.kernel.addresses.append(Address(AF_INET6, address, 64, sim.index("tap0"), protocol))
    sim.up(nic("routed", TAGS="netcommon:*:spoof_guard"))


def test_being_no_port_costs_no_message(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """It travels with the request that takes the device up."""
    asked: list[Request] = []
    real = sim.host.execute
    monkeypatch.setattr(sim.host, "execute", lambda requests, stop: [asked.extend(requests), real(requests, stop=stop)][1])
    sim.up(nic("routed"))
    tap = sim.index("tap0")
    assert [SetLink(tap, master=0), SetLink(tap, up=True)] in merged(asked)


def test_a_tap_in_a_vrf_is_routed_still(sim: Sim) -> None:
    """As a script of the site may have it, after ours."""
    sim.up(nic("routed"))
    kernel, index = sim.host.kernel, sim.index("tap0")
    kernel.links[index] = kernel.links[index]._replace(master=sim.index("br1"), port_kind="vrf")
    assert [check.check(sim.node, sim.host.view(), record).drift for record in sim.records()] == [()]


@pytest.mark.parametrize(
    ("mode", "words", "mine"),
    [
        ("routed", {}, "10.0.0.5"),
        ("routed, table", {}, "10.0.0.5"),
        ("routed, IPv6", {}, "fd00::5"),
        ("routed", {"TAGS": "netcommon:0:addresses:fd00::6"}, "fd00::6"),
        ("routed", {"TAGS": "netcommon:0:prefixes:10.9.0.9/32"}, "10.9.0.9"),
    ],
)
def test_an_address_of_the_node_itself_is_refused(sim: Sim, mode: str, words: dict[str, str], mine: str) -> None:
    """With 69, for the description is right: the node is in the way. Nothing is changed, whichever device has it, by whichever length."""
    family = AF_INET6 if ":" in mine else AF_INET
    sim.host.kernel.addresses.append(Address(family, mine, 24 if family == AF_INET else 64, sim.index("br1"), 0))
    before = sim.picture()
    with pytest.raises(HostRefused, match="is an address of this node itself") as refused:
        sim.up(nic(mode, **words))
    assert refused.value.status == 69 and sim.picture() == before and sim.records() == []


@pytest.mark.parametrize("mode", ["routed, prefix", "routed, all options", "bridged"])
def test_what_the_node_has_of_a_guests_network_is_not(sim: Sim, mode: str) -> None:
    """A gateway on a bridge, an address in a prefix that is the guest's, and whatever a bridged guest and the node both claim."""
    for address in ("10.9.0.1", "fd01::1", "10.0.0.1", "10.0.0.7"):
        family, length = (AF_INET6, 64) if ":" in address else (AF_INET, 24)
        sim.host.kernel.addresses.append(Address(family, address, length, sim.index("br0"), 0))
    given = {"IP": "10.0.0.7"} if mode == "bridged" else {}
    assert sim.up(nic(mode, **given)).changed
    assert not check.check(sim.node, sim.host.view(), sim.record()).drift


def test_the_network_of_a_vrf_may_have_the_nodes_address_again(sim: Sim) -> None:
    sim.host.kernel.addresses.append(Address(AF_INET, "10.0.0.5", 24, sim.index("br1"), 0))
    sim.host.add_link(Link(0, "red", "vrf", up=True, table=100))
    assert sim.up(nic("routed, table")).changed


def test_the_node_that_takes_a_guests_address_is_named(sim: Sim) -> None:
    """Nothing reaches the guest then, and no repair can change that: it is refused, and says so."""
    sim.up(nic("routed"))
    theirs = Address(AF_INET, "10.0.0.5", 24, sim.index("br1"), 0)
    sim.host.kernel.addresses.append(theirs)
    before = sim.picture()
    assert [text for _step, text in check.check(sim.node, sim.host.view(), sim.record()).drift] == [
        "10.0.0.5 is an address of this node itself, which gets what is for it: no route leads it to a guest"
    ]
    with pytest.raises(HostRefused, match="is an address of this node itself"):
        repair(sim.node, UUIDS[0], sim.call())
    assert sim.picture() == before
    sim.host.kernel.addresses.remove(theirs)
    assert not repair(sim.node, UUIDS[0], sim.call()).changed
