"""Say who decides each field: two programs must never fight over one. Everybody else is refused with the master's name and command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netregistry.model.kinds import REGISTRY
from netregistry.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.draft import Draft
    from netregistry.model.history import Identity
    from netregistry.model.network import Network
    from netregistry.model.nic import Nic

#: Fields of a NIC that a Ganeti cluster, or a node, decides where it is the NIC's master.
OF_GANETI = frozenset(("belongs", "instance", "index", "name", "owner", "mac", "network", "ip", "mode", "link", "vlan", "model", "tags"))
OF_NODE = frozenset(("belongs", "instance", "index", "name", "mac", "mode", "link", "vlan", "model", "tags", "transient"))
OF_MASTER = {"ganeti": OF_GANETI, "node": OF_NODE}
#: What a node may ask of the registry for a NIC of its own beside these: `netcommon define` is such a call.
ASKED_BY_NODE = frozenset(("network", "ip", "addresses", "owner"))

#: Fields of a network that its Ganeti cluster decides: always, or as soon as the cluster has given a value.
ALWAYS_GANETI = frozenset(("name", "subnet", "tags", "mac_prefix", "reserved", "barred"))
ONCE_GANETI = frozenset(("subnet6", "gateway", "gateway6", "vlan"))
#: What is said of a network, and never of one NIC.
PER_NETWORK = frozenset(("routes", "resolvers", "search", "mtu", "gateway", "gateway6", "subnet", "subnet6"))

#: Field -> what `gnt-instance modify --net N:modify,` takes.
NET = {"mac": "mac=MAC", "ip": "ip=ADDRESS", "network": "network=NETWORK", "mode": "mode=MODE", "link": "link=LINK", "vlan": "vlan=VLAN"}
NET["name"] = "name=NAME"
OPTIONS_OF_NETWORKS = {"gateway": "--gateway=ADDRESS", "gateway6": "--gateway6=ADDRESS", "subnet6": "--network6=PREFIX"}
OPTIONS_OF_NETWORKS |= {"mac_prefix": "--mac-prefix=PREFIX", "reserved": "--add-reserved-ips=ADDRESSES"}
#: Field of a NIC -> what gnt-instance takes for all NICs of an instance.
OF_INSTANCES = {"tags": "add-tags {} TAG, or remove-tags", "owner": "add-tags {} owner:NAME, or remove-tags"}
OF_INSTANCES |= {"model": "modify -H nic_type=MODEL {}", "instance": "rename {} NAME"}


def identity(who: Identity) -> str:
    """Give the master as which somebody writes."""
    return {"importer": f"ganeti:{who.name}", "node": f"node:{who.name}"}.get(who.role, REGISTRY)


def nic(draft: Draft, nic: Nic, fields: Iterable[str], who: Identity) -> None:
    """Raise Refused where somebody else decides one of the fields."""
    for field in sorted(fields):
        if not _decides(nic, field, who):
            # an importer or node of its own is refused what the operator decides; everybody else what the NIC's master does
            master = REGISTRY if field not in OF_MASTER.get(nic.master.partition(":")[0], ()) else nic.master
            _refuse(draft, field, master, _command(draft, nic, field, master))


def nic_whole(draft: Draft, nic: Nic, who: Identity, forced: bool) -> None:
    """Raise Refused where somebody else decides whether a NIC is there. ``forced``: an operator says that its master is gone for good."""
    if who.role == "operator" and (forced or not nic.master.startswith("ganeti:")):
        return
    if nic.master != identity(who):
        _refuse(draft, "", nic.master, _command(draft, nic, "", nic.master))


def _decides(nic: Nic, field: str, who: Identity) -> bool:
    kind = nic.master.partition(":")[0]
    if who.role == "operator":
        return field not in OF_MASTER.get(kind, ())
    if nic.master != identity(who):
        return False
    return field in (OF_GANETI if who.role == "importer" else OF_NODE | ASKED_BY_NODE)


def network(draft: Draft, network: Network, fields: Iterable[str], who: Identity) -> None:
    """Raise Refused where somebody else decides one of the fields of a network."""
    for field in sorted(fields):
        ganeti = network.master.startswith("ganeti:")
        if who.role == "operator":
            if ganeti and (field in ALWAYS_GANETI or field in network.imported):
                wanted = OPTIONS_OF_NETWORKS.get(field, "")
                command = f"gnt-network modify {wanted} {network.name}" if wanted else _renewed(network, field)
                command += ", or --remove-reserved-ips" if field == "reserved" else ""
                _refuse(draft, field, network.master, command)
        elif network.master != identity(who) or field not in ALWAYS_GANETI | ONCE_GANETI:
            _refuse(draft, field, REGISTRY, f"netcommon registry network set {network.name} {field}=...")


def network_whole(draft: Draft, network: Network, who: Identity, forced: bool) -> None:
    """Raise Refused where somebody else decides whether a network is there."""
    if who.role == "operator" and (forced or network.master == REGISTRY):
        return
    if network.master != identity(who):
        ganeti = network.master.startswith("ganeti:")
        command = f"gnt-network remove {network.name}" if ganeti else f"netcommon registry network delete {network.name}"
        _refuse(draft, "", network.master, command)


def _renewed(network: Network, field: str) -> str:
    return (
        f"gnt-network add-tags {network.name} TAG, or remove-tags"
        if field == "tags"
        else f"gnt-network remove {network.name}, and add it anew"
    )


def _command(draft: Draft, nic: Nic, field: str, master: str) -> str:
    """Give the command by which a NIC's field (or, where it is "", the NIC itself) is changed by its master."""
    kind, _, name = master.partition(":")
    if kind == "ganeti":
        which = nic.index if nic.index is not None else nic.uuid
        if field in NET:
            return f"gnt-instance modify --net {which}:modify,{NET[field]} {nic.instance}"
        if field in OF_INSTANCES:
            return f"gnt-instance {OF_INSTANCES[field].format(nic.instance)}"
        if not field:
            return f"gnt-instance modify --net {which}:remove {nic.instance}"
        return f"gnt-instance modify {nic.instance}"
    if kind == "node":
        node = draft.node(name)
        return (
            f"netcommon define, on {node.name if node else name}"
            if field
            else f"netcommon define --remove, on {node.name if node else name}"
        )
    return f"netcommon registry nic set {nic.uuid} {field}=..." if field else f"netcommon registry nic delete {nic.uuid}"


def _refuse(draft: Draft, field: str, master: str, command: str) -> None:
    kind, _, name = master.partition(":")
    node = draft.node(name) if kind == "node" else None
    shown = {"ganeti": f"the Ganeti cluster {name}", "node": f"node {node.name if node else name}"}.get(kind, "the registry's operator")
    what = f"{field} is" if field else "it is"
    more = {"field": field} if field else {}
    raise Refused("forbidden", f"{what} for {shown} to decide: {command}", master=master, command=command, **more)
