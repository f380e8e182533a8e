"""Measure a registry's service at two sizes, and print what docs/performance.md says of it: python -m tests.bench.registry [NICS ...].

Each size is a fresh registry in a folder of its own, filled by `netcommon registry import` and the reports of its nodes; the service
and who hears its streams are processes of their own. What grows by more than the number of NICs is named.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from netregistry.client import Client
from tests.support.bootstrap import ROOT

SIZES = (10_000, 100_000)
NICS_OF_A_NODE, NICS_OF_A_NETWORK = 50, 100
CLUSTERS = 4
ROUNDS = 40
IDLE = 10.0  #: seconds
TICKS = os.sysconf("SC_CLK_TCK")
LARGER = 1.5  #: times as much for each NIC is a finding


class Size(NamedTuple):
    """How much there is."""

    nics: int

    @property
    def networks(self) -> int:
        return self.nics // NICS_OF_A_NETWORK

    @property
    def nodes(self) -> int:
        return self.nics // NICS_OF_A_NODE


def uuid(kind: int, number: int) -> str:
    return f"{number:08x}-{kind:04x}-4000-8000-000000000000"


def cluster(node: int) -> str:
    return f"c{node % CLUSTERS}.example.com"


def mac(number: int) -> str:
    return "aa:00:" + ":".join(f"{each:02x}" for each in number.to_bytes(4, "big"))


def lines(size: Size) -> Iterator[dict[str, Any]]:
    """Give an export of so much: every hundredth NIC has options of its own."""
    yield {"kind": "registry", "value": {"version": 1}}
    for number in range(size.networks):
        subnet = f"10.{number >> 8}.{number & 255}.0/24"
        yield {"kind": "network", "value": {"uuid": uuid(1, number), "name": f"net{number}", "subnet": subnet}}
    for number in range(size.nodes):
        yield {"kind": "node", "value": {"uuid": uuid(2, number), "name": f"node{number}", "cluster": cluster(number)}}
    for number in range(size.nics):
        network, host = number % size.networks, number // size.networks + 10
        value = {"uuid": uuid(3, number), "cluster": cluster(number % size.nodes), "instance": f"vm{number}", "index": 0}
        value |= {"mac": mac(number), "ip": f"10.{network >> 8}.{network & 255}.{host}", "network": uuid(1, network)}
        yield {"kind": "nic", "value": value | ({"options": [{"name": "rate_in", "value": "8mbit"}]} if number % 100 == 0 else {})}


class Machine:
    """A folder with a registry, and its service. What it notes is in ``figures``."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.root, self.size = folder, size
        self.socket = folder / "run/netregistry/socket"
        self.socket.parent.mkdir(parents=True)
        self.figures: dict[str, float] = {}
        self.command("init")

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
        reports = [{"nic": uuid(3, number), "state": "running"} for number in range(node, machine.size.nics, machine.size.nodes)]
        with machine.client(f"node:{uuid(2, node)}") as asked:
            asked.change("POST", f"nodes/{uuid(2, node)}/reports", {"after": f"{epoch}:0", "nics": reports})
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


def measured(size: Size) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="registry-bench-") as folder:
        machine = Machine(Path(folder), size)
        with machine.served() as process:
            filled(machine, process)
            looked_at(machine)
        with machine.served() as process:
            fanned_out(machine, process)
        machine.figures["file, MB"] = (machine.root / "var/lib/netregistry/registry.sqlite").stat().st_size / (1 << 20)
        return machine.figures


def table(found: list[dict[str, float]], sizes: list[Size]) -> str:
    rows = [["what", *(f"{size.nics:,} NICs" for size in sizes), "for each NIC"], ["---"] * (len(sizes) + 2)]
    for name, last in found[-1].items():
        grown = last / found[0][name] / (sizes[-1].nics / sizes[0].nics) if found[0][name] else 0.0
        rows.append([name, *(f"{figures[name]:.3g}" for figures in found), f"{grown:.2f} times" + (": **more**" if grown > LARGER else "")])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main() -> None:
    sizes = [Size(int(each)) for each in sys.argv[1:]] or [Size(each) for each in SIZES]
    found = []
    for size in sizes:
        found.append(measured(size))
        print(f"{size.nics} NICs, {size.networks} networks, {size.nodes} nodes: {found[-1]}", file=sys.stderr)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the end\n\n{table(found, sizes)}")


if __name__ == "__main__":
    main()
