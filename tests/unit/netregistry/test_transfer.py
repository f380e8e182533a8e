"""Copy a registry while it is compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from netregistry import transfer
from netregistry.stores.base import Put, Unavailable
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.sqlite import SqliteStore


def test_a_copy_of_what_is_compacted_meanwhile_may_be_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that what is copied is of one revision, which is not remembered any more: it was refused, without a word of the copy."""
    source, write = SqliteStore.create(":memory:", "first"), transfer._written
    for number in range(4):
        source.commit((), [Put(f"networks/{number}", b"{}")])
    monkeypatch.setattr(transfer, "PAGE", 2)
    monkeypatch.setattr(transfer, "MOST", 1)

    def compacts(*given: Any) -> None:
        write(*given)
        source.compact(source.commit((), [Put("networks/5", b"{}")]))

    with monkeypatch.context() as patched:
        patched.setattr(transfer, "_written", compacts)
        with pytest.raises(Unavailable, match="compacted while it was copied"):
            transfer.filed(cast("EtcdStore", source), str(tmp_path / "copy"))
    assert list(tmp_path.iterdir()) == []
    transfer.filed(cast("EtcdStore", source), str(tmp_path / "copy"))
    with SqliteStore(str(tmp_path / "copy")) as copy:
        assert transfer.count(copy) == 5
