"""The planner: NIC and settings in, operations out. Pure: the same input gives the same list, and nothing is touched."""

from __future__ import annotations

from netcommon.modes.common import alias
from netcommon.options import is_communication, options_of
from runtime.modules import load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.effects.base import Effect
    from netcommon.features.base import Part
    from netcommon.operations.base import Operation
    from netcommon.options import Options
    from netcommon.settings import Settings
    from runtime.nic import Nic

#: The features and which NICs have them, in the order in which they are applied; a feature that nobody wants is not imported.
FEATURES: tuple[tuple[str, Callable[[Nic, Options], bool]], ...] = (
    ("guard", lambda nic, options: options.spoof_guard and nic.mode in ("bridged", "routed", "openvswitch")),
    ("gateway_arp", lambda nic, options: options.gateway_arp and nic.mode == "routed" and not is_communication(nic)),
    ("firewall", lambda nic, options: options.firewall != "unprotected" and nic.mode != "ext" and not is_communication(nic)),
    ("access", lambda nic, options: options.node_access != ("all",) and nic.mode != "ext"),
    ("rate", lambda nic, options: bool(options.rate_in or options.rate_out) and nic.mode in ("bridged", "routed")),
    ("dhcp", lambda nic, options: options.dhcp != "none" and not is_communication(nic)),
    ("steady", lambda nic, options: nic.mode == "routed" and bool(nic.mac) and not options.tap_mac and not is_communication(nic)),
    ("announce", lambda nic, options: options.announce and nic.mode == "routed" and not is_communication(nic)),
)


def plan(nic: Nic, settings: Settings) -> list[Operation]:
    """The operations that join ``nic`` to the network, in the order in which they are applied: the mark on the device comes first.

    What only the host knows (the bridge's MTU, its uplinks, a table's number) is left to ``resolve``. Raises NicInvalid for tags of
    ours that are wrong.
    """
    options = options_of(nic, settings)
    name = "communication" if is_communication(nic) else nic.mode
    operations: list[Operation] = load("netcommon.modes." + name).plan(nic, settings, options)
    if not operations:
        return []  # the site's script alone knows what to do
    parts = _parts(nic, settings, options)
    before = [operation for part in parts for operation in part.before]
    after = [operation for part in parts for operation in part.after]
    # Ganeti cannot name another communication tap while any device's `ip link show` has a third line, such as an alias
    marked = [alias(nic)] if settings.tap_alias and name != "communication" else []
    return [*marked, *before, *operations, *after]


def effects(nic: Nic, settings: Settings) -> list[Effect]:
    """What the rest of the world is told when ``nic`` comes, each once. Raises NicInvalid as ``plan`` does."""
    found: dict[Effect, None] = {}
    for part in _parts(nic, settings, options_of(nic, settings)):
        found.update(dict.fromkeys(part.effects))
    return list(found)


def _parts(nic: Nic, settings: Settings, options: Options) -> list[Part]:
    parts: list[Part] = [
        load("netcommon.features." + feature).plan(nic, settings, options) for feature, wanted in FEATURES if wanted(nic, options)
    ]
    if settings.extensions:
        parts += load("netcommon.extended").parts(nic, settings, options)
    return parts
