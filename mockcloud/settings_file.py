"""Read the text of a settings file that lies nowhere yet, as a node reads its own."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from netcommon.settings import parse

if TYPE_CHECKING:
    from netcommon.settings.parse import Loaded


def loaded(name: str, data: bytes) -> Loaded:
    """Read the settings of a file called ``name``. Raises SettingsInvalid, which names each line."""
    with tempfile.TemporaryDirectory(prefix="mockcloud-") as folder:  # nobody else can write to it, whoever could to the file
        path = f"{folder}/{os.path.basename(name) or 'config.toml'}"
        with open(path, "wb") as made:
            made.write(data)
        os.chmod(path, 0o600)
        return parse.read(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
