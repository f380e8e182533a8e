"""Find what is substituted in a run of a mock cloud, by what is loaded and run: nothing but the modules that test_replaced names.

The run has instances through every task there is, with agents, hooks and the registry. How much of a node's code it runs is stated in
docs/mockcloud.md, and measured by a full run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mockcloud.replaced import locks, pool
from netagent.reconcile import keyed_pool
from netcommon.lifecycle import up
from tests.support.bootstrap import ROOT
from tests.support.mock_run import goes
from tests.support.rooms import PRODUCT
from tests.support.run_trace import calls, foreign, lines, of_functions
from tests.support.sample import FULL
from tests.unit.mockcloud.test_replaced import REPLACED

#: What puts a mock node together: it gives the agent what is replaced, and is told by the simulated host what is asked of it.
TOGETHER = {"mockcloud.node"}
SEEDS = 5  #: drawn histories of a full run, besides the tasks
#: Of whom the mock cloud is told what happens: the registry's log and clock are a cloud's.
NODES_CODE = ("netagent", "netcommon", "runtime")
COUNTED = {"the agent": "netagent", "its side of the registry": "netagent.sync", "the lifecycle": "netcommon.lifecycle"}
#: Of the agent, what a mock node has replaced (test_replaced), so that none of it can be run.
REAL_ONLY = (
    *("netagent.__main__", "netagent.loop", "netagent.service", "netagent.logs", "netagent.scripts", "netagent.script_launcher"),
    *("netagent.socket_server", "netagent.hooks.server", "netagent.sources", "netagent.thread_locks", "netagent.allocator"),
)


def substituted(found: set[tuple[str, str]]) -> set[str]:
    """Give what a node's code has called and that is none of a real node's: what is named by its name, anything else by its module's."""
    callees = {callee for caller, callee in found if caller.partition(".")[0] in NODES_CODE and callee.partition(".")[0] == "mockcloud"}
    return {next((name for name in REPLACED if f"{callee}.".startswith(f"{name}.")), callee) for callee in callees}


def hosts(found: set[tuple[str, str]]) -> set[str]:
    """Give what was called of a kernel and of a switch, simulated or by sockets."""
    callees = {callee for _caller, callee in found}
    return {
        name
        for name in callees
        if re.fullmatch(r".*\.simulated\..*|netcommon\.host\.(linux\.(host|sockets|views)|.*\.(socket|client))", name)
    }


def test_a_run_calls_what_is_named_and_nothing_else_in_its_place(tmp_path: Path) -> None:
    """In a process of its own: the one that tests are run in has things of theirs."""
    program = (sys.executable, "-m", "tests.support.mock_run", str(tmp_path))
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    said = json.loads(done.stdout)
    found = {(caller, callee) for caller, callee in said["calls"]}
    named = {name for name in REPLACED if name.startswith("mockcloud.")}
    assert substituted(found) - TOGETHER == named
    assert {name.rpartition(".")[0] for name in hosts(found)} == {"netcommon.host.simulated"}
    assert said["foreign"] == []


# -- that it would be seen


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def another(*_given: object, **_named: object) -> None:
    """Stand for a function of the product."""


SWAPS: dict[str, tuple[Any, str, Any]] = {
    "a function": (up, "up", another),
    "an import": (keyed_pool, "threading", ModuleType("threading")),
    "a method": (keyed_pool.Pool, "put", another),
    "a method by another of the product": (keyed_pool.Pool, "put", pool.InlinePool.put),
    "a class": (keyed_pool, "Pool", pool.InlinePool),
    "a property": (keyed_pool.Pool, "waiting", property(another)),
}


@pytest.mark.parametrize(("owner", "name", "value"), SWAPS.values(), ids=SWAPS)
def test_what_is_swapped_is_seen(owner: Any, name: str, value: Any) -> None:
    before = foreign(sys.modules)
    with swapped(owner, name, value):
        found = set(foreign(sys.modules)) - set(before)
        assert any(each.startswith(f"{getattr(owner, '__module__', owner.__name__)}.") and name in each for each in found), found
    assert foreign(sys.modules) == before


def test_a_module_in_the_place_of_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("netagent.reconcile.keyed_pool")
    made.__dict__.update({name: value for name, value in vars(keyed_pool).items() if name != "__file__"})
    monkeypatch.setitem(sys.modules, made.__name__, made)
    assert any(each.startswith("netagent.reconcile.keyed_pool is") for each in foreign(sys.modules))


def test_one_more_that_is_given_to_an_agent_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever hands it over, and however it is called."""
    source = Path(locks.__file__).read_text(encoding="utf-8")
    path = ROOT / "mockcloud" / "ninth.py"  # no file of this name is made: the code says that it is of there
    made: dict[str, Any] = {"__name__": "mockcloud.ninth"}
    exec(compile(source, str(path), "exec"), made)  # noqa: S102 - of this repository
    monkeypatch.setattr("mockcloud.node.Table", made["Table"])
    with calls() as found:
        goes(tmp_path)
    assert "mockcloud.ninth" in substituted(found)


# -- how much of a node's code runs


def covered(found: dict[str, set[int]], prefix: str) -> tuple[int, int]:
    """Give how many lines of functions were run, and how many there are, of what a mock node has."""
    run = there = 0
    for source in PRODUCT:
        inside = source.module == prefix or source.module.startswith(f"{prefix}.")
        if inside and not any(source.module == each or source.module.startswith(f"{each}.") for each in REAL_ONLY):
            whole = of_functions(source.path)
            run += len(found.get(source.module, set()) & whole)
            there += len(whole)
    return run, there


def percent(found: dict[str, set[int]], prefix: str) -> int:
    run, there = covered(found, prefix)
    return round(100 * run / there)


def stated() -> dict[str, int]:
    """Give what docs/mockcloud.md says."""
    text = (ROOT / "docs" / "mockcloud.md").read_text(encoding="utf-8")
    return {what: int(number) for what, number in re.findall(r"^\| (.+?) \| ([0-9]+) % \|$", text, re.MULTILINE)}


def test_the_figures_are_of_what_is_counted() -> None:
    assert stated().keys() == COUNTED.keys()
    names = {source.module for source in PRODUCT}
    assert all(any(name == each or name.startswith(f"{each}.") for name in names) for each in (*COUNTED.values(), *REAL_ONLY))


def test_as_much_as_is_stated_is_run(tmp_path: Path) -> None:
    """In an ordinary run of the tests, with the tasks alone: at least half of it."""
    with lines(COUNTED.values()) as found:
        goes(tmp_path, SEEDS if FULL else 0)
    for what, prefix in COUNTED.items():
        measured = percent(found, prefix)
        print(f"mockcloud: {measured} % of the lines of functions of {what} ({prefix}) are run")
        least, most = (stated()[what] - 2, stated()[what] + 2) if FULL else (stated()[what] // 2, 100)
        assert least <= measured <= most, f"{what}: {measured} %, docs/mockcloud.md says {stated()[what]}"
