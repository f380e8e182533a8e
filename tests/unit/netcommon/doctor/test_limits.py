"""doctor on what the guards of a node leave open."""

from __future__ import annotations

from pathlib import Path

from netcommon.doctor import limits
from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.facts import AF_INET, AF_INET6, Rule
from netcommon.host.api.nftables import INET, NftChain, NftRule, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import expression
from netcommon.settings.model import Settings
from tests.support.sim import UUIDS, Sim, nic


def patient(sim: Sim) -> Patient:
    return Patient(sim.paths, "/", "/hooks", sim.settings, sim.host.snapshot(), sim.records())


def switches(sim: Sim) -> list[Finding]:
    return list(limits.switches(patient(sim)))


def look_at_connections(sim: Sim) -> None:
    """Load a table of the site's that looks at connections."""
    site = Put(NftTable(INET, "site")), Put(NftChain(INET, "site", "c")), Put(NftRule(INET, "site", "c", expression("ct", b"")))
    (said,) = sim.host.execute([NftChange("the site's", site)], stop=True)
    assert said.ok


def test_connections(sim: Sim) -> None:
    """Only where a NIC has a profile that looks at connections itself, and somebody else does too."""
    look_at_connections(sim)
    sim.up(nic("bridged"))
    assert list(limits.connections(patient(sim))) == []
    sim.up(nic("bridged", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", TAGS="netcommon:1:protected"))
    sim.host.kernel.settings.put(limits.CONNECTIONS, "4096")
    (finding,) = limits.connections(patient(sim))
    assert finding.level == "info" and finding.text.startswith("table inet site ") and "is 4096" in finding.text


def test_a_profile_alone(sim: Sim) -> None:
    sim.up(nic("bridged", TAGS="netcommon:0:protected"))
    assert list(limits.connections(patient(sim))) == []


def test_switches(sim: Sim) -> None:
    """The kernel's datapath has a guard before the flows."""
    sim.host.switch.bridges["ovs0"] = True
    sim.up(nic("openvswitch", TAGS="netcommon:0:spoof_guard"))
    assert switches(sim) == []


def test_a_switch_in_user_space(sim: Sim) -> None:
    """Once for a bridge, and not for NICs without a guard."""
    assert not sim.host.switch.bridges["ovs0"]
    sim.up(nic("openvswitch", TAGS="netcommon:0:spoof_guard:no"))
    assert switches(sim) == []
    for number, tap in enumerate(("tap0", "tap1")):
        sim.up(nic("openvswitch", INTERFACE=tap, INTERFACE_UUID=UUIDS[number], INTERFACE_INDEX=str(number), TAGS=""))
    (finding,) = switches(sim)
    assert (finding.level, finding.text.startswith("ovs0: "), "new_sources" in finding.text) == ("info", True, True)


def test_a_template_of_the_sites_own(sim: Sim) -> None:
    sim.host.switch.bridges["ovs0"] = True
    sim.host.templates["ovs/spoof-guard.j2"] = "priority=65000 actions=resubmit(,0)"
    sim.up(nic("openvswitch", TAGS="netcommon:0:spoof_guard"))
    (finding,) = switches(sim)
    assert finding.level == "warning" and "spoof-guard.j2" in finding.text and "vnet_hdr=off" in finding.remedy


def test_marks(tmp_path: Path) -> None:
    """Which guests go by table main while nothing marks them, by family; and that nothing does now."""
    sim = Sim(str(tmp_path), Settings(service_timeout=2, hook_timeout=5, rule_mark=0xFFF0000))
    sim.tap("tap1")
    assert list(limits.marks(patient(sim))) == []
    sim.up(nic("routed, table", TAGS="netcommon:0:addresses:fd00::5"))
    sim.up(nic("routed, table", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", IP="10.0.0.6"))
    found = list(limits.marks(patient(sim)))
    assert [(one.level, one.text.partition(" NICs ")[0]) for one in found] == [
        ("warning", "IPv4 packets of 2 routed"),
        ("warning", "IPv6 packets of 1 routed"),
    ]
    assert found[0].remedy.startswith("ip -4 rule add not iif lo blackhole preference 32765")
    sim.host.kernel.add_rule(Rule(AF_INET, 32765, "lo", 254, 3, plain=False, action=6, inverted=True))
    sim.host.kernel.add_rule(Rule(AF_INET6, 32765, "lo", 254, 3, plain=False, action=1, inverted=True))
    assert [one.text[:4] for one in limits.marks(patient(sim))] == ["IPv6"]
    sim.host.nftables.flush()
    errors = [one for one in limits.marks(patient(sim)) if one.level == "error"]
    assert [one.text.partition(": ")[0] for one in errors] == ["inet netcommon-mark-100-fff0000", "arp netcommon-mark-100-fff0000"]
    assert all("goes by table main meanwhile" in one.text for one in errors)


def test_no_marks(sim: Sim) -> None:
    sim.up(nic("routed, table"))
    assert list(limits.marks(patient(sim))) == []
