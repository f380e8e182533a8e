"""What the site's extensions plan for a NIC, checked before any of it is done: a record must be able to hold it, and give it back."""

from __future__ import annotations

from netcommon import extension_loader
from netcommon.features.base import Part
from netcommon.operations import from_json
from netcommon.operations.base import UnknownKind, to_json, unstorable
from runtime.errors import NetcommonError, SettingsInvalid
from runtime.typed import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: What an extension adds, by the setting ``adds``.
MODE, FEATURE = "mode", "feature"


def operations(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """The operations of the first extension that has any for a NIC of mode ext; none where none has.

    Raises SettingsInvalid for an extension that cannot be used, and whatever NetcommonError it raises itself.
    """
    for name in _named(settings, MODE):
        made = _asked(name, nic, settings, options)
        if not isinstance(made, list | tuple):
            raise SettingsInvalid(f"the extension {name} planned {type(made).__name__}: a mode plans a list of operations")
        if made:
            return list(_checked(name, made))
    return []


def parts(nic: Nic, settings: Settings, options: Options) -> list[Part]:
    """What each extension that is a feature adds to the NIC, in the order of the settings file. Raises as ``operations`` does."""
    found: list[Part] = []
    for name in _named(settings, FEATURE):
        made = _asked(name, nic, settings, options)
        if not isinstance(made, Part):
            raise SettingsInvalid(f"the extension {name} planned {type(made).__name__}: a feature plans a Part (netcommon.features.base)")
        _checked(name, (*made.before, *made.after))
        found.append(made)
    return found


def _named(settings: Settings, adds: str) -> list[str]:
    return [name for name, table in settings.extensions.items() if table.get("adds") == adds]


def _asked(name: str, nic: Nic, settings: Settings, options: Options) -> Any:
    plan = getattr(extension_loader.load(name), "plan", None)
    if not callable(plan):
        raise SettingsInvalid(f"the extension {name} has no function plan(nic, settings, options)")
    try:
        return plan(nic, settings, options)
    except NetcommonError:
        raise
    except Exception as error:  # nothing was touched yet
        raise SettingsInvalid(f"the extension {name} failed to plan for {nic.label}: {extension_loader.failure(error)}") from None


def _checked(name: str, made: Iterable[Any]) -> list[Operation]:
    """``made``, each of a kind and with fields that a record gives back as they are. Raises SettingsInvalid."""
    checked: list[Operation] = []
    for one in made:
        if not isinstance(one, tuple) or not isinstance(getattr(one, "KIND", None), str):
            raise SettingsInvalid(f"the extension {name} planned {type(one).__name__}: expected an operation (netcommon.operations)")
        operation = cast("Operation", one)
        field = unstorable(type(operation))
        try:
            if field:
                raise UnknownKind(f"no record can hold its field {field}: expected one of the types of netcommon.operations.base.TYPES")
            if from_json(to_json(operation)) != operation:
                raise UnknownKind("a record would not give it back as it is")
        except UnknownKind as error:
            raise SettingsInvalid(f"the extension {name} planned {operation.KIND!r}: {error}") from None
        checked.append(operation)
    return checked
