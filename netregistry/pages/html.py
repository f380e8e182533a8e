"""Make HTML of what a page says. Whatever comes from the registry, or from who asks, is text: escaped, and nothing in it is invisible."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Environment

ZONE = 6  #: characters of a time's zone at its end: +01:00


def rendered(template: str, values: Mapping[str, Any]) -> bytes:
    """Give the page that a template makes of values."""
    return _environment().get_template(f"{template}.html").render(values).encode()


@cache
def static(name: str) -> bytes | None:
    """Give a file that pages refer to; None where there is none of this name."""
    return (files(__package__) / "static" / name).read_bytes() if name in TYPES else None


#: What there is beside the pages themselves, and of which type it is.
TYPES = {"pages.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # of no use to a service that nobody looks at

    found = Environment(
        loader=PackageLoader(__package__ or ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {"time": moment, "zone": zone, "query": query, "segment": segment, "number": number}
    return found


def visible(value: Any) -> Any:
    """Give a text with whatever cannot be seen, or changes how others are seen, as its escape; other values as they are."""
    if type(value) is not str or value.isprintable():  # what is HTML already is of a type of its own
        return value
    return "".join(each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode("ascii") for each in value)


def moment(seconds: float) -> str:
    """Give a time as people read it, without its zone: that of this machine; "" for none."""
    return local_time(seconds).removesuffix(zone(seconds)) if seconds else ""


def zone(seconds: float) -> str:
    """Give the zone of a time: +01:00."""
    found = local_time(seconds)[-ZONE:]
    return found if found[0] in "+-" else ""


def query(given: Mapping[str, str], **more: str) -> str:
    """Give a query, with the "?" before it; a parameter that is "" is left out."""
    found = {name: value for name, value in {**given, **more}.items() if value}
    return f"?{urlencode(found, errors='backslashreplace')}" if found else ""


def segment(text: str) -> str:
    """Give a text as one part of a path."""
    return quote(text, safe="", errors="backslashreplace")


def number(value: int) -> str:
    """Give a number with its digits in groups; one that nobody reads as a power of two."""
    return f"{value:,}".replace(",", "\u202f") if value < 1 << 40 else f"2^{value.bit_length() - 1}"


def shown(value: Any) -> str:
    """Give a value of JSON as people read it; "" for what says nothing."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dict):
        return " ".join(f"{name}={shown(each)}" for name, each in value.items() if shown(each))
    if isinstance(value, list | tuple):
        return ", ".join(shown(each) for each in value)
    return "" if value in (None, 0) else str(value)
