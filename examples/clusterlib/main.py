"""cluster: the registry of a cluster, from nothing to restored, in a few seconds; cluster guests: with nodes and real guests; cluster
registry [FILE]: moved to an etcd of three members.

One command on a fresh Debian 12, as root, from a clone. It installs what it needs (nothing is started), then makes a registry in a
folder of its own and serves it there: a network, three NICs with addresses given out, one found by its address, a conflict with what a
Ganeti cluster says, the service killed, a mistake undone by a restore. When it ends the folder is gone, and nothing else of the machine
was touched. Exit status 0: all of it was as it should be.

``guests`` takes a minute: two nodes with their agents and a guest under QEMU each, the master of a Ganeti cluster with its importer,
and the registry, in namespaces of their own, which are gone at the end. What the operator changes in the registry, and what is tagged in
Ganeti, is seen by the guests, which run; the registry is killed, and a guest starts without it; another one is destroyed, and then removed.

``registry`` takes a minute, too: the story of the first one on the first of three machines, in namespaces of their own; a node joins by
TLS; the registry moves to three etcd members, with two services over them; the etcd's leader is killed, and a service, and each time the
same questions are answered, and what is changed reaches the node. A browser's picture of a page is written to FILE, or to the cache:
its last line says where.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSIDE = "NETCOMMON_DEMO_INSIDE"  #: as in examples.demolib.main


def main(arguments: list[str]) -> int:
    """Set up, and play the story; give the exit status."""
    from examples.clusterlib.story import play
    from examples.demolib.show import Failed
    from tests.support.bootstrap import SetupFailed, setup

    if arguments[:1] == ["guests"] and (len(arguments) == 1 or INSIDE in os.environ):
        return _with_guests(arguments[1:])
    if arguments[:1] == ["registry"] and (len(arguments) <= 2 or INSIDE in os.environ):
        return _moved(arguments[1:])
    if arguments:
        wanted = set(arguments) <= {"-h", "--help"}
        print(__doc__, file=sys.stdout if wanted else sys.stderr)
        return 0 if wanted else 64
    if os.geteuid() != 0:
        sys.exit("cluster: needs root, whose alone a registry's files are")
    try:
        setup(["environment"])
    except SetupFailed as error:
        sys.exit(f"cluster: {error}")
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        try:
            play(ROOT, Path(folder))
        except Failed:
            return 1
    return 0


def _with_guests(image: list[str]) -> int:
    """Play the story with guests; ``image``: the files that they boot, within the namespaces."""
    from examples.demolib.image import Image
    from examples.demolib.main import enter

    if INSIDE not in os.environ or os.getpid() != 1:
        enter("cluster", "guests")
    from examples.clusterlib.guests import play

    return play(ROOT, Image(*map(Path, image)))


def _moved(files: list[str]) -> int:
    """Play the story of a registry that moves to an etcd. ``files``: the picture, if it was named; within the namespaces etcd and it."""
    from examples.demolib.main import enter
    from tests.support.bootstrap import cache, unpacked

    if INSIDE not in os.environ or os.getpid() != 1:
        picture = Path(*files).absolute() if files else cache() / "results/cluster.png"
        enter("cluster", "registry", purpose="cluster", files=lambda: (unpacked("etcd-server") / "usr/bin/etcd", picture))
    from examples.clusterlib.moved import play

    return play(ROOT, *map(Path, files))
