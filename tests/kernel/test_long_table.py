"""What is asked of a table that is too long to be listed: the kernel's whole list gives the same answer, whatever stands in the table."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterable
from ipaddress import ip_network

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, PROTOCOL, Route
from netcommon.host.api.requests import AddRoute
from netcommon.host.linux.host import LinuxHost
from netcommon.host.linux.memo_view import MemoView
from netcommon.host.rtnetlink.long_table import LongTable
from netcommon.operations.route import GuestRoute
from tests.support import full_table
from tests.support.full_table import MAIN
from tests.support.netns import run, sysctl
from tests.support.node import Node
from tests.support.sample import FULL

#: Enough for a table to be too long to be listed.
LONG = 12_000
DRAWN = 400 if FULL else 60
BOTH = pytest.mark.parametrize("family", [AF_INET, AF_INET6])
VIA = {AF_INET: "198.18.0.2", AF_INET6: "2001:db8:ff::2"}
EVERYTHING = {AF_INET: "0.0.0.0/0", AF_INET6: "::/0"}
METRICS = {AF_INET: (0, 1), AF_INET6: (1024, 1025)}  #: of a guest's route, and of its blackhole


@pytest.fixture
def long(node: Node) -> Node:
    """A node with three links, of which dark has no carrier, default routes, and a long table main in both families."""
    for number, name in enumerate(("up0", "up1")):
        node.outside(name, f"198.18.{number}.2/24")
        node.address(name, f"198.18.{number}.1/24", f"2001:db8:ff{number or ''}::1/64")
    node.tap("dark", persistent=True).close()
    run("ip", "link", "set", "dark", "up")
    node.forwarding(ipv6=True)
    for family, via in VIA.items():
        full_table.change(family, LONG, via)
        run("ip", _option(family), "route", "add", "default", "via", via, "metric", "50")
    for number, device in ((5, "up1"), (6, "up0")):
        run("ip", "nexthop", "add", "id", str(number), "dev", device)
        run("ip", "-6", "nexthop", "add", "id", str(number + 10), "dev", device)
    return node


def _option(family: int) -> str:
    return "-4" if family == AF_INET else "-6"


def whole(family: int, destination: str, table: int = MAIN) -> list[Route]:
    """The kernel's whole list, one destination of it."""
    return [route for route in LinuxHost().view().routes(family) if (route.table, route.destination) == (table, destination)]


def pictured() -> str:
    """All that ``ip`` shows of routes other than the daemon's."""
    return "".join(
        line
        for family in ("-4", "-6")
        for line in subprocess.check_output(["ip", family, "route", "show", "table", "all"], text=True).splitlines(True)
        if " proto bgp " not in line and " proto 186 " not in line
    )


def led(routes: Iterable[Route]) -> set[int]:
    """The devices by which somebody else's routes lead."""
    return {at for each in routes if each.type == 1 and each.protocol != PROTOCOL for at in each.paths or (each.index,)}


def same(answer: list[Route], listed: list[Route], family: int, metric: int) -> bool:
    """Whether the answer has all of the list that matters (netcommon.host.api.host.View.routes)."""

    def matters(routes: list[Route]) -> list[Route]:
        return [route for route in routes if (route.metric == metric if family == AF_INET else route.metric <= metric)]

    found, wanted = matters(answer), matters(listed)
    ours_alone = len(found) == 1 and (found[0].protocol, found[0].metric) == (PROTOCOL, metric) and (found[0].type == 6 or first(found[0]))
    return set(answer) <= set(listed) and (sorted(found) == sorted(wanted) or ours_alone)


def first(route: Route) -> bool:
    """Whether ``ip route get`` finds the route, so that packets follow it."""
    address, _, _length = route.destination.partition("/")
    ends = ip_network(route.destination)
    words = ["ip", "-j", _option(route.family), "route", "get", "fibmatch"]
    for each in (address, str(ends[-1])):
        got = subprocess.run([*words, each], capture_output=True, check=False).stdout
        for found in json.loads(got or b"[]"):
            if (found["dst"].partition("/")[0], found.get("metric", 0), found.get("protocol")) == (address, route.metric, str(PROTOCOL)):
                return True
    return False


def drawn(family: int, dice: random.Random, destination: str) -> list[str]:
    """Draw the words of ``ip route`` for one route that may stand in a guest's way, or beside it."""
    version4 = family == AF_INET
    kind = dice.choice(("", "", "", "", "throw", "unreachable", "blackhole", "prohibit"))
    ways = [f"dev {dice.choice(('up0', 'up1', 'dark'))}"] * 2 + [f"via {VIA[family]}", f"nhid {ids(family)}"]
    ways.append(f"nexthop via {VIA[family]} nexthop dev up1" if version4 else f"nexthop via {VIA[family]} nexthop via 2001:db8:ff1::2")
    way = "" if kind else dice.choice(ways)
    metric = dice.choice(("", "metric 1", "metric 5") if version4 else ("", "metric 5", "metric 1023", "metric 1025", "metric 4096"))
    tos = dice.choice(("", "", "", "tos 0x10", "tos 0xfc")) if version4 else ""
    scope = "scope link" if version4 and way.startswith("dev") else ""
    protocol, table = dice.choice((3, 4, 174, 174, 186)), dice.choice(("", "", "", "table 100", "table local"))
    return f"{kind} {destination} {tos} {metric} proto {protocol} {table} {scope} {way}".split()


def ids(family: int) -> int:
    """The nexthop of a family that leads to up1."""
    return 5 if family == AF_INET else 15


@BOTH
def test_the_answer_is_that_of_the_whole_list(long: Node, family: int) -> None:
    """Destinations with routes drawn by seed: added, appended and put in front; and nothing is changed by asking."""
    dice = random.Random(family)
    lengths = (32, 32, 24, 31) if family == AF_INET else (128, 128, 64, 127)
    network = "10.{1}.{0}.0" if family == AF_INET else "2001:db8:9:{:x}::"
    destinations = [str(ip_network(f"{network.format(number % 256, 9 + number // 256)}/{dice.choice(lengths)}")) for number in range(DRAWN)]
    made = 0
    for destination in destinations:
        for _each in range(dice.choice((0, 1, 1, 2, 3))):
            words = ["ip", _option(family), "route", dice.choice(("add", "append", "prepend")), *drawn(family, dice, destination)]
            made += subprocess.run(words, capture_output=True, check=False).returncode == 0
    assert made > DRAWN / 2
    before = pictured()
    host, cheap, routed = LinuxHost(), 0, 0
    every = [route for route in host.view().routes(family) if route.table == MAIN]
    snapshot = host.snapshot()
    for destination in [*destinations, next(full_table.prefixes(family, 1))]:
        listed = [route for route in every if route.destination == destination]
        routed += bool(listed)
        for metric in METRICS[family]:
            for seen in (host.view(), MemoView(host.view()), snapshot):
                answer = list(seen.routes(family, MAIN, destination, metric))
                assert same(answer, listed, family, metric), (destination, metric, answer, listed)
            table = host.view().route_list(family, MAIN)
            assert isinstance(table, LongTable)
            table.to(destination, metric)
            cheap += not table._searched
        assert sorted(host.view().routes(family, MAIN, destination)) == sorted(listed)
    assert pictured() == before, "asking changes nothing"
    assert routed > DRAWN / 3 and cheap > DRAWN / 3, (routed, cheap)
    print(f"family {family}: {made} routes made, {routed} destinations have some; {cheap} of {2 * (DRAWN + 1)} answers without the list")
    assert long


@BOTH
def test_what_a_guest_meets_is_told_without_the_list(long: Node, family: int) -> None:
    """No route yet, and one of ours; of IPv4 also the blackhole behind it."""
    host = LinuxHost()
    destination = "10.0.0.5/32" if family == AF_INET else "2001:db8::5/128"
    link = host.view().link("dark")
    assert link is not None
    ours = GuestRoute(family, destination, "", "dark", MAIN, link.index).route()
    metric, behind = METRICS[family]
    assert host.view().routes(family, MAIN, destination, metric) == []
    before = host.netlink.dumps
    for made in ([], [ours]):
        assert not [answer for answer in host.execute([AddRoute(route) for route in made], stop=True) if not answer.ok]
        for seen in (host.view(), host.snapshot(), MemoView(host.view())):
            assert seen.routes(family, MAIN, destination, metric) == made == whole(family, destination)
    if family == AF_INET:
        run("ip", "route", "add", "blackhole", destination, "metric", str(behind), "proto", str(PROTOCOL))
        (hole,) = host.view().routes(family, MAIN, destination, behind)
        assert hole in whole(family, destination) and hole.type == 6
    settings = 6 if family == AF_INET6 else 0  # one list of the devices' settings for each look
    assert host.netlink.dumps - before <= settings
    assert long


@BOTH
def test_default_routes(long: Node, family: int) -> None:
    """Of each device one at least; of IPv4 all, which come first in the list."""
    option = _option(family)
    second = "198.18.1.2" if family == AF_INET else "2001:db8:ff1::2"
    found, listed = LinuxHost().view().routes(family, MAIN, EVERYTHING[family]), whole(family, EVERYTHING[family])
    assert led(found) == led(listed) and sorted(found) == sorted(listed)
    for words in (
        f"default via {second} metric 4000",
        f"default metric 30 nexthop via {VIA[family]} nexthop via {second}",
        "default dev dark metric 7 proto static",
        "unreachable default metric 4294967295",
        "throw default metric 90",
        f"default metric 60 nhid {5 if family == AF_INET else 15}",
        f"default proto {PROTOCOL} dev dark metric 3",
    ):
        run("ip", option, "route", "add", *words.split())
        listed = whole(family, EVERYTHING[family])
        for seen in (LinuxHost().view(), LinuxHost().snapshot()):
            found = seen.routes(family, MAIN, EVERYTHING[family])
            assert set(found) <= set(listed), words

            assert led(found) == led(listed), words
            assert family == AF_INET6 or sorted(found) == sorted(listed), words
    while subprocess.run(["ip", option, "route", "del", "default"], capture_output=True, check=False).returncode == 0:
        pass
    subprocess.run(["ip", option, "route", "del", "throw", "default", "metric", "90"], capture_output=True, check=False)
    assert [route for route in LinuxHost().view().routes(family, MAIN, EVERYTHING[family]) if route.type == 1] == []
    assert long


def test_lookups_that_pass_over_a_route(long: Node) -> None:
    """A device without carrier whose routes are to be ignored hides somebody's route from lookups, not from us."""
    host = LinuxHost()
    run("ip", "-6", "route", "add", "2001:db8::7/128", "dev", "dark", "metric", "5", "proto", "static")
    for value in ("0", "1"):
        sysctl("net/ipv6/conf/dark/ignore_routes_with_linkdown", value)
        (found,) = host.view().routes(AF_INET6, MAIN, "2001:db8::7/128", 1024)
        assert (found.metric, found.protocol) == (5, 4)
    run("ip", "-6", "route", "add", "default", "dev", "dark", "metric", "9")
    assert host.view().link("dark").index in [route.index for route in host.view().routes(AF_INET6, MAIN, "::/0")]  # type: ignore[union-attr]
    assert long


@BOTH
def test_rules_that_lead_elsewhere(long: Node, family: int) -> None:
    """What a rule takes away from main says nothing of main."""
    destination = "10.0.0.5/32" if family == AF_INET else "2001:db8::5/128"
    option = _option(family)
    run("ip", option, "route", "add", destination, "dev", "up1", "proto", "static", *(["metric", "5"] if family == AF_INET6 else []))
    run("ip", option, "rule", "add", "pref", "90", "lookup", "100")
    for words in ("unreachable default", f"{destination} dev up0 proto {PROTOCOL}"):
        run("ip", option, "route", "add", *words.split(), "table", "100")
        for metric in METRICS[family]:
            assert same(list(LinuxHost().view().routes(family, MAIN, destination, metric)), whole(family, destination), family, metric)
    assert long


def test_a_route_that_came_since_it_was_looked_for(long: Node) -> None:
    """Of whatever sort: ours is not put in its place, and it stays as it was."""
    host = LinuxHost()
    for family, destination in ((AF_INET, "10.0.0.5/32"), (AF_INET6, "2001:db8::5/128")):
        link = host.view().link("dark")
        assert link is not None
        ours = GuestRoute(family, destination, "", "dark", MAIN, link.index)
        for kind, way in (("", "dev up1"), ("throw", ""), ("unreachable", ""), ("", "nhid 5" if family == AF_INET else "nhid 15")):
            metric = ["metric", "1024"] if family == AF_INET6 else []
            theirs = [*kind.split(), destination, *way.split(), *metric, "proto", "static"]
            run("ip", _option(family), "route", "add", *theirs)
            before = pictured()
            assert [answer.ok for answer in host.execute(ours.apply(), stop=True)] == [False]
            assert pictured() == before, theirs
            run("ip", _option(family), "route", "del", *theirs)
        for _twice in range(2):
            assert [answer.ok for answer in host.execute(ours.apply(), stop=True)] == [True]
            assert whole(family, destination) == [ours.route()]
    assert long
