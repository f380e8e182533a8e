"""Mode ext: the site alone knows what to do, by an extension (docs/extending.md) or by a custom script."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options import Options
    from netcommon.settings import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """What an extension of the site plans; nothing of ours."""
    if not settings.extensions:
        return []
    from netcommon.extended import operations

    return operations(nic, settings, options)
