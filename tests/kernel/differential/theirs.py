"""Ganeti 3.0.2's own kvm-ifup, from Debian's package ganeti-3.0: unpacked in the cache, laid over /usr/lib in a mount namespace."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support import syscalls
from tests.support.bootstrap import cache
from tests.support.netns import isolate
from tests.support.rundoor import BASE, Outcome, execute

PACKAGE = "ganeti-3.0"
MS_RDONLY = 1  #: <linux/mount.h>
#: Where the package has what Debian's ganeti shows as /usr/lib/ganeti.
INSIDE = "usr/lib/ganeti/3.0/usr/lib"
SCRIPT = "/usr/lib/ganeti/kvm-ifup"
#: What it runs for instance communication NICs; Debian has it there.
COMMUNICATION = Path("/etc/ganeti/kvm-ifup-os")
DNSMASQ_PID = Path("/run/ganeti/dnsmasq.pid")


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Ganeti's folder in its place, read-only, for as long as it lasts. Raises AssertionError where tests/setup has not fetched it."""
    tree = cache() / "packages" / PACKAGE / INSIDE
    assert (tree / "ganeti/net-common").exists(), f"{tree} is not there: tests/setup kernel fetches it"
    isolate()
    assert not Path(SCRIPT).exists(), "this machine has Ganeti itself"
    # its script sources /usr/lib/ganeti/net-common by this very path, and nothing may be made in the machine's /usr/lib
    syscalls.mount("overlay", "/usr/lib", "overlay", MS_RDONLY, f"lowerdir={tree}:/usr/lib")
    COMMUNICATION.symlink_to("/usr/lib/ganeti/kvm-ifup-os")
    try:
        yield
    finally:
        COMMUNICATION.unlink()
        syscalls.umount("/usr/lib")


def end_dnsmasq() -> None:
    """What its script for communication NICs never does."""
    if DNSMASQ_PID.exists():
        os.kill(int(DNSMASQ_PID.read_text()), signal.SIGKILL)
        DNSMASQ_PID.unlink()


def kvm_ifup(variables: dict[str, str], timeout: float = 300) -> Outcome:
    """Runs it as Ganeti does."""
    return execute([SCRIPT, f"b'{variables['INTERFACE']}'"], {**BASE, **variables}, timeout)
