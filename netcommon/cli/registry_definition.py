"""Define a NIC of plain QEMU with the registry: its MAC and addresses are given out and changed there, and the definition repeats them.

The node asks as itself: such a NIC is the node's, and it is its master. What the registry has given before the definition is written is
given back if that fails; where even that is cut off, the NIC is one without a definition, which the agent gives back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from netcommon.cli import ganeti_pool
from netcommon.cli.app import App
from netcommon.cli.registry_client import client, network_of
from netcommon.lifecycle.push import drop, keep_network, push
from netcommon.plan.planner import plan
from runtime import definitions, membership
from runtime.environment import environment_of, nic_from_environment
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid, TryAgain
from runtime.membership import Membership
from runtime.networks import network_of as network_wanted
from runtime.nic import Nic
from runtime.registry_wanted import RegistryWanted, wanted_of

#: Fields of a wanted NIC that a definition gives, and their variables.
FIELDS = {
    "instance": "INSTANCE",
    "index": "INTERFACE_INDEX",
    "name": "INTERFACE_NAME",
    "mac": "MAC",
    "ip": "IP",
    "mode": "MODE",
    "link": "LINK",
    "vlan": "VLAN",
    "tags": "TAGS",
}
#: Variables that a network of the registry gives; its gateways are told to guests as long as the registry says them, and stand in no file.
NETWORK = {"name": "NETWORK_NAME", "uuid": "NETWORK_UUID", "subnet": "NETWORK_SUBNET", "subnet6": "NETWORK_SUBNET6"}
NETWORK |= {"mac_prefix": "NETWORK_MAC_PREFIX", "tags": "NETWORK_TAGS"}

#: What names a NIC's link.
LINKS = frozenset(("LINK", "BRIDGE"))

#: What is the registry's to give and to change.
ASKED = ("MAC", "IP")


def joined(app: App) -> Membership:
    """Give who this node is to the registry. Raises HostRefused where it has joined none."""
    me = membership.read(app.paths)
    if me is None:
        raise HostRefused("this node has joined no registry, which alone knows networks", "netcommon registry node join NODE")
    return me


class Defined(NamedTuple):
    """A NIC that was defined, the path of its definition, and what is to be said of it."""

    nic: Nic
    path: str
    note: str = ""


def define(app: App, me: Membership, uuid: str, typed: Mapping[str, str], network: str) -> Defined | None:
    """Define the NIC in the registry and here; None where the registry knows neither it nor a network of it.

    ``typed``: variables; of a NIC that the registry knows stays what is not among them. ``network``: a name or UUID; "": as it was.

    Raises NicInvalid, and what the registry refuses.
    """
    known = definitions.read(app.paths, uuid)
    with client(app, f"node:{me.uuid}") as asked:
        there = _known(asked, uuid)
        if not network and there is None:
            return None
        given = {**_said(known, typed), **typed} if there is not None and known is not None else typed
        asking = {**given, "INTERFACE_UUID": uuid}
        item = network_of(asked, network) if network else _network(asked, there)
        in_it = item.get("network", {})
        wanted = nic_from_environment(_placed(asking, in_it, {}))  # whatever is wrong with it is said before anything is given out
        own = there is None or there["nic"]["master"] == f"node:{me.uuid}"
        body = _body(wanted, given if own else {name: typed[name] for name in ASKED if name in typed}, typed, in_it, there)
        if there is None:
            said = asked.change("POST", "nics", {"uuid": uuid, **body})
        elif body:
            said = asked.change("PATCH", f"nics/{uuid}", body, there["revision"])
        else:
            said = None
        value, revision = (said.body, said.revision) if said is not None else (there["nic"], there["revision"])
        try:
            nic = nic_from_environment(_placed(asking, in_it, value))
            check(app, nic)
            path = definitions.write(app.paths, nic)
        except NetcommonError:
            if there is None:
                asked.change("DELETE", f"nics/{uuid}", match=revision)
            raise
        ganeti_pool.warn(asked, None if there is None else there["nic"], value, in_it)
    notes = [_keep(app, nic, wanted_of(revision, value), item)]
    if not own and value["master"].startswith("node:"):
        notes.append(f"the registry knows the NIC already, and what it says of it stays: {_other(value)}")
    return Defined(nic, path, "\n".join(filter(None, notes)))


def _said(known: Nic, typed: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of a NIC as it was, but the link that is typed anew: LINK and BRIDGE both say it."""
    return {name: text for name, text in environment_of(known).items() if name not in LINKS or LINKS.isdisjoint(typed)}


def _other(nic: Mapping[str, Any]) -> str:
    """Say who is the master of a NIC, which this node is not, and what an operator does where there is no such master any more."""
    operators = nic["master"] == "registry" or nic["master"].startswith("node:")
    remedy = f"; an operator deletes it: netcommon registry nic delete {nic['uuid']}" if operators else ""
    return f"its master is {nic['master']}, and not this node{remedy}"


def check(app: App, nic: Nic) -> None:
    """Raise NicInvalid for what every up would refuse; a site's code is not called for it."""
    try:
        settings = app.settings(strict=False)
    except SettingsInvalid:
        return  # may be mended until the up
    plan(nic, settings._replace(extensions={}))


def _known(asked: Any, uuid: str) -> Any:
    """Give what the registry wants of the NIC; None where it knows none."""
    try:
        return asked.get(f"nics/{uuid}").body
    except NetcommonError as error:
        if getattr(error, "kind", "") == "missing":
            return None
        raise


def _network(asked: Any, there: Any) -> Any:
    uuid = there["nic"]["network"]
    return asked.get(f"networks/{uuid}").body if uuid else {}


def _placed(given: Mapping[str, str], network: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, str]:
    """Give the variables of a NIC in its network, with the MAC and the address that the registry has given it."""
    found = {name: text for name, text in given.items() if not name.startswith("NETWORK_") or not network}
    for name, variable in NETWORK.items():
        if said := network.get(name):
            found[variable] = " ".join(said) if isinstance(said, list) else str(said)
    for variable in ASKED if value else ():
        said = str(value[variable.lower()])
        if found.get(variable, "").partition("/")[0] != said:  # the registry says no prefix length
            found[variable] = said
    return found


def _body(nic: Nic, given: Mapping[str, str], typed: Mapping[str, str], network: Mapping[str, Any], there: Any) -> dict[str, Any]:
    """Give the body of the request: what of ``given`` the registry does not say so, and what is to be given out.

    A NIC that moves to another network has an address there that is typed, or is given out.
    """
    said = environment_of(nic)
    values: dict[str, Any] = {name: said.get(variable, "") for name, variable in FIELDS.items() if variable in given}
    values |= {"ip": values["ip"].partition("/")[0]} if "ip" in values else {}
    values |= {"tags": list(nic.tags)} if "TAGS" in given else {}
    values |= {"index": nic.index} if "INTERFACE_INDEX" in given else {}
    before = there["nic"] if there is not None else {}
    moves = network.get("uuid", "") != before.get("network", "")
    if moves:
        values["network"] = network["uuid"]
    found = {name: value for name, value in values.items() if value != before.get(name) and (there is not None or value not in ("", None))}
    if moves and "IP" in typed:
        found["ip"] = nic.ip.partition("/")[0]
    elif moves:
        families = [f"ipv{family}" for family, field in ((4, "subnet"), (6, "subnet6")) if network.get(field)]
        found |= {"allocate": families, "addresses": []} | ({"ip": ""} if there is not None else {})
    return found


def _keep(app: App, nic: Nic, wanted: RegistryWanted, network: Mapping[str, Any]) -> str:
    """Keep what the registry wants of the NIC, as the agent would a moment later: its first up may come before. Give what is to be said."""
    try:
        node = app.node(strict=False)
        if network:
            keep_network(node, network_wanted(network["network"]["uuid"], network["revision"], network["network"]))
        done = push(node, nic.uuid, wanted, app.call(nic=nic))
        return f"it is up, and has these from its next start on: {', '.join(done.restart)}" if done.restart else ""
    except NetcommonError as error:
        app.log.warning(f"the agent is to let {nic.label} have what the registry wants of it: {error}")
        return ""


def give_back(app: App, me: Membership, uuid: str) -> str:
    """Let the registry have back what it has given the NIC, whose definition is gone; say what became of that."""
    try:
        with client(app, f"node:{me.uuid}") as asked:
            there = _known(asked, uuid)
            if there is None:
                return ""
            if there["nic"]["master"] != f"node:{me.uuid}":
                return f"the registry keeps the NIC, for {_other(there['nic'])}"
            asked.change("DELETE", f"nics/{uuid}", match=there["revision"])
        drop(app.node(strict=False), uuid, app.call())
        return "the registry has back what it had given"
    except (TryAgain, HostRefused) as error:
        return _later(app, uuid, f"for now that is refused: {error}")
    except NetcommonError as error:  # a problem that the registry names
        if getattr(error, "kind", "") not in ("in-use", "waiting", "stale"):
            raise
        return _later(app, uuid, f"not yet: {error}")


def _later(app: App, uuid: str, why: str) -> str:
    """Say who gives back what the registry has given. Where nothing is defined the agent does not: the folder may be lost."""
    if any(definitions.all_of(app.paths)):
        return f"the agent gives back what the registry had given, once it may; {why}"
    again = f"netcommon define --remove --uuid {uuid}"
    return f"no NIC is defined on this node any more, so the agent gives back nothing: {again}, said again later, does; {why}"
