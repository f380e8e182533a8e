"""Hooks that are killed on the real kernel: which doors, at which moments, and from which state."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import NamedTuple

from tests.support import strace
from tests.support.cases import CASES, Host
from tests.support.netns import slowness, wait_until
from tests.support.sample import FULL


class Door(NamedTuple):
    """What is killed, its arguments, and whether the tap has gone before it is called."""

    program: str
    arguments: tuple[str, ...]
    gone: bool = False

    def before(self, host: Host) -> None:
        """The state in which it is called."""
        host.plug()
        if self.program == "kvm-ifdown":
            host.up()
        if self.gone:
            host.unplug()

    def killed(self, host: Host, moment: strace.Moment) -> str:
        """Kills it at the moment; why that did not work, "" if it did. What it had started has ended by then."""
        failed = self.shot(host, moment)
        wait_until(lambda: not strace.orphans(), 20, "what the killed hook had started")
        return failed

    def shot(self, host: Host, moment: strace.Moment) -> str:
        """The same, without waiting for anything."""
        status = strace.killed(self.program, host.nic, self.arguments, moment)
        return "" if status == -signal.SIGKILL else f"it was not killed, but ended with {status}"


DOORS = {
    "up": Door("kvm-ifup", ("tap0",)),
    "down": Door("kvm-ifdown", ("tap0", "hot-remove")),
    "down, tap gone": Door("kvm-ifdown", ("tap0",), gone=True),
}


def moments(host: Host, case: str, name: str) -> Sequence[strace.Moment]:
    """The moments of a door in a case: all; in a default run one, at another share of the way in each case and door."""
    door = DOORS[name]
    door.before(host)
    found = strace.moments(door.program, host.nic, door.arguments)
    host.plug()
    host.down()
    assert len(found) > 5
    if FULL and slowness() == 1:  # in the virtual machine a hook takes seconds
        return found
    turn = list(CASES).index(case) * len(DOORS) + list(DOORS).index(name)
    share = (turn * 7 % 24 + 0.5) / 24  # 7 and 24 have no common divisor: each of the 24 has its own
    return [found[int(share * len(found))]]
