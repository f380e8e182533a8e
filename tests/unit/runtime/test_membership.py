"""Check who this node is to a registry: made once, kept, and never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime import membership
from runtime.errors import HostRefused
from runtime.membership import Membership
from runtime.paths import Paths
from tests.support.nics import U1


def test_it_is_kept(tmp_path: Path) -> None:
    paths = Paths.under(str(tmp_path))
    assert membership.read(paths) is None and not membership.remove(paths)
    membership.write(paths, Membership(U1, "node1"))
    assert membership.read(paths) == Membership(U1, "node1")
    assert membership.remove(paths) and membership.read(paths) is None


@pytest.mark.parametrize(
    "data",
    ["", "{", "[]", '{"schema":2,"uuid":"%s","name":"n"}', '{"schema":1,"uuid":"x","name":"n"}', '{"schema":1,"uuid":"%s","name":"a\\nb"}'],
)
def test_a_file_that_does_not_say_it(tmp_path: Path, data: str) -> None:
    """Such a node is not taken for one that has not joined."""
    paths = Paths.under(str(tmp_path))
    membership.write(paths, Membership(U1, "node1"))
    path = Path(paths.lib, "node.json")
    path.write_text(data.replace("%s", U1))
    with pytest.raises(HostRefused, match="does not say which node this is"):
        membership.read(paths)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostRefused, match="not a plain file"):
        membership.read(paths)
