"""Plan what is sent to bring a zone to what the registry wants, and what is refused before anything is."""

from __future__ import annotations

import pytest

from netregistry.zone.mark import Mark
from netregistry.zone.plan import LARGEST, Change, Entry, Plan, There, Wanted, done, planned
from netregistry.zone.unheard import Unheard
from runtime.errors import HostRefused

ZONE = "u.example.net"
PREFIX = "fd00:1:2::/48"
OWNER, EPOCH = "5e0d6c1f00a1b2c3", "0a1b2c3d"
WEB, DB = f"web.console.{ZONE}", f"db.console.{ZONE}"
ONE, TWO, THREE = "fd00:1:2:1::1:0", "fd00:1:2:2::1:0", "fd00:1:2:3::1:0"


def wanted(generation: int, names: dict[str, str], ttl: int = 60) -> Wanted:
    return Wanted(ZONE, OWNER, EPOCH, generation, names, ttl, PREFIX)


def there(generation: int | None, names: dict[str, str], ttl: int = 60, part: int = 0) -> There:
    mark = None if generation is None else Mark(OWNER, EPOCH, generation, part)
    return There(mark, {name: Entry(address, ttl) for name, address in names.items()})


def refused(found: There, want: Wanted, known: bool = False) -> str:
    with pytest.raises(HostRefused) as caught:
        planned("192.0.2.53:53", found, want, known)
    assert "\n" not in str(caught.value) and caught.value.advice == ""
    return str(caught.value)


def plan(found: There, want: Wanted) -> tuple[tuple[Change, ...], ...]:
    made = planned("192.0.2.53:53", found, want, False)
    assert made.refused == ()
    before = found.mark
    for message in made.messages:
        assert message.before == before
        before = message.after
    assert before == want.mark.behind(found.mark)
    return tuple(message.changes for message in made.messages)


def test_a_move_is_one_message_with_one_change() -> None:
    assert plan(there(5, {WEB: ONE, DB: TWO}), wanted(6, {WEB: THREE, DB: TWO})) == ((Change(WEB, THREE),),)


def test_what_is_as_it_should_be_needs_nothing() -> None:
    assert plan(there(5, {WEB: ONE}), wanted(5, {WEB: ONE})) == ()


def test_a_generation_without_changes_is_its_mark_alone() -> None:
    assert plan(there(5, {WEB: ONE}), wanted(6, {WEB: ONE})) == ((),)


def test_an_empty_zone_is_taken() -> None:
    assert plan(there(None, {}), wanted(3, {WEB: ONE})) == ((Change(WEB, ONE),),)


def test_other_spellings_of_an_address_are_the_same() -> None:
    assert plan(there(5, {WEB: "fd00::1"}), wanted(5, {WEB: "FD00:0:0:0::1"})) == ()


def test_a_generation_that_was_repaired_by_hand_is_brought_back() -> None:
    """The mark is the right one, and what stands there is not."""
    assert plan(there(5, {WEB: TWO, DB: ONE}), wanted(5, {WEB: ONE})) == ((Change(WEB, ONE), Change(DB, "")),)


def test_what_leads_elsewhere_goes_first_and_what_ends_last() -> None:
    found = there(5, {"old.console." + ZONE: ONE, WEB: ONE})
    assert plan(found, wanted(9, {DB: TWO, WEB: THREE})) == ((Change(WEB, THREE), Change(DB, TWO), Change("old.console." + ZONE, "")),)


def test_other_types_and_several_addresses_go_in_the_same_message() -> None:
    entries = {WEB: Entry("", 60, ("CNAME",)), DB: Entry(TWO, 60, ("A",))}
    changes = plan(There(Mark(OWNER, EPOCH, 4), entries), wanted(5, {WEB: ONE, DB: TWO}))
    assert changes == ((Change(WEB, ONE, ("AAAA", "CNAME")), Change(DB, TWO, ("AAAA", "A"))),)


def test_which_records_of_others_go_is_said() -> None:
    entries = {WEB: Entry("", 60, ("A", "CNAME")), DB: Entry(TWO, 60, ("A",)), "x\\255.console." + ZONE: Entry("", 60, ("CNAME",))}
    made = planned("s", There(Mark(OWNER, EPOCH, 4), entries), wanted(5, {WEB: ONE, DB: TWO}), False)
    assert made.others == (f"A and CNAME records at {WEB}", f"A records at {DB}", f"CNAME records at x\\\\255.console.{ZONE}")


def test_another_time_to_live_is_a_change() -> None:
    assert plan(there(5, {WEB: ONE}, ttl=3600), wanted(5, {WEB: ONE})) == ((Change(WEB, ONE),),)


def test_many_are_several_messages_whose_marks_chain() -> None:
    names = {f"guest{number}.console.{ZONE}": ONE for number in range(3000)}
    made = planned("s", there(None, {}), wanted(7, names), False).messages
    assert len(made) > 2 and [len(set(each.changes)) for each in made] == [len(each.changes) for each in made]
    assert {change.name: change.address for each in made for change in each.changes} == names
    assert all(sum(change.size for change in each.changes) <= LARGEST for each in made)
    assert [each.after.part for each in made] == [*range(1, len(made)), 0]
    assert [each.before for each in made] == [None, *(each.after for each in made[:-1])]


def test_a_chain_that_was_cut_off_goes_on_with_other_marks() -> None:
    """Nothing of the first chain that is still under way can be taken for a part of the second one."""
    names = {f"guest{number}.console.{ZONE}": ONE for number in range(3000)}
    made = planned("s", there(7, {}, part=2), wanted(7, names), False).messages
    assert made[0].before == Mark(OWNER, EPOCH, 7, 2)
    assert [each.after.part for each in made] == [*range(3, len(made) + 2), 0]
    later = planned("s", there(7, {}, part=2), wanted(8, names), False).messages
    assert later[0].after == Mark(OWNER, EPOCH, 8, 1)


def test_the_longest_names_fit() -> None:
    label = "a" * 63
    name = f"{'.'.join([label] * 3)}.{'b' * (253 - 192 - 9 - len(ZONE))}.console.{ZONE}"
    assert len(name) == 253
    assert plan(there(None, {}), wanted(1, {name: ONE})) == ((Change(name, ONE),),)


@pytest.mark.parametrize(
    "name",
    [
        "web_1.console." + ZONE,
        "-web.console." + ZONE,
        "Web.console." + ZONE,
        "web..console." + ZONE,
        ".console." + ZONE,
        "w\u00e9b.console." + ZONE,
        "web\n.console." + ZONE,
        f"{'a' * 64}.console.{ZONE}",
        f"{'.'.join(['a' * 60] * 4)}.console.{ZONE}",
        "web." + ZONE,
        ZONE,
        "web.console.example.com",
        f"web.console{ZONE}",
    ],
)
def test_a_name_that_cannot_be_is_told_and_others_are_published(name: str) -> None:
    made = planned("s", there(5, {}), wanted(6, {name: ONE, WEB: TWO}), False)
    assert [message.changes for message in made.messages] == [(Change(WEB, TWO),)]
    (line,) = made.refused
    assert "is not published" in line and "expected" in line and line.isprintable()


@pytest.mark.parametrize("address", ["192.0.2.1", "", "fd00::1/64", "fd00::g", "fd00::1%eth0", "fd00::1\0"])
def test_an_address_that_cannot_be_is_told(address: str) -> None:
    made = planned("s", there(5, {}), wanted(6, {WEB: address}), False)
    assert [message.changes for message in made.messages] == [()] and "is no IPv6 address" in made.refused[0]


def test_names_below_a_cut_are_told_and_left() -> None:
    found = There(Mark(OWNER, EPOCH, 5), {WEB: Entry(ONE, 60), DB: Entry(ONE, 60)}, ("console." + ZONE,))
    made = planned("s", found, wanted(6, {WEB: TWO, "web.exporter." + ZONE: ONE}), False)
    assert [message.changes for message in made.messages] == [(Change("web.exporter." + ZONE, ONE),)]
    assert "is cut at" in made.refused[0]


# -- refused


def test_a_generation_from_the_future() -> None:
    assert "is at generation 9, and this registry at 8 of the same epoch" in refused(there(9, {}), wanted(8, {WEB: ONE}))
    assert "is at generation 9," in refused(there(9, {}, part=1), wanted(8, {WEB: ONE}))


def test_a_zone_of_another_registry() -> None:
    for owner in ("fd00:9::/48", "another"):
        found = There(Mark(owner, EPOCH, 1), {})
        assert f"published by another registry, {owner!r}; this one is {OWNER!r}" in refused(found, wanted(8, {WEB: ONE}))


def test_a_zone_of_another_registry_with_the_same_prefix() -> None:
    """One that was made for a test, by the prefix of the documents, takes nobody's zone over."""
    found = There(Mark("another", "ffffffff", 900), {WEB: Entry(ONE, 60)})
    assert "published by another registry" in refused(found, wanted(1, {}))


def test_a_mark_of_the_older_form_is_taken_once() -> None:
    """It had the prefix for the registry's id; epoch and generation count as ever."""
    older = There(Mark(PREFIX, EPOCH, 8), {WEB: Entry(ONE, 60)})
    made = planned("s", older, wanted(8, {WEB: ONE}), False).messages
    assert [(each.before, each.after, each.changes) for each in made] == [(older.mark, Mark(OWNER, EPOCH, 8), ())]
    assert "is at generation 8, and this registry at 7" in refused(older, wanted(7, {WEB: ONE}))
    other = There(Mark(PREFIX, "ffffffff", 8), {})
    assert plan(other, wanted(1, {WEB: ONE})) == ((Change(WEB, ONE),),)
    assert "another copy of this registry" in refused(other, wanted(1, {WEB: ONE}), known=True)


def test_another_epoch_is_taken_over_once() -> None:
    """After a restore or a move the zone is at an epoch that is over; that it comes back means that two copies live."""
    found = There(Mark(OWNER, "ffffffff", 100), {WEB: Entry(ONE, 60)})
    assert plan(found, wanted(8, {WEB: TWO})) == ((Change(WEB, TWO),),)
    assert "another copy of this registry, of epoch 'ffffffff'" in refused(found, wanted(8, {WEB: TWO}), known=True)


def test_an_epoch_of_before_is_taken_over_again_where_it_has_not_taken_the_zone_from_us() -> None:
    """Tell a snapshot of before a restore from a copy that lives: what that has taken since says from whom."""
    want = wanted(8, {WEB: TWO})._replace(before=("eeeeeeee", "ffffffff"))
    found = There(Mark(OWNER, "ffffffff", 100, 0, "eeeeeeee"), {WEB: Entry(ONE, 60)})
    (message,) = planned("s", found, want, True).messages
    assert message.after == Mark(OWNER, EPOCH, 8, 0, "ffffffff")
    (later,) = planned("s", There(message.after, {WEB: Entry(TWO, 60)}), want._replace(generation=9), True).messages
    assert later.after == Mark(OWNER, EPOCH, 9, 0, "ffffffff"), "as long as the epoch lasts"
    living = There(Mark(OWNER, "ffffffff", 100, 0, EPOCH), {WEB: Entry(ONE, 60)})
    assert "the server came back from a snapshot: systemctl restart" in refused(living, want, known=True)
    assert "another copy of this registry, of epoch 'dddddddd'" in refused(There(Mark(OWNER, "dddddddd", 100), {}), want, known=True)


def test_names_of_others_are_not_taken_for_ours() -> None:
    """A zone that is in use was named by mistake: nothing of it goes."""
    theirs = "2001:db8::80"
    found = there(None, {"www.eu." + ZONE: theirs, WEB: TWO})
    assert f"holds 1 names that no registry has put there, such as www.eu.{ZONE}" in refused(found, wanted(8, {WEB: ONE}))
    assert f"such as {WEB}" in refused(there(None, {WEB: theirs}), wanted(8, {WEB: ONE}))
    alias = There(None, {WEB: Entry(ONE, 60, ("CNAME",))})
    assert f"such as {WEB}" in refused(alias, wanted(8, {WEB: ONE}))
    assert f"such as {WEB}" in refused(There(None, {WEB: Entry("", 60)}), wanted(8, {WEB: ONE}))


def test_a_mark_that_was_removed_is_made_again_where_all_is_ours() -> None:
    assert plan(there(None, {WEB: ONE}), wanted(8, {WEB: ONE, DB: TWO})) == ((Change(DB, TWO),),)


def test_a_mark_that_was_removed_is_made_again_though_names_have_moved() -> None:
    """Addresses of the underlay nobody else has put there."""
    found = there(None, {WEB: ONE, DB: ONE})
    assert plan(found, wanted(8, {WEB: TWO})) == ((Change(WEB, TWO), Change(DB, "")),)


OTHERS = {"www.shop." + ZONE: Entry("2001:db8::80", 300), "mail.shop." + ZONE: Entry("", 0, ("CNAME",)), DB: Entry("", 60)}
FORMER = wanted(9, {})._replace(former=True)


@pytest.mark.parametrize("mark", [Mark(OWNER, EPOCH, 8), Mark(OWNER, "ffffffff", 8), Mark(PREFIX, EPOCH, 9), None])
def test_what_others_have_in_a_zone_of_before_stays(mark: Mark | None) -> None:
    """Keep the records of others in a former zone: only the prefix tells which names are ours."""
    assert plan(There(mark, {**OTHERS, WEB: Entry(ONE, 60, ("A",))}), FORMER) == ((Change(WEB, ""),),)


def test_a_zone_of_before_that_is_still_ours_is_marked_as_empty() -> None:
    assert plan(There(Mark(OWNER, EPOCH, 8), OTHERS), FORMER) == ((),)


@pytest.mark.parametrize("names", [{}, {WEB: ONE}])
@pytest.mark.parametrize(
    "found", [There(None, OTHERS), There(Mark("another", EPOCH, 99), OTHERS), There(None, OTHERS, (), "CNAME records"), There(None, {})]
)
def test_a_zone_of_before_that_is_somebody_elses_is_left_as_it_is(found: There, names: dict[str, str]) -> None:
    """Send nothing to a former zone in which nothing is ours: nobody has to wait for it."""
    assert planned("s", found, FORMER._replace(names=names), False).messages == ()


def test_names_of_ours_in_a_zone_of_before_that_is_another_registrys_are_told() -> None:
    assert "published by another registry" in refused(There(Mark("another", EPOCH, 9), {WEB: Entry(ONE, 60)}), FORMER)


def test_names_of_a_zone_of_before_go_one_by_one() -> None:
    found = There(Mark(OWNER, EPOCH, 8), {**OTHERS, WEB: Entry(ONE, 60), "old.console." + ZONE: Entry(ONE, 60)})
    changes = plan(found, FORMER._replace(names={WEB: TWO, DB: TWO, "lost.console." + ZONE: TWO}))
    assert changes == ((Change(WEB, TWO), Change("lost.console." + ZONE, TWO), Change("old.console." + ZONE, "")),)


def test_a_strange_record_in_the_marks_place() -> None:
    found = There(None, {}, (), "TXT records of others")
    assert f"TXT records of others at _generation.{ZONE}: remove them there" in refused(found, wanted(8, {WEB: ONE}))


def test_done_takes_in_what_was_sent() -> None:
    found = there(5, {WEB: ONE, DB: TWO})
    entries = dict(found.entries)
    for message in planned("s", found, wanted(6, {WEB: THREE}), False).messages:
        done(entries, message)
    assert entries == {WEB: Entry(THREE, 60)}


def test_names_that_nodes_are_still_to_speak_of_stay_as_they_are() -> None:
    """Change those alone that a step has changed, between nodes that were heard; the mark says meanwhile that it is not all."""
    heard = Unheard.of((WEB,), ("fd00:1:2:1::/64", "fd00:1:2:2::/64"), (), (ONE, TWO))
    names = {WEB: TWO, DB: TWO}
    held = wanted(6, names)._replace(unheard=heard)
    made = planned("s", there(5, {WEB: ONE, DB: ONE, f"old.console.{ZONE}": ONE}), held, False)
    (message,) = made.messages
    assert message.changes == (Change(WEB, TWO),) and message.after.part == 1 and made.held == 2
    again = planned("s", there(6, {WEB: TWO, DB: ONE, f"old.console.{ZONE}": ONE}, part=1), held, True)
    assert again == Plan((), held=2), "there is nothing to be sent"
    (last,) = planned("s", there(6, {WEB: TWO, DB: TWO}, part=1), wanted(6, names), True).messages
    assert (last.changes, last.after.part) == ((), 0)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        (ONE, TWO, False),
        ("", TWO, False),
        (ONE, "", False),
        (THREE, TWO, True),
        (ONE, THREE, True),
        (THREE, "", True),
        ("", THREE, True),
        (ONE, "none", True),
    ],
)
def test_both_nodes_are_heard_before_a_name_moves(before: str, after: str, stays: bool) -> None:
    heard = Unheard.of((WEB,), ("fd00:1:2:1::/64", "fd00:1:2:2::/64"), (), (ONE, TWO))
    assert heard.holds(WEB, before, after) == stays and heard.holds(DB, before, after)
    assert heard._replace(pending=Unheard.of((), (), (ONE,)).pending).holds(WEB, ONE, TWO)
    assert not heard.holds(DB, THREE, THREE), "its time to live"


@pytest.mark.parametrize(("after", "stays"), [(TWO, False), ("", False), (THREE, True)])
def test_an_address_that_its_node_has_no_more_is_held_for_nobody(after: str, stays: bool) -> None:
    """Let a name go from where nothing is, by that node's word, to nowhere or to what is there: the node was forgotten in between."""
    heard = Unheard.of((), ("fd00:1:2:1::/64", "fd00:1:2:2::/64"), (), (TWO,))
    assert heard.holds(WEB, ONE, after) == stays and heard.holds(WEB, THREE, after) == (after != THREE)


def test_a_zone_of_somebody_elses_is_not_taken_while_names_are_held() -> None:
    """Refuse a zone of somebody else's while names are held, too: a mark would make it ours, and it would be emptied after the minute."""
    found = there(None, {WEB: "2001:db8::7"})
    assert "holds 1 names" in refused(found, wanted(1, {})._replace(unheard=Unheard.of((), (), ())))
