"""Do many tasks at once: while one waits for the registry, others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runtime.errors import NetcommonError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from mockcloud.cloud import MockCloud

    Task = Generator[None, None, object]

MOST = 20  #: at once
STEP = 0.2  #: seconds from one look of all to the next: what the registry shows comes a fifth of a second after it was done, or later


class Done(NamedTuple):
    """Say how many tasks were done, and what was said of those that were not."""

    done: int
    failed: tuple[str, ...]


def at_once(
    cloud: MockCloud, tasks: Iterable[Task], most: int = MOST, seen: Callable[[int], None] = lambda _done: None, step: float = STEP
) -> Done:
    """Do all ``tasks`` (Instances.starting, migrating), ``most`` of them at a time. ``seen`` is told after each round how many are done.

    No log is left of each.
    """
    running: list[Task] = []
    waiting = iter(tasks)
    done, failed, more = 0, list[str](), True
    while True:
        while more and len(running) < most:
            task = next(waiting, None)
            if task is None:
                more = False
            else:
                running.append(task)
        if not running:
            return Done(done, tuple(failed))
        left = []
        for task in running:
            try:
                next(task)
            except StopIteration:
                done += 1
            except NetcommonError as error:
                failed.append(str(error))
            else:
                left.append(task)
        running = left
        cloud.log.clear()
        seen(done + len(failed))
        cloud.scheduler.passes(step if running else 0.0)
