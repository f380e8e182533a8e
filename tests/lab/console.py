"""Ask a guest's console who it is: connect to an address and port, type a command of the guest's shell, and print what the guest answers.

Nothing where nobody is there, or nothing has come in time. The guest's shell says the MAC of its first NIC, which no program of the node's
would: what is typed, and comes back as the terminal's echo, is not what is printed.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Sequence

AGAIN = 1.0  #: seconds of silence until it is typed once more
TYPED = b'\nread m </sys/class/net/eth0/address; echo "<$m>"\n'
ANSWER = re.compile(rb"<((?:[0-9a-f]{2}:){5}[0-9a-f]{2})>")


def said(address: str, port: int, seconds: float) -> str:
    """Give the MAC that the guest at a console says; "" for none."""
    end, seen = time.monotonic() + seconds, b""
    try:
        with socket.create_connection((address, port), seconds) as console:
            console.settimeout(AGAIN)
            while time.monotonic() < end:
                console.sendall(TYPED)  # a guest that boots does not hear it
                with contextlib.suppress(TimeoutError):
                    while more := console.recv(4096):
                        seen += more
                        if found := ANSWER.search(seen):
                            return found[1].decode()
                    return ""
    except OSError:
        pass
    return ""


def main(arguments: Sequence[str]) -> int:
    address, port, seconds = arguments
    print(said(address, int(port), float(seconds)))
    return 0
