"""Say what tasks are asked for with, and check what is given: by name, whether it is needed, and of which sort it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from mockcloud.limits import NUMBERS
from runtime import validate
from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

W = TypeVar("W", bound="Callable[..., Any]")

#: Sorts, in the words in which they are shown.
TEXT, NUMBER, NODES, FLAG, SECONDS = "text", "a number", "a number of nodes", "true or false", "seconds"
TEXTS, TAGS, FIELDS, VALUES, SEVERAL = (
    "a list of texts",
    "a list of tags",
    "an object of texts",
    "an object of texts and numbers",
    "a list of them",
)
HIGHEST = 65535  #: NUMBER at most
LONGEST = 86400.0  #: SECONDS at most


class Task(NamedTuple, Generic[W]):
    """One task: of what sort each of its parameters is, which of them it needs, and what does it."""

    takes: Mapping[str, str]
    needs: tuple[str, ...]
    work: W


def checked(tasks: Mapping[str, Task[W]], name: str, given: Mapping[str, Any]) -> tuple[Task[W], dict[str, Any]]:
    """Give the task of a name, and its parameters, tags one by one. Raises NicInvalid."""
    if name not in tasks:
        raise NicInvalid("task", name, f"one of {', '.join(tasks)}")
    task = tasks[name]
    for each in given:
        if each not in task.takes:
            raise NicInvalid(each, given[each], f"no such parameter; there are {', '.join(task.takes)}")
    for each in task.needs:
        if each not in given:
            raise NicInvalid(each, "", "a value: it is missing")
    found: dict[str, Any] = {}
    for each, value in given.items():
        sort = task.takes[each]
        if not fits(sort, value):
            raise NicInvalid(each, value, sort)
        found[each] = [tag for one in value for tag in validate.tags(one, each)] if sort == TAGS else value
    return task, found


def fits(sort: str, value: Any) -> bool:
    """Tell whether a value is of a sort."""
    match sort:
        case "text":
            return isinstance(value, str) and value.isprintable()
        case "a number":
            return type(value) is int and 0 <= value <= HIGHEST
        case "a number of nodes":
            return type(value) is int and 0 <= value <= NUMBERS
        case "true or false":
            return isinstance(value, bool)
        case "seconds":
            return type(value) in (int, float) and 0.0 < value <= LONGEST
        case "a list of texts" | "a list of tags":  # what each is, is looked at later
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
        case "an object of texts":
            return isinstance(value, dict) and all(fits(TEXT, each) for pair in value.items() for each in pair)
        case "an object of texts and numbers":
            return isinstance(value, dict) and all(fits(TEXT, each) for each in (*value, *value.values()) if type(each) is not int)
    return isinstance(value, list) and all(fits(FIELDS, each) for each in value)
