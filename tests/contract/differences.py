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

    def holds(self, test: str, step: str) -> bool:
        return bool(re.fullmatch(self.tests, test) and re.fullmatch(self.steps, step))


def changed(name: str) -> Told:
    """Give what is told of a device."""
    return "Changed", (("index", name), ("name", name))


def port(name: str) -> Told:
    """Give what is told of a bridge's port."""
    return "Changed", (("index", name),)


def settings(name: str) -> Told:
    """Give what is told of the settings of a device."""
    return "Changed", (("index", name), ("settings", name))


def named(name: str) -> Told:
    """Give what is told of a row of Open vSwitch's database."""
    return "Changed", (("name", name),)


OF_THE_NODE: Told = ("Changed", ())

#: Tests that end at once on the simulated node: they are about how the real one does it.
ALONE = (
    "test_side_by_side.py::test_ports_go_in_few_transactions (ovs_world)",
    "test_ovs_limits.py::test_limits_that_others_have_changed_meanwhile (ovs_world)",
    "test_ovs_limits.py::test_what_cannot_come_back (ovs_world)",
)

#: Files whose events are not compared yet: rules by text are values on the simulated node, where nft(8) makes sets and elements of them.
NOT_YET = ("test_rules_by_text.py",)

OVS_TESTS = r".* \(ovs_world\)"

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
    *(
        Row(REAL, port(tap), r"test_ports\.py::test_what_was_learnt_goes \(world\)", "execute", "no simulated bridge has timers")
        for tap in ("tap0", "tap1")
    ),
    *(
        Row(REAL, event, OVS_TESTS, "ovs_bridge", "the device of the userspace datapath itself, which no NIC is about")
        for event in (changed("ovs-netdev"), settings("ovs-netdev"), ("Came", (("base", "ovs-netdev"), ("name", "ovs-netdev"))))
    ),
    *(
        Row(SIMULATED, named(name), OVS_TESTS, ".*", "ovsdb-server may tell of a new row and of its number at once", by_chance=True)
        for name in ("tap0", "tap1", "tap2", "ovs0", "ovs1", "fake0", "ovsf")
    ),
    *(
        Row(
            REAL,
            event,
            r"test_ovs_(take|changes)\.py::test_(taken_where_it_is|given_back_as_it_was_found|new_vlans_keep_the_rows) \(ovs_world\)",
            "execute|end",
            "others have limited the port, which no simulated row has: vswitchd puts that on the device anew with each change",
            by_chance=True,
        )
        for event in (port("tap0"), ("Gone", (("index", "tap0"),)))
    ),
    *(
        Row(
            side,
            event,
            r"test_(ovs_limits|side_by_side)\.py::.* \(ovs_world\)",
            ".*",
            "when vswitchd makes the qdiscs of a port's limits anew is its own affair, also of ports that others have limited",
            by_chance=True,
        )
        for side in (REAL, SIMULATED)
        for tap in ("tap0", "tap1", "tap2", "tap3")
        for event in (port(tap), ("Gone", (("index", tap),)), named(tap))
    ),
    *(
        Row(
            SIMULATED,
            ("Gone", (("name", tap),)),
            r"test_side_by_side\.py::test_ports_with_limits_and_anothers \(ovs_world\)",
            "execute_each",
            "seen, and not explained yet: of ports with limits that go in one call the database's monitor tells nothing",
        )
        for tap in ("tap0", "tap2", "tap3")
    ),
    *(
        Row(
            REAL,
            event,
            r"test_flows\.py::test_a_restart_takes_them_away \(ovs_world\)",
            ".*",
            "ovs-vswitchd makes the device of its bridge anew when it starts, some time after it has said that it is ready",
            by_chance=True,
        )
        for event in (port("ovs0"), changed("ovs0"))
    ),
)
