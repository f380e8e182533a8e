"""Say what became of what was to be done on the node."""

from __future__ import annotations

from typing import NamedTuple


class Left(NamedTuple):
    """Say of one thing that nothing was done about it: ``why``; "": a NIC is up, and has to stop first."""

    key: tuple[str, str]
    why: str = ""


class Did(NamedTuple):
    """Answer what was to be done on the node: by its ``key`` and the revision that it was about.

    ``refused``: why it is not done; ``host``: because of the host, whatever was asked; ``passing``: that may be over at any time (a file of
    ours could not be read or written, a clock is wrong); ``again``: somebody was at work on it, and the same may succeed at once; ``up``:
    it is not done, since a NIC is up that has to stop first; ``touched``: NICs that are to be set anew; ``left``: of several things, those
    that were not done.
    """

    key: tuple[str, str]
    revision: str
    refused: str = ""
    host: bool = False
    passing: bool = False
    again: bool = False
    up: bool = False
    touched: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
