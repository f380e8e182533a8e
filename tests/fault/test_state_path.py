"""Links, pipes, foreign owners and open doors anywhere on the way to our files: refused, and named; what they lead to is not touched."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netcommon.templates import read as read_template
from runtime.errors import SettingsInvalid
from runtime.locks import number
from tests.kernel.test_doors_parallel import environment
from tests.support import figures
from tests.support.node import Node
from tests.support.rundoor import Outcome, rundoor
from tests.support.sample import sample
from tests.support.snapshot import diff, snapshot

FIRST, SECOND = environment(0), environment(1)
UUID = FIRST["INTERFACE_UUID"]
STATE = "/run/netcommon"
NOBODY = 65534
REFUSED = (64, 69, 75, 78)


def away(path: str) -> str:
    """Where what was there is moved, and where links lead: in the same filesystem."""
    return "/run/elsewhere" if path.startswith("/run/") else "/etc/netcommon/elsewhere"


def foreign(path: str) -> str:
    """Somebody else's file, there."""
    return away(path) + "-foreign"


Tamper = Callable[[str], None]


def moved(make: Tamper) -> Tamper:
    """What was there lies elsewhere, and something else in its place."""

    def tamper(path: str) -> None:
        if os.path.lexists(path):
            os.rename(path, away(path))
        make(path)

    return tamper


def bound(path: str) -> None:
    """A socket, as a daemon's."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


def hard(path: str) -> None:
    """One more name of somebody else's file."""
    Path(foreign(path)).write_bytes(Path(away(path)).read_bytes())
    os.chmod(foreign(path), stat.S_IMODE(os.stat(away(path)).st_mode))
    os.chown(foreign(path), NOBODY, NOBODY)
    os.link(foreign(path), path)


#: For folders and for files alike. (The owner of a hard link is that of the file: a foreign one is a foreign file.)
LINKS: dict[str, Tamper] = {
    "symbolic link": moved(lambda path: os.symlink(away(path), path)),
    "dangling link": moved(lambda path: os.symlink("/run/nowhere", path)),
    "link to itself": moved(lambda path: os.symlink(path, path)),
    "FIFO": moved(os.mkfifo),
    "socket": moved(bound),
    "device": moved(lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))),
    "foreign owner": lambda path: os.chown(path, NOBODY, 0, follow_symlinks=False),
    "world-writable": lambda path: os.chmod(path, 0o777),
    "group-writable": lambda path: (os.chown(path, 0, NOBODY), os.chmod(path, 0o775), None)[2],
}
FOLDER: dict[str, Tamper] = {**LINKS, "file": moved(lambda path: Path(path).write_text("{}"))}
FILE: dict[str, Tamper] = {
    **LINKS,
    "folder": moved(os.mkdir),
    "hard link to a foreign file": moved(hard),
}


FOLDERS = ("", "/nics", "/devices", "/instances", "/instances/web0", "/owners", "/locks")
LOCK = f"/locks/device-{number('tap0'):02d}"
CASES = [(STATE + path, name) for path in FOLDERS for name in FOLDER] + [(STATE + LOCK, name) for name in FILE]


def tampering(path: str, name: str) -> Tamper:
    return (FILE if path.endswith((LOCK, ".json", ".toml")) else FOLDER)[name]


@contextmanager
def tampered(path: str, name: str) -> Iterator[None]:
    """So for as long as it lasts; then as it was, and whatever the link led to has not changed."""
    there = os.lstat(path)
    tampering(path, name)(path)
    before = tree(away(path))
    try:
        yield
        assert tree(away(path)) == before, (path, name)
        assert not os.path.lexists("/run/nowhere")
    finally:
        if os.path.lexists(away(path)):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            os.rename(away(path), path)
        os.chown(path, there.st_uid, there.st_gid, follow_symlinks=False)
        if not os.path.islink(path):
            os.chmod(path, stat.S_IMODE(there.st_mode))
        Path(foreign(path)).unlink(missing_ok=True)


def tree(top: str) -> list[tuple[str, int, int, bytes]]:
    """Names, modes, owners and contents."""
    found = []
    for where, folders, names in os.walk(top):
        for name in sorted(folders + names):
            path = f"{where}/{name}"
            status = os.lstat(path)
            data = Path(path).read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found.append((path, status.st_mode, status.st_uid, data))
    return found


@pytest.fixture
def ready(node: Node) -> Node:
    """Two taps; the first one's NIC is up, and the other one has been."""
    node.bridge("br0")
    node.tap("tap0")
    node.tap("tap1")
    assert rundoor("kvm-ifup", SECOND).status == 0
    assert rundoor("kvm-ifdown", SECOND, "tap1", "hot-remove").status == 0
    assert rundoor("kvm-ifup", FIRST).status == 0
    return node


def named(outcome: Outcome, path: str) -> bool:
    """Whether it says what is wrong with which path, in a line or two, and not by accident of Python."""
    said = outcome.stderr
    return path in said and said.startswith("netcommon: ") and len(said.splitlines()) < 6 and "Errno" not in said


def test_every_way_to_the_state(ready: Node) -> None:
    """An up of another NIC is refused, or did not come that way at all; so is a down, which leaves all for the next one."""
    chosen = sample(CASES, 5)
    for path, name in chosen:
        network = snapshot(())
        with tampered(path, name):
            up = rundoor("kvm-ifup", SECOND)
            if path.endswith(LOCK):  # the other NIC's lock is another file
                assert up.status == 0, (path, name, up)
                up = rundoor("kvm-ifup", FIRST)
            assert up.status in REFUSED and named(up, path), (path, name, up)
            assert up.seconds < 10
            if not path.endswith(LOCK):
                assert diff(network, snapshot(())) == [], (path, name)
                down = rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove")
                done = down.status == 0 and path.endswith(("/devices", "/instances", "web0", "/owners"))
                assert (down.status in REFUSED and named(down, path)) or done, (path, name, down)
        # now it is as before, whatever was left undone
        for each in (FIRST, SECOND):
            assert rundoor("kvm-ifdown", each, each["INTERFACE"], "hot-remove").status == 0, (path, name)
        assert rundoor("kvm-ifup", FIRST).status == 0, (path, name)
    figures.add("state-path", len(chosen), 0, 0)


@pytest.mark.no_agent("about what a hook says of a record that does not parse: an agent puts it in quarantine before")
def test_every_kind_of_record(ready: Node) -> None:
    """What is no plain file of root's in a record's place is in quarantine, and named; another NIC comes up as ever."""
    path = f"{STATE}/nics/{UUID}.json"
    names = sample(list(FILE), 3)
    for name in names:
        Path("/run/noted").write_bytes(Path(path).read_bytes())
        FILE[name](path)
        down = rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove")
        up = rundoor("kvm-ifup", SECOND)
        assert down.status == 0 and named(down, UUID) and "quarantine" in down.stderr, (name, down)
        assert (up.status, up.stderr) == (0, ""), (name, up)
        (kept,) = os.listdir(f"{STATE}/quarantine")
        assert kept.startswith(f"{UUID}.json.")
        quarantined = f"{STATE}/quarantine/{kept}"
        shutil.rmtree(quarantined) if os.path.isdir(quarantined) and not os.path.islink(quarantined) else os.unlink(quarantined)
        for rest in (away(path), foreign(path)):
            Path(rest).unlink(missing_ok=True)
        assert rundoor("kvm-ifdown", SECOND, "tap1", "hot-remove").status == 0
        assert rundoor("kvm-ifup", FIRST).status == 0
    figures.add("state-path", len(names), 0, 0)


def test_a_second_name_of_a_record_changes_nothing(ready: Node) -> None:
    """Its owner and mode say who can write it, whatever its names: to refuse it would let others take records from us by ln(1)."""
    path = f"{STATE}/nics/{UUID}.json"
    os.link(path, "/run/second")
    before = Path(path).read_bytes()
    assert rundoor("kvm-ifup", {**FIRST, "IP": "10.0.0.9"}).status == 0
    assert Path("/run/second").read_bytes() == before != Path(path).read_bytes()  # never written into: replaced
    assert rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove").status == 0
    assert Path("/run/second").read_bytes() == before and not os.path.exists(path)
    figures.add("state-path", 1, 0, 0)


@pytest.mark.no_agent("about what a hook says of a record that does not parse: an agent puts it in quarantine before")
def test_quarantine_itself(ready: Node) -> None:
    """A damaged record stays where it is, and that is said."""
    path = f"{STATE}/nics/{UUID}.json"
    Path(path).write_text("{")
    names = sample(list(FOLDER), 3)
    os.makedirs(f"{STATE}/quarantine", exist_ok=True)
    for name in names:
        with tampered(f"{STATE}/quarantine", name):
            up = rundoor("kvm-ifup", SECOND)
            down = rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove")
            assert up.status == 0, (name, up)
            assert "cannot be moved to quarantine" in down.stderr and named(down, f"{STATE}/quarantine"), (name, down)
            assert Path(path).read_text() == "{"
    figures.add("state-path", len(names), 0, 0)


DEFINED = "/etc/netcommon/nics.d"


def test_every_way_to_a_definition(ready: Node) -> None:
    """An up by the device alone is refused; a description from a file that others can write is none."""
    os.mkdir(DEFINED)
    file = f"{DEFINED}/{SECOND['INTERFACE_UUID']}.toml"
    Path(file).write_text('device = "tap1"\nmode = "bridged"\nlink = "br0"\nmac = "aa:00:00:00:00:01"\n')
    os.chmod(file, 0o644)
    assert rundoor("kvm-ifup", {}, "tap1").status == 0
    assert rundoor("kvm-ifdown", {}, "tap1", "hot-remove").status == 0
    cases = [(DEFINED, name) for name in FOLDER if name != "group-writable"] + [(file, name) for name in FILE]
    chosen = sample(cases, 5)
    network = snapshot(())
    for path, name in chosen:
        with tampered(path, name):
            up = rundoor("kvm-ifup", {}, "tap1")
            if name == "dangling link" or path == file:
                assert up.status in REFUSED and up.stderr.startswith("netcommon: "), (path, name, up)
            else:
                assert up.status in REFUSED and named(up, path), (path, name, up)
            assert diff(network, snapshot(())) == [], (path, name)
    assert rundoor("kvm-ifup", {}, "tap1").status == 0
    figures.add("state-path", len(chosen), 0, 0)


def test_settings(ready: Node) -> None:
    """An up is refused, the file named; a down takes the defaults, and says so. A link to root's own file is as good as the file."""
    path = "/etc/netcommon/config.toml"
    names = sample([name for name in FILE if name not in ("dangling link", "symbolic link")], 4)
    for name in names:
        Path(path).write_text("[hook]\ntimeout = 20\n")
        os.chmod(path, 0o644)
        FILE[name](path)
        up = rundoor("kvm-ifup", SECOND)
        assert up.status == 78 and named(up, "config.toml"), (name, up)
        down = rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove")
        assert down.status == 0 and named(down, "config.toml"), (name, down)
        os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
        for rest in (away(path), foreign(path)):
            Path(rest).unlink(missing_ok=True)
        assert rundoor("kvm-ifup", FIRST).status == 0
    figures.add("state-path", len(names), 0, 0)


@pytest.mark.parametrize("folder", ["ifup.d", "ifdown.d"])
def test_scripts(ready: Node, folder: str) -> None:
    """Not run, and named: nothing of it happens. At down the NIC goes all the same."""
    path = f"/etc/netcommon/{folder}/10-site"
    os.makedirs(os.path.dirname(path))
    kinds = [name for name in FILE if name not in ("symbolic link", "link to itself", "FIFO", "socket", "device", "folder")]
    above = ("foreign owner", "world-writable", "group-writable")
    cases = [(path, name) for name in kinds] + [(os.path.dirname(path), name) for name in above]
    chosen = sample(cases, 3)
    assert rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove").status == 0
    network = snapshot(())
    for where, name in chosen:
        Path(path).write_text("#!/bin/sh\ntouch /run/ran\n")
        os.chmod(path, 0o755)
        if folder == "ifdown.d":
            assert rundoor("kvm-ifup", FIRST).status == 0
        tampering(where, name)(where) if where != path else FILE[name](path)
        if folder == "ifup.d":
            outcome = rundoor("kvm-ifup", FIRST)
            assert outcome.status == 69, (where, name, outcome)
        else:
            outcome = rundoor("kvm-ifdown", FIRST, "tap0", "hot-remove")
            assert outcome.status == 0, (where, name, outcome)
        assert named(outcome, path), (where, name, outcome)
        assert not os.path.exists("/run/ran") and diff(network, snapshot(())) == [], (where, name)
        os.unlink(path)
        os.chown(os.path.dirname(path), 0, 0)
        os.chmod(os.path.dirname(path), 0o755)
        for rest in (away(path), foreign(path)):
            Path(rest).unlink(missing_ok=True)
    figures.add("state-path", len(chosen), 0, 0)


def test_templates(ready: Node) -> None:
    """A template of the site's that others could have written is not used, nor is ours in its place: it is named."""
    path = "/etc/netcommon/templates/dnsmasq/network.j2"
    names = [name for name in FILE if name not in ("symbolic link",)]
    for name in names:
        os.makedirs(os.path.dirname(path))
        Path(path).write_text("fine")
        assert read_template("dnsmasq/network.j2", "/etc/netcommon/templates") == "fine"
        FILE[name](path)
        with pytest.raises(SettingsInvalid, match=r"network\.j2"):
            read_template("dnsmasq/network.j2", "/etc/netcommon/templates")
        shutil.rmtree("/etc/netcommon/templates")
        for rest in (away(path), foreign(path)):
            Path(rest).unlink(missing_ok=True)
    for name in ("foreign owner", "world-writable"):
        os.makedirs(os.path.dirname(path))
        Path(path).write_text("fine")
        LINKS[name](os.path.dirname(path))
        with pytest.raises(SettingsInvalid, match=r"network\.j2"):
            read_template("dnsmasq/network.j2", "/etc/netcommon/templates")
        shutil.rmtree("/etc/netcommon/templates")
    figures.add("state-path", len(names) + 2, 0, 0)
