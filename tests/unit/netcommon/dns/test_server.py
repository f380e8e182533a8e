"""Speak with DNS servers: what is found out before a word is sent."""

from __future__ import annotations

import dns.update
import pytest

from netcommon.dns.key import Key
from netcommon.dns.server import Servers
from runtime.errors import HostRefused

ZONE = "u.example.net"


def test_a_message_that_is_too_large_is_refused_in_words() -> None:
    made = dns.update.UpdateMessage(ZONE)
    for number in range(5000):
        made.add(f"guest{number}", 60, "AAAA", "2001:db8::1")
    with pytest.raises(HostRefused, match=r"DNS server 192\.0\.2\.53:53: 5001 sets of records are more than a message can have"):
        Servers(["192.0.2.53:53"], Key("key", "hmac-sha256", b"secret"), 10.0, 60.0, lambda: 0.0).update(ZONE, made)
