"""Read what etcd's JSON gateway answers, strictly: what is not as it must be is named, and never taken for an answer that is empty.

The gateway writes numbers of 64 bits as text, bytes in base64, and leaves out what is false, 0 or empty
(https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/). So what is missing means something only where it may be empty.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from netregistry.stores.base import Unavailable
from runtime.errors import escaped

SHOWN = 80  #: characters of what cannot be read
LARGEST_NUMBER = 1 << 64

Document = dict[str, Any]


class Garbled(Unavailable):
    """Say that what came is nothing that etcd says."""


class Refusal(Exception):
    """Etcd has refused a request. ``code``: of gRPC (https://grpc.github.io/grpc/core/md_doc_statuscodes.html)."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class Header(NamedTuple):
    """Hold what each answer says of who gave it: the cluster's id, and its newest revision."""

    cluster: int
    revision: int


class Pair(NamedTuple):
    """A key of etcd's with its value, and the revision at which it was written."""

    key: bytes
    value: bytes
    revision: int


class Range(NamedTuple):
    """Keys of a range, the newest revision of the store then, and whether others follow."""

    pairs: tuple[Pair, ...]
    revision: int
    more: bool


def document(data: bytes, kind: str = "application/json") -> Document:
    """Give the object that an answer is. Raises Garbled."""
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Garbled(f"it has answered {escaped(kind or 'something')} instead of JSON: {_shown(data)}")
    try:
        found = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Garbled(f"its answer is no JSON, or not all of it: {_shown(data)}") from None
    if not isinstance(found, dict):
        raise Garbled(f"its answer is no object: {_shown(data)}")
    return found


def refusal(found: Document) -> Refusal:
    """Give what an error says, of a single answer or of a stream's line. Raises Garbled."""
    inner = found.get("error")
    said = inner if isinstance(inner, dict) else found
    code = said.get("grpc_code", said.get("code"))
    message = said.get("message", inner)
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        raise Garbled(f"its error says neither code nor message: {_shown(json.dumps(found).encode())}")
    return Refusal(code, message)


def header(found: Document) -> Header:
    """Read the header. Raises Garbled."""
    said = mapping(found, "header")
    return Header(number(said, "cluster_id", 1), number(said, "revision"))


def revision(found: Document) -> int:
    """Give the newest revision of the store that answers. Raises Garbled."""
    return number(mapping(found, "header"), "revision", 1)


def mapping(found: Document, name: str) -> Document:
    """Give an object that must be there. Raises Garbled."""
    value = found.get(name)
    if not isinstance(value, dict):
        raise _wrong(name, value, "an object")
    return value


def sequence(found: Document, name: str) -> list[Document]:
    """Give a list of objects, which is left out where it is empty. Raises Garbled."""
    value = found.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise _wrong(name, value, "a list of objects")
    return value


def number(found: Document, name: str, least: int = 0) -> int:
    """Give a number, which is text, and left out where it is 0. Raises Garbled."""
    value = found.get(name, "0")
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 20:
        raise _wrong(name, value, "a number as text")
    if not least <= int(value) < LARGEST_NUMBER:
        raise _wrong(name, value, f"at least {least}")
    return int(value)


def truth(found: Document, name: str) -> bool:
    """Give a truth value, which is left out where it is false. Raises Garbled."""
    value = found.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false")
    return value


def data(found: Document, name: str) -> bytes:
    """Give bytes, which are base64, and left out where there are none. Raises Garbled."""
    value = found.get(name, "")
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            pass
    raise _wrong(name, value, "base64")


def encoded(value: bytes) -> str:
    """Give bytes as the gateway takes them."""
    return base64.b64encode(value).decode("ascii")


def pair(found: Document) -> Pair:
    """Read a key with its value. Raises Garbled."""
    key = data(found, "key")
    if not key:
        raise _wrong("key", "", "a key")
    return Pair(key, data(found, "value"), number(found, "mod_revision", 1))


def pairs(found: Document, low: bytes, high: bytes, limit: int) -> Range:
    """Read a range from ``low`` to below ``high``, sorted by key. Raises Garbled."""
    got, more = tuple(pair(each) for each in sequence(found, "kvs")), truth(found, "more")
    names = [each.key for each in got]
    if names != sorted(set(names)) or (names and not low <= names[0] <= names[-1] < high) or (limit and len(got) > limit):
        raise Garbled("it gives keys that were not asked for, or in no order")
    if more and not got:
        raise Garbled("it gives no keys, and says that others follow them")
    return Range(got, revision(found), more)


def _wrong(name: str, value: Any, expected: str) -> Garbled:
    return Garbled(f"its answer has {escaped(name)}: {escaped(repr(value), SHOWN)}, expected {expected}")


def _shown(data: bytes) -> str:
    return escaped(data.decode("latin-1"), SHOWN)


def _no_number(text: str) -> None:
    raise ValueError(text)
