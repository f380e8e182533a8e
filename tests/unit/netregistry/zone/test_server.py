"""Write what goes to a server, and read what comes from it, as dnspython reads and writes it."""

from __future__ import annotations

import random
from pathlib import Path

import dns.message
import dns.name
import dns.rdataclass
import dns.tsig
import dns.update
import dns.zone
import pytest

from netregistry.zone.mark import Mark
from netregistry.zone.plan import Change, Entry, Message, There, Wanted, planned
from netregistry.zone.server import DnsServer, there, update
from runtime.errors import SettingsInvalid

ZONE = "u.example.net"
MARK = Mark("fd00:1:2::/48", "0a1b2c3d", 57)
HEAD = "@ 3600 SOA ns. mail. 1 2 3 4 5\n@ 3600 NS ns.example.net.\n"


def whole(text: str) -> There:
    return there(dns.zone.from_text(HEAD + text, f"{ZONE}.", relativize=False, check_origin=False), ZONE)


def test_an_update_says_what_the_plan_says() -> None:
    changes = (
        Change(f"web.console.{ZONE}", "fd00::1", ("AAAA", "CNAME")),
        Change(f"web2.console.{ZONE}", "fd00::2"),
        Change(f"old.console.{ZONE}", "", ("AAAA", "A")),
        Change(f"\\255\\.x.console.{ZONE}", ""),
    )
    made = update(ZONE, Message(MARK, MARK._replace(generation=58, part=1), changes, 60))
    read = dns.message.from_wire(made.to_wire())
    assert isinstance(read, dns.update.UpdateMessage)
    held, none = read.prerequisite
    assert held.to_text() == f"_generation.{ZONE}. 0 IN TXT {MARK.text}"
    assert (none.name, none.rdtype.name, none.deleting) == (held.name, "CNAME", dns.rdataclass.NONE)
    lines = [
        (each.name.to_text(omit_final_dot=True), each.rdtype.name, each.deleting, [one.to_text() for one in each]) for each in read.update
    ]
    anything = 255
    assert lines == [
        (f"web.console.{ZONE}", "AAAA", anything, []),
        (f"web.console.{ZONE}", "CNAME", anything, []),
        (f"web.console.{ZONE}", "AAAA", None, ["fd00::1"]),
        (f"web2.console.{ZONE}", "AAAA", anything, []),
        (f"web2.console.{ZONE}", "CNAME", anything, []),
        (f"web2.console.{ZONE}", "AAAA", None, ["fd00::2"]),
        (f"old.console.{ZONE}", "AAAA", anything, []),
        (f"old.console.{ZONE}", "A", anything, []),
        (f"\\255\\.x.console.{ZONE}", "AAAA", anything, []),
        (f"_generation.{ZONE}", "TXT", anything, []),
        (f"_generation.{ZONE}", "TXT", None, [MARK._replace(generation=58, part=1).text]),
    ]
    assert {each.ttl for each in read.update if not each.deleting} == {60}


def test_a_zone_without_a_mark_is_to_have_none() -> None:
    found = [(each.rdtype.name, each.rdclass.name, len(each)) for each in update(ZONE, Message(None, MARK, (), 60)).prerequisite]
    assert found == [("TXT", "NONE", 0), ("CNAME", "NONE", 0)]


@pytest.mark.parametrize("longest", [1, 20, 63])
@pytest.mark.parametrize("labels", [1, 3, 120])
def test_no_message_of_a_plan_is_larger_than_one_can_be(labels: int, longest: int) -> None:
    """Send no message that is too large, though any node may give its instances names as long as names can be, beside others' names."""
    chance, names, entries = random.Random(f"{labels} {longest}"), dict[str, str](), dict[str, Entry]()
    for number in range(3000):
        parts = [f"{number:x}-{place:x}".ljust(longest, "a")[:63] for place in range(labels)]
        name = f"{'.'.join(parts)[-(239 - len(ZONE)) :].lstrip('-.')}.console.{ZONE}"
        if chance.random() < 0.8:
            names[name] = f"fd00:1:2:1::{number:x}"
        if chance.random() < 0.5:
            entries[name] = Entry("", 60, ("A", "CNAME"))
    want = Wanted(ZONE, "5e0d6c1f00a1b2c3" * 4, "0a1b2c3d", 10**20 - 1, names, 60)
    plan = planned("s", There(want.mark._replace(generation=10**20 - 2), entries), want, True)
    assert plan.refused == () and len(plan.messages) > 1
    key = dns.tsig.Key(dns.name.from_text(f"{'k' * 63}.{'k' * 63}.{'k' * 63}.{'k' * 60}."), b"secret", "hmac-sha512")
    for message in plan.messages:
        made = update(ZONE, message)
        made.use_tsig(key)
        assert len(made.to_wire()) <= 65_535


def test_a_zone_is_read() -> None:
    found = whole(
        f"_generation 60 TXT {MARK.text}\n"
        "ns1 60 AAAA 2001:db8::53\none\\.label 60 AAAA 2001:db8::54\nlabel 60 TXT x\n"
        "Web.console 60 AAAA fd00:0::1\nmany.console 60 AAAA fd00::1\nmany.console 60 AAAA fd00::2\n"
        "four.console 30 A 192.0.2.1\nalias.console 60 CNAME elsewhere.example.\ntext.console 60 TXT x\n"
        "a.b.c.console 5 AAAA fd00::3\n"
    )
    assert found == There(
        MARK,
        {
            f"web.console.{ZONE}": Entry("fd00::1", 60),
            f"many.console.{ZONE}": Entry("", 60),
            f"four.console.{ZONE}": Entry("", 0, ("A",)),
            f"alias.console.{ZONE}": Entry("", 0, ("CNAME",)),
            f"a.b.c.console.{ZONE}": Entry("fd00::3", 5),
        },
    )


def test_cuts_are_found() -> None:
    assert set(whole("console 60 NS ns.example.net.\nx.exporter 60 DNAME y.example.net.\n").cuts) == {
        f"console.{ZONE}",
        f"x.exporter.{ZONE}",
    }


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("_generation 60 TXT strange\n", "TXT records of others"),
        (f"_generation 60 TXT {MARK.text}\n_generation 60 TXT more\n", "TXT records of others"),
        ("_generation 60 CNAME ns1\n", "CNAME records"),
        ("_Generation 60 NS ns.example.net.\n", "NS records"),
    ],
)
def test_a_strange_record_in_the_marks_place(text: str, strange: str) -> None:
    found = whole(text)
    assert found.mark is None and found.strange == strange


def test_a_key_file_that_is_not_there_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"^registry\.zone_key_file: "):
        DnsServer("127.0.0.1:53", str(tmp_path / "none"), 1.0, lambda: 0.0)
