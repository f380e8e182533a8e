"""demo: real guests on real networks, joined and taken out again by this project's hooks, in about half a minute.

One command on a fresh Debian 12, as root, from a clone. It installs what it needs (nothing is started), then works in mount,
network, process, IPC and host name namespaces of its own: when it ends, however it ends, they and all in them are gone, and
nothing of the machine's network, /run, /dev or /etc was touched. Exit status 0: every ping was answered, and the node's state
after the last guest equals its state before the first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSIDE = "NETCOMMON_DEMO_INSIDE"
NAMESPACES = ("--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc", "--propagation", "unchanged")


def guests_image() -> Iterable[Path]:
    """Give the files that guests boot. Raises SetupFailed."""
    from examples.demolib.image import image

    return image()


def enter(script: str = "demo", *words: str, purpose: str = "demo", files: Callable[[], Iterable[Path]] = guests_image) -> None:
    """Sets up, and runs a script of examples/ in namespaces of its own, which end with its first process. Does not return.

    ``purpose``: what the machine is set up for; ``files``: gives the files that the script is told of there, behind ``words``.
    """
    from tests.support.bootstrap import SetupFailed, setup

    if os.geteuid() != 0:
        sys.exit(f"{script}: needs root, for network namespaces and taps of its own")
    try:
        setup([purpose])
        built = files()
    except SetupFailed as error:
        sys.exit(f"{script}: {error}")
    # What the caller's environment holds must not decide what happens inside.
    kept = {name: os.environ[name] for name in ("TERM", "NO_COLOR") if name in os.environ}
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", INSIDE: "1", **kept}
    inside = ["unshare", *NAMESPACES, str(ROOT / "examples" / script), *words, *map(str, built)]
    children: list[subprocess.Popen[bytes]] = []
    ended: list[int] = []

    def end(number: int, _frame: object) -> None:
        ended.append(number)
        for child in children:
            child.kill()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    # Whatever is left in it by who is killed goes with it.
    with tempfile.TemporaryDirectory(prefix=f"{script}-") as folder:
        if not ended:
            # unshare(1) blocks SIGTERM, so it is ended for it; and it ends with us if we are killed.
            children.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *inside], env={**clean, "TMPDIR": folder}))
            if ended:
                children[0].kill()
            status = children[0].wait()
        else:
            status = -ended[0]
    sys.exit(status if status >= 0 else 128 - status)


def main(arguments: list[str]) -> int:
    """The exit status; within the namespaces, ``arguments`` are the files of the guests' image."""
    if INSIDE not in os.environ or os.getpid() != 1:
        if arguments and set(arguments) <= {"-h", "--help"}:
            print(__doc__)
            return 0
        if arguments:
            print(__doc__, file=sys.stderr)
            return 64
        enter()
    from examples.demolib import story
    from examples.demolib.image import Image

    return story.main(ROOT, Image(*map(Path, arguments)))
