"""Mode ext: the site alone knows what to do, by an extension (docs/extending.md) or by a custom script."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: Its features, in the order in which they are applied.
FEATURES = ("dhcp",)
MARKED = True  #: the device gets an alias of ours


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """What an extension of the site plans; nothing of ours."""
    if not settings.extensions:
        return []
    from netcommon.features.extension_check import operations

    return operations(nic, settings, options)
