"""What ruff cannot hold of the project's style."""

from __future__ import annotations

import ast
import re

import pytest

from runtime.errors import Interrupted
from tests.support.bootstrap import ROOT
from tests.support.sources import Source, nodes, sources

PRODUCT = sources("runtime", "netcommon", "netagent", "netregistry", "mockcloud")
HOOKS = sources("hooks")
TESTS = sources("tests", "examples")

#: Most files have below 300 lines. Past this one is two: but a module more costs each hook a tenth of a millisecond.
LONGEST = 500

#: Lines that need no docstring.
SHORT = 6

#: Words of unfinished work, put together so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
GIVING_UP = {"skip", "skipif", "xfail", "importorskip"}


@pytest.mark.parametrize("source", PRODUCT + HOOKS + TESTS, ids=lambda source: source.place)
def test_every_file(source: Source) -> None:
    """Short, finished, with a docstring and annotations that cost nothing at run time."""
    lines = source.text.splitlines()
    limit = LONGEST if source in PRODUCT + HOOKS else 2 * LONGEST
    assert len(lines) <= limit
    assert [number for number, line in enumerate(lines, 1) if UNFINISHED.search(line)] == []
    if source.path.suffix == ".py" and source.tree.body:
        assert ast.get_docstring(source.tree), "a module says what it is about"
        if len(source.tree.body) > 1:
            assert "from __future__ import annotations" in source.text


def test_product_files_are_about_one_noun() -> None:
    """A few may be longer; most stay below 300 lines."""
    long = [source.place for source in PRODUCT if len(source.text.splitlines()) > 300]
    assert len(long) <= len(PRODUCT) // 10, long


@pytest.mark.parametrize("source", PRODUCT, ids=lambda source: source.module)
def test_public_names_are_explained(source: Source) -> None:
    """Every public class and module-level function says what it is; what is a few lines long may speak for itself."""
    silent = []
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        if not ast.get_docstring(node) and (node.end_lineno or 0) - node.lineno > SHORT:
            silent.append(f"{source.place}:{node.lineno}: {node.name}")
    assert silent == []


@pytest.mark.parametrize("source", TESTS, ids=lambda source: source.place)
def test_tests_do_not_give_up_or_doze(source: Source) -> None:
    """No skipped test, none that is expected to fail, none that hopes that a second is long enough.

    tests/lab is no test: it lets a real cluster run and measures by the clock.
    """
    found = []
    dozes = [node for node in nodes(source) if dozing(node)]
    polling = [node for loop in nodes(source) if dozes and isinstance(loop, ast.While) for node in ast.walk(loop) if node in dozes]
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and node.attr in GIVING_UP and "pytest" in ast.unparse(node):
            found.append(f"{source.place}:{node.lineno}: {ast.unparse(node)}")
    if source.place.startswith("tests/") and not source.place.startswith("tests/lab/"):
        found += [f"{source.place}:{ast.unparse(node)}" for node in dozes if node not in polling]
    assert found == []


def dozing(node: ast.AST) -> bool:
    """Whether it is a call of sleep: in a while loop it is polling; up to 10 ms, it lets other threads run."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("time.sleep", "sleep"):
        return False
    length = node.args[0]
    return not (isinstance(length, ast.Constant) and isinstance(length.value, int | float) and length.value <= 0.01)


@pytest.mark.parametrize("source", HOOKS, ids=lambda source: source.place)
def test_a_hook_runs_isolated(source: Source) -> None:
    """-I and -S: nobody's PYTHONPATH, site-packages or working directory gets into a root process."""
    assert source.text.startswith("#!/usr/bin/python3 -IS\n")
    assert source.path.stat().st_mode & 0o111 == 0o111


def test_commands_are_executable() -> None:
    for name in ("tests/run", "tests/setup", "tests/reliability", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111 == 0o111


#: Who goes on after whatever ends a call (Interrupted, Ctrl-C), with the reason.
ENDS = {
    "netcommon.cli": "the process dies of the signal",
    "netcommon.doors.call": "the door's answer, and what follows it",
    "netcommon.doors.xen": "a down that fails nothing",
    "netcommon.lifecycle.up": "the failure is raised when the other NICs have theirs back, or the NIC is up",
    "netcommon.lifecycle.left_out": "the NIC is up, and nothing more is tried; as in bring_up",
    "netcommon.lifecycle.change": "the failure is raised when the other NICs have theirs back, or the change holds",
    "netcommon.cli.commands.top": "a thread's failure is raised by whoever takes its result",
}


def swallows(handler: ast.ExceptHandler) -> bool:
    """Tell whether ``handler`` takes what is no Exception, and does not raise it again."""
    named = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {"BaseException"}
    again = any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))
    return bool(named & {"BaseException", "Interrupted"}) and not again


def test_nothing_swallows_the_end_of_a_call() -> None:
    """Whoever took a signal for one more failure would go on without a limit: the time of a call ends once."""
    assert issubclass(Interrupted, BaseException) and not issubclass(Interrupted, Exception)
    found = {source.module for source in PRODUCT for node in nodes(source) if isinstance(node, ast.ExceptHandler) and swallows(node)}
    assert found == set(ENDS)
    left = [
        f"{source.module}:{end.lineno}"
        for source in PRODUCT
        for node in nodes(source)
        if isinstance(node, ast.Try)
        for statement in node.finalbody
        for end in ast.walk(statement)
        if isinstance(end, ast.Return)
    ]
    assert left == [], "a return in finally drops whatever was raised"
