"""Histories by chance of nodes that synchronise with a registry: what must always hold does, and all of them converge.

The machine and the registry's core are the real ones; time, network, disk and hosts are simulated (tests/support/sync_world.py).
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator

import pytest

from netregistry.model import keys
from netregistry.model.history import Identity
from netregistry.request import Call
from netregistry.state import shown
from netregistry.underlay import told
from runtime.wanted import in_part
from tests.support.registry import OPERATOR
from tests.support.sample import drawn, sample
from tests.support.sync_world import CLUSTER, GANETI, NETWORK, UUIDS, VALUES, Guest, Node, World, mac_of

SAMPLE = 150
HISTORIES = drawn(10_000, 400, 10_000)
QUIET = 1500.0  #: seconds until everything has converged: five comparisons
COMPARED = 400.0  #: seconds within which there is a comparison
PATIENT = 100.0  #: seconds until what a registry takes is told, whatever it refuses
MOST_SENT = 100  #: requests of reports in that time, at most, of two nodes with eight NICs each that nobody touches any more


@pytest.fixture(scope="module", autouse=True)
def seldom_collected() -> Iterator[None]:
    """Let Python look for cycles seldom: each world is one, and while it is tried there is nothing else to be found."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, *before[1:])
    yield
    gc.set_threshold(*before)


def act(world: World) -> None:
    """Let something happen."""
    chance, node = world.chance, world.chance.choice(world.nodes)
    uuid = chance.choice(UUIDS)
    live = [each for each in world.nodes if uuid in each.guests]
    what = chance.choices([each for each, _weight in ACTIONS], [weight for _each, weight in ACTIONS])[0]
    what(world, node, uuid, live)


def starts(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if not live and (world.is_ganeti(uuid) or uuid in node.defined or not any(uuid in each.defined for each in world.nodes)):
        _begin(world, node, uuid, False)


def _begin(world: World, node: Node, uuid: str, incoming: bool) -> None:
    guest = node.guests[uuid] = Guest(mac_of(uuid), world.time, incoming)
    wanted = node.disk.get(uuid)
    if wanted is not None:  # its up reads what is on the disk
        node.becomes(guest, wanted)
    node.mark(uuid)


def stops(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    for each in live:
        del each.guests[uuid]
        each.mark(uuid)


def migrates(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if len(live) != 1 or live[0] is node or live[0].guests[uuid].incoming:
        return
    source, guest = live[0], live[0].guests[uuid]
    _begin(world, node, uuid, True)
    arriving = node.guests[uuid]

    def arrive() -> None:
        if node.guests.get(uuid) is not arriving:
            return
        if source.guests.get(uuid) is guest:
            del source.guests[uuid]
        arriving.incoming = False
        for each in world.chance.sample([source, node], 2):
            each.mark(uuid)

    def fail() -> None:
        if node.guests.get(uuid) is arriving and arriving.incoming:
            del node.guests[uuid]
            node.mark(uuid)

    world.at(world.time + world.chance.uniform(0.5, 40.0), world.chance.choice([arrive, arrive, arrive, fail]))


def defines(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if not world.is_ganeti(uuid) and not any(uuid in each.defined or uuid in each.guests for each in world.nodes if each is not node):
        node.defined[uuid] = {"tags": [world.chance.choice(["a", "b"])]}
        node.mark(uuid)


def undefines(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    for each in world.nodes:
        if each.defined.pop(uuid, None) is not None:
            each.mark(uuid)


def imports(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if world.registry is None or not world.is_ganeti(uuid):
        return
    if world.registry.local.view.nic(uuid) is None:
        body = {"uuid": uuid, "instance": f"web{uuid[7]}", "mac": mac_of(uuid), "network": world.chance.choice([NETWORK, ""])}
        world.answer(Call(world.id(), "nic.add", "", body), GANETI)
    elif not live:
        removes(world, uuid, GANETI)
    world.pump()


def removes(world: World, uuid: str, who: Identity) -> None:
    if world.answer(Call(world.id(), "nic.delete", uuid, None, "*"), who).status == 200:
        world.acknowledge(("nics", uuid), who.name)


def flips(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if world.registry is not None and world.registry.local.view.nic(uuid) is not None:
        name, value = world.chance.choice(VALUES)
        options = world.chance.choice([[], [{"name": name, "value": value}]])
        world.answer(Call(world.id(), "nic.set", uuid, {"options": options}, "*"), OPERATOR)
        world.pump()


def rewords(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    """Let the network say something else to its guests."""
    if world.registry is not None:
        world.answer(Call(world.id(), "network.set", NETWORK, {"mtu": world.chance.randrange(1300, 1500)}, "*"), OPERATOR)
        world.pump()


def deletes(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if world.registry is not None and not world.is_ganeti(uuid):
        removes(world, uuid, OPERATOR)
        world.pump()


def fences(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if world.registry is not None:
        world.answer(Call(world.id(), "node.fence", node.uuid, {"force": True}, "*"), OPERATOR)
        world.pump()


def dies(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    """Its agent does; and what happens meanwhile is told by nobody."""
    node.kill()
    world.at(world.time + world.chance.choice([0.1, 5.0, 60.0]), lambda: node.start() if node.machine is None else None)


def goes(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    if world.registry is not None:
        world.down()
        world.at(world.time + world.chance.choice([0.1, 3.0, 90.0]), lambda: world.open() if world.registry is None else None)


def copies(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    world.copies.append((world.copy(), 0))


def restores(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    world.restore(world.chance.choice(world.copies)[0] if world.copies and world.chance.random() < 0.5 else world.copy())


def troubles(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    node.trouble = world.chance.choice(["failed", "empty", "", ""])


def refuses(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    world.stubborn ^= {uuid}


def spurns(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    """Let the registry refuse what is said of a NIC, or of what there is on a node, or take it again."""
    what = world.chance.choice([uuid, uuid, uuid, "about"])
    if world.unwelcome.pop(what, None) is None:
        world.unwelcome[what] = world.chance.choice(["invalid", "too-large"])


def fills(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    node.full = not node.full


def loses(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    """Lose what lies on disk of a NIC of the node's own, and of networks; of others the stream alone can tell again."""
    if node.machine is not None and uuid in node.machine.inbox.nics:
        node.disk.pop(uuid, None)
    node.networks.clear()


def ends(world: World, node: Node, uuid: str, live: list[Node]) -> None:
    """Let a clock that is wrong for a moment end what is kept of a NIC that is not up here."""
    there = node.disk.get(uuid)
    if there is not None and uuid not in node.guests:
        node.disk[uuid] = there._replace(revision=in_part(there.revision), options=())


ACTIONS = [
    (starts, 8),
    (stops, 4),
    (migrates, 6),
    (defines, 6),
    (undefines, 3),
    (imports, 5),
    (flips, 6),
    (rewords, 3),
    (deletes, 1),
    (fences, 0.5),
]
ACTIONS += [
    (dies, 1),
    (goes, 1),
    (copies, 0.5),
    (restores, 0.5),
    (troubles, 1),
    (refuses, 1),
    (spurns, 1.5),
    (fills, 1),
    (loses, 1),
    (ends, 1),
]


def history(seed: int, acts: int = 40) -> World:
    world = World(seed)
    for _ in range(acts):
        act(world)
        world.run(world.chance.choice([0.1, 0.5, 2.0, 10.0, 40.0]))
    world.faulty = False
    world.stubborn.clear()
    world.run(100.0)
    for node in world.nodes:
        node.trouble, node.full = "", False
        if node.machine is None:
            node.start()
    if world.registry is None:
        world.open()
    others_are_told(world)
    world.unwelcome.clear()
    world.run(QUIET)
    world.run(max(0.0, world.late + COMPARED - world.time))  # a copy of what was refused once may be taken when it comes
    for _ in range(30):  # a comparison may be under way
        if all(node.machine is not None and node.machine.idle for node in world.nodes):
            break
        world.run(1.0)
    return world


def others_are_told(world: World) -> None:
    """Assert that what the registry refuses holds up nothing else: all else is told, and what is refused is not told again and again."""
    world.run(PATIENT)
    for node in world.nodes:
        for uuid in UUIDS:
            node.mark(uuid)
    before = world.count.get("Send", 0)
    world.run(PATIENT)
    sent = world.count.get("Send", 0) - before
    assert sent <= MOST_SENT, f"{sent} requests of reports in {PATIENT} s: {world.unwelcome}"
    assert world.registry is not None
    for node in world.nodes:
        for uuid in [uuid for uuid in UUIDS if uuid not in world.unwelcome]:
            guest, report = node.guests.get(uuid), world.registry.local.view.get(keys.seen(node.uuid, uuid))
            if guest is not None:
                assert report is not None and report.state == ("incoming" if guest.incoming else "running"), f"{uuid} is not told"
            else:
                assert report is None or report.state == "stopped", f"that {uuid} is not there is not told"


def converged(world: World) -> None:
    """Assert that what is wanted, seen and on the nodes agrees, and that nothing is left to be told."""
    assert world.registry is not None
    view = world.registry.local.view
    for node in world.nodes:
        machine = node.machine
        assert machine is not None and machine.idle, machine
        assert {name for name, text in node.alarms.items() if text} <= {"registry-inventory", "registry-refused"}, node.alarms
        assert machine.wishes.refused() == {}
        for uuid in UUIDS:
            nic, report = view.nic(uuid), view.get(keys.seen(node.uuid, uuid))
            guest = node.guests.get(uuid)
            if guest is not None:
                assert report is not None and report.state == ("incoming" if guest.incoming else "running")
                assert (report.since, report.tap) == (guest.since, f"tap{uuid[7]}")
                if nic is not None:
                    assert [(each.name, each.value) for each in guest.force] == [(each.name, each.value) for each in nic.options]
                    assert report.applied == guest.applied == view.shown_revision(keys.nic(uuid))
                    assert guest.told == (view.shown_revision(keys.network(nic.network)) if nic.network else ""), "its network says another"
            elif uuid in node.defined:
                assert report is not None and report.state == "stopped"
            else:
                assert report is None or (report.state == "stopped" and nic is not None)
            if node.here(uuid) and not world.is_ganeti(uuid):
                assert nic is not None, "a NIC that is here is not known to the registry"
            if nic is not None and nic.master == f"node:{node.uuid}" and not node.here(uuid):
                elsewhere = any(view.get(keys.seen(other.uuid, uuid)) for other in world.nodes if other is not node)
                # where nothing is defined any more nothing is removed
                assert elsewhere or not node.defined, "what is gone is still wanted"
            if nic is not None and nic.options and nic.cluster == CLUSTER:
                assert uuid in node.disk, "the operator's values are not there before the guest"
                there = [(each.name, each.value) for each in node.disk[uuid].options]
                assert there == [(each.name, each.value) for each in nic.options], "they are another revision's"
        laid = told.of(view, node.uuid) if view.underlay is not None else None
        assert node.underlay == laid, "the node has another underlay than it was told"
        if laid is not None:
            confirmed = view.get(keys.confirmed(node.uuid))
            assert confirmed is not None or not laid["endpoints"]
            assert confirmed is None or (confirmed.there.generation, confirmed.there.addresses) == node.standing, "it is not confirmed"
        in_use = {nic.network for uuid in UUIDS if (nic := view.nic(uuid)) is not None and nic.network and nic.cluster == CLUSTER}
        assert in_use <= machine.inbox.networks.keys(), "what guests are told is not there before them"
        for uuid in machine.inbox.networks:
            assert node.networks[uuid] == view.shown_revision(keys.network(uuid)), "what is said of a network is not there"
    for uuid in UUIDS:
        nic, live = view.nic(uuid), [node.uuid for node in world.nodes if uuid in node.guests and not node.guests[uuid].incoming]
        if nic is not None and len(live) == 1 and not any(uuid in node.guests and node.guests[uuid].incoming for node in world.nodes):
            assert shown(view, nic).nodes == tuple(live), "what the source says counts for the target"


@pytest.mark.parametrize("seed", sample(range(HISTORIES), SAMPLE))
def test_every_history_converges(seed: int) -> None:
    converged(history(seed))


def test_the_histories_are_not_idle() -> None:
    """Assert that what they are to try does happen."""
    worlds = [history(seed) for seed in range(24)]
    counts: dict[str, int] = {}
    for world in worlds:
        for name, number in world.count.items():
            counts[name] = counts.get(name, 0) + number
    assert {
        "Send",
        "Ask",
        "Apply",
        "Keep",
        "Check",
        "Drop",
        "Retain",
        "SetNetwork",
        "SetUnderlay",
        "List",
        "Survey",
        "Save",
        "Watch",
    } <= counts.keys()
    actions = [json.loads(item.value) for world in worlds for item in world.store.list("history/").items]
    by_nodes = {entry["action"] for entry in actions if entry["who"]["role"] == "node"}
    assert {"nic.add", "nic.set", "nic.delete"} <= by_nodes
    assert any(world.epoch for world in worlds)
