"""A view that asks each question once: for deciding about one NIC, where the same link and the same rules are asked for many times."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from netcommon.host.base import View


class Once:
    """What ``view`` has answered it does not ask again. For a moment only: whoever has changed the host takes a new one."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __getattr__(self, name: str) -> Callable[..., Any]:
        ask: Callable[..., Any] = getattr(self._view, name)
        answers: dict[tuple[object, ...], Any] = {}

        def asked(*question: object) -> Any:
            if question not in answers:
                answers[question] = ask(*question)
            return answers[question]

        setattr(self, name, asked)
        return asked
