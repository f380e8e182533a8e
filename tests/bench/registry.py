"""Measure a registry's service at two sizes, and print what docs/performance.md says of it.

    python -m tests.bench.registry [--etcd] [--nodes COUNT] [NICS ...]

Each size is a fresh registry in a folder of its own, filled by `netcommon registry import` and the reports of its nodes; the service
and who hears its streams are processes of their own. What grows by more than the number of NICs is named. ``--etcd``: it is kept by three
members of an etcd, each with its data below the same folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from netregistry.client import Client
from tests.bench.registry_content import CLUSTERS, Size, lines, mac, reports, uuid
from tests.support.bootstrap import ROOT
from tests.support.etcd import Cluster
from tests.support.registry_load import allocated, nodes

SIZES = (10_000, 100_000)
ROUNDS = 40
ALLOCATIONS = 200
IDLE = 10.0  #: seconds
TICKS = os.sysconf("SC_CLK_TCK")
LARGER = 1.5  #: times as much for each NIC is a finding


class Machine:
    """A folder with a registry, and its service. ``store``: the etcd that keeps it. What it notes is in ``figures``."""

    def __init__(self, folder: Path, size: Size, store: str = "") -> None:
        self.root, self.size = folder, size
        self.socket = folder / "run/netregistry/socket"
        self.socket.parent.mkdir(parents=True)
        if store:
            config = folder / "etc/netcommon/config.toml"
            config.parent.mkdir(parents=True)
            config.write_text(f'[registry]\nstore = "{store}"\n')
        self.figures: dict[str, float] = {}
        self.command("init")

    @property
    def file(self) -> Path:
        return self.root / "var/lib/netregistry/registry.sqlite"

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "netcommon.cli", "--root", str(self.root), "registry", *words]

    def command(self, *words: str) -> None:
        subprocess.run(self.argv(*words), cwd=ROOT, check=True, stdout=subprocess.PIPE)

    @contextmanager
    def served(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the service; the seconds until it answers are noted."""
        begun = time.monotonic()
        with subprocess.Popen(self.argv("serve"), cwd=ROOT) as process:
            try:
                while True:
                    assert process.poll() is None
                    try:
                        self.client().get("status")
                        break
                    except Exception:
                        time.sleep(0.02)
                self.figures["start, s"] = time.monotonic() - begun
                yield process
            finally:
                process.terminate()

    def client(self, role: str = "") -> Client:
        return Client(str(self.socket), role)

    def noted(self, name: str, work: Callable[[], object], times: int = ROUNDS) -> None:
        """Note the median and the worst of several rounds, in milliseconds."""
        took = []
        for _ in range(times):
            begun = time.monotonic()
            work()
            took.append((time.monotonic() - begun) * 1000)
        self.figures[f"{name}, ms"] = statistics.median(took)


def cpu(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(process: subprocess.Popen[bytes]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def filled(machine: Machine, process: subprocess.Popen[bytes]) -> None:
    """Import, and let each node report its NICs."""
    file = machine.root / "lines"
    with open(file, "w", encoding="ascii") as target:
        for line in lines(machine.size):
            target.write(json.dumps(line) + "\n")
    begun, before = time.monotonic(), cpu(process)
    machine.command("import", str(file))
    machine.figures["import, s"] = time.monotonic() - begun
    machine.figures["import, CPU of the service, s"] = cpu(process) - before
    begun = time.monotonic()
    epoch = machine.client().get("status").body["epoch"]
    for node in range(machine.size.nodes):
        with machine.client(f"node:{uuid(2, node)}") as asked:
            asked.change("POST", f"nodes/{uuid(2, node)}/reports", {"after": f"{epoch}:0", "nics": reports(machine.size, node)})
    machine.figures["reports of all nodes, s"] = time.monotonic() - begun


def looked_at(machine: Machine) -> None:
    nics = machine.size.nics
    with machine.client() as asked:
        machine.noted("first page of 100 NICs", lambda: asked.get("nics"))
        machine.noted("first page of 1000 NICs", lambda: asked.get("nics", limit=1000), 10)
        machine.noted("page of 100 NICs of a network", lambda: asked.get("nics", network=uuid(1, 3)))
        machine.noted("page of 100 NICs by state", lambda: asked.get("nics", state="unknown"))
        machine.noted("find by part of a name", lambda: asked.get("find", text=f"vm{nics - 1}"))
        machine.noted("find by part of a MAC", lambda: asked.get("find", text=mac(nics - 1)[8:]))
        machine.noted("find what is nowhere", lambda: asked.get("find", text="nowhere"))
        machine.noted("NIC by its address", lambda: asked.get("nics", address="10.0.3.10"))
        machine.noted("history of one NIC", lambda: list(asked.all("history", target=uuid(3, 5))), 5)
        network = uuid(1, 1)

        def given() -> None:
            made = asked.change("POST", "nics", {"network": network, "allocate": ["ipv4"]}).body["uuid"]
            asked.change("DELETE", f"nics/{made}")

        machine.noted("NIC made with an address given out, and deleted", given, 20)


def fanned_out(machine: Machine, process: subprocess.Popen[bytes]) -> None:
    """Let a stream of each node be open, and measure when each is told a change that concerns all of a cluster, and of one node."""
    argv = [sys.executable, "-m", "tests.bench.registry_hearers", str(machine.socket), str(machine.size.nodes)]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hearers:
        assert hearers.stdin is not None and hearers.stdout is not None
        begun = time.monotonic()
        assert hearers.stdout.readline() == "ready\n"
        machine.figures["streams of all nodes begun, s"] = time.monotonic() - begun
        before = cpu(process)
        with contextlib.suppress(subprocess.TimeoutExpired):  # nobody asks it anything for so long
            raise AssertionError(f"the service ended with {process.wait(IDLE)}")
        machine.figures["CPU of the idle service, % of a processor"] = (cpu(process) - before) / IDLE * 100
        machine.figures["memory of the service, MB"] = memory(process)
        all_told: list[float] = []
        with machine.client() as asked:
            for number in range(ROUNDS // 2):
                # it is of the cluster of every fourth node: an option that the others have on their disks before a migration
                options = [{"name": "rate_in", "value": f"{number + 1}mbit"}]
                sent = time.monotonic()
                said = asked.change("PATCH", f"nics/{uuid(3, 0)}", {"options": options})
                hearers.stdin.write(f"{said.revision} {machine.size.nodes // CLUSTERS}\n")
                hearers.stdin.flush()
                all_told += [each - sent for each in json.loads(hearers.stdout.readline())]
        hearers.stdin.close()
    parts = statistics.quantiles(all_told, n=100)
    machine.figures["one change told to a quarter of all streams, median, ms"] = parts[49] * 1000
    machine.figures["one change told to a quarter of all streams, 99th percentile, ms"] = parts[98] * 1000


def all_at_once(machine: Machine) -> None:
    """Let many have addresses given out at once, and let the agents of all nodes come back at once."""
    with machine.served() as process:
        machine.figures[f"{ALLOCATIONS} addresses given out, by 8 writers at a time, s"], _ = allocated(
            machine.socket, [uuid(1, number) for number in range(8)], ALLOCATIONS
        )
        with nodes(machine.size.nodes, machine.socket) as agents, contextlib.ExitStack() as stack:
            machine.figures["streams of all agents begun, s"] = agents.begun

            def again() -> None:
                process.kill()
                process.wait()
                stack.enter_context(machine.served())

            found = agents.again(again)
            machine.figures["the service is killed and started, until all agents are told all, s"] = found.seconds
            machine.figures["requests a second meanwhile, at most"] = found.peak


def measured(size: Size, etcd: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder, contextlib.ExitStack() as stack:
        cluster = stack.enter_context(made(Path(folder) / "etcd")) if etcd else None
        machine = Machine(Path(folder), size, cluster.url if cluster else "")
        with machine.served() as process:
            filled(machine, process)
            looked_at(machine)
        with machine.served() as process:
            fanned_out(machine, process)
        all_at_once(machine)
        if cluster is None:
            machine.figures["file, MB"] = machine.file.stat().st_size / (1 << 20)
        else:
            machine.figures["file of a member, MB"] = max((each.folder / "member/snap/db").stat().st_size for each in cluster.members) / (
                1 << 20
            )
            machine.figures["memory of a member, MB"] = max(memory(each.process) for each in cluster.members if each.process is not None)
        return machine.figures


def made(folder: Path) -> Cluster:
    folder.mkdir()
    return Cluster(folder, 3)


def table(found: list[dict[str, float]], sizes: list[Size]) -> str:
    rows = [["what", *(f"{size.nics:,} NICs" for size in sizes), "for each NIC"], ["---"] * (len(sizes) + 2)]
    for name, last in found[-1].items():
        grown = last / found[0][name] / (sizes[-1].nics / sizes[0].nics) if found[0][name] else 0.0
        rows.append([name, *(f"{figures[name]:.3g}" for figures in found), f"{grown:.2f} times" + (": **more**" if grown > LARGER else "")])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--etcd", action="store_true", help="kept by three members of an etcd")
    parser.add_argument("--nodes", type=int, default=0, help="how many; by default one for each fifty NICs")
    parser.add_argument("nics", nargs="*", type=int, default=SIZES)
    given = parser.parse_args(words)
    sizes, found = [Size(each, given.nodes) for each in given.nics], []
    for size in sizes:
        found.append(measured(size, given.etcd))
        print(f"{size.nics} NICs, {size.networks} networks, {size.nodes} nodes: {found[-1]}", file=sys.stderr)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the end\n\n{table(found, sizes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
