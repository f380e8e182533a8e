"""The planner: NIC and settings in, operations out. Pure: the same input gives the same list, and nothing is touched."""

from __future__ import annotations

from importlib import import_module

from netcommon.modes.communication import is_communication
from netcommon.operations.base import Operation
from netcommon.settings import Settings
from runtime.nic import Nic


def plan(nic: Nic, settings: Settings) -> list[Operation]:
    """The operations that join ``nic`` to the network, in the order in which they are applied.

    What only the host knows (the bridge's MTU, its uplinks, a table's number) is left to ``resolve``.
    """
    name = "communication" if is_communication(nic) else nic.mode
    operations: list[Operation] = import_module("netcommon.modes." + name).plan(nic, settings)
    return operations
