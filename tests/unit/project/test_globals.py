"""Nothing of one node is kept in a module: many nodes may share a process (docs/architecture.md)."""

from __future__ import annotations

import _thread
import ast
from collections.abc import Iterator, Mapping

import pytest

from runtime.modules import load
from tests.support.sources import Source, sources

#: What may run on many nodes in one process; the command line and the doors are a process each.
SHARED = tuple(
    source
    for source in sources("runtime", "netcommon", "netagent")
    if not source.module.startswith(("netcommon.cli", "netcommon.install")) and not source.module.endswith("__main__")
)

#: What is kept all the same, by module and name, and why no node can be told from another by it.
KEPT = {
    ("netcommon.host.nftables.encode", "_heads"): "bytes, by the length that they depend on",
    ("netcommon.operations", "_LOADED"): "our own classes, by the names of their kinds",
    ("netcommon.operations.base", "_DECLARED"): "what a class declares, by the class",
    ("netcommon.operations.base", "_RULES"): "what a class declares, by the class",
    ("netcommon.operations.shared_table", "_held"): "what a table holds, by the operation that it is made from",
    ("netcommon.operations.shared_table", "_made"): "how a table is made, by the operation that it is made from",
    ("runtime.modules", "EXTENSIONS"): "the site's own code: a process has loaded it for all of its nodes, or for none",
    ("runtime.record", "_last_told"): "a value, beside the document that it was read from",
}

#: The functions that remember what they were asked, and why no node can be told from another by it.
REMEMBERING = {
    **dict.fromkeys(
        [("netcommon.host.nftables.expressions", name) for name in ("word", "load", "meta", "compare", "within", "verdict")],
        "bytes, by what they are made of",
    ),
    ("netcommon.host.nftables.encode", "_place"): "bytes, by the names that they are made of",
    ("netcommon.host.simulated.nft", "_behind"): "rules, by the rules that they are made of",
    ("netagent.sync.connection", "_words"): "words, by the words themselves",
}

#: The locks that a module has all the same, and for what the process has, whichever nodes are in it.
LOCKS = {("runtime.modules", "LOADING"): "sys.modules, and EXTENSIONS"}

CHANGING = frozenset(
    ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "remove", "setdefault", "update")
)


def own(tree: ast.Module) -> set[str]:
    """Give the names to which a module assigns something."""
    found: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def changed(tree: ast.Module) -> set[str]:
    """Give those of them that a function changes."""
    names, found = own(tree), set[str]()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                found |= set(node.names)
            elif isinstance(node, ast.Assign | ast.Delete):
                found |= {each.value.id for each in node.targets if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
                found |= {node.func.value.id} if isinstance(node.func.value, ast.Name) else set()
        stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        found -= stored - {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    return found & names


def remembering(tree: ast.Module) -> set[str]:
    """Give the functions that remember what they were asked."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    called = {each.name: {ast.unparse(one).split("(")[0].split(".")[-1] for one in each.decorator_list} for each in functions}
    return {name for name, decorators in called.items() if decorators & {"cache", "lru_cache"}}


def states(value: object) -> Iterator[object]:
    """Give what of a value has a state of its own: an object of ours with attributes, or a lock."""
    if isinstance(value, Mapping):
        value = list(value.values())
    for each in value if isinstance(value, list | tuple | set) else [value]:
        ours = type(each).__module__.split(".", maxsplit=1)[0] in ("runtime", "netcommon", "netagent")
        if isinstance(each, _thread.LockType | _thread.RLock) or (
            ours and not isinstance(each, type | tuple) and getattr(each, "__dict__", None)
        ):
            yield each


def test_what_is_changed_is_known() -> None:
    found = {(source.module, name) for source in SHARED for name in changed(source.tree)}
    assert found == set(KEPT)


def test_which_function_remembers_is_known() -> None:
    assert {(source.module, name) for source in SHARED for name in remembering(source.tree)} == set(REMEMBERING)


@pytest.mark.parametrize("source", SHARED, ids=lambda source: source.module)
def test_no_module_has_an_object_with_a_state(source: Source) -> None:
    """Neither a lock, nor anything that could keep one node's affairs for another."""
    module = load(source.module)
    found = {(source.module, name) for name in own(source.tree) if any(states(getattr(module, name, None)))}
    assert found == {known for known in LOCKS if known[0] == source.module}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A = {}\ndef f(): A[1] = 2", {"A"}),
        ("A: list[int] = []\ndef f(): A.append(1)", {"A"}),
        ("A = 1\ndef f():\n    global A\n    A = 2", {"A"}),
        ("A = {}\ndef f():\n    def g(): del A[1]", {"A"}),
        ("A = {}\ndef f():\n    A = {}\n    A[1] = 2", set()),
        ("A = {}\nA[1] = 2", set()),
    ],
)
def test_a_change_is_seen(text: str, names: set[str]) -> None:
    assert changed(ast.parse(text)) == names


def test_a_state_is_seen() -> None:
    from netagent.record_cache import RecordCache
    from netagent.thread_locks import gates

    assert list(states(RecordCache())) and len(list(states(gates()))) == 192
    assert list(states({"a": 1})) == [] and all(list(states(make())) for make in (_thread.allocate_lock, _thread.RLock))
