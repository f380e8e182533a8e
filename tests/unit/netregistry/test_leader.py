"""What happens by time, with two that both try."""

from __future__ import annotations

from itertools import pairwise

import pytest

from netregistry import leader
from netregistry.actions import ACTIONS
from netregistry.draft import Draft
from netregistry.local import Local
from netregistry.model import keys
from netregistry.model.codec import dump
from netregistry.model.history import Entry, Identity, Ledger
from netregistry.refusal import Refused
from netregistry.request import Done, Part, new_id
from netregistry.stores.base import Compacted, Put, Unavailable
from tests.support.registry import GANETI, OPERATOR, Registry


def test_options_end_at_their_time(registry: Registry) -> None:
    until = registry.time + 100
    options = [{"name": "isolated", "value": "yes", "until": until}, {"name": "rate_in", "value": "8mbit"}]
    nic = registry.nic(options=options)
    registry.passes(99)
    assert len(registry.wanted(nic.uuid).options) == 2
    registry.passes(1)
    assert [option.name for option in registry.wanted(nic.uuid).options] == ["rate_in"]
    entry = max(registry.store.list("history/").items, key=lambda item: item.revision)
    assert b'"role":"leader"' in entry.value and b"isolated" in entry.value


@pytest.mark.parametrize("many", [1, 130])
def test_a_quarantine_that_began_under_a_fast_clock_is_no_longer_than_another(registry: Registry, many: int) -> None:
    blue = registry.network(subnet="192.0.0.0/16")
    year = 365 * 86400.0
    registry.time += year
    for nic in [registry.nic(network=blue, allocate=["ipv4"]) for _ in range(many)]:
        registry.do("nic.delete", nic.uuid)
    registry.time -= year
    registry.passes(1)
    claims = [*registry.local.view.all("addresses").values(), *registry.local.view.all("macs").values()]
    assert {(claim.standing, claim.freed, claim.until) for claim in claims} == {("quarantined", registry.time, registry.time + 3600)}
    before = registry.local.view.revision
    registry.time -= 60
    registry.passes(1)
    assert registry.local.view.revision == before, "a clock that is set right by little is no reason"
    registry.passes(3700)
    assert {claim.standing for claim in registry.local.view.all("addresses").values()} == {"free"}


def test_a_quarantine_is_no_longer_than_the_setting_says_by_now(registry: Registry) -> None:
    nic = registry.nic()
    registry.do("nic.delete", nic.uuid)
    registry.do("settings.set", "", {"quarantine": 0.0})
    registry.passes(1)
    registry.passes(1)
    claim = registry.claim(f"macs/none/{nic.mac}")
    assert claim is not None and claim.standing == "free"


def test_much_that_is_due_is_done_in_parts(registry: Registry) -> None:
    blue = registry.network(subnet="192.0.0.0/16")
    nics = [registry.nic(network=blue, allocate=["ipv4"]) for _ in range(130)]
    for nic in nics:
        registry.do("nic.delete", nic.uuid)
    registry.passes(3600)
    claims = [*registry.local.view.all("addresses").values(), *registry.local.view.all("macs").values()]
    assert len(claims) == 260 and {claim.standing for claim in claims} == {"free"}


def test_a_turn_of_the_leader_is_short_however_much_is_due(registry: Registry) -> None:
    """Nobody is answered meanwhile: thousands of nodes that are gone, and quarantines that are over, take several turns."""
    for number in range(100):
        who = Identity("node", f"{number:08x}-0000-4000-8000-000000000000", "unix")
        registry.do("node.join", "", {"uuid": who.name, "name": f"node{number}"}, who)
    blue = registry.network(subnet="10.0.0.0/16")
    for _ in range(2200):
        registry.do("nic.delete", registry.nic(network=blue, allocate=["ipv4"]).uuid)
    registry.time += 4000
    turns, before = 0, -1
    while registry.local.view.revision != before:
        before = registry.local.view.revision
        registry.local.work()
        assert registry.local.view.revision - before <= 2 * 40 + 1
        turns += 1
    claims = [*registry.local.view.all("addresses").values(), *registry.local.view.all("macs").values()]
    assert len(claims) > 4000 and {claim.standing for claim in claims} == {"free"} and turns > 3
    assert len(registry.local.view.all("gone")) == 100


def test_nodes_are_waited_for_where_nobody_could_keep_their_leases(registry: Registry) -> None:
    """And no longer, also where nothing else happens, or the clock is set back meanwhile."""
    who = Identity("node", "00000000-0000-4000-8000-000000000000", "unix")
    registry.do("node.join", "", {"uuid": who.name, "name": "node1"}, who)
    registry.local.leader.wait(15.0)
    registry.passes(14)
    assert not registry.local.view.all("gone")
    registry.passes(2)
    assert len(registry.local.view.all("gone")) == 1
    registry.local.leader.wait(15.0)
    registry.time -= 86400.0
    assert not registry.local.leader._waits()


def test_two_leaders_do_it_once(registry: Registry) -> None:
    nic = registry.nic()
    registry.do("nic.delete", nic.uuid)
    other = Local(registry.store, lambda: registry.time, "other")
    registry.time += 4000
    # both have planned it before either has done it
    one, two = registry.local.leader.work(), other.leader.work()
    first = [next(one), next(two)]
    for steps, begun, local in ((one, first[0], registry.local), (two, first[1], other)):
        given = local.do(begun)
        try:
            while True:
                given = local.do(steps.send(given))
        except StopIteration:
            pass
    assert len([item for item in registry.store.list("history/").items if b"quarantine.end" in item.value]) == 1
    assert other.view.claim(f"macs/none/{nic.mac}") == registry.claim(f"macs/none/{nic.mac}")


def test_one_leads_until_its_lease_ends(registry: Registry) -> None:
    other = Local(registry.store, lambda: registry.time, "other")
    assert registry.local.run(registry.local.leader.elected(10.0)) > 0
    assert other.run(other.leader.elected(10.0)) == 0
    registry.passes(11)
    assert other.run(other.leader.elected(10.0)) > 0


def test_the_store_forgets_what_was_overwritten_an_hour_ago(registry: Registry) -> None:
    nic = registry.nic()
    revision = registry.local.view.revision
    registry.do("nic.set", nic.uuid, {"name": "x"})
    registry.passes(100)
    assert registry.store.list("nics/", revision=revision).items
    for _ in range(40):
        registry.passes(100)
    registry.do("nic.set", nic.uuid, {"name": "y"})
    assert registry.local.view.nic(nic.uuid) == registry.wanted(nic.uuid)
    registry.store.watch("", registry.local.view.revision)


def test_nothing_due_is_nothing_done(registry: Registry) -> None:
    registry.network()
    registry.passes(10)
    before = registry.local.view.revision
    for _ in range(5):
        registry.passes(10)
    assert registry.local.view.revision == before


def test_what_is_forgotten_after_a_start_is_forgotten_in_parts(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is answered meanwhile: after an hour without a compaction it is as many commits as there were in the hour, and before."""
    for number in range(300):
        registry.do("settings.set", "", {"history_seconds": 86400.0 + number})
    monkeypatch.setattr(leader, "FORGOTTEN", 50)
    registry.local.leader = leader.Leader(registry.local.core, "again")
    registry.passes(1)
    newest, floors = registry.local.view.revision, [0]
    registry.passes(3700)
    while True:
        with pytest.raises(Compacted) as refused:
            registry.store.watch("", 0)
        if refused.value.floor == floors[-1]:
            break
        floors.append(refused.value.floor)
        registry.passes(1)
    assert floors[-1] == newest and all(0 < after - before <= 50 for before, after in pairwise(floors))


def test_a_store_that_is_full_forgets_though_something_is_due(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """To forget needs no room, and is what gives some."""
    nic = registry.nic()
    registry.do("nic.delete", nic.uuid)  # whose quarantines end, which is to be written
    newest = registry.local.view.revision
    registry.passes(1)

    def full(*_given: object) -> None:
        raise Unavailable("full")

    monkeypatch.setattr(registry.store, "commit", full)
    for seconds in (3700, 1):
        with pytest.raises(Unavailable, match="full"):
            registry.passes(seconds)
    with pytest.raises(Compacted) as refused:
        registry.store.watch("", 0)
    assert refused.value.floor == newest


def test_a_store_that_does_not_forget_has_the_rest_done(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = registry.nic()
    registry.do("nic.delete", nic.uuid)
    registry.passes(1)

    def refuses(*_given: object) -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(registry.store, "compact", refuses)
    with pytest.raises(Unavailable, match="not now"):
        registry.passes(4000)
    assert [item for item in registry.store.list("history/").items if b"quarantine.end" in item.value]


def test_the_id_of_a_request_does_not_say_how_long_it_is_remembered(registry: Registry) -> None:
    """Check an id that who asks has chosen: by one of long ago he would take what he has done out of the history at once."""
    day = 86400.0
    registry.do("settings.set", "", {"history_seconds": 10 * day})
    problem = registry.refused("nic.add", "", {"instance": "web1"}, id=new_id(registry.time - 2 * day, 1))
    assert problem["kind"] == "outdated" and registry.time - day - 1 <= problem["floor"] / 1000 <= registry.time - day
    registry.nic(id=new_id(problem["floor"] / 1000 + 1, 2), instance="web1")
    registry.passes(9.5 * day)
    assert any(b"web1" in item.value for item in registry.store.list("history/").items), "by its id it was older than ten days"
    registry.passes(day)
    assert not any(b"web1" in item.value for item in registry.store.list("history/").items)


def test_what_an_older_version_has_taken_in_with_an_id_of_long_ago_is_kept_as_long(registry: Registry) -> None:
    call = registry.call("nic.add", "", {"instance": "web1"}, id=new_id(registry.time - 800 * 86400.0, 1))
    draft = Draft(registry.local.view, call.id, OPERATOR, registry.time)
    commit = draft.commit("nic.add", "", 201, {"instance": "web1"})
    registry.store.commit(list(commit.tests), list(commit.changes))
    registry.local.catch_up()
    registry.passes(61)
    assert any(b"web1" in item.value for item in registry.store.list("history/").items)


def test_what_is_never_given_out_is_not_remembered_for_ever(registry: Registry) -> None:
    """A node can have and give up addresses outside of a network without end."""
    who, blue = registry.join(0), registry.network(subnet="", subnet6="2001:db8::/64")
    addresses = [f"203.0.113.{number}" for number in range(1, 5)]
    outside = [f"addresses/{blue}/{each}" for each in addresses]
    nic = registry.nic(who, network=blue, addresses=addresses, mac="aa:00:00:00:00:01", found=True)
    elsewhere = registry.nic(who, ip="192.0.2.1")
    within = registry.nic(network=blue, ip="2001:db8::7")
    for each in (nic, elsewhere, within):
        registry.do("nic.delete", each.uuid)
    registry.do("claim.release", outside[0])
    assert registry.claim(outside[0]) is None and registry.claim(outside[1]) is not None
    registry.passes(3700)
    registry.passes(1)
    assert list(registry.local.view.all("addresses")) == [f"addresses/{blue}/2001:db8::7"], "what allocation may come to is"
    assert {key.rpartition("/")[2] for key in registry.local.view.all("macs")} == {elsewhere.mac, within.mac}
    for key in (*registry.local.view.all("addresses"), f"macs/none/{elsewhere.mac}"):
        registry.do("claim.release", key)
        assert registry.claim(key) is None
        assert registry.refused("claim.release", key)["kind"] == "missing"


def test_options_of_many_large_nics_end_and_what_else_is_due_too(registry: Registry) -> None:
    """Fifty at once were more than an entry of the history takes: none ended, and nothing else that time does was done, without a word."""
    blue, until = registry.network(subnet="192.0.2.0/30"), registry.time + 100
    gone = registry.nic(network=blue, allocate=["ipv4"])
    tags, options = [f"{number:0120}" for number in range(100)], [{"name": "isolated", "value": "yes", "until": until}]
    nics = []
    for number in range(60):
        nics.append(registry.nic(GANETI, instance=f"web{number}", index=0, mac=f"aa:00:00:00:00:{number:02x}", tags=tags))
        registry.do("nic.set", nics[-1].uuid, {"options": options})
    registry.do("nic.delete", gone.uuid)
    registry.passes(100)
    assert [nic.uuid for nic in nics if registry.wanted(nic.uuid).options] == []
    registry.passes(3600)
    again = [registry.nic(network=blue, allocate=["ipv4"]).addresses for _ in range(2)]
    assert again[1] == gone.addresses, "its quarantine is over"


def test_what_is_refused_by_time_keeps_nothing_else_waiting_and_is_told(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    options = [{"name": "isolated", "value": "yes", "until": registry.time + 100}]
    kept, gone = registry.nic(options=options), registry.nic()
    registry.do("nic.delete", gone.uuid)

    def refuses(_draft: Draft, _part: Part) -> Done:
        raise Refused("too-large", "it is too large")

    monkeypatch.setitem(ACTIONS, "options.end", ACTIONS["options.end"]._replace(rule=refuses))
    with pytest.raises(Refused, match=r"options\.end is refused: it is too large"):
        registry.passes(3700)
    claim = registry.claim(f"macs/none/{gone.mac}")
    assert registry.wanted(kept.uuid).options and (claim is None or claim.standing != "quarantined")


def test_a_long_history_is_cut_by_and_by(registry: Registry) -> None:
    """A million entries took a minute of one turn, in which nobody was answered; the watchdog would have killed the service in it."""
    old = registry.time - 30 * 86400
    requests = [new_id(old + number, number) for number in range(4000)]
    for begin in range(0, len(requests), 100):
        entries = [
            Entry(begin + place + 1, each, old, OPERATOR, "nic.set", "", (), 200)
            for place, each in enumerate(requests[begin : begin + 100])
        ]
        registry.store.commit((), [Put(keys.history(entry.request), dump(entry)) for entry in entries])
    registry.store.commit((), [Put(keys.LEDGER, dump(Ledger(len(requests), len(requests))))])
    registry.local.catch_up()
    registry.do("settings.set", "", {"history_entries": 1000})
    kept = [registry.local.view.ledger.kept]
    registry.time += 61  # by then the history's length is looked at
    while kept[-1] > 1000:
        registry.passes(1)
        kept.append(registry.local.view.ledger.kept)
        assert 0 < kept[-2] - kept[-1] <= 1000, "in each turn, and no more than others can wait for"
    assert len(registry.store.list("history/").items) == kept[-1] == 1000
