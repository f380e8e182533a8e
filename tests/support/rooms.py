"""The rooms of the product: folders and files, and which of those beside each other import which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tests.support.sources import Source, imports, sources

PRODUCT = sources("runtime", "netcommon", "netagent", "netregistry", "mockcloud", "hooks")
#: What a module of a folder's own is called among those in it.
OWN = "__init__"

Graph = dict[str, set[str]]


def neighbours(modules: Iterable[Source] = PRODUCT) -> Graph:
    """Give for each folder and file those beside it that it imports, or that something within it does.

    An import of one module by another is one between the two things beside each other that they are in: netcommon.host.linux.views imports
    netcommon.host.rtnetlink.read, so netcommon.host.linux imports netcommon.host.rtnetlink. Imports within functions and those for the type
    checker alone count: they are as true a dependency.
    """
    modules = list(modules)
    names = frozenset(source.module for source in modules)
    folders = {source.module for source in modules if source.path.name == "__init__.py"}
    found: Graph = {}
    for source in modules:
        for item in imports(source, names):
            if item.module in names and item.module != source.module:
                one, other = _beside(_inside(source.module, folders), _inside(item.module, folders))
                found.setdefault(one, set()).add(other)
    return found


def _inside(module: str, folders: set[str]) -> tuple[str, ...]:
    """The parts of a module's name; a folder's own module is a file in it."""
    return (*module.split("."), *((OWN,) if module in folders else ()))


def _beside(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, str]:
    """The two things in the innermost folder that holds both."""
    common = next(place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return ".".join(one[: common + 1]), ".".join(other[: common + 1])


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle, as the list of what is in it; [] where there is none."""
    done: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := walk(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


@cache
def heights() -> dict[str, int]:
    """Give for each folder and file how many of those beside it stand below it, one upon the other."""
    graph = neighbours()

    @cache
    def height(name: str) -> int:
        return max((height(other) + 1 for other in graph.get(name, ())), default=0)

    return {name: height(name) for name in {*graph, *(other for others in graph.values() for other in others)}}
