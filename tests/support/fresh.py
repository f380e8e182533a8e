"""Runs the README's commands where nothing of ours has ever been: tests/fresh [--keep] [demo|cluster|registry|run]... [-- ARGUMENT...]

    tests/fresh                      examples/demo, examples/cluster guests, examples/cluster registry and tests/run
    tests/fresh demo                 one of them
    tests/fresh run -- --lane unit   what follows "--" goes to tests/run

Each command gets a new root with Debian 12 and nothing but its minimal packages, a clone of HEAD in /root/netcommon, and an empty cache.
It runs in mount, process, IPC and host name namespaces of its own, on the machine's network, from which it downloads. What this machine
is told about where to download from goes along: apt's sources and Acquire options, pip's configuration, certificates, proxies. When the
command ends, however it ends, its mounts and processes are gone, and so is the root, which --keep keeps. git and mmdebstrap are installed
where they are missing, and stay.

Exit status 0: all passed; 1: one failed; 64: the arguments are wrong; 69: the root could not be made.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from tests.support import bootstrap, syscalls
from tests.support.bootstrap import HELP, ROOT, SetupFailed, command, say

SUITE = "bookworm"
#: The clone's place in the root, where somebody who is root would have it.
PLACE = "root/netcommon"
COMMANDS = {
    "demo": "examples/demo",
    "cluster": "examples/cluster guests",
    "registry": "examples/cluster registry",
    "run": "tests/run",
}
PROGRAMS = {"git": "git", "mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
#: Variables that say how to download. All of pip's go along too.
VARIABLES = re.compile(r"((https?|ftp|all|no)_proxy|PIP_.*|SSL_CERT_(FILE|DIR)|(CURL|REQUESTS)_CA_BUNDLE|TERM)", re.I)
#: What is copied to the same place, where it is there; a user's own into the home of root.
COPIED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates")
KEYS = ("/etc/apt/keyrings", "/etc/apt/trusted.gpg.d", "/usr/share/keyrings")
COPIED_HOME = (".pip/pip.conf", ".config/pip/pip.conf")
#: Device files that a new /dev has, if the machine has them.
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kvm", "net/tun", "vhost-net")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
#: Of the machine, to be read: the modules of its kernel. Paths of pip's configuration are added.
READ = ("/usr/lib/modules",)
INSIDE = "--inside"
NAMESPACES = ("--mount", "--mount-proc", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private")
USAGE = "usage: tests/fresh [--keep] [demo|cluster|registry|run]... [-- ARGUMENT of tests/run...]"


class Wanted(NamedTuple):
    """The arguments, understood."""

    commands: tuple[str, ...]
    keep: bool
    extra: tuple[str, ...]


class Ended(NamedTuple):
    """One command that has run."""

    command: str
    status: int
    seconds: float


def parse(arguments: list[str]) -> Wanted:
    """Understand the arguments. Raises ValueError."""
    before, extra = arguments, list[str]()
    if "--" in arguments:
        place = arguments.index("--")
        before, extra = arguments[:place], arguments[place + 1 :]
    names = tuple(dict.fromkeys(word for word in before if word != "--keep")) or tuple(COMMANDS)
    for name in names:
        if name not in COMMANDS:
            raise ValueError(f"{name!r}: expected is one of {', '.join(COMMANDS)}, or --keep")
    if extra and "run" not in names:
        raise ValueError(f"{extra[0]!r} is an argument of tests/run, which was not asked for")
    return Wanted(names, "--keep" in before, tuple(extra))


def acquire_options(dump: str) -> str:
    """Choose of the output of ``apt-config dump`` how apt downloads; programs that it calls on the way are those of other packages."""
    return "".join(f"{line}\n" for line in dump.splitlines() if line.startswith("Acquire::"))


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Make the environment of a command: as after a login of root's, with VARIABLES."""
    plain = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return plain | {name: value for name, value in environ.items() if VARIABLES.fullmatch(name)}


def local_paths(texts: Iterable[str]) -> list[str]:
    """List the folders and files of this machine that pip's configuration names, as paths or as file: URLs.

    An index is called "simple" (PEP 503), and what it leads to lies beside it.
    """
    found = re.findall(r"(?:(?<=file://)|(?<![^\s=,:]))/(?!/)[^\s,;\"']+", "\n".join(texts))
    return sorted({path.rstrip("/").removesuffix("/simple") for path in found})


def sources(etc: Path = Path("/etc/apt")) -> list[str]:
    """List the files in which apt's sources are (sources.list(5)). Raises SetupFailed."""
    folder = etc / "sources.list.d"
    paths = [etc / "sources.list", *sorted([*folder.glob("*.list"), *folder.glob("*.sources")])]
    found = [str(path) for path in paths if path.is_file() and path.read_text().strip()]
    if not found:
        raise SetupFailed(f"{etc} has no sources, so there is nothing to make a Debian from")
    return found


def make_root(root: Path, options: Path) -> None:
    """Make a minimal Debian in the folder ``root``; ``options`` is a file in apt.conf(5)'s form, whose folder gets temporary files.

    Raises SetupFailed.
    """
    argv = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory", "--dpkgopt=force-unsafe-io"]
    with tempfile.TemporaryFile() as said:
        # what it keeps beside the root goes with the root, also where it is killed
        environ = {**os.environ, "TMPDIR": str(options.parent)}
        status = confined([*argv, f"--aptopt={options}", SUITE, str(root), *sources()], environ, said)
        said.seek(0)
        if status:
            raise SetupFailed(f"mmdebstrap: exit {status}\n{said.read().decode(errors='replace')}")


def furnish(root: Path) -> None:
    """Copy into ``root`` what the machine is told about names, certificates, pip, and the keys of apt's sources that it has not got."""
    home = Path(os.path.expanduser("~"))
    for source, target in [*((Path(path), path) for path in COPIED), *((home / path, f"/root/{path}") for path in COPIED_HOME)]:
        copy(source, root / target.lstrip("/"))
    for folder in KEYS:
        for path in Path(folder).glob("*"):
            if not (root / path.relative_to("/")).exists():
                copy(path, root / path.relative_to("/"))


def copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder over what is there; links become what they lead to. Nothing is copied where there is nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    elif source.is_file():
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)


def clone(target: Path) -> None:
    """Clone HEAD of this checkout, and say what it is. Raises SetupFailed."""
    git = ["git", "-C", str(ROOT), "-c", "safe.directory=*"]
    head = command([*git, "log", "-1", "--format=%h %s"]).stdout.strip()
    changed = len(command([*git, "status", "--porcelain"]).stdout.splitlines())
    say(f"HEAD is {head}" + (f"; not in it, as not committed: {changed} files" if changed else ""))
    command(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(target)])


# ------------------------------------------------------------------------------------------------- running in the new root


def run(root: Path, name: str, extra: Iterable[str]) -> Ended:
    """Run a command of COMMANDS in ``root``; it and all that it has started are gone when this returns or raises."""
    environ = variables(os.environ)
    texts = [path.read_text(errors="replace") for path in pip_files(root)]
    paths = json.dumps([*READ, *local_paths([*texts, *environ.values()])])
    inner = [sys.executable, "-m", "tests.support.fresh", INSIDE, str(root), paths, *f"./{COMMANDS[name]}".split(), *extra]
    begun = time.monotonic()
    status = confined(inner, environ)
    return Ended(COMMANDS[name], status, time.monotonic() - begun)


def confined(argv: list[str], environ: dict[str, str], output: IO[bytes] | None = None) -> int:
    """Run a command in NAMESPACES; its exit status, 128 + N for signal N. All that it has started is gone when this returns or raises."""
    given = ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES, "--", *argv]
    child = subprocess.Popen(given, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        status = child.wait()
    finally:
        end(child)
    return status if status >= 0 else 128 - status


def pip_files(root: Path) -> list[Path]:
    """List pip's configuration files in ``root``."""
    found = [root / path.lstrip("/") for path in COPIED if path.endswith("pip.conf")] + [root / "root" / path for path in COPIED_HOME]
    return [path for path in found if path.is_file()]


def end(process: subprocess.Popen[bytes]) -> None:
    """End what unshare(1) has started, by its first process, which is over only when all others of its namespace are."""
    if process.poll() is not None:
        return
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
    except (OSError, IndexError):
        process.kill()
    process.wait()


def inside(root: str, paths: list[str], argv: list[str]) -> int:
    """Be the first process of the namespaces: mount what a machine has, make ``root`` the root, run ``argv``, bury orphans."""
    syscalls.mount(root, root, flags=syscalls.MS_BIND)
    mount_devices(f"{root}/dev")
    syscalls.mount("proc", f"{root}/proc", "proc")
    syscalls.mount("/sys", f"{root}/sys", flags=syscalls.MS_BIND | syscalls.MS_REC)
    syscalls.mount("tmpfs", f"{root}/run", "tmpfs", options="mode=0755")
    os.makedirs(f"{root}/run/lock", exist_ok=True)
    for path in paths:
        if os.path.exists(path) and not os.path.exists(f"{root}{path}"):
            bind(path, f"{root}{path}")
            syscalls.mount("none", f"{root}{path}", flags=syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY)
    os.chdir(root)
    syscalls.pivot_root(".", ".")  # the old root is on top of the new one now (pivot_root(2))
    syscalls.umount(".")
    os.chdir(f"/{PLACE}")
    child = subprocess.Popen(argv)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def mount_devices(folder: str) -> None:
    """Mount a /dev with nothing but DEVICES, and terminals and shared memory of its own."""
    syscalls.mount("tmpfs", folder, "tmpfs", options="mode=0755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            bind(f"/dev/{name}", f"{folder}/{name}")
    for name, kind, options in (("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5"), ("shm", "tmpfs", "mode=1777")):
        os.mkdir(f"{folder}/{name}")
        syscalls.mount(kind, f"{folder}/{name}", kind, options=options)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"{folder}/{name}")


def bind(source: str, target: str) -> None:
    """Show a file or folder at a second place, which is made."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    syscalls.mount(source, target, flags=syscalls.MS_BIND)


# --------------------------------------------------------------------------------------------------------------------- main


@contextlib.contextmanager
def folder(keep: bool) -> Iterator[Path]:
    """Make a folder for roots, which only we may enter, on a disk rather than in memory; remove it also on a signal, unless ``keep``."""

    def stopped(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    made = Path(tempfile.mkdtemp(prefix="netcommon-fresh-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    try:
        yield made
    finally:
        if keep:
            say(f"kept: {made}")
        else:
            for number in handlers:
                signal.signal(number, signal.SIG_IGN)  # whoever asks twice gets it no faster
            shutil.rmtree(made)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def report(ended: list[Ended]) -> int:
    """Print what became of each command; the exit status."""
    print(f"\n{'command':16} {'seconds':>8}")
    for one in ended:
        print(f"{one.command:16} {one.seconds:8.1f}  " + (f"failed: exit status {one.status}" if one.status else "passed"))
    return int(any(one.status for one in ended))


def main(arguments: list[str]) -> int:
    """Return the exit status."""
    if HELP & set(arguments[: arguments.index("--") if "--" in arguments else None]):
        print(__doc__)
        return 0
    try:
        wanted = parse(arguments)
    except ValueError as error:
        print(f"tests/fresh: {error}\n{USAGE}", file=sys.stderr)
        return 64
    if os.geteuid() != 0:
        print("tests/fresh: needs root, for a root of its own", file=sys.stderr)
        return 69
    ended = []
    try:
        bootstrap.install(sorted({package for program, package in PROGRAMS.items() if not bootstrap.find(program)}))
        with folder(wanted.keep) as place:
            say("making a minimal Debian")
            (place / "apt.conf").write_text(acquire_options(command(["apt-config", "dump"]).stdout))
            make_root(place / "base", place / "apt.conf")
            furnish(place / "base")
            clone(place / "base" / PLACE)
            for name in wanted.commands:
                command(["cp", "--archive", "--reflink=auto", str(place / "base"), str(place / name)])
                say(f"=== {COMMANDS[name]} in it")
                ended.append(run(place / name, name, wanted.extra if name == "run" else ()))
    except (SetupFailed, OSError) as error:
        print(f"tests/fresh: {error}", file=sys.stderr)
        return 69
    return report(ended)


if __name__ == "__main__" and sys.argv[1:2] == [INSIDE]:
    sys.exit(inside(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4:]))
