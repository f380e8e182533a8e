"""Files of this machine are known again, and no other's: whatever machines are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from netregistry.stores import whereabouts
from netregistry.stores.whereabouts import is_own, own

FILE = "/var/lib/netregistry/registry.sqlite"


def on(patch: pytest.MonkeyPatch, folder: Path, host: str, number: str, hardware: str = "") -> None:
    """Let this be another machine: of that name, number and hardware; "" for none."""
    (folder / "product_uuid").write_text(f"{hardware}\n")
    patch.setattr(whereabouts, "HARDWARE", (str(folder / "none"), str(folder / "product_uuid")))
    (folder / "machine-id").write_text(f"{number}\n")
    patch.setattr(whereabouts, "MACHINE_ID", str(folder / "machine-id"))
    patch.setattr("socket.gethostname", lambda: host)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (("node1", "a" * 32, "4C4C4544-0050"), ("renamed", "a" * 32, "4c4c4544-0050"), True),
        (("node1", "a" * 32, "4C4C4544-0050"), ("node2", "a" * 32, "4C4C4544-0051"), False),  # made of the same template
        (("node1", "a" * 32, "4C4C4544-0050"), ("node1", "a" * 32, "4C4C4544-0051"), False),
        (("node1", "", "4C4C4544-0050"), ("node1", "", "4C4C4544-0051"), True),  # such as containers of two hosts
        (("node1", "a" * 32), ("node1", "a" * 32), True),
        (("node1", "a" * 32), ("renamed", "a" * 32), True),
        (("localhost", "a" * 32), ("localhost", "b" * 32), False),
        (("node1", ""), ("node1", "b" * 32), True),  # by an earlier version, or before the machine had a number
        (("node1", ""), ("node2", ""), False),
        (("node1", "uninitialized"), ("node1", "uninitialized"), True),
        (("a on b (machine 1)", ""), ("a on b (machine 1)", ""), False),  # no name of a host: nobody is taken for it
    ],
)
def test_who_is_who(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: tuple[str, ...], now: tuple[str, ...], same: bool) -> None:
    on(monkeypatch, tmp_path, *before)
    named = own(FILE)
    assert named.startswith(f"{FILE} on {before[0]}") and "a" * 32 not in named
    on(monkeypatch, tmp_path, *now)
    assert is_own(named, FILE) is same and not is_own(named, f"{FILE}.other")


@pytest.mark.parametrize("text", ["", "x", "etcd://10.0.0.1", f"{FILE} on", "relative on node1"])
def test_what_names_no_file_is_none_of_ours(text: str) -> None:
    assert not is_own(text, FILE)
