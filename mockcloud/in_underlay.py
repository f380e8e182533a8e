"""Hold the underlay against nodes' kernels and name servers: what names lead to is there on its node, and nothing else is.

By tables of kernels, files of instances and of nodes, what name servers answer and what the registry stores; by nothing of the code
that made it so.
Where the registry is in another process nobody follows what it stores, and nothing is held against it here.
"""

from __future__ import annotations

import json
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mockcloud.invariants import guests_of
from mockcloud.stored import everywhere, vm_uuid
from mockcloud.underlay import led
from mockcloud.underlay_commits import AGE, TTL, is_migrating
from mockcloud.wanted import settings_of, wanted_by
from netcommon.host.api.facts import AF_INET6

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.node import MockNode
    from mockcloud.underlay_commits import Object, UnderlayCommits

UNREACHABLE, MAIN = 7, 254  #: a route's type, and the table in which every lookup ends (linux/rtnetlink.h)
LAST, PROTOCOL = (
    2147483647,
    174,
)  #: of the route to the rest of a prefix: it counts behind all others, and is netcommon's (docs/underlay.md)
FILE = "underlay.json"  #: in a node's /var/lib/netcommon: what custom scripts' environment is read from
LATE = 30.0  #: seconds that something may last longer than it has to


def always(cloud: MockCloud, commits: UnderlayCommits) -> list[str]:
    """Say what is wrong at this moment, whatever goes wrong with nodes, registry and name servers; nothing where all is well."""
    if commits.underlay is None:
        return []
    has = {uuid: _addresses(machine, commits.underlay) for uuid, machine in cloud.nodes.items()}
    return [*_once(cloud, has), *(() if cloud.restored else _led_to(cloud, commits, has))]


def _once(cloud: MockCloud, has: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Say which addresses are there on two nodes."""
    where: dict[str, str] = {}
    for uuid, addresses in has.items():
        for address in sorted(addresses):
            if address in where:
                yield f"{address} is there on {cloud.nodes[where[address]].name} and {cloud.nodes[uuid].name}"
            where[address] = uuid


def _led_to(cloud: MockCloud, commits: UnderlayCommits, has: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Say which names lead to nothing on their node: by the registry, and by each name server, also one that is out of reach and behind.

    A node that is off has nothing, nor one that has booted, until its agent has made what is its own; one that was forgotten is another.
    """
    answers = {"the registry": {key: name["address"] for key, name in commits.state.items() if key.startswith("names/")}}
    if cloud.own.names is not None:
        answers |= {name: server.names for name, server in cloud.own.names.servers.items()}
    owners = {
        int(IPv6Network(value["prefix"])[0]) >> 64: key.partition("/")[2]
        for key, value in commits.state.items()
        if key.startswith("prefixes/") and not value.get("freed")
    }
    for who, names in answers.items():
        for name, address in names.items():
            number = int(IPv6Address(address))
            uuid = owners.get(number >> 64, "")
            there, own = has.get(uuid, ()), str(IPv6Address((number >> 64 << 64) + 1))
            if own in there and cloud.nodes[uuid].alive and address not in there:
                yield f"{name} leads to {address} by {who}, which is not there on {cloud.nodes[uuid].name}"


def settled(cloud: MockCloud, commits: UnderlayCommits) -> list[str]:
    """Say what does not fit when all is quiet; nothing where all is well."""
    if commits.underlay is None:
        return []
    return [*_on_nodes(cloud, commits), *_resting(cloud, commits), *_named(cloud, commits), *_served(cloud, commits)]


def _on_nodes(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Say where a node has not its own address, those of endpoints, and an unreachable route for the rest; or anything else.

    Where all prefixes are given out a node joins without one, and has nothing.
    """
    for uuid, machine in cloud.nodes.items():
        network = _prefix(commits, uuid)
        if network is None and (_free(commits) or f"prefixes/{uuid}" in commits.state):
            yield f"{machine.name} has no prefix"
            continue
        endpoints = [(placement, each) for placement, each in _endpoints(commits) if each["node"] == uuid and each["state"] != "leaving"]
        deprecated = {each["address"]: True for _placement, each in endpoints}
        yield from _own_addresses(cloud, uuid, commits, ({str(network[1]): False} if network is not None else {}) | deprecated)
        with machine.inside:
            routes = [route for route in machine.machine.view().routes(AF_INET6) if route.type == UNREACHABLE]
        wanted = [(str(network), LAST, PROTOCOL, MAIN)] if network is not None else []
        has = [(route.destination, route.metric, route.protocol, route.table) for route in routes]
        if has != wanted:
            yield f"{machine.name} has unreachable routes to {has}, and not to {wanted} (destination, metric, protocol, table)"
        yield from _told(commits, machine, network, endpoints)


def _own_addresses(cloud: MockCloud, uuid: str, commits: UnderlayCommits, wanted: Mapping[str, bool]) -> Iterator[str]:
    """Give a node's addresses, and whether each is deprecated: the node begins nothing from those of endpoints."""
    machine, has = cloud.nodes[uuid], _addresses(cloud.nodes[uuid], commits.underlay or {})
    yield from (f"{address} is not there on {machine.name}" for address in sorted(wanted.keys() - has.keys()))
    yield from (f"{address} is left on {machine.name}" for address in sorted(has.keys() - wanted.keys()))
    for address in sorted(wanted.keys() & has.keys()):
        if has[address] != wanted[address]:
            yield f"{address} on {machine.name} is {'deprecated' if has[address] else 'not deprecated'}, and is to be otherwise"


def _told(
    commits: UnderlayCommits, machine: MockNode, network: IPv6Network | None, endpoints: Iterable[tuple[Object, Object]]
) -> Iterator[str]:
    """Say where custom scripts and others read otherwise of a node's underlay than the registry has it: prefix, instances, kinds, names."""
    zone = (commits.underlay or {}).get("zone", "")
    names = {value["address"]: key.split("/", 2)[2] for key, value in commits.state.items() if key.startswith(f"names/{zone}/")}
    wanted = [
        {
            "cluster": placement.get("cluster", ""),
            **{name: each[name] for name in ("kind", "address", "state")},
            "instance": placement["instance"],
            "name": names.get(each["address"], ""),
            "migrating": each["state"] in ("wanted", "there") and each["node"] == placement.get("incoming", ""),
        }
        for placement, each in endpoints
    ]
    try:
        said = json.loads(Path(machine.paths.lib, FILE).read_bytes())
        prefix, has = said["prefix"], list(said["endpoints"])
    except FileNotFoundError:
        prefix, has = "", []
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{FILE} of {machine.name} cannot be read: {type(error).__name__}: {error}"
        return
    if prefix != str(network or ""):
        yield f"{FILE} of {machine.name} has the prefix {prefix!r}, and the node {str(network or '')!r}"
    yield from (f"{FILE} of {machine.name} has {each}, and the registry has not" for each in has if each not in wanted)
    yield from (f"{FILE} of {machine.name} lacks {each}" for each in wanted if each not in has)


def _prefix(commits: UnderlayCommits, node: str) -> IPv6Network | None:
    """Give the prefix that a node has."""
    prefix = commits.state.get(f"prefixes/{node}")
    return IPv6Network(prefix["prefix"]) if prefix is not None and not prefix.get("freed") else None


def _free(commits: UnderlayCommits) -> int:
    """Give how many prefixes are nobody's, and in no quarantine."""
    site = IPv6Network((commits.underlay or {})["prefix"])
    return (1 << 64 - site.prefixlen) - sum(key.startswith("prefixes/") for key in commits.state)


def _resting(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Say what waits for anything else than the end of its quarantine."""
    now, underlay = cloud.registry.now, commits.underlay or {}
    ttl = float(underlay.get("ttl", TTL))
    rests = max(float(underlay.get("minimum_age", AGE)), ttl)
    for placement, each in _endpoints(commits):
        end = max(each.get("since", 0.0) + rests, led(cloud, each["address"]) + ttl)
        if each["state"] in ("wanted", "leaving"):
            yield f"{each['address']} of {placement['instance']} is {each['state']} still"
        elif each["state"] == "retired" and now > end + LATE:
            yield f"{each['address']} of {placement['instance']} rests for {now - end:g} s too long"
    for key, prefix in commits.state.items():
        over = key.startswith("prefixes/") and prefix.get("freed") and now > prefix["until"] + rests + LATE
        if over and not any(each["node"] == key.partition("/")[2] for _placement, each in _endpoints(commits)):
            yield f"{prefix['prefix']} was given back, and nobody may have it {now - prefix['until']:g} s later"


def _named(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Say which names of guests that run lead elsewhere, which lead to a migration, and which are of instances that are gone."""
    zone = (commits.underlay or {}).get("zone", "")
    names = {key.split("/", 2)[2]: name for key, name in commits.state.items() if key.startswith(f"names/{zone}/")}
    items = {each["nic"]["uuid"]: each for each in cloud.registry.client().all("nics", belongs="instance")}
    files = everywhere(cloud.root)  # one that nobody can read is an instance's, too
    known = {each["nic"]["instance"] for each in items.values() if vm_uuid(each["nic"]["instance"]) in files}
    for guest in guests_of(cloud):
        known.add(guest.vm["name"])
        machine = cloud.nodes.get(guest.node)
        if machine is None or guest.vm["state"] != "running":
            continue
        settings = settings_of(machine)
        kinds = {
            kind
            for _label, each in guest.nics
            if each["nic"]["uuid"] in items and not each.get("unset")
            for kind in wanted_by(items[each["nic"]["uuid"]], each, settings).options.endpoints
        }
        where = guest.node if _prefix(commits, guest.node) is not None else None  # a node without a prefix has no endpoint
        for kind in sorted(kinds) if zone else ():
            name = f"{guest.vm['name']}.{kind}.{zone}"
            if names.get(name, {}).get("node") != where:
                yield f"{name} leads to {names.get(name) or 'nobody'}, and its guest is on {machine.name}"
    for name, value in names.items():
        if is_migrating(f"names/{zone}/{name}", value):
            yield f"{name} leads to {value['address']}, and nobody migrates"
        elif value["instance"] not in known:
            yield f"{name} leads to {value['address']}, and there is no instance {value['instance']}"
    for key, placement in commits.state.items():
        if key.startswith("endpoints/") and placement.get("incoming"):
            yield f"{placement['instance']} comes to node {placement['incoming']} by the registry, and nobody migrates"


def _served(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Say which name servers have other names than the registry, or say another generation."""
    zone = (commits.underlay or {}).get("zone", "")
    if cloud.own.names is None or not zone:
        return
    names = {key.split("/", 2)[2]: name["address"] for key, name in commits.state.items() if key.startswith(f"names/{zone}/")}
    generation = commits.state.get(f"zones/{zone}", {}).get("generation", 0)
    for name, server in cloud.own.names.servers.items():
        if server.names != names:
            yield f"{name} has {sorted(server.names.items() ^ names.items())} otherwise than the registry"
        mark = server.marks.get(zone)
        if (mark.generation if mark is not None else 0) != generation:
            yield f"{name} has the zone's mark {mark}, and the registry is at generation {generation}"


def _endpoints(commits: UnderlayCommits) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for key, placement in commits.state.items():
        if key.startswith("endpoints/"):
            for each in placement.get("endpoints", ()):
                yield placement, {"state": "wanted", **each}


def _addresses(machine: MockNode, underlay: Mapping[str, Any]) -> dict[str, bool]:
    """Give the addresses of the site's underlay that a node has, on whichever device, and whether each is deprecated."""
    site = IPv6Network(underlay["prefix"])
    with machine.inside:
        found = machine.machine.view().addresses()
    return {each.address: each.deprecated for each in found if each.family == AF_INET6 and IPv6Address(each.address) in site}
