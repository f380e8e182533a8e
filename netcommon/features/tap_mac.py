"""A routed guest sends to the same MAC on every node, if the option tap_mac does not name one."""

from __future__ import annotations

from netcommon.features.base import Part
from netcommon.operations.tap_mac import SteadyAddress
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: The first octets for the host's side: locally administered, unicast; the second for a guest that has the first itself.
FIRST = ("fe", "fa")


def plan(nic: Nic, settings: Settings, options: Options) -> Part:
    """The guest's own MAC with another first octet: nobody else on the node has it, and no node has to be asked."""
    first = FIRST[nic.mac.startswith(FIRST[0])]
    return Part(before=(SteadyAddress(nic.interface, first + nic.mac[2:]),))
