"""A hook's call as its launcher (hooks/launcher) hands it over, and which calls it gets back to do itself.

One message of a SOCK_SEQPACKET socket (unix(7)), parts divided by NUL: PROTOCOL, the name under which the hook was called, its process id
and its parent's, the number of arguments, the arguments, and the environment as it is in /proc/PID/environ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from netagent.hooks import site_scripts
from netcommon.doors import kvm
from netcommon.doors.call import OVERTIME
from netcommon.options.model import COMMUNICATION
from netcommon.scripts.site import GUARD
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import SettingsInvalid
from runtime.paths import Paths

if TYPE_CHECKING:
    from netcommon.doors.call import Body

PROTOCOL = "netcommon-1"

#: A call is smaller (bytes), and so is an answer.
LARGEST = 1 << 17
LONGEST_ANSWER = 1 << 16

#: A settings file that was changed so shortly ago may be changed again within one tick of its clock (seconds).
SETTLED = 2.0

#: By the name under which a hook was called: the door, and what it does.
DOORS: Mapping[str, tuple[str, Body]] = {
    "kvm-ifup": ("kvm-ifup", kvm.ifup),
    "kvm-ifdown": ("kvm-ifdown", kvm.ifdown),
    **{name: ("kvm-nic-setup", kvm.nic_setup_as(name)) for name in ("kvm-nic-setup", "up", "down")},
}

#: Why a call is handed back. BUSY and CLOSING are about the agent; SETTINGS: they are broken, which the hook says in its own way.
BUSY, STRANGER, MALFORMED, SETTINGS, GUARDED, SCRIPTS, COMMUNICATING, FOLDERS = (
    *("busy", "stranger", "malformed", "settings", "within-script", "scripts", "communication", "folders"),
)


class Given(NamedTuple):
    """One call."""

    name: str  #: under which the hook was called: one of DOORS
    pid: int
    parent: int  #: process id
    argv: Sequence[str]  #: without the name
    environ: Mapping[str, str]  #: lone surrogates stand for bytes that are no UTF-8, as in os.environ


def read(data: bytes) -> Given | None:
    """The call of a message, None where it is none that we know.

    As in os.environ, of two variables of one name the first counts, and what has no "=" is none.
    """
    words = data.decode("utf-8", "surrogateescape").split("\0")
    if len(words) < 5 or words[0] != PROTOCOL or words[1] not in DOORS or not all(_number(word) for word in words[2:5]):
        return None
    end = 5 + int(words[4])
    if len(words) < end or len(data) >= LARGEST:
        return None
    environ: dict[str, str] = {}
    for word in words[end:]:
        name, equals, value = word.partition("=")
        if equals:
            environ.setdefault(name, value)
    return Given(words[1], int(words[2]), int(words[3]), words[5:end], environ)


def _number(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) < 10


def handed_back(given: Given, settings: Settings, paths: Paths) -> str:
    """Why the hook shall do it itself, "" where we do.

    The site's scripts run in the hook's own process, with its environment, limits and place among the processes: so where there is one
    that any KVM NIC may have, the whole job is the hook's. So is a NIC of instance communication, whose DHCP server must not be a child
    of ours, and a call that comes from a script of the site.
    """
    if GUARD in given.environ:
        return GUARDED
    named = given.environ.get("INTERFACE", ""), *(word.removeprefix("b'") for word in given.argv[:1])
    if any(name.startswith(COMMUNICATION) for name in named):
        return COMMUNICATING
    return SCRIPTS if site_scripts.possible(paths, settings) else ""


def unwritable(settings: Settings) -> list[str]:
    """The folders of others in which we put files and cannot, such as for the sandbox of our unit: hooks have none."""
    return [folder for folder in settings.folders if os.path.isdir(folder) and not os.access(folder, os.W_OK)]


def limit(settings: Settings) -> int:
    """How long a hook waits for the end of its call (seconds): a little longer than it would work itself."""
    return int(settings.hook_timeout + OVERTIME) + 2


class Latest:
    """The settings as a hook would read them now: read again when the file is another, or was changed. For every thread."""

    def __init__(self, paths: Paths, wall: Callable[[], float]) -> None:
        self._paths, self._wall = paths, wall
        self._seen: tuple[tuple[int, ...], Settings | None] = ((-1,), None)

    def get(self) -> tuple[Settings | None, str]:
        """They, None where the file is broken; and why calls under them are handed back, "" if they need not be."""
        changed = 0.0
        try:
            status = os.stat(self._paths.config)
            changed = status.st_ctime
            mark: tuple[int, ...] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError as error:
            mark = (error.errno or 0,)
        seen, settings = self._seen
        if mark != seen:
            try:
                found = load(self._paths)
                settings = settings if found == settings else found  # nothing is opened anew for the same
            except SettingsInvalid:
                settings = None
            known = self._wall() - changed > SETTLED and (settings is not None or len(mark) > 1)  # what is not there may be behind a link
            self._seen = mark if known else (-1,), settings
        if settings is None:
            return None, SETTINGS
        return settings, FOLDERS if unwritable(settings) else ""  # folders come and go while the file stays
