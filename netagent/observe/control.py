"""The agent's socket for questions: "status", "hooks" and "events SINCE" are answered with one JSON document each. Root alone may ask.

A thread of its own answers, so that an agent whose loop hangs still says so.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from netagent.observe.hook_reports import bound
from netagent.socket_server import Accepting, user_of
from netcommon.doors.agent_report import folder
from runtime.errors import HostRefused, TryAgain, escaped
from runtime.folder import Folder

#: The socket in the agent's folder.
SOCKET = "control"

#: Who has asked has so long to send the question and to take the answer (seconds).
PATIENCE = 2.0

#: An answer is shorter (bytes).
LARGEST = 16 << 20


#: What makes the answer to a question, given what follows its first word.
Answer = Callable[[str], Mapping[str, object]]
NONE: Mapping[str, Answer] = {}


class Control:
    """Answers until ``close``. ``status`` makes that document, ``more`` those of other questions, in the thread that answers."""

    def __init__(self, within: Folder, status: Callable[[], Mapping[str, object]], more: Mapping[str, Answer] = NONE) -> None:
        self._within = within
        self._answers: dict[str, Answer] = {**more, "status": lambda _rest: status()}
        self._accepting: Accepting | None = None

    def start(self) -> None:
        """Raises HostRefused."""
        listener = bound(self._within, SOCKET, socket.SOCK_STREAM)
        listener.listen(8)
        self._accepting = Accepting(listener, "control", self._answer)

    def close(self) -> None:
        """Ends the thread, and takes the socket away."""
        if self._accepting is not None:
            self._within.remove(SOCKET)
            self._accepting.close(2 * PATIENCE)
            self._accepting = None

    def _answer(self, asking: socket.socket) -> None:
        asking.settimeout(PATIENCE)
        if user_of(asking) not in (0, os.geteuid()):
            return
        question = asking.recv(64).decode("ascii", "replace").strip()
        word, _, rest = question.partition(" ")
        try:
            make = self._answers.get(word)
            data = json.dumps({"error": f"no such question: {escaped(question)}"} if make is None else make(rest))
        except Exception as error:  # whoever asks is told, and the next one gets an answer
            data = json.dumps({"error": f"{type(error).__name__}: {error}"})
        asking.sendall(data.encode("ascii") + b"\n")


def ask(state: str, netns: int, question: str = "status", seconds: float = PATIENCE * 2) -> dict[str, Any]:
    """What the agent of a network namespace answers. ``state`` is the state directory.

    Raises HostRefused where no agent runs, or it does not let us; TryAgain where it does not answer within ``seconds`` each way.
    """
    path = f"{folder(state, netns)}/{SOCKET}"
    parts = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(seconds)
        try:
            asking.connect(path)
            asking.sendall(question.encode("ascii") + b"\n")
            while part := asking.recv(1 << 16):
                parts.append(part)
                if sum(map(len, parts)) > LARGEST:
                    raise HostRefused(f"the agent's answer ({path}) is larger than {LARGEST} bytes")
        except (FileNotFoundError, ConnectionRefusedError):
            raise HostRefused("no agent runs in this network namespace") from None
        except (TimeoutError, BlockingIOError):  # the latter at once, where many wait for an answer already (unix(7))
            raise TryAgain(f"the agent ({path}) does not answer") from None
        except OSError as error:
            raise HostRefused(f"the agent ({path}) cannot be asked: {error.strerror or error}") from None
    try:
        answer = json.loads(b"".join(parts))
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise HostRefused(f"the agent ({path}) gave no answer") from None
    if "error" in answer:
        raise HostRefused(f"the agent says: {escaped(answer['error'])}")
    return answer
