"""What a folder of ours says where it cannot be written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runtime.errors import HostRefused, Interrupted
from runtime.folder import Folder


def test_a_file_system_that_is_read_only_is_named_as_why_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what could not be removed either, which nobody has asked for."""

    def refused(*_arguments: Any, **_more: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with Folder.make(str(tmp_path / "nics")) as folder:
        for name in ("open", "link", "symlink", "unlink", "rename"):
            monkeypatch.setattr(os, name, refused)
        for work in (lambda: folder.write("one", b"x"), lambda: folder.link("one", "two"), lambda: folder.create("one", b"x")):
            with pytest.raises(HostRefused, match=r"cannot write '.*/nics/one': Read-only file system"):
                work()
        monkeypatch.undo()
        assert folder.names() == folder.temporary() == []


@pytest.mark.parametrize("call", ["rename", "symlink", "fchmod"])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """As where the hook's time ends between any two calls."""
    real = getattr(os, call)

    def ended(*arguments: Any, **named: Any) -> None:
        if call == "symlink":
            real(*arguments, **named)
        raise Interrupted("ended by signal 15")

    with Folder.make(str(tmp_path / "folder")) as folder:
        monkeypatch.setattr(os, call, ended)
        for work in (lambda: folder.link("link", "there"), lambda: folder.write("file", b"data")):
            with suppress(Interrupted):
                work()
        monkeypatch.undo()
        assert [name for name in os.listdir(folder.path) if name not in ("file", "link")] == []
