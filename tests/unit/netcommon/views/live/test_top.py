"""netcommon top: rates from two readings, figures of the hooks, and what is drawn on screens of every size."""

from __future__ import annotations

import pytest

from netagent.observe.hook_reports import COLD, WARM, called
from netagent.observe.hook_stats import hooks
from netagent.observe.metrics import BUCKETS, Metrics
from netcommon.host.api.facts import Counters
from netcommon.host.rtnetlink.attributes import MalformedError, attribute
from netcommon.host.rtnetlink.counters import HEADER, QUEUE, STATS, counters, queue_drops
from netcommon.host.rtnetlink.encode_tc import TC_H_ROOT, TCMSG
from netcommon.host.simulated.host import MemoryHost
from netcommon.views.live.hook_stats import Calls, bound, calls
from netcommon.views.live.rates import Rate, Reading, rate, read
from netcommon.views.live.top import SORTS, UNSEEN, Agent, Look, Row, Top, counted, ordered, rows
from netcommon.views.live.top_text import screen, seconds, short, standing, text
from netcommon.views.topology.model import DRIFTED, GONE, GOOD
from netcommon.views.topology.text import UNICODE, Style
from tests.support.nics import nic, record

AGENT = Agent(True, "running, 3 NICs on record", ())
CALLS = (Calls("kvm-ifup", "bridged", "warm", 120, 2, 0.0042, 0.005, 0.025), Calls("kvm-ifup", "routed", "cold", 1, 0, 0.06, 0.1, None))


def row(label: str = "web1/0", **changes: object) -> Row:
    made = Row(label, "web1", 0, label, "u", "tap0", "bridged", "br0", "up", GOOD, 0, 1000.0, 2000.0, 1.0, 2.0, 0.0, 0.0, 0)
    return made._replace(**changes)  # type: ignore[arg-type]


def top(*found: Row, **changes: object) -> Top:
    states, conditions = counted(found)
    made = Top("node1", 2.0, 3.0, AGENT, CALLS, states, conditions, (), found)
    return made._replace(**changes)  # type: ignore[arg-type]


def test_rates_are_the_guests() -> None:
    """What the tap receives, the guest has sent; bytes become bits, and both are a second."""
    old = Counters(10, 100, 1000, 20000, 0, 0, 3, 5)
    new = Counters(30, 200, 3000, 60000, 0, 0, 7, 25)
    assert rate(Reading(1.0, {4: old}), Reading(3.0, {4: new}), 4) == Rate(160000.0, 8000.0, 50.0, 10.0, 10.0, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "passed"),
    [
        ({}, {4: Counters()}, 1.0),
        ({4: Counters()}, {}, 1.0),
        ({4: Counters(5)}, {4: Counters(4)}, 1.0),
        ({4: Counters()}, {4: Counters()}, 0.0),
    ],
)
def test_what_gives_no_rate(old: dict[int, Counters], new: dict[int, Counters], passed: float) -> None:
    """A device that is new, gone, or another by now; and no time."""
    assert rate(Reading(1.0, old), Reading(1.0 + passed, new), 4) is None


def test_what_a_queue_drops_does_not_reach_the_guest() -> None:
    """A queue that was put there meanwhile counts anew."""
    same = {4: Counters(0, 0, 0, 0, 0, 0, 3, 5)}
    before, after = Reading(1.0, same, {4: 10}), Reading(3.0, same, {4: 30})
    assert rate(before, after, 4) == Rate(0.0, 0.0, 0.0, 0.0, 10.0, 0.0)
    assert rate(after, before._replace(when=5.0), 4) == Rate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert rate(before._replace(queues={}), after, 4) == Rate(0.0, 0.0, 0.0, 0.0, 15.0, 0.0)


def test_two_questions_for_all_devices() -> None:
    host = MemoryHost()
    index = host.add_tap("tap0").index
    host.kernel.counters[index] = Counters(7)
    host.kernel.tc.drops[index] = 3
    host.reads = 0
    found = read(host.view(), 5.0)
    assert (found.when, found.counters[index].received_packets, found.counters[1], host.reads) == (5.0, 7, Counters(), 2)
    assert found.queues == {index: 3}


def test_the_kernels_answer_is_taken_apart() -> None:
    body = HEADER.pack(0, 9, 1) + attribute(4, STATS.pack(*range(8)) + bytes(128))
    with pytest.raises(MalformedError):
        counters([body])
    body = HEADER.pack(0, 9, 1) + attribute(1, STATS.pack(*range(8)) + bytes(128))
    assert counters([body]) == {9: Counters(0, 1, 2, 3, 4, 5, 6, 7)}
    with pytest.raises(MalformedError):
        counters([HEADER.pack(0, 9, 1) + attribute(1, bytes(8))])


def test_the_queues_that_the_kernel_tells_of() -> None:
    """Of each device the root: what is within it counts there already."""

    def told(parent: int, drops: int) -> bytes:
        return TCMSG.pack(0, 9, 1 << 16, parent, 2) + attribute(7, attribute(3, QUEUE.pack(1, 2, drops) + bytes(8)))

    assert queue_drops([told(TC_H_ROOT, 5), told(1 << 16, 7)]) == {9: 5}
    for body in (TCMSG.pack(0, 9, 1 << 16, TC_H_ROOT, 2), told(TC_H_ROOT, 5)[:10]):
        with pytest.raises(MalformedError):
            queue_drops([body])


def test_figures_of_the_hooks() -> None:
    """From the agent's metrics, over JSON's types: numbers, failures, and bounds that so many calls keep."""
    metrics = Metrics()
    for took in (0.003, 0.004, 0.02):
        called(metrics, "kvm-ifup", "bridged", 0, took, WARM)
    called(metrics, "kvm-ifup", "bridged", 69, 40.0, WARM)
    called(metrics, "kvm-ifdown", "routed", 0, 0.5, COLD)
    first, second = calls(hooks(metrics))
    assert first[:5] == ("kvm-ifup", "bridged", "warm", 4, 1) and first.half == 0.005 and first.most is None
    assert abs(first.mean - 40.027 / 4) < 1e-6
    assert second == Calls("kvm-ifdown", "routed", "cold", 1, 0, 0.5, 0.5, 0.5)
    assert calls(hooks(Metrics())) == ()


def test_bounds() -> None:
    counts = [0] * (len(BUCKETS) + 1)
    assert bound(BUCKETS, counts, 0.5) == 0.0
    counts[2] = 99
    counts[-1] = 1
    assert (bound(BUCKETS, counts, 0.5), bound(BUCKETS, counts, 0.99), bound(BUCKETS, counts, 1.0)) == (0.005, 0.005, None)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"), (0.0, "0"), (0.4, "0.4"), (9.0, "9"), (9.96, "10"), (999.4, "999"), (999.6, "1.00k"), (1000.0, "1.00k"),
        (12345.0, "12.3k"), (999950.0, "1.00M"), (123456789.0, "123M"), (9.9e9, "9.90G"), (1e25, "10000000E"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float | None, said: str) -> None:
    assert short(value) == said


def test_times() -> None:
    assert [seconds(value) for value in (0.0, 0.0042, 0.25, 2.5, 30)] == ["0 ms", "4.2 ms", "250 ms", "2.5 s", "30 s"]


@pytest.mark.parametrize(
    ("uptime", "turned", "said"),
    [
        (12.3, 0.1, "running for 12 s"),
        (3700.0, 9.0, "running for 1 h 1 min"),
        (3 * 86400.0 + 7200, 1.0, "running for 3 d 2 h"),
        (600.0, 95.0, "running for 10 min, but its loop has not turned for 95 s"),
    ],
)
def test_how_the_agent_stands(uptime: float, turned: float, said: str) -> None:
    assert standing("running", uptime, turned) == said


def test_a_row_of_a_record() -> None:
    """Whatever was found the last time: a device that is not there now is gone."""
    look = Look(record(nic(), 7), DRIFTED, 2, 9)
    before, after = Reading(0.0, {7: Counters()}), Reading(1.0, {7: Counters(1, 2, 100, 200)})
    (one,) = rows([look], before, after)
    assert (one.condition, one.drift, one.guard_dropped, one.sent_bits, one.received_bits) == (DRIFTED, 2, 9, 800.0, 1600.0)
    (gone,) = rows([look], before, Reading(1.0, {}))
    assert (gone.condition, gone.sent_bits) == (GONE, None)


def test_every_sort_has_an_order() -> None:
    found = [
        row("web10/0", received_bits=None, sent_bits=None, received_packets=None, sent_packets=None, condition=GONE),
        row("web2/0", sent_bits=9e6, sent_packets=9.0),
        row("web3/0", received_bits=8e6, received_packets=5.0, guard_dropped=4),
        row("web1/0", received_dropped=3.0, condition=DRIFTED),
    ]
    orders = {sort: [each.label.removesuffix("/0") for each in ordered(found, sort)] for sort in SORTS}
    assert orders["traffic"] == ["web2", "web3", "web1", "web10"] and orders["out"][0] == "web2" and orders["in"][0] == "web3"
    assert orders["packets"][:2] == ["web2", "web3"] and orders["drops"][0] == "web1" and orders["guard"][0] == "web3"
    assert orders["condition"][:2] == ["web1", "web10"] and orders["name"] == ["web1", "web2", "web3", "web10"]


def test_plain_text_has_all() -> None:
    said = text(top(*(row(f"web{number}/0") for number in range(100)), row("a\nb/0", condition=DRIFTED, drift=2)), "name", Style())
    lines = said.splitlines()
    assert lines[0] == "node1: 101 NICs, 101 up; 1 drifted (looked at 3 s ago)"
    assert lines[1] == "agent: running, 3 NICs on record, no alarms"
    assert lines[2] == "hooks: kvm-ifup bridged warm: 120 calls, 2 failed, mean 4.2 ms, half <= 5 ms, 99 % <= 25 ms"
    assert lines[3] == "hooks: kvm-ifup routed cold: 1 call, mean 60 ms, half <= 100 ms, 99 % longer than all bounds"
    assert lines[5].split() == ["GUEST", "TAP", "MODE", "IN", "bit/s", "pkt/s", "OUT", "bit/s", "pkt/s", "DROPS/s", "GUARD", "CONDITION"]
    assert len(lines) == 6 + 101 and "\x1b" not in said and "a\\nb/0" in said and "drifted (2)" in said


def test_problems_and_alarms_are_in_the_head() -> None:
    agent = Agent(True, "running", ("inventory: it\x1b failed",))
    said = text(top(row(condition=UNSEEN), agent=agent, problems=("a record cannot be read",), looked=None), "name", Style())
    assert "ALARM inventory: it\\x1b failed" in said and "! a record cannot be read" in said
    assert "1 not looked at (not looked at yet)" in said and "no alarms" not in said
    assert "agent: no agent runs\n" in text(top(agent=Agent(False, "no agent runs", ())), "name", Style())


@pytest.mark.parametrize("height", [1, 2, 5, 12, 24, 60])
@pytest.mark.parametrize("width", [1, 20, 80, 300])
def test_it_fits_every_screen(width: int, height: int) -> None:
    """Exactly so many lines, none too long; NICs only where there is room, from the asked position on."""
    many = top(*(row(f"web{number}/0", condition=DRIFTED if number % 2 else GOOD) for number in range(5000)))
    lines = screen(many, "name", 10, width, height, Style())
    assert len(lines) == height and max(map(len, lines)) <= width
    if (width, height) == (300, 24):
        shown = [line.split()[0] for line in lines if line.startswith("web")]
        assert shown == [f"web{number}/0" for number in range(10, 10 + len(shown))] and len(shown) == 24 - 7
        assert lines[-1].startswith(f"11-{10 + len(shown)} of 5000 by name   q quit")


def test_colours_do_not_change_the_text() -> None:
    import re

    many = top(row(), row("web2/0", condition=DRIFTED, drift=1))
    for width in (30, 100, 108, 200):
        bare = screen(many, "name", 0, width, 20, Style())
        painted = screen(many, "name", 0, width, 20, UNICODE._replace(colour=True))
        assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in painted] == bare and painted != bare


def test_no_height_is_no_screen() -> None:
    assert screen(top(), "name", 0, 80, 0, Style()) == []
