"""Check that who hears a registry's commits sees what is in force twice, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netregistry.stores.base import Changed
from tests.support.witness import Judge

ONE, OTHER = "nic1", "nic2"


def seen(node: str, nic: str, state: str, **more: Any) -> Changed:
    return Changed(f"seen/{node}/{nic}", json.dumps({"nic": nic, "state": state, "mac": f"mac of {nic}", "ip": "", **more}).encode())


def judged(*commits: list[Changed]) -> Judge:
    judge = Judge()
    for revision, changes in enumerate([[Changed("alive/a", b"{}"), Changed("alive/b", b"{}")], *commits], 1):
        judge.commit(revision, changes)
    return judge


def test_a_move_is_none() -> None:
    there = [[seen("a", ONE, "running")], [seen("b", ONE, "incoming")], [seen("a", ONE, "stopped")], [seen("b", ONE, "running")]]
    judge = judged(*there, [Changed("x", b"1")])
    assert (judge.wrong, judge.moves, judge.moving, judge.commits) == ([], 1, 1, 6)


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        ([[seen("a", ONE, "running")], [seen("b", ONE, "running")]], "revision 3: NIC nic1 runs on a and b"),
        ([[seen("a", ONE, "running", mac="m")], [seen("b", OTHER, "running", mac="m")]], "revision 3: m is in force for nic1 and nic2"),
        ([[seen("a", ONE, "running", ip="i"), seen("a", OTHER, "running", ip="i")]], "revision 2: i is in force for nic1 and nic2"),
    ],
    ids=["a NIC", "a MAC", "an address"],
)
def test_what_is_twice_is_said(commits: list[list[Changed]], said: str) -> None:
    assert judged(*commits).wrong == [said]


def test_a_target_that_tells_first_is_a_move_and_for_how_long_is_said() -> None:
    times = iter([10.0, 11.0, 12.0])
    judge = Judge(lambda: next(times))
    there = [[seen("a", ONE, "running")], [seen("b", ONE, "incoming")], [seen("b", ONE, "running")], [seen("a", ONE, "stopped")]]
    for revision, changes in enumerate([[Changed("alive/a", b"{}"), Changed("alive/b", b"{}")], *there], 1):
        judge.commit(revision, changes)
    assert (judge.wrong, judge.longest, judge.moves) == ([], 1.0, 1)
    judge.commit(6, [seen("a", ONE, "running")])
    assert judge.wrong == ["revision 6: NIC nic1 runs on a and b"], "it was no move"


def test_a_routed_nic_is_announced_by_nobody() -> None:
    there = [[seen("a", ONE, "running", mode="routed")], [seen("b", ONE, "running", mode="routed")]]
    assert judged(*there).wrong == []
    assert judged(*there, [seen("c", ONE, "running", mode="routed"), Changed("alive/c", b"{}")]).wrong == [
        "revision 4: NIC nic1 runs on a and b and c"
    ]


def test_what_a_dead_node_has_counts_when_it_is_back() -> None:
    there = [[seen("a", ONE, "running")], [Changed("alive/a", None)], [seen("b", ONE, "running")]]
    assert judged(*there).wrong == []
    assert judged(*there, [Changed("alive/a", b"{}")]).wrong == ["revision 5: NIC nic1 runs on a and b"]


def test_how_long_it_was_twice_is_said() -> None:
    times = iter([10.0, 12.5])
    judge = Judge(lambda: next(times))
    for revision, changes in enumerate(
        [
            [Changed("alive/a", b"{}"), Changed("alive/b", b"{}")],
            [seen("a", ONE, "running")],
            [seen("b", ONE, "running")],
            [seen("b", ONE, "running", since=1)],
            [seen("a", ONE, "stopped")],
        ]
    ):
        judge.commit(revision, changes)
    assert (judge.longest, judge.moves, len(judge.wrong)) == (2.5, 1, 2)


def test_what_was_let_go_is_free() -> None:
    there = [[seen("a", ONE, "running", ip="i")], [Changed("seen/a/nic1", None)], [seen("b", OTHER, "running", ip="i")]]
    assert judged(*there).wrong == []
