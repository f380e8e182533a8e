"""A guest that QEMU itself moves between two nodes, with its network, its console and its name; in the order in which Ganeti does it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.kernel.agent.test_underlay_migration import Place, addresses, joined
from tests.kernel.agent.test_underlay_migration import registry as _registry
from tests.kernel.agent.test_underlay_migration import server as _server
from tests.kernel.agent.test_underlay_registry import GUEST, MOVING, NAME
from tests.kernel.test_endpoints import BANNER, CONSOLES, greeting, process
from tests.kernel.test_zone import Poller, polled
from tests.support.agent import contention
from tests.support.guest_client import Console, Pinged, consoled, pinged
from tests.support.hypervisors import VNC, Ganeti, Hypervisor
from tests.support.netns import Namespace, run, wait_until
from tests.support.node import Node
from tests.support.qemu import Qemu, little
from tests.support.registry_process import Registry
from tests.support.routed import options
from tests.support.sample import FULL

registry, server = _registry, _server
ROUNDS = 20 if FULL else 1  #: each way
PROMPT = 2.0  #: seconds in which names follow, on a machine that has nothing else to do
SCREEN = 5901  #: where the guest's screen is forwarded: QEMU greets whoever comes, also while it waits for the guest
ADDRESS, OUTSIDE = "10.1.0.5", "10.1.0.1"
BRIDGED = {**GUEST, "IP": ""}
ROUTED = {**GUEST, "MODE": "routed", "LINK": "", "IP": ADDRESS, "TAGS": options("uplink_proxy:both")}


class Live:
    """Two nodes, the network of guests around them, and a hypervisor on each."""

    def __init__(self, places: Sequence[Place], router: Namespace, hypervisors: Sequence[Hypervisor]) -> None:
        self.places, self.router, self.hypervisors = places, router, hypervisors
        self.console: Console

    def screen(self, name: str) -> bool:
        """Tell whether a name leads to the guest's QEMU."""
        found = addresses(name)
        return len(found) == 1 and greeting(self.router, found[0], SCREEN) == BANNER

    def begins(self) -> None:
        """Let the guest start on the first node."""
        self.hypervisors[0].start()
        self.places[0].agent.took(lambda: len(addresses(NAME)) == 1, 20, "its name is there")

    def comes(self, target: int) -> float:
        """Let a QEMU wait for the guest; give the seconds from the up there until it is reached by the name of the migration."""
        self.hypervisors[target].accepts()
        self.places[target].agent.took(lambda: self.screen(MOVING), 20, "the name of the migration is answered")
        return time.time() - self.hypervisors[target].up

    def sends(self, source: int, target: int) -> float:
        """Let QEMU move the guest; give when it ran on the target (time.time())."""
        leaving, coming = self.hypervisors[source].qemu, self.hypervisors[target].qemu
        assert leaving is not None and coming is not None
        leaving.sends(self.hypervisors[target].where)
        leaving.sent()
        return coming.monitor.event("RESUME")

    def is_sending(self, source: int, target: int) -> None:
        """Let QEMU be in the midst of moving the guest."""
        leaving = self.hypervisors[source].qemu
        assert leaving is not None
        leaving.slowly()
        leaving.sends(self.hypervisors[target].where)
        wait_until(lambda: leaving.status() == "active", 20, "the guest is on its way")

    def named(self, target: int) -> None:
        """Wait until the guest's name leads to a node, and there is no other."""
        place = self.places[target]
        place.agent.took(lambda: all(map(place.has, addresses(NAME))), 20, "its name is where it is")
        place.agent.took(lambda: addresses(MOVING) == (), 20, "there is no name of a migration")

    def answered(self, target: int, since: float) -> float:
        """Wait until the console has answered by its name on a node; give when (time.time())."""
        has = self.places[target].has
        wait_until(lambda: self.console.since(since, has), 20, "its console answers where it is")
        found = self.console.since(since, has)
        assert found is not None
        return found.when


def around(node: Node, place: Place, router: Namespace, port: str, nic: dict[str, str]) -> None:
    """Connect a node with the network of guests: by a bridge, or as their router."""
    node.wire("up1", router, port)
    router.run("ip", "link", "set", port, "master", "seg")
    if nic["MODE"] == "bridged":
        node.bridge("br0", "up1")
    else:
        node.address("up1", f"10.1.0.{11 + place.number}/24")
        run("ip", "route", "add", "default", "via", OUTSIDE)


@contextlib.contextmanager
def live(
    node: Node, registry: Registry, folder: Path, nic: dict[str, str], kind: Callable[..., Hypervisor], installed: bool = True
) -> Iterator[Live]:
    """See Live. ``kind``: which hypervisor; ``installed``: Ganeti is on the nodes."""
    kernel = little(folder)
    with (
        joined(node, registry, folder, Ganeti.installed if installed else lambda: None) as (first, second, router),
        contextlib.ExitStack() as stack,
    ):
        router.run("ip", "link", "add", "seg", "type", "bridge", "forward_delay", "0")
        router.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "seg")
        router.run("ip", "link", "set", "seg", "up")
        hypervisors = []
        for place, prefix in ((first, "fd12:3456:789a::1"), (second, "fd12:3456:789a:1::1")):
            place.there(around, place.node, place, router, f"port{place.number}", nic)
            for words in ((), ("--port", str(SCREEN), "--socket", VNC)):
                forwarder = process(CONSOLES, *words)
                place.there(forwarder.__enter__)
                stack.callback(place.there, forwarder.__exit__, None, None, None)
            made = partial(Qemu, folder / f"qemu{place.number}", kernel, ADDRESS, nic["MAC"])
            hypervisors.append(kind(place.there, made, nic, prefix))
            stack.callback(hypervisors[-1].dies)
        yield Live((first, second), router, hypervisors)


class Measured:
    """Give how long things took, in seconds."""

    def __init__(self) -> None:
        self.moving: list[float] = []  #: from the up on the target until QEMU is reached there by the name of the migration
        self.named: list[float] = []  #: from the guest's first moment on the target until its name is seen to lead there
        self.told: list[float] = []  #: the same from the end of what the hypervisor does then
        self.console: list[float] = []  #: from the guest's first moment on the target until its console has answered there by its name

    def __str__(self) -> str:
        return ", ".join(f"{name} {statistics.median(each):.2f} s, at most {max(each):.2f} s" for name, each in vars(self).items())

    def judge(self) -> None:
        """Compare it with what is to be, on a machine that is as busy as this one."""
        busy = contention()
        assert all(statistics.median(each) < PROMPT * busy for each in vars(self).values()), f"{self}; {busy:.1f} times as slow as alone"


def migrates(site: Live, source: int, target: int, asked: Poller, measured: Measured) -> None:
    """Let the guest go from one node to the other."""
    measured.moving.append(site.comes(target))
    assert all(map(site.places[source].has, addresses(NAME)))
    moments = len(asked.answers)
    arrived = site.sends(source, target)
    site.hypervisors[source].has_gone()
    site.hypervisors[target].is_here()
    done = time.time()
    site.named(target)
    now = time.time()
    assert len(asked.answers) <= moments + 1
    measured.named.append(now - arrived)
    measured.told.append(now - done)
    measured.console.append(site.answered(target, arrived) - arrived)


@contextlib.contextmanager
def used(site: Live, folder: Path) -> Iterator[tuple[Poller, Pinged]]:
    """Let somebody ask for the guest's name, hold its console, and ping it, until the end."""
    with (
        polled(NAME) as asked,
        consoled(site.router, lambda: addresses(NAME)) as site.console,
        pinged(site.router, ADDRESS, folder / "pings") as pings,
    ):
        site.answered(0, 0)
        yield asked, pings


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Ganeti, partial(Ganeti, later=True)], ids=["3.0", "3.2"])
@pytest.mark.parametrize("nic", [BRIDGED, ROUTED], ids=["bridged", "routed"])
def test_a_guest_that_qemu_moves(
    node: Node, registry: Registry, tmp_path: Path, nic: dict[str, str], kind: Callable[..., Hypervisor]
) -> None:
    """Whoever asks is told one address each time, and by that address the guest's console is reached on the node on which it is."""
    measured = Measured()
    with live(node, registry, tmp_path, nic, kind) as site:
        site.begins()
        with used(site, tmp_path) as (asked, pings):
            for _ in range(ROUNDS):
                migrates(site, 0, 1, asked, measured)
                migrates(site, 1, 0, asked, measured)
        lines = [each.lines for each in site.console.answers]
        assert asked.wrong == [] and asked.silent == 0
        assert len(asked.answers) == 2 * ROUNDS + 1 == len(set(asked.answers)), "no address is given twice"
        assert lines == sorted(set(lines)), "it is the same guest all the time"
        assert [each.agent.status()["alarms"] for each in site.places] == [{}, {}]
    print(
        f"underlay: {2 * ROUNDS} migrations by QEMU, {asked.count} answers, {len(lines)} of the guest's, {site.console.opened} connections"
    )
    print(f"underlay: {measured}; {pings.count} pings, {pings.longest:.2f} s between two at most")
    measured.judge()
