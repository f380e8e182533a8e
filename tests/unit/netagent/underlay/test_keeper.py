"""The agent's keeper of an underlay, on a simulated node: at the start, after a deletion by hand, and when what is known has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from netagent.loop import Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.reconcile.keyed_pool import Key
from netagent.underlay.keeper import UNDERLAY, Keeper
from netagent.underlay.scripts import ENDPOINTS
from netcommon.host.api.facts import AF_INET6, Address, Link
from netcommon.host.api.host import Answer
from netcommon.host.api.requests import AddAddress, DeleteAddress
from netcommon.lifecycle.context import Clock
from netcommon.settings.model import Settings
from runtime import underlay
from runtime.errors import HostRefused, NetcommonError, TryAgain
from runtime.folder import Folder
from tests.support.node_underlay import OWN, PREFIX, address, endpoint, give, is_rest_unreachable, join, marked, said
from tests.support.registry import NODES
from tests.support.sim import Sim


class Place:
    """A keeper with a clock that a test turns; its work is done in the loop."""

    def __init__(self, sim: Sim) -> None:
        self.sim, self.now = sim, 1000.0
        self.failures: list[Exception] = []
        self.loop = Loop(lambda: self.now, self.failures.append)
        self.metrics = Metrics()
        self.alarms = Alarms(sim.log, self.metrics)
        self.state = SimpleNamespace(
            settings=Settings(),
            paths=sim.paths,
            identity=sim.host.identity(),
            alarms=self.alarms,
            metrics=self.metrics,
            clock=Clock(lambda: self.now),
        )
        self.works = 0
        self.broken = False
        self.told: list[tuple[str, ...]] = []
        self.begin()

    def begin(self) -> None:
        """Let an agent begin."""
        self.keeper = Keeper(cast("Any", self.state), self.loop, self._put, self.sim.log)
        self.keeper.told = lambda: self.told.append(tuple(marked(self.sim.host.view())))

    def _put(self, key: Key, job: Callable[[Any], None], today: bool) -> None:
        assert not today
        if key == Key(ENDPOINTS):
            self.loop.tell(lambda: self._do(job))
            return
        assert key == Key(UNDERLAY)
        self.works += 1
        self.sim.settings = self.state.settings
        worker = SimpleNamespace(node=self.sim.node, log=self.sim.log)
        if self.broken:  # as a worker that cannot open its node
            self.loop.tell(lambda: self.keeper.unworked("the state directory cannot be read"))
        else:
            self.loop.tell(lambda: job(worker))

    def _do(self, job: Callable[[Any], None]) -> None:
        """Do a job as a worker does, and tell the keeper's scripts what has failed."""
        try:
            job(SimpleNamespace(node=self.sim.node, log=self.sim.log))
        except NetcommonError as error:
            self.keeper.scripts.unworked(str(error))

    def passes(self, seconds: float) -> None:
        """Let the time pass, in steps."""
        for _ in range(int(seconds * 10) + 1):
            for _turn in range(4):
                self.loop.turn(0.0)
            self.now += 0.1

    @property
    def there(self) -> list[str]:
        return marked(self.sim.host.view())

    def delete(self, *addresses: str) -> None:
        """Let somebody delete addresses by hand, of which the kernel tells."""
        requests = [DeleteAddress(Address(AF_INET6, each, 128, 1)) for each in addresses]
        assert all(each.ok for each in self.sim.host.execute(requests, stop=True))
        self.keeper.changed()


@pytest.fixture
def place(sim: Sim) -> Iterator[Place]:
    found = Place(sim)
    yield found
    found.keeper.close()
    found.loop.close()
    assert found.failures == []


def test_a_node_without_an_underlay_does_no_work(place: Place) -> None:
    join(place.sim.paths)
    place.keeper.look()
    place.keeper.changed()
    place.passes(5)
    assert place.works == 0 and place.keeper.status() == {} and place.told == []


def test_it_is_there_at_the_start_and_after_a_restart(place: Place) -> None:
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(1)
    assert place.there == sorted([OWN, address(0)]) and is_rest_unreachable(place.sim.host.view())
    assert place.keeper.status() == {"underlay": f"{PREFIX}, 2 of 2 addresses"}
    before = place.sim.picture()
    place.begin()
    place.keeper.look()
    place.passes(1)
    assert place.sim.picture() == before and place.told == [tuple(place.there)] * 2


def test_a_deletion_by_hand_is_put_back(place: Place) -> None:
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(3)
    place.delete(OWN, address(0))
    place.passes(1.5)
    assert place.there == sorted([OWN, address(0)])
    assert any("drift repaired" in line for line in map(str, place.sim.lines))


def test_nobody_is_fought_for_ever(place: Place) -> None:
    """After three times in ten seconds it is left alone, and looked at again when these are over."""
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(3)
    for _ in range(3):
        place.delete(address(0))
        place.passes(1.5)
        assert address(0) in place.there
    place.delete(address(0))
    place.passes(2)
    assert address(0) not in place.there and OWN in place.there
    place.passes(15)
    assert address(0) in place.there


@pytest.mark.parametrize("policy", ["report", "off"])
def test_the_settings_say_what_is_repaired(place: Place, policy: str) -> None:
    place.state.settings = Settings(repair={"node-address": policy})
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(3)
    place.delete(OWN)
    place.passes(3)
    assert place.there == [address(0)]
    said = [line for line in map(str, place.sim.lines) if "the settings say to report it" in line]
    assert len(said) == (policy == "report") and (UNDERLAY in place.alarms.active()) == (policy == "report")
    place.passes(100)
    assert len([line for line in map(str, place.sim.lines) if "the settings say to report it" in line]) == len(said), "once"
    place.sim.host.execute([AddAddress(Address(AF_INET6, OWN, 128, 1))], stop=True)
    place.keeper.changed()
    place.passes(3)
    assert place.alarms.active() == {}


@pytest.mark.parametrize("policy", ["on", "report", "off"])
def test_what_has_failed_when_it_was_first_made_is_made(place: Place, policy: str) -> None:
    """Whatever the settings say of what somebody deletes; and after a pause."""
    place.state.settings = Settings(repair={"node-address": policy, "unreachable-rest": policy})
    give(place.sim.paths, 0)
    with place.sim.failing(0, Answer(105, "No buffer space available"), times=3):
        place.keeper.look()
        place.passes(0.2)
        assert "No buffer space" in place.alarms.active()[UNDERLAY]
        place.passes(5)
    assert place.there == sorted([OWN, address(0)]) and is_rest_unreachable(place.sim.host.view()) and place.alarms.active() == {}


def test_a_storm_of_events_is_a_look_a_second(place: Place) -> None:
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(3)
    before = place.works
    for _ in range(100):
        place.keeper.changed()
        place.passes(0)
    assert place.works - before <= 12


def test_what_is_known_anew_is_made_and_told(place: Place) -> None:
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(1)
    give(place.sim.paths, 1, generation=2)
    place.keeper.look()
    place.passes(1)
    assert place.there == sorted([OWN, address(1)]) and place.told[-1] == tuple(place.there)
    underlay.remove(place.sim.paths)
    place.keeper.look()
    place.passes(1)
    assert place.there == [] and place.keeper.status() == {}
    assert place.sim.picture() == place.sim.before
    before = place.works
    place.keeper.look()
    place.passes(1)
    assert place.works == before


def test_a_device_that_is_not_there_is_one_alarm_until_it_comes(place: Place) -> None:
    place.state.settings = Settings(underlay_device="dummy0")
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(2)
    assert place.alarms.active() == {UNDERLAY: "device dummy0 does not exist: make it, or correct [underlay] device"}
    place.sim.host.add_link(Link(0, "dummy0", "dummy", up=True))
    place.keeper.changed()
    place.passes(2)
    assert place.alarms.active() == {} and len(marked(place.sim.host.view(), "dummy0")) == 2


def test_what_fails_is_tried_again_after_a_pause(place: Place) -> None:
    give(place.sim.paths, 0)
    failing = True

    def refuse(request: object) -> Any:
        return Answer(12, "no memory") if failing and isinstance(request, AddAddress) else None

    place.sim.host.fail = refuse
    place.keeper.look()
    place.passes(5)
    assert "no memory" in place.alarms.active()[UNDERLAY] and 2 <= place.works <= 12
    failing = False
    place.passes(400)
    assert place.alarms.active() == {} and len(place.there) == 2


def test_a_worker_that_cannot_do_it_is_asked_again(place: Place) -> None:
    """No event need tell that it is over."""
    give(place.sim.paths, 0)
    place.broken = True
    place.keeper.look()
    place.passes(2)
    assert place.alarms.active() == {UNDERLAY: "the state directory cannot be read"} and place.there == []
    place.broken = False
    place.passes(35)
    assert place.alarms.active() == {} and len(place.there) == 2


def test_a_record_that_cannot_be_written_is_an_alarm(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made of which nothing would be on record."""
    give(place.sim.paths, 0)

    def refuse(*_given: object) -> None:
        raise HostRefused("cannot write: no space left on device")

    monkeypatch.setattr("runtime.underlay_record.write", refuse)
    place.keeper.look()
    place.passes(1)
    assert place.alarms.active() == {UNDERLAY: "cannot write: no space left on device"} and place.there == []
    assert not Path(place.sim.paths.state, "underlay/1.json").exists()


def noting(place: Place) -> Path:
    """Make a script of the site's that notes what it is told; give where."""
    script, told = Path(place.sim.paths.etc, "endpoint.d", "tell"), Path(place.sim.paths.etc, "told")
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\necho "$1 $2" >> {told}\n')
    script.chmod(0o755)
    return told


def test_what_scripts_were_told_and_cannot_be_kept_is_an_alarm_and_told_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the scripts of all guests once while nothing can be written, and write what they were told later, without an event."""
    told, write = noting(place), Folder.write
    full = True

    def refuse(folder: Folder, name: str, *given: Any, **more: Any) -> None:
        if full and name.startswith("told-"):
            raise HostRefused("cannot write: no space left on device")
        write(folder, name, *given, **more)

    monkeypatch.setattr(Folder, "write", refuse)
    give(place.sim.paths, 0, 1, 2)
    place.keeper.look()
    place.passes(5)
    expected = [f"{address(number)} endpoint-up" for number in range(3)]
    assert told.read_text().splitlines() == expected
    assert place.alarms.active() == {ENDPOINTS: "what scripts of endpoint.d were told is not kept: cannot write: no space left on device"}
    full = False
    place.passes(35)
    assert place.alarms.active() == {} and told.read_text().splitlines() == expected
    place.begin()
    place.keeper.look()
    place.passes(1)
    assert told.read_text().splitlines() == expected, "another agent reads it"


def test_scripts_are_told_after_a_kernel_that_does_not_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told = noting(place)

    def mute(*_given: object) -> Any:
        raise TryAgain("the kernel does not answer")

    monkeypatch.setattr("netcommon.lifecycle.endpoint_scripts.seen", mute)
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(5)
    assert place.alarms.active() == {ENDPOINTS: "the kernel does not answer"} and not told.exists()
    monkeypatch.undo()
    place.passes(35)
    assert place.alarms.active() == {} and told.read_text().splitlines() == [f"{address(0)} endpoint-up"]


def test_a_script_that_cannot_be_begun_is_one_alarm_and_told_when_it_can_be(place: Place) -> None:
    """Say once what the remedy is, try again without a word, ever less often, and tell it within half a minute after it was mended."""
    told = noting(place)
    script = told.parent / "endpoint.d/tell"
    script.chmod(0o777)
    give(place.sim.paths, 0, 1)
    place.keeper.look()
    place.passes(300)
    alarm = place.alarms.active()[ENDPOINTS]
    assert str(script) in alarm and "or remove, what is named" in alarm
    assert len([line for line in map(str, place.sim.lines) if str(script) in line]) == 1
    script.chmod(0o755)
    place.passes(35)
    assert place.alarms.active() == {} and told.read_text().splitlines() == [f"{address(number)} endpoint-up" for number in range(2)]


def test_a_folder_that_nobody_trusts_is_an_alarm_of_the_scripts_alone(place: Place) -> None:
    """Raise an alarm of the scripts alone for a folder that is not trusted: the keeper's own work goes on."""
    told = noting(place)
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(1)
    folder = Path(place.sim.paths.state, "underlay")
    folder.chmod(0o777)
    give(place.sim.paths, 0, 1, generation=2)
    place.keeper.look()
    place.passes(5)
    assert "mode 0777" in place.alarms.active()[ENDPOINTS]
    folder.chmod(0o755)
    place.passes(35)
    assert place.alarms.active() == {} and told.read_text().splitlines() == [f"{address(number)} endpoint-up" for number in range(2)]


def test_the_sites_scripts_are_told_what_comes_and_goes(place: Place) -> None:
    """Also what has gone while no agent was there, and nothing twice."""
    told = noting(place)
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(1)
    place.delete(address(0))
    place.passes(3)
    give(place.sim.paths, 0, 1, generation=2)
    place.keeper.look()
    place.passes(1)
    give(place.sim.paths, 1, generation=3)
    place.begin()
    place.keeper.look()
    place.passes(1)
    assert told.read_text().splitlines() == [f"{address(0)} endpoint-up", f"{address(1)} endpoint-up", f"{address(0)} endpoint-down"]


def told_of(place: Place, *numbers: int) -> Path:
    """Let scripts have been told that endpoints have come; give where they note what they are told from then on."""
    told = noting(place)
    give(place.sim.paths, *numbers)
    place.keeper.look()
    place.passes(1)
    assert told.read_text().splitlines() == [f"{address(number)} endpoint-up" for number in numbers]
    told.write_text("")
    return told


def test_an_agent_that_ends_while_all_goes_leaves_the_rest_to_the_next_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell scripts that endpoints have gone of which only their own file tells still; when all is told, nothing is left, nor looked at."""
    told = told_of(place, 0, 1, 2)
    underlay.remove(place.sim.paths)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(place.keeper.scripts, "tell", lambda: None)  # it has been killed before
        place.keeper.look()
        place.passes(1)
    assert place.there == [] and told.read_text() == ""
    place.begin()
    place.keeper.look()
    place.passes(1)
    assert told.read_text().splitlines() == [f"{address(number)} endpoint-down" for number in range(3)]
    assert not list(Path(place.sim.paths.state, "underlay").iterdir())
    place.keeper.look()
    place.passes(1)
    before = place.works
    place.keeper.look()
    place.passes(1)
    assert place.works == before and place.keeper.status() == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_goes_about_a_look_that_cannot_be_done_is_told(place: Place, when: str) -> None:
    """Tell scripts and the registry that all has gone, though the look before that could not see anything."""
    told = told_of(place, 0, 1)
    if when == "before":
        underlay.remove(place.sim.paths)
    place.broken = True
    place.keeper.look()
    place.passes(2)
    place.broken = False
    underlay.remove(place.sim.paths)
    place.told.clear()
    place.keeper.look()
    place.passes(35)
    assert place.there == [] and place.alarms.active() == {} and place.told == [()]
    assert told.read_text().splitlines() == [f"{address(number)} endpoint-down" for number in range(2)]


def test_what_another_epoch_says_is_told_though_it_counts_as_the_one_before(place: Place) -> None:
    """Tell scripts what a restored registry says with the same generation, of the same addresses."""
    told = told_of(place, 0, 1)
    over = endpoint(0, name="", state="retired")
    underlay.write(place.sim.paths, underlay.underlay_of(NODES[0], "another:1", said(over, endpoint(1))))
    place.keeper.look()
    place.passes(1)
    assert told.read_text().splitlines() == [f"{address(0)} endpoint-down"]


def test_what_is_deleted_while_an_agent_looks_for_the_first_time_is_put_back(place: Place) -> None:
    """Its look has seen the address still, and what the kernel tells comes before that is over."""
    give(place.sim.paths, 0)
    place.keeper.look()
    place.passes(1)
    place.begin()
    look, deleted = place.keeper._run, [address(0)]

    def run(worker: Any) -> None:
        look(worker)
        while deleted:
            place.delete(deleted.pop())

    place.keeper._run = run  # type: ignore[method-assign]
    place.keeper.look()
    place.passes(3)
    assert place.there == sorted([OWN, address(0)])
