"""Let a disk be full: the kernel refuses every write to a file, as it does where there is no room (setrlimit(2), RLIMIT_FSIZE)."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_room() -> Iterator[None]:
    """Let nothing that is done within write into a file. Files may be made, and go: as on a disk that has inodes left.

    Of the whole process, so only for what runs in one thread. Python ignores the signal that would come with it (SIGXFSZ).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
