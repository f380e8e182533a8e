"""Sets the project up on a Debian machine: programs, the Python environment in .venv, bytecode, and a cache for what is downloaded.

Used by tests/run, tests/setup and examples/demo. Standard library only: it runs before the environment is there. It uses whatever
package sources apt and pip are configured with, and starts no service.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = "/usr/bin/python3"
#: What is in the environment: for tests and development, and for a node in production.
REQUIREMENTS, RUNTIME = ROOT / "requirements-test.txt", ROOT / "requirements.txt"
POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_ASIDE = Path("/usr/sbin/policy-rc.d.before-netcommon")
POLICY_TEXT = "#!/bin/sh\n# Put here by netcommon's tests/setup while it installs packages: nothing is started.\nexit 101\n"

#: Arguments that ask a program of the checkout how it is called.
HELP = frozenset({"-h", "--help"})

#: What each purpose needs: program -> Debian package, or more than one. A program that is there is not installed again.
PROGRAMS = {
    "environment": {"git": "git"},
    "runtime": {},
    "unit": {"ovs-ofctl": "openvswitch-common"},
    "guard": {"find": "findutils", "ip": "iproute2", "nft": "nftables", "sysctl": "procps"},
    "kernel": {
        "ip": "iproute2",
        "ping": "iputils-ping",
        "nft": "nftables",
        "ovs-vswitchd": "openvswitch-switch",
        "sysctl": "procps",
        "strace": "strace",
        "dnsmasq": "dnsmasq-base",
        "busybox": "busybox-static",
        "knotd": "knot",
        "kdig": "knot-dnsutils",
        "systemd-analyze": "systemd",
        "openssl": "openssl",
        "cc": "gcc libc6-dev",
        "qemu-system-x86_64": "qemu-system-x86",
    },
    "browser": {"chromium": "chromium"},
    "cluster": {
        "ip": "iproute2",
        "ping": "iputils-ping",
        "nft": "nftables",
        "sysctl": "procps",
        "openssl": "openssl",
        "chromium": "chromium",
        "qemu-system-x86_64": "qemu-system-x86",
    },
    "vm": {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "modprobe": "kmod", "script": "bsdutils", "file": "file"},
    "demo": {
        "ip": "iproute2",
        "ping": "iputils-ping",
        "ovs-vswitchd": "openvswitch-switch",
        "qemu-system-x86_64": "qemu-system-x86",
        "busybox": "busybox-static",
        "cpio": "cpio",
        "modprobe": "kmod",
        "sysctl": "procps",
    },
}

#: Debian packages that are only unpacked in the cache, never installed: Ganeti's own scripts, with which ours are compared; promtool, whose
#: package would start a service; etcd, BIRD and FRR, whose packages would, too.
UNPACKED = {
    "kernel": ("ganeti-3.0", "prometheus", "etcd-server", "etcd-client", "bird2", "libssh-gcrypt-4", "frr", "libyang2"),
    "cluster": ("etcd-server",),
    "vm": ("ganeti-3.0",),
}

_started = time.monotonic()
_updated: list[bool] = []


class SetupFailed(Exception):
    """The machine could not be set up; the text says why and what to do."""


def say(text: str) -> None:
    """One line of progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _started:6.1f} s] {text}", flush=True)


def cache() -> Path:
    """Where downloads and results are kept: NETCOMMON_CACHE, else /var/cache/netcommon, else (not root) ~/.cache/netcommon."""
    default = "/var/cache/netcommon" if os.geteuid() == 0 else os.path.expanduser("~/.cache/netcommon")
    path = Path(os.environ.get("NETCOMMON_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def setup(purposes: Iterable[str]) -> None:
    """Programs for ``purposes`` (keys of PROGRAMS), environment, bytecode. The second time it only looks. Raises SetupFailed."""
    purposes = list(purposes)
    with locked():
        wanted = {program: names for purpose in purposes for program, names in PROGRAMS[purpose].items()}
        packages = {package for program, names in wanted.items() if not find(program) for package in names.split()}
        if not VENV.exists() and not venv_usable():
            packages.add("python3-venv")
        install(sorted(packages))
        environment(RUNTIME if set(purposes) == {"runtime"} else REQUIREMENTS)
        bytecode()
        if "unit" in purposes or "kernel" in purposes:
            wheels()
    for package in sorted({package for purpose in purposes for package in UNPACKED.get(purpose, ())}):
        unpacked(package)


def find(program: str) -> str | None:
    """The path of a program, in the system's folders too."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin")


def venv_usable() -> bool:
    """Whether the system's Python can make an environment with pip: Debian splits that off."""
    return command([PYTHON, "-c", "import venv, ensurepip"], check=False).returncode == 0


def command(argv: list[str], check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program; its output is shown only if it fails. Raises SetupFailed."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if check and done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise SetupFailed(f"{' '.join(argv)}: exit {done.returncode}\n{tail}")
    return done


@contextlib.contextmanager
def locked(folder: Path | None = None) -> Iterator[None]:
    """Two commands at the same time set ``folder`` up, the checkout by default, one after the other."""
    descriptor = os.open(folder or ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def update() -> None:
    """apt-get update, once."""
    if not _updated:
        say("apt-get update")
        command(["apt-get", "-qq", "update"])
        _updated.append(True)


def install(packages: list[str]) -> None:
    """Installs Debian packages without starting any service of theirs. Raises SetupFailed."""
    if not packages:
        return
    if os.geteuid() != 0:
        raise SetupFailed(f"missing: {' '.join(packages)}; run this as root once, or install them")
    with nothing_starts():
        update()
        say(f"apt-get install {' '.join(packages)}")
        command(["apt-get", "-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "install", *packages])


@contextlib.contextmanager
def nothing_starts() -> Iterator[None]:
    """A policy-rc.d (invoke-rc.d(8)) that forbids every start; what was there before is put back, whatever happens."""

    def stopped(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if POLICY.exists() and POLICY.read_text(errors="replace") == POLICY_TEXT:  # an earlier run was killed
        _restore_policy()
    if POLICY.exists() and command([str(POLICY), "netcommon", "start"], check=False).returncode == 101:
        yield
        return
    handlers = {number: signal.signal(number, stopped) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        if POLICY.exists():
            POLICY.rename(POLICY_ASIDE)
        POLICY.write_text(POLICY_TEXT)
        POLICY.chmod(0o755)
        yield
    finally:
        _restore_policy()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _restore_policy() -> None:
    POLICY.unlink(missing_ok=True)
    if POLICY_ASIDE.exists():
        POLICY_ASIDE.rename(POLICY)


def environment(requirements: Path = REQUIREMENTS) -> None:
    """Makes .venv from the file unless it is of just those, this Python and this place. Raises SetupFailed."""
    version = command([PYTHON, "-VV"]).stdout
    key = hashlib.sha256(requirements.read_bytes() + version.encode() + str(VENV).encode()).hexdigest()
    stamp = VENV / "netcommon-key"
    if stamp.exists() and stamp.read_text() == key:
        return
    if VENV.is_symlink():
        raise SetupFailed(f"{VENV} is a link to {VENV.readlink()}, which would be made anew for this checkout: remove the link")
    say("Python environment in .venv (pip, a minute at most)")
    command([PYTHON, "-m", "venv", "--clear", str(VENV)])
    pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "--cache-dir", str(cache() / "pip")]
    command([*pip, "install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", str(requirements)])
    # The checkout itself: a path and a command, as an editable install would make, without building anything.
    packages = next((VENV / "lib").glob("python3*/site-packages"))
    (packages / "netcommon.pth").write_text(f"{ROOT}\n")
    script = VENV / "bin/netcommon"
    script.write_text(f"#!{VENV}/bin/python\nimport sys\n\nfrom netcommon.cli import main\n\nsys.exit(main())\n")
    script.chmod(0o755)
    stamp.write_text(key)


def bytecode() -> None:
    """Compiles what the hooks import: they run as root from anywhere and must not have to."""
    for folder in ("runtime", "netcommon", "netagent", "netregistry", "mockcloud"):
        compileall.compile_dir(str(ROOT / folder), quiet=2)


def wheels() -> None:
    """Download into the cache what packaging/build-deb puts into the package: tests build it without a network. Raises SetupFailed."""
    command([str(ROOT / "packaging/build-deb"), "--download"])


def unpacked(package: str) -> Path:
    """The content of a Debian package, downloaded and unpacked in the cache, not installed. Raises SetupFailed."""
    place = cache() / "packages" / package
    with locked(cache()):
        if place.exists():  # maybe by another command, while this one waited
            return place
        update()
        say(f"downloading {package}")
        making = cache() / f"making-{os.getpid()}"
        making.mkdir()
        try:
            command(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package], cwd=making)
            archive = next(making.glob("*.deb"))
            command(["dpkg-deb", "-x", str(archive), str(making / "tree")])
            place.parent.mkdir(exist_ok=True)
            (making / "tree").rename(place)
        finally:
            shutil.rmtree(making)
    return place


class Kernel:
    """A Debian kernel, unpacked in the cache."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self.image = next((tree / "boot").glob("vmlinuz-*"))
        self.version = self.image.name.removeprefix("vmlinuz-")
        self.modules = tree / "lib/modules" / self.version


def kernel(flavour: str = "amd64") -> Kernel:
    """Debian's current kernel: "amd64", or "cloud-amd64" (smaller, few modules). One from the cache serves for ever. Raises SetupFailed."""
    link = cache() / f"kernel-{flavour}"
    if not link.exists():
        update()
        depends = command(["apt-cache", "depends", f"linux-image-{flavour}"]).stdout
        names = [line.split()[-1] for line in depends.splitlines() if "Depends: linux-image-" in line]
        if not names:
            raise SetupFailed(f"apt knows no linux-image-{flavour}: is this Debian on amd64?")
        tree = unpacked(names[0])
        command(["/sbin/depmod", "-b", str(tree), names[0].removeprefix("linux-image-")])
        beside = link.with_name(f".{link.name}.{os.getpid()}")
        beside.symlink_to(tree.relative_to(cache()))
        beside.replace(link)
    return Kernel(link.resolve())


def main(arguments: list[str]) -> int:
    """tests/setup [PURPOSE...]: all purposes by default. ``runtime`` alone is the environment without what tests need."""
    usage = f"usage: tests/setup [{'|'.join(PROGRAMS)}]..."
    if HELP & set(arguments):
        print(usage)
        return 0
    if set(arguments) - PROGRAMS.keys():
        print(usage, file=sys.stderr)
        return 64
    try:
        setup(arguments or list(PROGRAMS))
    except SetupFailed as error:
        print(f"setup: {error}", file=sys.stderr)
        return 69
    say("set up")
    return 0
