"""An address that is pinged from a node."""

from __future__ import annotations

import re
import signal
import subprocess

from tests.lab.nodes import Node, until

#: What ping -D prints of an answer: when it came.
ANSWER = re.compile(r"^\[([\d.]+)\] \d+ bytes", re.M)


class Ping:
    """ping(8), twenty times a second, until ``close``."""

    def __init__(self, node: Node, address: str, output: str) -> None:
        """``output``: the file for what it prints."""
        self._node, self._output = node, output
        # entering the node forks: what we start is not ping itself, whose number in the node this shell says before it becomes it
        command = node.command("sh", "-c", 'echo $$ && exec ping -i 0.05 -D -O "$1"', "-", address)
        with open(output, "wb") as file:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        until("ping runs", 20, lambda: "\n" in self._text())
        self._pid = int(self._text().partition("\n")[0])

    def answers(self) -> list[float]:
        """When each of the answers that there are came (seconds, as time.time)."""
        return [float(found) for found in ANSWER.findall(self._text())]

    def close(self) -> None:
        """Raises Failed where it has ended before."""
        self._node.signal(signal.SIGINT, self._pid)
        self._process.wait(10)

    def _text(self) -> str:
        with open(self._output, encoding="utf-8") as file:
            return file.read()
