"""Where the events of the simulated node differ from those of the real one, and why.

A row holds for steps of tests. A test that has such a step, and does not need the row, fails, but for what happens by chance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Told = tuple[str, tuple[object, ...]]

REAL, SIMULATED = "the real node", "the simulated node"


class Row(NamedTuple):
    """An event that ``side`` alone tells in ``steps`` of ``tests``: expressions, for names as "test_links.py::test_a (world)"."""

    side: str
    event: Told
    tests: str
    steps: str
    why: str
    by_chance: bool = False  #: it happens in some runs only, or in some of the steps
    again: bool = False  #: it is told once more, so only behind a step in which the simulated node has told it

    def holds(self, test: str, step: str) -> bool:
        return bool(re.fullmatch(self.tests, test) and re.fullmatch(self.steps, step))


def port(name: str) -> Told:
    """Give what is told of a bridge's port."""
    return "Changed", (("index", name),)


OF_THE_NODE: Told = ("Changed", ())
OF_CHAIN: Told = ("Changed", (("index", 5),))  #: of tests/contract/test_nft.py: it is named after a device


class Depth(NamedTuple):
    """A part of what a mock node, or its registry, has in the end, in which depths differ: an expression for the place of it."""

    place: str
    why: str


#: Of tests/contract/test_depths.py: times and revisions are left out there.
DEPTHS: Sequence[Depth] = (
    Depth(
        r"record .*/operations/[0-9]+ [a-z]+(-[a-z]+)*-table/now",
        "of several NICs that share a table one has made it: in another process the first that is put together again",
    ),
    Depth(r"reports/.*/about/interfaces.*", "a device that is no hardware is of some kind, and no NIC of the node"),
)

#: Tests whose events are not compared. Rules by text are values on the simulated node, where nft(8) makes sets and elements of them.
#: Rows of others' limits, and transactions, are the real node's alone: these tests do more there.
NOT_COMPARED = re.compile(
    r"test_rules_by_text\.py::.*"
    r"|test_side_by_side\.py::test_ports_go_in_few_transactions \(ovs_world\)"
    r"|test_ovs_limits\.py::test_(limits_(of|that)_others_.*|what_cannot_come_back|a_qos_of_ours_that_another_port_uses) \(ovs_world\)"
)

TABLE: Sequence[Row] = (
    Row(
        SIMULATED,
        OF_THE_NODE,
        r"test_links\.py::test_contradicting_changes_come_in_order \(world\)",
        "execute",
        "the kernel tells of an address of IPv6 some time after the device is up, and not if it is down again by then",
        by_chance=True,
    ),
    Row(
        REAL,
        OF_THE_NODE,
        r"test_links\.py::test_a_full_bridge \(world\)",
        "execute|end",
        "Linux takes the parts of one message in an order of its own, and has set the device up when the bridge refuses it",
        by_chance=True,
    ),
    Row(
        REAL,
        OF_CHAIN,
        r"test_nft\.py::test_a_chain_keeps_its_hook \(world\)",
        "execute",
        "Linux 6.1 takes another hook without a word, and tells of the chain, which it leaves; the simulated node refuses it",
        by_chance=True,
    ),
    *(
        Row(REAL, port(tap), r"test_ports\.py::test_what_was_learnt_goes \(world\)", "execute", "no simulated bridge has timers")
        for tap in ("tap0", "tap1")
    ),
    *(
        Row(
            SIMULATED,
            ("Changed", (("name", name),)),
            r"test_.*\.py::.* \(ovs_world\)",
            "ovs_bridge|ovs_port|execute|execute_each|settle|end",
            "ovsdb-server tells of a row as it is when it gets to it: a new one has its number by then, or is told of once more",
            by_chance=True,
        )
        for name in (*(f"tap{number}" for number in range(10)), *(f"ovs{end}" for end in "0129fgh"), "fake0", "nothing")
    ),
    *(
        Row(
            REAL,
            (how, (("index", tap),)),
            tests,
            ".*",
            "ovs-vswitchd puts limits on a device once more when it has written down what it has done",
            by_chance=True,
            again=True,
        )
        for how in ("Gone", "Changed")
        for tap, tests in (
            ("tap0", r"test_ovs_limits\.py::.* \(ovs_world\)"),
            ("tap1", r"test_side_by_side\.py::test_ports_with_limits_and_anothers \(ovs_world\)"),
        )
    ),
    Row(
        REAL,
        port("ovs0"),
        r"test_flows\.py::test_a_restart_takes_them_away \(ovs_world\)",
        "execute|end",
        "the queue of a bridge's own device is another one when ovs-vswitchd has taken it up again",
        by_chance=True,
    ),
)
