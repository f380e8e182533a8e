"""Mark the port of Open vSwitch of a guest that runs before adopt brings its NIC up, and take the mark off where that fails.

With our mark the port is kept as it is, and not made anew. The device is marked first: gc leaves alone what belongs to a device with our
mark. All of it is under the locks of the device and the UUID, so no hook finds a mark of a NIC that is on no record.
"""

from __future__ import annotations

from netcommon.host.api.facts import OVS_MARK
from netcommon.host.api.requests import ReleaseOvsPort, TakeOvsPort
from netcommon.lifecycle import execute
from netcommon.lifecycle.context import ADOPT
from netcommon.operations.link import device_link
from netcommon.plan.planner import alias
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.facts import OvsPort
    from netcommon.lifecycle.context import Node, Outcome
    from netcommon.operations.base import Operation
    from runtime.nic import Nic


class Taken(NamedTuple):
    """A port that was marked, as it was found, and the mark of its device; None where devices bear none."""

    found: OvsPort
    own: Operation | None


def marked(node: Node, nic: Nic, work: Callable[[], Outcome]) -> Outcome:
    """Do ``work`` with the NIC's port marked; where it fails the mark is taken off. Raises HostRefused, or what ``work`` does."""
    taken = take(node, nic)
    try:
        return work()
    except BaseException:
        if taken is not None:
            give_back(node, nic, taken)
        raise


def take(node: Node, nic: Nic) -> Taken | None:
    """Mark the NIC's device and its port; None where the port is not there, is another bridge's, or another NIC's. Raises HostRefused.

    It bears the NIC's own mark where adopt was killed before it had put the NIC on record.
    """
    view = node.host.view()
    port, link = view.ovs_port(nic.interface), device_link(view, nic.interface)
    if port is None or port.owner not in ("", nic.uuid) or port.bridge != nic.link:
        return None
    own = alias(nic)._replace(ifindex=link.index)
    own = own._replace(value=own.wanted, was="" if link.alias == own.wanted else link.alias)
    taken = Taken(port, own if execute.looked_after(node, own) else None)
    requests = [*(taken.own.apply() if taken.own else ()), TakeOvsPort(port.name, port.bridge, nic.uuid)]
    try:
        for answer in node.host.execute(requests, stop=True):
            if not answer.ok:
                raise execute.refusal(own, answer)
    except BaseException:
        give_back(node, nic, taken)
        raise
    return taken


def give_back(node: Node, nic: Nic, taken: Taken) -> None:
    """Take the marks off again, unless the NIC is on adopt's record: then what that holds is still to be undone, by gc."""
    record = node.store.read(nic.uuid)
    if record is not None and record.door == ADOPT:
        return
    made = taken.found._replace(external_ids=((OVS_MARK, nic.uuid),), interface_ids=())
    requests = [ReleaseOvsPort(made, taken.found), *(taken.own.revert(node.host.view()) if taken.own else ())]
    node.host.execute(requests, stop=False)
