"""The end of a zone transfer is found in its messages, whatever is in them."""

from __future__ import annotations

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rrset
import pytest

from netcommon.dns.transfer import Ends, walked

SOA = dns.rrset.from_text("example.com.", 60, "IN", "SOA", "ns.example.net. mail.example.net. 1 2 3 4 5")
OTHERS = [dns.rrset.from_text(f"host{number}.example.com.", 60, "IN", "AAAA", "2001:db8::1", "2001:db8::2") for number in range(40)]
OTHERS.append(dns.rrset.from_text("text.example.com.", 60, "IN", "TXT", '"\\000\\006\\000\\001"'))


def message(*answer: dns.rrset.RRset, question: bool = True) -> bytes:
    made = dns.message.make_response(dns.message.make_query("example.com.", "AXFR"))
    made.answer = list(answer)
    if not question:
        made.question = []
    return made.to_wire()


@pytest.mark.parametrize("question", [True, False])
def test_in_one_message(question: bool) -> None:
    wire = message(SOA, *OTHERS, SOA, question=question)
    assert walked(wire) == (2, 0) and Ends().after(wire)


def test_in_several_messages() -> None:
    ends = Ends()
    parts = [message(SOA), message(*OTHERS), message(*OTHERS, question=False), message(*OTHERS, SOA, question=False)]
    assert [ends.after(part) for part in parts] == [False, False, False, True]


def test_an_error_or_nothing_is_the_end() -> None:
    refused = dns.message.make_response(dns.message.make_query("example.com.", "AXFR"))
    refused.set_rcode(dns.rcode.REFUSED)
    assert Ends().after(refused.to_wire()) and Ends().after(message())


def test_what_cannot_be_read_is_the_end() -> None:
    """Whatever a server sends: cut off, of lengths that lead nowhere, empty."""
    wire = message(SOA, *OTHERS)
    for length in range(len(wire) - 1):
        assert Ends().after(wire[:length]), length
    assert Ends().after(b"") and Ends().after(b"\xff" * 12) and Ends().after(wire[:12] + b"\x3f" * 20)
