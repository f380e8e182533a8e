"""Hold what is wanted against what lies on disk: what is not there is said, tried again, and done when it can be."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from netagent.sync import held, inbox, wishes
from netagent.sync.became import Did
from netagent.sync.driver import Sync
from netagent.sync.jobs import NEVER
from netagent.sync.messages import Answered, Apply, Close, Drop, Ended, Failure, Hello, Keep, Line, Marked, SetNetwork, Wanted, Watch
from netagent.sync.reading import Revision
from netcommon.host.api.host import Answer
from netcommon.lifecycle import up
from netcommon.lifecycle.context import Node
from netcommon.log import Log
from netregistry.stores import files
from netregistry.stores.sqlite import SqliteStore
from runtime import networks, wanted
from runtime.errors import FileRefused
from runtime.nic import Nic
from runtime.store import Store
from tests.support.registry import NODES
from tests.support.service import Served, served
from tests.support.sim import UUIDS, Sim, nic
from tests.support.sync_agent import Agent, item_revision, reports, shown
from tests.unit.netagent.sync.test_machine import Turned, leave, options
from tests.unit.netagent.sync.test_machine import nic as told

CLUSTER = "gnt.example.com"
HOURLY = 3600.0


@pytest.fixture
def blue(service: Served) -> str:
    """Give the UUID of a network; the node is one of its cluster, and the first NIC is wanted in it, by an operator."""
    operator, there = service.client(), nic("bridged")
    operator.change("PATCH", f"nodes/{NODES[0]}", {"cluster": CLUSTER})
    said = {"name": "blue", "subnet": "192.0.2.0/24", "resolvers": ["192.0.2.53"], "gateway": "192.0.2.1"}
    uuid = str(operator.change("POST", "networks", said).body["uuid"])
    body = {"instance": there.instance, "index": 0, "mac": there.mac, "cluster": CLUSTER, "network": uuid, "addresses": ["192.0.2.77"]}
    operator.change("POST", "nics", {"uuid": UUIDS[0], **body, "options": [{"name": "isolated", "value": "yes"}]})
    return uuid


def on_disk(sim: Sim, uuid: str = UUIDS[0]) -> tuple[str, str, dict[str, str]]:
    found = wanted.read(sim.paths, uuid, [], readonly=True)
    return found.revision, found.network, {each.option: each.value for each in found.registry}


def in_force(sim: Sim) -> tuple[dict[str, str], tuple[str, ...] | None]:
    """Give the options of the NIC that is up, and the resolvers that its guest is told."""
    record = sim.record(UUIDS[0])
    return {each.option: each.value for each in record.nic.wanted}, None if record.nic.told is None else record.nic.told.resolvers


ALL = {"isolated": "yes", "addresses": "192.0.2.77"}


def comes(agent: Agent, sim: Sim, sync: Sync) -> None:
    sim.up(nic("bridged"))
    sync.marked(UUIDS[0])
    agent.until(lambda: in_force(sim) == (ALL, ("192.0.2.53",)), "it is as it is wanted")
    agent.until(lambda: sync.machine.idle, "nothing is left")


def stops(agent: Agent, sim: Sim, sync: Sync) -> None:
    sim.down(nic("bridged"))
    sync.marked(UUIDS[0])
    agent.until(lambda: reports(agent.service)[UUIDS[0]]["state"] == "stopped" and sync.machine.idle, "it is said to be stopped")


@contextmanager
def shut(folder: str) -> Iterator[None]:
    """Let nothing be written, nor read, below a folder, as where others could have written there."""
    os.chmod(folder, 0o777)
    try:
        yield
    finally:
        os.chmod(folder, 0o755)


def no_room(*_anything: Any) -> None:
    raise FileRefused("cannot write: No space left on device")


def ready(sync: Sync) -> Revision:
    found = sync.machine.inbox.ready
    assert found is not None
    return found


def told_on_disk(sim: Sim, network: str) -> tuple[str, ...]:
    found = networks.read(sim.paths, network, [], readonly=True)
    return found.resolvers if found is not None else ()


def set_options(agent: Agent, value: str, uuid: str = UUIDS[0]) -> None:
    agent.service.client().change("PATCH", f"nics/{uuid}", {"options": [{"name": "isolated", "value": value}]})


@pytest.fixture
def often(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Give the agent that tries again every half a second what the disk has not taken, and what was refused every hour."""
    monkeypatch.setattr(wishes, "AGAIN", 0.5)
    agent.rules = agent.rules._replace(every=HOURLY)
    return agent


# -- NICs elsewhere


def test_a_guest_comes_with_all_that_an_operator_has_said_while_the_registry_is_away(agent: Agent, sim: Sim, blue: str) -> None:
    with agent.running() as sync:
        agent.until(lambda: on_disk(sim)[0] and sync.machine.idle, "it is kept")
        revision = item_revision(agent.service)
    assert on_disk(sim) == (revision, blue, ALL)
    sim.up(nic("bridged"))
    assert in_force(sim) == (ALL, ("192.0.2.53",)) and sim.record(UUIDS[0]).nic.revision == revision


def test_a_guest_that_comes_back_while_the_registry_is_away_is_told_what_its_network_says(agent: Agent, sim: Sim, blue: str) -> None:
    """The node has none of the network's NICs meanwhile; what the network says changes before the registry goes."""
    client = agent.service.join(1, CLUSTER)
    with agent.running() as sync:
        comes(agent, sim, sync)
        stops(agent, sim, sync)
        client.change("POST", f"nodes/{NODES[1]}/heartbeat", {"incarnation": "00000000-0000-4000-8000-0000000000aa"})
        body = {"nics": [{"nic": UUIDS[0], "state": "running", "tap": "tap0", "since": 1.0}], "removed": []}
        client.change("POST", f"nodes/{NODES[1]}/reports", {"after": client.get(f"nodes/{NODES[1]}").body["reports"], **body})
        agent.until(lambda: UUIDS[0] not in reports(agent.service) and sync.machine.idle, "it runs elsewhere")
        agent.until(lambda: UUIDS[0] not in sync.machine.inbox.nics, "it is none of this node's")
        agent.service.client().change("PATCH", f"networks/{blue}", {"resolvers": ["192.0.2.99"]})
        agent.until(lambda: told_on_disk(sim, blue) == ("192.0.2.99",) and sync.machine.idle, "it is kept")
    sim.up(nic("bridged"))
    assert in_force(sim) == (ALL, ("192.0.2.99",))


def test_what_a_cluster_has_too_much_of_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks in which no NIC is the node's; its own are, whatever else there is."""
    monkeypatch.setattr(inbox, "MOST_NETWORKS", 2)
    turned = Turned()
    networks = [f"{number:08x}-3333-4333-8333-333333333333" for number in range(5)]
    lines = [{"event": "enter", "what": "network", "uuid": each, "value": {"uuid": each}, "revision": "e:5"} for each in networks]
    turned.greeted()
    turned.take(Watch)
    turned.told(*lines, told(0, network=networks[4]))
    assert list(turned.machine.inbox.networks) == [networks[0], networks[1], networks[4]]
    asked = [each.key[1] if isinstance(each, SetNetwork) else "nic" for each in turned.asked if isinstance(each, SetNetwork | Apply)]
    assert asked[:1] == [networks[4]], "a NIC waits for its own network, and for no other"
    turned.done()
    turned.told({"event": "leave", "what": "network", "uuid": networks[0], "revision": "e:11"}, ready="e:11")
    assert [*turned.machine.inbox.networks] == [networks[1], networks[4]]


def test_a_running_guest_of_which_the_registry_has_no_report_loses_nothing(agent: Agent, sim: Sim, blue: str) -> None:
    """As after a fence. Until it is reported again it is told as one that is elsewhere; it runs here."""
    with agent.running() as sync:
        comes(agent, sim, sync)
    agent.forgotten(UUIDS[0])
    sim.requests()
    with agent.running() as sync:
        agent.until(lambda: UUIDS[0] in reports(agent.service) and sync.machine.idle, "it is reported again")
        assert in_force(sim) == (ALL, ("192.0.2.53",)) and on_disk(sim)[1:] == (blue, ALL)
    assert sim.requests() == [], "nothing was done on the host"


def test_what_an_older_service_says_of_a_nic_elsewhere_is_not_taken_for_all_of_it(
    agent: Agent, sim: Sim, blue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says the options alone. So the guest gets the rest as soon as the NIC is this node's."""
    monkeypatch.setattr("netregistry.stream._beside", lambda _nic: None)
    with agent.running() as sync:
        agent.until(lambda: on_disk(sim)[0] and sync.machine.idle, "it is kept")
        assert on_disk(sim)[1:] == ("", {"isolated": "yes"}) and on_disk(sim)[0] != item_revision(agent.service)
        comes(agent, sim, sync)
        assert on_disk(sim) == (item_revision(agent.service), blue, ALL)
        stops(agent, sim, sync)


def test_a_line_about_a_nic_elsewhere_touches_none_that_runs_here(agent: Agent, sim: Sim) -> None:
    """The registry does not know it yet. Nor does such a line run backwards: what is kept as of a later revision stays."""
    os.makedirs(sim.paths.ganeti_run, exist_ok=True)
    sim.up(nic("bridged"))
    before = sim.picture()
    with agent.running() as sync:
        agent.until(lambda: sync.machine.ownership.foreign and sync.machine.idle, "it is here")

        def said(revision: int, value: str, uuid: str = UUIDS[0], event: str = "enter") -> None:
            options = [{"name": "isolated", "value": value}]
            line = {"event": event, "what": "options", "uuid": uuid, "value": options, "beside": {}, "revision": f"first:{revision}"}
            sync._heard(Line(line, 100), sync._session.stream)
            agent.until(lambda: not sync.machine.jobs, "it is done")

        at = sync.machine.inbox.ready
        assert at is not None
        said(at.number, "yes")
        assert in_force(sim)[0] == {} and on_disk(sim)[0] == "" and sim.picture() == before
        said(2, "yes", UUIDS[1])
        said(1, "no", UUIDS[1])
        assert on_disk(sim, UUIDS[1]) == ("first:2", "", {"isolated": "yes"})
        sim.down(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: on_disk(sim)[2] == {"isolated": "yes"}, "for its next up it is there when it has stopped")
        said(at.number, "no", UUIDS[1], "change")
        agent.until(lambda: "registry-lies" in agent.alarms.active(), "a change as of what was told before is a lie")


def test_an_option_of_a_newer_version_is_kept_for_it(agent: Agent, sim: Sim, service: Served) -> None:
    """A guest that comes to this version has the other options, and is refused the new one; none waits for the other."""
    with agent.running() as sync:
        agent.until(lambda: sync.machine.idle, "it is in step")
        at = sync.machine.inbox.ready
        assert at is not None
        said = [{"name": "of_tomorrow", "value": "1"}, {"name": "isolated", "value": "yes"}]
        line = {"event": "enter", "what": "options", "uuid": UUIDS[0], "value": said, "beside": {}, "revision": str(at)}
        sync._heard(Line(line, 100), sync._session.stream)
        agent.until(lambda: on_disk(sim)[2] == {"of_tomorrow": "1", "isolated": "yes"}, "both are kept")
    assert agent.alarms.active() == {}
    sim.up(nic("bridged"))
    assert in_force(sim)[0] == {"isolated": "yes"}


# -- what the disk does not take


def test_a_network_that_could_not_be_written_is_when_it_can_be(often: Agent, sim: Sim, blue: str) -> None:
    with often.running() as sync:
        comes(often, sim, sync)
        with shut(f"{sim.paths.wanted}/networks"):
            often.service.client().change("PATCH", f"networks/{blue}", {"resolvers": ["192.0.2.99"]})
            often.until(lambda: blue in often.alarms.active().get("registry-refused", ""), "there is an alarm")
        often.until(lambda: in_force(sim)[1] == ("192.0.2.99",), "the guest is told")
        often.until(lambda: often.alarms.active() == {}, "the alarm is over")


@pytest.mark.parametrize("of", ["wanted", "record"])
def test_what_the_disk_has_not_taken_of_a_nic_that_is_up_is_in_force_a_minute_later(
    often: Agent, sim: Sim, blue: str, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Nobody waits for the hour until what the host refuses is tried again; nor does a NIC that stops meanwhile."""
    with often.running() as sync:
        comes(often, sim, sync)
        for value in ("no", "yes"):
            with monkeypatch.context() as full:
                full.setattr(*((wanted, "write", no_room) if of == "wanted" else (Store, "write", no_room)))
                set_options(often, value)
                often.until(lambda: UUIDS[0] in often.alarms.active().get("registry-refused", ""), "there is an alarm")
                often.passes(1.0)
                assert in_force(sim)[0]["isolated"] != value and UUIDS[0] in often.alarms.active().get("registry-refused", "")
                if value == "yes" and of == "wanted":
                    sim.down(nic("bridged"))
                    sync.marked(UUIDS[0])
            often.until(lambda value=value: on_disk(sim)[2]["isolated"] == value, "it is kept")  # type: ignore[misc]
            often.until(lambda: often.alarms.active() == {} and sync.machine.idle, "the alarm is over")
            if sim.records():
                assert in_force(sim)[0]["isolated"] == value


def test_what_could_not_be_written_of_a_nic_elsewhere_is_when_it_can_be(often: Agent, sim: Sim, blue: str) -> None:
    with often.running() as sync:
        often.until(lambda: on_disk(sim)[0] and sync.machine.idle, "it is kept")
        with shut(sim.paths.wanted):
            set_options(often, "no")
            often.until(lambda: UUIDS[0] in often.alarms.active().get("registry-refused", ""), "there is an alarm")
        often.until(lambda: on_disk(sim)[2]["isolated"] == "no", "it is kept")
        often.until(lambda: often.alarms.active() == {}, "the alarm is over")


@pytest.mark.parametrize("what", ["network", "nic"])
def test_a_restart_does_not_hide_what_could_not_be_written(agent: Agent, sim: Sim, blue: str, what: str) -> None:
    """Neither of a network, which is known here, nor of a NIC elsewhere, which the stream alone can tell again."""
    agent.rules = agent.rules._replace(every=HOURLY)
    with agent.running() as sync:
        if what == "network":
            comes(agent, sim, sync)
        agent.until(lambda: on_disk(sim)[0] and sync.machine.idle, "it is kept")
    folder = f"{sim.paths.wanted}/networks" if what == "network" else sim.paths.wanted
    with shut(folder), agent.running() as sync:
        agent.until(lambda: sync.machine.inbox.complete, "it is in step")
        if what == "network":
            agent.service.client().change("PATCH", f"networks/{blue}", {"resolvers": ["192.0.2.99"]})
        else:
            set_options(agent, "no")
        agent.until(lambda: "registry-refused" in agent.alarms.active(), "it could not be written")
    with agent.running() as sync:
        if what == "network":
            agent.until(lambda: in_force(sim)[1] == ("192.0.2.99",), "the guest is told")
        else:
            agent.until(lambda: on_disk(sim)[2]["isolated"] == "no", "it is kept")


# -- what is lost on disk


def damaged(path: Path) -> None:
    path.write_bytes(b"\0" * 300)


@pytest.mark.parametrize("lose", [damaged, Path.unlink])
@pytest.mark.parametrize("up", [True, False])
def test_what_is_lost_on_disk_is_written_again(agent: Agent, sim: Sim, blue: str, lose: Callable[[Path], Any], up: bool) -> None:
    """Within the hour, and at the agent's next start."""
    with agent.running() as sync:
        comes(agent, sim, sync)
        if not up:
            stops(agent, sim, sync)
        revision = item_revision(agent.service)
        for _twice in range(2):
            lose(Path(sim.paths.wanted, f"{UUIDS[0]}.json"))
            lose(Path(sim.paths.wanted, "networks", f"{blue}.json"))
            agent.until(lambda: on_disk(sim) == (revision, blue, ALL), "the NIC's are there again")
            agent.until(lambda: networks.uuids(sim.paths) == [blue] and resolvers(sim, blue), "the network's too")
    lose(Path(sim.paths.wanted, f"{UUIDS[0]}.json"))
    agent.rules = agent.rules._replace(every=HOURLY)
    with agent.running() as sync:
        agent.until(lambda: on_disk(sim) == (revision, blue, ALL), "the NIC's are there again")
    assert agent.alarms.active() == {}


def resolvers(sim: Sim, uuid: str) -> tuple[str, ...]:
    found = networks.read(sim.paths, uuid, [], readonly=True)
    return () if found is None else found.resolvers


def test_what_its_network_says_while_a_nic_comes_up_reaches_it(agent: Agent, sim: Sim, blue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook has read what the network said before; when that changes, no NIC is up in it yet."""
    with agent.running() as sync:
        comes(agent, sim, sync)
        stops(agent, sim, sync)
        with_kept = up.with_kept

        def overtaken(node: Node, one: Nic, log: Log) -> Nic:
            found = with_kept(node, one, log)
            agent.service.client().change("PATCH", f"networks/{blue}", {"resolvers": ["192.0.2.66"]})
            agent.until(lambda: told_on_disk(sim, blue) == ("192.0.2.66",) and sync.machine.idle, "the network is on disk")
            return found

        monkeypatch.setattr(up, "with_kept", overtaken)
        hook = sim.node._replace(store=Store(sim.paths, sim.node.identity.netns, sim.node.identity.boot))  # it is a process of its own
        up.up(hook, nic("bridged"), sim.call())
        assert in_force(sim) == (ALL, ("192.0.2.53",))
        sync.marked(UUIDS[0])
        agent.until(lambda: in_force(sim) == (ALL, ("192.0.2.66",)), "it is told what its network says now")


def test_what_was_refused_of_a_network_is_tried_again_by_an_agent_that_begins(
    often: Agent, sim: Sim, blue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = often
    with agent.running() as sync:
        comes(agent, sim, sync)
        with monkeypatch.context() as full:
            full.setattr(Store, "write", no_room)
            agent.service.client().change("PATCH", f"networks/{blue}", {"resolvers": ["192.0.2.66"]})
            agent.until(lambda: "No space left" in agent.alarms.active().get("registry-refused", ""), "it is refused, and said")
            assert told_on_disk(sim, blue) == ("192.0.2.66",) and in_force(sim)[1] == ("192.0.2.53",)
    with agent.running():
        agent.until(lambda: in_force(sim) == (ALL, ("192.0.2.66",)), "it is told what its network says now")


def test_a_nic_that_comes_without_what_is_wanted_of_it_is_given_it_however_often(often: Agent, sim: Sim, blue: str) -> None:
    """Its file cannot be read when it comes, or is lost: once it was pushed, and is another one now."""
    agent = often
    with agent.running() as sync:
        comes(agent, sim, sync)
        for _ in range(3):
            stops(agent, sim, sync)
            sim.wall += 1.0
            with shut(sim.paths.wanted):
                sim.up(nic("bridged"))
                assert in_force(sim) == ({}, None)
            sync.marked(UUIDS[0])
            agent.until(lambda: in_force(sim) == (ALL, ("192.0.2.53",)) and sync.machine.idle, "it is as it is wanted")
        for _ in range(3):
            stops(agent, sim, sync)
            sim.wall += 1.0
            os.remove(f"{sim.paths.wanted}/{UUIDS[0]}.json")
            sim.up(nic("bridged"))
            sync.marked(UUIDS[0])
            agent.until(lambda: in_force(sim)[0] == ALL and sync.machine.idle, "it is as it is wanted")


def test_what_an_earlier_epoch_has_said_is_not_done_after_a_restore(tmp_path: Path, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full when it said it, and the backup is of before."""
    monkeypatch.setattr(wishes, "AGAIN", 0.5)
    path, backup = str(tmp_path / "registry.sqlite"), str(tmp_path / "backup.sqlite")
    agent, there = Agent(sim, str(tmp_path / "socket")), nic("bridged")
    agent.rules = agent.rules._replace(every=HOURLY)
    store = SqliteStore.create(path, "first")
    with ExitStack() as running, monkeypatch.context() as full:
        with served(tmp_path, store=store) as agent.service:
            agent.service.join(0, CLUSTER)
            body = {"instance": there.instance, "index": 0, "mac": there.mac, "cluster": CLUSTER}
            agent.service.client().change("POST", "nics", {"uuid": UUIDS[0], **body})
            sync = running.enter_context(agent.running())
            agent.until(lambda: sync.machine.idle, "it is in step")
            store.backup(backup)
            full.setattr(wanted, "write", no_room)
            set_options(agent, "yes")
            agent.until(lambda: bool(sync.machine.wishes.refused()), "it is not held")
        files.bring_back(backup, path)
        with served(tmp_path, store=SqliteStore(path)) as agent.service:
            agent.until(lambda: sync.machine.inbox.complete and ready(sync).epoch != "first", "it is told all anew")
            agent.until(lambda: sync.machine.idle, "it is in step")
            full.undo()
            agent.passes(2.0)
            assert on_disk(sim) == ("", "", {}) and not sync.machine.wishes.refused()


def test_a_guest_that_comes_without_its_network_is_told_it_at_once(agent: Agent, sim: Sim, blue: str) -> None:
    agent.rules = agent.rules._replace(every=HOURLY)
    with agent.running() as sync:
        comes(agent, sim, sync)
        stops(agent, sim, sync)
        damaged(Path(sim.paths.wanted, "networks", f"{blue}.json"))
        comes(agent, sim, sync)


# -- what a NIC that is up is in the way of


def test_what_is_refused_of_a_nic_that_is_up_is_kept_when_it_stops(agent: Agent, sim: Sim, blue: str) -> None:
    agent.rules = agent.rules._replace(every=HOURLY)
    with agent.running() as sync:
        comes(agent, sim, sync)
        with sim.failing(0, Answer(errno.EPERM, "no"), times=1):
            set_options(agent, "no")
            agent.until(lambda: reports(agent.service)[UUIDS[0]]["refused"], "the refusal is reported")
        assert in_force(sim)[0]["isolated"] == on_disk(sim)[2]["isolated"] == "yes"
        stops(agent, sim, sync)
        assert on_disk(sim) == (item_revision(agent.service), blue, {**ALL, "isolated": "no"})
        assert not reports(agent.service)[UUIDS[0]]["refused"] and agent.alarms.active() == {}
        sim.up(nic("bridged"))
        assert in_force(sim)[0]["isolated"] == "no"


def test_what_is_no_more_wanted_of_a_nic_that_is_up_goes_when_it_stops(agent: Agent, sim: Sim, blue: str) -> None:
    os.makedirs(sim.paths.ganeti_run, exist_ok=True)
    agent.rules = agent.rules._replace(every=HOURLY)
    with agent.running() as sync:
        comes(agent, sim, sync)
        agent.service.client().change("DELETE", f"nics/{UUIDS[0]}")
        agent.until(lambda: UUIDS[0] not in sync.machine.inbox.nics and not sync.machine.jobs, "that is heard")
        assert in_force(sim)[0] == on_disk(sim)[2] == ALL
        sim.down(nic("bridged"))
        sync.marked(UUIDS[0])
        agent.until(lambda: on_disk(sim) == ("", "", {}), "nothing is kept of it")
    assert shown(agent.service) is None


def test_a_newer_versions_file_holds_up_nothing(agent: Agent, sim: Sim, blue: str) -> None:
    """Of a NIC that is wanted no more. It stays, and is named; what comes for others is done at once."""
    agent.rules = agent.rules._replace(pause=HOURLY, every=HOURLY)
    newer = Path(sim.paths.wanted, f"{UUIDS[5]}.json")
    with agent.running() as sync:
        comes(agent, sim, sync)
    Path(sim.paths.lib, "registry", "known.json").unlink()
    newer.write_text('{"schema": 99}\n')
    with agent.running() as sync:
        agent.until(lambda: UUIDS[5] in agent.alarms.active().get("registry-refused", ""), "it is named")
        set_options(agent, "no")
        agent.until(lambda: in_force(sim)[0]["isolated"] == "no", "it is set")
        agent.until(lambda: sync.machine.idle, "nothing is left")
    assert newer.read_text() == '{"schema": 99}\n'


# -- the machine alone


def entry(number: int) -> Keep:
    return Keep(("nic", f"{number:08x}-1111-4111-8111-111111111111"), Wanted(f"e:{number}"))


def test_of_more_than_can_be_kept_all_is_told_anew() -> None:
    """There is a bound to what is not held of other NICs, and none of it is known for the next start before it is held."""
    one = held.Held()
    for number in range(held.MOST):
        one.owe(entry(number), "the disk is full", 5.0)
    assert one.telling(()) and not one.lost
    one.owe(entry(held.MOST), "no such option")
    assert not one.lost, "it is not missed"
    one.owe(entry(held.MOST), "the disk is full", 5.0)
    assert one.lost and len(one.all()) == held.MOST and one.due() == 5.0
    assert len(list(one.again(5.0))) == held.MOST and one.due() == NEVER and list(one.again(9.0)) == []
    for number in range(held.MOST):
        one.settled(entry(number).key)
    assert one.all() == [] and one.telling(())
    one.lost = False
    assert not one.telling(())
    one.owe(entry(0), "no such option")
    assert not one.telling(()), "told again it would be none again"
    one.owe(entry(1), "")
    assert one.telling(()) and not one.telling({entry(1).key[1]})


def test_what_was_lost_is_told_anew_when_the_disk_takes_anything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MOST", 1)
    turned = Turned()
    turned.begun(options(0, "isolated"))
    turned.told(options(1, "isolated", revision="e:11"), options(2, "isolated", revision="e:11"), ready="e:11")
    for each in [each for each in turned.asked if isinstance(each, Keep)]:
        turned.asked.remove(each)
        turned.tell(Did(each.key, "e:11", "the disk is full", host=True))
    assert "the disk is full" in turned.alarms["registry-refused"] and turned.machine.last() is None
    turned.passes(wishes.AGAIN)
    turned.tell(Did(turned.take(Keep).key, "e:11"))
    turned.take(Close)
    turned.tell(Ended(Failure("", "closed")))
    turned.take(Hello)
    turned.tell(Answered({"epoch": "e", "abilities": ["watch"], "actions": []}))
    turned.passes(20.0)
    assert turned.take(Watch).start == "" and not turned.alarms.get("registry-lies")


@pytest.mark.parametrize("left", [False, True])
def test_a_nic_that_stops_while_a_worker_finds_it_up_is_looked_at_once_more(left: bool) -> None:
    turned = Turned()
    turned.begun(told(0))
    if left:
        turned.told(leave(0, "e:11"), ready="e:11")
        kind: type = Drop
    else:
        turned.told(told(0, "e:11", "change"), ready="e:11")
        turned.tell(Did(turned.take(Apply).key, "e:11", "the host refuses it", host=True))
        kind = Keep
    job = turned.take(kind)
    turned.tell(Marked(job.key[1]))
    assert not [each for each in turned.asked if isinstance(each, kind)], "one at a time"
    turned.tell(Did(job.key, "e:11", up=True))
    assert turned.take(kind) == job
    turned.tell(Did(job.key, "e:11"), Marked(job.key[1]))
    assert not [each for each in turned.asked if isinstance(each, kind)], "it is held"
