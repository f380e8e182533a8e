"""Define the operations: every change to the host, one module per noun. Each kind is imported when asked for."""

from __future__ import annotations

from netcommon.operations.base import WAITS, UnknownKind, Waiting, fields_of, wrong
from netcommon.operations.kinds import KINDS
from runtime.errors import NetcommonError
from runtime.modules import EXTENSIONS, load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from netcommon.operations.base import Operation


def kind(name: str) -> type[Operation]:
    """The class of a kind of operation. Raises UnknownKind."""
    found = _LOADED.get(name)
    if found is None:
        if name not in KINDS:
            return _of_extension(name)
        module, attribute = KINDS[name]
        _LOADED[name] = found = getattr(load("netcommon.operations." + module), attribute)
    return found


#: The classes that were asked for: records of thousands of NICs have a dozen kinds between them.
_LOADED: dict[str, type[Operation]] = {}


def every() -> list[type[Operation]]:
    """The classes of all kinds, those of the site's extensions among them.

    Without those of an extension that cannot be used: what is theirs alone nobody else can tell, and so it stays (lifecycle.inventory).
    """
    found = [kind(name) for name in KINDS]
    for name in EXTENSIONS:
        from netcommon.extension_loader import operations

        try:
            found += operations(name)
        except NetcommonError:
            continue
    return found


def _of_extension(name: str) -> type[Operation]:
    """The class of a kind EXTENSION/NAME. Raises UnknownKind, with what to do about it."""
    extension, slash, _own = name.partition("/")
    if not slash:
        raise UnknownKind(f"operation of the unknown kind {name!r}")
    from netcommon.extension_loader import operations

    try:
        for one in operations(extension):
            known: str = one.KIND
            if known == name:
                found: type[Operation] = one
                return found
    except NetcommonError as error:
        raise UnknownKind(f"operation of the kind {name!r}: {error}") from None
    raise UnknownKind(f"operation of the kind {name!r}: the extension {extension} does not have it any more")


def unusable(stored: Mapping[str, object]) -> str:
    """Why an operation on record cannot be worked with, and what to do about it; "" if it can be."""
    try:
        from_json(stored)
    except UnknownKind as error:
        return str(error)
    return ""


def from_json(stored: Mapping[str, object]) -> Operation:
    """The operation a record holds. Raises UnknownKind, also where its fields are not those of its kind."""
    made, values = kind(str(stored.get("kind"))), fields_of(stored)
    why = values.pop(WAITS, "")
    field = wrong(made, values) or ("" if isinstance(why, str) else WAITS)
    if field:
        raise UnknownKind(f"operation of kind {stored.get('kind')!r} whose field {field!r} is not as we know it")
    try:
        operation = made(**values)
        return Waiting(operation, why) if why else operation
    except TypeError as error:
        raise UnknownKind(f"operation of kind {stored.get('kind')!r} with other fields than ours: {error}") from None
