"""Network namespaces for tests that touch the kernel: nothing here can reach the machine's own network.

The pytest process gets a mount namespace of its own once (``isolate``); each test gets a network namespace of its own (``Node``) with
/sys mounted anew, an empty /run, and empty /etc/netcommon and /etc/ganeti. All of it is gone when the test ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import syscalls

#: Set to "1" by tests/support/inside.py: the process is in namespaces of its own already. THROWAWAY: so is the whole machine.
PRIVATE = "NETCOMMON_TESTS_PRIVATE"
THROWAWAY = "machine"

#: Folders that each test finds empty: also what a DHCP server has below /var/lib, which two tests at the same time would share. Those
#: below /run are made in a fresh tmpfs.
EMPTY = ("/etc/netcommon", "/etc/ganeti", "/var/lib")
RUN = ("/run/lock", "/run/netns", "/run/openvswitch", "/run/ganeti")

#: Large folders of /etc that have nothing to do with networks.
UNNEEDED = {"apparmor.d", "ssh", "fonts", "X11", "perl", "texmf", "emacs", "ca-certificates"}

_isolated: list[bool] = []


def isolate() -> None:
    """Gives this process, once, a mount and a network namespace of its own, with a copy of /etc. Raises OSError (needs root)."""
    if _isolated:
        return
    if not os.environ.get(PRIVATE):
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET)
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    if os.environ.get(PRIVATE) != THROWAWAY:
        _private_etc()
    for folder in EMPTY:
        os.makedirs(folder, exist_ok=True)
    _isolated.append(True)


def _private_etc() -> None:
    # Tests write to /etc (rt_tables.d, our settings, Ganeti's scripts): let them, in a copy.
    copy = tempfile.mkdtemp(prefix="netcommon-etc-")
    syscalls.mount("tmpfs", copy, "tmpfs", options="mode=0755")
    shutil.copytree("/etc", copy, symlinks=True, dirs_exist_ok=True, ignore=_unneeded)
    syscalls.mount(copy, "/etc", flags=syscalls.MS_BIND)
    syscalls.umount(copy)
    os.rmdir(copy)


def _unneeded(folder: str, names: list[str]) -> set[str]:
    """What of /etc no test looks at, which is most of the bytes, and what cannot be copied (sockets)."""
    if folder == "/etc":
        return set(names) & UNNEEDED
    paths = {name: os.path.join(folder, name) for name in names}
    return {name for name, path in paths.items() if not (os.path.islink(path) or os.path.isdir(path) or os.path.isfile(path))}


def run(*argv: str, check: bool = True, timeout: float = 60, stdin: str | None = None) -> str:
    """Runs a program in the calling thread's namespaces and returns its output, both streams. Raises AssertionError if it fails."""
    done = subprocess.run(argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def ask(*argv: str) -> Any:
    """``run`` for a program that answers in JSON; [] where it says nothing."""
    return json.loads(run(*argv) or "[]")


def wait_until(condition: Callable[[], object], seconds: float = 5, what: str = "") -> None:
    """Polls ``condition`` until it is true. Raises AssertionError after ``seconds`` (ten times that in the virtual machine)."""
    limit = time.monotonic() + seconds * slowness()
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {seconds} s: {what or getattr(condition, '__name__', 'condition')}")
        time.sleep(0.01)


def routed_here(device: str, address: str) -> None:
    """Waits, where ``device`` is up, until what is sent to its ``address`` ("2001:db8::1/64") is taken in.

    The kernel adds the route of an address of IPv6 in a worker of its own, a moment later than it has answered (addrconf_dad_work).
    """
    if ":" in address and "LOWER_UP" in run("ip", "-br", "link", "show", "dev", device):
        # in table local, or where the device is in a VRF, in that one's
        local = ("ip", "-6", "route", "show", "table", "all", "type", "local", "dev", device, address.partition("/")[0])
        wait_until(lambda: run(*local), 5, f"{address} on {device}")


def waited(pid: int) -> float:
    """Give the seconds for which a process was ready to run and others had the processors (sched-stats.rst, schedstat of its tasks)."""
    return sum(int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def slowness() -> float:
    """How many times slower than usual time limits of tests have to be: 10 in the emulated machine."""
    return float(os.environ.get("NETCOMMON_TESTS_SLOWNESS", "1"))


class Namespace:
    """A network namespace, held by a descriptor. Made empty but for ``lo``, which is up; addresses need no duplicate detection."""

    def __init__(self) -> None:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.unshare(syscalls.CLONE_NEWNET)
            self.descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            for name in ("all", "default"):
                sysctl(f"net/ipv6/conf/{name}/accept_dad", "0")
            run("ip", "link", "set", "lo", "up")
        finally:
            syscalls.setns(before, syscalls.CLONE_NEWNET)
            os.close(before)

    @property
    def path(self) -> str:
        """A path that ``ip link set ... netns`` and nsenter take, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[Namespace]:
        """Moves the calling thread into the namespace and back."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.setns(self.descriptor, syscalls.CLONE_NEWNET)
        try:
            yield self
        finally:
            syscalls.setns(before, syscalls.CLONE_NEWNET)
            os.close(before)

    def run(self, *argv: str, check: bool = True) -> str:
        """``run`` inside the namespace."""
        with self.entered():
            return run(*argv, check=check)

    def close(self) -> None:
        """Lets the namespace go: with no process in it, its devices die."""
        os.close(self.descriptor)


def sysctl(path: str, value: str | None = None) -> str:
    """Reads, or writes, /proc/sys/``path`` (with slashes) of the calling thread's namespace."""
    name = "/proc/sys/" + path
    if value is not None:
        with open(name, "w") as file:
            file.write(value)
    with open(name) as file:
        return file.read().strip()


@contextlib.contextmanager
def mounted_over(target: str, kind: str, options: str = "") -> Iterator[None]:
    """A new filesystem over ``target`` for as long as it lasts."""
    syscalls.mount(kind, target, kind, options=options)
    try:
        yield
    finally:
        syscalls.umount(target)
