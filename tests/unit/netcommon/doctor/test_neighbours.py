"""doctor on the kernel's neighbour tables."""

from __future__ import annotations

from netcommon.doctor import neighbours
from netcommon.doctor.finding import Finding, Patient
from tests.support.sim import UUIDS, Sim, nic

SIZE4, SIZE6 = "net/ipv4/neigh/default/gc_thresh3", "net/ipv6/neigh/default/gc_thresh3"


def found(sim: Sim) -> list[Finding]:
    return list(neighbours.check(Patient(sim.paths, "/", "/hooks", sim.settings, sim.host.snapshot(), sim.records())))


def sizes(sim: Sim, ipv4: int, ipv6: int) -> None:
    sim.host.kernel.settings.put(SIZE4, str(ipv4))
    sim.host.kernel.settings.put(SIZE6, str(ipv6))


def test_nothing_is_said_where_the_kernel_tells_nothing(sim: Sim) -> None:
    """Network namespaces other than the first have no such setting."""
    sim.up(nic("bridged"))
    assert found(sim) == []


def test_room_for_what_guests_may_use(sim: Sim) -> None:
    """Four times new_sources for each guest."""
    sim.up(nic("bridged"))
    sizes(sim, 256, 255)
    enough, little = found(sim)
    assert enough.level == "ok"
    assert (little.level, "room for 0 of 1 NICs" in little.text, "gc_thresh3=256 " in little.remedy) == ("info", True, True)


def test_a_routed_guests_own_addresses(sim: Sim) -> None:
    """They come first; without room for them guests cannot be reached, whatever others do."""
    sim.up(nic("bridged"))
    sim.up(nic("routed, IPv6", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1"))
    sizes(sim, 1024, 1)
    assert [one.level for one in found(sim)] == ["ok", "warning"]
    sizes(sim, 1024, 2 + 256)
    assert "beside 2 entries of routed guests it has room for 1 of 2 NICs" in found(sim)[1].text
    sizes(sim, 1024, 2 + 2 * 256)
    assert [one.level for one in found(sim)] == ["ok", "ok"]


def test_guests_without_a_limit_do_not_count(sim: Sim) -> None:
    """What they use nobody can tell."""
    sim.up(nic("bridged", TAGS="netcommon:0:new_sources:0"))
    sim.up(nic("bridged", INTERFACE="tap1", INTERFACE_UUID=UUIDS[1], INTERFACE_INDEX="1", TAGS="netcommon:1:spoof_guard:off"))
    sizes(sim, 1, 1)
    assert [one.level for one in found(sim)] == ["ok", "ok"]
