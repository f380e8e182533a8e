"""Mode ext: only the site's script knows what to do; it runs as a custom script."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options import Options
    from netcommon.settings import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """Nothing of ours."""
    return []
