"""A view that asks each question once: for deciding about one NIC, where the same link and the same rules are asked for many times."""

from __future__ import annotations

from netcommon.host.api.host import Remembered
from runtime.typed import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from netcommon.host.api.facts import Link, Route
    from netcommon.host.api.host import RouteList, View


class MemoView:
    """What ``view`` has answered it does not ask again. For a moment only: whoever has changed the host takes a new one."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._found: dict[tuple[int, int | None, str, int | None], Sequence[Route]] = {}
        self._lists: dict[tuple[int, int | None], RouteList] = {}
        self._links: dict[int | str, Link | None] = {}

    def link(self, name: str) -> Link | None:
        """Remember it under its index too, by which it is asked for next."""
        if name not in self._links:
            found = self._links[name] = self._view.link(name)
            if found is not None:
                self._links.setdefault(found.index, found)
        return self._links[name]

    def link_at(self, index: int) -> Link | None:
        if index not in self._links:
            self._links[index] = self._view.link_at(index)
        return self._links[index]

    def routes(self, family: int, table: int | None = None, destination: str | None = None, metric: int | None = None) -> Sequence[Route]:
        """What is asked of a table is looked for in one list of it: a table that is not too long is soonest told as a whole."""
        if destination is None:
            return self._view.routes(family, table)
        question = family, table, destination, metric
        if question not in self._found:
            self._found[question] = self._list(family, table).to(destination, metric)
        return self._found[question]

    def route_list(self, family: int, table: int | None = None) -> RouteList:
        return Remembered(cast("View", self), family, table, self._list(family, table))

    def _list(self, family: int, table: int | None) -> RouteList:
        if (family, table) not in self._lists:
            self._lists[family, table] = self._view.route_list(family, table)
        return self._lists[family, table]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ask: Callable[..., Any] = getattr(self._view, name)
        answers: dict[tuple[object, ...], Any] = {}

        def asked(*question: object) -> Any:
            if question not in answers:
                answers[question] = ask(*question)
            return answers[question]

        setattr(self, name, asked)
        return asked
