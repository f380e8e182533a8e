"""netcommon events beside a real agent: what happens to NICs on the kernel is told, whoever did it; and without an agent what can be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from netagent.observe.control import ask
from netcommon.host.linux.host import LinuxHost
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import Agent, agent
from tests.support.bootstrap import ROOT, VENV
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.tap import Tap

pytestmark = pytest.mark.no_agent("starts agents of its own")

BRIDGED = {"MODE": "bridged", "LINK": "br0", "IP": "10.0.0.5"}
COMMAND = (str(VENV / "bin/python"), "-m", "netcommon.cli")


class Follower:
    """A running ``netcommon events --follow --json``."""

    def __init__(self, *arguments: str) -> None:
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            (*COMMAND, "events", "--follow", "--json", *arguments),
            env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None and self.process.stderr is not None
        for stream in (self.process.stdout, self.process.stderr):
            os.set_blocking(stream.fileno(), False)
        self._out = self.said = ""

    def events(self) -> list[dict[str, Any]]:
        assert self.process.stdout is not None and self.process.stderr is not None
        self._out += (self.process.stdout.read() or b"").decode()
        self.said += (self.process.stderr.read() or b"").decode()
        return [json.loads(line) for line in self._out.splitlines(keepends=True) if line.endswith("\n")]

    def kinds(self) -> list[str]:
        return [each["kind"] for each in self.events()]

    def seen(self, *kinds: str) -> None:
        """Waits until events of these kinds have come, in this order, with others between them."""

        def there() -> bool:
            left = iter(self.kinds())
            return all(kind in left for kind in kinds)

        wait_until(there, 15, f"{kinds} in {self.events()}\n{self.said}")


@contextmanager
def following(*arguments: str) -> Iterator[Follower]:
    made = Follower(*arguments)
    try:
        yield made
        made.process.terminate()
        assert made.process.wait(20) == -signal.SIGTERM
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.communicate()


@pytest.fixture
def tap(node: Node) -> Tap:
    node.bridge("br0")
    return node.tap("tap0")


def answers(running: Agent) -> dict[str, Any]:
    found: dict[str, Any] = ask("/run/netcommon", LinuxHost().identity().netns, "events 0")
    return found


def ready(follower: Follower) -> None:
    """It has started to look: an event that is made for it comes."""

    def touched() -> bool:
        assert rundoor("kvm-ifup", environment(**BRIDGED, INTERFACE="tap9")).status == 0
        assert rundoor("kvm-ifdown", environment(**BRIDGED, INTERFACE="tap9"), "tap9", "hot-remove").status == 0
        return bool(follower.events())

    with_tap = Tap("tap9")
    try:
        wait_until(touched, 20, follower.said)
    finally:
        with_tap.close()


def test_a_nics_life_with_an_agent(tap: Tap) -> None:
    """Up, damage that is repaired, another NIC's, the guest's death: told within moments, each once; and told again to who asks later."""
    with agent() as running, following("web1", "--since", "1h") as follower:
        wait_until(lambda: answers(running)["events"], 10, "the agent's start")
        ready_for = environment(**BRIDGED, INSTANCE="web1", INTERFACE_INDEX="0")
        assert rundoor("kvm-ifup", ready_for).status == 0
        follower.seen("up")
        running.rested()
        run("ip", "link", "set", "dev", "tap0", "nomaster")
        follower.seen("up", "drift", "repaired")
        told = {each["kind"]: each for each in follower.events()}
        all_of_it = "\n".join(f"{each['when']} {each['kind']}: {each['text']}" for each in follower.events())
        assert "it is a port of no bridge" in told["drift"]["text"], f"{all_of_it}\n{running.output()}"
        assert told["drift"]["label"] == "web1/0"
        assert told["up"]["device"] == "tap0" and told["up"]["schema"] == "netcommon-event"
        tap.close()
        for last in ("reaped", "down"):  # a worker tells of the one, the loop of the other: either may be first
            follower.seen("up", "repaired", "device gone", last)
        kinds = follower.kinds()
        assert kinds.count("up") == 1 and kinds.count("repaired") == 1
        later = [each["kind"] for each in answers(running)["events"] if each["label"] == "web1/0"]
        assert later == kinds


def test_without_an_agent_ups_and_downs_are_seen(tap: Tap) -> None:
    """It says so, and follows the records; an agent that starts is followed from then on."""
    nic = environment(**BRIDGED, INSTANCE="web1", INTERFACE_INDEX="0")
    with following() as follower:
        ready(follower)
        assert "no agent runs" in follower.said and "only ups and downs are seen" in follower.said
        before = len(follower.events())
        assert rundoor("kvm-ifup", nic).status == 0
        wait_until(lambda: "up" in follower.kinds()[before:], 10, str(follower.events()))
        with agent() as running:
            wait_until(lambda: bool(follower.events()) and "an agent runs" in follower.said, 15, follower.said)
            running.rested()
            run("ip", "link", "set", "dev", "tap0", "nomaster")
            follower.seen("up", "agent started", "drift", "repaired")


def test_what_there_was(tap: Tap) -> None:
    """Without --follow: what the agent still has, or the records tell; a time that is no time is refused."""
    nic = environment(**BRIDGED, INSTANCE="web1", INTERFACE_INDEX="0")
    assert rundoor("kvm-ifup", nic).status == 0
    said = run(*COMMAND, "events", "--since", "1h")
    assert "up            web1/0 on tap0: by its record" in said and "no agent runs" in said
    with agent() as running:
        running.rested()
        assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
        wait_until(lambda: "down" in [each["kind"] for each in answers(running)["events"]], 10)
        said = run(*COMMAND, "events", "tap0")
        assert "down          web1/0 on tap0" in said and "agent started" not in said
    refused = subprocess.run((*COMMAND, "events", "--since", "yesterday"), cwd=str(ROOT), capture_output=True, text=True, check=False)
    assert refused.returncode == 64 and "--since" in refused.stderr
