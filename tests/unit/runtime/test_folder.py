"""What a folder of ours says where it cannot be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import HostRefused
from runtime.folder import Folder


def test_a_file_system_that_is_read_only_is_named_as_why_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what could not be removed either, which nobody has asked for."""

    def refused(*_arguments: Any, **_more: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with Folder.make(str(tmp_path / "nics")) as folder:
        for name in ("open", "link", "symlink", "unlink", "rename"):
            monkeypatch.setattr(os, name, refused)
        for work in (lambda: folder.write("one", b"x"), lambda: folder.link("one", "two"), lambda: folder.create("one", b"x")):
            with pytest.raises(HostRefused, match=r"cannot (write|make) '.*/nics/.*one.*': Read-only file system"):
                work()
        monkeypatch.undo()
        assert folder.names() == folder.temporary() == []
