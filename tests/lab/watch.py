"""Watches a node from within: when a tap of ours disappears from the kernel, and when nothing of it is left. One JSON object a line.

    {"gone": TAP, "uuid": UUID, "at": T}     the kernel's RTM_DELLINK was read
    {"nic": UUID, "clean": T}                nothing with its UUID, nor a rule on its tap, is left; T null: after 10 s something still is
    {"clean": T}                             nothing of ours at all is left on the node

T is the monotonic clock, which all namespaces share; "clean" is when the check that found nothing had ended. Ends with its stdin.
"""

from __future__ import annotations

import json
import math
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from tests.lab.leftovers import IFLA_IFALIAS, IFLA_IFNAME, NLMSG, UUID, attributes, leftovers, text

RTMGRP_LINK, RTM_DELLINK = 1, 17
LIMIT = 10.0  #: seconds after which a NIC is not waited for any longer
PAUSE = 0.001  #: between two checks, while something is left


class Gone(NamedTuple):
    tap: str
    uuid: str
    at: float

    def left(self, found: list[str]) -> bool:
        return any(self.uuid in thing or thing == f"rule iif {self.tap} " for thing in found)


def listen(told: queue.SimpleQueue[Gone | None]) -> None:
    """Passes on the taps that go. In a thread of its own, before everything else, so that a busy machine does not make the start late."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pass  # then the figures are as good as the machine is idle
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, RTMGRP_LINK))
        say({"listening": time.monotonic()})
        while True:
            data = kernel.recv(1 << 17)
            now = time.monotonic()
            while data:
                length, kind, _, _, _ = NLMSG.unpack_from(data)
                found = attributes(data[NLMSG.size : length], 16)
                uuid = UUID.match(text(found.get(IFLA_IFALIAS)))
                if kind == RTM_DELLINK and data[NLMSG.size] == socket.AF_UNSPEC and uuid:
                    told.put(Gone(text(found.get(IFLA_IFNAME)), uuid.group(), now))
                data = data[(length + 3) & ~3 :]


def until_closed(told: queue.SimpleQueue[Gone | None]) -> None:
    sys.stdin.read()
    told.put(None)


def say(what: dict[str, object]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def follow(told: queue.SimpleQueue[Gone | None]) -> None:
    """Checks from the moment a tap has gone until nothing of it is left, or it has taken too long."""
    waiting: list[Gone] = []
    last = -math.inf  # when the last one went, unless the node was clean since
    while True:
        since = time.monotonic() - last
        try:
            new = told.get(timeout=PAUSE + max(since, 0) / 50) if waiting or since < LIMIT else told.get()
            if new is None:
                return
            say({"gone": new.tap, "uuid": new.uuid, "at": new.at})
            waiting.append(new)
            last = new.at
            continue
        except queue.Empty:
            pass
        found = leftovers(quick=True)
        for gone in list(waiting):
            late = time.monotonic() > gone.at + LIMIT
            if late or not (gone.left(found) or gone.left(leftovers())):
                say({"nic": gone.uuid, "clean": None if late else time.monotonic(), "left": found if late else []})
                waiting.remove(gone)
        if not found:
            say({"clean": time.monotonic()})
            last = -math.inf


def main(_arguments: Sequence[str]) -> int:
    sys.setswitchinterval(0.0005)
    told: queue.SimpleQueue[Gone | None] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(told,), daemon=True).start()
    threading.Thread(target=until_closed, args=(told,), daemon=True).start()
    follow(told)
    return 0
