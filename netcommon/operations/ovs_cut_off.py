"""Tell why a port of Open vSwitch has no network though it is there as it was made: no hook loads this."""

from __future__ import annotations

from netcommon.operations.node_reached import node_reached
from netcommon.operations.ovs import Port, standing
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netcommon.host.api.facts import OvsPort
    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation

#: What ovs-ofctl calls a setting of a port, what it does, and what undoes it.
SHUT = {
    "NO_RECV": ("takes nothing that the guest sends (no-receive)", "receive"),
    "NO_FWD": ("sends nothing on to the guest (no-forward)", "forward"),
}


def cut_off(view: View, operations: Iterable[Operation]) -> list[tuple[str, str]]:
    """Return why a NIC that is a port as it was made has no network all the same, and what helps. Raises TryAgain, HostRefused.

    What is a fault of the bridge reads the same for each of its NICs.
    """
    found: list[tuple[str, str]] = []
    for one in operations:
        if isinstance(one, Port):
            port = standing(view, one.device, one.bridge, one.owner)
            found += _cut_off(view, port) if port is not None else []
    return found


def _cut_off(view: View, port: OvsPort) -> list[tuple[str, str]]:
    switch = view.ovs_switch(port.bridge)
    if switch is None:
        return []
    seen = view.ovs_forwarding(switch.name)
    config = dict(seen.config).get(port.ofport, ())
    found = [
        (f"port {port.name} of {switch.name} {text}", f"ovs-ofctl mod-port {switch.name} {port.name} {back}")
        for word, (text, back) in SHUT.items()
        if word in config
    ]
    if not switch.controlled and seen.taken is not None and not seen.taken & {0, port.ofport}:
        text = f"{switch.name} has no flow that takes on what comes in by the guest's port: it drops all of it"
        found.append((text, f"ovs-ofctl add-flow {switch.name} priority=0,actions=NORMAL, or what your own flows are to do"))
    elif not switch.controlled and (match := dict(seen.dropped).get(port.ofport)):
        text = f"a flow of {switch.name} that is not ours drops all that comes in by the guest's port: {match}"
        found.append((text, f"ovs-ofctl --strict del-flows {switch.name} table=0,{match}, or a flow before it for what is to pass"))
    return [*found, *_protected(view, port)]


def _protected(view: View, port: OvsPort) -> list[tuple[str, str]]:
    """Compare the port with all others of the bridge, the node's own among them: two protected ports exchange nothing."""
    if not port.protected:
        return []
    others = [each for each in view.ovs_bridge_ports(port.bridge) if each.name != port.name]
    ways = [each for each in others if not each.owner and not each.internal]
    if not ways or not all(each.protected or (each.internal and not _reached(view, each)) for each in others):
        return []
    names = " and ".join(each.name for each in ways)
    text = f"the guest's port of {port.bridge} is protected, and so is {names}, by which {port.bridge} leads on"
    return [(text, f"ovs-vsctl set Port {ways[0].name} protected=false")]


def _reached(view: View, port: OvsPort) -> bool:
    """Tell whether guests may be meant to reach the node by a port of its own, or who else has its device: a namespace, a bridge."""
    link = view.link(port.name)
    return port.ofport > 0 if link is None else bool(link.master) or node_reached(view, link)
