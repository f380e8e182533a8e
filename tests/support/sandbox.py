"""Run a command in the sandbox of a unit's file where there is no systemd: python -m tests.support.sandbox UNIT WRITABLE,... COMMAND ...

What the unit says of capabilities, system calls, address families, the file system and homes is done, by libseccomp and by mounts in the
mount namespace that it is called in; it ends with ``exec``. Of the rest (kernel tunables, clock, host name) the system calls and the
missing capabilities say the same.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.syscalls import MS_BIND, MS_RDONLY, MS_REMOUNT, mount

EPERM = 1
ALLOWED, ERRNO = 0x7FFF0000, 0x00050000  #: <seccomp.h>: SCMP_ACT_ALLOW, SCMP_ACT_ERRNO
EQUAL = 4  #: SCMP_CMP_EQ
NO_NEW_PRIVILEGES = 38  #: <linux/prctl.h>
HOMES = ("/home", "/root")
APART = ("/proc", "/sys", "/dev")  #: ProtectSystem= leaves them to other settings


class _Compared(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def settings(unit: Path) -> dict[str, list[str]]:
    """Give each value of each name in a unit's file."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def members(name: str) -> Iterator[str]:
    """Give the system calls of a set of systemd's, "@system-service"; a call itself is one."""
    if not name.startswith("@"):
        yield name
        return
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines()[1:]:
        if (word := line.strip()) and not word.startswith("#"):
            yield from members(word)


def calls(said: Sequence[str]) -> set[str]:
    """Give the system calls that SystemCallFilter= allows: those of a list, but for those of lists that begin with a tilde."""
    found: set[str] = set()
    for line in said:
        listed = {call for word in line.removeprefix("~").split() for call in members(word)}
        found = found - listed if line.startswith("~") else found | listed
    return found | set(members("@default"))


def mounts(writable: Sequence[str], said: dict[str, list[str]]) -> None:
    """Let the file system be as ProtectSystem=strict and ProtectHome=yes have it."""
    assert said["ProtectSystem"] == ["strict"] and said["ProtectHome"] == ["yes"]
    for each in writable:
        mount(each, each, flags=MS_BIND)
    places = [line.split()[1].encode().decode("unicode_escape") for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in dict.fromkeys(places):
        if not place.startswith(APART) and place not in writable:
            mount("none", place, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    for home in filter(os.path.isdir, HOMES):
        mount("tmpfs", home, "tmpfs", MS_RDONLY, "mode=0")


def filtered(said: dict[str, list[str]]) -> None:
    """Let nothing but the unit's system calls and families of addresses be there, for this process and those that it becomes."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ERRNO | EPERM)))
    for name in sorted(calls(said["SystemCallFilter"]) - {"socket"}):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # one of another architecture
            assert library.seccomp_rule_add(context, ctypes.c_uint32(ALLOWED), number, 0) == 0, name
    families = [getattr(socket, each) for each in said["RestrictAddressFamilies"][0].split()]
    number = library.seccomp_syscall_resolve_name(b"socket")
    for family in families:
        same = (_Compared * 1)(_Compared(0, EQUAL, family, 0))
        assert library.seccomp_rule_add_array(context, ctypes.c_uint32(ALLOWED), number, 1, same) == 0
    assert ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert library.seccomp_load(context) == 0


def main(unit: Path, writable: Sequence[str], command: Sequence[str]) -> None:
    said = settings(unit)
    if writable:
        mounts(writable, said)
        (bounding,) = said["CapabilityBoundingSet"]
        assert bounding == "" and said["NoNewPrivileges"] == ["yes"]
        again = [sys.executable, "-m", "tests.support.sandbox", str(unit), "", *command]
        os.execvp("setpriv", ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs", *again])
    filtered(said)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [each for each in sys.argv[2].split(",") if each], sys.argv[3:])
