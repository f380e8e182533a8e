"""Hold everything that a mock cloud has of its instances against each other: files, hosts, records, and the registry.

By raw files, tables of simulated kernels and lists of the registry, without any code of mockcloud/instances.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mockcloud.cloud import MockCloud
from mockcloud.node import MockNode


def wrong(cloud: MockCloud) -> list[str]:
    """Say what does not fit, of nodes whose agents run; nothing where all is well."""
    return list(_wrong(cloud))


def _wrong(cloud: MockCloud) -> Iterator[str]:
    client = cloud.registry.client()
    wanted = {each["nic"]["uuid"]: each for each in client.all("nics", belongs="instance")}
    reports: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for each in client.all("reports"):
        reports.setdefault(each["report"]["nic"], []).append((each["node"], each["report"]))
    held = {each["key"].rpartition("/")[2]: each["claim"]["holder"] for each in client.all("claims", standing="held")}
    for field in ("mac", "ip"):
        twice = Counter(each["nic"][field] for each in wanted.values() if each["nic"][field])
        yield from (f"{value} is wanted by {number}" for value, number in twice.items() if number > 1)
    yield from (f"conflict: {each}" for each in client.all("conflicts"))

    seen: set[str] = set()
    homes: dict[str, str] = {}
    for node in sorted(path.name for path in Path(cloud.root, "servers").iterdir()):
        folder = Path(cloud.root, "servers", node)
        records = {path.stem.lower(): json.loads(path.read_text()) for path in (folder / "run/netcommon/nics").glob("*.json")}
        processes = {path.name for path in (folder / "proc").glob("*") if path.name != "self"}
        taps = {link.name for link in cloud.nodes[node].host.kernel.links.values() if link.kind == "tun"} if node in cloud.nodes else set()
        for path in sorted((folder / "vms").glob("*.json")):
            vm = json.loads(path.read_text())
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
                yield from (
                    f"{label}: {value} is {held.get(value)}'s" for value in (nic["mac"], nic["ip"]) if value and held.get(value) != uuid
                )
                said = [(where, report) for where, report in reports.get(uuid, []) if report["state"] != "stopped"]
                if vm["state"] == "running":
                    yield from _running(cloud.nodes.get(node), folder, vm, each, place, records.pop(uuid, None), label)
                    if [(where, report["state"], report["tap"]) for where, report in said] != [(node, "running", each["tap"])]:
                        yield f"{label} is {said} by the registry"
                    if wanted[uuid]["shown"]["state"] not in ("running", "pending restart"):
                        yield f"{label} is shown as {wanted[uuid]['shown']['state']}"
                elif said:
                    yield f"{label}, which is {vm['state']}, is {said} by the registry"
            if vm["state"] == "running":
                processes.discard(str(vm["pid"]))
                taps -= {each["tap"] for each in vm["interfaces"]}
        yield from (f"record {uuid} on {node} is nobody's" for uuid in records)
        yield from (f"process {pid} on {node} is nobody's" for pid in processes)
        yield from (f"{tap} on {node} is nobody's" for tap in taps)
    yield from (f"{each['label']} is wanted, and no instance's" for uuid, each in wanted.items() if uuid not in seen)
    for uuid, said in reports.items():
        if uuid not in wanted and any(report["state"] != "stopped" for _node, report in said):  # a stopped one goes with time
            yield f"{uuid} is {said} by the registry, and not wanted"


def _running(
    node: MockNode | None, folder: Path, vm: dict[str, Any], each: dict[str, Any], place: int, record: dict[str, Any] | None, label: str
) -> Iterator[str]:
    """Say what of a NIC that runs does not fit on its node."""
    nic, tap = each["nic"], each["tap"]
    run = folder / "var/run/ganeti/kvm-hypervisor"
    if record is None or (record["state"], record["nic"]["INTERFACE"], record["ifindex"]) != ("up", tap, each["device"]):
        yield f"{label}: its record is {record}"
    runtime = json.loads((run / "conf" / f"{vm['name']}.runtime").read_text())
    if runtime[1][place]["uuid"] != nic["uuid"] or (run / "pid" / vm["name"]).read_text().strip() != str(vm["pid"]):
        yield f"{label}: Ganeti's files say something else"
    if f"iff:\t{tap}\n" not in "".join(path.read_text() for path in (folder / "proc" / str(vm["pid"]) / "fdinfo").iterdir()):
        yield f"{label}: its process does not hold {tap}"
    if node is None:
        yield f"{label}: its node's agent does not run"
        return
    kernel = node.host.kernel
    link = kernel.named(tap)
    if link is None or link.index != each["device"] or not link.up or not link.alias.startswith(nic["uuid"]):
        yield f"{label}: its device is {link}"
        return
    if nic["mode"] == "bridged":
        bridge = kernel.named(nic["link"])
        if bridge is None or link.master != bridge.index:
            yield f"{label}: it is not on {nic['link']}"
    elif not [rule for rule in kernel.rules if rule.iif == tap] or not [route for route in kernel.routes if route.index == link.index]:
        yield f"{label}: no rule or no route leads by {tap}"
