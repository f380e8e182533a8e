"""Rate limits of bridged and routed NICs: what the guest receives (rate_in) and what it sends (rate_out). Open vSwitch has its own."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.operations.rate import Police, Shaper
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: A bucket holds what its rate gives in this time (seconds), but at least so many bytes. A guest sends up to 64 KiB as one frame, and
#: a policer drops what is longer than its bucket, where a shaper cuts it.
SHAPER_SECONDS, SHAPER_BYTES = 0.005, 16 << 10
POLICER_SECONDS, POLICER_BYTES = 0.1, 128 << 10
#: How long the guest's frames may wait (seconds), and at least how many bytes.
WAIT_SECONDS, WAIT_BYTES = 0.05, 128 << 10
LARGEST = (1 << 32) - 1


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """While the device is up: the kernel puts its default qdisc back only then. A first frame that passes unlimited does no harm."""
    made: list[Operation] = []
    if options.rate_in:
        burst = _bytes(options.rate_in, SHAPER_SECONDS, SHAPER_BYTES)
        made.append(Shaper(nic.interface, options.rate_in, burst, min(burst + _bytes(options.rate_in, WAIT_SECONDS, WAIT_BYTES), LARGEST)))
    if options.rate_out:
        made.append(Police(nic.interface, options.rate_out, _bytes(options.rate_out, POLICER_SECONDS, POLICER_BYTES)))
    return Part(after=tuple(made))


def _bytes(rate: int, seconds: float, least: int) -> int:
    return min(max(int(rate / 8 * seconds), least), LARGEST)
