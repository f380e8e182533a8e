"""A registry's service as a process of its own, on a file, which can be killed and started again; and a second node beside a test's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from netregistry.client import SOCKET, Client
from tests.support import syscalls
from tests.support.bootstrap import VENV
from tests.support.netns import wait_until
from tests.support.node import Node, fresh

T = TypeVar("T")


class Registry:
    """A registry below a folder. Its socket is the folder's; ``here`` puts a link to it where the calling thread's node looks for it.

    ``store``: the etcd that keeps it, where it is there already; ``port``: of the loopback's, on which others get in by TLS.
    """

    def __init__(self, folder: Path, store: str = "", port: int = 0) -> None:
        self._root, self.port = folder, port
        self.socket = folder / "run/netregistry/socket"
        self.socket.parent.mkdir(mode=0o700, parents=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.kept_by(store)
        if not store:
            self.command("init")

    @property
    def file(self) -> Path:
        """Give where it is, unless an etcd keeps it."""
        return self._root / "var/lib/netregistry/registry.sqlite"

    @property
    def authority(self) -> Path:
        """Give where the keys of authorities are."""
        return self.file.parent / "authority"

    @property
    def pid(self) -> int:
        """Give the process that serves."""
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def kept_by(self, store: str = "") -> None:
        """Let the settings name an etcd, or none."""
        config = self._root / "etc/netcommon/config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        lines = [f'listen = ["127.0.0.1:{self.port}", "[::1]:{self.port}"]\nnames = ["localhost"]'] if self.port else []
        lines += [f'store = "{store}"'] if store else []
        config.write_text("\n".join(["[registry]", *lines, ""]))

    def token(self, *words: str) -> str:
        """Make a token."""
        return str(json.loads(self.command("token", "create", *words, "--json").stdout)["value"]["token"])

    def command(self, *words: str, check: bool = True, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command of the registry's."""
        return subprocess.run(self.argv(*words), check=check, capture_output=True, text=True, timeout=seconds)

    def argv(self, *words: str) -> list[str]:
        return [str(VENV / "bin/netcommon"), "--root", str(self._root), "registry", *words]

    def start(self, seconds: float = 30) -> None:
        """Start the service, and wait until it answers: when it has read all that there is."""
        with open(self._root / "log", "ab") as log:
            self._process = subprocess.Popen(self.argv("serve"), stdout=log, stderr=log)
        try:
            wait_until(self._answers, seconds, "the registry answers")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log()[-2000:]}") from None

    def _answers(self) -> bool:
        with contextlib.suppress(Exception), self.client() as asked:
            return bool(asked.get("").body)
        return False

    def kill(self) -> None:
        """End it without a warning, if it runs."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)
            self._process = None

    def ended(self, status: int = 0) -> None:
        """Wait until it has ended as it was told to, or by itself with another exit status."""
        if self._process is not None:
            assert self._process.wait(30) == status
            self._process = None

    def log(self) -> str:
        """Give what its services have logged so far."""
        return (self._root / "log").read_text()

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def client(self, role: str = "") -> Client:
        return Client(str(self.socket), role, 10.0)

    def here(self) -> None:
        """Let programs of the calling thread's node find it where it usually is."""
        Path(SOCKET).parent.mkdir(parents=True, exist_ok=True)
        Path(SOCKET).symlink_to(self.socket)


class Elsewhere:
    """Another node, in a thread with namespaces of its own: ``elsewhere(f, x)`` does f(x) there."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "elsewhere")
        self._stack = contextlib.ExitStack()
        self.node: Node = self(self._begin)

    def __call__(self, act: Callable[..., T], *given: object) -> T:
        return self._thread.submit(act, *given).result()

    def _begin(self) -> Node:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        return self._stack.enter_context(fresh())

    def close(self) -> None:
        self(self._stack.close)
        self._thread.shutdown()


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    """See Elsewhere."""
    made = Elsewhere()
    try:
        yield made
    finally:
        made.close()
