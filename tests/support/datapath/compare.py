"""Hold what trace says of a frame against where it arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from netcommon.views.trace.request import subject, trace
from netcommon.views.trace.trail import ANSWERED, NODE, Path
from runtime.errors import HostRefused
from tests.support.datapath.frames import Shot
from tests.support.datapath.stage import ANSWER, Scene, Stage
from tests.support.datapath.stage import NODE as AT_NODE
from tests.support.node import fresh
from tests.support.processor import pinned
from tests.support.routed import ours

PLACES = {NODE: AT_NODE, ANSWERED: ANSWER}


def predicted(path: Path) -> frozenset[str]:
    """Where trace says that it arrives, in the oracle's words."""
    return frozenset(PLACES.get(each.who, each.device) for each in path.arrivals)


def comparable(places: frozenset[str], shot: Shot) -> frozenset[str]:
    """``places`` without what the oracle does not see.

    That is who on the node listens for a question, or for another protocol than IP; and an answer to what is not known as a question.
    """
    unseen = ({AT_NODE} if shot.asks or not shot.inner else set()) | (set() if shot.asks else {ANSWER})
    return places - unseen


def outcomes(scene: Scene, prepare: Callable[[], None] = lambda: None) -> Iterator[tuple[Shot, Path, frozenset[str]]]:
    """Put a scene up, trace and send its frames: yield each with its path, and where it arrived. ``prepare``: change the node before."""
    with fresh() as node, pinned(), ours() as mine:
        there = Stage(node, scene)
        try:
            prepare()
            (record,) = mine.store.all()[0]
            of = subject(record, [record])
            pairs: list[tuple[Shot, Path]] = []
            for shot in scene.shots:
                try:
                    path = trace(mine.host.snapshot(), of, shot.way, shot.data, {})
                except HostRefused:  # nothing leads to the guest from outside any more
                    continue
                there.send(shot, path.steps[0].at, frozenset() if path.untold else comparable(predicted(path), shot))
                pairs.append((shot, path))
            yield from [(shot, path, comparable(there.arrived(shot), shot)) for shot, path in pairs]
        finally:
            there.close()


def steps(path: Path) -> str:
    """Return the steps of a path as lines."""
    return "\n".join(f"    {step.at}: {step.meets}: {step.does}" for step in path.steps)
