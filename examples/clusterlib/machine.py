"""A machine of the cluster: mount, network and host name namespaces of its own, which a process holds (examples.clusterlib.node)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from examples.clusterlib.story import SECONDS
from examples.demolib.show import Failed, command, output
from tests.support.netns import run


class Machine:
    """Machine ``number``, with 10.99.1.NUMBER on its bridge br0, whose uplink is on the bridge lan0 of the calling thread's namespace.

    ``inside``: the command that runs another one on it; ``root``: where its files are.
    """

    def __init__(self, checkout: Path, number: int) -> None:
        self._checkout, self.name, self.number, self.address = checkout, f"node{number}", number, f"10.99.1.{number}"
        argv = ["unshare", "--mount", "--net", "--uts", "--propagation", "unchanged"]
        argv += [str(checkout / ".venv/bin/python"), "-m", "examples.clusterlib.node", self.name, f"{self.address}/24"]
        self._process = subprocess.Popen(argv, cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._heard("there")
        self.pid = self._process.pid
        self.inside = ("nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--")
        self.root = f"/proc/{self.pid}/root"
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid))
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "link", "set", self.name, "master", "lan0", "up")
        self._go()
        self._heard("up")

    def _heard(self, word: str) -> None:
        if self._process.stdout is None or self._process.stdout.readline().strip() != word:
            raise Failed(f"{self.name} has not come up")

    def _go(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def run(self, *argv: str) -> str:
        """Run a program on the machine."""
        return run(*self.inside, *argv)

    def type(self, *words: str) -> str:
        """Run a command of netcommon on the machine, and show both it and what it prints."""
        command(f"{self.name}: netcommon " + " ".join(words))
        said = self.run(str(self._checkout / ".venv/bin/netcommon"), *words)
        output(said)
        return said

    def start_agent(self) -> None:
        """Let the machine's agent run."""
        command(f"{self.name}: systemctl start netcommon-agent")
        self._go()
        self._heard("ready")

    def end(self) -> None:
        """End the process that holds the namespaces, and with it the agent."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
