"""A routed guest that never stops sending, and the ways by which the node forwards what it sends: a leak shows as a number."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from functools import partial

from tests.support import frames
from tests.support.forged import ethernet, ipv4, ipv6, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.tap import Tap

MAC, HOST_MAC = "aa:00:00:12:34:56", "fe:00:00:12:34:56"  #: the guest's, and the one that its tap gets (features/steady.py)
FAR4, FAR6 = "198.51.100.1", "2001:db8:aaaa::1"
MAIN = "main0"
LEAST = 200  #: frames; so many pass, or fail, while nothing else is done, before a round goes on

#: EtherType for experiments (IEEE 802): the node's stack knows it not.
NOTHING = ethernet(0x88B5, b"", MAC, HOST_MAC)


def packet(source: str) -> bytes:
    """A frame for the node's own MAC, with a packet that it is to forward."""
    if ":" in source:
        return ethernet(frames.IPV6, ipv6(source, udp(1, 2), 17, FAR6, hops=64), MAC, HOST_MAC)
    return ethernet(frames.IPV4, ipv4(source, udp(1, 2), destination=FAR4), MAC, HOST_MAC)


class Ways:
    """Devices that lead away from the node: table main's default routes by MAIN, each other table's by a device of its own.

    What is forwarded is counted by device and family, and dropped: nobody has to answer.
    """

    def __init__(self, node: Node, *tables: str) -> None:
        node.forwarding(ipv6=True)
        self.devices = {"main": MAIN, **{table: f"table{table}" for table in tables}}
        run("nft", "add table inet watch; add chain inet watch ways { type filter hook forward priority -400; }")
        for table, device in self.devices.items():
            node.outside(device)
            # It has a link-local address a moment after its carrier; until then nothing can be announced there.
            wait_until(partial(run, "ip", "-6", "address", "show", "dev", device, "scope", "link", "-tentative"), 5, device)
            for family, word in (("-4", "ipv4"), ("-6", "ipv6")):
                run("ip", family, "route", "add", "default", "dev", device, "table", table)
                rule = f"iifname tap0 oifname {device} meta nfproto {word}"
                run("nft", f'add counter inet watch {device}-{word}; add rule inet watch ways {rule} counter name "{device}-{word}" drop')

    def forwarded(self) -> dict[str, int]:
        """Packets so far by "DEVICE-FAMILY", such as "main0-ipv6"; what was not used is left out."""
        listed = json.loads(run("nft", "-j", "list", "counters", "table", "inet", "watch"))["nftables"]
        found = {item["counter"]["name"]: item["counter"]["packets"] for item in listed if "counter" in item}
        return {name: packets for name, packets in found.items() if packets}


class Flood:
    """A thread that sends ``packets`` by ``tap`` one after the other until the end; while the tap is down each attempt fails.

    ``after_down``: what is sent is nothing to the node until the tap has been down once. So a tap that is up before its NIC is may be
    flooded: what the node forwards before the hook has begun is not the hook's.
    """

    def __init__(self, tap: Tap, packets: Sequence[bytes], after_down: bool = False) -> None:
        self._tap, self._packets, self._after_down = tap, packets, after_down
        self.sent = self.refused = 0  #: frames that the kernel took, and attempts while the tap was down
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        packets: Sequence[bytes] = [NOTHING] if self._after_down else self._packets
        while not self._over.is_set():
            for each in packets:
                try:
                    self._tap.send(each)
                    self.sent += 1
                except OSError:  # EIO: the tap is down
                    self.refused += 1
                    packets = self._packets
                    os.sched_yield()  # the hook is to have its turn

    def goes_on(self) -> None:
        """Wait until so many more frames have been tried."""
        enough = self.sent + self.refused + LEAST
        wait_until(lambda: self.sent + self.refused >= enough, 10, "a flood that goes on")
