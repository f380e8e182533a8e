"""The planner: NIC and settings in, operations out. Pure: the same input gives the same list, and nothing is touched."""

from __future__ import annotations

from netcommon.operations.link import ALIAS, ALIAS_LIMIT, LinkSetting
from netcommon.options.model import mode_of
from netcommon.options.sources import options_of
from runtime.modules import load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from netcommon.effects.base import Effect
    from netcommon.features.base import Part
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: When each feature is asked for; which NICs can have it is said by their mode (FEATURES). One that nobody asks for is not imported.
WANTED: dict[str, Callable[[Nic, Options], bool]] = {
    "guard": lambda nic, options: options.spoof_guard,
    "gateway_arp": lambda nic, options: options.gateway_arp,
    "firewall": lambda nic, options: options.firewall != "unprotected",
    "access": lambda nic, options: options.node_access != ("all",),
    "rate": lambda nic, options: bool(options.rate_in or options.rate_out),
    "dhcp": lambda nic, options: options.dhcp != "none",
    "tap_mac": lambda nic, options: bool(nic.mac) and not options.tap_mac,
    "announce": lambda nic, options: options.announce,
}


def plan(nic: Nic, settings: Settings) -> list[Operation]:
    """The operations that join ``nic`` to the network, in the order in which they are applied: the mark on the device comes first.

    What only the host knows (the bridge's MTU, its uplinks, a table's number) is left to ``resolve``. Raises NicInvalid for tags of
    ours that are wrong.
    """
    options, nic = options_of(nic, settings), _in_network(nic, settings)
    mode = load("netcommon.modes." + mode_of(nic))
    operations: list[Operation] = mode.plan(nic, settings, options)
    if not operations:
        return []  # the site's script alone knows what to do
    parts = _parts(nic, settings, options)
    before = [operation for part in parts for operation in part.before]
    after = [operation for part in parts for operation in part.after]
    marked = [alias(nic)] if settings.tap_alias and mode.MARKED else []
    return [*marked, *before, *operations, *after]


def effects(nic: Nic, settings: Settings) -> list[Effect]:
    """List what the rest of the world is told when ``nic`` comes, each once. Raises NicInvalid as ``plan`` does."""
    found: dict[Effect, None] = {}
    for part in _parts(_in_network(nic, settings), settings, options_of(nic, settings)):
        found.update(dict.fromkeys(part.effects))
    return list(found)


def told_guest(nic: Nic, settings: Settings) -> Iterable[Effect]:
    """Give what the guest of a NIC that was up before is told of the host's side. Raises NicInvalid as ``plan`` does."""
    if mode_of(nic) != "routed":
        return ()
    from netcommon.features.gateway_mac import effect  # no first up tells it

    return effect(_in_network(nic, settings), options_of(nic, settings))


def _in_network(nic: Nic, settings: Settings) -> Nic:
    """The NIC with what the settings, or a registry, say of its network."""
    if not settings.network_fields and nic.told is None:
        return nic
    from netcommon.options.networks import completed  # few sites say anything

    return completed(nic, settings)


def _parts(nic: Nic, settings: Settings, options: Options) -> list[Part]:
    wanted = [name for name in load("netcommon.modes." + mode_of(nic)).FEATURES if WANTED[name](nic, options)]
    parts: list[Part] = [load("netcommon.features." + name).plan(nic, settings, options) for name in wanted]
    if settings.extensions:
        parts += load("netcommon.features.extension_check").parts(nic, settings, options)
    return parts


def alias(nic: Nic) -> LinkSetting:
    """The mark on the device: the UUID first, so that it survives being cut; instance and index for the reader."""
    text = f"{nic.uuid} {nic.label}".encode()[:ALIAS_LIMIT].decode(errors="ignore")
    return LinkSetting(nic.interface, ALIAS, text)
