"""Which routing table a routed NIC's LINK means."""

from __future__ import annotations

from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

MAIN = 254
LOCAL = 255


def called(table: str, number: int) -> str:
    """Return the table as a sentence names it; ``number`` is what ``table`` was found to be."""
    return "table main" if number == MAIN or not table else f"table {table}"


def renumbered(view: View, table: str, number: int) -> str:
    """Tell in words that ``table``, which was resolved as ``number``, has another number now; "" if not, or if nothing names it now."""
    now = view.table(table) if table else number
    return "" if now in (None, number) else f"table {table} is number {now} now, not {number}"


def out_of_main(view: View, operation: Operation) -> bool:
    """Tell whether what was resolved in table main would be in another one now, as where a bridge's name has become a table's."""
    table: str = getattr(operation, "table", "") if getattr(operation, "number", 0) == MAIN else ""
    return bool(table and renumbered(view, table, MAIN))


def table_number(view: View, table: str, warnings: list[str]) -> int:
    """The number of the table that ``table`` names; "" is main.

    A cluster's default LINK is a bridge, and a routed NIC created without its own carries it: such a name means main, with a
    warning. Raises HostRefused for any other unknown name.
    """
    if not table:
        return MAIN
    number = view.table(table)
    if number == LOCAL:
        raise HostRefused(f"routing table {table} is the kernel's own", "correct the NIC's LINK")
    if number:
        return number
    link = view.link(table)
    # the device of an OVS bridge is of any kind: a tap with the userspace datapath
    if (link is not None and link.kind == "bridge") or view.ovs_bridge(table):
        text = f"LINK={table} is a bridge, no routing table: the NIC uses table main"
        if text not in warnings:
            warnings.append(text)
        return MAIN
    raise HostRefused(f"routing table {table} is unknown", "name it in /etc/iproute2/rt_tables.d/, or correct the NIC's LINK")
