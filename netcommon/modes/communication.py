"""Ganeti's instance communication NIC (design-os.rst): tap gnt.com.N in mode routed, which kvm-ifup-os alone configures."""

from __future__ import annotations

from netcommon.operations.base import Operation
from netcommon.options import Options
from netcommon.settings import Settings
from runtime.nic import Nic

PREFIX = "gnt.com."


def is_communication(nic: Nic) -> bool:
    """By the tap's name and the mode, as Ganeti's own script tells it."""
    return nic.mode == "routed" and nic.interface.startswith(PREFIX)


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """Nothing of ours: Ganeti's built-in set-up leaves such a NIC alone too."""
    return []
