"""A NIC lets go of an address that it had taken from another, and is killed with the last word on disk: the next call gives it back.

The change's record is final by then, or the down's is gone, so nothing of that NIC is unfinished. kill -9 comes before every system call
after that which changes something, and the kernel is asked where the address leads.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.kernel.test_doors_parallel import collect, environment
from tests.support import strace
from tests.support.bootstrap import VENV
from tests.support.netns import ask, wait_until
from tests.support.node import Node
from tests.support.rundoor import rundoor
from tests.support.sample import sample
from tests.support.streams import guests, mac

NETCOMMON = str(VENV / "bin/netcommon")
ADDRESS = "10.0.0.1"  #: of the first guest
TAKER = environment(1, MODE="routed", LINK="main", IP="10.0.0.2", MAC=mac(1))
OTHER = environment(2, MODE="routed", LINK="main", IP="10.0.0.3", MAC=mac(2))
SAMPLED = 4  #: kills of each call in a default run


class Doing(NamedTuple):
    """What lets go of the address, as its process is started."""

    program: str
    variables: Mapping[str, str]
    arguments: Sequence[str]


DOINGS: Mapping[str, Doing] = {
    "change": Doing(NETCOMMON, {}, ("change", "tap1", "--unset", "addresses")),
    "up": Doing("kvm-ifup", TAKER, ("tap1",)),
    "down": Doing("kvm-ifdown", TAKER, ("tap1", "hot-remove")),
}


def run(*words: str) -> None:
    done = subprocess.run([NETCOMMON, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done


def again() -> None:
    assert rundoor("kvm-ifup", OTHER).status == 0


#: Who comes next: none of them has to do with the two NICs.
NEXT: Mapping[str, Callable[[], object]] = {"gc": collect, "another NIC's up": again, "another NIC's repair": lambda: run("repair", "tap2")}


def taken(by: str) -> None:
    """The second guest has the first one's address: by a change besides its own, else as its own."""
    assert rundoor("kvm-ifdown", TAKER, "tap1", "hot-remove").status == 0
    assert rundoor("kvm-ifup", TAKER if by == "change" else {**TAKER, "IP": ADDRESS}).status == 0
    if by == "change":
        run("change", "tap1", f"addresses={ADDRESS}")
    assert leads_to() == ["tap1"]


def leads_to() -> list[str]:
    return [str(route["dev"]) for route in ask("ip", "-j", "route", "show", f"{ADDRESS}/32")]


def last_words(name: str) -> list[strace.Moment]:
    """The moments after the last change of the NIC's own record."""
    for _ in range(2):  # the first one makes folders besides
        taken(name)
        every = strace.moments(*DOINGS[name])
    assert leads_to() == ["tap0"]
    record = f"{TAKER['INTERFACE_UUID']}.json"
    final = max(place for place, moment in enumerate(every) if moment.call.startswith(("rename", "unlink")) and record in moment.what)
    return every[final + 1 :]


@pytest.mark.no_agent("kills the hook's own process, and another call finds what it left")
@pytest.mark.parametrize("name", DOINGS)
def test_killed(node: Node, name: str) -> None:
    """kill -9 before any system call that changes something, once the NIC's own record says all that there is to say."""
    node.router()
    doing, lost, failures = DOINGS[name], 0, []
    with guests(node, "routed", "main"):
        every = last_words(name)
        chosen = sample(every, SAMPLED)
        for moment, following in zip(chosen, itertools.cycle(NEXT), strict=False):
            taken(name)
            status = strace.killed(*doing, moment)
            wait_until(lambda: not strace.orphans(), 20, "what the killed process had started")
            lost += not leads_to()
            NEXT[following]()
            if status != -9 or leads_to() != ["tap0"]:
                failures.append((str(moment), following, status, leads_to()))
    assert failures == []
    assert lost, "no kill came before the address was given back"
