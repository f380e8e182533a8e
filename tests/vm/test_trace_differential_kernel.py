"""netcommon trace beside Debian's kernel, which decides otherwise than the running one here and there."""

from __future__ import annotations

from tests.kernel.test_trace_differential import MACHINE_FRAMES, MACHINE_SCENES, hold, tallied
from tests.support.sample import FULL


def test_frames_arrive_where_trace_says() -> None:
    """Seeds of its own, so that both kernels together see more."""
    scenes = range(1000, 1000 + MACHINE_SCENES) if FULL else range(1004, 1008)  # two of each mode: Python is slow in there
    hold(tallied(scenes, MACHINE_FRAMES), 100 if FULL else len(scenes) * MACHINE_FRAMES // 2, everywhere=FULL)
