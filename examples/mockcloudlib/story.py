"""The story that examples/mockcloud tells: so many nodes, what happens to them, and when all is as it should be again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from examples.clusterlib.story import Registry, promised
from examples.demolib.show import Failed, heading, line, verdict
from mockcloud.cloud import MockCloud
from mockcloud.instances.many import at_once
from mockcloud.instances.tasks import Instances
from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from mockcloud.instances.many import Task

MODES = ("bridged", "routed", "bridged", "routed", "bridged")  #: of the NICs of an instance
TOGETHER = 100  #: nodes that are made at once
EVERY = 5.0  #: seconds between two lines about how far it is
LOOKS = 1.0  #: seconds between two looks at what the registry shows
LONG = 1200.0  #: seconds in which anything converges
SHOWN = 120.0  #: seconds in which the registry shows what was done to one instance


class Story:
    """A cloud, its registry, and what is to be seen of them."""

    def __init__(self, registry: Registry, folder: Path, nodes: int) -> None:
        self.registry, self.nodes, self.nics = registry, nodes, nodes * len(MODES)
        self.cloud = MockCloud(str(folder / "cloud"), service=str(registry.socket))
        self.instances = Instances(self.cloud, SHOWN)
        self.uuids: list[str] = []
        self._said = time.monotonic()

    def far(self, done: int, whole: int, what: str) -> None:
        """Say now and then how far it is."""
        if time.monotonic() >= self._said + EVERY:
            self._said = time.monotonic()
            line(f"{done:,} of {whole:,} {what}")

    def shown(self, kind: str, **query: str) -> int:
        """Count what the registry shows."""
        return sum(1 for _ in self.cloud.registry.client().all(kind, **query))

    def alive(self) -> int:
        """Count the nodes that are alive by the registry, and whose agents have nothing to tell."""
        found = (self.cloud.nodes[each["node"]["uuid"]] for each in self._known() if each["alive"])
        standing = [node.agent.status() for node in found]
        return sum(1 for each in standing if each.get("registry") == "in step" and not each["registry marks"])

    def _known(self) -> Iterator[dict[str, dict[str, str]]]:
        return (each for each in self.cloud.registry.client().all("nodes", kind="virtual") if each["node"]["uuid"] in self.cloud.nodes)

    def converges(self, what: str, whole: int, count: Callable[[], int], since: float | None = None) -> None:
        """Let time pass until as many as there should be are so. Raises Failed where they are not in time."""
        begun = time.monotonic() if since is None else since
        while (found := self._counted(count)) != whole:
            if time.monotonic() > begun + LONG:
                promised(False, f"{whole:,} {what}: {found:,} within {LONG:.0f} s")
            self.far(max(found, 0), whole, what)
            self.passes(LOOKS)
        promised(True, f"{whole:,} {what}, after {time.monotonic() - begun:.1f} s")

    def _counted(self, count: Callable[[], int]) -> int:
        try:
            return count()
        except NetcommonError:  # the service is not there, or has too much to do
            return -1

    def passes(self, seconds: float) -> None:
        self.cloud.scheduler.passes(seconds)
        del self.cloud.log[:]


def play(checkout: Path, folder: Path, nodes: int) -> None:
    """Tell the whole story in a folder. Raises Failed."""
    registry = Registry(checkout, folder)
    try:
        heading(f"A registry, and {nodes:,} nodes that join it")
        registry.type("init")
        registry.start()
        story = Story(registry, folder, nodes)
        try:
            _tell(story)
        finally:
            story.cloud.close()
    except NetcommonError as error:
        verdict(False, str(error))
        raise Failed from None
    finally:
        registry.end(signal.SIGTERM)


def _tell(story: Story) -> None:
    _joined(story)
    _filled(story)
    _cut_off(story)
    _restarted(story)
    _moved(story)


def _joined(story: Story) -> None:
    while left := story.nodes - len(story.uuids):
        story.uuids += [each.uuid for each in story.cloud.create(min(left, TOGETHER))]
        story.far(len(story.uuids), story.nodes, "nodes made")
    story.cloud.network("blue", {"subnet": "10.0.0.0/9"})
    begun = time.monotonic()
    story.cloud.start(0.0)
    story.converges("agents in step with the registry", story.nodes, story.alive, begun)


def _filled(story: Story) -> None:
    heading(f"An instance with {len(MODES)} NICs on each")
    begun = time.monotonic()
    for number, uuid in enumerate(story.uuids, 1):
        nics = [{"network": "blue", "mode": mode, "link": "guests" if mode == "routed" else "br0"} for mode in MODES]
        story.instances.create(f"web{number}", uuid, nics)
        story.passes(0.0)
        story.far(number * len(MODES), story.nics, "NICs made, each with a MAC and an address of its own")
    names = [f"web{number}" for number in range(1, story.nodes + 1)]
    _all(story, "instances started", [story.instances.starting(each) for each in names])
    story.converges("NICs run", story.nics, lambda: story.shown("nics", state="running"), begun)


def _cut_off(story: Story) -> None:
    away = story.uuids[::4]
    gone, left = len(away) * len(MODES), story.nics - len(away) * len(MODES)
    heading(f"{len(away):,} nodes are cut off from the registry")
    story.cloud.registry.wire.cut.update(dict.fromkeys(away, "both"))
    story.converges("NICs unknown", gone, lambda: story.shown("nics", state="unknown"))
    promised(story.shown("nics", state="running") == left, f"{left:,} others run, as before")
    running = sum(len(os.listdir(f"{story.cloud.root}/servers/{uuid}/run/netcommon/nics")) for uuid in away)
    promised(running == gone, f"{running:,} are on record still, on the nodes that are cut off")
    heading("They are reached again")
    story.cloud.registry.wire.cut.clear()
    story.converges("agents in step with the registry", story.nodes, story.alive)
    story.converges("NICs run", story.nics, lambda: story.shown("nics", state="running"))


def _restarted(story: Story) -> None:
    heading("The registry is killed, and started again")
    story.registry.end(signal.SIGKILL)
    story.passes(LOOKS)
    begun, asked = time.monotonic(), story.cloud.registry.wire.asked
    story.registry.start()
    story.converges("agents in step with the registry", story.nodes, story.alive, begun)
    line(f"{story.cloud.registry.wire.asked - asked:,} requests and streams")
    promised(story.shown("nics", state="running") == story.nics, f"{story.nics:,} NICs run, as before")


def _moved(story: Story) -> None:
    chosen = range(0, story.nodes, 4)
    heading(f"{len(chosen):,} instances migrate, {len(chosen) * len(MODES):,} NICs")
    to = {f"web{place + 1}": story.uuids[(place + 2) % story.nodes] for place in chosen}
    clashes, looked = [0], [time.monotonic()]

    def look() -> None:
        if time.monotonic() >= looked[0] + LOOKS:
            looked[0] = time.monotonic()
            clashes[0] = max(clashes[0], story.shown("conflicts"))

    begun = time.monotonic()
    _all(story, "instances on another node", [story.instances.migrating(name, node) for name, node in to.items()], look)
    story.converges("NICs run", story.nics, lambda: story.shown("nics", state="running"), begun)
    promised(clashes[0] == story.shown("conflicts") == 0, "no MAC and no address was in conflict meanwhile")
    arrived = sum(story.instances.find(name).node == node for name, node in to.items())
    promised(arrived == len(to), f"{arrived:,} instances are where they should be")


def _all(story: Story, what: str, tasks: list[Task], look: Callable[[], None] = lambda: None) -> None:
    """Do many tasks at once. Raises Failed where one of them fails."""

    def seen(done: int) -> None:
        story.far(done, len(tasks), what)
        look()

    found = at_once(story.cloud, tasks, seen=seen)
    promised(found.done == len(tasks), f"{found.done:,} {what}" + "".join(f"; {each}" for each in found.failed[:3]))
