"""A NIC whose device has got another name, by udev or by hand: its record knows the index, and follows the name.

What the kernel has by index goes along. What is kept under the name (a policy rule, a port of Open vSwitch, a DHCP server's file, the
guard's table) is made under the new name and undone under the old one; both are on record until that is done. A device that takes the
old name has another index: it is not the NIC's.
"""

from __future__ import annotations

from netcommon.lifecycle import execute
from netcommon.lifecycle.context import alive
from netcommon.operations.base import to_json
from runtime.errors import HostRefused, NicInvalid, escaped
from runtime.typed import TYPE_CHECKING
from runtime.validate import interface

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Node
    from netcommon.operations.base import Operation
    from runtime.record import Record


def name_of(node: Node, view: View, record: Record) -> str:
    """Tell what the record's device is called now; as on record where it is gone, or has a name that no record may hold."""
    link = view.link_at(record.ifindex)
    if link is None or link.name == record.device or not alive(node, view, record):
        return record.device
    try:
        return interface(link.name)
    except NicInvalid:
        return record.device


def as_recorded(node: Node, view: View, record: Record) -> bool:
    """Tell whether the record's device has the name on record, or is gone."""
    link = view.link_at(record.ifindex)
    return link is None or link.name == record.device or not alive(node, view, record)


def refuse_strange(node: Node, view: View, record: Record) -> None:
    """Raise HostRefused where the record, as ``follow`` gives it, does not name its device: that has a name that no record may hold."""
    link = view.link_at(record.ifindex)
    if link is not None and not as_recorded(node, view, record):
        text = f"device {record.device} is called {escaped(link.name)} now, which no record may hold"
        raise HostRefused(text, f"rename it, such as to {record.device}, and try again")


def follow(node: Node, view: View, record: Record) -> Record:
    """Give the record under the name that its device has now; ``record`` itself where that is the one on record.

    What an operation leaves under the old name stands before it, and so is undone after it.
    """
    name = name_of(node, view, record)
    if name == record.device:
        return record
    known, unknown = execute.decode(record)
    operations: list[Operation] = []
    for old in known:
        new = old.renamed(record.device, name)
        if (new.identity(), new.place()) != (old.identity(), old.place()):
            operations.append(old)
        operations.append(new)
    before = None if record.before is None else follow(node, view, record.before)
    return record._replace(nic=record.nic._replace(interface=name), operations=(*unknown, *map(to_json, operations)), before=before)


def left(record: Record, operations: Iterable[Operation]) -> list[Operation]:
    """Select the operations that are about a name which the record's device had before."""
    return [operation for operation in operations if operation.about() not in ("", record.device)]


def drift(
    node: Node, view: View, record: Record, operations: list[Operation], known: execute.Known | None = None, strict: bool = False
) -> list[tuple[Operation, str]]:
    """Select the operations of ``record``, as ``follow`` gives it, that do not hold, are left, or are less than their network takes.

    ``known`` and ``strict`` as for execute.drift.
    """
    old = left(record, operations)
    found = execute.drift(view, [operation for operation in operations if operation not in old] if old else operations, known, strict)
    for operation in operations:
        better = operation.outgrown(view, node.store.devices)
        if better is not operation and operation not in old:
            found.append((operation, f"its network takes more by now: {better.describe()}"))
    return [*found, *((operation, f"it is of the name {operation.about()}, which the device had before") for operation in old)]


def on_device(node: Node, view: View, name: str) -> Record | None:
    """Give the record of the NIC whose device is called ``name`` now, or was until it went; none that has another name now."""
    link, record = view.link(name), node.store.by_device(name)
    if record is not None and (link is None or link.index == record.ifindex or name_of(node, view, record) == name):
        return record
    if link is None:
        return None
    uuid = link.alias.partition(" ")[0]
    found = (node.store.read(key) for key in (uuid, f"{uuid}.{link.index}"))
    return next((one for one in found if one is not None and one.ifindex == link.index and alive(node, view, one)), None)
