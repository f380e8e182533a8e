"""Open vSwitch with everything: up, check, drift by hand, repair, a restart of the switch, down, and the host is as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.ovs_by_hand import answers
from tests.kernel.test_doors_parallel import collect, environment, good
from tests.kernel.test_rate import drift, mend
from tests.support import frames
from tests.support.bootstrap import VENV
from tests.support.forged import IP, IP6, OTHER, OWN, ethernet, ipv4, udp
from tests.support.netns import run, wait_until
from tests.support.node import Node
from tests.support.ovs import OpenVswitch
from tests.support.rundoor import BASE, Outcome, execute, rundoor
from tests.support.snapshot import Snapshot, diff, snapshot

pytestmark = pytest.mark.sampled(2)

TAGS = f"netcommon:*:spoof_guard netcommon:*:addresses:{IP6} netcommon:*:rate_in:8mbit netcommon:*:rate_out:4mbit"
NIC = environment(MODE="openvswitch", LINK="ovs0", IP=IP, MAC=OWN, VLAN=".10:20", TAGS=TAGS)
COOKIE = "cookie=0x6e6374"


@pytest.fixture
def placed(node: Node, ovs: OpenVswitch) -> OpenVswitch:
    """A bridge with a flow, a QoS and a mirror of the administrator's. The NIC has been up and down once: the folders are there."""
    ovs.bridge("ovs0")
    node.tap("tap0")
    node.tap("tap1")
    run("ip", "link", "set", "tap1", "up")
    ovs.vsctl("add-port", "ovs0", "tap1", "--", "set", "Port", "tap1", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-noop")
    ovs.vsctl("--id=@m", "create", "Mirror", "name=ours", "select_all=true", "output_vlan=99", "--", "set", "Bridge", "ovs0", "mirrors=@m")
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=9,udp,tp_dst=9,actions=drop")
    assert rundoor("kvm-ifup", NIC).status == 0
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    return ovs


def at_rest() -> Snapshot:
    """The snapshot while the tap is down, and has a queueing discipline as from its next up on, if vswitchd took away its own."""
    assert "UP" not in json.loads(run("ip", "-j", "link", "show", "dev", "tap0"))[0]["flags"]
    run("ip", "link", "set", "tap0", "up")
    run("ip", "link", "set", "tap0", "down")
    return snapshot()


def flows() -> list[str]:
    return sorted(line for line in run("ovs-ofctl", "--no-stats", "dump-flows", "ovs0").splitlines() if COOKIE in line)


def column(ovs: OpenVswitch, table: str, name: str, column: str) -> object:
    return next(row[column] for row in ovs.rows(table, "name", column) if row["name"] == name)


def delete_some_flow(ovs: OpenVswitch) -> None:
    run("ovs-ofctl", "--strict", "del-flows", "ovs0", "priority=65000,reg13=0x60000000/0xe0000000,in_port=tap0")


def alter_a_flow(ovs: OpenVswitch) -> None:
    run("ovs-ofctl", "--strict", "mod-flows", "ovs0", "priority=65000,reg13=0x60000000/0xe0000000,in_port=tap0,actions=normal")


def delete_all_flows(ovs: OpenVswitch) -> None:
    run("ovs-ofctl", "del-flows", "ovs0", "in_port=tap0")


def add_a_flow_with_our_cookie(ovs: OpenVswitch) -> None:
    cookie = flows()[0].split(",")[0].strip()
    run("ovs-ofctl", "add-flow", "ovs0", f"{cookie},priority=65100,in_port=tap0,actions=normal")


def delete_the_port(ovs: OpenVswitch) -> None:
    ovs.vsctl("del-port", "tap0")


def delete_the_qos(ovs: OpenVswitch) -> None:
    ovs.vsctl("clear", "Port", "tap0", "qos")


def alter_the_rates(ovs: OpenVswitch) -> None:
    ovs.vsctl("set", "Interface", "tap0", "ingress_policing_rate=1", "--", "set", "QoS", column_of_qos(ovs), "other_config:max-rate=99999")


def column_of_qos(ovs: OpenVswitch) -> str:
    return ovs.vsctl("get", "Port", "tap0", "qos")


def take_the_ids(ovs: OpenVswitch) -> None:
    ovs.vsctl("remove", "Interface", "tap0", "external_ids", "iface-id")


def restart(ovs: OpenVswitch) -> None:
    """The port may get another number, and all flows are gone, the administrator's too."""
    ovs.kill()
    ovs.start_switch()
    wait_until(answers, 10, "the bridge's own socket")


DRIFTS: list[tuple[Callable[[OpenVswitch], None], str]] = [
    (delete_some_flow, "flows are missing"),
    (alter_a_flow, "1 of its"),
    (delete_all_flows, "flows are missing"),
    (add_a_flow_with_our_cookie, "1 flows are there that are not its own"),
    (delete_the_port, "the port is gone"),
    (delete_the_qos, "its shaping is 0"),
    (alter_the_rates, "its policing is 1, its shaping is 99999"),
    (take_the_ids, "its interface_ids is"),
    (restart, "flows are missing"),
]


@pytest.mark.parametrize(("change", "said"), DRIFTS, ids=[change.__name__ for change, _ in DRIFTS])
def test_up_drift_repair_down(placed: OpenVswitch, change: Callable[[OpenVswitch], None], said: str) -> None:
    before = at_rest()
    assert rundoor("kvm-ifup", NIC).status == 0
    made = snapshot()
    assert good() == ["tap0"] and flows()
    change(placed)
    assert [line for line in drift() if said in line], drift()
    mend()
    assert good() == ["tap0"] and collect() == []
    if change not in (restart, delete_the_port):  # the port has another number then, and so its flows
        assert diff(made["ovs"], snapshot()["ovs"]) == []
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    if change is restart:
        run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x7,priority=9,udp,tp_dst=9,actions=drop")
        run("ip", "link", "set", "tap0", "promisc", "off")  # a killed vswitchd leaves its devices so
    assert diff(before, at_rest()) == []


def test_what_is_written_for_others(placed: OpenVswitch) -> None:
    """The names and values that OVN, and whoever follows Nova, look for."""
    assert rundoor("kvm-ifup", NIC).status == 0
    ids = dict(json.loads(json.dumps(column(placed, "Interface", "tap0", "external_ids")))[1])
    assert ids.pop("netcommon-policing") == "4000"
    assert ids == {"attached-mac": OWN, "iface-id": NIC["INTERFACE_UUID"], "iface-status": "active", "vm-uuid": "web0"}
    assert (column(placed, "Port", "tap0", "tag"), column(placed, "Port", "tap0", "vlan_mode")) == (10, "native-untagged")
    assert [column(placed, "Interface", "tap0", f"ingress_policing_{each}") for each in ("rate", "burst")] == [4000, 800]


def test_the_rate_to_the_guest_is_in_the_kernel(placed: OpenVswitch) -> None:
    """linux-htb on the tap: the class that all of it goes through has the rate as its ceiling; down takes it away."""
    assert "htb" not in run("tc", "qdisc", "show", "dev", "tap0")
    assert rundoor("kvm-ifup", NIC).status == 0
    wait_until(lambda: "ceil 8Mbit" in run("tc", "class", "show", "dev", "tap0"), 5, "the class with the rate")
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    wait_until(lambda: "htb" not in run("tc", "qdisc", "show", "dev", "tap0"), 5, "its end")


def test_other_options_at_a_second_up(placed: OpenVswitch) -> None:
    """As after gnt-instance add-tags and an up by hand: what is not wanted any more goes, in one go for the flows."""
    before = at_rest()
    assert rundoor("kvm-ifup", NIC).status == 0
    guarded = flows()
    assert rundoor("kvm-ifup", {**NIC, "IP": "10.0.0.3"}).status == 0
    assert good() == ["tap0"] and len(flows()) == len(guarded) and flows() != guarded
    assert rundoor("kvm-ifup", {**NIC, "TAGS": "netcommon:*:spoof_guard:false"}).status == 0
    assert good() == ["tap0"] and flows() == []
    assert [row["external_ids"] for row in placed.rows("QoS", "external_ids")] == [["map", []]]
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert diff(before, at_rest()) == []


def test_another_bridge_at_a_second_up(placed: OpenVswitch) -> None:
    """The flows go with the NIC: none is left on the bridge that it has left."""
    placed.bridge("ovs1")
    before = at_rest()
    assert rundoor("kvm-ifup", NIC).status == 0
    count = len(flows())
    assert rundoor("kvm-ifup", {**NIC, "LINK": "ovs1"}).status == 0
    assert good() == ["tap0"] and flows() == []
    assert len([line for line in run("ovs-ofctl", "dump-flows", "ovs1").splitlines() if COOKIE in line]) == count
    assert rundoor("kvm-ifdown", {**NIC, "LINK": "ovs1"}, "tap0", "hot-remove").status == 0
    assert diff(before, at_rest()) == []


def test_no_record_is_left(placed: OpenVswitch) -> None:
    """gc finds flows by their cookie and a QoS by its mark, and takes nothing else."""
    before = snapshot()
    assert rundoor("kvm-ifup", NIC).status == 0
    placed.vsctl("del-port", "tap0")
    run("rm", "-r", "/run/netcommon")
    run("ip", "link", "set", "tap0", "alias", "", "down")
    found = collect()
    assert len([line for line in found if line.startswith("removed OpenFlow flows of ovs0 with cookie 0x6e6374")]) == 1
    assert not [line for line in found if line.startswith("removed Open vSwitch QoS")], "a guest may be behind the tap"
    run("ip", "link", "del", "tap0")
    assert len([line for line in collect() if line.startswith("removed Open vSwitch QoS of the port tap0")]) == 1
    assert diff(before["ovs"], snapshot()["ovs"]) == []


def test_the_guest_is_guarded_when_its_hook_has_ended(placed: OpenVswitch, node: Node) -> None:
    """From its first frame on."""
    guest = node.tap("tap2")
    placed.vsctl("--", "set", "Port", "tap1", "tag=10")
    other = node.tap("tap3")
    run("ip", "link", "set", "tap3", "up")
    placed.vsctl("add-port", "ovs0", "tap3", "tag=10")
    nic = {**NIC, "INTERFACE": "tap2", "INTERFACE_UUID": NIC["INTERFACE_UUID"].replace("0000", "0001", 1)}
    assert rundoor("kvm-ifup", nic).status == 0
    forged, good_one = ethernet(frames.IPV4, ipv4(IP, udp(1, 2)), OTHER), ethernet(frames.IPV4, ipv4(IP, udp(1, 3)))
    guest.send(forged)
    guest.send(good_one)
    assert other.receive(lambda frame: frame in (forged, good_one), seconds=5) == good_one


def test_an_up_while_flows_are_restored(placed: OpenVswitch) -> None:
    """Whoever restores gives each bridge the flows that it had: an up waits for the end of that, else it is to be tried again."""
    before = at_rest()
    Path("/etc/netcommon").mkdir(exist_ok=True)
    Path("/etc/netcommon/config.toml").write_text("[hook]\nservice_timeout = 1\n")
    placed.vsctl("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
    again = rundoor("kvm-ifup", NIC)
    assert again.status == 75 and "flow-restore-wait" in again.stderr, again.stderr
    placed.vsctl("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait=true")
    assert rundoor("kvm-ifup", NIC).status == 0
    assert good() == ["tap0"] and flows()
    assert rundoor("kvm-ifdown", NIC, "tap0", "hot-remove").status == 0
    assert flows() == [] and diff({**before, "files": {}}, {**at_rest(), "files": {}}) == []


def changed(*words: str) -> Outcome:
    return execute([str(VENV / "bin/netcommon"), "change", "tap0", *words], BASE)


def test_a_flow_of_the_administrators_is_not_taken(placed: OpenVswitch) -> None:
    """One with the match and priority of a template's is refused, and named; others on the port are nobody's affair."""
    folder = Path("/etc/netcommon/templates/ovs")
    folder.mkdir(parents=True)
    Path(folder, "site.j2").write_text("priority=5 actions=drop\npriority=6,udp,tp_dst=9 actions=drop\n")
    assert rundoor("kvm-ifup", {**NIC, "TAGS": ""}).status == 0

    def theirs() -> list[str]:
        return sorted(line.strip() for line in run("ovs-ofctl", "--no-stats", "dump-flows", "ovs0").splitlines() if "cookie=0x77" in line)

    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x77,priority=5,tcp,in_port=tap0,actions=output:99")
    run("ovs-ofctl", "add-flow", "ovs0", "cookie=0x77,priority=6,udp,udp_dst=9,in_port=tap0,actions=output:99")
    before, guarded = theirs(), flows()
    done = changed("flows=site")
    assert done.status == 69 and "in_port=tap0,priority=6,udp,tp_dst=9" in done.stderr, done
    assert theirs() == before and len(before) == 2 and drift() == []
    run("ovs-ofctl", "--strict", "del-flows", "ovs0", "in_port=tap0,priority=6,udp,tp_dst=9")
    before = theirs()
    assert changed("flows=site").status == 0 and len(flows()) == len(guarded) + 2
    assert changed("flows=site", "isolated=yes").status == 0 and changed("--unset", "flows").status == 0
    assert theirs() == before and len(before) == 1 and flows() == guarded
