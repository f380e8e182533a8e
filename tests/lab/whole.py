"""Tell all that a node's kernel, Open vSwitch and folders have, with nothing of netcommon, one thing a line: to hold two moments together.

What comes and goes by itself is left out: counters, timers, handles, what is learned of guests, and what an agent keeps for itself. A
line names what it is of: a tap by its name, an address or a MAC as such; so the lines of a NIC are those with its tap or its UUID.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

LINK = ("ifname", "flags", "mtu", "qdisc", "master", "address", "ifalias", "vf", "group", "inet6_addr_gen_mode")
ITSELF = re.compile(r".*_timer|.*(_age|_id)|timer|designated_.*|root_.*|no|num_.*|topology_.*|config_pending|state|operstate|mcast_router")
GROUPS = ("33:33:", "01:00:5e:")  #: MACs of multicast groups, which devices join as the kernel likes
RULE = ("packets", "bytes", "handle", "index")
TABLES = {  #: of Open vSwitch, with the columns that are told to it, not by it
    "Bridge": ("name", "datapath_type", "fail_mode", "external_ids", "other_config"),
    "Port": ("name", "tag", "trunks", "vlan_mode", "external_ids", "other_config"),
    "Interface": ("name", "type", "ingress_policing_rate", "ingress_policing_burst", "mtu_request", "external_ids", "options"),
    "QoS": ("type", "external_ids", "other_config"),
}
FOLDERS = ("/run/netcommon", "/var/lib/netcommon", "/srv/nfdhcpd", "/etc/netcommon", "/run/ganeti/kvm-hypervisor/nic")
#: The agent's own, what is written while somebody looks (locks), and the registry's cache of the node.
OWN = re.compile(r"/run/netcommon/(locks|agent|settings[.]json|netns)|/var/lib/netcommon/(node[.]json|registry|agent)")


def said(*command: str) -> str:
    """Give what a command prints; nothing where it cannot tell."""
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}).stdout


def items(*command: str) -> list[dict[str, Any]]:
    return [item for item in json.loads(said(*command) or "[]") if item]


def line(what: str, name: object, value: object) -> str:
    return f"{what} {name} {json.dumps(value, sort_keys=True)}"


def links() -> Iterator[str]:
    for item in items("ip", "-d", "-j", "link", "show"):
        name, info = item["ifname"], item.get("linkinfo", {})
        yield line("link", name, {field: item[field] for field in LINK if field in item})
        for part in ("info_data", "info_slave_data"):
            yield line(part, name, {key: value for key, value in info.get(part, {}).items() if not ITSELF.fullmatch(key)})
        for family in ("ipv4", "ipv6"):
            for kind in ("conf", "neigh"):
                yield from settings(f"/proc/sys/net/{family}/{kind}/{name}")
        for parent in ("root", "ingress"):
            yield from (f"filter {name} {parent} {text}" for text in said("tc", "filter", "show", "dev", name, parent).splitlines())
        yield from (f"class {name} {text}" for text in said("tc", "class", "show", "dev", name).splitlines())
    for item in items("tc", "-j", "qdisc", "show"):
        yield line("qdisc", item["dev"], {key: value for key, value in item.items() if key not in ("handle", "refcnt")})
    yield from (f"vlan {text}" for text in said("bridge", "vlan", "show").splitlines())  # a kernel without them prints half a document
    for item in items("bridge", "-j", "fdb", "show"):
        if item.get("state") in ("permanent", "static") and not item["mac"].startswith(GROUPS):
            yield line("fdb", item["ifname"], item)


def settings(folder: str) -> Iterator[str]:
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name != "stable_secret":
            with open(f"{folder}/{name}", encoding="ascii") as file:
                yield f"sysctl {folder.removeprefix('/proc/sys/net/')} {name}={file.read().strip()}"


def ways() -> Iterator[str]:
    for family in ("-4", "-6"):
        for item in items("ip", family, "-j", "addr", "show"):
            for each in item.get("addr_info", ()):
                yield line("address", item["ifname"], {key: value for key, value in each.items() if "life_time" not in key})
        for kind in ("rule", "route"):
            more = ("table", "all") if kind == "route" else ()
            for item in items("ip", family, "-j", kind, "show", *more):
                kept = {key: value for key, value in item.items() if key not in ("expires", "flags")}
                yield line(kind, item.get("dev", item.get("iif", "-")), kept)
        yield from (f"proxy {text}" for text in said("ip", family, "neigh", "show", "proxy").splitlines())


def filters() -> Iterator[str]:
    """Tell nftables' rules and sets, each element alone; what sets learn of guests themselves is left out."""
    for item in json.loads(said("nft", "-j", "list", "ruleset"))["nftables"]:
        for kind, what in item.items():
            place = f"{kind} {what.get('family')} {what.get('table')}"
            if kind in ("set", "map"):
                learned = {"dynamic", "timeout"} & {*what.get("flags", ())}
                for element in () if learned else what.get("elem", ()):
                    yield line(place, what["name"], _bare(element))
            elif kind != "metainfo":
                yield line(place, what.get("chain", what.get("name")), _bare(what))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items() if key not in RULE}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def switches() -> Iterator[str]:
    for table, columns in TABLES.items():
        found = json.loads(said("ovs-vsctl", "--format=json", f"--columns={','.join(columns)}", "list", table) or "{}")
        yield from (line(f"ovs {table}", row[0], row) for row in found.get("data", ()))
    for bridge in said("ovs-vsctl", "list-br").split():
        for text in said("ovs-ofctl", "--names", "--no-stats", "dump-flows", bridge).splitlines():
            if "hard_timeout" not in text and "idle_timeout" not in text and "cookie" in text:
                yield f"flow {bridge} {text.strip()}"


def files() -> Iterator[str]:
    for top in FOLDERS:
        for folder, _folders, names in os.walk(top):
            for name in names:
                path = f"{folder}/{name}"
                if not OWN.match(path) and os.path.isfile(path):
                    with open(path, "rb") as file:
                        yield f"file {path} {hashlib.sha256(file.read()).hexdigest()}"


def main(_arguments: Sequence[str]) -> int:
    for text in sorted([*links(), *ways(), *filters(), *switches(), *files()]):
        print(text)
    return 0
