"""netcommon trace beside Debian's kernel, which decides otherwise than the running one here and there."""

from __future__ import annotations

from tests.kernel.test_trace_differential import MACHINE_FRAMES, MACHINE_SCENES, hold, tallied
from tests.support.sample import FULL


def test_frames_arrive_where_trace_says() -> None:
    """Seeds of its own, so that both kernels together see more."""
    scenes = MACHINE_SCENES if FULL else MACHINE_SCENES // 3  # Python is slow in there
    hold(tallied(range(1000, 1000 + scenes), MACHINE_FRAMES), 100 if FULL else scenes * MACHINE_FRAMES // 2)
