"""Measure what many nodes in one process cost: python -m tests.bench.many_nodes [NODES ...] prints a table (500 and 2000 by itself).

The real agents on simulated hosts, in one thread and by a virtual clock (mockcloud): five NICs of each node come up, somebody
undoes a part of one, and all taps vanish. Each size is measured in a process of its own. Needs no root.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from tests.support import mock_nodes, storm
from tests.support.bootstrap import PYTHON
from tests.support.mock_nodes import Cluster

SIZES = (500, 2000)


def resident() -> float:
    """Tell how much memory this process has (KiB)."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def open_now() -> int:
    """Count the descriptors of this process."""
    return len(os.listdir("/proc/self/fd")) - 1


def measured(nodes: int) -> dict[str, float]:
    """Run the storm, and tell what it has cost."""
    found: dict[str, float] = {"nodes": nodes}
    with tempfile.TemporaryDirectory() as root:
        before, descriptors = resident(), open_now()
        cluster = Cluster(root, nodes, 1, log=False)

        def part(name: str, action: Callable[[], object]) -> None:
            used, took = time.process_time(), time.monotonic()
            action()
            found[f"{name}, CPU s"] = time.process_time() - used
            found[f"{name}, s"] = time.monotonic() - took
            found["threads"] = max(found.get("threads", 0.0), threading.active_count())
            found["descriptors"] = max(found.get("descriptors", 0.0), open_now() - descriptors)

        part("start", cluster.start)
        found["KiB a node, idle"] = (resident() - before) / nodes
        part("up", lambda: storm.come_up(cluster))
        found["KiB a node, five NICs"] = (resident() - before) / nodes
        if nodes <= SIZES[0]:
            part("ten minutes idle", lambda: cluster.scheduler.passes(600.0))
        part("drift repaired", lambda: storm.drift(cluster))
        part("vanished, undone", lambda: storm.vanish(cluster))
        left = [node.name for node in cluster.nodes if mock_nodes.records(node)]
        cluster.close()
    if left:
        raise AssertionError(f"not undone: {left}")
    found["left open"] = open_now() - descriptors
    found["MiB at most"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main(sizes: list[int]) -> None:
    """Print a column for each size."""
    if len(sizes) == 2 and sizes[0] < 0:
        print(json.dumps(measured(sizes[1])))
        return
    columns = [
        json.loads(subprocess.check_output([PYTHON, "-m", "tests.bench.many_nodes", "-1", str(size)], text=True)) for size in sizes or SIZES
    ]
    for name in dict.fromkeys(name for column in columns for name in column):
        values = "  ".join(f"{column[name]:10.1f}" if name in column else f"{'-':>10}" for column in columns)
        print(f"{name:24}  {values}")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
