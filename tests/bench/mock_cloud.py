"""Measure a mock cloud with a registry's service on an etcd.

    python -m tests.bench.mock_cloud [--members N] [--sqlite] [--nics N] [--rounds N] [NODES ...]

500, 1,000 and 2,000 nodes by itself, with five NICs on each: the same cloud grows. etcd, `netcommon registry serve` and `mockcloud serve`
are processes of their own. Nodes and instances are made by another process (``--inside``), which ends before anything is measured. At the
largest size the service is killed and started again, and instances migrate, each ``--rounds`` times; who hears the store's commits judges
whether anything is in force on two nodes. What a node costs is said for each size: what grows by more than the number of nodes is named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mockcloud.cloud import MockCloud
from mockcloud.instances.many import at_once
from mockcloud.instances.tasks import Instances
from netregistry.client import Client
from tests.support.bootstrap import ROOT
from tests.support.etcd import Cluster
from tests.support.netns import wait_until
from tests.support.registry_load import Watched
from tests.support.registry_process import Registry
from tests.support.witness import Witness

SIZES = (500, 1000, 2000)
MODES = ("bridged", "routed", "bridged", "routed", "bridged")  #: of the NICs of the one instance of each node
NICS = len(MODES)
IDLE, SETTLED = 60.0, 30.0  #: seconds; for which all rests before
READY = 600.0  #: seconds at most
LARGER = 1.25  #: times as much for each node is a finding
SHOWN = 120.0  #: seconds until the registry shows what one task has done, where many are done at once
TICKS = os.sysconf("SC_CLK_TCK")


def name(number: int) -> str:
    return f"web{number}"


def passes(seconds: float) -> None:
    """Let time pass: what is measured is that nothing happens."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, seconds + 10)


class Figures(dict[str, float]):
    """Figures by what they are of; each is said when it is known."""

    def note(self, what: str, value: float) -> None:
        self[what] = value
        print(f"  {what}: {value:.4g}", file=sys.stderr, flush=True)


# -- inside: the process that makes and moves


def fill(cloud: MockCloud, nodes: int, nics: int) -> dict[str, Any]:
    """Let there be so many nodes, with an instance that runs on each."""
    found, begun = dict[str, Any](), time.monotonic()
    before = cloud.counted().nodes
    cloud.count(nodes)
    found["nodes made, s for each"] = (time.monotonic() - begun) / max(nodes - before, 1)
    cloud.network("blue", {"subnet": "10.0.0.0/9"})
    if not nics:
        return {**found, "failed": ()}
    cloud.start(0.0)
    standing(cloud, nodes)
    instances = Instances(cloud, SHOWN)
    begun = time.monotonic()
    for number in range(before + 1, nodes + 1):
        bodies = [{"network": "blue", "mode": mode, "link": "guests" if mode == "routed" else "br0"} for mode in MODES[:nics]]
        instances.create(name(number), instances.node(f"mock{number}"), bodies)
        cloud.scheduler.passes(0.0)
    found["instances made, ms for each"] = (time.monotonic() - begun) / max(nodes - before, 1) * 1000
    begun = time.monotonic()
    done = at_once(cloud, (instances.starting(name(number)) for number in range(before + 1, nodes + 1)), seen=progress(nodes - before))
    found["instances started, ms for each"] = (time.monotonic() - begun) / max(nodes - before, 1) * 1000
    return {**found, "failed": done.failed}


def storm(cloud: MockCloud, nodes: int, _nics: int) -> dict[str, Any]:
    """Let every instance migrate to the next node but one."""
    cloud.start(0.0)
    standing(cloud, nodes)
    instances, begun = Instances(cloud, SHOWN), time.monotonic()
    homes = {placed.vm.name: placed.node for placed in instances.all()[0]}
    uuids = sorted(homes.values())
    to = {each: uuids[(place + 2) % len(uuids)] for place, each in enumerate(uuids)}
    done = at_once(cloud, (instances.migrating(each, to[home]) for each, home in homes.items()), seen=progress(len(homes)))
    took = time.monotonic() - begun
    return {"migrations, s": took, "migrations of instances a second": done.done / took, "failed": done.failed}


def standing(cloud: MockCloud, nodes: int) -> None:
    """Let time pass until all agents are in step, and have told all."""

    def late() -> int:
        found = [node.agent.status() for node in cloud.nodes.values()]
        return nodes - sum(each.get("registry") == "in step" and not each["registry marks"] for each in found)

    end = time.monotonic() + READY
    while left := late():
        assert time.monotonic() < end, f"{left} agents are not in step"
        cloud.scheduler.passes(0.5)
        cloud.log.clear()


def progress(whole: int) -> Callable[[int], None]:
    said = [time.monotonic()]

    def seen(done: int) -> None:
        if time.monotonic() > said[0] + 10.0:
            said[0] = time.monotonic()
            print(f"    {done} of {whole}", file=sys.stderr, flush=True)

    return seen


def inside(what: str, root: str, socket: str, nodes: int, nics: int) -> None:
    """Do one thing in this process, and print what it has cost."""
    cloud = MockCloud(root, service=socket)
    try:
        found = {"fill": fill, "storm": storm}[what](cloud, nodes, nics)
    finally:
        cloud.close()
    failed = found.pop("failed")
    assert not failed, failed[:5]
    print(json.dumps(found))


# -- outside: who measures


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def status(pid: int, field: str) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0])


class Bench:
    """A registry with its service, and a cloud of it. ``store``: the etcd; "": a file."""

    def __init__(self, folder: Path, store: str, nics: int) -> None:
        self.nics = nics
        self.registry = Registry(folder / "registry", store)
        if store:
            self.registry.command("init")
        self.root, self.log = str(folder / "cloud"), folder / "log"
        self.figures = Figures()

    def within(self, what: str, nodes: int) -> None:
        """Let a process of its own make or move."""
        argv = [
            sys.executable,
            "-m",
            "tests.bench.mock_cloud",
            "--inside",
            what,
            self.root,
            str(self.registry.socket),
            str(nodes),
            str(self.nics),
        ]
        said = subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        for key, value in json.loads(said.splitlines()[-1]).items():
            self.figures.note(key, value)

    @contextlib.contextmanager
    def served(self, nodes: int) -> Iterator[int]:
        """Run `mockcloud serve`; give its process. The seconds until all is shown by the registry are noted."""
        begun = time.monotonic()
        with open(self.log, "ab") as log:
            process = subprocess.Popen([sys.executable, "-m", "mockcloud", "serve", "--cloud", self.root], cwd=ROOT, stdout=log, stderr=log)
        try:
            with self.registry.client() as asked:
                self.until(lambda: self.shown(asked, nodes) == (nodes, nodes * self.nics, nodes), process)
            self.figures.note("ready, s", time.monotonic() - begun)
            yield process.pid
        finally:
            process.terminate()
            process.wait(120)

    def shown(self, asked: Client, nodes: int) -> tuple[int, int, int]:
        """Count nodes that are alive, NICs that run, and streams, as the registry shows them."""
        streams = int(asked.get("status").body["streams"])
        if streams < nodes:  # who measures does not list all of it again and again meanwhile
            return 0, 0, streams
        alive = sum(each["alive"] for each in asked.all("nodes", kind="virtual"))
        return alive, sum(1 for _ in asked.all("nics", state="running", cluster="mock")), streams

    def until(self, holds: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
        end = time.monotonic() + READY
        while True:
            with contextlib.suppress(Exception):  # the service may be busy
                if holds():
                    return
            assert time.monotonic() < end and (process is None or process.poll() is None), self.log.read_text()[-2000:]
            time.sleep(0.5)

    def idle(self, mock: int, seconds: float) -> None:
        """Measure what both processes need while nothing happens."""
        passes(min(SETTLED, seconds))
        before = cpu(mock), cpu(self.registry.pid)
        passes(seconds)
        after = cpu(mock), cpu(self.registry.pid)
        for what, begin, end in zip(("mock process", "service"), before, after, strict=True):
            self.figures.note(f"{what}, idle, % of a CPU", (end - begin) / seconds * 100)

    def sizes(self, mock: int, nodes: int) -> None:
        for what, pid in (("mock process", mock), ("service", self.registry.pid)):
            self.figures.note(f"{what}, MiB", status(pid, "VmRSS") / 1024)
            self.figures.note(f"{what}, at most, MiB", status(pid, "VmHWM") / 1024)
            self.figures.note(f"{what}, KiB a node", status(pid, "VmRSS") / nodes)
            if self.nics:
                self.figures.note(f"{what}, KiB a NIC", status(pid, "VmRSS") / nodes / self.nics)
            self.figures.note(f"{what}, threads", status(pid, "Threads"))

    def restart(self, nodes: int) -> None:
        """Kill the service, and start it again."""
        watched = Watched(self.registry.socket)
        try:
            begun = time.monotonic()
            self.registry.kill()
            self.registry.start()
            with self.registry.client() as asked:
                self.until(lambda: self.shown(asked, nodes) == (nodes, nodes * self.nics, nodes))
            self.figures.note("registry killed and started, until all is as before, s", time.monotonic() - begun)
        finally:
            watched.close()
        self.figures.note("requests a second meanwhile, at most", watched.peak)


def measured(folder: Path, store: str, sizes: Sequence[int], idle: float = IDLE, nics: int = NICS, rounds: int = 1) -> list[Figures]:
    """Measure all sizes; the last one also for a restart and for migrations, so many of each instance."""
    bench, found = Bench(folder, store, nics), []
    bench.registry.start()
    try:
        for nodes in sizes:
            print(f"{nodes} nodes, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            bench.figures = Figures()
            found.append(bench.figures)
            bench.within("fill", nodes)
            with bench.served(nodes) as mock:
                bench.idle(mock, idle)
                bench.sizes(mock, nodes)
                if nodes == sizes[-1]:
                    bench.restart(nodes)
        if not nics:
            return found
        witness = Witness(store) if store else None
        for _ in range(rounds):
            bench.within("storm", sizes[-1])
        if witness is not None:
            judge = witness.close()
            bench.figures.note("commits during the migrations", judge.commits)
            bench.figures.note("NICs that moved", judge.moves)
            bench.figures.note("NICs that were moving at once, at most", judge.moving)
            bench.figures.note("NICs, MACs and addresses reported as in force twice", len(judge.wrong))
            bench.figures.note("a NIC is, for at most, ms", judge.longest * 1000)
            for each in judge.wrong[:10]:
                print(f"    {each}", file=sys.stderr)
    finally:
        bench.registry.kill()
    return found


def table(found: Sequence[Figures], sizes: Sequence[int], nics: int = NICS) -> str:
    """Give what docs/performance.md says, in Markdown; what grows by more than the nodes is marked."""
    rows = [["what", *(f"{size:,} nodes, {size * nics:,} NICs" for size in sizes)], ["---"] * (len(sizes) + 1)]
    for what in found[-1]:
        cells = [f"{figures[what]:.3g}" if what in figures else "" for figures in found]
        first = found[0].get(what)
        grown = found[-1][what] / first if first else 0.0
        alike = any(word in what for word in ("each", "a node", "a NIC", "threads", "at once"))
        more = len(sizes) > 1 and grown > LARGER * (1 if alike else sizes[-1] / sizes[0])
        rows.append([what, *cells[:-1], f"{cells[-1]} **more**" if more else cells[-1]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(words: Sequence[str]) -> None:
    """Print the table."""
    if words[:1] == ["--inside"]:
        inside(words[1], words[2], words[3], int(words[4]), int(words[5]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=1, help="of the etcd")
    parser.add_argument("--sqlite", action="store_true", help="a file instead")
    parser.add_argument("--nics", type=int, choices=range(NICS + 1), default=NICS, help="of the instance of each node")
    parser.add_argument("--rounds", type=int, default=1, help="of migrations, each of which moves every instance")
    parser.add_argument("nodes", nargs="*", type=int, default=SIZES)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="mockcloud-", dir="/dev/shm") as folder, contextlib.ExitStack() as stack:
        store = ""
        if not given.sqlite:
            (Path(folder) / "etcd").mkdir()
            store = stack.enter_context(Cluster(Path(folder) / "etcd", given.members)).url
        found = measured(Path(folder), store, given.nodes, IDLE, given.nics, given.rounds)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end\n")
    print(table(found, given.nodes, given.nics))


if __name__ == "__main__":
    main(sys.argv[1:])
