"""Ask a name server for names' addresses every 20 ms, and tell each answer that is another than the one before. One JSON object a line.

    {"name": NAME, "at": T, "rcode": RCODE, "addresses": [ADDRESS...]}
    {"asked": N, "silent": N, "longest": SECONDS}      at the end

T is the monotonic clock, which all namespaces share: when the answer had come. "silent": questions that got no answer; "longest": the
longest time between two answers about one name. Ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence

import dns.exception
import dns.message
import dns.query
import dns.rcode
import dns.rdatatype

EVERY, PATIENCE = 0.02, 1.0  #: seconds between two questions about a name, and until one is given up
LATE = 0.001  #: seconds that a question may be early


class Asked:
    """Hold what one name's answers were."""

    def __init__(self, name: str) -> None:
        self.name, self.last, self.at, self.longest = name, ("", ()), 0.0, 0.0

    def ask(self, server: str) -> bool:
        """Ask once, and tell what is new. Tells whether there was an answer."""
        try:
            answer = dns.query.udp(dns.message.make_query(f"{self.name}.", "AAAA"), server, timeout=PATIENCE)
        except (OSError, dns.exception.DNSException):
            return False
        now = time.monotonic()
        self.longest, self.at = max(self.longest, now - (self.at or now)), now
        found = sorted(each.to_text() for records in answer.answer if records.rdtype == dns.rdatatype.AAAA for each in records)
        said = dns.rcode.to_text(answer.rcode()), tuple(found)
        if said != self.last:
            self.last = said
            say({"name": self.name, "at": now, "rcode": said[0], "addresses": found})
        return True


def say(what: dict[str, object]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main(arguments: Sequence[str]) -> int:
    server, *names = arguments
    ended = threading.Event()

    def until_closed() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=until_closed, daemon=True).start()
    asked, count, silent, due = [Asked(name) for name in names], 0, 0, time.monotonic()
    while not ended.wait(max(due - time.monotonic(), LATE)):
        due = max(due + EVERY, time.monotonic())
        for one in asked:
            answered = one.ask(server)
            count, silent = count + answered, silent + (not answered)
    say({"asked": count, "silent": silent, "longest": max(one.longest for one in asked)})
    return 0
