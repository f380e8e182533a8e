"""Sockets whose last close waits in the kernel, left to a process that nobody waits for."""

from __future__ import annotations

import os

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def close_apart(descriptors: Sequence[int]) -> None:
    """Closes them here at once: a child, which holds nothing else of ours, closes them last, and bears what the kernel takes for it.

    The caller ends right afterwards; until then the child waits. Where no pipe or process can be made the caller waits as it would have.
    """
    if not descriptors:
        return
    try:
        reader, _writer = os.pipe()  # which the end of this process closes
        child = os.fork()
    except OSError:
        return
    if child == 0:
        try:
            _keep((reader, *descriptors))
            os.read(reader, 1)  # until the caller has let go of the other end, which it does after these
        finally:
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)


def _keep(descriptors: Sequence[int]) -> None:
    """Closes all others: Ganeti waits for the end of a script's outputs, and a lock lasts as long as any copy of its descriptor."""
    first = 0
    for descriptor in sorted(descriptors):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
