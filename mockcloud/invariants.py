"""Hold everything that a mock cloud has against each other: what must be so at every moment, and when all is quiet.

By raw files, tables of kernels, simulated or not, and what the registry stores and lists: by nothing of the code that made it so, but that
mockcloud.wanted asks netcommon.options which of several wishes counts.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud import raw
from mockcloud.hardware import TAP
from mockcloud.in_device import MAIN, table_of
from mockcloud.in_force import lacking
from mockcloud.in_own import of_own
from mockcloud.in_routing import host_routes
from mockcloud.in_unread import Strange, strange
from mockcloud.kept import of_networks
from mockcloud.left_over import Running, has_switch, left_over
from mockcloud.wanted import settings_of, told_of, wanted_by
from netcommon.host.api.facts import AF_INET, AF_INET6
from runtime.folder import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mockcloud.cloud import MockCloud
    from mockcloud.commits import Commits
    from mockcloud.node import MockNode
    from netcommon.host.api.facts import Link, OvsPort, Route, Rule

HERE = ("running", "incoming")  #: states of an instance that has a process
SHOWN = ("running", "pending restart")  #: how a NIC of a running instance is shown
RECORD = ("state", "nic", "ifindex", "incoming", "operations")  #: what is looked at of a record


class Guest(NamedTuple):
    """One file of an instance on a node."""

    node: str
    vm: dict[str, Any]

    @property
    def nics(self) -> list[tuple[str, dict[str, Any]]]:
        """Give the NICs that it has, each with a word for people."""
        return [(f"{self.vm['name']}/{place}", each) for place, each in enumerate(self.vm["interfaces"])]


def guests_of(cloud: MockCloud) -> list[Guest]:
    """Give the files of instances that can be read; those that somebody has edited are refused elsewhere."""
    found = []
    for node in raw.names(f"{cloud.root}/servers"):
        found += [Guest(node, vm) for _path, vm in _vms(cloud, node) if vm is not None]
    return found


def _vms(cloud: MockCloud, node: str) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Give the files of instances of a node, None for one that cannot be read. What ran in an earlier boot has crashed with that."""
    folder, hypervisor = Path(cloud.root, "servers", node, "vms"), cloud.hypervisors.get(node)
    for path in (folder / name for name in raw.names(folder) if name.endswith(".json")):
        vm = raw.fields(path, "name", "state", "uuid", "pid", "interfaces")
        try:
            _ = [(each["nic"]["uuid"], each["tap"], each["device"]) for each in vm["interfaces"]]
        except (KeyError, TypeError):
            yield path, None
            continue
        earlier = vm["state"] == "running" and hypervisor is not None and vm.get("boot") not in (None, 0, hypervisor.counters.boot)
        yield path, {**vm, "state": "crashed"} if earlier else vm


class _Tables(NamedTuple):
    """Hold what a node's kernel has."""

    links: dict[str, Link]
    rules: Sequence[Rule]
    routes: Sequence[Route]
    ports: Sequence[OvsPort]


def _tables(node: MockNode) -> _Tables:
    with node.inside:
        view = node.machine.view()
        rules = [each for family in (AF_INET, AF_INET6) for each in view.rules(family)]
        routes = [each for family in (AF_INET, AF_INET6) for each in view.routes(family)]
        ports = view.ovs_ports() if has_switch(node) else ()
        return _Tables({link.name: link for link in view.links()}, rules, routes, ports)


# -- at every moment


def always(cloud: MockCloud) -> list[str]:
    """Say what is wrong at this moment, whatever goes wrong with nodes and registry; nothing where all is well."""
    guests = guests_of(cloud)
    return [*_live(cloud, guests), *_in_force(cloud, guests)]


def _live(cloud: MockCloud, guests: Iterable[Guest]) -> Iterator[str]:
    """Nothing of what lives is reaped: a guest that runs has its devices, and their NICs are on record."""
    for guest in guests:
        machine = cloud.nodes.get(guest.node)
        if machine is None or guest.vm["state"] != "running":
            continue
        for label, each in guest.nics:
            link = _link(machine, each["tap"])
            if link is None or link.index != each["device"]:
                yield f"{label} on {machine.name}: its guest runs, and its device is {link}"
            elif not each.get("unset") and not _record(cloud, guest.node, each):
                yield f"{label} on {machine.name}: its guest runs, and it is on no record"


def _link(node: MockNode, name: str) -> Link | None:
    with node.inside:
        return node.machine.view().link(name)


def _record(cloud: MockCloud, node: str, each: dict[str, Any]) -> bool:
    return os.path.exists(f"{cloud.root}/servers/{node}/run/netcommon/nics/{each['nic']['uuid']}.json")


def _in_force(cloud: MockCloud, guests: Iterable[Guest]) -> Iterator[str]:
    """No instance runs on two nodes, and what it has is in force on two only while it moves: its MAC, and never an address by a route.

    Two networks may have one subnet: an address is one NIC's in its scope. A tap that no guest has may be in any.
    """
    where: dict[str, list[str]] = {}
    moving = {guest.vm["uuid"] for guest in guests if guest.vm["state"] == "incoming"}
    nics = {each["nic"]["uuid"]: guest.vm["uuid"] for guest in guests for _label, each in guest.nics}
    running = Counter(guest.vm["uuid"] for guest in guests if guest.vm["state"] == "running")
    yield from (f"instance {uuid} runs on {number} nodes" for uuid, number in running.items() if number > 1)
    scopes = {(guest.node, each["tap"]): _scope(each["nic"]) for guest in guests for _label, each in guest.nics}
    routes: dict[str, dict[str, set[str]]] = {}
    for node, machine in cloud.nodes.items():
        with machine.inside:
            view = machine.machine.view()
            links, found = view.links(), list(host_routes(view))
        taps = {link.index: link for link in links if link.kind == "tun" and link.holders}
        for link in taps.values():
            uuid = link.alias.partition(" ")[0]
            if uuid in nics and link.up:
                where.setdefault(uuid, []).append(machine.name)
        for route in found:
            if route.index in taps:
                scope = scopes.get((node, taps[route.index].name), "")
                routes.setdefault(route.destination, {}).setdefault(scope, set()).add(machine.name)
    for uuid, names in where.items():
        if len(names) > 1 and nics[uuid] not in moving:
            yield f"NIC {uuid} is in force on {' and '.join(names)}, and is not moving"
    for address, found_in in routes.items():
        anywhere = found_in.pop("", set())
        for scoped in found_in.values() or [anywhere]:
            if len(scoped | anywhere) > 1:
                yield f"{address} is routed on {' and '.join(sorted(scoped | anywhere))}"


# -- when all is quiet


def unquiet(cloud: MockCloud) -> list[str]:
    """Say who is still at work, or away: nodes that are not in step with the registry, marks, jobs, locks."""
    found = []
    alive = {each["node"]["uuid"]: each["alive"] for each in cloud.registry.client().all("nodes")}
    for uuid, machine in cloud.nodes.items():
        status = machine.status()
        if not machine.alive or not alive.get(uuid) or status.get("registry") != "in step":
            text = status.get("registry") if machine.alive else "killed"
            found.append(f"the agent of {machine.name} is {text}, and {'' if alive.get(uuid) else 'not '}alive by the registry")
        left = {name: status[name] for name in ("registry marks", "registry jobs", "work waiting") if status.get(name)}
        left |= {"locks": len(machine.locks.holders)} if machine.locks.holders else {}
        found += [f"{number} {name} are left on {machine.name}" for name, number in left.items()]
    return [*found, *(f"{machine.name} is off" for machine in cloud.off.values())]


def told(cloud: MockCloud) -> list[str]:
    """Say what the registry has otherwise than the nodes are, once nobody has anything left to tell; before any comparison of all."""
    return list(_told(cloud))


def _told(cloud: MockCloud) -> Iterator[str]:
    client = cloud.registry.client()
    wanted = {each["nic"]["uuid"]: each for each in client.all("nics", belongs="instance")}
    said: dict[str, dict[str, dict[str, Any]]] = {}
    for each in client.all("reports"):
        if each["report"]["state"] != "stopped":
            said.setdefault(each["report"]["nic"], {})[each["node"]] = each["report"]
    there: dict[str, dict[str, str]] = {}
    for guest in guests_of(cloud):
        for label, each in guest.nics:
            uuid = each["nic"]["uuid"]
            if guest.vm["state"] == "running" and not each.get("unset"):
                there.setdefault(uuid, {})[guest.node] = each["tap"]
                report = said.get(uuid, {}).get(guest.node, {})
                if uuid in wanted and report and not report["refused"] and report["applied"] != wanted[uuid]["revision"]:
                    yield f"{label}: {report['applied'] or 'nothing'} is in force, and {wanted[uuid]['revision']} is wanted"
    for uuid in {**there, **said}.keys() - {uuid for each in _strange(cloud, wanted).values() for uuid in each.nics}:
        has = {node: report["tap"] for node, report in said.get(uuid, {}).items() if report["state"] == "running"}
        if has != there.get(uuid, {}) or len(has) != len(said.get(uuid, {})):
            yield f"NIC {uuid} is {said.get(uuid) or 'nowhere'} by the registry, and there on {there.get(uuid) or 'no node'}"


def settled(cloud: MockCloud, commits: Commits | None = None) -> list[str]:
    """Say what does not fit when all is quiet, of nodes whose agents run; nothing where all is well.

    ``commits``: what has followed the registry from the beginning, where something has.
    """
    return [*unquiet(cloud), *fitting(cloud), *_untidy(cloud), *(_reported(cloud, commits) if commits is not None else ())]


def _untidy(cloud: MockCloud) -> Iterator[str]:
    """Say what killed processes have left among the files of netcommon's own, and agents have not tidied away."""
    for machine in cloud.nodes.values():
        for path in sorted(Path(machine.paths.state).rglob("*")):
            if path.name.startswith(TEMPORARY) or (path.is_symlink() and not path.exists()):
                yield f"{path} on {machine.name} is left"


def fitting(cloud: MockCloud) -> list[str]:
    """Say what of files, hosts, records and the registry does not fit together, of nodes whose agents run."""
    return list(_fit(cloud))


def _fit(cloud: MockCloud) -> Iterator[str]:
    client = cloud.registry.client()
    wanted = {each["nic"]["uuid"]: each for each in client.all("nics", belongs="instance")}
    reports: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for each in client.all("reports"):
        reports.setdefault(each["report"]["nic"], []).append((each["node"], each["report"]))
    networks = {each["network"]["uuid"]: each["network"] for each in client.all("networks")}
    held = {tuple(each["key"].split("/")[1:]): each["claim"]["holder"] for each in client.all("claims", standing="held")}
    twice = Counter((_scope(each["nic"]), value) for each in wanted.values() for value in _own(each["nic"]))
    yield from (f"{value} is wanted by {number}" for (_scope_of, value), number in twice.items() if number > 1)
    yield from (f"conflict: {each}" for each in client.all("conflicts"))

    yield from of_own(cloud)

    others = _strange(cloud, wanted)
    seen = {uuid for each in others.values() for uuid in each.nics}
    homes: dict[str, str] = {}
    for node in raw.names(f"{cloud.root}/servers"):
        folder = Path(cloud.root, "servers", node)
        records = {path.stem.lower(): raw.fields(path, *RECORD) for path in (folder / "run/netcommon/nics").glob("*.json")}
        processes = {path.name for path in (folder / "proc").glob("*") if path.name.isdigit()}
        links = _tables(cloud.nodes[node]).links if node in cloud.nodes else {}
        taps = {name for name, link in links.items() if link.kind == "tun" and TAP.fullmatch(name)}
        settings = settings_of(cloud.nodes[node]) if node in cloud.nodes else None
        here = others[node].running(links, networks)
        records = {uuid: record for uuid, record in records.items() if uuid not in others[node].nics}
        processes, taps = processes - others[node].processes, taps - others[node].taps
        for path, vm in _vms(cloud, node):
            if vm is None:
                yield f"{path} is not what mockcloud has written"
                continue
            if vm["name"] in homes:
                yield f"{vm['name']} is on {homes[vm['name']]} and {node}"
            homes[vm["name"]] = node
            for place, each in enumerate(vm["interfaces"]):
                uuid = each["nic"]["uuid"]
                seen.add(uuid)
                label = f"{vm['name']}/{place} on {node}"
                if uuid not in wanted:
                    yield f"{label} is not wanted"
                    continue
                nic = wanted[uuid]["nic"]
                if nic["index"] != place:
                    yield f"{label}: its index is {nic['index']} by the registry"
                holders = {value: held.get((_scope(nic), value)) for value in _own(nic)}
                yield from (f"{label}: {value} is {holder}'s" for value, holder in holders.items() if holder != uuid)
                said = [(where, report) for where, report in reports.get(uuid, []) if report["state"] != "stopped"]
                if vm["state"] == "running":
                    yield from _running(cloud.nodes.get(node), folder, vm, each, place, records.pop(uuid, None), label)
                    link = links.get(each["tap"])
                    if link is not None and link.index == each["device"] and settings is not None:
                        about = wanted_by(wanted[uuid], each, settings), told_of(each, networks, settings)
                        here.append(Running(about[0], each["nic"], link, about[1]))
                        missing = lacking(cloud.nodes[node], here[-1], each, settings) if not each.get("unset") else ()
                        yield from (f"{label}: {text}" for text in missing)
                    if [(where, report["state"], report["tap"]) for where, report in said] != [(node, "running", each["tap"])]:
                        yield f"{label} is {said} by the registry"
                    if wanted[uuid]["shown"]["state"] not in SHOWN:
                        yield f"{label} is shown as {wanted[uuid]['shown']['state']}"
                elif said:
                    yield f"{label}, which is {vm['state']}, is {said} by the registry"
            if vm["state"] == "running":
                processes.discard(str(vm["pid"]))
                taps -= {each["tap"] for each in vm["interfaces"]}
        if node in cloud.nodes:
            yield from (f"{node}: {text}" for text in left_over(cloud.nodes[node], here))
        yield from (f"record {uuid} on {node} is nobody's" for uuid in records)
        yield from (f"process {pid} on {node} is nobody's" for pid in processes)
        yield from (f"{tap} on {node} is nobody's" for tap in taps)
    yield from (f"{each['label']} is wanted, and no instance's" for uuid, each in wanted.items() if uuid not in seen)
    for uuid, said in reports.items():
        if uuid not in wanted and any(report["state"] != "stopped" for _node, report in said):  # a stopped one goes with time
            yield f"{uuid} is {said} by the registry, and not wanted"


def _strange(cloud: MockCloud, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Strange]:
    """Give what is of guests whose files nobody can read, by node: they are left alone, and run on (docs/mockcloud.md)."""
    found = {}
    for node in raw.names(f"{cloud.root}/servers"):
        found[node] = strange(cloud.root, node, [path.stem for path, vm in _vms(cloud, node) if vm is None], wanted)
    return found


def _own(nic: dict[str, Any]) -> list[str]:
    """Give what nobody else may have."""
    return [each for each in (nic["mac"], nic["ip"], *nic["addresses"]) if each]


def _scope(nic: dict[str, Any]) -> str:
    """Name where that is its own alone: its network, its cluster, or all that have neither."""
    return nic["network"] or nic["cluster"] or "none"


def _running(
    node: MockNode | None, folder: Path, vm: dict[str, Any], each: dict[str, Any], place: int, record: dict[str, Any] | None, label: str
) -> Iterator[str]:
    """Say what of a NIC that runs does not fit on its node."""
    nic, tap = each["nic"], each["tap"]
    run = folder / "var/run/ganeti/kvm-hypervisor"
    if not record or (record["state"], record["nic"]["INTERFACE"], record["ifindex"]) != ("up", tap, each["device"]):
        yield f"{label}: its record is {record}"
    elif record["incoming"]:
        yield f"{label}: its guest is here, and its record says that it is on its way"
    elif not record["operations"] and not each.get("unset"):
        yield f"{label}: its record says of nothing that it was done"
    process = raw.text(run / "pid" / vm["name"]).strip()
    if _in_runtime(run / "conf" / f"{vm['name']}.runtime", place) != nic["uuid"] or process != str(vm["pid"]):
        yield f"{label}: Ganeti's files say something else"
    descriptors = folder / "proc" / str(vm["pid"]) / "fdinfo"
    if all(f"iff:\t{tap}\n" not in raw.text(descriptors / name) for name in raw.names(descriptors)):
        yield f"{label}: its process does not hold {tap}"
    if node is None:
        yield f"{label}: its node's agent does not run"
        return
    kernel = _tables(node)
    link = kernel.links.get(tap)
    if link is None or link.index != each["device"] or not link.up or not link.alias.startswith(nic["uuid"]):
        yield f"{label}: its device is {link}"
        return
    if nic["mode"] == "bridged":
        bridge = kernel.links.get(nic["link"])
        if bridge is None or link.master != bridge.index:
            yield f"{label}: it is not on {nic['link']}"
    elif nic["mode"] == "openvswitch":
        if [port.bridge for port in kernel.ports if port.name == tap] != [nic["link"]]:
            yield f"{label}: it is not on {nic['link']}"
    elif not _led(kernel, _table(node, nic["link"]), link):
        yield f"{label}: no rule or no route leads by {tap}"


def _in_runtime(path: Path, place: int) -> str:
    """Give the UUID of the NIC that Ganeti's file of a guest has at a place, "" for none."""
    try:
        return str(raw.read(path)[1][place]["uuid"])
    except (KeyError, IndexError, TypeError):
        return ""


def _table(node: MockNode, name: str) -> int:
    with node.inside:
        return table_of(node.machine.view(), name)


def _led(kernel: _Tables, table: int, link: Link) -> bool:
    """Tell whether a rule leads to a table that has routes by a device: a rule of its own, or by marks one of all NICs of the table.

    Table main needs none.
    """
    if all((route.table, route.index) != (table, link.index) for route in kernel.routes):
        return False
    return table == MAIN or any(rule.table == table and (rule.iif == link.name or rule.mask) for rule in kernel.rules)


def _reported(cloud: MockCloud, commits: Commits) -> Iterator[str]:
    """Hold what nodes say against what is wanted: in force where NICs run, on all nodes' disks where an operator has set something."""
    client = cloud.registry.client()
    wanted = {each["nic"]["uuid"]: each for each in client.all("nics", belongs="instance")}
    reports: dict[str, list[dict[str, Any]]] = {}
    for each in client.all("reports"):
        reports.setdefault(each["report"]["nic"], []).append({**each["report"], "node": each["node"]})
    cannot = set(_cannot(cloud, wanted, reports))
    networks = {each["network"]["uuid"]: each["network"] for each in client.all("networks")}
    of_node: dict[str, set[str]] = {}
    for guest in guests_of(cloud):
        if guest.vm["state"] == "running":
            uuids = (each["nic"]["uuid"] for _label, each in guest.nics)
            of_node.setdefault(guest.node, set()).update(wanted[uuid]["nic"]["network"] for uuid in uuids if uuid in wanted)
    for uuid, item in wanted.items():
        said = reports.get(uuid, [])
        if uuid in commits.seen and uuid not in cloud.let_go and not said:
            yield f"{item['label']}: no node says any more that it has, or had it"
        for report in said:
            if report["state"] == "running" and not report["refused"] and report["applied"] != item["revision"]:
                yield f"{item['label']}: {report['applied'] or 'nothing'} is in force, and {item['revision']} is wanted"
            if report["drift"]:
                yield f"{item['label']}: {', '.join(report['drift'])} does not hold"
            if report["refused"] and (report["node"], uuid) not in cannot:
                yield f"{item['label']}: what is wanted is refused: {report['refused']}"
    yield from (f"NIC {uuid} is reported still, and not wanted" for uuid in reports if uuid not in wanted and uuid in commits.instances)
    for uuid, machine in cloud.nodes.items():
        folder = Path(cloud.root, "servers", uuid, "var/lib/netcommon/wanted")
        kept = {path.stem: raw.fields(path, "revision", "registry") for path in folder.glob("*.json")}
        for nic, item in wanted.items():
            options = item["nic"]["options"] if (uuid, nic) not in cannot else ()
            if options and kept.get(nic, {}).get("revision") != item["revision"]:
                text = kept.get(nic, {}).get("revision", "nothing")
                yield f"{item['label']}: {text} lies on {machine.name}'s disk, and {item['revision']} is wanted"
            elif options and (has := {name: said["value"] for name, said in kept[nic]["registry"].items()}) != _values(options):
                yield f"{item['label']}: {has or 'no option'} lies on {machine.name}'s disk, and {_values(options)} is wanted"
        yield from (f"what was wanted of NIC {nic} lies still on {machine.name}'s disk" for nic in kept if nic not in wanted)
        yield from of_networks(machine, of_node.get(uuid, ()), networks)


def _cannot(
    cloud: MockCloud, wanted: Mapping[str, dict[str, Any]], reports: Mapping[str, list[dict[str, Any]]]
) -> Iterator[tuple[str, str]]:
    """Give the nodes that rightly refuse what an operator wants of a NIC that runs there, each with that NIC: no node could do it."""
    for guest in guests_of(cloud):
        for _label, each in guest.nics:
            uuid = each["nic"]["uuid"]
            refused = "".join(report["refused"] for report in reports.get(uuid, ()) if report["node"] == guest.node)
            if not refused or uuid not in wanted or guest.node not in cloud.nodes:
                continue
            why = wanted_by(wanted[uuid], each, settings_of(cloud.nodes[guest.node])).refused
            if why and (refused.startswith(why) or why.startswith(refused)):
                yield guest.node, uuid


def _values(options: Iterable[dict[str, Any]]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in options}
