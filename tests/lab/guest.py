"""The guest of an instance: whether it has booted, and answers from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from tests.lab.nodes import Failed, Node, until

RESETS = 4


class Guest:
    """``nodes``: where it may be; ``silent``: is told the node of a guest that does not answer, and says more of it."""

    def __init__(self, nodes: Mapping[str, Node], wire: Node, instance: str, silent: Callable[[Node], str]) -> None:
        self._nodes, self._wire, self._instance, self._silent = nodes, wire, instance, silent
        self.resets = 0  #: of guests that hung before they had sent anything

    def at(self) -> Node:
        """Give the node on which the instance runs. Raises Failed."""
        found = [node for node in self._nodes.values() if node.qemu(self._instance)]
        if len(found) != 1:
            raise Failed(f"{self._instance} runs on {len(found)} nodes")
        return found[0]

    def up(self, addresses: Collection[str], patience: float = 1.0) -> None:
        """Wait until it answers at these addresses; ``patience``: times the usual seconds, on a busy machine. Raises Failed."""
        for _attempt in range(RESETS):
            try:
                until("the guest sends something", 20 * patience, self.speaks)
                break
            except Failed:  # an emulated guest's kernel hangs now and then while it boots on a busy machine, before it knows its NICs
                self.resets += 1
                self.at().monitor(self._instance, "system_reset")
        for address in addresses:
            try:
                until(f"the guest answers at {address}", 30 * patience, partial(self.answers, address))
            except Failed as error:
                raise Failed(f"{error}; {self._silent(self.at())}") from None
        time.sleep(1)  # the guest's acpid, started before its addresses, has opened its devices

    def speaks(self) -> bool:
        """Tell whether the guest has sent a frame, whatever became of it."""
        node = self.at()
        counters = [node.path(f"/sys/class/net/{record['nic']['INTERFACE']}/statistics/rx_packets") for record in node.records().values()]
        for path in counters:
            with open(path, encoding="ascii") as file:
                if int(file.read()):
                    return True
        return False

    def answers(self, address: str) -> bool:
        """Tell whether the guest answers from outside."""
        return not self._wire.attempt("ping", "-c1", "-W1", "-q", address).returncode
