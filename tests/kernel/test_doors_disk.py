"""A node whose /run is full, or cannot be written: an up is refused with the host as it was, a down cleans up all the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import environment
from tests.support.bootstrap import VENV
from tests.support.netns import run
from tests.support.node import Node
from tests.support.room import room
from tests.support.rundoor import BASE, Outcome, execute, rundoor
from tests.support.snapshot import diff, snapshot

pytestmark = pytest.mark.sampled(2)

KINDS = {"routed": {}, "bridged": {"MODE": "bridged", "LINK": "br0", "IP": ""}}


@contextlib.contextmanager
def readonly(place: str = "/run") -> Iterator[None]:
    """As after an error of the medium."""
    run("mount", "-o", "remount,ro", place)
    try:
        yield
    finally:
        run("mount", "-o", "remount,rw", place)


PLIGHTS: dict[str, Callable[..., contextlib.AbstractContextManager[None]]] = {"full": partial(room, 0, 0), "readonly": readonly}
NAMES = ["full", pytest.param("readonly", marks=pytest.mark.no_agent("no /run becomes read-only while an agent has a file in it open"))]


@pytest.fixture
def prepared(node: Node) -> Node:
    """One NIC of each kind has been up and down: the folders are there."""
    node.bridge("br0")
    node.tap("tap0")
    for changes in KINDS.values():
        assert rundoor("kvm-ifup", environment(**changes)).status == 0
        assert rundoor("kvm-ifdown", environment(**changes), "tap0", "hot-remove").status == 0
    return node


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plight", NAMES)
def test_up_is_refused_and_nothing_was_touched(prepared: Node, plight: str, kind: str) -> None:
    """And the next one, with room again, does it."""
    nic, before = environment(**KINDS[kind]), snapshot()
    with PLIGHTS[plight]():
        outcome = rundoor("kvm-ifup", nic)
        after = snapshot(("/etc/netcommon",))
    assert outcome.status in (69, 75) and "/run/netcommon" in outcome.stderr, outcome
    assert diff(snapshot(("/etc/netcommon",)), after) == []
    assert diff(before, snapshot()) == []
    assert rundoor("kvm-ifup", nic).status == 0
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plight", NAMES)
def test_down_takes_the_guest_off_the_network(prepared: Node, plight: str, kind: str) -> None:
    """What is in the kernel goes; the record goes with the next down where it could not be removed, and that is said."""
    nic, before, network = environment(**KINDS[kind]), snapshot(), snapshot(())
    assert rundoor("kvm-ifup", nic).status == 0
    with PLIGHTS[plight]():
        outcome = rundoor("kvm-ifdown", nic, "tap0", "hot-remove")
        kept = os.path.exists(f"/run/netcommon/nics/{nic['INTERFACE_UUID']}.json")
        told = [f"+ links: tap0: ifalias = {nic['INTERFACE_UUID']} /down"]  # what its record cannot tell
        assert diff(network, snapshot(())) == (told if kept else []), outcome
    assert outcome.status in ((69, 75) if kept else (0,)), outcome
    assert outcome.status == 0 or "/run/netcommon" in outcome.stderr, outcome
    assert rundoor("kvm-ifdown", nic, "tap0", "hot-remove").status == 0
    assert diff(before, snapshot()) == []


def cli(*words: str) -> Outcome:
    return execute([str(VENV / "bin/netcommon"), *words], BASE)


@pytest.mark.parametrize("place", ["/run", "/var/lib"])
@pytest.mark.parametrize("plight", NAMES)
def test_a_change_that_cannot_be_written_is_foretold(prepared: Node, plight: str, place: str) -> None:
    """Its dry run ends as it does, and so does that of one that has nothing to write."""
    nic = environment(**KINDS["bridged"])
    assert rundoor("kvm-ifup", nic).status == 0
    before = snapshot()
    for kept in ((), ("static_fdb=yes",)):
        if kept:
            assert cli("change", "tap0", *kept).status == 0
            before = snapshot()
        with PLIGHTS[plight](place=place):
            for words in (("isolated=yes",), ("isolated=yes", "--for", "1h"), ("--all",)):
                foretold = cli("change", *([] if "--all" in words else ["tap0"]), *words, "--dry-run")
                outcome = cli("change", *([] if "--all" in words else ["tap0"]), *words)
                assert foretold.status == outcome.status == (0 if "--all" in words else 69), (words, foretold, outcome)
                assert outcome.status == 0 or place in foretold.stderr, foretold
        assert diff(before, snapshot()) == []


@pytest.mark.no_agent("no /run becomes read-only while an agent has a file in it open")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_joins_a_nic_again_whose_down_could_not_be_written(prepared: Node, kind: str) -> None:
    """Its record says that it is up; its device tells that it is not. gc, another down, or the next up cleans up."""
    nic, before, network = environment(**KINDS[kind]), snapshot(), snapshot(())
    for last in (("gc",), ("down", "--force", "tap0"), ("repair",)):
        assert rundoor("kvm-ifup", nic).status == 0
        joined = snapshot(())
        with readonly():
            outcome = cli("down", "--force", "tap0")
            assert outcome.status == 69 and "Read-only" in outcome.stderr, outcome
        assert os.path.exists(f"/run/netcommon/nics/{nic['INTERFACE_UUID']}.json")
        apart = diff(network, snapshot(()))
        assert apart == [f"+ links: tap0: ifalias = {nic['INTERFACE_UUID']} /down"]
        checked = cli("check", "tap0")
        assert checked.status == 1 and "was taken down" in checked.stdout, checked
        assert "up, taken down" in cli("list").stdout and "was taken down" in cli("explain", "tap0").stdout
        for words in (("repair",), ("repair", "tap0"), ("change", "tap0", "isolated=yes"), ("change", "--all")):
            cli(*words)
            assert diff(network, snapshot(())) == apart, words
        if last == ("repair",):
            assert rundoor("kvm-ifup", nic).status == 0
            assert diff(joined, snapshot(())) == []
            assert cli("check").status == 0
            assert cli("down", "--force", "tap0").status == 0
        else:
            assert cli(*last).status == 0
        assert diff(before, snapshot()) == []


@pytest.mark.no_agent("no /run becomes read-only while an agent has a file in it open")
def test_a_device_that_bears_no_mark_is_not_marked_down(prepared: Node) -> None:
    """What then keeps the NIC from being joined again is said."""
    Path("/etc/netcommon/config.toml").write_text("[ganeti]\ntap_alias = false\n")
    nic, network = environment(**KINDS["bridged"]), snapshot(())
    assert rundoor("kvm-ifup", nic).status == 0
    with readonly():
        outcome = cli("down", "--force", "tap0")
    assert outcome.status == 69 and "repeat netcommon down" in outcome.stderr, outcome
    assert diff(network, snapshot(())) == []
    assert cli("down", "--force", "tap0").status == 0
    assert not os.path.exists(f"/run/netcommon/nics/{nic['INTERFACE_UUID']}.json")
