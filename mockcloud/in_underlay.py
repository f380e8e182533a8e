"""Hold the underlay against nodes' kernels and name servers: what names lead to is there on its node, and nothing else is.

By tables of kernels, files of instances, what name servers answer and what the registry stores; by nothing of the code that made it so.
Where the registry is in another process nobody follows what it stores, and nothing is held against it here.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any

from mockcloud.invariants import guests_of
from mockcloud.underlay import led
from mockcloud.underlay_commits import AGE, MIGRATING, TTL
from mockcloud.wanted import settings_of, wanted_by
from netcommon.host.api.facts import AF_INET6

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mockcloud.cloud import MockCloud
    from mockcloud.node import MockNode
    from mockcloud.underlay_commits import UnderlayCommits

UNREACHABLE = 7  #: a route's type (linux/rtnetlink.h)
LATE = 30.0  #: seconds that something may last longer than it has to


def always(cloud: MockCloud, commits: UnderlayCommits) -> list[str]:
    """Say what is wrong at this moment, whatever goes wrong with nodes, registry and name servers; nothing where all is well."""
    if commits.underlay is None:
        return []
    has = {uuid: _addresses(machine, commits.underlay) for uuid, machine in cloud.nodes.items()}
    return [*_once(cloud, has), *(() if cloud.restored else _led_to(cloud, commits, has))]


def _once(cloud: MockCloud, has: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """One address, one node."""
    where: dict[str, str] = {}
    for uuid, addresses in has.items():
        for address in sorted(addresses):
            if address in where:
                yield f"{address} is there on {cloud.nodes[where[address]].name} and {cloud.nodes[uuid].name}"
            where[address] = uuid


def _led_to(cloud: MockCloud, commits: UnderlayCommits, has: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What a name leads to is there on its node: by the registry, and by each name server, also one that is out of reach and behind.

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
            there, own = has.get(uuid, frozenset[str]()), str(IPv6Address((number >> 64 << 64) + 1))
            if own in there and cloud.nodes[uuid].alive and address not in there:
                yield f"{name} leads to {address} by {who}, which is not there on {cloud.nodes[uuid].name}"


def settled(cloud: MockCloud, commits: UnderlayCommits) -> list[str]:
    """Say what does not fit when all is quiet; nothing where all is well."""
    if commits.underlay is None:
        return []
    return [*_on_nodes(cloud, commits), *_resting(cloud, commits), *_named(cloud, commits), *_served(cloud, commits)]


def _on_nodes(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Each node has its own address, those of endpoints, and an unreachable route for the rest of its prefix; and nothing else."""
    for uuid, machine in cloud.nodes.items():
        prefix = commits.state.get(f"prefixes/{uuid}")
        if prefix is None or prefix.get("freed"):
            yield f"{machine.name} has no prefix"
            continue
        network = IPv6Network(prefix["prefix"])
        wanted = {str(network[1])} | {
            each["address"] for _placement, each in _endpoints(commits) if each["node"] == uuid and each["state"] != "leaving"
        }
        has = _addresses(machine, commits.underlay or {})
        yield from (f"{address} is not there on {machine.name}" for address in sorted(wanted - has))
        yield from (f"{address} is left on {machine.name}" for address in sorted(has - wanted))
        with machine.inside:
            routes = [route for route in machine.machine.view().routes(AF_INET6) if route.type == UNREACHABLE]
        if [route.destination for route in routes] != [str(network)]:
            yield f"{machine.name} has unreachable routes to {[route.destination for route in routes]}, and not to {network}"


def _resting(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Nothing waits for anything any more, but for the end of its quarantine."""
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
    """The names of a guest that runs lead to its node, none to a migration, and none is of an instance that is gone."""
    zone = (commits.underlay or {}).get("zone", "")
    names = {key.split("/", 2)[2]: name for key, name in commits.state.items() if key.startswith(f"names/{zone}/")}
    items = {each["nic"]["uuid"]: each for each in cloud.registry.client().all("nics", belongs="instance")}
    known = set[str]()
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
        for kind in sorted(kinds) if zone else ():
            name = f"{guest.vm['name']}.{kind}.{zone}"
            if names.get(name, {}).get("node") != guest.node:
                yield f"{name} leads to {names.get(name) or 'nobody'}, and its guest is on {machine.name}"
    for name, value in names.items():
        if MIGRATING in name:
            yield f"{name} leads to {value['address']}, and nobody migrates"
        elif value["instance"] not in known:
            yield f"{name} leads to {value['address']}, and there is no instance {value['instance']}"
    for key, placement in commits.state.items():
        if key.startswith("endpoints/") and placement.get("incoming"):
            yield f"{placement['instance']} comes to node {placement['incoming']} by the registry, and nobody migrates"


def _served(cloud: MockCloud, commits: UnderlayCommits) -> Iterator[str]:
    """Each name server has the registry's names, and says so."""
    zone = (commits.underlay or {}).get("zone", "")
    if cloud.own.names is None or not zone:
        return
    names = {key.split("/", 2)[2]: name["address"] for key, name in commits.state.items() if key.startswith(f"names/{zone}/")}
    generation = commits.state.get(f"zones/{zone}", {}).get("generation", 0)
    for name, server in cloud.own.names.servers.items():
        if server.names != names:
            yield f"{name} has {sorted(server.names.items() ^ names.items())} otherwise than the registry"
        if (server.mark.generation if server.mark is not None else 0) != generation:
            yield f"{name} has the zone's mark {server.mark}, and the registry is at generation {generation}"


def _endpoints(commits: UnderlayCommits) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for key, placement in commits.state.items():
        if key.startswith("endpoints/"):
            for each in placement.get("endpoints", ()):
                yield placement, {"state": "wanted", **each}


def _addresses(machine: MockNode, underlay: Mapping[str, Any]) -> frozenset[str]:
    """Give the addresses of the site's underlay that a node has, on whichever device."""
    site = IPv6Network(underlay["prefix"])
    with machine.inside:
        found = machine.machine.view().addresses()
    return frozenset(each.address for each in found if each.family == AF_INET6 and IPv6Address(each.address) in site)
