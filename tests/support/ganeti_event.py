"""The environment of Ganeti's post hooks, as HooksMaster and BuildInstanceHookEnv of Ganeti 3.0 make it: with GANETI_ what was known
before the operation, with GANETI_POST_ what holds after it; a modification shows the new NICs in both; a removal still shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.rundoor import Outcome, argv_of, execute

CLUSTER = "cluster.example.net"

#: utils.RunCmd with reset_env, and constants.HOOKS_PATH.
BASE = {"LC_ALL": "C", "PATH": "/sbin:/bin:/usr/sbin:/usr/bin"}

#: A NIC: its address, and what else differs from the usual.
Nic = tuple[str, Mapping[str, str]]


def nic(ip: str = "", **more: str) -> Nic:
    """A NIC with the address ``ip``; MAC="..." or NETWORK_SUBNET6="..." in place of the usual."""
    return ip, more


def event(operation: str, name: str, nics: Sequence[Nic] = (), **more: str) -> dict[str, str]:
    """The environment after ``operation`` ("add"); ``more`` comes both with and without POST_."""
    common = {
        "GANETI_HOOKS_VERSION": "2",
        "GANETI_HOOKS_PHASE": "post",
        "GANETI_HOOKS_PATH": f"instance-{operation}",
        "GANETI_OP_CODE": f"OP_INSTANCE_{operation.upper()}",
        "GANETI_OBJECT_TYPE": "INSTANCE",
        "GANETI_DATA_DIR": "/var/lib/ganeti",
        "GANETI_CLUSTER": CLUSTER,
        "GANETI_MASTER": os.uname().nodename,
    }
    values = {"OP_TARGET": name, "INSTANCE_NAME": name, "INSTANCE_STATUS": "up", "INSTANCE_TAGS": "", **more}
    values["INSTANCE_NIC_COUNT"] = str(len(nics))
    for index, (ip, special) in enumerate(nics):
        usual = {"IP": ip, "MAC": f"aa:00:00:00:00:{index:02x}", "MODE": "bridged", "LINK": "br0", "VLAN": "", "BRIDGE": "br0"}
        usual["UUID"] = f"00000000-0000-4000-8000-{index:012d}"
        values.update({f"INSTANCE_NIC{index}_{key}": value for key, value in {**usual, **special}.items()})
    return {**BASE, **common, **{f"{start}{key}": value for start in ("GANETI_", "GANETI_POST_") for key, value in values.items()}}


def run_hook(environment: Mapping[str, str], timeout: float = 120) -> Outcome:
    """Runs the hook as Ganeti's node daemon does: no arguments, nothing but ``environment``."""
    return execute([argv_of("ganeti-dns-hook", "")[0]], environment, timeout)


def configuration(instances: Mapping[str, Sequence[Nic]]) -> str:
    """Ganeti's config.data with these instances, each NIC with a subnet in a network of its own."""
    networks: dict[str, dict[str, object]] = {}
    found: dict[str, object] = {}
    for number, (name, nics) in enumerate(instances.items()):
        made = []
        for index, (ip, special) in enumerate(nics):
            one: dict[str, object] = {
                "mac": special.get("MAC", f"aa:00:00:00:00:{index:02x}"),
                "nicparams": {},
                "uuid": f"nic-{number}-{index}",
            }
            if ip:
                one["ip"] = ip
            if "NETWORK_SUBNET6" in special:
                one["network"] = f"net-{number}-{index}"
                networks[f"net-{number}-{index}"] = {"name": "blue", "network6": special["NETWORK_SUBNET6"]}
            made.append(one)
        found[f"uuid-{number}"] = {"name": name, "nics": made, "disks": []}
    nodes = {"node-uuid": {"name": os.uname().nodename}}
    cluster = {"cluster_name": CLUSTER, "master_node": "node-uuid"}
    return json.dumps({"version": 3000000, "cluster": cluster, "nodes": nodes, "instances": found, "networks": networks})


def write_configuration(folder: Path, instances: Mapping[str, Sequence[Nic]]) -> None:
    """The configuration, and what Ganeti writes beside it on the master."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.data").write_text(configuration(instances))
    (folder / "ssconf_cluster_name").write_text(f"{CLUSTER}\n")
    (folder / "ssconf_master_node").write_text(f"{os.uname().nodename}\n")
    (folder / "ssconf_instance_list").write_text("".join(f"{name}\n" for name in sorted(instances)))
