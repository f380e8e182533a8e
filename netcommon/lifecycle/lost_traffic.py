"""Tell what of a NIC's traffic does not pass though all that was done for it holds: for check, and whoever shows what that found."""

from __future__ import annotations

from netcommon.operations import bridge_cut_off, filtered, ovs_cut_off
from netcommon.operations.forwarding import silent, stopped
from netcommon.operations.led_away import led_away
from netcommon.operations.sysctl import dropped
from netcommon.options.model import mode_of
from netcommon.options.networks import fields_of
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from netcommon.settings.model import Settings
    from runtime.record import Record


class Lost(NamedTuple):
    """What does not pass, each in words."""

    whole: tuple[tuple[str, str], ...] = ()  #: why all that comes from or is for one of the guest's addresses is lost, and what helps
    some: tuple[tuple[str, str], ...] = ()  #: what of ours has no effect for some packets, and why


NOTHING = Lost()


def of_nic(view: View, record: Record, operations: Sequence[Operation], settings: Settings) -> Lost:
    """Look at a NIC whose device is there. Raises TryAgain; HostRefused without the program that could tell."""
    whole, some = bridge_cut_off.cut_off(view, record.nic.mac, operations), list[tuple[str, str]]()
    whole += [*filtered.bridged(view, record.nic.ip, operations), *ovs_cut_off.cut_off(view, operations)]
    if record.nic.mode == "routed":
        rules = led_away(view, record, operations, settings.rule_preference, doubtful=False)
        whole = [*rules.whole, *dropped(view, record.device, operations), *whole]
        some += rules.some
    if mode_of(record.nic) == "routed":  # instance communication ends at the node
        whole += filtered.routed(view, record.ifindex, record.device, operations)
        whole += stopped(view, record.device, operations)
        whole += silent(view, record.device, fields_of(record.nic, settings).gateway)
    return Lost(tuple(whole), tuple(some))
