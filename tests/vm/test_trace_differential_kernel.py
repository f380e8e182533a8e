"""netcommon trace beside Debian's kernel, which decides otherwise than the running one here and there."""

from __future__ import annotations

import pytest

from tests.kernel.test_trace_differential import MACHINE_FRAMES, MACHINE_SCENES, hold, tallied


@pytest.mark.slow
def test_frames_arrive_where_trace_says() -> None:
    """Seeds of its own, so that both kernels together see more."""
    hold(tallied(range(1000, 1000 + MACHINE_SCENES), MACHINE_FRAMES), 100)
