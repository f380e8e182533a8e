"""Show on stderr how far a long piece of work is: click's bar on a terminal, lines elsewhere if --progress; a hook shows nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count, repeat
from time import monotonic
from typing import TypeVar

import click

from netcommon.cli.output import able, say
from netcommon.log import printable

T = TypeVar("T")

LINES = 2.0  #: seconds between two lines, where there is no bar
LONGEST = 100  #: characters of what is being done

#: For subcommands that may take long.
progress_option = click.option("--progress", is_flag=True, help="Say on stderr how far it is, also where that is no terminal.")


@contextmanager
def steps(label: str, total: int = 0, wanted: bool = False) -> Iterator[Callable[[str], None]]:
    """Show how far ``label`` is; call what this yields before each step, of ``total`` if that is known, with what is done in it.

    A terminal gets click's bar, wiped at the end. Elsewhere click shows the label alone: there a line follows now and then, if ``wanted``.
    """
    terminal, numbers, due = able(sys.stderr, os.environ), count(1), 0.0

    def step(text: str) -> None:
        nonlocal due
        done, text = next(numbers), printable(text)[:LONGEST]
        with suppress(OSError, ValueError):  # nobody looks any more: the work goes on
            bar.update(1, text)
            if wanted and not terminal and monotonic() >= due:
                due = monotonic() + LINES
                say(f"{label}: {text or f'{done} of {total}'}", err=True)

    with click.progressbar(
        repeat(""),
        length=total or None,
        label=label,
        hidden=not terminal,
        show_pos=bool(total),
        item_show_func=lambda text: text,
        bar_template="%(label)s  [%(bar)s]  %(info)s" if total else "%(label)s: %(info)s",
        file=sys.stderr,
    ) as bar:
        yield step
    if terminal:
        click.echo("\x1b[A\x1b[K", nl=False, err=True)


def each(items: Sequence[T], work: Callable[[T], None], label: str, wanted: bool = False) -> None:
    """Do ``work`` for each item, and show how far it is where there are several."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with steps(label, len(items), wanted) as step:
        for item in items:
            step("")
            work(item)
