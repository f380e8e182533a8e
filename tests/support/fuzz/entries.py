"""Read what Open vSwitch's kernel datapath remembers of a port's frames: its entries, which ovs-vswitchd makes and takes away again."""

from __future__ import annotations

import re

from tests.support.netns import run, wait_until
from tests.support.ovs import RUN

PACKETS = re.compile(r"packets:(\d+), bytes:\d+, used:[^,]*, ")
IDLE = 60  #: seconds in which an entry that no frame meets goes; Open vSwitch says 10
ACTIONS = "Datapath actions: "


class Entries:
    """Those of the frames from one device."""

    def __init__(self, bridge: str, device: str) -> None:
        self.bridge, self.device = bridge, device

    def forget(self) -> None:
        """Every entry goes, and what ovs-vswitchd knows of it: each frame is asked about anew."""
        _control("revalidator/wait")  # else those that come next may be looked at once more for what has changed before
        _control("revalidator/purge")

    def drops(self) -> dict[str, int]:
        """Those that drop, each with the frames it has met."""
        found = {}
        for line in _control("dpctl/dump-flows", "-m").splitlines():
            if f"in_port({self.device})," in line and line.endswith("actions:drop") and (met := PACKETS.search(line)):
                found[PACKETS.sub("", line)] = int(met[1])
        return found

    def passes(self, frame: bytes) -> bool:
        """Tell whether the flows let the frame pass when ovs-vswitchd reads it as it is."""
        port = run("ovs-vsctl", "get", "Interface", self.device, "ofport").strip()
        lines = _control("ofproto/trace", self.bridge, f"in_port={port}", frame.hex()).splitlines()
        (said,) = (line for line in lines if line.startswith(ACTIONS))
        return said != f"{ACTIONS}drop"

    def gone(self, entries: set[str]) -> None:
        """Waits until they are there no more: no frame that they would meet may be sent meanwhile."""
        wait_until(lambda: not entries & set(self.drops()), IDLE, "entries that no frame meets go")


def _control(*arguments: str) -> str:
    return run("ovs-appctl", "-t", f"{RUN}/vswitchd.ctl", *arguments)
