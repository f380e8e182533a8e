"""What the demonstration prints: headings, commands with their output, and verdicts; colour only on a terminal."""

from __future__ import annotations

import os
import sys
import time

_COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
_START = time.monotonic()


class Failed(Exception):
    """The demonstration did not show what it promises."""


def _paint(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _COLOURS else text


def _print(text: str) -> None:
    print(text, flush=True)


def heading(text: str) -> None:
    """A new part of the story, with the seconds since the start."""
    _print(_paint("1", f"\n[{time.monotonic() - _START:5.1f} s] {text}"))


def line(text: str) -> None:
    """One remark."""
    _print(f"  {text}")


def command(text: str) -> None:
    """A command as one would type it."""
    _print("  " + _paint("36", f"$ {text}"))


def output(text: str) -> None:
    """What a program said."""
    for one in text.rstrip("\n").splitlines():
        _print(f"    {one}")


def verdict(good: bool, text: str) -> None:
    """A thing that was promised, and whether it holds."""
    _print("  " + (_paint("32", "ok    ") if good else _paint("31", "FAILED")) + f"  {text}")


def trouble(title: str, text: str) -> None:
    """Something to look at after a failure; nothing where there is nothing to see."""
    if text.strip():
        _print(_paint("33", f"  -- {title}"))
        output(text)
