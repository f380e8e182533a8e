"""netcommon trace beside the kernel on drawn nodes: each frame is traced, sent, and found where trace says, if that says so for sure."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tests.support.datapath import stage
from tests.support.datapath.compare import comparable, outcomes, predicted, steps
from tests.support.datapath.frames import malformed
from tests.support.datapath.places import MODES
from tests.support.datapath.stage import Scene
from tests.support.sample import FULL

pytestmark = pytest.mark.no_agent("the nodes are drawn, and trace asks no agent")

#: Scenes of so many frames: 600 pairs in a full run; and, in the virtual machine, 120.
FRAMES, SCENES, SAMPLE, SPOILT = 12, 50, 20, 10
MACHINE_SCENES, MACHINE_FRAMES = 12, 10
RESERVED = 0.25  #: more than this share of frames may not be answered with a reservation


class Tally:
    """Count what came of all frames: pairs of what trace says and where the frame arrived."""

    def __init__(self) -> None:
        self.pairs, self.reserved = 0, 0
        self.wrong: list[str] = []
        self.modes: Counter[str] = Counter()
        self.arrived: Counter[str] = Counter()

    def scene(self, scene: Scene) -> None:
        """Put a scene up, and trace and send its frames."""
        for shot, path, seen in outcomes(scene):
            said = comparable(predicted(path), shot)
            self.pairs += 1
            self.modes[scene.place.mode] += 1
            self.arrived.update(seen or ["nowhere"])
            if path.untold:
                self.reserved += 1
            elif said != seen:
                self.wrong.append(f"{scene.words}\n  {shot.words}\n  says {sorted(said)}, arrived {sorted(seen)}\n{steps(path)}")


def tallied(seeds: range, frames: int, spoil: bool = False) -> Tally:
    """``spoil``: the frames are malformed."""
    tally = Tally()
    for seed in seeds:
        scene = stage.draw(f"{'m' if spoil else 's'}{seed}", frames)
        dice = random.Random(seed)
        shots = tuple(malformed(dice, shot) for shot in scene.shots) if spoil else scene.shots
        tally.scene(scene._replace(shots=shots))
    share = tally.reserved / tally.pairs
    figures = {"pairs": tally.pairs, "wrong": len(tally.wrong), "reserved": tally.reserved, "arrived": dict(tally.arrived)}
    print(f"trace beside the kernel: {json.dumps(figures)}, {share:.1%} with a reservation")
    return tally


def hold(tally: Tally, pairs: int, everywhere: bool = True) -> None:
    """None is wrong; few are reserved; the frames are of all kinds, and arrive ``everywhere``."""
    assert not tally.wrong, "\n".join(tally.wrong)
    assert tally.pairs >= pairs
    assert tally.reserved < RESERVED * tally.pairs
    assert set(tally.modes) == set(MODES)
    assert not everywhere or {"tap0", "tap1", "up0", "up1", stage.NODE, stage.ANSWER, "nowhere"} <= set(tally.arrived)


def test_frames_arrive_where_trace_says() -> None:
    """A sample in an ordinary run, from the same seeds as the full one."""
    scenes = SCENES if FULL else SAMPLE
    hold(tallied(range(scenes), FRAMES), 500 if FULL else scenes * FRAMES // 2)


def test_malformed_frames_arrive_where_trace_says() -> None:
    """Headers that are no such, that are cut off, or that are of another kind than what follows."""
    hold(tallied(range(SCENES if FULL else SPOILT), FRAMES, spoil=True), 500 if FULL else SPOILT * FRAMES // 2, everywhere=False)
