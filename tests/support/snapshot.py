"""The canonical snapshot: everything of a node that our hooks could change, as nested dictionaries that compare.

``snapshot()`` looks with iproute2, bridge, tc, nft, OVSDB's protocol, ovs-ofctl and /proc, never with our own code. What may differ
without anybody having changed anything is in EXCLUDED, each with its reason, and nowhere else.

It is taken thousands of times: a program answers all that is asked of it at once (``-batch``, ip(8)).
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from typing import Any

from tests.support.netns import ask, run
from tests.support.ovs import SOCKET, settled, tables

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
#: What a row consists of, by the names of other rows.
_MEMBERS = {"Bridge": ("ports",), "Port": ("interfaces",)}
#: Rows without a name, and mirrors: who made and filled them is told by their columns; a reference stays what it is.
_OVS_ROWS = {
    "QoS": ("type", "other_config", "external_ids", "queues"),
    "Queue": ("dscp", "other_config", "external_ids"),
    "Mirror": ("name", "select_all", "select_src_port", "select_dst_port", "output_port", "output_vlan", "external_ids"),
}
#: What is asked of each family of addresses.
_ROUTING = ("rule", "route show table all", "neighbour show proxy", "neighbour show nud permanent")
_READABLE: dict[str, bool] = {}
_FILES = ("/run/netcommon", "/etc/netcommon", "/var/run/ganeti")


def snapshot(files: Iterable[str] = _FILES) -> Snapshot:
    """The state of the calling thread's network namespace, and of ``files`` (folders; what is not there is empty)."""
    if os.path.exists(SOCKET):
        settled()  # a switch that is stopped has the state it has
    links, addresses = _answers("ip", ("-d",), "link", "address")
    ports, entries = _answers("bridge", (), "vlan", "fdb show")
    routing = {family: _answers("ip", (family,), *_ROUTING) for family in ("-4", "-6")}
    masters = {link["master"] for link in links if "master" in link}
    return {
        "links": {link["ifname"]: _link(link, link["ifname"] in masters) for link in links},
        "addresses": {link["ifname"]: _addresses(link) for link in addresses},
        "vlans": {port["ifname"]: port["vlans"] for port in ports},
        "fdb": _fdb(entries, {link["address"] for link in links if "address" in link}),
        "rules": {family: [_text(rule) for rule in rules] for family, (rules, *_others) in routing.items()},
        "routes": {family: _routes(family, routes) for family, (_rules, routes, *_others) in routing.items()},
        "neighbours": {family: _neighbours(*neighbours) for family, (_rules, _routes, *neighbours) in routing.items()},
        "sysctls": _sysctls(),
        "qdiscs": _qdiscs([link["ifname"] for link in links]),
        "ovs": _ovs(),
        "nft": _nft(),
        "files": {path: text for folder in files for path, text in _tree(folder)},
    }


def _answers(program: str, options: Sequence[str], *commands: str) -> list[Any]:
    """Give what each of the commands answers, in JSON, by one run of the program."""
    text = run(program, *options, "-j", "-batch", "-", stdin="".join(f"{command}\n" for command in commands)).lstrip()
    found, decoder = [], json.JSONDecoder()
    while text:
        answer, end = decoder.raw_decode(text)
        found.append(answer)
        text = text[end:].lstrip()
    assert len(found) == len(commands), f"{program}: {len(found)} answers to {commands}"
    return found


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


def _fdb(entries: Iterable[dict[str, Any]], own: set[str]) -> list[str]:
    kept = []
    for entry in entries:
        multicast = int(entry["mac"][:2], 16) & 1
        if entry.get("state") in ("permanent", "static") and not multicast and entry["mac"] not in own:
            kept.append(_text(entry))
    return sorted(kept)


def _routes(family: str, routes: Iterable[dict[str, Any]]) -> list[str]:
    kept = []
    for route in routes:
        destination = str(route.get("dst", ""))
        if family == "-6" and (destination.startswith(("fe80", "ff00", "multicast")) or route.get("type") in ("multicast", "anycast")):
            continue
        route["flags"] = sorted(set(route.get("flags", ())) - {"linkdown", "dead"})
        route.pop("expires", None)
        kept.append(_text(route))
    return sorted(kept)


def _neighbours(proxies: Iterable[dict[str, Any]], fixed: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(f"{kind} {_text(entry)}" for kind, entries in (("proxy", proxies), ("fixed", fixed)) for entry in entries)


def _sysctls() -> dict[str, str]:
    """Every value below net/ipv4 and net/ipv6 of this namespace, the devices' conf and neigh folders among them."""
    found = {}
    for top in ("/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/net/core", "/proc/sys/net/bridge"):
        for folder, _, names in os.walk(top):
            for name in names:
                path = f"{folder}/{name}"
                if name == "stable_secret" or not _readable(name, path):
                    continue
                try:
                    found[path.removeprefix("/proc/sys/")] = _value(path)
                except OSError as error:  # some answer only to who asks the right way: then that is their value
                    found[path.removeprefix("/proc/sys/")] = f"unreadable: {error.strerror}"
    return found


def _readable(name: str, path: str) -> bool:
    """Tell whether a value can be read, which is the same of all that have the name."""
    if name not in _READABLE:
        _READABLE[name] = bool(os.stat(path).st_mode & stat.S_IRUSR)
    return _READABLE[name]


def _value(path: str) -> str:
    """Read a value, which one read(2) gives whole."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 1 << 16).decode().strip()
    finally:
        os.close(file)


def _qdiscs(links: list[str]) -> dict[str, list[str]]:
    found = {}
    everything = ask("tc", "-j", "qdisc", "show")
    for link in links:
        # who is just changing a filter holds the qdisc too (tcf_block_find in net/sched/cls_api.c): ovs-vswitchd after its return
        own = [{key: qdisc[key] for key in qdisc if key not in ("dev", "refcnt")} for qdisc in everything if qdisc.get("dev") == link]
        shaped = [qdisc for qdisc in own if qdisc.get("kind") in ("ingress", "clsact")]
        places = ["root"] if any(qdisc.get("handle") not in ("0:", "") for qdisc in own) else []
        places += ["ingress", "egress"] if shaped else []
        shown = [f"class show dev {link}", *(f"filter show dev {link} {place}" for place in places)] if places else []
        lines = run("tc", "-batch", "-", stdin="".join(f"{each}\n" for each in shown)).splitlines() if shown else []
        found[link] = [_text(qdisc) for qdisc in own] + lines
    return found


def _ovs() -> dict[str, Any]:
    if not os.path.exists(SOCKET):
        return {}
    found: dict[str, Any] = {}
    named = {table: (*columns, "_uuid", *_MEMBERS.get(table, ())) for table, columns in _OVS_COLUMNS.items()}
    held = tables({**named, **_OVS_ROWS})
    names = {json.dumps(row["_uuid"]): row["name"] for table in named for row in held[table]}
    for table, columns in _OVS_COLUMNS.items():
        found[table] = {row["name"]: {column: _text(row[column]) for column in columns} for row in held[table]}
    for table, (column,) in _MEMBERS.items():
        for row in held[table]:
            members = row[column][1] if row[column][0] == "set" else [row[column]]
            found[table][row["name"]][column] = sorted(names[json.dumps(member)] for member in members)
    for table, columns in _OVS_ROWS.items():
        found[table] = sorted(_text([row[column] for column in columns]) for row in held[table])
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
