#!/usr/bin/env python3
"""Make what is told of the program by the program itself: docs/reference/make.py [FOLDER]

Pages of docs/reference, from the schema of the settings, the operations, the variables that are read, and the metrics; the table of
docs/migration.md; [repair] in examples/config.toml; and before them netcommon/operations/kinds.py (netcommon.operations.catalogue). With
a FOLDER, the pages alone are made, in it. Nothing of this machine is looked at. What else there is is written by hand.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby, product
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    # a process of its own: what is imported here has read the old file
    subprocess.run([sys.executable, "-m", "netcommon.operations.catalogue"], cwd=ROOT, check=True)

from netagent.observe.metrics import BUCKETS, METRICS  # noqa: E402 - after the path
from netcommon.operations import kind  # noqa: E402
from netcommon.operations.base import Operation  # noqa: E402
from netcommon.operations.kinds import KINDS  # noqa: E402
from netcommon.plan.planner import plan  # noqa: E402
from netcommon.plan.underlay import plan as plan_underlay  # noqa: E402
from netcommon.settings.model import Settings  # noqa: E402
from netcommon.settings.schema import KEYS, Key  # noqa: E402
from netcommon.settings.types import REPAIRS  # noqa: E402
from netregistry.refusal import KINDS as REFUSALS  # noqa: E402
from netregistry.service.filters import MOST as MOST_ITEMS  # noqa: E402
from netregistry.service.filters import PAGING, USUAL  # noqa: E402
from netregistry.service.openapi import IF_MATCH, KEY, ROLE  # noqa: E402
from netregistry.service.routes import DRY, ROUTES  # noqa: E402
from runtime.environment import nic_from_environment  # noqa: E402
from runtime.underlay import Underlay  # noqa: E402
from tests import golden  # noqa: E402

MADE = "<!-- Made by docs/reference/make.py from the program: change it there, and run that. -->\n"

#: Tables whose settings are the options of NICs, which docs/options.md has.
OPTIONS = ("nic", "networks.*")

#: What each table of the settings is about.
TABLES = {
    "hook": "Time limits of a hook, in seconds.",
    "rules": "Policy rules of routed NICs.",
    "custom": "[Scripts of the site](../custom-scripts.md).",
    "ganeti": "What Ganeti expects on a node.",
    "log": "Where the lines go.",
    "bridges.*": "`[bridges.NAME]`, one for each [bridge](../vlan.md#uplinks) that needs it.",
    "tags": "[Tags](../options.md#where-an-option-may-be-given) of instances and networks.",
    "dhcp": "[DHCP servers](../dhcp.md) that are told of guests.",
    "dns": "[Records in the DNS](../dns.md), made by the hook on the master.",
    "networks.*": """`[networks.NAME]`, by a network's name or UUID: what its [guests are
told](../dhcp.md#what-guests-are-told-of-their-network). It has the options of [nic] too, for the NICs in the network.""",
    "underlay": "The node's part of an [underlay](../underlay.md).",
    "agent": "[The agent](../agent.md). The hooks have no use for these.",
    "registry": "A [registry](../registry.md#the-agents-side) that the node has joined; of the machine that keeps one, [who else is let in]"
    "(../registry.md#other-machines). The hooks have no use for these.",
    "extensions.*": "`[extensions.NAME]`, one for each module of the site's own in `/etc/netcommon/extensions`.",
}

#: The variables that describe a NIC, and what each says.
NIC = {
    "MODE": "`bridged`, `routed`, `openvswitch` or `ext`",
    "LINK": "the bridge, the Open vSwitch bridge, or the routing table by name or number; of an `ext` NIC whatever the site's scripts read",
    "BRIDGE": "the same as LINK, in mode bridged only; it counts where LINK is empty",
    "INTERFACE": "the device on the node; the first argument otherwise. Both must name the same one",
    "INTERFACE_UUID": "the NIC's UUID. Where it is missing one is made of INSTANCE, INTERFACE_INDEX and MAC",
    "INTERFACE_INDEX": "the NIC's position in its instance, from 0",
    "INTERFACE_NAME": "the NIC's own name",
    "INSTANCE": "the guest's name",
    "MAC": "the guest's MAC address",
    "IP": "an address of the guest, IPv4 or IPv6, or (routed) a prefix. May be missing",
    "VLAN": "`10` or `.10` access, `:10:20` trunk, `.10:20` both ([VLANs](../vlan.md))",
    "TAGS": "the instance's tags, separated by spaces, in any order",
    "NETWORK_NAME": "the network's name",
    "NETWORK_UUID": "the network's UUID",
    "NETWORK_SUBNET": "the network's IPv4 prefix",
    "NETWORK_SUBNET6": "the network's IPv6 prefix",
    "NETWORK_GATEWAY": "the network's IPv4 gateway",
    "NETWORK_GATEWAY6": "the network's IPv6 gateway",
    "NETWORK_MAC_PREFIX": "the first octets of the network's MAC addresses",
    "NETWORK_TAGS": "the network's tags",
}

#: Other variables: name, who reads it, what it says.
OTHERS = (
    ("ACTION", "`kvm-nic-setup`, `network/MODE/*`", "`up` or `down` (Ganeti 3.2)"),
    ("MIGRATION_PHASE", "the doors of KVM", "`pre` or `post`, on the target of a [migration](../migration.md)"),
    ("XENBUS_PATH", "`vif-ganeti`", "`backend/vif/DOMID/DEVID`; `vif` names the device ([Xen](../xen.md))"),
    ("GANETI_*", "`ganeti-hook`, `ganeti-dns-hook`", "what Ganeti says of the operation and the instance (doc/hooks.rst)"),
    ("NO_COLOR", "`netcommon tree` and what else has colours", "not empty: no colours"),
    ("TERM", "what draws on a terminal", "`dumb`: no colours, nothing is written over, and `netcommon top` prints one picture"),
    ("NETCOMMON_CACHE", "`tests/run`, `tests/setup`, `packaging/build-deb`", "the folder for what was downloaded and for results"),
)

#: What scripts of the site get besides.
SCRIPTS = (
    ("NETCOMMON_CONTEXT", "`up`, or the [context](../lifecycle.md#down) of the down"),
    ("NETCOMMON_MIGRATION_PHASE", "MIGRATION_PHASE as the caller gave it, or empty"),
    ("NETCOMMON_RECORD", "the path of the NIC's record"),
    (
        "NETCOMMON_ENDPOINT_KIND_ADDRESS",
        "for each kind of [endpoint](../underlay.md) that the instance has on this node, as last known, its address",
    ),
    ("NETCOMMON_ENDPOINT_KIND_NAME", "the name that leads to it, or empty; KIND in upper case, hyphens as `_`"),
    ("NETCOMMON_DOOR", "which NIC is at work: so that a script that calls one of our doors for its own NIC does not start over"),
    ("NETCOMMON_SCRIPT", "another value for each run: by it the processes of a script are known that is ended at its time limit"),
)


SETTINGS = f"""# Settings

{MADE}
`/etc/netcommon/config.toml`, in TOML. It must belong to root and be writable by nobody else. Every setting has a default, and the
file may be missing. The hooks read it anew when it has changed, and the agent at a reload. A file with any error is not used at
all: an up ends with exit status 78 and names every error with its line, a down works on. `netcommon config` prints what holds, and
from where. [examples/config.toml](../../examples/config.toml) has all of them with comments.
"""

SETTINGS_END = """
## [repair]

One setting for each [kind of operation](operations.md), named like it: {words}; `on` is the default. It says what the agent does
about one that does not hold any more: nothing, say so, put it back.

## [nic] and [networks.NAME]

Every [option of a NIC](../options.md), for all NICs of the node, and for those of one network.
"""

OPERATIONS = f"""# Operations

{MADE}
Every change to the host is one of these. A NIC's record lists those that were done for it; `netcommon show` and `netcommon explain`
say whether each holds. The kind is its name in records, in `[repair]` of the [settings](settings.md), in JSON, and in the label
`kind` of the [metrics](metrics.md). *Shared*: another NIC can need the same thing; it goes with the last of them. *May wait*: on the
target of a migration it can be owed until the guest is there ([migration](../migration.md#what-is-done-when) says which are, and why).
What stands in `<...>` is found on the node.

"""

ENVIRONMENT = f"""# Environment

{MADE}
## What describes a NIC

Hypervisors pass these to the [doors](../architecture.md#the-doors); `netcommon plan` and `netcommon define` have an option for each.
All are validated before anything is looked at: exit status 64 names the first that is wrong. An empty one counts as missing.
Variables that are not named here are kept in the record, for the site's scripts.

{{nic}}
## Others

{{others}}
## What scripts of the site get

What described the NIC at its up, and ([custom scripts](../custom-scripts.md)):

{{scripts}}"""

METRICS_PAGE = f"""# Metrics

{MADE}
What the agent counts, in Prometheus' text format 0.0.4. [The agent](../agent.md#metrics) says how to have them, and what the labels
may be. The histograms are in seconds, with the bounds {{bounds}}.

"""

COMMON = "INSTANCE=web1\nINTERFACE_INDEX=0\nINTERFACE=tap0\nMAC=aa:00:00:00:00:01\nIP=192.0.2.5"
NETWORK = "NETWORK_SUBNET6=2001:db8::/64\nNETWORK_GATEWAY=192.0.2.1\nNETWORK_GATEWAY6=2001:db8::1"
BRIDGED = " ".join(
    f"netcommon:0:{option}"
    for option in ("static_fdb", "protected", "node_access:udp/53", "dhcp:dnsmasq", "rate_in:100mbit", "rate_out:50mbit")
)
ROUTED = " ".join(
    f"netcommon:0:{option}" for option in ("eui64", "prefixes:192.0.2.128/28", "gateway_arp", "gateway_link_local", "blackhole")
)

#: NICs that together have every kind of operation, and the settings with which they are planned.
NICS = (
    [COMMON, "MODE=bridged", "LINK=br0", "VLAN=.10", "NETWORK_NAME=blue", f"TAGS={BRIDGED}"],
    [COMMON, "MODE=routed", "LINK=guests", NETWORK, f"TAGS={ROUTED}"],
    [COMMON, "MODE=openvswitch", "LINK=ovs0", "VLAN=.10"],
    [COMMON, "MODE=routed", "INTERFACE=gnt.com.0", "IP=169.254.0.1", "INTERFACE_NAME=ganeti:communication:web1"],
)
SETTINGS_OF = (
    Settings(),
    Settings(rule_mark=0xFFF0000),
    Settings(network_fields={"blue": {"resolvers": ("10.0.0.53",), "mtu": 1400}}),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def shown(value: object) -> str:
    """A value as the settings file says it; "none" for one that says nothing."""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value in ("", (), {}):
        return "none"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def default(key: Key) -> str:
    """What holds where the file does not say it."""
    if key.field == "network_fields":
        return "none"
    if key.table == "extensions.*":
        return "must be said" if key.name == "adds" else "none"
    return shown(key.default if key.option else getattr(Settings(), key.field))


def settings() -> str:
    """Every setting of config.toml."""
    text = SETTINGS
    told = [key for key in KEYS if key.field == "network_fields" or key.table not in (*OPTIONS, "repair")]
    for name, keys in groupby(told, lambda key: key.table):
        rows = ((f"`{key.name}`", default(key), key.kind.expected, key.doc) for key in keys)
        text += f"\n## [{name.replace('*', 'NAME')}]\n\n{TABLES[name]}\n\n"
        text += table(("setting", "default", "what it may be", "meaning"), rows)
    return text + SETTINGS_END.format(words=", ".join(f"`{word}`" for word in REPAIRS))


#: What no NIC has: the node's own.
UNDERLAY = Underlay("", "", 0, "2001:db8:0:1::/64")


def samples() -> dict[str, Operation]:
    """Return one operation of each kind, as the planner makes it for NICS, or else for a golden case.

    Raises LookupError where none of them has it.
    """
    found: dict[str, Operation] = {}
    described = [dict(line.split("=", 1) for line in "\n".join(variables).split("\n")) for variables in NICS]
    described += [golden.variables(case) for case in golden.cases()]
    for variables, chosen in product(described, SETTINGS_OF):
        for one in plan(nic_from_environment(variables), chosen):
            found.setdefault(one.KIND, one)
    found |= {one.KIND: one for one in plan_underlay(UNDERLAY, "lo")[:2]}
    if missing := {*KINDS} - {*found}:
        raise LookupError(f"no NIC of tests/golden, nor of NICS here, has operations of the kinds {', '.join(sorted(missing))}")
    return {name: found[name] for name in KINDS}


def operations() -> str:
    """Every kind of operation."""
    rows = []
    for name, one in samples().items():
        yes = ["yes" if getattr(type(one), method) is not getattr(Operation, method) else "" for method in ("shared", "exclusive")]
        words = one.sentence().replace(", of which there was none", "")  # only a host has uplinks
        rows.append((f"`{name}`", words, f"`{one.describe()}`", one.REPAIRED, *yes))
    head = ("kind", "what it does, for example", "as a command", "`[repair]` calls it", "shared", "may wait")
    return OPERATIONS + table(head, rows)


def migration(page: str) -> str:
    """Return docs/migration.md with the table of what is done when."""
    classes = [kind(name) for name in KINDS]
    rows = ((f"`{made.KIND}`", "both" if made.exclusive is Operation.exclusive else "after", made.MIGRATION) for made in classes)
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(('operation', 'on the target', 'why'), rows)}\n{END}{tail}"


def example(file: str) -> str:
    """Return examples/config.toml with a setting for each kind in [repair]."""
    rows = (f'# {one.REPAIRED[0].upper()}{one.REPAIRED[1:]}.\n#{name} = "on"\n' for name, one in ((name, kind(name)) for name in KINDS))
    head, _, rest = file.partition(REPAIR)
    _, _, tail = rest.partition("\n\n")
    return f"{head}{REPAIR}{''.join(rows)}\n{tail}"


def environment() -> str:
    """Every variable that is read."""
    nic = table(("variable", "what it says"), ((f"`{name}`", text) for name, text in NIC.items()))
    others = table(("variable", "read by", "what it says"), ((f"`{name}`", *rest) for name, *rest in OTHERS))
    scripts = table(("variable", "what it says"), ((f"`{name}`", text) for name, text in SCRIPTS))
    return ENVIRONMENT.format(nic=nic, others=others, scripts=scripts)


def metrics() -> str:
    """Every metric of the agent."""
    rows = ((f"`{name}`", metric.kind, metric.help) for name, metric in METRICS.items())
    return METRICS_PAGE.format(bounds=", ".join(f"{bound:g}" for bound in BUCKETS)) + table(("metric", "type", "meaning"), rows)


REGISTRY_PAGE = """# The registry's HTTP interface

{made}
`netcommon registry serve` answers on a UNIX socket, `/run/netregistry/socket`, to root alone ([the registry](../registry.md)).
`GET /v1/openapi.json` gives all of this as an OpenAPI document with the schema of every body; `GET /v1` names what the service can do.

## Endpoints

{endpoints}
A list takes `limit` (at most {most} items, {usual} without it) and `cursor`, which `next` of the part before names: all parts are of
one revision. `dry_run=true` answers what would change. A parameter, field or value that is unknown is refused, and named.

{headers}
## Problems

A refusal is a document of [RFC 9457](https://www.rfc-editor.org/rfc/rfc9457), `application/problem+json`; `type` is `/v1/problems/`
and the kind. Refused is refused: nothing has changed.

{problems}"""


def registry() -> str:
    """Every endpoint and every kind of problem of the registry's service."""
    rows = []
    for route in ROUTES:
        names = ", ".join(f"`{param.name}`" for param in route.query if param not in (*PAGING, DRY))
        rows.append((f"`{route.method} {route.path}`", route.about, names, f"`{route.action}`" if route.action else ""))
    endpoints = table(("endpoint", "what it does", "parameters", "action"), rows)
    problems = table(("status", "kind", "what it says"), ((str(status), f"`{kind}`", title) for kind, (status, title) in REFUSALS.items()))
    headers = table(("header", "meaning"), ((f"`{each['name']}`", each["description"]) for each in (IF_MATCH, KEY, ROLE)))
    return REGISTRY_PAGE.format(made=MADE, endpoints=endpoints, headers=headers, problems=problems, most=MOST_ITEMS, usual=USUAL)


#: Around the table in docs/migration.md.
BEGIN, END = "<!-- operations: made by docs/reference/make.py -->\n", "<!-- operations end -->\n"
MIGRATION, EXAMPLE = ROOT / "docs/migration.md", ROOT / "examples/config.toml"
REPAIR = "[repair]\n"

PAGES = {"settings.md": settings, "operations.md": operations, "environment.md": environment, "metrics.md": metrics}
PAGES["registry-api.md"] = registry


def main(arguments: list[str]) -> int:
    """Write the pages into a folder, or each to its place."""
    folder = Path(arguments[0]) if arguments else HERE
    for name, make in PAGES.items():
        (folder / name).write_text(make())
    if not arguments:
        MIGRATION.write_text(migration(MIGRATION.read_text()))
        EXAMPLE.write_text(example(EXAMPLE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
