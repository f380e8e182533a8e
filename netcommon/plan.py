"""The planner: NIC and settings in, operations out. Pure: the same input gives the same list, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from netcommon.features.base import Part
from netcommon.modes.common import alias
from netcommon.modes.communication import is_communication
from netcommon.operations.base import Operation
from netcommon.options import Options, options_of
from netcommon.settings import Settings
from runtime.nic import Nic

#: The features and which NICs have them, in the order in which they are applied; a feature that nobody wants is not imported.
FEATURES: tuple[tuple[str, Callable[[Nic, Options], bool]], ...] = ()


def plan(nic: Nic, settings: Settings) -> list[Operation]:
    """The operations that join ``nic`` to the network, in the order in which they are applied: the mark on the device comes first.

    What only the host knows (the bridge's MTU, its uplinks, a table's number) is left to ``resolve``. Raises NicInvalid for tags of
    ours that are wrong.
    """
    options = options_of(nic, settings)
    name = "communication" if is_communication(nic) else nic.mode
    operations: list[Operation] = import_module("netcommon.modes." + name).plan(nic, settings, options)
    if not operations:
        return []  # the site's script alone knows what to do
    parts: list[Part] = [
        import_module("netcommon.features." + feature).plan(nic, settings, options) for feature, wanted in FEATURES if wanted(nic, options)
    ]
    before = [operation for part in parts for operation in part.before]
    after = [operation for part in parts for operation in part.after]
    return [alias(nic), *before, *operations, *after]
