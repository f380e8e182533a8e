"""Limits of a port of Open vSwitch: policing on its Interface row, shaping by a QoS row, which the database never collects."""

from __future__ import annotations

import errno

import pytest

from netcommon.host.api.facts import OVS_MARK, OvsPort, OvsShaper
from netcommon.host.api.requests import DeleteOvsPort, PutOvsPort
from tests.contract.ovs_by_hand import MARK, PLAIN, delete_port, intent, shapers
from tests.contract.worlds import LinuxWorld, World, do, told, view

LIMITED = PLAIN._replace(policing=2000, burst=800, shaping=5_000_000_000)
MORE = PLAIN._replace(policing=3000, burst=900, shaping=8_000_000)


@pytest.fixture
def tapped(ovs_world: World) -> World:
    ovs_world.tap("tap0")
    return ovs_world


def test_put_and_delete(tapped: World) -> None:
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == LIMITED
    assert intent(tapped.host.snapshot().ovs_port("tap0")) == LIMITED
    assert shapers(tapped) == ["tap0"] and list(view(tapped).ovs_shapers()) == []
    assert do(tapped, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert shapers(tapped) == []


@pytest.mark.parametrize("before", [PLAIN, LIMITED, MORE, PLAIN._replace(policing=9000, burst=1000), PLAIN._replace(shaping=10**6)])
@pytest.mark.parametrize("after", [PLAIN, LIMITED, PLAIN._replace(shaping=10**6)])
def test_other_limits_in_place(tapped: World, before: object, after: object) -> None:
    """From any to any, the rows stay; no limit leaves no row."""
    for port in (before, after, after):
        assert do(tapped, PutOvsPort(port)) == [0]  # type: ignore[arg-type]
    assert intent(view(tapped).ovs_port("tap0")) == after
    assert shapers(tapped) == (["tap0"] if after.shaping else [])  # type: ignore[attr-defined]


def test_the_port_alone_was_deleted(tapped: World) -> None:
    """By hand: its QoS is left, is told of, and can be deleted by the port's name and owner."""
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    delete_port(tapped, "tap0")
    assert shapers(tapped) == ["tap0"]
    assert list(view(tapped).ovs_shapers()) == [OvsShaper("tap0", "uuid-1")] == list(tapped.host.snapshot().ovs_shapers())
    assert told(tapped, DeleteOvsPort("tap0", "uuid-2")).errno == errno.ENOENT
    assert do(tapped, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert shapers(tapped) == [] and told(tapped, DeleteOvsPort("tap0", "uuid-1")).errno == errno.ENOENT


def test_what_is_left_is_taken_up_again(tapped: World) -> None:
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    delete_port(tapped, "tap0")
    assert do(tapped, PutOvsPort(MORE)) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == MORE
    assert shapers(tapped) == ["tap0"] and list(view(tapped).ovs_shapers()) == []


def test_another_nic_takes_the_name(tapped: World) -> None:
    """What the first one had is not the second's: it is left for its own deletion."""
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    second = PLAIN._replace(external_ids=((OVS_MARK, "uuid-2"),), shaping=10**6)
    assert do(tapped, PutOvsPort(second)) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == second
    assert list(view(tapped).ovs_shapers()) == [OvsShaper("tap0", "uuid-1")]
    assert do(tapped, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == second and shapers(tapped) == ["tap0"]


def test_limits_of_others_stay(tapped: World) -> None:
    """On a port for which we want none."""
    assert do(tapped, PutOvsPort(PLAIN)) == [0]
    if isinstance(tapped, LinuxWorld):
        words = ["set", "Interface", "tap0", "ingress_policing_rate=77", "--", "set", "Port", "tap0", "qos=@q", "--", "--id=@q", "create"]
        tapped.ovs.vsctl(*words, "QoS", "type=linux-htb", "other_config:max-rate=1000000")
    assert do(tapped, PutOvsPort(PLAIN._replace(tag=7))) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == PLAIN._replace(tag=7)
    assert do(tapped, PutOvsPort(LIMITED), PutOvsPort(PLAIN)) == [0, 0]
    if isinstance(tapped, LinuxWorld):
        assert shapers(tapped) == [""], "another's QoS row is there, though our limit took its place on our port"


def limits(world: LinuxWorld) -> tuple[str, str, str]:
    """What the database has: rate and burst of policing, and the QoS row."""
    rate, burst = (world.ovs.vsctl("get", "Interface", "tap0", f"ingress_policing_{name}") for name in ("rate", "burst"))
    return rate, burst, world.ovs.vsctl("get", "Port", "tap0", "qos")


def others(world: LinuxWorld, rate: int = 77, burst: int = 8) -> tuple[str, str, str]:
    """Somebody else limits the port."""
    words = ["set", "Interface", "tap0", f"ingress_policing_rate={rate}", f"ingress_policing_burst={burst}", "--"]
    words += ["set", "Port", "tap0", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb", f"other_config:max-rate={rate}000"]
    world.ovs.vsctl(*words)
    return limits(world)


@pytest.mark.parametrize("values", [(LIMITED,), (LIMITED, MORE), (LIMITED, LIMITED), (PLAIN._replace(policing=77, burst=800), MORE)])
def test_limits_of_others_come_back(tapped: World, values: tuple[OvsPort, ...]) -> None:
    """With the end of ours, which took their place; each limit for itself."""
    assert do(tapped, PutOvsPort(PLAIN)) == [0]
    theirs = others(tapped) if isinstance(tapped, LinuxWorld) else None
    for port in (*values, PLAIN):
        assert do(tapped, PutOvsPort(port)) == [0]
        assert intent(view(tapped).ovs_port("tap0")) == port
    if isinstance(tapped, LinuxWorld):
        assert limits(tapped) == theirs and shapers(tapped) == [""]
        assert tapped.ovs.vsctl("get", "Interface", "tap0", "external_ids") == "{}"


def test_limits_that_others_have_changed_meanwhile(tapped: World) -> None:
    """Whatever they make of our policing is mended, and is no limit of theirs; another QoS is. What they leave for ours to end stays."""
    if not isinstance(tapped, LinuxWorld):
        return
    assert do(tapped, PutOvsPort(PLAIN)) == [0]
    others(tapped)
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    later = others(tapped, 99)
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    assert intent(view(tapped).ovs_port("tap0")) == LIMITED
    tapped.ovs.vsctl("clear", "Port", "tap0", "qos")
    assert do(tapped, PutOvsPort(LIMITED), PutOvsPort(PLAIN)) == [0, 0] and limits(tapped) == ("77", "8", later[2])
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    last = others(tapped, 55)
    assert do(tapped, PutOvsPort(PLAIN)) == [0] and limits(tapped) == last


@pytest.mark.parametrize("damage", ["gone", "no uuid", "no numbers"])
def test_what_cannot_come_back(tapped: World, damage: str) -> None:
    """No limit of anybody's is left then, and nothing is refused."""
    if not isinstance(tapped, LinuxWorld):
        return
    assert do(tapped, PutOvsPort(PLAIN)) == [0]
    qos = others(tapped)[2]
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    (made,) = (row["_uuid"][1] for row in tapped.ovs.rows("QoS", "_uuid", "external_ids") if row["external_ids"][1])
    if damage == "gone":
        tapped.ovs.vsctl("destroy", "QoS", qos)
    elif damage == "no uuid":
        tapped.ovs.vsctl("set", "QoS", made, 'external_ids:netcommon-qos-before="; no uuid"')
    else:
        tapped.ovs.vsctl("set", "Interface", "tap0", 'external_ids:netcommon-policing-before="99999999999 x"')
    assert do(tapped, PutOvsPort(MORE), PutOvsPort(PLAIN)) == [0, 0]
    assert limits(tapped) == (("0", "0", qos) if damage == "no numbers" else ("77", "8", "[]"))


def test_a_qos_of_ours_that_another_port_uses(tapped: World) -> None:
    """Only its own port lets go of it."""
    tapped.tap("tap1")
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    tapped.ovs_port("ovs0", "tap1")
    if isinstance(tapped, LinuxWorld):
        tapped.ovs.vsctl("set", "Port", "tap1", "qos=" + tapped.ovs.vsctl("get", "Port", "tap0", "qos"))
    assert do(tapped, DeleteOvsPort("tap0", "uuid-1")) == [0]
    assert view(tapped).ovs_port("tap0") is None and view(tapped).ovs_port("tap1") is not None
    assert shapers(tapped) == (["tap0"] if isinstance(tapped, LinuxWorld) else [])


def test_the_mark_of_a_limit_is_not_shown(tapped: World) -> None:
    assert do(tapped, PutOvsPort(LIMITED)) == [0]
    found = view(tapped).ovs_port("tap0")
    assert found is not None and (found.external_ids, found.interface_ids) == (MARK, ())
