"""Take away what NICs stand on, on a kernel with bonds, VRFs and Open vSwitch's own datapath: as in tests/fault/test_rebuilding.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from random import Random

import pytest

from tests.support.agent import agent
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rebuilt import NODE4, NODE6, TABLE, Rebuilt, rebuild, report

SECONDS = 60.0  #: after each way of rebuilding once


class InTheMachine(Rebuilt):
    """The bridge's uplink is a bond, and that of the guests' table a port of the table's VRF."""

    def __init__(self, node: Node, ovs: OpenVswitch, chance: Random) -> None:
        run("ip", "link", "add", "blue", "type", "vrf", "table", TABLE)
        run("ip", "link", "set", "blue", "up")
        super().__init__(node, ovs, chance)
        for family in ("-4", "-6"):
            run("ip", family, "rule", "del", "preference", "400")
        run("ip", "link", "set", "up0", "nomaster")
        self.bond()
        run("ip", "link", "set", "bond0", "master", "br0")
        self.joins_vrf()

    def bond(self) -> None:
        run("ip", "link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "20")
        self.joins_bond()
        run("ip", "link", "set", "bond0", "up")

    def joins_bond(self) -> None:
        run("ip", "link", "set", "up0", "down")
        run("ip", "link", "set", "up0", "master", "bond0")
        run("ip", "link", "set", "up0", "up")

    def joins_vrf(self) -> None:
        """With its addresses and routes, which the kernel takes away when a device becomes a port of another."""
        run("ip", "link", "set", "up1", "master", "blue")
        for address in (f"{NODE4}/24", f"{NODE6}/64"):
            run("ip", "address", "replace", address, "dev", "up1", *(("nodad",) if ":" in address else ()))
        self.table()

    def bridge_anew(self) -> None:
        run("ip", "link", "del", "br0")
        self.pause()
        self.node.bridge("br0", "bond0")

    def uplink_leaves(self) -> None:
        run("ip", "link", "set", "bond0", "nomaster")
        self.pause()
        run("ip", "link", "set", "bond0", "master", "br0")

    def uplink_anew(self, name: str) -> None:
        """The wire itself: a port of the bond, or of the VRF."""
        run("ip", "link", "del", {"b": "up0", "r": "up1"}[name])
        self.pause()
        self.uplink(name)
        if name == "b":
            self.joins_bond()
        else:
            self.joins_vrf()

    def uplink_flaps(self) -> None:
        run("ip", "link", "set", "up1", "down")
        self.pause()
        run("ip", "link", "set", "up1", "up")
        self.joins_vrf()

    def table_flushed(self) -> None:
        """All but what makes the node's own addresses its own, which stands in the VRF's table as well."""
        for family in ("-4", "-6"):
            run("ip", family, "route", "flush", "table", TABLE, "type", "unicast")
        self.pause()
        self.table()

    def bond_anew(self) -> None:
        run("ip", "link", "del", "bond0")
        self.pause()
        self.bond()
        run("ip", "link", "set", "bond0", "master", "br0")

    def vrf_anew(self) -> None:
        run("ip", "link", "del", "blue")
        self.pause()
        run("ip", "link", "add", "blue", "type", "vrf", "table", TABLE)
        run("ip", "link", "set", "blue", "up")
        self.joins_vrf()

    def leaves_vrf(self) -> None:
        run("ip", "link", "set", "up1", "nomaster")
        self.pause()
        self.joins_vrf()

    def ways(self) -> dict[str, Callable[[], None]]:
        return super().ways() | {
            "the bond is made anew": self.bond_anew,
            "the VRF is made anew": self.vrf_anew,
            "the uplink leaves the VRF": self.leaves_vrf,
        }

    def do(self, what: str) -> None:
        began, known = time.monotonic(), len(self.faults)
        super().do(what)
        print(f"{time.monotonic() - began:5.1f} s  {what}{''.join(f'; FAULT: {fault}' for fault in self.faults[known:])}", flush=True)


@pytest.mark.slow
def test_with_the_agent(node: Node) -> None:
    with OpenVswitch.started("system") as ovs, agent() as running, contextlib.closing(InTheMachine(node, ovs, Random(15))) as made:
        running.rested(60)
        made.waited.append(running.waited)
        rebuild(made, SECONDS)
        report(made)
        assert made.faults == [], "\n".join([*made.faults, running.output])
