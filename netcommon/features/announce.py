"""The announcement of a routed guest's addresses when its NIC comes up here (option announce)."""

from __future__ import annotations

from netcommon.addresses import addresses_of
from netcommon.effects.announce import Announce
from netcommon.features.base import Part
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options import Options
    from netcommon.settings import Settings
    from runtime.nic import Nic


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """Host addresses only: neighbours that ask for an address in a prefix are rare, and would be told of each one in it."""
    found = addresses_of(nic, options)
    return Part(effects=(Announce(nic.link, found.ipv4, found.ipv6),) if found.ipv4 or found.ipv6 else ())
