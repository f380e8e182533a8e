"""A registry is in one place alone: what it was moved from says where it is, whatever ended the move, and is served by nobody."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netregistry import moving, transfer
from netregistry.stores import files
from netregistry.stores.base import Unavailable
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.etcd_client import Client
from netregistry.stores.etcd_facts import Facts, begun, facts
from netregistry.stores.etcd_place import Place, place
from netregistry.stores.sqlite_file import MOVED, REPLACED, removed
from runtime.errors import HostRefused, NetcommonError, TryAgain
from tests.support.etcd import Cluster
from tests.support.registry_process import Registry

NETWORK = {"name": "first", "subnet": "192.0.2.0/24"}


@pytest.fixture
def one(etcds: dict[int, Cluster]) -> Cluster:
    etcds[1].anew()
    return etcds[1]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """Give a registry in a file, with one network."""
    made = Registry(tmp_path / "one")
    with serving(made):
        named(made, "first")
    yield made
    made.kill()


@contextlib.contextmanager
def serving(registry: Registry) -> Iterator[None]:
    registry.start()
    try:
        yield
    finally:
        registry.kill()


def named(registry: Registry, *add: str) -> list[str]:
    """Give the names of the networks that a service has, once more are made."""
    with registry.client() as asked:
        for name in add:
            asked.change("POST", "networks", {"name": name, "subnet": "192.0.2.0/24", "cluster": name})
        return sorted(each["network"]["name"] for each in asked.all("networks"))


def refused(registry: Registry, status: int, says: str, *words: str) -> None:
    """Make sure that a command is refused, with a status and words."""
    found = registry.command(*words, check=False)
    assert (found.returncode, says in found.stderr) == (status, True), found.stderr


def interrupted(*_given: object) -> None:
    raise KeyboardInterrupt


# -- to an etcd


@pytest.mark.parametrize("how", ["renamed", "copied", "restored", "made"])
def test_a_file_that_was_moved_is_served_no_more(registry: Registry, one: Cluster, tmp_path: Path, how: str) -> None:
    """Whatever somebody does to have the registry in the file again, beside the etcd that keeps it: two would accept changes."""
    copy = tmp_path / "copy.sqlite"
    registry.command("backup", str(copy))
    registry.command("move", "--to", one.url)
    before = one.said()
    if how == "renamed":
        Path(f"{registry.file}{MOVED}").rename(registry.file)
    elif how == "copied":
        shutil.copy(copy, registry.file)
    elif how == "restored":
        refused(registry, 69, f"the registry is in '{one.url}'", "restore", str(copy))
        refused(registry, 69, f"the registry is in '{one.url}'", "restore", f"{registry.file}{MOVED}")
    else:
        refused(registry, 69, f"was moved to '{one.url}'", "init")
    for words in (("serve",), ("compact",), ("backup", str(tmp_path / "another"))):
        refused(registry, 69, f"was moved to '{one.url}'", *words)
    assert one.said() == before


def test_a_registry_whose_etcd_is_lost_is_restored_when_somebody_says_so(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    registry.command("backup", str(copy))
    registry.command("move", "--to", one.url)
    one.stop()
    refused(registry, 75, "--lost", "restore", str(copy))
    registry.command("restore", str(copy), "--lost")
    with serving(registry):
        assert named(registry) == ["first"]
    assert not Path(f"{registry.file}{MOVED}").exists() and Path(f"{registry.file}{MOVED}{REPLACED}").exists()


def test_a_move_that_was_ended_before_the_file_was_put_aside(registry: Registry, one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(moving, "_aside", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moving.move(str(registry.file), one.url)
    refused(registry, 69, f"was moved to '{one.url}'", "serve")
    said = one.said()
    registry.command("move", "--to", one.url)
    assert one.said() == said and not registry.file.exists()


def ended_before_it_is_whole(registry: Registry, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a move end after the file says where it goes, and before the etcd says that it is whole."""

    def act(client: Client, goes: Facts, before: Facts | None = None, clear: bool = False) -> None:
        if goes.whole:
            raise KeyboardInterrupt
        begun(client, goes, before, clear)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "begun", act)
        with pytest.raises(KeyboardInterrupt):
            moving.move(str(registry.file), where)


@pytest.mark.slow
def test_a_move_that_was_ended_is_begun_again_with_another_etcd(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one never becomes the registry, even if what was sent to it comes late; where it cannot be told so, that is refused."""
    ended_before_it_is_whole(registry, one.url, monkeypatch)
    refused(registry, 69, f"was moved to '{one.url}'", "serve")
    with EtcdStore.unfinished(Client(one.place)) as first, Cluster(tmp_path / "etcd", 1) as second:
        one.stop()
        refused(registry, 75, "it is not known whether", "move", "--to", second.url)
        one.start()
        registry.command("move", "--to", second.url)
        late = first.facts._replace(whole=True)
        with pytest.raises(HostRefused, match="somebody else"):
            begun(first.client, late, first.facts)
        registry.kept_by(second.url)
        with serving(registry):
            assert named(registry) == ["first"]
        registry.kept_by(one.url)
        refused(registry, 75, "is not finished", "serve")


def test_a_move_that_is_refused_leaves_the_file_the_registry(registry: Registry, one: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:

    def act(client: Client, goes: Facts, before: Facts | None, clear: bool = True) -> None:
        if goes.whole:
            raise HostRefused("somebody else")
        begun(client, goes, before, clear)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "said", act)
        with pytest.raises(HostRefused, match="somebody else"):
            moving.move(str(registry.file), one.url)
    with serving(registry):
        assert named(registry, "second") == ["first", "second"]


@pytest.mark.parametrize("then", ["whole", "unknown", "another", "late"])
def test_a_move_that_is_refused_when_the_etcd_may_be_whole_leaves_the_mark(
    registry: Registry, one: Cluster, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """As when auth is turned on just then. Otherwise both would be the registry: the file, and the etcd."""
    late: list[tuple[Facts, Facts | None]] = []

    def act(client: Client, goes: Facts, before: Facts | None = None, clear: bool = False) -> None:
        if not goes.whole:
            begun(client, goes, before, clear)
            return
        if then == "late":
            late.append((goes, before))
        else:
            begun(client, goes, before, clear)
            if then == "another":
                held = facts(client)
                begun(client, Facts("another", False, "other:1", 0), held, True)
            if then == "unknown":
                patch.setattr(moving, "facts", refuses)
        patch.setattr(transfer, "facts", refuses)
        raise HostRefused("permission denied")

    def refuses(_client: Client) -> None:
        raise HostRefused("permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "begun", act)
        with pytest.raises(HostRefused, match="permission denied"):
            moving.move(str(registry.file), one.url)
    if then == "late":  # nothing was whole, and what comes late is refused
        with contextlib.closing(Client(one.place)) as client, pytest.raises(HostRefused, match="somebody else"):
            begun(client, *late[0])
        with serving(registry):
            assert named(registry) == ["first"]
        return
    refused(registry, 69, f"was moved to '{one.url}'", "serve")
    if then != "another":
        registry.command("move", "--to", one.url)
        registry.kept_by(one.url)
        with serving(registry):
            assert named(registry) == ["first"]


@pytest.mark.slow
def test_a_move_that_another_one_overtakes_leaves_the_file_the_registry(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file's move begins after ours has marked its file, and before the etcd says that ours is whole: it never is."""
    other = Registry(tmp_path / "other")

    def act(client: Client, goes: Facts, before: Facts | None = None, clear: bool = False) -> None:
        if goes.whole and not goes.source.startswith("other"):
            begun(client, Facts("another", False, "other:1", 0), facts(client), True)
        begun(client, goes, before, clear)

    with monkeypatch.context() as patch:
        patch.setattr(transfer, "begun", act)
        with pytest.raises(HostRefused, match="somebody else"):
            moving.move(str(registry.file), one.url)
    with serving(registry):
        assert named(registry, "second") == ["first", "second"]
    other.command("move", "--to", one.url)
    refused(registry, 69, "holds a registry already", "move", "--to", one.url)
    with serving(registry):
        assert named(registry) == ["first", "second"]


def test_a_move_is_not_said_to_be_done_by_an_etcd_that_has_another_registry(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    registry.command("move", "--to", one.url)
    other = Registry(tmp_path / "other")
    with Cluster(tmp_path / "etcd", 1) as second:
        other.command("move", "--to", second.url)
        refused(registry, 69, f"moved to '{one.url}' before", "move", "--to", second.url)


def test_a_store_that_the_settings_name_before_the_move(registry: Registry, one: Cluster) -> None:
    """The page says it the other way round. Whatever is tried then, no empty registry comes to be beside the real one."""
    registry.kept_by(one.url)
    refused(registry, 69, "there is no registry in", "serve")
    refused(registry, 69, "move --to", "init")
    assert one.said() == b"" and registry.file.exists()
    refused(registry, 69, f"store names '{one.url}'", "move", "--to", "etcd://127.0.0.1:1")
    said = registry.command("move", "--to", one.url).stdout
    assert 'store = "' not in said and not registry.file.exists()
    with serving(registry):
        assert named(registry) == ["first"]
    refused(registry, 69, "kept in an etcd already", "move", "--to", one.url)


# -- back to a file


def test_a_registry_is_brought_back_and_the_etcd_is_served_no_more(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    copy = tmp_path / "copy.sqlite"
    registry.command("backup", str(copy))
    registry.start()
    named(registry, "second")
    said = registry.command("move", "--back").stdout
    registry.ended(75)
    refused(registry, 69, f"was moved to '{registry.file} on ", "serve")
    refused(registry, 69, f"was moved to '{registry.file} on ", "restore", str(copy))
    assert registry.command("move", "--back").stdout == said, "what was done is told again"
    registry.kept_by()
    with serving(registry):
        assert named(registry, "third") == ["first", "second", "third"]
        with registry.client() as asked:
            assert asked.get("status").body["epoch"] in said
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    with serving(registry):
        assert named(registry) == ["first", "second", "third"]


@pytest.mark.parametrize("full", [False, True], ids=["read-only", "full"])
def test_a_folder_that_takes_no_file_is_found_before_services_end(registry: Registry, one: Cluster, full: bool) -> None:
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    registry.start()
    folder = str(registry.file.parent)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", folder], check=True)
    try:
        if not full:
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        refused(registry, 75 if full else 69, "services go on", "move", "--back")
        assert os.listdir(folder) == [] and b'"whole": true' in one.said()
        assert named(registry, "second") == ["first", "second"]
    finally:
        subprocess.run(["umount", folder], check=True)
    registry.command("move", "--back")
    registry.ended(75)
    registry.kept_by()
    with serving(registry):
        assert named(registry) == ["first", "second"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Unavailable("it is full")])
def test_a_registry_that_stands_still_on_its_way_says_how_it_goes_on(
    registry: Registry, one: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    registry.command("move", "--to", one.url)

    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(moving, "_fetched", fails)
        with pytest.raises(NetcommonError, match=r"stands still.*move --back goes on"):
            moving.back(str(registry.file), one.url)
    assert b'"whole": false' in one.said()
    moving.back(str(registry.file), one.url)
    with serving(registry):
        assert named(registry) == ["first"]


def test_an_etcd_whose_file_is_lost_is_restored_when_somebody_says_so(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    copy = tmp_path / "copy.sqlite"
    registry.command("backup", str(copy))
    registry.command("move", "--back")
    registry.file.unlink()
    refused(registry, 69, "--lost", "restore", str(copy))
    registry.command("restore", str(copy), "--lost")
    with serving(registry):
        assert named(registry) == ["first"]


@pytest.mark.slow
@pytest.mark.parametrize("at", ["compared", "replaced"])
def test_a_way_back_that_was_ended_is_begun_again_there_alone(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    with monkeypatch.context() as patch:
        patch.setattr(*((moving, "compared") if at == "compared" else (files, "replaced")), interrupted)
        with pytest.raises(KeyboardInterrupt):
            moving.back(str(registry.file), one.url)
    refused(registry, 69, "was moved to", "serve")
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        with pytest.raises(HostRefused, match="was moved to"):
            moving.back(str(tmp_path / "other.sqlite"), one.url)
    registry.kept_by()
    refused(registry, 69, "was moved to", "serve")
    registry.kept_by(one.url)
    registry.command("move", "--back")
    registry.kept_by()
    with serving(registry):
        assert named(registry) == ["first"]


def machine(patch: pytest.MonkeyPatch, tmp_path: Path, number: str) -> None:
    """Let this be another machine of the same name, as one that was cloned."""
    (tmp_path / "machine-id").write_text(number * 32)
    patch.setattr("netregistry.stores.whereabouts.MACHINE_ID", str(tmp_path / "machine-id"))
    patch.setattr("socket.gethostname", lambda: "vm")


def test_the_way_back_is_that_of_the_machine_it_came_from(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, of the same name, is told which; where it is forced, the first one does not take its own old file for the registry."""
    machine(monkeypatch, tmp_path, "a")
    file, copy = str(registry.file), str(tmp_path / "copy")
    files.copy(file, copy)
    moving.move(file, one.url)
    transfer.bring_back(copy, one.url, str(tmp_path / "kept"))  # of one that was restored the same is known
    aside = Path(f"{file}{MOVED}").rename(tmp_path / "aside")  # on the other machine it is not
    machine(monkeypatch, tmp_path, "b")
    with pytest.raises(HostRefused, match=r"came from .*registry.sqlite on vm \(machine [0-9a-f]{12}\)"):
        moving.back(file, one.url)
    assert not registry.file.exists()
    moving.back(file, one.url, lost=True)
    registry.file.rename(tmp_path / "of-the-other")
    aside.rename(f"{file}{MOVED}")
    machine(monkeypatch, tmp_path, "a")
    with pytest.raises(HostRefused, match="was moved from"):
        moving.only_here(file, lost=False)
    with pytest.raises(HostRefused, match="was moved to"):
        moving.back(file, one.url)


@pytest.mark.slow
def test_a_machine_that_was_renamed_ends_its_way_back(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, tmp_path, "a")
    moving.move(str(registry.file), one.url)
    with monkeypatch.context() as patch:
        patch.setattr(moving, "compared", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moving.back(str(registry.file), one.url)
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")
    moving.back(str(registry.file), one.url)
    with serving(registry):
        assert named(registry) == ["first"]


def brought_back(registry: Registry, where: str) -> None:
    """Bring a registry to an etcd, and back to its file."""
    registry.command("move", "--to", where)
    registry.kept_by(where)
    registry.command("move", "--back")
    registry.kept_by()


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_an_earlier_etcd_does_not_bring_back_what_a_later_one_keeps(registry: Registry, one: Cluster, tmp_path: Path, told: bool) -> None:
    """Settings of some machine name the earlier one still. ``told``: it knows that the registry has arrived at the file since."""
    brought_back(registry, one.url)
    if not told:
        with contextlib.closing(Client(one.place)) as client:
            found = facts(client)
            assert found is not None and found.arrived
            begun(client, found._replace(arrived=False), found)
    with serving(registry):
        named(registry, "second")
    with Cluster(tmp_path / "etcd", 1) as second:
        registry.command("move", "--to", second.url)
        registry.kept_by(one.url)
        said = one.said(), second.said()
        refused(registry, 69, "before" if told else f"[registry] store is to name '{second.url}'", "move", "--back")
        assert (one.said(), second.said()) == said and not registry.file.exists() and Path(f"{registry.file}{MOVED}").exists()
        second.stop()
        refused(registry, 69 if told else 75, "--lost", "move", "--back")
        done = registry.command("move", "--back", "--lost", check=False)
        assert done.returncode == 0, done.stderr
    registry.kept_by()
    with serving(registry):
        assert named(registry) == ["first"]


def test_a_file_that_was_lost_later_does_not_come_back_as_it_was_then(registry: Registry, one: Cluster) -> None:
    """Refuse what the etcd held then; where somebody wants that, it begins another epoch: the file may have had commits in this one."""
    brought_back(registry, one.url)
    with serving(registry), registry.client() as asked:
        epoch = asked.get("status").body["epoch"]
    removed(str(registry.file))
    registry.kept_by(one.url)
    refused(registry, 69, "is not there any more", "move", "--back")
    assert epoch not in registry.command("move", "--back", "--lost").stdout
    registry.kept_by()
    with serving(registry):
        assert named(registry) == ["first"]


@pytest.mark.slow
def test_another_registry_does_not_replace_one_on_its_way_back(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the way back is at its end the etcd has the only copy."""
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    with monkeypatch.context() as patch:
        patch.setattr(moving, "compared", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moving.back(str(registry.file), one.url)
    held = one.keys()
    refused(Registry(tmp_path / "other"), 69, "this is another one", "move", "--to", one.url)
    assert one.keys() == held


def test_a_file_that_is_there_is_not_written_over(registry: Registry, one: Cluster) -> None:
    registry.command("move", "--to", one.url)
    said = one.said()
    registry.file.write_bytes(b"")
    registry.kept_by(one.url)
    refused(registry, 69, "is there already", "move", "--back")
    assert one.said() == said and registry.file.read_bytes() == b""


# -- a copy


KILLED = """
import os, signal, sys
from netregistry import transfer
written = transfer._written
def once(target, batch):
    written(target, batch)
    os.kill(os.getpid(), signal.SIGKILL)
transfer.MOST, transfer._written = 3, once
transfer.copy(sys.argv[1], sys.argv[2])
"""


def test_a_copy_of_an_etcd_that_was_killed_is_no_backup(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    registry.command("move", "--to", one.url)
    registry.kept_by(one.url)
    part = tmp_path / "part.sqlite"
    assert subprocess.run([sys.executable, "-c", KILLED, one.url, str(part)], check=False).returncode == -9
    sqlite = subprocess.run([sys.executable, "-c", CHECKPOINT, str(part)], check=True, capture_output=True, text=True)
    assert int(sqlite.stdout) > 0, "there is something in it"
    said = one.said()
    refused(registry, 69, "is part of a registry", "restore", str(part))
    assert one.said() == said


CHECKPOINT = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute("SELECT count(*) FROM items").fetchone()[0])
database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
database.close()
"""


def test_a_restore_that_is_refused_leaves_what_is_kept(
    registry: Registry, one: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has been quicker: what it has put there is not what stood there before, of which the only copy may be kept here."""
    registry.command("move", "--to", one.url)
    copy, kept = tmp_path / "copy.sqlite", tmp_path / "kept.sqlite"
    transfer.copy(one.url, str(copy))
    filed = transfer.filed

    def late(source: EtcdStore, file: str) -> None:
        monkeypatch.setattr(transfer, "filed", filed)
        with pytest.raises(TryAgain, match="another netcommon registry"):
            transfer.bring_back(str(copy), one.url, str(kept))
        transfer.bring_back(str(copy), one.url, str(tmp_path / "elsewhere/kept.sqlite"))
        filed(source, file)

    kept.write_bytes(b"precious")
    monkeypatch.setattr(transfer, "filed", late)
    with pytest.raises(HostRefused, match="somebody else has begun"):
        transfer.bring_back(str(copy), one.url, str(kept))
    assert kept.read_bytes() == b"precious" and sorted(each.name for each in tmp_path.glob("kept*")) == ["kept.sqlite"]
    transfer.bring_back(str(copy), one.url, str(kept))
    assert kept.read_bytes() == b"precious" and Path(f"{kept}-2").stat().st_size > len(b"precious")


# -- members of more than one etcd


def at(*clusters: Cluster) -> Place:
    return place(f"etcd://{','.join(each.url.removeprefix('etcd://') for each in clusters)}")


def test_a_foreign_member_is_passed_over_wherever_it_is_named(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    """As Debian's package starts one by itself."""
    registry.command("move", "--to", one.url)
    with Cluster(tmp_path / "etcd", 1) as foreign:
        for order in ((foreign, one), (one, foreign)):
            registry.kept_by(f"etcd://{','.join(each.url.removeprefix('etcd://') for each in order)}")
            with serving(registry):
                assert named(registry) == ["first"]
        assert foreign.keys() == {} and foreign.said() == b""
        one.stop()
        refused(registry, 75, "as far as it answers", "serve")


@pytest.mark.slow
def test_members_of_two_etcds_of_which_nothing_tells_which_is_meant(registry: Registry, one: Cluster, tmp_path: Path) -> None:
    with Cluster(tmp_path / "etcd", 1) as foreign:
        both = at(foreign, one)
        acts: tuple[Callable[[], object], ...] = (
            lambda: EtcdStore(both),
            lambda: EtcdStore.create(both, "first"),
            lambda: moving.move(str(registry.file), f"etcd://{','.join(map(str, both.endpoints))}"),
        )
        for act in acts:
            with pytest.raises(HostRefused, match="members of more than one etcd"):
                act()
        assert foreign.said() == one.said() == b""
        for each in (foreign, one):
            EtcdStore.create(each.place, "first").close()
        with pytest.raises(HostRefused, match="members of more than one etcd"):
            EtcdStore(both)


@pytest.mark.slow
def test_etcds_that_take_themselves_for_one(registry: Registry, tmp_path: Path) -> None:
    """Those that Debian's package starts by itself on three machines: they have one number for their clusters, and for their members."""
    same = "http://localhost:2380"
    alike = ("--name", "default", "--initial-cluster", f"default={same}", "--initial-advertise-peer-urls", same)
    with contextlib.ExitStack() as ends:
        three = [ends.enter_context(Cluster(tmp_path / f"etcd{number}", 1, more=alike)) for number in range(3)]
        named_by = at(*three)
        for act in (
            lambda: EtcdStore.create(named_by, "first"),
            lambda: moving.move(str(registry.file), f"etcd://{','.join(map(str, named_by.endpoints))}"),
        ):
            with pytest.raises(HostRefused, match="each says that it is of the same cluster"):
                act()
            assert [each.said() for each in three] == [b""] * 3
        with serving(registry):
            assert named(registry) == ["first"]  # its file is the registry as before
        EtcdStore.create(three[1].place, "first").close()
        with pytest.raises(HostRefused, match="each says that it is of the same cluster"):
            EtcdStore(named_by)


def test_an_etcd_that_asks_nobody_for_a_password_is_not_ours(one: Cluster, tmp_path: Path) -> None:
    """A foreign one refuses the user whom ours knows."""
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    secret.chmod(0o600)
    with Cluster(tmp_path / "etcd", 1) as ours:
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            assert "error" not in ours.ask(f"auth/{path}", body)
        known = at(one, ours)._replace(user="root", password=str(secret))
        EtcdStore.create(known._replace(endpoints=known.endpoints[1:]), "first").close()
        with EtcdStore(known) as store:
            store.client._at, store.client._token = 0, ""  # as where ours did not answer for a while
            assert store.epoch == "first" and store.list("").items == ()
            ours.stop()
            with pytest.raises(NetcommonError) as refused_:
                store.list("")
            assert isinstance(refused_.value, TryAgain)
