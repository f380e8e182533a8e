"""Tables, fields and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click

from netcommon.log import printable

T = TypeVar("T")

#: Where the context keeps whether JSON was asked for: an error that ends the command is then said in JSON too.
JSON = "netcommon.json"


def _note(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON] = value
    return value


#: For every subcommand.
json_option = click.option("--json", "as_json", is_flag=True, callback=_note, help="Print JSON.")


def say(text: str, err: bool = False) -> None:
    """Prints lines; what does not print (control characters in what others wrote) is shown as an escape."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)


def emit(value: object) -> None:
    """Prints one JSON document, in ASCII."""
    click.echo(json.dumps(value, indent=2))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; an empty cell is "-". The last column is not padded."""
    lines = [list(headings), *([printable(str(cell)) or "-" for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def fields(pairs: Iterable[tuple[str, object]], indent: str = "") -> str:
    """One ``name  value`` a line, values aligned; those that say nothing are left out."""
    shown = [(name, str(value)) for name, value in pairs if value not in ("", None, ())]
    width = max((len(name) for name, _value in shown), default=0)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in shown)


def each(items: Sequence[T], work: Callable[[T], None], label: str, quiet: bool = False) -> None:
    """Does ``work`` for each item; on a terminal a bar on stderr says how far it is."""
    if quiet or len(items) < 2 or not sys.stderr.isatty():
        for item in items:
            work(item)
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        for item in bar:
            work(item)


def ticker() -> Callable[[str], None]:
    """Says what is being done, one line on a terminal's stderr that is written over."""
    if not sys.stderr.isatty():
        return lambda text: None

    def tick(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{printable(text)[:100]}")
        sys.stderr.flush()

    return tick


def untick() -> None:
    """Wipes the ticker's line."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
