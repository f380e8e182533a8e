"""Files of ours in folders that others read: whole or not at all, and never in another's place."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from netcommon.host.api.facts import FILE_MARK
from netcommon.host.api.requests import DeleteFile, PutFile
from netcommon.host.simulated.host import MemoryHost
from runtime.errors import HostRefused
from tests.contract.worlds import World, do, told, view

SITE, OWN = "/run/site", "communication/hosts"
MINE, OTHER = (f"13264fb6-0667-415f-9a43-786dc01cbf2{digit}" for digit in "45")


def content(owner: str, text: str = "x\n", reload: str = "") -> str:
    return f"{FILE_MARK}{owner}{reload}\n{text}"


def folder(world: World, path: str = SITE) -> None:
    """The administrator makes a folder and names it in the settings."""
    if isinstance(world.host, MemoryHost):
        world.host.files.folders.add(path)
    else:
        os.mkdir(path, 0o755)
        vars(world.host)["folders"] = (path,)


def put(world: World, name: str, text: str) -> None:
    """A file of somebody's."""
    if isinstance(world.host, MemoryHost):
        world.host.files.put(SITE, name, text)
    else:
        Path(SITE, name).write_text(text)


@pytest.mark.parametrize("where", [SITE, OWN])
def test_put_read_replace_delete(world: World, where: str) -> None:
    if where == SITE:
        folder(world)
    assert view(world).file(where, "a") is None and view(world).files() == []
    assert do(world, PutFile(where, "a", content(MINE, "één\n", " dnsmasq:/run/x.pid"))) == [0]
    found = view(world).file(where, "a")
    assert found is not None and view(world).files() == [found]
    assert found == (where, "a", content(MINE, "één\n", " dnsmasq:/run/x.pid"), 0o644, MINE, "dnsmasq:/run/x.pid")
    assert do(world, PutFile(where, "a", content(OTHER), mode=0o600)) == [0]
    found = view(world).file(where, "a")
    assert found is not None and (found.owner, found.mode, found.reload, found.content) == (OTHER, 0o600, "", content(OTHER))
    assert do(world, DeleteFile(where, "a", MINE)) == [errno.EEXIST]
    assert do(world, DeleteFile(where, "a", OTHER), DeleteFile(where, "a", OTHER)) == [0, errno.ENOENT]
    assert view(world).file(where, "a") is None


@pytest.mark.parametrize(
    "text", ["", "MAC=1\n", "# netcommon\n", f"# netcommon {MINE}x\n", f" # netcommon {MINE}\n", f"MAC=1\n# netcommon {MINE}\n"]
)
def test_what_bears_no_mark_stays(world: World, text: str) -> None:
    folder(world)
    put(world, "a", text)
    found = view(world).file(SITE, "a")
    assert found is not None and found.owner == "" and view(world).files() == []
    assert told(world, PutFile(SITE, "a", content(MINE))).errno == errno.EEXIST
    assert told(world, DeleteFile(SITE, "a", MINE)).errno == errno.EEXIST
    assert view(world).file(SITE, "a") == found


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/a", ".hidden", "a\nb", "a\0b", "n" * 256])
def test_names_that_are_none(world: World, name: str) -> None:
    folder(world)
    assert told(world, PutFile(SITE, name, content(MINE))).errno == errno.EINVAL
    assert told(world, DeleteFile(SITE, name, MINE)).errno == errno.EINVAL
    assert view(world).file(SITE, name) is None and view(world).files() == []


@pytest.mark.parametrize("path", ["", "/", "//run", "/run/../run/site", "../site", "/run/site/", "/run/./site", "/run/si\nte"])
def test_folders_that_are_none(world: World, path: str) -> None:
    folder(world)
    assert told(world, PutFile(path, "a", content(MINE))).errno == errno.EINVAL
    assert view(world).file(path, "a") is None and view(world).file(SITE, "a") is None


def test_whether_a_folder_takes_files(world: World) -> None:
    """One of our own is made; a site's must be there."""
    assert not view(world).folder(SITE) and view(world).folder(OWN) and not view(world).folder("/run/../run/site")
    folder(world)
    assert view(world).folder(SITE)


def test_a_sites_folder_is_not_made(world: World) -> None:
    said = told(world, PutFile(SITE, "a", content(MINE)))
    assert said.errno == errno.ENOENT and SITE in said.text
    assert view(world).file(SITE, "a") is None and do(world, DeleteFile(SITE, "a", MINE)) == [errno.ENOENT]


# What only a real machine has.


@pytest.fixture
def linux(world: World) -> World:
    folder(world)
    return world


@pytest.mark.parametrize("world", [pytest.param("linux", id="linux")], indirect=True)
class TestOnDisk:
    @pytest.mark.parametrize("kind", ["symlink", "dangling", "fifo", "folder", "large", "writable", "foreign"])
    def test_what_is_no_plain_file_of_roots(self, linux: World, kind: str) -> None:
        """Never followed, waited for, written through or removed."""
        path, elsewhere = Path(SITE, "a"), Path("/run/elsewhere")
        elsewhere.write_text(content(MINE, "precious\n"))
        if kind in ("symlink", "dangling"):
            path.symlink_to(elsewhere if kind == "symlink" else "/run/nowhere")
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.write_text(content(MINE, "x" * (1 << 17 if kind == "large" else 1)))
            if kind == "writable":
                path.chmod(0o666)
            elif kind == "foreign":
                os.chown(path, 4711, 0)
        before = os.lstat(path)
        assert told(linux, PutFile(SITE, "a", content(MINE))).errno == errno.EEXIST
        assert told(linux, DeleteFile(SITE, "a", MINE)).errno == errno.EEXIST
        assert view(linux).files() == []
        after = os.lstat(path)
        assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
        assert elsewhere.read_text() == content(MINE, "precious\n") and not os.path.exists("/run/nowhere")

    def test_a_folder_that_others_can_write_to(self, linux: World) -> None:
        os.chmod(SITE, 0o777)
        assert "root" in told(linux, PutFile(SITE, "a", content(MINE))).text
        with pytest.raises(HostRefused, match="root"):
            view(linux).folder(SITE)
        assert os.listdir(SITE) == [] and view(linux).files() == []

    def test_a_folder_that_is_a_link(self, linux: World) -> None:
        os.rename(SITE, "/run/real")
        os.symlink("/run/real", SITE)
        assert told(linux, PutFile(SITE, "a", content(MINE))).errno == errno.EIO
        assert os.listdir("/run/real") == []

    def test_the_mode_whatever_the_umask(self, linux: World) -> None:
        """And nothing else is left in the folder."""
        before = os.umask(0o077)
        try:
            assert do(linux, PutFile(SITE, "a", content(MINE)), PutFile(OWN, "a", content(MINE))) == [0, 0]
        finally:
            os.umask(before)
        assert os.listdir(SITE) == ["a"]
        for path in (f"{SITE}/a", f"/run/netcommon/{OWN}/a"):
            status = os.stat(path)
            assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o644, 0)
        assert {stat.S_IMODE(os.stat(f"/run/netcommon/{name}").st_mode) for name in ("communication", OWN)} == {0o755}

    def test_our_own_folder_goes_when_it_is_empty(self, linux: World) -> None:
        assert do(linux, PutFile(OWN, "a", content(MINE)), PutFile(OWN, "b", content(OTHER)), DeleteFile(OWN, "a", MINE)) == [0, 0, 0]
        assert os.listdir(f"/run/netcommon/{OWN}") == ["b"]
        assert do(linux, DeleteFile(OWN, "b", OTHER)) == [0]
        assert not os.path.exists("/run/netcommon/communication") and os.path.exists(SITE)

    def test_an_announced_file_is_closed_after_writing(self, linux: World) -> None:
        """As a reader with inotify(7) sees it: whole under its own name, then closed."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        in_close_write, in_moved_to, in_delete = 0x8, 0x80, 0x200
        assert libc.inotify_add_watch(watch, SITE.encode(), in_close_write | in_moved_to | in_delete) > 0
        try:
            requests = (PutFile(SITE, "quiet", content(MINE)), PutFile(SITE, "tap0", content(MINE), announce=True))
            assert do(linux, *requests, DeleteFile(SITE, "tap0", MINE)) == [0, 0, 0]
            data, events = os.read(watch, 1 << 16), []
            while data:
                mask, length = int.from_bytes(data[4:8], "little"), int.from_bytes(data[12:16], "little")
                name = data[16 : 16 + length].rstrip(b"\0").decode()
                events += [] if name.startswith(".") else [(name, mask)]
                data = data[16 + length :]
        finally:
            os.close(watch)
        assert events == [("quiet", in_moved_to), ("tap0", in_moved_to), ("tap0", in_close_write), ("tap0", in_delete)]
