"""Tables, fields and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

import click

from netcommon.log import printable

#: Where the context keeps whether JSON was asked for: an error that ends the command is then said in JSON too.
JSON = "netcommon.json"


def _note(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON] = value
    return value


#: The versions of the schemas that are not at their first.
VERSIONS: dict[str, int] = {}

#: For every subcommand.
json_option = click.option("--json", "as_json", is_flag=True, callback=_note, help="Print JSON (docs/schemas).")


def say(text: str, err: bool = False) -> None:
    """Prints lines; what does not print (control characters in what others wrote) is shown as an escape."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=err)


def able(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Whether it is a terminal that knows more than text and new lines: TERM=dumb, of terminfo(5), says that it does not."""
    return stream.isatty() and environ.get("TERM") != "dumb"


def coloured(environ: Mapping[str, str]) -> bool:
    """Whether colours are wanted on stdout, where the command line does not say it (https://no-color.org)."""
    return able(sys.stdout, environ) and not environ.get("NO_COLOR")


def emit(value: object) -> None:
    """Prints one JSON document, in ASCII. It begins with its schema's name and version, as those of ``answer`` do."""
    click.echo(json.dumps(value, indent=2))


def answer(name: str, **fields: object) -> None:
    """Prints the JSON document of the schema netcommon-``name`` (docs/schemas).

    A field that is added leaves the version; one that goes, or means something else, raises it.
    """
    emit({"schema": f"netcommon-{name}", "version": VERSIONS.get(name, 1), **fields})


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; an empty cell is "-". The last column is not padded."""
    lines = [list(headings), *([printable(str(cell)) or "-" for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def fields(pairs: Iterable[tuple[str, object]], indent: str = "") -> str:
    """One ``name  value`` a line, values aligned; those that say nothing are left out."""
    shown = [(printable(name), printable(str(value))) for name, value in pairs if value not in ("", None, ())]
    width = max((len(name) for name, _value in shown), default=0)
    return "\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in shown)
