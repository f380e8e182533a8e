"""Fill the laboratory's cluster: networks, and instances with NICs of all modes on both nodes, one of which has stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.lab.cluster import DOMAIN, Cluster, Member
from tests.lab.nodes import SETTINGS, Failed, until

SHOWN = 60.0  #: seconds until a registry shows what Ganeti has done, on a busy machine
NFDHCPD = "/srv/nfdhcpd"  #: in a folder that is the node's own
FOLDERS = (NFDHCPD, "/var/lib/netcommon/dnsmasq", "/var/lib/netcommon/dnsmasq-options")
#: By name: subnet, gateway, parameters.
NETWORKS = {
    "blue": ("10.77.50.0/24", "10.77.50.1", "mode=bridged,link=br0"),
    "green": ("10.77.40.0/24", "10.77.40.1", "mode=openvswitch,link=ovs0"),
    "red": ("10.77.31.0/24", "10.77.31.1", "mode=routed,link=gntroute"),
}


class Instance(NamedTuple):
    """Describe an instance. ``stopped``: it has run, and then stands still."""

    node: str
    nics: tuple[str, ...]
    tags: str = ""
    stopped: bool = False


FIRST, SECOND, THIRD = (f"inst{number}{DOMAIN}" for number in (1, 2, 3))
INSTANCES = {
    FIRST: Instance(
        "node1",
        (
            "mode=bridged,link=br0,ip=10.77.1.50,mac=aa:77:0a:4d:01:32",
            "network=red,ip=10.77.31.50,mac=ae:77:0a:4d:1f:32",
            "mode=openvswitch,link=ovs0,vlan=.10,mac=aa:77:0a:4d:02:32",
            "network=blue,ip=10.77.50.5,mac=aa:77:0a:4d:32:05",
        ),
    ),
    SECOND: Instance(
        "node2",
        (
            "mode=bridged,link=br0,ip=10.77.1.51,mac=aa:77:0a:4d:01:33",
            "mode=routed,link=gntroute,ip=10.77.30.51,mac=ae:77:0a:4d:1e:33",
            "network=green,ip=10.77.40.5,mac=aa:77:0a:4d:28:05",
            "mode=routed,link=100,ip=10.77.30.52,mac=ae:77:0a:4d:1e:34",
        ),
        "netcommon:0:rate_in:8mbit",
    ),
    THIRD: Instance(
        "node2",
        ("network=blue,ip=10.77.50.6,mac=aa:77:0a:4d:32:06", "network=red,ip=10.77.31.60,mac=ae:77:0a:4d:1f:3c"),
        stopped=True,
    ),
}
OPERATED, OPTION = (SECOND, 3), "options.rate_in=16mbit"  #: what the registry's operator has set
#: NICs of which the registry says more than Ganeti's configuration: that option, and how guests of a network reach its gateway.
TOLD_MORE = (OPERATED, (FIRST, 1), (THIRD, 1))


def settings(nic: str, networks: str = "", rules: str = "") -> str:
    """Give a whole config.toml: what is in [nic], in tables of networks, in [rules]."""
    return f'{SETTINGS}[dhcp]\nnfdhcpd_folder = "{NFDHCPD}"\n[nic]\n{nic}\n{networks}\n[rules]\n{rules}\n'


class Populated:
    """All of it. ``text``: the nodes' config.toml."""

    def __init__(self, cluster: Cluster, text: str) -> None:
        self.cluster, self._text = cluster, text
        self.stopped: dict[str, dict[str, Any]] = {}  #: records of NICs that stand still, as they were
        self._had: list[str] = []  #: networks and instances that there are

    def start(self) -> None:
        """Let everything run. Raises Failed."""
        for node in self.cluster.nodes.values():
            node.settings = self._text
        self.cluster.start()
        for node in self.cluster.nodes.values():
            node.run("mkdir", "-p", *FOLDERS)
        for name, (subnet, gateway, params) in NETWORKS.items():
            self._had.append(name)
            self.cluster.ganeti("gnt-network", "add", f"--network={subnet}", f"--gateway={gateway}", name)
            self.cluster.ganeti("gnt-network", "connect", "--no-conflicts-check", f"--nic-parameters={params}", name)
        for name, one in INSTANCES.items():
            self._had.append(name)
            self._add(name, one)
            self.cluster.ganeti("gnt-instance", "start", name)
        self._shown(dict.fromkeys(INSTANCES, True))
        self._operate()
        for name in self._idle():
            self.stopped |= {uuid: record for uuid, (_, record) in self.on_nodes().items() if record["nic"]["INSTANCE"] == name}
            self.cluster.ganeti("gnt-instance", "shutdown", "--timeout=0", name)
        self._shown({name: not one.stopped for name, one in INSTANCES.items()})

    def _add(self, name: str, one: Instance) -> None:
        nics = [word for index, nic in enumerate(one.nics) for word in ("--net", f"{index}:{nic}")]
        tags = ["--tags", one.tags] if one.tags else []
        add = ["add", "-t", "diskless", "-o", "nil+default", "--no-install", "--no-start", "--no-name-check", "--no-ip-check"]
        self.cluster.ganeti("gnt-instance", *add, "--no-conflicts-check", "-n", f"{one.node}{DOMAIN}", *tags, *nics, name)

    def _operate(self) -> None:
        """Set the operator's option, and wait until it is in force. Raises Failed."""
        instance, index = OPERATED
        self.cluster.master.type("registry", "nic", "set", f"{instance}/{index}", OPTION)
        uuid = next(item["nic"]["uuid"] for item in self.nics() if (item["nic"]["instance"], item["nic"]["index"]) == OPERATED)
        until("the operator's option is in force", SHOWN, lambda: "rate_in" in json.dumps(self.on_nodes()[uuid][1]["nic"]))

    def _idle(self) -> list[str]:
        return [name for name, one in INSTANCES.items() if one.stopped]

    def start_idle(self) -> dict[str, dict[str, Any]]:
        """Start what stands still, and give its NICs' records of before that by UUID; none where nothing does. Raises Failed."""
        before, self.stopped = self.stopped, {}
        for name in self._idle() if before else ():
            self.cluster.ganeti("gnt-instance", "start", name)
        self._shown(dict.fromkeys(INSTANCES, True))
        return before

    def tagged(self, name: str, tag: str) -> None:
        """Add a tag to an instance that runs, and wait until all of its NICs have it. Raises Failed."""
        self.cluster.ganeti("gnt-instance", "add-tags", name, tag)

        def had() -> bool:
            records = [record["nic"] for _node, record in self.on_nodes().values()]
            return all(tag in nic.get("TAGS", "").split() for nic in records if nic["INSTANCE"] == name)

        until(f"{name} has the tag {tag}", SHOWN, had, 0.2)

    def nics(self) -> list[dict[str, Any]]:
        """Give the registry's NICs."""
        return list(self.cluster.client.all("nics"))

    def _shown(self, running: Mapping[str, bool]) -> None:
        """Wait until the registry shows all NICs, and which run. Raises Failed."""
        wanted = {(name, index): running[name] for name, one in INSTANCES.items() for index in range(len(one.nics))}

        def same() -> bool:
            return wanted == {(item["nic"]["instance"], item["nic"]["index"]): item["shown"]["state"] == "running" for item in self.nics()}

        try:
            until("the registry shows what Ganeti has done", SHOWN, same, 0.2)
        except Failed as error:
            there = [(item["nic"]["instance"], item["nic"]["index"], item["shown"]) for item in self.nics()]
            raise Failed(f"{error}: {there}") from None

    def on_nodes(self) -> dict[str, tuple[Member, dict[str, Any]]]:
        """Give by UUID on which node a NIC is on record, and the record."""
        return {uuid: (node, record) for node in self.cluster.nodes.values() for uuid, record in node.records().items()}

    def remove(self) -> None:
        """Take instances and networks away, and end the cluster. Raises Failed where something of ours is left on a node."""
        master = self.cluster.master
        for name in reversed(self._had):
            if name in INSTANCES:
                master.attempt("gnt-instance", "remove", "--force", "--shutdown-timeout=0", "--ignore-failures", name)
            else:
                master.attempt("gnt-network", "disconnect", name)
                master.attempt("gnt-network", "remove", name)
        try:
            for node in self.cluster.nodes.values():
                until(f"nothing of ours on {node.name}", SHOWN, lambda node=node: not node.leftovers(), 0.2)  # type: ignore[misc]
        finally:
            for node in self.cluster.nodes.values():
                node.attempt("rmdir", *FOLDERS)
            self.cluster.stop()
