"""JSON (RFC 8259) as the module json reads and writes it, by its compiled half alone: the module itself would cost a hook 3 ms, most of
it for regular expressions that the compiled half does without. An error's text is the module's, which is loaded then.
"""

from __future__ import annotations

from runtime.errors import RecordTooNew, RecordUnreadable, escaped
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    def _encode(value: object, depth: int) -> tuple[str, ...]: ...

else:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    # no check for circles, no object that is none of JSON's, ASCII alone, no blanks, names as they come, no NaN
    _encode = make_encoder(None, None, encode_basestring_ascii, None, ":", ",", False, False, False)

_BLANK = " \t\n\r"


class IncompleteError(ValueError):
    """A text that breaks JSON's grammar, or whose end is missing."""


def dumps(value: object) -> str:
    """``value`` in ASCII without blanks. Raises ValueError for what is no number in JSON, TypeError for what is nothing in it."""
    return "".join(_encode(value, 0))


class Decoder:
    """Reads texts; ``pairs`` makes an object of its names and values. A constant that is not JSON's (NaN) is an error."""

    strict = True
    object_hook = None
    parse_float, parse_int = float, int
    _scan: Callable[[str, int], tuple[Any, int]]

    def __init__(self, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> None:
        self.object_pairs_hook = pairs
        if not TYPE_CHECKING:
            self._scan = make_scanner(self)

    @staticmethod
    def parse_constant(text: str) -> float:
        raise ValueError(f"{text} is no JSON")

    def first(self, text: str) -> tuple[Any, int]:
        """The value that ``text`` begins with, and where it ends.

        Raises IncompleteError where it breaks the grammar, which it may do because its end is missing; ValueError for numbers of
        thousands of digits and the like; RecursionError.
        """
        try:
            return self._scan(text, 0)
        except (StopIteration, SystemError):  # json.decoder, which has the error for broken grammar, is not loaded: Python 3.11 trips then
            raise IncompleteError("Expecting value") from None
        except ValueError as error:
            if type(error) is ValueError:
                raise
            raise IncompleteError(str(error)) from None

    def whole(self, text: str) -> Any:
        """The value that ``text`` is, blanks around it aside. Raises as ``first``."""
        text = text.strip(_BLANK)
        value, end = self.first(text)
        if end < len(text):
            raise ValueError(f"Extra data: char {end}")
        return value


def versioned(data: bytes, newest: int) -> dict[str, Any]:
    """Read the bytes of a file of ours: an object with a schema up to ``newest``.

    Raises RecordTooNew for a newer version's, RecordUnreadable for whatever else is none.
    """
    try:
        stored = Decoder().whole(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise RecordUnreadable(f"not JSON: {escaped(str(error) or type(error).__name__)}") from None
    if not isinstance(stored, dict) or type(stored.get("schema")) is not int:
        raise RecordUnreadable("not a JSON object with a schema")
    if stored["schema"] > newest:
        raise RecordTooNew(f"schema {stored['schema']} is newer than {newest}, the newest this version knows")
    return stored
