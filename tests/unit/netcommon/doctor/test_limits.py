"""doctor on what the guards of a node leave open."""

from __future__ import annotations

from netcommon.doctor import limits
from netcommon.doctor.finding import Finding, Patient
from netcommon.host.api.nftables import INET, NftChain, NftRule, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.expressions import expression
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
