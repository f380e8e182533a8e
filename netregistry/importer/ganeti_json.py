"""Read what the JSON of Ganeti's configuration is made of: objects, strings, UUIDs and tags, each checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runtime import validate
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    Fields = dict[str, Any]

LONGEST_TEXT = 255  #: bytes of one string that is read


class Unusable(HostRefused):
    """A configuration is none that may be imported: nothing of it is."""

    advice = ""


def within(value: Any, *names: str) -> Any:
    """Give what is within objects that are within each other; None where one of them is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def items(value: Any, name: str) -> list[tuple[str, Fields]]:
    """Give the objects of one kind. Raises Unusable."""
    found = list(object_of(value, name, "").items())
    for key, item in found:
        if not isinstance(item, dict):
            raise Unusable(f"the configuration is not as Ganeti 3 writes it: {name} has {escaped(key)}, which is no object")
    return [(checked(key, name), item) for key, item in found]


def object_of(value: Fields, name: str, where: str) -> Fields:
    """Give the object of a name. Raises Unusable."""
    found = value.get(name)
    if not isinstance(found, dict):
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where or 'it'} has no {name}")
    return found


def text_of(item: Fields, name: str, where: str) -> str:
    """Give a string, "" where there is none. Raises Unusable for anything else, and for a string that Ganeti takes from nobody."""
    found = item.get(name)
    return "" if found is None else checked(found, f"{where}.{name}")


def checked(text: object, where: str) -> str:
    """Give a string, as Ganeti takes it from somebody. Raises Unusable."""
    if not isinstance(text, str) or not text.isprintable() or len(text.encode("utf-8", "surrogatepass")) > LONGEST_TEXT:
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where} is {escaped(text)}")
    return text


def uuid_of(text: str, where: str) -> str:
    """Give a UUID in canonical form. Raises Unusable."""
    try:
        return validate.uuid(text, "")
    except NicInvalid:
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where} has the UUID {escaped(text)}") from None


def tags_of(item: Fields, where: str) -> list[str]:
    """Give tags in one order: Ganeti writes them in any."""
    found = item.get("tags") or []
    if not isinstance(found, list):
        raise Unusable(f"the configuration is not as Ganeti 3 writes it: {where}.tags is no list")
    return sorted({checked(tag, f"{where}.tags") for tag in found})
