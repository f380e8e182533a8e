"""A routing daemon's whole table in main: for hooks, the command line and the agent it must cost next to nothing, and hide nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from netcommon.host.api.facts import AF_INET, AF_INET6, up_to
from netcommon.host.linux.host import LinuxHost
from netcommon.host.linux.memo_view import MemoView
from netcommon.host.rtnetlink.full_table import FullTable
from netcommon.lifecycle.context import Call, Clock
from netcommon.lifecycle.up import up
from netcommon.log import recording
from runtime.environment import nic_from_environment
from tests.kernel.agent.test_hooks import mac
from tests.kernel.test_doors_parallel import environment
from tests.support import full_table
from tests.support.agent import Agent, agent, watched
from tests.support.bootstrap import VENV
from tests.support.netns import run, sysctl, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import FULL

#: Routes of each family: a table, and what is enough for the kernel to be asked for single destinations.
ROUTES, LONG = 1_000_000 if FULL else 100_000, 12_000
NICS = 50
SECONDS = 900.0

VIA4, VIA6 = "198.18.0.2", "2001:db8:ff::2"
MAIN = 254


@pytest.fixture
def placed(node: Node) -> Node:
    """A node with two uplinks, default routes of both families by each, and forwarding."""
    for number, name in enumerate(("up0", "up1")):
        node.outside(name, f"198.18.{number}.2/24")
        node.address(name, f"198.18.{number}.1/24", f"2001:db8:ff{number or ''}::1/64")
        run("ip", "route", "add", "default", "via", f"198.18.{number}.2", "metric", str(100 * number))
        run("ip", "-6", "route", "add", "default", "via", f"2001:db8:ff{number or ''}::2", "dev", name, "metric", str(100 + number))
    node.forwarding(ipv6=True)
    return node


def test_it_hides_nothing(placed: Node) -> None:
    """What is asked of it is answered as the kernel's whole list has it, by a live view and a snapshot: other routes to a guest's address,
    of whatever metric, blackholes, prefixes within prefixes, default routes.
    """
    for words in (
        "10.0.0.1/32 via 198.18.0.2 proto 186",
        "10.0.0.2/32 via 198.18.0.2 metric 7",
        "10.0.0.3/32 dev up1 proto 174 scope link",
        "blackhole 10.0.0.4/32 metric 1 proto 174",
        "blackhole 10.0.0.5/32",
        "unreachable 10.0.0.6/32",
        "10.0.1.0/24 via 198.18.0.2",
        "10.0.1.0/25 via 198.18.0.2",
        "10.0.2.0/25 via 198.18.0.2",
        "10.0.2.128/25 via 198.18.0.2",
        "blackhole 10.0.3.0/24",
        "blackhole 0.0.0.0/8",
        "2001:db8::1/128 dev up1 metric 5",
        "2001:db8::2/128 dev up1 proto 174",
        "2001:db8::3/128 dev up1 metric 5",
        "2001:db8::3/128 dev up0 metric 1024 proto 174",
        "2001:db8::4/128 dev up0 metric 4096",
        "blackhole 2001:db8::5/128 metric 1025 proto 174",
        "2001:db8:0:1::/64 dev up1",
        "2001:db8:0:1::/65 dev up1",
    ):
        first = words.split()[1] if words.startswith(("blackhole", "unreachable")) else words.split()[0]
        run("ip", "-6" if ":" in first else "-4", "route", "add", *words.split())
    full_table.change("add", LONG, VIA4, VIA6)
    host = LinuxHost()
    asked = {
        AF_INET: [f"10.0.0.{number}/32" for number in range(1, 9)]
        + [f"10.0.{number}.0/{bits}" for number in (1, 2, 3) for bits in (23, 24, 25)],
        AF_INET6: [f"2001:db8::{number}/128" for number in range(1, 9)]
        + [f"2001:db8:0:{number}::/{bits}" for number in (1, 2) for bits in (63, 64, 65)],
    }
    for family, metrics in ((AF_INET, (0, 1)), (AF_INET6, (1024, 1025))):
        view = host.view()
        listed, whole = view.route_list(family, MAIN), view.whole_list(family, MAIN)
        assert isinstance(listed, FullTable)
        for seen in (host.view(), host.snapshot(), MemoView(host.view())):
            for metric in metrics:
                for destination in [*asked[family], next(full_table.prefixes(4 if family == AF_INET else 6, 1))]:
                    found = seen.routes(family, MAIN, destination, metric)
                    assert sorted(found) == sorted(up_to(metric, list(whole.to(destination)))), (destination, metric)
                    assert sorted(seen.routes(family, MAIN, destination)) == sorted(whole.to(destination))
            everything = "0.0.0.0/0" if family == AF_INET else "::/0"
            assert sorted(seen.routes(family, MAIN, everything, 0)) == sorted(whole.to(everything))
            assert len(seen.routes(family, MAIN, everything, 0)) == 2
        assert seen.routes(family, 4242, "10.0.0.1/32" if family == AF_INET else "2001:db8::1/128", 0) == []
    free = [destination for family in asked for destination in asked[family] if listed_cheaply(host, family, destination)]
    assert {"10.0.0.1/32", "10.0.0.3/32", "10.0.0.4/32", "10.0.0.8/32", "2001:db8::2/128", "2001:db8::8/128"} <= set(free)


def listed_cheaply(host: LinuxHost, family: int, destination: str) -> bool:
    """Whether a guest's own destination is told of without the whole table."""
    found = host.view().route_list(family, MAIN).asked(destination, 0 if family == AF_INET else 1024)
    return found is not None


def test_without_a_default_route(placed: Node) -> None:
    """The kernel knows no way then; where a rule ends the lookup, that says nothing of main."""
    for family in ("-4", "-6"):
        for _each in range(2):
            run("ip", family, "route", "del", "default")
    run("ip", "route", "add", "10.0.0.1/32", "via", VIA4)
    full_table.change("add", LONG, VIA4, VIA6)
    view = LinuxHost().view()
    assert view.route_list(AF_INET, MAIN).asked("10.0.0.9/32", 0) == view.route_list(AF_INET6, MAIN).asked("2001:db8::9/128", 1024) == []
    assert view.routes(AF_INET, MAIN, "0.0.0.0/0", 0) == view.routes(AF_INET6, MAIN, "::/0", 0) == []
    run("ip", "rule", "add", "to", "10.0.0.0/24", "pref", "90", "unreachable")
    assert view.route_list(AF_INET, MAIN).asked("10.0.0.1/32", 0) is None
    assert [route.destination for route in view.routes(AF_INET, MAIN, "10.0.0.1/32", 0)] == ["10.0.0.1/32"]


def test_a_route_that_the_kernel_does_not_follow(placed: Node) -> None:
    """By a device without carrier, where the administrator has such routes ignored: it is no drift."""
    full_table.change("add", LONG, VIA4, VIA6)
    tap = placed.tap("tap0", persistent=True)
    tap.close()
    run("ip", "link", "set", "tap0", "up")
    sysctl("net/ipv4/conf/all/ignore_routes_with_linkdown", "1")
    nic = nic_from_environment(variables(0))
    with watched() as seen:
        up(seen.node, nic, Call(recording()[0], Clock().now() + 60, "test"))
        assert seen.drift() == []
        run("ip", "route", "del", "10.9.0.1/32", "dev", "tap0")
        assert seen.drift() != []


def variables(number: int) -> dict[str, str]:
    """Of NICs in main every other one of IPv6."""
    ipv6 = {"IP": f"2001:db8:9::{number + 1:x}", "NETWORK_SUBNET6": "2001:db8:9::/64", "NETWORK_GATEWAY6": "2001:db8:9::ffff"}
    return environment(number, **{"LINK": "", "IP": f"10.9.0.{number + 1}", "MAC": mac(number), **(ipv6 if number % 2 else {})})


def cheapest(work: Callable[[], float], times: int = 5) -> float:
    return min(work() for _time in range(times))


def check_costs() -> float:
    """Seconds of processor time."""
    before = os.times()
    subprocess.run([VENV / "bin/netcommon", "check"], check=True, stdout=subprocess.DEVNULL, timeout=120)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def up_costs(running: Agent) -> float:
    """Seconds of the agent's processor for a warm up, of each family one, and a second up, twenty times: a tick is a hundredth."""
    used = running.cpu
    for _time in range(10):
        for number in (NICS, NICS + 1):
            assert rundoor("kvm-ifup", variables(number)).status == 0
    return (running.cpu - used) / 20


def resync_costs(running: Agent) -> float:
    used, surveys = running.cpu, running.surveys()
    for _time in range(5):
        seen = running.surveys()
        running.signal(signal.SIGHUP)
        wait_until(lambda: running.surveys() > seen, 60, running.output)  # noqa: B023 # it is called at once
        running.rested(60)
    return (running.cpu - used) / (running.surveys() - surveys)


def flapping(running: Agent, count: int) -> float:
    """Seconds of the agent's processor while ``count`` routes of each family go and come."""
    used, looks = running.cpu, running.looks()
    full_table.change("del", count, VIA4, VIA6, SECONDS)
    full_table.change("add", count, VIA4, VIA6, SECONDS)
    assert running.looks() == looks and "were lost" not in running.output
    return running.cpu - used


@pytest.mark.no_agent("it starts its own")
def test_what_it_costs(placed: Node) -> None:
    taps = [placed.tap(f"tap{number}") for number in range(NICS + 2)]
    with watched() as seen:
        for number in range(NICS):
            up(seen.node, nic_from_environment(variables(number)), Call(recording()[0], Clock().now() + 60, "test"))
    with agent(settings="[agent]\nresync = 3600\n") as running:
        running.rested(60)
        figures: list[tuple[float, float, float, int]] = []
        for _state in ("quiet", "full"):
            if figures:
                began = time.monotonic()
                full_table.change("add", ROUTES, VIA4, VIA6, SECONDS)
                print(f"{ROUTES} routes of each family were made in {time.monotonic() - began:.0f} s")
            resync_costs(running), up_costs(running)  # what is opened or remembered the first time
            costs = cheapest(check_costs), cheapest(lambda: up_costs(running), 3), cheapest(lambda: resync_costs(running), 3)
            figures.append((*costs, running.memory))
        flap = flapping(running, 20_000)
        for name, (check, one, every, memory) in zip(("quiet", "full"), figures, strict=True):
            print(f"{name}: check {check * 1e3:.0f} ms, up {one * 1e3:.1f} ms, resync {every * 1e3:.1f} ms, {memory >> 10} KiB")
        print(f"80,000 routes that flap: {flap * 1e3:.0f} ms of the agent's")
        (check, one, every, memory), (check_full, one_full, every_full, memory_full) = figures
        assert check_full <= check * 1.1 + 0.02, "a tick of the kernel's account is 10 ms"
        assert one_full <= one + 0.002, "a tenth of what a warm up takes in all"
        assert every_full <= every * 1.1 + 0.004
        assert memory_full <= memory + (5 << 20)
        assert flap <= 0.1
        assert "repaired" not in running.output
    assert len(taps) == NICS + 2
