"""The MTU of Linux bridges with taps: a guest's device keeps no bridge below its uplink, and a running one is not lowered unsaid."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.rtnetlink import decode
from netcommon.host.rtnetlink.attributes import messages
from netcommon.host.rtnetlink.encode import RTM_NEWLINK
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, seconds_until
from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.routed import drift, mend
from tests.support.rundoor import rundoor

LARGE, USUAL = 9000, 1500
RTMGRP_LINK = 1


def mtu(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/mtu").read_text())


def nic(number: int = 0, **changes: str) -> dict[str, str]:
    return environment(number, **{"MODE": "bridged", "LINK": "br0", "IP": "", **changes})


def up(number: int = 0, said: str = "", **changes: str) -> None:
    done = rundoor("kvm-ifup", nic(number, **changes))
    assert done.status == 0 and (said in done.stderr if said else done.stderr == ""), done


def uplink(node: Node, name: str = "up0", size: int = LARGE) -> None:
    node.outside(name)
    run("ip", "link", "set", name, "mtu", str(size))


@contextlib.contextmanager
def sizes(*devices: str) -> Iterator[dict[str, set[int]]]:
    """Every MTU that these devices have had from here to the end, as the kernel tells each change (rtnetlink(7), RTMGRP_LINK)."""
    found: dict[str, set[int]] = {name: {mtu(name)} for name in devices}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as heard:
        heard.bind((0, RTMGRP_LINK))
        yield found
        heard.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                for kind, _flags, _sequence, body in messages(heard.recv(1 << 16)):
                    link = decode.link(body) if kind == RTM_NEWLINK and body[0] == socket.AF_UNSPEC else None
                    if link is not None and link.name in found:
                        found[link.name].add(link.mtu)


@pytest.mark.no_agent("about what check and repair say: an agent repairs at once")
@pytest.mark.parametrize("guests", [1, 3])
def test_an_uplink_that_joins_late(node: Node, guests: int) -> None:
    node.bridge("br0")
    for number in range(guests):
        node.tap(f"tap{number}")
        up(number)
    assert drift() == []
    uplink(node)
    run("ip", "link", "set", "up0", "master", "br0")
    assert mtu("br0") == USUAL and len(drift()) == guests
    node.tap("tap3")
    up(3)  # it gets what the bridge has, which is the others' doing
    mend()
    assert [mtu(f"tap{number}") for number in range(guests)] == [LARGE] * guests
    if drift():
        mend()
    assert (mtu("br0"), mtu("tap3"), drift()) == (LARGE, LARGE, [])


@pytest.mark.no_agent("about what check and repair say: an agent repairs at once")
@pytest.mark.parametrize("door", ["repair", "up"])
def test_a_bridge_that_is_made_anew(node: Node, door: str) -> None:
    uplink(node)
    node.bridge("br0", "up0")
    node.tap("tap0")
    up()
    assert mtu("tap0") == LARGE
    run("ip", "link", "delete", "br0")
    node.bridge("br0")
    with sizes("tap0") as had:
        mend() if door == "repair" else up(said="is mended")
    run("ip", "link", "set", "up0", "master", "br0")
    assert (had, mtu("br0"), drift()) == ({"tap0": {LARGE}}, LARGE, [])
    down = rundoor("kvm-ifdown", nic(), "tap0", "hot-remove")
    assert (down.status, mtu("tap0"), mtu("br0")) == (0, USUAL, LARGE)


@pytest.mark.no_agent("about what up and repair say: an agent repairs at once")
@pytest.mark.parametrize("door", ["repair", "up"])
def test_a_running_guests_device_is_not_lowered_unsaid(node: Node, door: str) -> None:
    uplink(node)
    node.bridge("br0", "up0")
    node.tap("tap0")
    up()
    run("ip", "link", "set", "up0", "mtu", str(USUAL))
    said = "from 9000 to 1500"
    if door == "up":
        up(said=said)
    else:
        assert said in "\n".join(mend())
    assert (mtu("tap0"), drift()) == (USUAL, [])


@pytest.mark.parametrize(("size", "port"), [(1400, USUAL), (USUAL, LARGE), (LARGE + 1, LARGE)])
def test_a_bridge_whose_mtu_somebody_has_set(node: Node, size: int, port: int) -> None:
    """It is what its guests get, however long the frames are that its ports take."""
    uplink(node, size=port)
    node.bridge("br0", "up0", mtu=size)
    for number in range(3):
        node.tap(f"tap{number}")
        up(number)
    assert ([mtu(f"tap{number}") for number in range(3)], mtu("br0"), drift()) == ([size] * 3, size, [])
    assert all("as it should be" in line for line in mend())
    up(1)
    assert ([mtu(f"tap{number}") for number in range(3)], mtu("br0"), drift()) == ([size] * 3, size, [])


@pytest.mark.parametrize(("first", "second"), [("brj", "br0"), ("br0", "brj"), ("brj", "brk")])
def test_moving_shrinks_nothing(node: Node, first: str, second: str) -> None:
    """Neither the bridge that the NIC leaves nor the one that it joins, not for an instant; nor the tap between two large ones."""
    for name, port, size in (("br0", "up0", USUAL), ("brj", "up1", LARGE), ("brk", "up2", LARGE)):
        uplink(node, port, size)
        node.bridge(name, port)
    node.tap("tap0")
    up(LINK=first)
    with sizes("br0", "brj", "brk", "tap0") as had:
        up(LINK=second, said="from 9000 to 1500" if second == "br0" else "")
    assert (had["br0"], had["brj"], had["brk"]) == ({USUAL}, {LARGE}, {LARGE})
    assert had["tap0"] == {mtu(first), mtu(second)}
    assert ask("ip", "-j", "link", "show", "tap0")[0]["master"] == second and mtu("tap0") == mtu(second)
    assert drift() == []


@pytest.mark.no_agent("starts an agent of its own")
def test_an_agent_hears_of_the_uplink(node: Node) -> None:
    node.bridge("br0")
    node.tap("tap0")
    up()
    uplink(node)
    with agent() as running:
        running.rested()
        run("ip", "link", "set", "up0", "master", "br0")
        seconds_until(lambda: (mtu("tap0"), mtu("br0")) == (LARGE, LARGE), 5, running.output)
