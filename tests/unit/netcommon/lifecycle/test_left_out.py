"""Keep no guest from its start by what a registry wants: what the host refuses of it its up leaves out, and says; the rest is in force."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netcommon.host.api.host import Answer
from netcommon.host.api.requests import Request, SetPort
from netcommon.lifecycle.batch import up_all
from netcommon.lifecycle.check import check
from netcommon.lifecycle.push import keep, keep_network
from netcommon.lifecycle.site_scripts import Scripts
from runtime import wanted
from runtime.errors import HostRefused, NetcommonError, NicInvalid, TemplateInvalid
from runtime.networks import network_of
from runtime.nic import Nic
from tests.support.sim import UUIDS, Sim, nic
from tests.unit.netcommon.lifecycle.test_change import to
from tests.unit.netcommon.lifecycle.test_push import BLUE, SAID, asked, pushed

BAD = {"openvswitch": {"flows": "nosuch"}, "bridged": {"isolated": "yes"}}
GOOD = {"rate_in": "8mbit", "spoof_guard": "yes"}


@contextmanager
def kernel_lacks(sim: Sim, what: Callable[[Request], bool]) -> Iterator[None]:
    sim.host.fail = lambda request: Answer(errno.EOPNOTSUPP, "not supported") if what(request) else None
    try:
        yield
    finally:
        sim.host.fail = lambda _request: None


def isolates(request: Request) -> bool:
    return isinstance(request, SetPort) and request.flag == "isolated" and request.value


def options(sim: Sim) -> dict[str, str]:
    return {each.option: each.value for each in sim.record().nic.wanted}


def said(sim: Sim) -> list[str]:
    return [str(line) for line in sim.lines]


def by_up(sim: Sim, one: Nic) -> None:
    sim.up(one)


def by_boot(sim: Sim, one: Nic) -> None:
    ((_nic, result),) = up_all(sim.node, [one], lambda _nic: sim.call())
    if isinstance(result, NetcommonError):
        raise result


@pytest.mark.parametrize("comes", [by_up, by_boot])
@pytest.mark.parametrize("more", [{}, GOOD], ids=["alone", "with others"])
@pytest.mark.parametrize("mode", BAD)
def test_what_the_host_refuses_is_left_out_of_the_up(
    tmp_path: Path, mode: str, more: dict[str, str], comes: Callable[[Sim, Nic], None]
) -> None:
    """Nothing else is; the NIC is as one of which the rest alone is wanted. Its record does not say that it is at that revision."""
    sim, fresh = Sim(str(tmp_path / "a")), Sim(str(tmp_path / "b"))
    for one, wants in ((sim, {**BAD[mode], **more}), (fresh, more)):
        keep_network(one.node, network_of(BLUE, "e:3", SAID))
        keep(one.node, UUIDS[0], asked(7, BLUE, **wants), one.call())
    fresh.up(nic(mode))
    with kernel_lacks(sim, isolates):
        comes(sim, nic(mode))
    assert options(sim) == more and sim.picture() == fresh.picture()
    assert sim.record().nic.revision == "e:0" and fresh.record().nic.revision == "e:7"
    assert sim.record().nic.told == fresh.record().nic.told is not None
    assert check(sim.node, sim.host.view(), sim.record()).good
    ((name, value),) = BAD[mode].items()
    assert sum(f"web1/0 is without {name}={value}, set by the registry" in line for line in said(sim)) == 1
    assert [each.option for each in wanted.read(sim.paths, UUIDS[0], []).registry] == [*BAD[mode], *more], "it is kept"
    sim.down(nic(mode))
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", BAD)
def test_what_was_left_out_is_refused_when_asked_for_and_comes_when_it_can_be(tmp_path: Path, mode: str) -> None:
    """It keeps no other change from the NIC meanwhile."""
    sim = Sim(str(tmp_path))
    wants = {**BAD[mode], **GOOD}
    keep(sim.node, UUIDS[0], asked(7, **wants), sim.call())
    with kernel_lacks(sim, isolates):
        sim.up(nic(mode))
        with pytest.raises((TemplateInvalid, HostRefused)):
            pushed(sim, 7, **wants)
        assert options(sim) == GOOD and sim.record().nic.revision == "e:0"
        to(sim, rate_out="4mbit")
        assert options(sim) == {**GOOD, "rate_out": "4mbit"} and sim.record().nic.revision == "e:0"
        kept = wanted.read(sim.paths, UUIDS[0], [])
        assert (kept.revision, kept.pending) == ("e:7", None) and {each.option for each in kept.registry} == {*wants}
        assert not sim.up(nic(mode)).changed, "a second up does not take from it what it has"
        assert options(sim) == {**GOOD, "rate_out": "4mbit"}
    if mode == "bridged":
        pushed(sim, 7, **wants)
        assert options(sim) == {**wants, "rate_out": "4mbit"} and sim.record().nic.revision == "e:7"
    pushed(sim, 8, **GOOD)
    assert options(sim) == {**GOOD, "rate_out": "4mbit"} and sim.record().nic.revision == "e:8"


def test_a_nic_that_is_up_loses_nothing_where_a_second_up_is_refused(tmp_path: Path) -> None:
    """More is kept of it than it has; the host refuses that."""
    sim = Sim(str(tmp_path))
    keep(sim.node, UUIDS[0], asked(7, **GOOD), sim.call())
    sim.up(nic("bridged"))
    there = wanted.read(sim.paths, UUIDS[0], [])
    more = there._replace(registry=(*there.registry, wanted.Entry("isolated", "yes")), revision="e:8")
    wanted.write(sim.paths, UUIDS[0], more)
    sim.requests()
    was = sim.picture()
    with kernel_lacks(sim, isolates):
        sim.up(nic("bridged"))
    assert options(sim) == GOOD and sim.picture() == was and sim.record().nic.revision == "e:0"


def test_what_cannot_be_by_its_mode_is_said_by_the_record(tmp_path: Path) -> None:
    """It is left out of the up, which is not at the revision then; other changes leave it so, and a push of the same is refused."""
    sim = Sim(str(tmp_path))
    wants = {"firewall": "protected", **GOOD}
    keep(sim.node, UUIDS[0], asked(7, **wants), sim.call())
    sim.up(nic("openvswitch"))
    assert options(sim) == GOOD and sim.record().nic.revision == "e:0"
    to(sim, rate_out="4mbit")
    assert sim.record().nic.revision == "e:0" and wanted.read(sim.paths, UUIDS[0], []).pending is None
    with pytest.raises(NicInvalid):
        pushed(sim, 7, **wants)


def test_what_is_wrong_with_the_host_is_said_as_it_is(tmp_path: Path) -> None:
    """It is no matter of the registry's: the up is refused, and the host is as before."""
    sim = Sim(str(tmp_path))
    keep(sim.node, UUIDS[0], asked(7, **GOOD), sim.call())
    with kernel_lacks(sim, lambda _request: True), pytest.raises(HostRefused, match="not supported"):
        sim.up(nic("bridged"))
    assert sim.records() == [] and sim.picture() == sim.before
    assert not any("set by the registry" in line for line in said(sim))


def test_the_only_address_of_a_routed_nic_is_among_the_rest(tmp_path: Path) -> None:
    """Without it there could be no NIC; the option that the host refuses is the one that goes."""
    sim = Sim(str(tmp_path))
    keep(sim.node, UUIDS[0], asked(7, addresses="10.0.0.9", dhcp="dnsmasq"), sim.call())
    sim.host.files.folders -= {"/var/lib/netcommon/dnsmasq", "/var/lib/netcommon/dnsmasq-options"}
    sim.up(nic("routed", IP=""))
    assert options(sim) == {"addresses": "10.0.0.9"} and sim.record().nic.revision == "e:0"


def test_what_a_script_of_the_sites_refuses_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take long, and must not be run again for what it has refused."""
    sim, ran = Sim(str(tmp_path)), list[int]()
    keep(sim.node, UUIDS[0], asked(7, **GOOD), sim.call())

    def fails(scripts: Scripts) -> None:
        scripts.begun = True
        ran.append(1)
        raise HostRefused("custom script says no")

    monkeypatch.setattr(Scripts, "up", fails)
    with pytest.raises(HostRefused, match="says no"):
        sim.up(nic("bridged"))
    assert ran == [1] and sim.records() == [] and sim.picture() == sim.before


def test_what_was_set_on_this_node_is_not_left_out(tmp_path: Path) -> None:
    """Whoever has set it is here, and is told."""
    sim = Sim(str(tmp_path))
    keep(sim.node, UUIDS[0], asked(7, **GOOD), sim.call())
    kept = wanted.read(sim.paths, UUIDS[0], [])
    wanted.write(sim.paths, UUIDS[0], kept._replace(local=(wanted.Entry("isolated", "yes"),)))
    with kernel_lacks(sim, isolates), pytest.raises(HostRefused):
        sim.up(nic("bridged"))
    assert not any("set by the registry" in line for line in said(sim))
