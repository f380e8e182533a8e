"""One node of the cluster with guests, as a process that is in its namespaces: python -m examples.clusterlib.node NAME ADDRESS.

It says "there" when the node is there, empty, "up" when it has a bridge with an address, and "ready" when its agent runs. It goes on at
each line that it reads, and ends after the third, or when nobody is left to write one.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from tests.support import syscalls
from tests.support.agent import agent
from tests.support.netns import PRIVATE
from tests.support.node import fresh

#: Where a registry's service listens: nodes share it where it is beside them, and nothing else.
REGISTRY = "/run/netregistry"


def main(name: str, address: str) -> None:
    """Be the node until it is to end."""
    os.environ[PRIVATE] = "1"  # unshare(1) has made its namespaces
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    registry = os.open(REGISTRY, os.O_RDONLY | os.O_DIRECTORY) if os.path.isdir(REGISTRY) else None
    with fresh() as node:
        os.mkdir(REGISTRY, 0o700)
        if registry is not None:
            syscalls.mount(f"/proc/self/fd/{registry}", REGISTRY, flags=syscalls.MS_BIND)
            os.close(registry)
        Path("/run/demo").mkdir()
        tempfile.tempdir = "/run/demo"  # the path of a socket in it must not be long (unix(7))
        socket.sethostname(name)
        print("there", flush=True)
        if sys.stdin.readline():
            node.bridge("br0", "eth0")
            node.address("br0", address)
            print("up", flush=True)
        if sys.stdin.readline():
            with agent():
                print("ready", flush=True)
                sys.stdin.readline()
        if registry is not None:
            syscalls.umount(REGISTRY)


if __name__ == "__main__":
    main(*sys.argv[1:])
