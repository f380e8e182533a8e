"""The MTU of bridges with taps: a guest's device keeps none below its uplink, a running one is not lowered, a move shrinks none."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netcommon.host.api.facts import Link
from netcommon.host.rtnetlink import decode
from netcommon.host.rtnetlink.attributes import messages
from netcommon.host.rtnetlink.encode import RTM_NEWLINK
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, seconds_until
from tests.support.bootstrap import VENV
from tests.support.forged import ipv4
from tests.support.netns import Namespace, ask, run
from tests.support.node import Node
from tests.support.routed import drift
from tests.support.rundoor import rundoor
from tests.support.tap import Tap
from tests.support.wire import Wire

pytestmark = pytest.mark.sampled(3)

LARGE, USUAL = 9000, 1500
RTMGRP_LINK = 1

own_agent = pytest.mark.no_agent("about what check, up and repair say: an agent repairs at once")


def mtu(device: str) -> int:
    """As `ip -d link` says."""
    found: int = ask("ip", "-d", "-j", "link", "show", device)[0]["mtu"]
    return found


def mtus(*devices: str) -> list[int]:
    return [mtu(device) for device in devices]


def up(link: str = "br0", number: int = 0, said: str = "") -> None:
    done = rundoor("kvm-ifup", environment(number, MODE="bridged", LINK=link, IP=""))
    assert done.status == 0 and (said in done.stderr if said else done.stderr == ""), done


def down(number: int = 0) -> None:
    done = rundoor("kvm-ifdown", environment(number, MODE="bridged", LINK="br0", IP=""), f"tap{number}", "hot-remove")
    assert (done.status, done.stderr) == (0, "")


def netcommon(*arguments: str, status: int = 0) -> str:
    done = subprocess.run([str(VENV / "bin/netcommon"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, done
    return done.stdout


def checked() -> list[dict[str, Any]]:
    """What `netcommon check` says of each NIC; good, or drifted by its exit status."""
    done = subprocess.run([str(VENV / "bin/netcommon"), "check", "--json"], capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["nics"]
    assert (done.returncode == 0) == all(each["good"] for each in found), done
    return found


def uplink(node: Node, name: str = "up0", size: int = LARGE, bridge: str = "") -> Namespace:
    """An uplink whose other end takes large frames in either case."""
    outside = node.outside(name)
    outside.run("ip", "link", "set", "eth0", "mtu", str(LARGE))
    run("ip", "link", "set", name, "mtu", str(size), *(("master", bridge) if bridge else ()))
    return outside


def guests(node: Node, number: int, link: str = "br0") -> list[str]:
    """Start so many; the names of their taps."""
    names = [f"tap{each}" for each in range(number)]
    for each, name in enumerate(names):
        node.tap(name)
        up(link, each)
    return names


@contextlib.contextmanager
def told() -> Iterator[list[Link]]:
    """Every device as it became from here to the end, as the kernel tells each change (rtnetlink(7), RTMGRP_LINK)."""
    found: list[Link] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as heard:
        heard.bind((0, RTMGRP_LINK))
        yield found
        heard.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                for kind, _flags, _sequence, body in messages(heard.recv(1 << 16)):
                    if kind == RTM_NEWLINK and body[0] == socket.AF_UNSPEC:
                        found.append(decode.link(body))


@contextlib.contextmanager
def sizes(*devices: str) -> Iterator[dict[str, set[int]]]:
    """Every MTU that these devices have had from here to the end."""
    found: dict[str, set[int]] = {name: {mtu(name)} for name in devices}
    with told() as links:
        yield found
    for link in links:
        if link.name in found:
            found[link.name].add(link.mtu)


def bridges(node: Node) -> None:
    """br0 with the usual MTU, brj and brk with a large one, each by its uplink."""
    for name, port, size in (("br0", "up0", USUAL), ("brj", "up1", LARGE), ("brk", "up2", LARGE)):
        uplink(node, port, size)
        node.bridge(name, port)


# -- a running guest's device is not lowered


@own_agent
@pytest.mark.parametrize("door", ["repair", "repair --all", "up"])
def test_a_bridge_that_is_made_anew(node: Node, door: str) -> None:
    uplink(node)
    node.bridge("br0", "up0")
    taps = guests(node, 2)
    run("ip", "link", "delete", "br0")
    node.bridge("br0")
    with sizes(*taps) as had:
        if door == "up":
            up(said="is mended")
            up(number=1, said="is mended")
        else:
            netcommon("repair", *(taps if door == "repair" else ["--all"]))
    run("ip", "link", "set", "up0", "master", "br0")
    assert (had, mtu("br0"), drift()) == ({tap: {LARGE} for tap in taps}, LARGE, [])
    for number in range(2):
        down(number)
    assert mtus(*taps, "br0") == [USUAL, USUAL, LARGE]


def crosses(tap: Tap, outside: Namespace, size: int = LARGE) -> bool:
    """Tell whether a packet of that length from the guest gets out by the uplink."""
    mac = bytes.fromhex(environment(int(tap.name[3:]))["MAC"].replace(":", ""))
    frame = b"\xff" * 6 + mac + b"\x08\0" + ipv4("192.0.2.5", os.urandom(size - 20), 253)  # for experiments (RFC 3692)
    with Wire(outside) as wire:
        tap.send(frame)
        return wire.receive(lambda heard: heard == frame, 0.3) is not None


def named() -> list[str]:
    """What check calls without effect of the one NIC, which is good."""
    (found,) = checked()
    assert found["good"]
    return [each["why"] for each in found["idle"]]


@own_agent
@pytest.mark.parametrize("door", ["repair", "up"])
def test_a_port_with_less_than_the_guest(node: Node, door: str) -> None:
    """It is named, with what helps, and left to the administrator: lowered by hand the device stays lowered."""
    outside = uplink(node)
    node.bridge("br0", "up0")
    tap = node.tap("tap0")
    up()
    assert crosses(tap, outside) and not named()
    run("ip", "link", "set", "up0", "mtu", str(USUAL))
    assert mtus("tap0", "br0") == [LARGE, USUAL]
    up() if door == "up" else netcommon("repair", "tap0")
    assert mtus("tap0", "br0") == [LARGE, USUAL]
    for bridge in (USUAL, LARGE):  # the bridge's own, also by hand, makes no difference
        run("ip", "link", "set", "br0", "mtu", str(bridge))
        assert not crosses(tap, outside)
        assert named() == ["for what leaves br0 by up0, which has 1500: ip link set dev up0 mtu 9000, if what is behind it takes that"]
    run("ip", "link", "set", "up0", "mtu", str(LARGE))
    assert crosses(tap, outside) and not named()
    run("ip", "link", "set", "tap0", "mtu", str(USUAL))
    run("ip", "link", "set", "br0", "mtu", str(USUAL))
    run("ip", "link", "set", "up0", "mtu", str(USUAL))
    netcommon("repair", "tap0")
    assert mtus("tap0", "br0") == [USUAL, USUAL] and drift() == [] and not named()


@own_agent
def test_a_bridge_with_less_than_its_ports(node: Node) -> None:
    """Frames between the ports pass: nothing is wrong, and a command for the bridge would end its following its ports."""
    outside = uplink(node)
    node.bridge("br0", "up0")
    tap = node.tap("tap0")
    up()
    run("ip", "link", "set", "br0", "mtu", str(USUAL))
    assert mtus("tap0", "br0") == [LARGE, USUAL] and crosses(tap, outside) and not named()


# -- a guest's device keeps no bridge below its uplink


@own_agent
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("together", [True, False])
def test_an_uplink_that_joins_late(node: Node, number: int, together: bool) -> None:
    node.bridge("br0")
    taps = guests(node, number)
    assert drift() == []
    uplink(node, bridge="br0")
    assert mtu("br0") == USUAL and len(drift()) == number
    for each in range(number):
        up(number=each)  # a hook looks at no other port
    assert mtus(*taps) == [USUAL] * number
    for tap in [] if together else taps:
        netcommon("repair", tap)
    netcommon("repair", "--all")
    assert (mtus(*taps, "br0"), drift()) == ([LARGE] * (number + 1), [])
    with sizes(*taps, "br0") as had:
        netcommon("repair", "--all")
    assert set().union(*had.values()) == {LARGE}


@own_agent
def test_a_port_of_somebody_elses_counts(node: Node) -> None:
    """Such as another one's guest with the usual MTU: then nothing is gained."""
    node.bridge("br0")
    guests(node, 1)
    node.tap("other")
    run("ip", "link", "set", "other", "master", "br0")
    uplink(node, bridge="br0")
    assert drift() == []
    netcommon("repair", "--all")
    assert mtus("tap0", "br0") == [USUAL, USUAL]
    run("ip", "link", "set", "other", "mtu", "4000")
    assert len(drift()) == 1
    netcommon("repair", "--all")
    assert (mtus("tap0", "br0"), drift()) == ([4000, 4000], [])


@own_agent
@pytest.mark.parametrize("others", [0, 12])
def test_a_bridge_whose_mtu_somebody_has_set(node: Node, others: int) -> None:
    """The kernel gives a bridge the least of its ports: where all have more, somebody has set it, and each new NIC has theirs at once."""
    outside = uplink(node)
    node.bridge("br0", "up0")
    for number in range(others):
        uplink(node, f"more{number}", bridge="br0")
    run("ip", "link", "set", "br0", "mtu", str(USUAL))
    taps = [node.tap(f"tap{number}") for number in range(2)]
    for number in range(2):
        up(number=number)
        assert mtus(f"tap{number}", "br0") == [LARGE, USUAL] and drift() == []
    assert crosses(taps[0], outside) and crosses(taps[1], outside)
    assert [(each["good"], each["idle"]) for each in checked()] == [(True, [])] * 2
    netcommon("repair", "--all")
    assert mtus("tap0", "tap1", "br0") == [LARGE, LARGE, USUAL]
    for number in range(2):
        down(number)
    assert mtus("tap0", "tap1", "br0") == [USUAL] * 3


@own_agent
def test_a_bridge_whose_mtu_somebody_sets_later(node: Node) -> None:
    """It looks like one that a guest's device holds down, until that has the larger one: then it is settled."""
    node.bridge("br0")
    taps = guests(node, 2)
    for size in (USUAL - 1, USUAL):  # the kernel takes no note of the value that there is already
        run("ip", "link", "set", "br0", "mtu", str(size))
    uplink(node, bridge="br0")
    netcommon("repair", "--all")
    assert mtus(*taps, "br0") == [LARGE, LARGE, USUAL]
    assert [(each["good"], each["idle"]) for each in checked()] == [(True, [])] * 2
    with sizes(*taps, "br0") as had:
        netcommon("repair", "--all")
        up()
    assert had == {"tap0": {LARGE}, "tap1": {LARGE}, "br0": {USUAL}} and drift() == []


@pytest.mark.no_agent("starts an agent of its own")
@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("number", [1, 3])
def test_an_agent_hears_of_the_uplink(node: Node, joins: bool, number: int) -> None:
    """It joins, or is there with the usual MTU and gets the large one."""
    node.bridge("br0")
    taps = guests(node, number)
    uplink(node, size=LARGE if joins else USUAL, bridge="" if joins else "br0")
    with agent() as running:
        running.rested()
        run("ip", "link", "set", "up0", *(("master", "br0") if joins else ("mtu", str(LARGE))))
        seconds_until(lambda: set(mtus(*taps, "br0")) == {LARGE}, 5, running.output)
        assert drift() == []


@pytest.mark.no_agent("starts an agent of its own")
def test_an_agent_does_not_go_on_raising(node: Node) -> None:
    """A bridge whose MTU somebody has set stays; so does the device once it was raised, and the agent rests."""
    node.bridge("br0", mtu=USUAL - 1)
    run("ip", "link", "set", "br0", "mtu", str(USUAL))
    guests(node, 1)
    uplink(node, bridge="br0")
    with agent() as running:
        seconds_until(lambda: mtu("tap0") == LARGE, 5, running.output)
        with sizes("tap0", "br0") as had:
            running.rested()
        assert had == {"tap0": {LARGE}, "br0": {USUAL}} and drift() == []


# -- a move shrinks no bridge


@pytest.mark.parametrize(("first", "second"), [("brj", "br0"), ("br0", "brj"), ("brj", "brk")])
def test_moving_shrinks_nothing(node: Node, first: str, second: str) -> None:
    """Neither the bridge that the NIC leaves nor the one that it joins, not for an instant; nor the tap between two large ones."""
    bridges(node)
    node.tap("tap0")
    up(first)
    with sizes("br0", "brj", "brk", "tap0") as had:
        up(second)
    assert (had["br0"], had["brj"], had["brk"]) == ({USUAL}, {LARGE}, {LARGE})
    assert had["tap0"] == {mtu(first), mtu(second)}
    assert ask("ip", "-j", "link", "show", "tap0")[0]["master"] == second and mtu("tap0") == mtu(second)
    assert drift() == []


@pytest.mark.parametrize(("first", "second"), [("brj", "br0"), ("br0", "brj"), ("brj", "brk")])
def test_a_move_that_is_taken_back_shrinks_nothing(node: Node, first: str, second: str) -> None:
    bridges(node)
    node.tap("tap0")
    up(first)
    refuse()
    with sizes("br0", "brj", "brk", "tap0") as had:
        assert rundoor("kvm-ifup", environment(0, MODE="bridged", LINK=second, IP="")).status != 0
    assert (had["br0"], had["brj"], had["brk"]) == ({USUAL}, {LARGE}, {LARGE})
    assert ask("ip", "-j", "link", "show", "tap0")[0]["master"] == first and mtu("tap0") == mtu(first)
    assert drift() == []


def test_a_device_is_down_before_it_leaves_its_bridge(node: Node) -> None:
    """What is up and no port speaks to the node itself."""
    bridges(node)
    node.tap("tap0")
    up("brj")
    with told() as links:
        up("br0")
    alone = [link for link in links if link.name == "tap0" and not link.master]
    assert alone and not any(link.up for link in alone)


def test_the_way_back_keeps_the_mtu(node: Node) -> None:
    """Though the bridge, whose only port it was, has the usual one meanwhile; and what the device had before us is on record as before."""
    uplink(node)
    node.bridge("brj", "up0")
    node.bridge("br0")
    tap = node.tap("tap0", persistent=True)
    up("brj")
    run("ip", "link", "set", "up0", "nomaster")
    refuse()
    assert rundoor("kvm-ifup", environment(0, MODE="bridged", LINK="br0", IP="")).status != 0
    assert mtus("tap0", "brj") == [LARGE, LARGE] and drift() == []
    tap.close()
    down()
    assert mtu("tap0") == USUAL


@own_agent
def test_a_device_that_somebody_has_moved_comes_back_without_shrinking(node: Node) -> None:
    bridges(node)
    node.tap("tap0")
    up("br0")
    run("ip", "link", "set", "tap0", "mtu", str(LARGE))
    run("ip", "link", "set", "tap0", "master", "brj")
    with sizes("brj") as had:
        netcommon("repair", "tap0")
    assert had == {"brj": {LARGE}}
    assert ask("ip", "-j", "link", "show", "tap0")[0]["master"] == "br0" and mtu("tap0") == USUAL


def refuse() -> None:
    """From here on a script of the site's fails, when all the rest is done."""
    folder = Path("/etc/netcommon/ifup.d")
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "fails"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
