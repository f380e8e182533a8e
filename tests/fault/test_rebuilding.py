"""Take away what NICs stand on, and make it anew, at random: guests are connected a second after it is whole, and never forge meanwhile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from random import Random

import pytest

from tests.support import figures
from tests.support.agent import agent
from tests.support.bootstrap import ROOT
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rebuilt import Rebuilt, rebuild, report
from tests.support.sample import FULL

SECONDS = 120.0 if FULL else 0.0  #: and each way of rebuilding once


class Unattended(Rebuilt):
    """The same without an agent: somebody calls repair."""

    def settle(self) -> None:
        command = [sys.executable, "-m", "netcommon.cli", "repair", "--all"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            self.faults.append(f"repair --all: status {done.returncode}, {done.stdout}{done.stderr}")
        now = time.monotonic()
        self.bared = [(begun, now, seconds) for begun, _end, seconds in self.bared]


@pytest.mark.no_agent("starts an agent of its own")
def test_with_the_agent(node: Node, ovs: OpenVswitch) -> None:
    with agent() as running, contextlib.closing(Rebuilt(node, ovs, Random(15))) as made:
        running.rested()
        made.waited.append(running.waited)
        count = rebuild(made, SECONDS)
        report(made)
        figures.add(
            "rebuilding", count, len(made.faults), len(made.faults), f"with the agent, whole after {max(made.took.values()):.2f} s at most"
        )
        assert made.faults == [], "\n".join([*made.faults, running.output])


@pytest.mark.no_agent("is about a node without one")
def test_without_the_agent(node: Node, ovs: OpenVswitch) -> None:
    """One repair of all NICs makes everything whole."""
    with contextlib.closing(Unattended(node, ovs, Random(16))) as made:
        count = rebuild(made, SECONDS / 4)
        report(made)
        figures.add("rebuilding", count, len(made.faults), len(made.faults), "by repair --all")
        assert made.faults == [], "\n".join(made.faults)
