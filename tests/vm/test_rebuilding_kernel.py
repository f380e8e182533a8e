"""As tests/fault/test_rebuilding.py, with what the running kernel may lack: the uplink is a bond, and the guests' table is a VRF's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from random import Random

import pytest

from tests.fault.test_rebuilding import NODE4, NODE6, TABLE, Rebuilt, rebuild, report
from tests.support import figures
from tests.support.agent import agent
from tests.support.netns import run
from tests.support.node import Node
from tests.support.ovs import OpenVswitch

pytestmark = pytest.mark.slow

SECONDS = 120.0  #: and each way of rebuilding once


class InTheMachine(Rebuilt):
    """The bridge's uplink is ``bond0``, of which ``up0`` is the one wire; ``up1`` is a port of the VRF ``blue``."""

    def __init__(self, node: Node, ovs: OpenVswitch, chance: Random) -> None:
        run("ip", "link", "add", "blue", "type", "vrf", "table", TABLE)
        run("ip", "link", "set", "blue", "up")
        super().__init__(node, ovs, chance)
        run("ip", "link", "set", "up0", "nomaster")
        self.bond()
        self.joins_vrf()

    def bond(self) -> None:
        run("ip", "link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "20")
        self.joins_bond()
        run("ip", "link", "set", "bond0", "master", "br0", "up")

    def joins_bond(self) -> None:
        run("ip", "link", "set", "up0", "down")
        run("ip", "link", "set", "up0", "master", "bond0")
        run("ip", "link", "set", "up0", "up")

    def joins_vrf(self) -> None:
        """A device that joins loses its addresses of IPv6."""
        run("ip", "link", "set", "up1", "master", "blue")
        for family, address in (("-4", f"{NODE4}/24"), ("-6", f"{NODE6}/64")):
            run("ip", family, "address", "replace", address, "dev", "up1", *(("nodad",) if family == "-6" else ()))
            run("ip", family, "rule", "del", "preference", "400", check=False)
        self.table()

    # -- what is done otherwise here

    def bridge_anew(self) -> None:
        run("ip", "link", "del", "br0")
        self.pause()
        self.node.bridge("br0", "bond0")

    def uplink_leaves(self) -> None:
        run("ip", "link", "set", "bond0", "nomaster")
        self.pause()
        run("ip", "link", "set", "bond0", "master", "br0")

    def uplink_anew(self, name: str) -> None:
        run("ip", "link", "del", {"b": "up0", "r": "up1"}[name])
        self.pause()
        self.uplink(name)
        if name == "b":
            self.joins_bond()
        else:
            self.joins_vrf()

    def bond_anew(self) -> None:
        run("ip", "link", "del", "bond0")
        self.pause()
        self.bond()

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


@pytest.mark.no_agent("starts an agent of its own")
def test_with_the_agent(node: Node, ovs: OpenVswitch) -> None:
    begun = time.monotonic()
    with agent() as running, contextlib.closing(InTheMachine(node, ovs, Random(17))) as made:
        running.rested(60)
        count = rebuild(made, SECONDS)
        report(made)
        print(f"{count} in {time.monotonic() - begun:.0f} s")
        figures.add("rebuilding", count, len(made.faults), len(made.faults), "with the agent, in Debian's kernel")
        assert made.faults == [], "\n".join([*made.faults, running.output])
