"""Cut a work on a mock cloud off at each of its steps, do it again, and hold what is then against what it comes to uncut."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.replaced.transport.memory import Client
from runtime.folder import Folder
from tests.support.sample import sample


class Killed(BaseException):
    """Stands for a kill -9."""


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[int]]:
    """End the process before its ``at``th step: a request of the registry, a file that is written or removed, a folder that goes."""
    steps = [0]

    def counting(work: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            steps[0] += 1
            if steps[0] == at:
                raise Killed
            return work(*given, **named)

        return step

    with monkeypatch.context() as patch:
        for owner, name in ((Client, "_asked"), (Folder, "write"), (Folder, "remove"), (shutil, "rmtree")):
            patch.setattr(owner, name, counting(getattr(owner, name)))
        yield steps


@contextmanager
def opened(root: Path, seed: int = 1) -> Iterator[MockCloud]:
    """Open a cloud, and close it."""
    cloud = MockCloud(str(root), seed)
    try:
        yield cloud
    finally:
        cloud.close()


def everywhere(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[MockCloud], object],
    work: Callable[[MockCloud], object],
    picture: Callable[[MockCloud], object],
) -> int:
    """Cut ``work`` off at steps, and do it again in another process; ``picture`` is then as without. Give how many steps there are."""
    with opened(root / "whole") as cloud:
        prepare(cloud)
        with killed(monkeypatch, 0) as steps:
            work(cloud)
    with opened(root / "whole") as cloud:
        whole = picture(cloud)
    for at in sample(range(1, steps[0] + 1), 4):
        folder = root / str(at)
        with opened(folder) as cloud:
            prepare(cloud)
            with killed(monkeypatch, at), pytest.raises(Killed):
                work(cloud)
        with opened(folder) as cloud:
            work(cloud)
            now = picture(cloud)
            assert now == whole, f"cut off at step {at}: {now}, and not {whole}"
    return steps[0]
