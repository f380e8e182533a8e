"""Let a mock cloud go through every task there is; as a program, in a process of its own, say what that run consisted of, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mockcloud.cloud import MockCloud
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import fitting as wrong
from tests.support.instance_history import COVERING, drawn, prepare
from tests.support.run_trace import calls, foreign


def goes(folder: Path, seeds: int = 0) -> None:
    """Let three nodes run, with every task, and as many drawn histories."""
    for seed in range(seeds + 1):
        cloud = MockCloud(str(folder / f"cloud{seed}"))
        try:
            prepare(cloud, 3)
            for step in drawn(seed, 3, 40) if seed else COVERING:
                step.work(Instances(cloud))
            cloud.start(1000.0)
            assert wrong(cloud) == []
        finally:
            cloud.close()


def main() -> None:
    with calls() as found:
        goes(Path(sys.argv[1]))
    print(json.dumps({"calls": sorted(found), "foreign": foreign(sys.modules)}))


if __name__ == "__main__":
    main()
