"""The agent's socket for hooks: they hand their calls over, and get exit status and standard error back (docs/agent.md).

Threads accept by themselves, one more than are at work, so nothing stands between a call and who does it, and when all are at work there
still is one that says so. What is open stays open from call to call (netagent.hooks.session).

A call is begun three steps late, so that it is never done twice: the hook says what it wants, we that we shall, the hook that we may.
Until the last the hook can still do it itself, and then we do not; after it, it does so only if the connection ends: then we are dead.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING

from netagent.dispatcher import HANGS, tell
from netagent.hooks.protocol import BUSY, LARGEST, LONGEST_ANSWER, MALFORMED, STRANGER, Given, Latest, handed_back, limit, read
from netagent.hooks.session import Kept, Warm
from netagent.observe.hook_reports import WARM, bound, called
from netagent.socket_server import CREDENTIALS, Accepting
from netagent.state import State
from netcommon.doors.agent_report import SO_NETNS_COOKIE
from netcommon.settings.model import Settings
from runtime.errors import UNAVAILABLE
from runtime.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.lifecycle.context import Node

#: The socket's name in the folder of the agents, before the number of the network namespace: what a hook can find out without a library.
SOCKET = "hooks-"

#: Calls at work at once; further ones are handed back, and done by the hooks.
MOST = 16

#: What so many calls had open is kept for the next; of more it is closed.
SPARE = 4

#: How long we wait for a hook's next message, and for room for ours (seconds).
PATIENCE = 1

TIMEVAL = Struct("@ll")
COOKIE = Struct("=Q")


class Serving:
    """Serves hooks from ``configure`` until ``close``. Every method but the threads' own is for the main thread."""

    def __init__(self, state: State, open_node: Callable[[Settings], Node]) -> None:
        self._state, self._open_node = state, open_node
        self._log = state.make_log()
        self._now = state.clock.now
        self._latest = Latest(state.paths, state.clock.wall)
        self._lock = threading.Lock()
        self._folder: Folder | None = None
        self._begun = False  #: ``configure`` was called: there should be a socket, if the settings want one
        self._name = ""
        self._threads: list[Accepting] = []
        self._working: dict[int, tuple[str, float]] = {}  #: by thread: what it does, "" while that is not begun, and since when
        self._kept: list[Kept] = []  #: those that no call uses just now, the last used at the end
        self._served = 0
        self._handed_back: Counter[str] = Counter()

    # -- the main thread

    def configure(self, settings: Settings) -> None:
        """Begins or ends, as the settings have it. Raises HostRefused."""
        self._begun = True
        if settings.agent_hook_socket and self._folder is None:
            paths = self._state.paths
            self._folder = Folder.make(f"{paths.state}/agent")
            self._name = f"{SOCKET}{os.stat(f'{paths.proc}/self/ns/net').st_ino}"
            listener = bound(self._folder, self._name, socket.SOCK_SEQPACKET)
            listener.listen(MOST * 4)
            with self._lock:
                self._threads = [Accepting(listener, "hooks 0", self._accepted)]
        elif not settings.agent_hook_socket:
            self.close(PATIENCE)

    def again(self, settings: Settings) -> None:
        """Make the socket anew that somebody has removed; what is at work goes on. Raises HostRefused."""
        if self._begun and settings.agent_hook_socket and (self._folder is None or not os.path.exists(f"{self._folder.path}/{self._name}")):
            self.close(0)
            self.configure(settings)
            self._log.warning("the socket for hooks was not there: it was made again")

    def close(self, seconds: float) -> None:
        """Accepts no more calls, and waits as long for those at work; what is cut off then, the hooks do again."""
        if self._folder is None:
            return
        self._folder.remove(self._name)
        self._folder.close()
        self._folder = None
        with self._lock:
            threads, self._threads = self._threads, []
        end = self._now() + seconds
        for thread in threads:
            thread.close(max(end - self._now(), 0.0))
        with self._lock:
            kept, self._kept = self._kept, []
        for one in kept:
            one.end()

    def status(self) -> Mapping[str, object]:
        """Figures, for any thread."""
        with self._lock:
            back = ", ".join(f"{number} {why}" for why, number in sorted(self._handed_back.items()))
            begun = sum(what != "" for what, _since in self._working.values())
            return {"calls served": self._served, "calls at work": begun, "calls handed back": back or 0}

    def hanging(self) -> str:
        """A call that will not end any more, "" if there is none."""
        with self._lock:
            since = self._now() - self._state.settings.hook_timeout - HANGS
            late = [what for what, begun in self._working.values() if begun < since]
        return f"at work without end: {', '.join(late)}" if late else ""

    # -- the threads

    def _accepted(self, hook: socket.socket) -> None:
        me = threading.get_ident()
        with self._lock:
            full = len(self._working) >= MOST
            if not full:
                self._working[me] = ("", self._now())
        if full:
            self._hand_back(BUSY)
            return
        try:
            self._one_more()
            self._serve(hook)
        except OSError:
            raise  # the hook has gone
        except Exception as error:  # the thread is for the next call; the hook sees that the connection ends
            tell(self._log, "a hook's call", error)
        finally:
            with self._lock:
                del self._working[me]

    def _one_more(self) -> None:
        """A thread more where nobody is left to accept. If there cannot be one now, the next call asks again."""
        with self._lock:
            if not self._threads or len(self._working) < len(self._threads):
                return
            try:
                self._threads.append(Accepting(self._threads[0].listener.dup(), f"hooks {len(self._threads)}", self._accepted))
            except OSError as error:
                tell(self._log, "one more thread for hooks", error)

    def _serve(self, hook: socket.socket) -> None:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            hook.setsockopt(socket.SOL_SOCKET, option, TIMEVAL.pack(PATIENCE, 0))
        given = read(hook.recv(LARGEST))
        settings, why = self._latest.get()
        if given is None or settings is None or why:
            self._hand_back(MALFORMED if given is None else why)
            return
        why = self._stranger(hook, given) or handed_back(given, settings, self._state.paths)
        if why:
            self._hand_back(why)
            return
        with self._lock:
            kept = self._kept.pop() if self._kept else None
        kept = kept or Kept(self._state.paths, self._state.clock, self._open_node)
        try:
            hook.send(b"ready %d" % limit(settings))
            if hook.recv(16) == b"go":
                self._do(hook, given, settings, kept)
        finally:
            with self._lock:
                spare = len(self._kept) < SPARE and bool(self._threads)
                if spare:
                    self._kept.append(kept)
            if not spare:
                kept.end()

    def _do(self, hook: socket.socket, given: Given, settings: Settings, kept: Kept) -> None:
        """From here on the hook waits for the verdict."""
        with self._lock:
            self._working[threading.get_ident()] = (f"{given.name} of process {given.pid}", self._now())
        door = Warm(given, settings, kept)
        status, text = UNAVAILABLE, ""
        try:
            status, text = door.answer()
        finally:
            with self._lock:
                self._served += 1
            try:
                hook.send(f"{status}\n{text}".encode("utf-8", "backslashreplace")[: LONGEST_ANSWER - 1])
            finally:
                called(self._state.metrics, door.name, door.mode, status, self._now() - door.started, WARM)

    def _stranger(self, hook: socket.socket, given: Given) -> str:
        """STRANGER for a caller who is not root, or not in our network namespace or our namespace of processes."""
        pid, user, _group = CREDENTIALS.unpack(hook.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        ours = user in (0, os.geteuid()) and pid == given.pid
        return "" if ours and self._netns(hook, pid) == self._state.identity.netns else STRANGER

    def _netns(self, hook: socket.socket, pid: int) -> int:
        """The network namespace of a hook: an accepted socket is in the one of who has connected (unix(7) does not say; af_unix.c)."""
        try:
            return int(COOKIE.unpack(hook.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, COOKIE.size))[0])
        except OSError:  # before Linux 5.14 it is known by its number
            return os.stat(f"{self._state.paths.proc}/{pid}/ns/net").st_ino

    def _hand_back(self, why: str) -> None:
        with self._lock:
            self._handed_back[why] += 1
        self._state.metrics.count("netcommon_hook_handed_back_total", reason=why)
