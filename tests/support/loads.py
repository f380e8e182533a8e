"""What a cold hook may load: each module costs it a tenth of a millisecond and more, whatever it is for.

Beside what the interpreter itself loads. A module that a mode needs from now on is added here, by whoever has measured what it costs.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Of the standard library: the compiled halves of modules that are dear, and what is cheap.
LIBRARY = _names(
    "__future__ _collections _json _sha256 _signal _socket _struct binascii errno fcntl itertools math os select stat struct time"
)

#: Of ours, in every mode, up and down.
ALWAYS = _names(
    """
    runtime runtime.environment runtime.errors runtime.folder runtime.ganeti runtime.jsontext runtime.layout runtime.links runtime.locks
    runtime.lookup runtime.modules runtime.names runtime.nic runtime.owners runtime.paths runtime.record runtime.store runtime.typed
    runtime.validate runtime.vlan
    netcommon netcommon.custom netcommon.log netcommon.options netcommon.report netcommon.settings
    netcommon.doors netcommon.doors.call netcommon.doors.kvm netcommon.effects netcommon.effects.detached
    netcommon.host netcommon.host.address_view netcommon.host.attributes netcommon.host.base netcommon.host.decode netcommon.host.encode
    netcommon.host.facts netcommon.host.kernel netcommon.host.linux netcommon.host.local netcommon.host.netlink netcommon.host.nfview
    netcommon.host.once netcommon.host.ovs_view netcommon.host.portview netcommon.host.procfs netcommon.host.reach netcommon.host.refusals
    netcommon.host.requests netcommon.host.requests_flows netcommon.host.requests_local netcommon.host.requests_port
    netcommon.host.requests_rules netcommon.host.tables netcommon.host.tcview netcommon.host.template_view
    netcommon.lifecycle netcommon.lifecycle.down netcommon.lifecycle.effects netcommon.lifecycle.ifup_os netcommon.lifecycle.node
    netcommon.lifecycle.renamed netcommon.lifecycle.scripts netcommon.lifecycle.steps
    netcommon.operations netcommon.operations.base netcommon.operations.link netcommon.operations.stored
    """
)

UP = _names(
    """
    netcommon.lifecycle.coming netcommon.lifecycle.incoming netcommon.lifecycle.leftovers netcommon.lifecycle.up
    netcommon.modes netcommon.modes.common netcommon.plan
    netcommon.features netcommon.features.base netcommon.operations.rule netcommon.operations.table netcommon.operations.bridge
    """
)

GUARD = _names(
    """
    netcommon.host.nfdecode netcommon.host.nfencode netcommon.host.nfexpr netcommon.host.nfnetlink netcommon.host.nftables
    netcommon.operations.delivery netcommon.operations.guard netcommon.operations.guard_keys netcommon.operations.guard_rules
    netcommon.operations.shared_table
    """
)

BRIDGED = frozenset({"netcommon.host.encode_port", "netcommon.operations.bridge", "netcommon.operations.port"})
ROUTED = frozenset(
    f"netcommon.operations.{name}" for name in ("route", "rule", "steady", "sysctl", "table", "uplink", "neighbour", "blackhole")
)

#: Of the guard, what is loaded to find that Open vSwitch forwards in user space.
FRONT = _names(
    """
    netcommon.host.nfexpr netcommon.host.nftables
    netcommon.operations.delivery netcommon.operations.guard netcommon.operations.guard_keys netcommon.operations.guard_rules
    netcommon.operations.shared_table
    """
)

#: Open vSwitch's database, and its flows, which the guard is.
OVS = _names(
    """
    netcommon.host.flowlink netcommon.host.flowwire netcommon.host.jsonrpc netcommon.host.openflow netcommon.host.ovschange
    netcommon.host.ovsdb netcommon.host.ovsread netcommon.host.ovsrows netcommon.host.patience
    netcommon.operations.flows netcommon.operations.guard_flows netcommon.operations.ovs netcommon.operations.ovs_link
    """
)

#: Whose instance has tags that are options.
TAGGED = frozenset({"netcommon.kinds", "netcommon.options_schema", "netcommon.tags"})

#: Sockets that are slow to close.
LINGERING = frozenset({"netcommon.doors.lingering"})

#: By mode and direction.
MODES = {
    ("bridged", "up"): ALWAYS | UP | GUARD | BRIDGED | {"netcommon.addresses", "netcommon.features.guard", "netcommon.modes.bridged"},
    ("bridged", "down"): ALWAYS | GUARD | BRIDGED | LINGERING,
    ("routed", "up"): ALWAYS
    | UP
    | GUARD
    | ROUTED
    | LINGERING
    | {f"netcommon.features.{name}" for name in ("guard", "steady", "announce")}
    | {f"netcommon.effects.{name}" for name in ("base", "announce", "frames")}
    | {"netcommon.addresses", "netcommon.modes.routed"},
    ("routed", "down"): ALWAYS | GUARD | ROUTED | LINGERING,
    ("openvswitch", "up"): ALWAYS
    | UP
    | OVS
    | TAGGED
    | FRONT
    | {"netcommon.addresses", "netcommon.features.guard"}
    | {"netcommon.modes.openvswitch", "netcommon.modes.openvswitch_flows", "netcommon.templates", "netcommon.trust"},
    ("openvswitch", "down"): ALWAYS | OVS,
    ("ext", "up"): ALWAYS | UP | {"netcommon.modes.ext"},
}
