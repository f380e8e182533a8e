"""Xenstore by its commands, xenstore-read and xenstore-write: its protocol has no other stable client.

Found on the caller's PATH; each has a time limit, since a xenstored that hangs answers nobody.
"""

from __future__ import annotations

import os

from runtime.errors import HostRefused, TryAgain, escaped
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netcommon.doors.call import Door

#: Where the commands are if the caller's PATH does not say.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

#: The longest answer that is read (bytes): what one message of xenstore's protocol holds (XENSTORE_PAYLOAD_MAX).
LONGEST = 4096

#: What a command gets at least when the hook's time is nearly over: the failure itself must still be told (seconds).
LEAST = 1.0


class Xenstore:
    """Xenstore as the domain that we run in sees it. A path without a leading "/" begins at /local/domain/<our own id>."""

    def __init__(self, door: Door, environ: Mapping[str, str]) -> None:
        self._door = door
        self._environment = {os.fsencode(name): os.fsencode(value) for name, value in {"PATH": PATH, **environ}.items()}

    def read(self, path: str) -> str:
        """The value at ``path``. Raises HostRefused where there is none, or TryAgain."""
        status, said = self._run("xenstore-read", path)
        if status:
            raise HostRefused(f"xenstore-read {path} ended with status {status}" + (f": {escaped(said)}" if said else ""))
        return said

    def value(self, path: str) -> str:
        """The value at ``path``, "" where there is none, as vif-common.sh has it. Raises HostRefused or TryAgain."""
        status, said = self._run("xenstore-read", path)
        return "" if status else said

    def write(self, *pairs: str) -> None:
        """Writes path, value, path, value, ... in one transaction. Raises HostRefused or TryAgain."""
        status, said = self._run("xenstore-write", *pairs)
        if status:
            raise HostRefused(f"xenstore-write {pairs[0]} ended with status {status}" + (f": {escaped(said)}" if said else ""))

    def _run(self, *argv: str) -> tuple[int, str]:
        """Exit status and output. Raises HostRefused where the command cannot be run, and TryAgain where it does not end in time."""
        from netcommon.process import run as runner  # only Xen nodes pay for it

        now = self._door.clock.now()
        left = self._door.started + self._door.settings.hook_timeout - now
        seconds = min(self._door.settings.service_timeout, max(left, LEAST))
        done = runner.run(argv, self._environment, seconds, LONGEST, self._door.clock.now)
        if done.timed_out:
            raise TryAgain(f"{argv[0]} {argv[1]} {done.text}")
        if done.status is None:
            raise HostRefused(f"{argv[0]} {argv[1]} {done.text}")
        return done.status, done.output.decode("utf-8", "surrogateescape").strip()
