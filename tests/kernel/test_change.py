"""netcommon change on guests that never stop sending: nothing of theirs is lost, and what they may send changes at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netcommon.host.api.requests import Request
from netcommon.lifecycle.change import change, setting
from netcommon.lifecycle.context import Call
from netcommon.lifecycle.gc import gc
from netcommon.log import recording
from runtime import wanted
from tests.kernel.test_doors_parallel import environment
from tests.support.agent import agent, seconds_until, watched
from tests.support.bootstrap import ROOT
from tests.support.netns import run, slowness, wait_until
from tests.support.node import Node
from tests.support.routed import ours
from tests.support.rundoor import rundoor
from tests.support.sample import FULL
from tests.support.streams import Streams, guests
from tests.support.tap import Tap

pytestmark = pytest.mark.sampled(2)

CHANGES = 100 if FULL else 20
MANY = 250 if FULL else 40


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    argv = [sys.executable, "-m", "netcommon.cli", *words]
    return subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)


def to(**options: str) -> list[Request]:
    """Changes NIC 0; what was asked of the host."""
    asked: list[Request] = []
    with ours() as node:
        execute = node.host.execute
        node.host.execute = lambda requests, stop: (asked.extend(requests), execute(requests, stop))[1]  # type: ignore[method-assign]
        change(node, environment(0)["INTERFACE_UUID"], Call(recording()[0], node.clock.now() + 20), setting(node, options, ()))
    return asked


def to_and_fro(taps: list[Tap], mode: str, most: int) -> None:
    took: list[float] = []
    with Streams(taps, mode) as streams:
        for turn in range(CHANGES):
            free = turn % 2 == 0
            asked = to(allow_ip_spoofing="yes" if free else "no")
            assert 1 <= len(asked) <= most, asked
            took.append(seconds_until(lambda free=free: streams.passes() == free, 5, "the verdict has changed"))  # type: ignore[misc]
    lost = [sent - heard for sent, heard in zip(streams.sent, streams.heard, strict=True)]
    middle = sorted(took)[len(took) // 2]
    print(f"{CHANGES} changes, {streams.sent[0]} frames: lost {lost[0]}, of the guest beside it {lost[1]}; {len(asked)} requests each")
    print(f"verdict after {middle * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms")
    assert middle < 0.1 * slowness()  # others may have the CPU for a moment
    assert lost[0] <= max(lost[1], 0) and streams.strange == 0


def test_bridged(node: Node) -> None:
    node.bridge("br0")
    with guests(node, "bridged", "br0") as taps:
        to_and_fro(taps, "bridged", 1)


def test_routed(node: Node) -> None:
    node.router()
    with guests(node, "routed", "main") as taps:
        to_and_fro(taps, "routed", 1)


def test_open_vswitch(node: Node, ovs: object) -> None:
    ovs.bridge("ovs0")  # type: ignore[attr-defined]
    with guests(node, "openvswitch", "ovs0") as taps:
        to_and_fro(taps, "openvswitch", 2)


@pytest.mark.parametrize("present", [True, False])
def test_it_ends_by_itself(node: Node, present: bool) -> None:
    """With the agent at the moment; without one at the next hook, of whichever NIC."""
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(MODE="bridged", LINK="br0", IP="")

    def ended() -> bool:
        return seen.records["tap0"].nic.wanted == () and seen.drift() == []

    with watched() as seen:
        assert rundoor("kvm-ifup", nic).status == 0
        if not present:
            with ours() as one:
                change(one, nic["INTERFACE_UUID"], Call(recording()[0], one.clock.now() + 20), setting(one, {"isolated": "yes"}, (), 0.2))
            assert not ended()
            node.tap("tap1")
            wait_until(lambda: rundoor("kvm-ifup", environment(1, MODE="bridged", LINK="br0", IP="")).status == 0 and ended(), 5)
            return
        with agent() as running:
            running.rested()
            with ours() as one:
                due = one.clock.now() + 1.0
                change(one, nic["INTERFACE_UUID"], Call(recording()[0], one.clock.now() + 20), setting(one, {"isolated": "yes"}, (), 1.0))
            wait_until(ended, 10, running.output)
            late = time.monotonic() - due
            print(f"ended {late * 1e3:.0f} ms after its time")
            assert late < 0.5


@pytest.mark.no_agent("starts an agent of its own")
def test_a_nic_whose_end_is_refused_holds_up_no_other(node: Node) -> None:
    """The bridge of one has gone; the other one's end comes while the first waits for its next attempt."""
    nics = [environment(number, MODE="bridged", LINK=f"br{number}", IP="") for number in range(2)]
    for nic in nics:
        node.bridge(nic["LINK"])
        node.tap(nic["INTERFACE"])
        assert rundoor("kvm-ifup", nic).status == 0
    with watched() as seen, agent() as running:
        running.rested()
        with ours() as one:
            for nic, seconds in zip(nics, (1.0, 3.0), strict=True):
                edit = setting(one, {"isolated": "yes"}, (), seconds)
                change(one, nic["INTERFACE_UUID"], Call(recording()[0], one.clock.now() + 20), edit)
            due = one.clock.now() + 3.0
        run("ip", "link", "delete", "br0")
        running.logged("holds still")
        assert time.monotonic() < due, "too late to see anything"
        wait_until(lambda: seen.records["tap1"].nic.wanted == (), 10, running.output)
        assert time.monotonic() - due < 0.5 * slowness()
        assert seen.records["tap0"].nic.wanted != () and nics[0]["INTERFACE_UUID"] in running.status()["alarms"]["ends"]
        node.bridge("br0")
        running.restart()
        wait_until(lambda: seen.records["tap0"].nic.wanted == () and not running.status()["alarms"], 10, running.output)


@pytest.mark.no_agent("its settings would be those of its start")
@pytest.mark.parametrize("way", ["kvm-ifdown", "gc", "repair"])
def test_a_typo_in_the_settings_takes_nothing_from_a_guest(node: Node, way: str) -> None:
    """Ends wait until the settings can be read: who cleans up under broken ones has the defaults."""
    node.bridge("br0")
    settings = Path("/etc/netcommon/config.toml")
    settings.write_text("[nic]\nisolated = true\n")
    nics = [environment(number, MODE="bridged", LINK="br0", IP="") for number in range(2)]
    for nic in nics:
        node.tap(nic["INTERFACE"])
        assert rundoor("kvm-ifup", nic).status == 0
    assert cli("change", "tap0", "rate_in=8mbit", "--for", "1s").returncode == 0

    def call() -> int:
        if way == "kvm-ifdown":
            return rundoor("kvm-ifdown", nics[1], "tap1", "hot-remove").status or 0
        return cli(*{"gc": ("gc",), "repair": ("repair", "--all")}[way]).returncode

    def now() -> tuple[bool, bool]:
        with ours() as one:
            record = one.store.read(nics[0]["INTERFACE_UUID"])
            assert record is not None
            port = one.host.view().port(record.ifindex)
            return port is not None and port.isolated, bool(record.nic.wanted)

    with ours() as one:
        due = wanted.first_end(one.paths)
        assert due is not None
        wait_until(lambda: one.clock.now() > due.monotonic, 5)
    settings.write_text("[nic]\nisolated = true\nbogus = 1\n")
    call()
    assert now() == (True, True)
    settings.write_text("[nic]\nisolated = true\n")
    assert call() == 0
    assert now() == (True, False)


@pytest.mark.no_agent("starts an agent of its own")
def test_the_agent_ends_it_with_the_settings_of_today(node: Node) -> None:
    """Let what `change --all` has done by the settings last without a reload; settings that cannot be read end nothing."""
    node.bridge("br0")
    node.tap("tap0")
    settings, nic = Path("/etc/netcommon/config.toml"), environment(MODE="bridged", LINK="br0", IP="")

    def now() -> tuple[bool, bool]:
        record = seen.records["tap0"]
        port = seen.node.host.view().port(record.ifindex)
        return port is not None and port.isolated, bool(record.nic.wanted)

    with watched() as seen, agent() as running:
        assert rundoor("kvm-ifup", nic).status == 0
        running.rested()
        settings.write_text("[nic]\nisolated = true\n")
        assert cli("change", "--all").returncode == 0
        assert now() == (True, False)
        assert cli("change", "tap0", "rate_in=8mbit", "--for", "1s").returncode == 0
        running.logged("what was changed for a while has ended: web0/0 on tap0: rate_in is none")
        assert now() == (True, False)
        assert cli("change", "tap0", "rate_in=8mbit", "--for", "2s").returncode == 0
        settings.write_text("[nic]\nisolated = true\nbogus = 1\n")
        running.logged("holds still: config.toml:3: unknown setting nic.bogus")
        assert now() == (True, True)
        wait_until(lambda: "ends" in running.status()["alarms"], 5, running.output)


@pytest.mark.no_agent("starts an agent of its own")
def test_the_agent_says_when_it_counted_what_the_settings_would_change(node: Node) -> None:
    """Count at a reload; a change after it makes the number an old one, and its age says so."""
    node.bridge("br0")
    node.tap("tap0")
    assert rundoor("kvm-ifup", environment(MODE="bridged", LINK="br0", IP="")).status == 0

    def said() -> tuple[object, object]:
        found = running.status()["agent"]
        return found["NICs that the settings would change"], found["seconds since those were counted"]

    with agent() as running:
        assert said() == ("not counted yet", "never")
        for number, text in ((1, "[nic]\nisolated = true\n"), (0, "")):
            Path("/etc/netcommon/config.toml").write_text(text)
            before = time.monotonic()
            running.signal(signal.SIGHUP)
            wait_until(lambda number=number: said()[0] == number, 5, running.output)  # type: ignore[misc]
            age = said()[1]
            assert isinstance(age, float) and age <= time.monotonic() - before + 0.1
        Path("/etc/netcommon/config.toml").write_text("[nic]\nisolated = true\n")
        running.signal(signal.SIGHUP)
        wait_until(lambda: said()[0] == 1, 5, running.output)
        counted = time.monotonic()
        assert cli("change", "--all").returncode == 0
        wait_until(lambda: said()[1] >= 0.5, 5, running.output)  # type: ignore[operator]
        old = said()
        assert old[0] == 1 and old[1] >= time.monotonic() - counted - 0.1  # type: ignore[operator]


@pytest.mark.no_agent("starts an agent of its own")
@pytest.mark.parametrize("link", ["lost", "nan", "folder"])
def test_an_agent_that_starts_without_a_good_link(node: Node, link: str) -> None:
    """It finds by the files what ends, and when."""
    node.bridge("br0")
    node.tap("tap0")
    nic = environment(MODE="bridged", LINK="br0", IP="")
    with watched() as seen:
        assert rundoor("kvm-ifup", nic).status == 0
        with ours() as one:
            change(one, nic["INTERFACE_UUID"], Call(recording()[0], one.clock.now() + 20), setting(one, {"isolated": "yes"}, (), 2.0))
            ends = Path(one.paths.wanted, "ends")
            boot = os.readlink(ends).split(" ")[0]
        ends.unlink()
        if link == "nan":
            ends.symlink_to(f"{boot} nan 0")
        elif link == "folder":
            ends.mkdir()
        with agent() as running:
            wait_until(lambda: seen.records["tap0"].nic.wanted == () and seen.drift() == [], 10, running.output)


@pytest.mark.no_agent("it would end them before the hook is called")
def test_ends_of_many_others_hold_no_hook(node: Node) -> None:
    """Leave due what the hook of a new NIC has no time for; gc ends it."""
    node.bridge("br0")
    nics = [environment(number, MODE="bridged", LINK="br0", IP="") for number in range(MANY + 2)]
    for nic in nics:
        node.tap(nic["INTERFACE"])
    for nic in nics[:MANY]:
        assert rundoor("kvm-ifup", nic).status == 0
    with ours() as one:
        for nic in nics[:MANY]:
            change(one, nic["INTERFACE_UUID"], Call(recording()[0], one.clock.now() + 20), setting(one, {"isolated": "yes"}, (), 60.0))
        alone = rundoor("kvm-ifup", nics[MANY])
        for uuid, there in wanted.all_of(one.paths, []).items():
            wanted.write(one.paths, uuid, wanted.Wanted(tuple(over(entry) for entry in there.local)))
        hook = rundoor("kvm-ifup", nics[MANY + 1])
        left = sum(bool(record.nic.wanted) for record in one.store.all()[0])
        print(f"a hook alone {alone.seconds:.2f} s, with {MANY} ends due {hook.seconds:.2f} s: {left} left")
        assert hook.status == alone.status == 0 and left < MANY
        assert hook.seconds < alone.seconds + 0.7 * slowness()
        gc(one, Call(recording()[0], one.clock.now() + 60))
        assert not any(record.nic.wanted for record in one.store.all()[0]) and wanted.first_end(one.paths) is None


def over(entry: wanted.Entry) -> wanted.Entry:
    """Give the option with an end that has come by both clocks."""
    assert entry.end is not None
    return entry._replace(end=entry.end._replace(until=entry.end.since))
