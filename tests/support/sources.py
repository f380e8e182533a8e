"""The project's own source files, taken apart, for the tests of layers and style."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple

from tests.support.bootstrap import ROOT


class Source(NamedTuple):
    """One Python file: ``module`` is dotted; an executable of hooks/ is called "hooks.<name>"."""

    module: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        return str(self.path.relative_to(ROOT))


@functools.cache
def source(path: Path) -> Source:
    """Take one file apart, once in a process. Raises SyntaxError."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    text = path.read_text()
    return Source(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path, text, ast.parse(text, str(path)))


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """All Python files below ``folders``, the executables without .py too."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*"))]
    paths = [path for path in found if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts]
    return tuple(source(path) for path in paths if path.suffix == ".py" or (not path.suffix and _is_python(path)))


@functools.cache
def nodes(of: Source) -> tuple[ast.AST, ...]:
    """Give all nodes of a file's tree: a walk through all files takes seconds, and many tests look at each node."""
    return tuple(ast.walk(of.tree))


def _is_python(path: Path) -> bool:
    with path.open("rb") as file:
        return b"python" in file.readline()


class Import(NamedTuple):
    """One imported module. ``late``: within a function; ``typing``: only for the type checker."""

    module: str
    line: int
    late: bool
    typing: bool


@functools.cache
def imports(of: Source, modules: frozenset[str] = frozenset()) -> tuple[Import, ...]:
    """What a file imports. ``from package import name`` is the module package.name where that is one of ``modules``."""
    found: list[Import] = []
    _collect(of.tree, of, modules, found, late=False, typing=False)
    return tuple(found)


def _collect(node: ast.AST, of: Source, modules: frozenset[str], found: list[Import], *, late: bool, typing: bool) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found += [Import(alias.name, child.lineno, late, typing) for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            if child.level:
                package = of.module.split(".")[: -child.level] if of.path.name != "__init__.py" else of.module.split(".")
                base = ".".join([*package, *([base] if base else [])])
            for alias in child.names:
                whole = f"{base}.{alias.name}"
                found.append(Import(whole if whole in modules else base, child.lineno, late, typing))
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            _collect(child, of, modules, found, late=late or function, typing=typing or checking)
