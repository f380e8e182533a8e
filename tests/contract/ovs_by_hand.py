"""Ports of Open vSwitch, and what an administrator, or another program, does to it in either world."""

from __future__ import annotations

import subprocess

from netcommon.host.api.facts import OVS_MARK, Flow, OvsPort
from tests.contract.worlds import LinuxWorld, SimulatedWorld
from tests.support.netns import run, wait_until

MARK = ((OVS_MARK, "uuid-1"),)
PLAIN = OvsPort("tap0", "ovs0", external_ids=MARK)
FULL = PLAIN._replace(
    tag=10,
    trunks=(20, 21),
    vlan_mode="native-untagged",
    external_ids=(*MARK, ("other", 'a "quoted" ü')),
    interface_ids=(("attached-mac", "fe:00:00:00:00:01"), ("iface-id", "uuid-1")),
)
#: Columns that are nobody's but the administrator's, as OVSDB's JSON shows them.
OTHERS = {
    "Port": ("other_config", "priority-tags=always", ["map", [["priority-tags", "always"]]]),
    "Interface": ("ingress_policing_rate", "1000", 1000),
}


def intent(port: OvsPort | None) -> OvsPort:
    """What was asked for, without what vswitchd wrote."""
    assert port is not None
    return port._replace(error="", ofport=0, row="")


def fake_bridge(world: object, name: str, parent: str, vid: int) -> None:
    if isinstance(world, LinuxWorld):
        world.ovs.vsctl("add-br", name, parent, str(vid))
    else:
        simulated(world).host.add_fake_ovs_bridge(name, parent, vid)


def retag(world: object, name: str, vid: int) -> None:
    """Another VLAN for a fake bridge."""
    if isinstance(world, LinuxWorld):
        world.ovs.vsctl("set", "Port", name, f"tag={vid}")
    else:
        switch = simulated(world).host.switch
        switch.retag(name, vid)


def add_ids(world: object, name: str, port: tuple[str, str], interface: tuple[str, str]) -> None:
    """A pair more in the external_ids of the port, and in those of its interface."""
    if isinstance(world, LinuxWorld):
        for table, (key, value) in (("Port", port), ("Interface", interface)):
            world.ovs.vsctl("set", table, name, f"external_ids:{key}={value}")
        return
    switch = simulated(world).host.switch
    there = switch.real(name)
    assert there is not None
    ids, interface_ids = dict([*there.external_ids, port]), dict([*there.interface_ids, interface])
    switch.amend(there._replace(external_ids=tuple(sorted(ids.items())), interface_ids=tuple(sorted(interface_ids.items()))))


def set_by_others(world: object) -> None:
    """More than the simulated rows have: there it is only told."""
    if isinstance(world, LinuxWorld):
        for table, (column, value, _) in OTHERS.items():
            world.ovs.vsctl("set", table, "tap0", f"{column}={value}")
    else:
        simulated(world).host.switch.police("tap0")


def check_set_by_others(world: object) -> None:
    if isinstance(world, LinuxWorld):
        for table, (column, _, shown) in OTHERS.items():
            (row,) = [row for row in world.ovs.rows(table, "name", column) if row["name"] == "tap0"]
            assert row[column] == shown


def port_to_br(world: object, name: str) -> tuple[str, int]:
    """The bridge of the port, and the VLAN in its row, by ovs-vsctl; of the simulated node by what it has."""
    if isinstance(world, LinuxWorld):
        return world.ovs.vsctl("port-to-br", name), int(world.ovs.vsctl("get", "Port", name, "tag"))
    switch = simulated(world).host.switch
    port = switch.port(name)
    assert port is not None
    return port.bridge, next(fake.tag for fake in switch.fakes if fake.name == port.bridge)


def answers(bridge: str = "ovs0") -> bool:
    """Whether the bridge takes questions about its flows."""
    return subprocess.run(["ovs-ofctl", "dump-flows", bridge], capture_output=True, check=False).returncode == 0


def restart_switch(world: object) -> None:
    """ovs-vswitchd is killed, and started again."""
    if isinstance(world, LinuxWorld):
        world.ovs.kill()
        world.ovs.start_switch()
        wait_until(answers, 10, "the bridge's own socket, which comes after the switch has said that it is ready")
    else:
        simulated(world).host.openflow.restart()


def foreign_flow(world: object, bridge: str, cookie: int, text: str) -> None:
    """A flow of the administrator's, as ovs-ofctl prints it."""
    if isinstance(world, LinuxWorld):
        run("ovs-ofctl", "-O", "OpenFlow14", "add-flow", bridge, f"cookie={cookie:#x},{text.replace(' ', ',')}")
    else:
        simulated(world).host.openflow.add(Flow(bridge, cookie, 0, text))


def every_flow(world: object, bridge: str) -> list[str]:
    """All flows of a bridge, without what is counted."""
    if isinstance(world, LinuxWorld):
        lines = run("ovs-ofctl", "--no-stats", "--no-names", "-O", "OpenFlow14", "dump-flows", bridge).splitlines()
        return sorted(line.strip() for line in lines if "cookie=" in line)
    return sorted(f"cookie={flow.cookie:#x}, {flow.text}" for flow in simulated(world).host.openflow.all if flow.bridge == bridge)


def controlled(world: object, bridge: str) -> None:
    """The bridge gets a controller, which does not answer."""
    if isinstance(world, LinuxWorld):
        world.ovs.vsctl("set-controller", bridge, "tcp:127.0.0.1:1")
    else:
        simulated(world).host.switch.control(bridge)


def delete_port(world: object, name: str) -> None:
    """ovs-vsctl del-port, which leaves a QoS."""
    if isinstance(world, LinuxWorld):
        world.ovs.vsctl("del-port", name)
    else:
        simulated(world).host.switch.remove(name)


def shapers(world: object) -> list[str]:
    """The QoS rows: the port of each, "" of one that we have not made."""
    if isinstance(world, LinuxWorld):
        return sorted(dict(row["external_ids"][1]).get("netcommon-port", "") for row in world.ovs.rows("QoS", "external_ids"))
    return sorted(each.port for each in simulated(world).host.switch.shapers)


def simulated(world: object) -> SimulatedWorld:
    assert isinstance(world, SimulatedWorld)
    return world
