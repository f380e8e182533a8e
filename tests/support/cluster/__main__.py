"""Print the hash of what a few nodes did: python -m tests.support.cluster NODES SEED. The same seed, the same hash."""

from __future__ import annotations

import hashlib
import sys
import tempfile

from tests.support.cluster import storm
from tests.support.cluster.node import Cluster


def told(nodes: int, seed: int) -> list[str]:
    """Run the storm; give what was done, line by line."""
    with tempfile.TemporaryDirectory() as root:
        cluster = Cluster(root, nodes, seed)
        cluster.start()
        for part in (storm.come_up, storm.drift, storm.vanish):
            part(cluster)
        cluster.close()
    return cluster.log


if __name__ == "__main__":
    print(hashlib.sha256("\n".join(told(int(sys.argv[1]), int(sys.argv[2]))).encode()).hexdigest())
