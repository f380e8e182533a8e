"""The canonical snapshot: everything of a node that our hooks could change, as nested dictionaries that compare.

``snapshot()`` looks with iproute2, bridge, tc, nft, ovs-vsctl, ovs-ofctl and /proc, never with our own code. What may differ without
anybody having changed anything is in EXCLUDED, each with its reason, and nowhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable
from typing import Any

from tests.support.netns import ask, run
from tests.support.ovs import SOCKET, rows, settled

Snapshot = dict[str, Any]

#: What a snapshot leaves out: (part, key, reason).
EXCLUDED = (
    ("links", "operstate", "follows carrier, which follows whether somebody holds the tap"),
    ("links", "link_index", "the peer's index is given by the order of creation"),
    ("links", "ifindex", "given by the order of creation"),
    ("links", "flags: LOWER_UP, NO-CARRIER, RUNNING", "carrier"),
    ("links", "inet6_addr_gen_mode, link-local addresses", "they appear and leave with carrier and duplicate detection"),
    ("links", "num_tx_queues, num_rx_queues, gso_*, tso_*, gro_*, allmulti, stats*", "set by the driver or by counting"),
    ("links", "*_timer, tcn_timer, gc_timer, fdb_n_learned", "clocks and counters of a bridge and its ports"),
    ("links", "address of a bridge without ports", "a bridge without another port takes the MAC of the tap, and zero when it goes"),
    ("links", "root_id, bridge_id, root_*, designated_*, topology_*", "follow the bridge's MAC and the order of events"),
    ("links", "port state, port_no, port_id, no", "follow carrier and the order of joining"),
    ("routes", "flags: linkdown", "carrier"),
    ("routes", "link-local, multicast and local routes of IPv6 (fe80::/64, ff00::/8, fe80 hosts)", "come and go with link-local addresses"),
    ("routes", "expires", "a clock"),
    ("neighbours", "everything but proxy and permanent entries", "learned, not set"),
    ("fdb", "everything but permanent and static entries of unicast MACs", "learned; multicast follows carrier"),
    ("fdb", "own addresses of links", "follow the links' MACs, which are compared"),
    ("sysctls", "stable_secret", "unreadable until set"),
    ("ovs", "ofport, ifindex, mac_in_use, link_*, statistics, status, admin_state, lacp_current", "vswitchd's report, not configuration"),
    ("ovs", "_uuid, references", "identity of rows: the names are compared"),
    ("ovs", "cur_cfg, next_cfg, version columns", "counts transactions"),
    ("flows", "duration, n_packets, n_bytes", "clocks and counters"),
    ("nft", "handle, packets, bytes", "numbers given by the order of creation; counters"),
    ("nft", "elements of sets with the flag timeout", "learned from what packets came, and forgotten"),
    ("nft", "order of tables without a hook in common", "nothing passes both"),
    ("files", "/run/netcommon/locks", "a fixed set of empty lock files, kept"),
    ("files", "/run/netcommon/settings.json", "the settings as they were read last, kept"),
)

_LINK_DROPPED = {"operstate", "link_index", "ifindex", "inet6_addr_gen_mode", "num_tx_queues", "num_rx_queues", "allmulti"}
_LINK_PREFIXES = ("gso_", "tso_", "gro_", "stats", "root_", "bridge_id", "designated_", "topology_", "port_no", "port_id", "promiscuity")
_LINK_SUFFIXES = ("_timer",)
_PORT_DROPPED = {"state", "no", "id", "fdb_n_learned"}
_CARRIER = {"LOWER_UP", "NO-CARRIER", "RUNNING"}
_OVS_COLUMNS = {
    "Bridge": ("name", "datapath_type", "external_ids", "other_config", "fail_mode", "flood_vlans", "protocols", "stp_enable"),
    "Port": ("name", "tag", "trunks", "vlan_mode", "external_ids", "other_config", "qos"),
    "Interface": (
        "name",
        "type",
        "options",
        "external_ids",
        "other_config",
        "ingress_policing_rate",
        "ingress_policing_burst",
        "mtu_request",
    ),
}
#: Rows without a name, and mirrors: who made and filled them is told by their columns; a reference stays what it is.
_OVS_ROWS = {
    "QoS": ("type", "other_config", "external_ids", "queues"),
    "Queue": ("dscp", "other_config", "external_ids"),
    "Mirror": ("name", "select_all", "select_src_port", "select_dst_port", "output_port", "output_vlan", "external_ids"),
}
_FILES = ("/run/netcommon", "/etc/netcommon", "/var/run/ganeti")


def snapshot(files: Iterable[str] = _FILES) -> Snapshot:
    """The state of the calling thread's network namespace, and of ``files`` (folders; what is not there is empty)."""
    if os.path.exists(SOCKET):
        settled()  # a switch that is stopped has the state it has
    links = ask("ip", "-d", "-j", "link")
    masters = {link["master"] for link in links if "master" in link}
    return {
        "links": {link["ifname"]: _link(link, link["ifname"] in masters) for link in links},
        "addresses": {link["ifname"]: _addresses(link) for link in ask("ip", "-j", "address")},
        "vlans": {port["ifname"]: port["vlans"] for port in ask("bridge", "-j", "vlan")},
        "fdb": _fdb({link["address"] for link in links if "address" in link}),
        "rules": {family: [_text(rule) for rule in ask("ip", family, "-j", "rule")] for family in ("-4", "-6")},
        "routes": {family: _routes(family) for family in ("-4", "-6")},
        "neighbours": _neighbours(),
        "sysctls": _sysctls(),
        "qdiscs": _qdiscs([link["ifname"] for link in links]),
        "ovs": _ovs(),
        "nft": _nft(),
        "files": {path: text for folder in files for path, text in _tree(folder)},
    }


def diff(before: Any, after: Any, path: str = "") -> list[str]:
    """What differs, one readable line each, in the order of the snapshot; [] where they are the same."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in [*before, *(key for key in after if key not in before)]:
            where = f"{path}: {key}" if path else str(key)
            if key not in after:
                found.append(f"- {where} = {_text(before[key])}")
            elif key not in before:
                found.append(f"+ {where} = {_text(after[key])}")
            else:
                found += diff(before[key], after[key], where)
        return found
    if isinstance(before, list) and isinstance(after, list):
        old, new = [_text(item) for item in before], [_text(item) for item in after]
        if old == new:
            return []
        gone, come = _without(old, new), _without(new, old)
        changes = [f"- {path}: {item}" for item in gone] + [f"+ {path}: {item}" for item in come]
        return changes or [f"~ {path}: order {old} -> {new}"]
    return [] if before == after else [f"~ {path}: {_text(before)} -> {_text(after)}"]


def _without(items: list[str], others: list[str]) -> list[str]:
    rest = list(others)
    return [item for item in items if item not in rest or rest.remove(item)]  # type: ignore[func-returns-value]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _link(link: dict[str, Any], has_ports: bool) -> dict[str, Any]:
    kept = {key: value for key, value in link.items() if not _dropped(key)}
    kept["flags"] = sorted(set(kept.get("flags", ())) - _CARRIER)
    info = dict(kept.get("linkinfo", {}))
    for part in ("info_data", "info_slave_data"):
        if part in info:
            info[part] = {key: value for key, value in info[part].items() if not _dropped(key) and key not in _PORT_DROPPED}
    kept["linkinfo"] = info
    if info.get("info_kind") == "bridge" and not has_ports:
        kept.pop("address", None)
    return kept


def _dropped(key: str) -> bool:
    return key in _LINK_DROPPED or key.startswith(_LINK_PREFIXES) or key.endswith(_LINK_SUFFIXES)


def _addresses(link: dict[str, Any]) -> list[str]:
    kept = [address for address in link.get("addr_info", ()) if address.get("scope") != "link"]
    volatile = {"tentative", "valid_life_time", "preferred_life_time", "label"}
    return sorted(_text({key: value for key, value in address.items() if key not in volatile}) for address in kept)


def _fdb(own: set[str]) -> list[str]:
    kept = []
    for entry in ask("bridge", "-j", "fdb", "show"):
        multicast = int(entry["mac"][:2], 16) & 1
        if entry.get("state") in ("permanent", "static") and not multicast and entry["mac"] not in own:
            kept.append(_text(entry))
    return sorted(kept)


def _routes(family: str) -> list[str]:
    kept = []
    for route in ask("ip", family, "-j", "route", "show", "table", "all"):
        destination = str(route.get("dst", ""))
        if family == "-6" and (destination.startswith(("fe80", "ff00", "multicast")) or route.get("type") in ("multicast", "anycast")):
            continue
        route["flags"] = sorted(set(route.get("flags", ())) - {"linkdown", "dead"})
        route.pop("expires", None)
        kept.append(_text(route))
    return sorted(kept)


def _neighbours() -> dict[str, list[str]]:
    found = {}
    for family in ("-4", "-6"):
        proxies = ask("ip", family, "-j", "neighbour", "show", "proxy")
        fixed = ask("ip", family, "-j", "neighbour", "show", "nud", "permanent")
        found[family] = sorted(f"{kind} {_text(entry)}" for kind, entries in (("proxy", proxies), ("fixed", fixed)) for entry in entries)
    return found


def _sysctls() -> dict[str, str]:
    """Every value below net/ipv4 and net/ipv6 of this namespace, the devices' conf and neigh folders among them."""
    found = {}
    for top in ("/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/core", "/proc/sys/net/bridge"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = f"{folder}/{name}"
                if name == "stable_secret" or not os.stat(path).st_mode & stat.S_IRUSR:
                    continue
                try:
                    with open(path) as file:
                        found[path.removeprefix("/proc/sys/")] = file.read().strip()
                except OSError as error:  # some answer only to who asks the right way: then that is their value
                    found[path.removeprefix("/proc/sys/")] = f"unreadable: {error.strerror}"
    return found


def _qdiscs(links: list[str]) -> dict[str, list[str]]:
    found = {}
    everything = ask("tc", "-j", "qdisc", "show")
    for link in links:
        own = [{key: value for key, value in qdisc.items() if key != "dev"} for qdisc in everything if qdisc.get("dev") == link]
        shaped = [qdisc for qdisc in own if qdisc.get("kind") in ("ingress", "clsact")]
        places = [("root",)] if any(qdisc.get("handle") not in ("0:", "") for qdisc in own) else []
        places += [("ingress",), ("egress",)] if shaped else []
        filters = [line for place in places for line in run("tc", "filter", "show", "dev", link, *place).splitlines()]
        classes = run("tc", "class", "show", "dev", link).splitlines() if places else []
        found[link] = [_text(qdisc) for qdisc in own] + classes + filters
    return found


def _ovs() -> dict[str, Any]:
    if not os.path.exists(SOCKET):
        return {}
    found: dict[str, Any] = {}
    names = {json.dumps(row["_uuid"]): row["name"] for table in ("Bridge", "Port", "Interface") for row in rows(table, ("_uuid", "name"))}
    for table, columns in _OVS_COLUMNS.items():
        found[table] = {row["name"]: {column: _text(row[column]) for column in columns} for row in rows(table, columns)}
    for table, column in (("Bridge", "ports"), ("Port", "interfaces")):
        for row in rows(table, ("name", column)):
            members = row[column][1] if row[column][0] == "set" else [row[column]]
            found[table][row["name"]][column] = sorted(names[json.dumps(member)] for member in members)
    for table, columns in _OVS_ROWS.items():
        found[table] = sorted(_text([row[column] for column in columns]) for row in rows(table, columns))
    found["flows"] = {bridge: _flows(bridge) for bridge in found["Bridge"]}
    return found


def _flows(bridge: str) -> list[str]:
    return sorted(run("ovs-ofctl", "--timeout=20", "--no-stats", "dump-flows", bridge).splitlines())


def _nft() -> list[str]:
    if not shutil.which("nft"):
        return []
    listed = [item for item in json.loads(run("nft", "-j", "list", "ruleset"))["nftables"] if "metainfo" not in item]
    return [_text(_uncounted(item)) for item in sorted(listed, key=_hooks)]


def _hooks(item: dict[str, dict[str, str]]) -> str:
    """The family, if it has hooks of its own; ip, ip6 and inet share theirs, so the order of their tables counts."""
    (thing,) = item.values()
    return thing["family"] if thing["family"] in ("arp", "bridge", "netdev") else ""


def _uncounted(value: Any) -> Any:
    if isinstance(value, dict):
        left = ("handle", "packets", "bytes", "expires", *(["elem"] if "timeout" in value.get("flags", ()) else []))
        return {key: _uncounted(item) for key, item in value.items() if key not in left}
    return [_uncounted(item) for item in value] if isinstance(value, list) else value


def _tree(folder: str) -> Iterable[tuple[str, str]]:
    """Folders, links and files below ``folder``, with mode and content."""
    for where, folders, names in os.walk(folder):
        if where == "/run/netcommon/locks":
            folders.clear()
            continue
        for name in sorted(folders + names):
            path = f"{where}/{name}"
            status = os.lstat(path)
            mode = stat.filemode(status.st_mode)
            if path in ("/run/netcommon/locks", "/run/netcommon/settings.json"):
                continue
            if stat.S_ISLNK(status.st_mode):
                yield path, f"{mode} -> {os.readlink(path)}"
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    yield path, f"{mode} {file.read()!r}"
            else:
                yield path, mode
