"""A guest moves between two nodes with real agents while the registry is away: the operator's values are there before it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.paths import Paths
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import Agent, agent
from tests.support.members import CLUSTER, joins, serving, started
from tests.support.netns import wait_until
from tests.support.node import Node
from tests.support.registry import NODES
from tests.support.registry_process import Registry, elsewhere
from tests.support.routed import options
from tests.support.rundoor import rundoor
from tests.support.streams import Sender, mac
from tests.support.tap import Tap

SETTINGS = "[registry]\ncompare_delay = 3600\n"
#: Its tags let the guest send from any address; the operator does not.
MOVES = environment(0, MODE="bridged", LINK="br0", IP="10.0.0.1", MAC=mac(0), TAGS=options("allow_ip_spoofing"))
#: The same, and nobody has said anything against it.
FREE = {
    **MOVES,
    "INTERFACE": "tap1",
    "IP": "10.0.0.2",
    "MAC": mac(1),
    "INSTANCE": "web9",
    "INTERFACE_UUID": "99999999-0667-415f-9a43-786dc01cbf24",
}
HEARS = environment(2, MODE="bridged", LINK="br0", IP="10.0.0.3", MAC=mac(2))


class Forging:
    """A guest that sends, from the moment it has a device, one forged frame and one of its own in turn; and what of both is heard."""

    def __init__(self, number: int, tap: Tap, hears: Tap) -> None:
        self._sender, self._tap, self._hears = Sender(number, "bridged"), tap, hears
        self._over = threading.Event()
        self.heard = {b"forged": 0, b"honest": 0}
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):  # the device is down still
                self._tap.send(self._sender.frame(b"forged", "10.0.0.77"))
                self._tap.send(self._sender.frame(b"honest"))
            if found := self._hears.receive(lambda frame: b"forged" in frame or b"honest" in frame, 0.01):
                self.heard[b"forged" if b"forged" in found else b"honest"] += 1

    def __enter__(self) -> Forging:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with serving(tmp_path) as made:
        yield made


def begins(node: Node) -> Tap:
    """Make what guests need of a node; give the tap of one that hears the others."""
    node.bridge("br0")
    tap = node.tap("tap2")
    assert rundoor("kvm-ifup", HEARS).status == 0
    return tap


def comes(node: Node, number: int, nic: dict[str, str], hears: Tap) -> dict[bytes, int]:
    """Let a guest come that sends before its up has begun; give what of it was heard."""
    tap = node.tap(nic["INTERFACE"])
    with Forging(number, tap, hears) as forging:
        assert rundoor("kvm-ifup", nic).status == 0
        wait_until(lambda: forging.heard[b"honest"] > 200 or forging.heard[b"forged"] > 20, 20, "the guest is heard")
    return forging.heard


def on_disk(uuid: str) -> str:
    found = Path(Paths().wanted, f"{uuid}.json")
    return found.read_text() if found.exists() else ""


def in_step(running: Agent) -> None:
    running.took(lambda: running.status()["agent"]["registry"] == "in step", 20, "it is in step")


def test_a_guest_that_moves_while_the_registry_is_away(node: Node, registry: Registry) -> None:
    """Not one forged frame passes on the target, and when the registry is back it says where the guest is."""
    uuid = MOVES["INTERFACE_UUID"]

    def nic() -> dict[str, Any]:
        with registry.client() as asked:
            return dict(asked.get(f"nics/{uuid}").body)

    joins(registry, 0)
    with registry.client(f"importer:{CLUSTER}") as importer:
        said = {"instance": "web0", "index": 0, "mac": mac(0), "ip": "10.0.0.1", "tags": MOVES["TAGS"].split()}
        importer.change("POST", "nics", {"uuid": uuid, **said})
    with elsewhere() as there, agent(settings=SETTINGS) as source:
        there(joins, registry, 1)
        target = there(started, SETTINGS)
        try:
            hears = begins(node)
            beside = there(begins, there.node)
            assert comes(node, 0, MOVES, hears)[b"forged"] > 0, "by its tags it may"
            source.took(lambda: nic()["shown"]["state"] == "running", 20, "it is reported")
            with registry.client() as operator:
                operator.change("PATCH", f"nics/{uuid}", {"options": [{"name": "allow_ip_spoofing", "value": "no"}]})
            target.took(lambda: "allow_ip_spoofing" in there(on_disk, uuid), 20, "the operator's value is on the target's disk")
            source.took(lambda: nic()["shown"]["applied"] == nic()["revision"], 20, "it is in force on the source")
            registry.kill()

            heard = there(comes, there.node, 0, MOVES, beside)
            assert heard[b"forged"] == 0 and heard[b"honest"] > 200, heard
            assert there(comes, there.node, 1, FREE, beside)[b"forged"] > 0, "of a guest of which the operator has said nothing it passes"
            assert rundoor("kvm-ifdown", MOVES).status == 0

            registry.start()
            there(in_step, target)
            target.took(lambda: nic()["shown"]["nodes"] == [NODES[1]], 30, "it is where it is")
            target.took(lambda: nic()["shown"]["state"] == "running", 20, "what the source has said counts no more")
            assert nic()["shown"]["applied"] == nic()["revision"]
        finally:
            there(target.close)
