"""A real agent and kernel: a node's underlay is there after a start with the registry away, put back after a deletion, and taken away."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runtime import underlay
from runtime.paths import Paths
from tests.support.agent import Agent, agent
from tests.support.netns import run
from tests.support.node import Node
from tests.support.node_underlay import OWN, PREFIX, address, give

ANOTHER = '[underlay]\ndevice = "ul0"\n'


def addresses(device: str = "lo") -> dict[str, bool]:
    """Give the addresses of the prefix that a device has, and whether each is deprecated."""
    shown = json.loads(run("ip", "-6", "-j", "address", "show", "dev", device))
    found = [each for link in shown for each in link.get("addr_info", ())]
    return {each["local"]: bool(each.get("deprecated")) for each in found if each["local"].startswith("fd00:1:2:7:")}


def routes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("ip", "-6", "-j", "route", "show", "table", "main", "type", "unreachable"))
    return [each for each in found if each["dst"] == PREFIX]


def whole() -> bool:
    return addresses() == {OWN: False, address(0): True, address(1): True} and len(routes()) == 1


def settled(running: Agent) -> None:
    running.took(whole, 10, "all of the underlay is there")


@pytest.fixture
def here(node: Node) -> Node:
    """A node with two endpoints, on which the loopback is up and forwarding is on; its registry is nowhere."""
    run("ip", "link", "set", "lo", "up")
    node.forwarding(ipv6=True)
    give(Paths(), 0, 1)
    return node


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_it_is_there_with_the_registry_away_and_stays_when_the_agent_ends(here: Node, number: int) -> None:
    with agent() as running:
        settled(running)
        before = run("ip", "-6", "-d", "address", "show", "dev", "lo"), run("ip", "-6", "route", "show", "table", "all")
        running.stop(number)
        assert whole()
        running.start()
        running.rested()
        assert before == (run("ip", "-6", "-d", "address", "show", "dev", "lo"), run("ip", "-6", "route", "show", "table", "all"))
        assert "drift" not in running.output


def test_it_is_put_back_after_a_deletion_by_hand(here: Node) -> None:
    """Each part of it within two seconds, and all of it after a flush."""
    with agent() as running:
        settled(running)
        for command in (
            ("address", "del", f"{OWN}/128", "dev", "lo"),
            ("address", "del", f"{address(1)}/128", "dev", "lo"),
            ("route", "del", "unreachable", PREFIX, "metric", str(0x7FFFFFFF)),
            ("address", "flush", "dev", "lo", "scope", "global"),
        ):
            run("ip", "-6", *command)
            assert running.took(whole, 10, f"it is put back after ip -6 {' '.join(command)}") < 2


def test_what_is_over_goes_and_nothing_else(here: Node) -> None:
    """An administrator's own address on the device, and his route, stay."""
    run("ip", "-6", "address", "add", "fd00:1:2:7::5/128", "dev", "lo")
    run("ip", "-6", "route", "add", "unreachable", "fd00:1:2:9::/64", "proto", "static")
    with agent() as running:
        running.took(lambda: len(addresses()) == 4 and len(routes()) == 1, 10, "all of it is there")
        give(Paths(), 1, generation=2)
        running.signal(signal.SIGHUP)
        running.took(lambda: set(addresses()) == {OWN, address(1), "fd00:1:2:7::5"}, 10, "an endpoint that is over goes")
        underlay.remove(Paths())
        running.signal(signal.SIGHUP)
        running.took(lambda: set(addresses()) == {"fd00:1:2:7::5"} and routes() == [], 10, "all of ours goes")
        assert "fd00:1:2:9::/64" in run("ip", "-6", "route", "show", "table", "main")


def test_addresses_by_hand_count_and_stay_as_they_are(here: Node) -> None:
    """Take one of another length than ours, neither deprecated nor without a route, as people add one; also in the place of ours."""

    def by_hand(of: str) -> list[str]:
        return [line.strip() for line in run("ip", "-6", "address", "show", "dev", "lo").splitlines() if f" {of}/" in line]

    run("ip", "-6", "address", "add", f"{address(0)}/64", "dev", "lo")
    before = by_hand(address(0))
    with agent() as running:
        running.took(lambda: "3 of 3" in str(running.status()), 10, "all of it is there")
        running.signal(signal.SIGSTOP)  # it would put back what is deleted
        run("ip", "-6", "address", "del", f"{address(1)}/128", "dev", "lo")
        run("ip", "-6", "address", "add", f"{address(1)}/96", "dev", "lo")
        running.signal(signal.SIGCONT)
        running.rested()
        running.signal(signal.SIGHUP)
        running.rested()
        assert by_hand(address(0)) == before and "3 of 3" in str(running.status()) and running.status()["alarms"] == {}
        underlay.remove(Paths())
        running.signal(signal.SIGHUP)
        running.took(lambda: OWN not in addresses() and routes() == [], 10, "all of ours goes")
        assert by_hand(address(0)) == before and address(0) in addresses()


def test_a_device_that_is_not_there_is_one_line_until_it_comes(here: Node) -> None:
    with agent(settings=ANOTHER) as running:
        running.logged("device ul0 does not exist: make it, or correct [underlay] device")
        assert running.output.count("ul0 does not exist") == 1
        run("ip", "link", "add", "ul0", "type", "veth", "peer", "name", "ul1")
        running.logged("ul0 is down: nobody reaches its addresses")
        run("ip", "link", "set", "ul0", "up")
        running.took(lambda: len(addresses("ul0")) == 3 and running.status()["alarms"] == {}, 10, "they are on the device")
        run("ip", "link", "set", "ul0", "down")
        run("ip", "link", "set", "ul0", "up")
        running.took(lambda: len(addresses("ul0")) == 3, 10, "they are there again after it was down")
        run("ip", "link", "del", "ul0")
        running.took(lambda: "underlay" in running.status()["alarms"], 10, "it is said")


def test_what_nobody_has_is_unreachable_and_an_endpoint_answers(here: Node) -> None:
    """A neighbour that sends all of the prefix here gets an answer, and nothing goes round in a circle."""
    outside = here.outside("up0", "fd00:f::1/64")
    here.address("up0", "fd00:f::2/64")
    run("ip", "-6", "route", "add", "default", "via", "fd00:f::1")
    outside.run("ip", "-6", "route", "add", PREFIX, "via", "fd00:f::2")
    with agent() as running:
        settled(running)
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as served:
            served.bind((address(0), 5900))
            served.listen()
            with outside.entered(), socket.create_connection((address(0), 5900), 5) as client:
                there, peer = served.accept()
                with there:
                    assert peer[0] == "fd00:f::1" and client.getpeername()[0] == address(0)
            with outside.entered():
                lost = subprocess.run(["ping", "-6", "-c", "1", "-W", "2", "fd00:1:2:7::1:99"], capture_output=True, text=True, check=False)
            assert lost.returncode == 1 and "nreachable" in lost.stdout + lost.stderr


def test_the_node_begins_from_its_own_address_and_never_from_an_endpoints(here: Node) -> None:
    """On an uplink that has a link-local address alone, whatever the order in which they were made."""
    here.outside("up0")
    run("ip", "-6", "route", "add", "default", "via", "fe80::1", "dev", "up0")
    with agent() as running:
        settled(running)
        run("ip", "-6", "address", "del", f"{OWN}/128", "dev", "lo")
        settled(running)
        for target in ("fd00:1:2:6::1:0", "fd00:1:2:8::1:0", "2001:db8::1"):
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asked:
                asked.connect((target, 9))
                assert asked.getsockname()[0] == OWN


def noting(more: str = "") -> tuple[Path, Path]:
    """Make a script of endpoints that notes what it is told, and does ``more``; give it, and where it notes that."""
    script = Path(Paths().etc, "endpoint.d", "tell")
    script.parent.mkdir(parents=True)
    told = script.parent.parent / "told"
    script.write_text(f'#!/bin/sh\necho "$1 $2" >> {told}\n{more}\n')
    script.chmod(0o755)
    return script, told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_scripts_of_endpoints_are_told_that_all_has_gone_by_the_next_agent(here: Node, number: int) -> None:
    """End the agent while the first of them is told: another one tells the rest, of which nothing but what they were told is left."""
    _script, told = noting('[ "$2" = endpoint-up ] || sleep 1')
    with agent() as running:
        running.took(lambda: told.exists() and len(told.read_text().splitlines()) == 2, 10, "they are told")
        underlay.remove(Paths())
        running.signal(signal.SIGHUP)
        running.took(lambda: "endpoint-down" in told.read_text(), 10, "the first one is told")
        running.restart(number)
        kept = Path(Paths().state, "underlay")
        running.took(lambda: f"{address(1)} endpoint-down" in told.read_text() and not list(kept.iterdir()), 10, "all are told")


def test_scripts_of_endpoints_that_could_not_be_told_are_told_later(here: Node) -> None:
    """Raise an alarm while the folder of what scripts were told is not trusted, and run the scripts later without a kernel event."""
    _script, told = noting()
    folder = Path(Paths().state, "underlay")
    with agent() as running:
        running.took(lambda: told.exists() and len(told.read_text().splitlines()) == 2, 10, "they are told")
        folder.chmod(0o777)
        give(Paths(), 0, 1, 2, generation=2)
        running.signal(signal.SIGHUP)
        running.took(lambda: "endpoint-scripts" in running.status()["alarms"], 10, "an alarm")
        folder.chmod(0o755)
        running.took(lambda: f"{address(2)} endpoint-up" in told.read_text(), 45, "they are told later")
        running.took(lambda: running.status()["alarms"] == {}, 45, "no alarm")


@pytest.mark.parametrize("how", ["mode", "interpreter", "systemd"])
def test_a_script_of_endpoints_that_cannot_be_begun_is_an_alarm_until_it_is_mended(here: Node, how: str) -> None:
    """Run it within half a minute after it was mended; another one has been run once. Without systemd neither is begun."""
    script, told = noting()
    more = script.with_name("tell-more")
    more.write_text(script.read_text().replace("echo ", "echo more ").replace("$1", "$1 more"))
    more.chmod(0o755)
    if how == "mode":
        more.chmod(0o777)
    elif how == "interpreter":
        text = more.read_text()
        more.write_text("#!/nowhere/sh\n")
    with agent({"INVOCATION_ID": "0" * 32} if how == "systemd" else {}) as running:
        running.took(lambda: "or remove, what is named" in running.status()["alarms"].get("endpoint-scripts", ""), 20, "an alarm")
        running.lasts(2)
        once = [f"{address(number)} endpoint-up" for number in range(2)]
        assert (told.read_text().splitlines() if told.exists() else []) == ([] if how == "systemd" else once)
        if how == "systemd":
            return
        assert running.output.count(str(more)) == 1
        if how == "interpreter":
            more.write_text(text)
        more.chmod(0o755)
        running.took(lambda: len(told.read_text().splitlines()) == 4 and running.status()["alarms"] == {}, 45, "they are told")
        assert [line for line in told.read_text().splitlines() if "more" not in line] == once


@pytest.mark.parametrize("kind", ["unreachable", "blackhole", "unicast"])
def test_a_route_of_somebody_elses_that_goes_is_heard_at_once(here: Node, kind: str) -> None:
    """Put our route up within two seconds after a foreign one in its place goes, and notice as soon that a foreign one replaces ours."""
    to = (PREFIX, "dev", "lo") if kind == "unicast" else (kind, PREFIX)
    theirs = (*to, "metric", str(0x7FFFFFFF), "proto", "static")
    run("ip", "-6", "route", "add", *theirs)
    with agent() as running:
        running.took(lambda: set(addresses()) == {OWN, address(0), address(1)}, 10, "all but the route is there")
        running.lasts(3)  # the looks are over that its own addresses have caused
        run("ip", "-6", "route", "del", *theirs)
        assert running.took(whole, 10, "the route is there") < 2
        running.lasts(3)
        run("ip", "-6", "route", "replace", *theirs)
        if kind != "unreachable":
            assert running.took(lambda: "underlay" in running.status()["alarms"], 10, "an alarm") < 2
            run("ip", "-6", "route", "del", *theirs)
            running.took(lambda: whole() and running.status()["alarms"] == {}, 10, "the route is there again")


@pytest.mark.parametrize("how", ["address", "announced"])
def test_a_prefix_of_the_nodes_own_network_is_not_put_up(here: Node, how: str) -> None:
    """Keep the router of the node's own network reachable, and put the /64 up once that network has another prefix."""
    here.outside("up0", "fd00:1:2:7::1/64")
    theirs = ("address", "add", "fd00:1:2:7::10/64", "dev", "up0", "nodad")
    if how == "announced":
        theirs = ("route", "add", PREFIX, "dev", "up0", "proto", "ra", "metric", "256")
    run("ip", "-6", *theirs)
    with agent() as running:
        running.took(lambda: f"{PREFIX} is not put up" in running.status()["alarms"].get("underlay", ""), 10, "an alarm")
        running.lasts(3)
        assert addresses() == {} and routes() == []
        assert " dev up0 " in run("ip", "-6", "route", "get", "fd00:1:2:7::1")
        run("ip", "-6", theirs[0], "del", *theirs[2:5])
        running.took(lambda: whole() and running.status()["alarms"] == {}, 45, "all of it is there")
        run("ip", "-6", *theirs)
        running.took(lambda: f"{PREFIX} overlaps" in running.status()["alarms"].get("underlay", ""), 45, "an alarm")
        assert whole()
