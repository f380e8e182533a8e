"""Find what somebody types: first what is called just that, then whatever has it in its name, MAC, address or UUID."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.model import keys, kinds
from netregistry.model.claim import Claim
from netregistry.model.codec import Invalid, read
from netregistry.pages.entries import is_virtual
from netregistry.pages.order import name_of
from netregistry.service import filters
from netregistry.service.filters import Sight
from runtime.moment import local_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from netregistry.service.index import Index
    from netregistry.view import View

MOST = 30  #: what is found at once
BY_NAME = {each.name: each for each in filters.NICS}


class Hit(NamedTuple):
    """Something found. ``path``: of its page, "" for none; ``text``: what of it was looked for; ``virtual``: see Link."""

    kind: str
    path: str
    name: str
    text: str
    virtual: bool = False


class Found(NamedTuple):
    """Hold what was found first. ``more``: there is more than that."""

    hits: tuple[Hit, ...]
    more: bool


def found(sight: Sight, index: Index, text: str) -> Found:
    """Find by a text, as somebody types it."""
    view, hits = sight.view, dict[str, Hit]()
    text = text.strip()
    for typed in dict.fromkeys((text, *_read(text))) if text else ():
        for key in _exactly(sight, typed):
            hits.setdefault(key, _hit(view, key, typed))
        for _kind, key, word in index.find(typed):
            hits.setdefault(key, _hit(view, key, word))
            if len(hits) > MOST:
                break
    return Found(tuple(hits.values())[:MOST], len(hits) > MOST)


def _read(text: str) -> Iterator[str]:
    """Give how the registry writes what was typed otherwise: aa-00-01, AA:00:01, 2001:DB8:0::1."""
    if "-" in text and set(text.lower()) <= {*"0123456789abcdef-"}:
        yield text.lower().replace("-", ":")
    for kind in (kinds.Mac, kinds.Address):
        try:
            yield str(read(kind, text.lower().replace("-", ":")))
        except Invalid:
            continue


def _exactly(sight: Sight, text: str) -> Iterator[str]:
    """Give the keys of what is called just that."""
    view = sight.view
    yield from view.members("node", text)
    clusters = ("", *(cluster for (cluster,) in view.groups("cluster")))
    for cluster in clusters:
        yield from view.members("named", cluster, text)
    instance, slash, _ = text.rpartition("/")
    for cluster in clusters:
        for key in view.members("instance", cluster, instance if slash else text):
            if not slash or name_of(view.get(key)) == text:
                yield key
    for name in ("mac", "address"):
        chosen = BY_NAME[name]
        try:
            value = read(chosen.hint, text)
        except Invalid:
            continue
        if chosen.group is not None:
            yield from (key for key in chosen.group(sight, value) if view.get(key) is not None)


def _hit(view: View, key: str, text: str) -> Hit:
    value: Any = view.get(key)
    kind, _, rest = key.partition("/")
    if isinstance(value, Claim):
        why = f"reserved: {value.reserved}" if value.reserved else f"in quarantine until {local_time(value.until)}"
        what, last = rest.rpartition("/")[2], view.nic(value.last) if value.last else None
        return Hit(kind, f"/{keys.nic(last.uuid)}" if last else "", what, why)
    name = name_of(value)
    return Hit(kind, f"/{key}", name, "" if text == name.lower() else text, is_virtual(value))
