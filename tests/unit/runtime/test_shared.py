"""What NICs and namespaces share: the state directory's layout, owners, links; and that no environment gets out of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.environment import down_hint, nic_from_environment
from runtime.errors import NicInvalid
from runtime.folder import Folder
from runtime.lookup import find
from runtime.names import file_name
from runtime.paths import Paths
from runtime.record import Record
from runtime.store import Store
from tests.support.nics import BOOT, U1, U2, environment, nic, raw, record

OTHER_BOOT = "6a1e2d3c-0000-4000-8000-000000000002"


def test_the_first_namespace_owns_the_plain_layout(paths: Paths, state: Path) -> None:
    one, two = Store(paths, 1, BOOT), Store(paths, 2, BOOT)
    assert two.all() == ([], [])  # looked before anybody wrote
    one.write(record(netns=1))
    two.write(record(netns=2))
    assert one.read(U1) == record(netns=1)
    assert two.read(U1) == two.by_device("tap0") == record(netns=2)
    assert (state / f"netns.d/2/nics/{U1}.json").exists()
    assert Store(paths, 3, BOOT, readonly=True).all() == ([], [])
    assert Store(paths, 2, BOOT, readonly=True).all()[0] == [record(netns=2)]
    two.remove(record(netns=2))
    assert one.read(U1) == record(netns=1)


def test_a_namespace_that_looked_before_the_first_wrote_does_not_take_its_layout(paths: Paths, state: Path) -> None:
    (state / "nics").mkdir(parents=True)
    one, two = Store(paths, 1, BOOT), Store(paths, 2, BOOT)
    assert two.all() == ([], [])
    one.write(record(netns=1))
    two.write(record(netns=2))
    assert one.read(U1) == record(netns=1)
    assert two.read(U1) == record(netns=2)


def test_a_marker_of_an_earlier_boot_is_replaced(paths: Paths, state: Path) -> None:
    with Store(paths, 1, BOOT) as before:
        before.write(record(netns=1))
    with Store(paths, 2, OTHER_BOOT) as after:
        after.write(record(nic(INTERFACE_UUID=U2), netns=2))
        assert {found.uuid for found in after.all()[0]} == {U1, U2}
    assert not (state / f"netns.{BOOT}").exists()
    assert (state / f"netns.{OTHER_BOOT}").read_text() == "2\n"


def test_owners_are_counted_while_their_record_exists(store: Store, state: Path) -> None:
    store.write(record())
    store.write(record(nic(INTERFACE_UUID=U2, INTERFACE="tap1", INTERFACE_INDEX="1")))
    for owner in (U1, U2, U1, "cccccccc-1111-4222-8333-444444444444"):
        store.owners.claim("route:10.0.0.5/32", owner)
    assert store.owners.others("route:10.0.0.5/32", U1) == [U2]
    assert (state / f"owners/route:10.0.0.5%2F32/{U1}").resolve() == state / f"nics/{U1}.json"
    store.owners.release("route:10.0.0.5/32", U2)
    assert store.owners.others("route:10.0.0.5/32", U1) == []
    assert store.owners.sweep() == ["route:10.0.0.5%2F32/cccccccc-1111-4222-8333-444444444444"]
    store.owners.release("route:10.0.0.5/32", U1)
    store.owners.release("route:10.0.0.5/32", U1)
    assert not (state / "owners/route:10.0.0.5%2F32").exists()


def test_a_moved_record_is_an_owner_of_its_own(store: Store) -> None:
    store.write(record())
    store.owners.claim("k", U1)
    moved = store.move_aside(record())
    store.owners.claim("k", moved.key)
    store.owners.release("k", U1)
    store.write(record(nic(INTERFACE="tap4"), ifindex=8))
    store.owners.claim("k", U1)
    assert store.owners.others("k", U1) == [moved.key]


@given(
    st.lists(
        st.one_of(raw, st.text(max_size=300), st.sampled_from([".", "..", "", "a/b", "a%2Fb", "x" * 201, "x" * 5000])),
        max_size=6,
        unique=True,
    )
)
def test_keys_are_distinct_file_names(keys: list[str]) -> None:
    names = [
        file_name(key.replace("\ud800", ""))
        for key in keys
        if all(not "\ud800" <= char <= "\udc7f" and not "\udd00" <= char <= "\udfff" for char in key)
    ]
    assert len(set(names)) == len(names)
    for name in names:
        assert name.isascii()
        assert "/" not in name
        assert 0 < len(name) <= 200
        assert not name.startswith(".")


def test_owners_of_a_removed_folder_is_made_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(record())
    sub = Folder.make_sub
    raced: list[bool] = []

    def racing(folder: Folder, name: str) -> Folder:
        made = sub(folder, name)
        if name == "k" and not raced:
            raced.append(True)
            folder.remove_empty(name)
        return made

    monkeypatch.setattr(Folder, "make_sub", racing)
    store.owners.claim("k", U1)
    assert raced
    assert store.owners.others("k", "") == [U1]


def test_a_link_replaced_while_it_is_removed_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder.make(str(tmp_path / "d"))
    folder.link("tap0", "mine")
    rename = os.rename

    def racing(old: str, new: str, **options: int) -> None:
        if old == "tap0":
            monkeypatch.setattr(os, "rename", rename)
            folder.link("tap0", "theirs")
        rename(old, new, **options)

    monkeypatch.setattr(os, "rename", racing)
    assert not folder.unlink_if("tap0", "mine")
    assert folder.target("tap0") == "theirs"
    assert folder.temporary() == []


NASTY = st.one_of(
    raw, st.sampled_from(["../../x", "..", ".", "/etc/x", "a/b", "x" * 300, "tap0", "b'tap0'", "netns.d", ".netcommon-tmp-1-0", U1, U2])
)


@given(
    st.dictionaries(
        st.sampled_from(["INTERFACE", "INSTANCE", "INTERFACE_INDEX", "INTERFACE_UUID", "MAC", "INTERFACE_NAME", "LINK"]), NASTY, max_size=4
    )
)
def test_no_environment_leaves_the_state_directory(changes: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as top:
        root = Path(top)
        paths = Paths.under(top + "/root")
        given_variables = {variable: value for variable, value in (environment() | changes).items() if value}
        with Store(paths, 1, BOOT) as store:
            try:
                made = Record(nic_from_environment(given_variables), 5, BOOT, 1)
                store.write(made)
                store.owners.claim("rule:" + made.device, made.key)
                assert store.read(made.key) == made
                assert store.by_device(made.device) == made
            except NicInvalid:
                assert not Path(paths.state).exists()
            try:
                find(store, paths, down_hint(given_variables))
            except NicInvalid:
                pass
        outside = [
            path for path in root.rglob("*") if not str(path).startswith(paths.state) and path not in (root / "root", root / "root/run")
        ]
        assert outside == []
