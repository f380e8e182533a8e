"""Say a time as people read it."""

from __future__ import annotations

from datetime import datetime


def local_time(seconds: float) -> str:
    """Give a time (seconds since the epoch) in the zone of this machine: 2026-11-22 04:41:07+01:00."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # behind the year 9999
        return f"{seconds:.0f} s after 1970"
