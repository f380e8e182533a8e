"""A headless Chromium, driven by its DevTools protocol over a pipe: what it loads, says and shows; and a port that leads to a UNIX socket.

https://chromedevtools.github.io/devtools-protocol/: JSON, each message ended by a zero byte (--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import queue
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import bootstrap
from tests.support.netns import wait_until

SECONDS = 60.0  #: an emulated or busy machine takes its time
STARTED = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio"),
    *("--disable-features=OptimizationHints,MediaRouter,Translate", "--force-color-profile=srgb", "--hide-scrollbars"),
    *("--remote-debugging-pipe", "--host-resolver-rules=MAP *.example 127.0.0.1"),
)
READS, WRITES = 3, 4  #: the descriptors by which Chromium is spoken to
HIGH = 20  #: descriptors from here on are in nobody's way


class Event(NamedTuple):
    """Something that the browser has said by itself."""

    name: str
    params: dict[str, Any]


class Browser:
    """One browser. ``folder``: for its profile."""

    def __init__(self, folder: Path) -> None:
        program = bootstrap.find("chromium")
        assert program, "tests/setup browser installs it"
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        reads, writes = (fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, HIGH) for each in (to_read, to_write))
        quiet = os.open(folder / "chromium.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        actions = [(os.POSIX_SPAWN_DUP2, old, new) for old, new in ((reads, READS), (writes, WRITES), (quiet, 1), (quiet, 2))]
        argv = [program, *STARTED, f"--user-data-dir={folder / 'profile'}", "about:blank"]
        environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
        self._process = os.posix_spawn(program, argv, environment, file_actions=actions, setpgroup=0)
        for each in (to_read, to_write, reads, writes, quiet):
            os.close(each)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number, self._answers = 0, dict[int, dict[str, Any]]()
        self._events: dict[str, list[Event]] = {}
        threading.Thread(target=self._read, daemon=True, name="browser").start()

    def _read(self) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := os.read(self._from, 1 << 16):
                *messages, rest = (rest + data).split(b"\0")
                for each in messages:
                    self._said.put(json.loads(each))

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Ask for something; give what is answered."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        end = time.monotonic() + SECONDS
        while self._number not in self._answers:
            self.listen(end - time.monotonic())
        answer = self._answers.pop(self._number)
        assert "error" not in answer, (method, answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    def listen(self, seconds: float) -> None:
        """Take in one message. Raises AssertionError where none comes."""
        try:
            message = self._said.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            raise AssertionError("the browser says nothing") from None
        if "id" in message:
            self._answers[message["id"]] = message
        else:
            self._events.setdefault(message.get("sessionId", ""), []).append(Event(message["method"], message.get("params", {})))

    def events(self, session: str) -> list[Event]:
        """Give what was said of one page, up to now."""
        while not self._said.empty():
            self.listen(1.0)
        return self._events.setdefault(session, [])

    def page(self) -> Page:
        """Open a page of its own."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=True, width=1280, height=900)["targetId"]
        return Page(self, target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

    def close(self) -> None:
        """End it, with all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._to)
        os.close(self._from)


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self._session = browser, target, session
        for each in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{each}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Give what was said, of those names."""
        return [each.params for each in self._browser.events(self._session) if each.name in names]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def forget(self) -> None:
        """Forget what was said of it so far: somebody has looked at that."""
        self._browser.events(self._session).clear()

    def go(self, url: str) -> None:
        """Go to an address, and wait until all of it is there."""
        before = len(self.events("Page.loadEventFired"))
        self.call("Page.navigate", url=url)
        end = time.monotonic() + SECONDS
        while len(self.events("Page.loadEventFired")) == before:
            assert time.monotonic() < end, f"{url} is not loaded"
            self._browser.listen(end - time.monotonic())

    def run(self, script: str) -> Any:
        """Give the value of an expression, or of what it promises."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, script: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression is true; give its value."""
        found: list[Any] = []

        def true() -> bool:
            found[:] = [self.run(script)]
            return bool(found[0])

        try:
            wait_until(true, seconds, script)
        except AssertionError as error:
            raise AssertionError(f"{error}; there is {self.text[:2000]}") from None
        return found[0]

    def type(self, text: str) -> None:
        """Press keys, one after the other."""
        for each in text:
            for kind, more in (("keyDown", {"text": each}), ("keyUp", {})):
                self.call("Input.dispatchKeyEvent", type=kind, key=each, **more)

    @property
    def text(self) -> str:
        """Give what somebody reads."""
        return str(self.run("document.body.innerText"))

    @property
    def requests(self) -> list[str]:
        """The addresses of all that was asked for."""
        return [each["request"]["url"] for each in self.events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """Give what went wrong, by the browser's word: errors of scripts, what a policy forbids, dialogs that were opened."""
        errors = [each["entry"]["text"] for each in self.events("Log.entryAdded") if each["entry"]["level"] == "error"]
        errors += [str(each["exceptionDetails"]) for each in self.events("Runtime.exceptionThrown")]
        errors += [str(each["args"]) for each in self.events("Runtime.consoleAPICalled") if each["type"] in ("error", "warning", "assert")]
        return errors + [f"a dialog: {each['message']}" for each in self.events("Page.javascriptDialogOpening")]

    def darken(self) -> None:
        """Be somebody who wants dark pages."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def picture(self, path: Path, height: int = 0) -> None:
        """Write a PNG of what is seen."""
        if height:
            self.call("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser, which is gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="nc-browser-"))
    made = Browser(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


class Forward:
    """A port of this machine's loopback that leads to a UNIX socket, as ssh -L makes one. It can be cut off."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: list[socket.socket] = []
        self.whole = True
        threading.Thread(target=self._accept, daemon=True, name="forward").start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here = self._listening.accept()[0]
                there = socket.socket(socket.AF_UNIX)
                try:
                    if not self.whole:
                        raise OSError
                    there.connect(self._path)
                except OSError:
                    here.close()
                    there.close()
                    continue
                self._open += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()

    def cut(self) -> None:
        """Let nothing through, and end what was open."""
        self.whole = False
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        self._listening.close()
        for each in self._open:
            each.close()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def forwarded(path: str) -> Iterator[Forward]:
    """Let a port lead to a UNIX socket."""
    made = Forward(path)
    try:
        yield made
    finally:
        made.close()
