"""See what a run of product code consists of: who calls whom across packages, which lines are run, and what is not what its source says.

By the interpreter's own tracing (sys.setprofile, sys.settrace) and by what modules hold, whatever it is called: no list of names.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.support.bootstrap import ROOT
from tests.support.rooms import PRODUCT

FOLDER = f"{ROOT}/"
PACKAGES = ("runtime", "netcommon", "netagent", "netregistry", "mockcloud")


@functools.cache
def module_of(file: str) -> str:
    """Give the product's module of a source file, "" for none."""
    if not file.startswith(FOLDER) or not file.endswith(".py"):
        return ""
    name = file[len(FOLDER) : -3].replace("/", ".").removesuffix(".__init__")
    return name if name.partition(".")[0] in PACKAGES else ""


@contextmanager
def calls() -> Iterator[set[tuple[str, str]]]:
    """Give which module of the product has called which one of another package, while it lasts."""
    found: set[tuple[str, str]] = set()

    def profile(frame: FrameType, event: str, _given: object) -> None:
        if event != "call" or frame.f_back is None:
            return
        callee = module_of(frame.f_code.co_filename)
        if callee and not frame.f_code.co_name.startswith("<gen"):
            caller = module_of(frame.f_back.f_code.co_filename)
            if caller and caller != callee:
                found.add((caller, callee))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


@contextmanager
def lines(wanted: Iterable[str]) -> Iterator[dict[str, set[int]]]:
    """Give by module the lines that are run while it lasts, of modules that are, or are in, the ``wanted`` ones."""
    prefixes = tuple(wanted)
    found: dict[str, set[int]] = {}
    looked: dict[CodeType, set[int]] = {}  # lines of it that were not run yet

    def local(frame: FrameType, event: str, _given: object) -> Any:
        left = looked[frame.f_code]
        if event == "line" and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            found[module_of(frame.f_code.co_filename)].add(frame.f_lineno)
        return local if left else None

    def traced(frame: FrameType, event: str, _given: object) -> Any:
        code = frame.f_code
        left = looked.get(code)
        if left is None:
            module = module_of(code.co_filename)
            inside = any(module == each or module.startswith(f"{each}.") for each in prefixes)
            left = looked[code] = own_lines(code) if inside else set()
            if inside:
                found.setdefault(module, set())
        return local if left else None

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield found
    finally:
        sys.settrace(before)


def own_lines(code: CodeType) -> set[int]:
    """Give the lines of a function that can be run, without its head: that is run where it is defined."""
    return {line for _start, _end, line in code.co_lines() if line is not None and line != code.co_firstlineno}


def of_functions(file: Path) -> set[int]:
    """Give the lines of all functions of a source file."""

    def walk(code: CodeType) -> Iterator[int]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                if each.co_flags & inspect.CO_OPTIMIZED:  # a function's, and no class'
                    yield from own_lines(each)
                yield from walk(each)

    return set(walk(compile(file.read_text(encoding="utf-8"), str(file), "exec")))


def foreign(modules: Mapping[str, ModuleType]) -> list[str]:
    """Name what loaded modules of the product hold that is not what their sources say: another function, class or import."""
    found: list[str] = []
    for source in PRODUCT:
        module = modules.get(source.module)
        if module is None or module_of(str(source.path)) != source.module:
            continue
        if str(getattr(module, "__file__", "")) != str(source.path):
            found.append(f"{source.module} is {getattr(module, '__file__', module)}")
            continue
        found += _foreign(module, source.tree, str(source.path), modules)
    return found


def _foreign(module: ModuleType, tree: ast.Module, file: str, modules: Mapping[str, ModuleType]) -> Iterator[str]:
    held = vars(module)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            source = modules.get(node.module)
            for alias in node.names:
                name = alias.asname or alias.name
                there = getattr(source, alias.name, None), modules.get(f"{node.module}.{alias.name}")
                if node.module != "__future__" and not any(held.get(name) is each for each in there):
                    yield f"{module.__name__}.{name} is {held.get(name)!r}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                if held.get(name) is not modules.get(alias.name if alias.asname else name):
                    yield f"{module.__name__}.{name} is {held.get(name)!r}"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _other(held.get(node.name), node, file, f"{module.__name__}.{node.name}")


def _other(thing: Any, node: ast.stmt, file: str, name: str) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        code = _code(thing)
        if code is not None and (code.co_filename != file or code.co_name != node.name):
            yield f"{name} is {code.co_name} of {code.co_filename}"
        elif code is None and not callable(thing) and not isinstance(thing, property):
            yield f"{name} is {thing!r}"
    elif isinstance(node, ast.ClassDef):
        if not isinstance(thing, type) or thing.__qualname__.rpartition(".")[2] != node.name:
            yield f"{name} is {thing!r}"
            return
        for each in node.body:
            if isinstance(each, ast.FunctionDef) and not _again(node, each):
                yield from _other(inspect.getattr_static(thing, _mangled(node.name, each.name), None), each, file, f"{name}.{each.name}")


def _again(node: ast.ClassDef, function: ast.FunctionDef) -> bool:
    """Tell whether a name is defined more than once (a property's setter, an overload)."""
    return sum(isinstance(each, ast.FunctionDef) and each.name == function.name for each in node.body) > 1


def _mangled(owner: str, name: str) -> str:
    return f"_{owner.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def _code(thing: Any) -> CodeType | None:
    """Give the code of a function, of whatever sort of method it is, and whatever decorates it."""
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, functools.cached_property):
        thing = thing.func
    code = getattr(inspect.unwrap(thing), "__code__", None) if callable(thing) else None
    return code if isinstance(code, CodeType) else None
