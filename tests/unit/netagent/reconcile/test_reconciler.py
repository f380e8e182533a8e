"""What one record needs, on a simulated node: undone, mended, reported, or left to the hook that is at work on it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netagent.reconcile.reconciler import BUSY, FAILURE, MENDED, NOTHING, OWING, REPORTED, UNDONE, Reconciler
from netagent.reconcile.repair_policy import Repairs
from netcommon.host.api.facts import AF_INET, Rule
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import DeleteFlows, Request, SetLink
from netcommon.host.simulated.view import MemoryView
from netcommon.lifecycle import execute
from netcommon.lifecycle.check import check
from netcommon.operations.base import Operation, intent
from netcommon.operations.flows import cookie_of
from netcommon.settings.model import Settings
from runtime.errors import HostRefused
from runtime.locks import UUID, number
from runtime.record import APPLYING, CLOSING, REVERTING, UP
from tests.support.sim import UUIDS, Sim, nic


class Count:
    """Metrics, as a test reads them."""

    def __init__(self) -> None:
        self.counted: Counter[tuple[str, ...]] = Counter()

    def count(self, name: str, /, value: float = 1, **labels: object) -> None:
        self.counted[name, *map(str, labels.values())] += int(value)

    def observe(self, name: str, /, seconds: float, **labels: object) -> None:
        self.counted[name] += 1

    def gauge(self, name: str, /, value: float, **labels: object) -> None:
        self.counted[name] = int(value)


class Place:
    """A NIC that is up, and a reconciler."""

    def __init__(self, root: str, mode: str = "routed, table") -> None:
        self.sim = Sim(root)
        self.before = self.sim.picture()
        self.now, self.metrics = 0.0, Count()
        self.repairs = Repairs(lambda: self.now, Settings(repair={"link": "report", "sysctl": "off"}))
        self.sim.up(nic(mode))
        self.up = self.sim.picture()

    def look(self, scripts: bool = True) -> str:
        self.result = Reconciler(self.sim.node, self.repairs, self.metrics, self.sim.log).look(UUIDS[0], scripts)
        return self.result.did

    def state(self, state: str, **changes: object) -> None:
        self.sim.node.store.write(self.sim.record()._replace(state=state, **changes))  # type: ignore[arg-type]

    def drop_rule(self) -> None:
        self.sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap0", 100))

    @contextmanager
    def hook(self) -> Iterator[None]:
        """A hook holds the NIC's lock; /proc says so, since the simulated node has one of its own."""
        path = Path(self.sim.node.store.folder("locks").path) / f"{UUID}-{number(UUIDS[0]):02d}"
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        locks = Path(self.sim.paths.proc) / "locks"
        locks.parent.mkdir(parents=True, exist_ok=True)
        locks.write_text(Path("/proc/locks").read_text())
        try:
            yield
        finally:
            os.close(descriptor)
            locks.unlink()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path))


def test_nothing_to_do(place: Place) -> None:
    assert place.look() == NOTHING and place.sim.picture() == place.up
    assert Reconciler(place.sim.node, place.repairs, place.metrics, place.sim.log).look(UUIDS[3]).did == NOTHING


@pytest.mark.parametrize("state", [APPLYING, UP, CLOSING, REVERTING])
def test_a_device_that_is_gone(place: Place, state: str) -> None:
    place.state(state)
    place.sim.host.remove_link("tap0")
    assert place.look() == UNDONE and place.sim.records() == []
    assert place.sim.picture()["rules"] == place.before["rules"]


@pytest.mark.parametrize("state", [APPLYING, REVERTING])
def test_a_hook_that_died(place: Place, state: str) -> None:
    place.state(state)
    assert place.look() == UNDONE and place.sim.records() == [] and place.sim.picture() == place.before


@pytest.mark.parametrize("state", [APPLYING, UP, REVERTING])
def test_a_hook_at_work(place: Place, state: str) -> None:
    """Whatever it looks like meanwhile."""
    place.state(state)
    place.drop_rule()
    now = place.sim.picture()
    with place.hook():
        assert place.look() == BUSY
    assert place.sim.picture() == now and place.sim.record().state == state
    assert place.look() == (MENDED if state == UP else UNDONE)


def test_a_closing_one_waits_for_its_device(place: Place) -> None:
    """Until then its guest is there, and what is taken from it comes back."""
    place.state(CLOSING)
    assert place.look() == NOTHING and place.sim.record().state == CLOSING
    place.drop_rule()
    assert place.look() == MENDED and place.sim.record().state == CLOSING and place.sim.picture()["rules"] == place.up["rules"]


def test_scripts_that_are_owed_are_another_job(place: Place) -> None:
    place.state(UP, scripts=True)
    place.sim.host.remove_link("tap0")
    assert place.look(scripts=False) == OWING and place.sim.records() != []
    assert place.look(scripts=True) == UNDONE and place.sim.records() == []


def test_drift_is_mended(place: Place) -> None:
    place.drop_rule()
    assert place.look() == MENDED and place.sim.picture()["rules"] == place.up["rules"]
    assert place.metrics.counted["netcommon_drift_total", "rule"] == 1
    assert place.metrics.counted["netcommon_repairs_total", "rule", "repaired"] == 1


def test_a_kind_that_is_only_reported(place: Place) -> None:
    """And one that is not even that, while another is repaired at the same time."""
    place.sim.host.kernel.settings.write("net/ipv4/conf/tap0/proxy_arp", "0")
    assert place.look() == REPORTED and place.result.again == 0
    assert not any("not repaired" in line for line in place.sim.lines)

    place.sim.host.kernel.set_link(SetLink(place.sim.index("tap0"), alias="nobody"))
    place.drop_rule()
    assert place.look() == MENDED
    assert any("the settings say to report it: ip link set dev tap0 alias" in line for line in place.sim.lines)
    assert place.sim.picture()["rules"] == place.up["rules"] and place.sim.picture()["links"] != place.up["links"]


def test_somebody_who_undoes_it(place: Place) -> None:
    did = []
    for turn in range(5):
        if turn < 4:  # the last time nobody has put it back
            place.drop_rule()
        did.append(place.look())
        place.now += 1
    assert did == [MENDED, MENDED, MENDED, REPORTED, REPORTED]
    assert place.result.again > place.now
    place.now = place.result.again
    assert place.look() == MENDED


def test_what_cannot_be_mended_is_tried_less_and_less(place: Place) -> None:
    place.drop_rule()
    pauses = []
    with place.sim.failing(0, Answer(errno.EPERM, "not permitted")):
        for _ in range(3):
            assert place.look() == FAILURE
            pauses.append(place.result.again - place.now)
            place.now += 20
        place.now -= 20
        assert place.look() == REPORTED and place.result.again > place.now, "it is not tried before that"
    assert pauses == sorted(set(pauses))
    assert sum("not repaired" in line for line in place.sim.lines) == 1, "and the log says it once"
    place.now += 100
    assert place.look() == MENDED and place.look() == NOTHING


def together(place: Place) -> tuple[Reconciler, list[str]]:
    """A second NIC, and what looks after both on one picture."""
    place.sim.tap("tap1")
    place.sim.up(nic("routed, table", INTERFACE_UUID=UUIDS[1], INTERFACE="tap1", INTERFACE_INDEX="1", IP="10.0.0.6"))
    return Reconciler(place.sim.node, place.repairs, place.metrics, place.sim.log), UUIDS[:2]


def test_two_that_are_mended_together(place: Place) -> None:
    reconciler, keys = together(place)
    up = place.sim.picture()
    place.drop_rule()
    place.sim.host.kernel.delete_rule(Rule(AF_INET, 500, "tap1", 100))
    results = reconciler.look_together(keys)
    assert [results[key].did for key in keys] == [MENDED, MENDED] and place.sim.picture() == up
    assert place.metrics.counted["netcommon_drift_total", "rule"] == 2
    assert place.metrics.counted["netcommon_repairs_total", "rule", "repaired"] == 2


def test_what_is_mended_together_keeps_the_pause_of_what_failed(place: Place) -> None:
    reconciler, keys = together(place)
    place.drop_rule()
    with place.sim.failing(0, Answer(errno.EPERM, "not permitted")):
        assert place.look() == FAILURE
    pause = place.result.again
    tap, kernel = place.sim.index("tap0"), place.sim.host.kernel
    kernel.delete_route(next(route for route in kernel.routes if route.index == tap))
    assert reconciler.look_together(keys)[UUIDS[0]] == (MENDED, pause)
    assert place.sim.picture()["routes"] and place.look() == REPORTED


def test_what_is_only_reported_together_is_told_of_and_counted_once(place: Place) -> None:
    reconciler, keys = together(place)
    place.sim.host.kernel.set_link(SetLink(place.sim.index("tap0"), alias="nobody"))
    assert reconciler.look_together(keys)[UUIDS[0]].did == REPORTED
    assert sum("the settings say to report it" in line for line in place.sim.lines) == 1
    assert place.metrics.counted["netcommon_drift_total", "link"] == 1


def test_what_cannot_be_mended_together_is_left_to_a_look_of_its_own(place: Place) -> None:
    reconciler, keys = together(place)
    place.state(CLOSING)
    place.drop_rule()
    assert UUIDS[0] not in reconciler.look_together(keys)
    assert place.look() == MENDED and place.metrics.counted["netcommon_drift_total", "rule"] == 1


def test_a_device_that_is_renamed_while_it_is_mended(place: Place) -> None:
    """Try what failed under the name that it had then again at once, under the one that it has now."""
    place.sim.host.rename_link("tap0", "other")

    def renamed(request: Request) -> Answer | None:
        place.sim.host.fail = lambda _request: None
        place.sim.host.rename_link("other", "tap0")
        return Answer(errno.ENODEV, "No such device")

    place.sim.host.fail = renamed
    assert place.look() == BUSY and place.result.again <= place.sim.node.clock.now()
    assert not any("not repaired" in line for line in place.sim.lines)
    assert place.look() == MENDED and place.sim.picture() == place.up
    place.sim.host.rename_link("tap0", "other")
    with place.sim.failing(0, Answer(errno.ENODEV, "No such device")):
        assert place.look() == FAILURE and place.result.again > place.now, "it was renamed before, so it is no news"


def test_what_waits_keeps_nothing_else_from_being_mended(place: Place) -> None:
    """And attempts that failed are no fight with anybody: when it works at last, it may be undone as often as ever."""
    place.drop_rule()
    with place.sim.failing(0, Answer(errno.EPERM, "not permitted")):
        for _ in range(10):
            assert place.look() == FAILURE
            place.now = place.result.again
        place.look()
    tap, kernel = place.sim.index("tap0"), place.sim.host.kernel
    kernel.delete_route(next(route for route in kernel.routes if route.index == tap))
    assert place.look() == MENDED and place.sim.picture()["routes"] == place.up["routes"]
    assert place.sim.picture()["rules"] != place.up["rules"], "that waits still"
    place.repairs.came(UUIDS[0])
    assert place.look() == MENDED and place.sim.picture()["rules"] == place.up["rules"]
    place.drop_rule()
    assert place.look() == MENDED


def test_what_cannot_be_looked_at_keeps_nothing_else_from_being_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the file of a DHCP server whose folder others can write to by now: it is no reason to leave a guest without its guard."""
    place = Place(str(tmp_path), "bridged, nfdhcpd")

    def refused(*_given: object) -> object:
        raise HostRefused("'/var/lib/nfdhcpd' has mode 0775: nobody but root may be able to write to it")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryView, "file", refused)
        place.sim.host.nftables.flush()
        assert place.sim.picture() != place.up
        assert place.look() == FAILURE and place.sim.picture() == place.up
        assert sum("not repaired: '/var/lib/nfdhcpd' has mode 0775" in line for line in place.sim.lines) == 1, place.sim.lines
        assert place.metrics.counted["netcommon_repairs_total", "file", "failed"] == 1
        place.sim.host.nftables.flush()
        assert place.look() == MENDED and place.sim.picture() == place.up, "while the file waits"
        with pytest.raises(HostRefused, match="0775"):  # netcommon check: that is not known, so neither drift nor good
            check(place.sim.node, place.sim.host.view(), place.sim.record())
    place.now = place.result.again
    assert place.look() == NOTHING


def test_of_many_that_are_mended_together_one_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(tmp_path), "bridged, nfdhcpd")
    reconciler, keys = together(place)
    up = place.sim.picture()

    def refused(*_given: object) -> object:
        raise HostRefused("'/var/lib/nfdhcpd' has mode 0775: nobody but root may be able to write to it")

    monkeypatch.setattr(MemoryView, "file", refused)
    place.sim.host.nftables.flush()
    assert {key: result.did for key, result in reconciler.look_together(keys).items()} == {UUIDS[1]: MENDED}
    assert place.look() == FAILURE and place.sim.picture() == up, "that one is looked at by itself"
    assert reconciler.examine(place.sim.record(), place.sim.host.snapshot(), {})[0], "and it stays to be looked at"


def test_a_tap_stays_down_while_something_of_its_nic_waits(tmp_path: Path) -> None:
    """It would come up without its flows, or without its port."""
    place = Place(str(tmp_path), "openvswitch, guarded")
    tap, kernel = place.sim.index("tap0"), place.sim.host.kernel
    cookie = cookie_of(UUIDS[0], "tap0")
    place.sim.host.execute([DeleteFlows("ovs0", cookie)], stop=False)
    kernel.set_link(SetLink(tap, up=False))
    with place.sim.failing(0, Answer(errno.EAGAIN, "not now")):
        assert place.look() == BUSY
    kernel.set_link(SetLink(tap, up=False))
    assert place.look() == REPORTED and place.result.again > place.now
    assert not kernel.links[tap].up
    place.repairs.came(UUIDS[0])
    assert place.look() == MENDED and place.sim.picture() == place.up


def test_what_cannot_be_undone_stays_on_record(place: Place) -> None:
    place.sim.host.remove_link("tap0")
    with place.sim.failing(0, Answer(errno.EPERM, "not permitted")):
        assert place.look() == FAILURE and place.sim.record().state == REVERTING
    assert place.metrics.counted["netcommon_device_gone_total", "failed"] == 1
    assert place.look() == UNDONE and place.sim.records() == []


def test_examining_by_a_snapshot(place: Place) -> None:
    """Says the same as a look would, and changes nothing."""
    reconciler = Reconciler(place.sim.node, place.repairs, place.metrics, place.sim.log)

    def wants() -> bool:
        known: dict[tuple[str, Operation], bool] = {}
        return reconciler.examine(place.sim.record(), place.sim.host.snapshot(), known)[0]

    assert not wants()
    place.drop_rule()
    now = place.sim.picture()
    assert wants() and place.sim.picture() == now
    place.look()
    for state in (APPLYING, REVERTING):
        place.state(state)
        assert wants()
    place.state(CLOSING)
    assert not wants()
    place.sim.host.remove_link("tap0")
    assert wants()


def test_another_nodes_record(place: Place) -> None:
    record = place.sim.record()._replace(netns=99)
    reconciler = Reconciler(place.sim.node, place.repairs, place.metrics, place.sim.log)
    place.sim.host.remove_link("tap0")
    assert not reconciler.ours(record) and reconciler.reconcile(record, place.sim.host.view()).did == NOTHING


CONFINED = {"bridged, access": "bridge-vlans", "bridged, port": "port-flag", "bridged": "guard", "openvswitch": "flows"}


@pytest.mark.parametrize("mode", sorted(CONFINED))
def test_a_fight_over_what_confines_a_guest_keeps_it_out(tmp_path: Path, mode: str) -> None:
    """Keep the tap out of its bridge as long as that is left alone which somebody undoes, and which would have to be there."""
    place = Place(str(tmp_path), mode)
    place.repairs = Repairs(lambda: place.now, Settings())
    kernel, switch = place.sim.host.kernel, place.sim.host.switch
    index = place.sim.index("tap0")
    (one, *_rest) = [one for one in execute.decode(place.sim.record())[0] if CONFINED[mode] == one.KIND and one.confines()]
    for _ in range(3):
        place.repairs.held(UUIDS[0], [f"{place.sim.record().ifindex} {intent(one)!r}"])
    view = place.sim.host.view()
    if mode == "openvswitch":
        place.sim.host.openflow.all.clear()
        switch.remove("tap0")
    else:
        assert all(answer.ok for answer in place.sim.host.execute(list(one.revert(view)), stop=True))
        kernel.links[index] = kernel.links[index]._replace(master=0)
    place.look()
    assert kernel.links[index].master == 0 and not any(port.name == "tap0" for port in switch.ports())
    place.now += 11  # the window is over
    assert place.look() == MENDED and place.sim.picture() == place.up
