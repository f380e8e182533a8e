"""The MTU of Linux bridges while a NIC moves from one to another."""

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
from tests.support.netns import ask, run
from tests.support.node import Node
from tests.support.routed import drift
from tests.support.rundoor import rundoor

LARGE, USUAL = 9000, 1500
RTMGRP_LINK = 1


def mtu(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/mtu").read_text())


def up(link: str) -> None:
    done = rundoor("kvm-ifup", environment(0, MODE="bridged", LINK=link, IP=""))
    assert (done.status, done.stderr) == (0, ""), done


def uplink(node: Node, name: str, size: int) -> None:
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


@pytest.mark.parametrize(("first", "second"), [("brj", "br0"), ("br0", "brj"), ("brj", "brk")])
def test_moving_shrinks_nothing(node: Node, first: str, second: str) -> None:
    """Neither the bridge that the NIC leaves nor the one that it joins, not for an instant; nor the tap between two large ones."""
    for name, port, size in (("br0", "up0", USUAL), ("brj", "up1", LARGE), ("brk", "up2", LARGE)):
        uplink(node, port, size)
        node.bridge(name, port)
    node.tap("tap0")
    up(first)
    with sizes("br0", "brj", "brk", "tap0") as had:
        up(second)
    assert (had["br0"], had["brj"], had["brk"]) == ({USUAL}, {LARGE}, {LARGE})
    assert had["tap0"] == {mtu(first), mtu(second)}
    assert ask("ip", "-j", "link", "show", "tap0")[0]["master"] == second and mtu("tap0") == mtu(second)
    assert drift() == []
