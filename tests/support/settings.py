"""Settings files of tests."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.paths import Paths


def paths_with(tmp_path: Path, text: str | bytes) -> Paths:
    """Write the settings file of a node below ``tmp_path``."""
    paths = Paths.under(str(tmp_path))
    os.makedirs(paths.etc)
    Path(paths.config).write_bytes(text if isinstance(text, bytes) else text.encode())
    return paths
