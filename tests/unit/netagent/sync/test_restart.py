"""Check that an agent that is restarted has what it knew: what is kept of the stream, of NICs and of networks is read back as it was.

The agent's driver, its machine, what it does on the node and the files are the real ones; the registry's answers and its stream are
drawn, and the host is simulated.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from netagent.loop import Loop
from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.sync import hands
from netagent.sync.driver import FOLDER, KNOWN, Around, Sync
from netagent.sync.inbox import Inbox
from netagent.sync.messages import Alarm, Answered, AskNode, Hello, Line, List, Look, Looked, Save, Send, Survey, Surveyed, Watch
from netagent.sync.rules import Rules
from netcommon.lifecycle.context import Clock
from netregistry.model.kinds import FOREVER
from netregistry.model.node import About
from netregistry.rules.masters import OF_NODE
from runtime import kept, networks, wanted
from runtime.wanted import NOTHING, until_of
from tests.support.registry import NODES
from tests.support.sim import Sim

NODE = NODES[0]
NICS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(3)]
NETWORKS = [f"{number:08x}-3333-4333-8333-333333333333" for number in range(2)]
KINDS = dict.fromkeys(NICS, "nic") | dict.fromkeys(NETWORKS, "network")
MASTERS = ["registry", f"node:{NODE}", "ganeti:gnt.example.com", "ganeti:é"]
#: Options that there are, and values that they may have.
OPTIONS = {
    "isolated": ["yes", "no"],
    "rate_in": ["8mbit", "1gbit"],
    "node_access": ["none", "all"],
    "addresses": ["10.0.0.7", "10.0.0.7,fd00::7"],
}


class Told(NamedTuple):
    """Hold what a registry tells of a thing: ``what`` is "nic", "options" (a NIC's that is elsewhere) or "network"; "" once it is gone."""

    what: str = ""
    value: Any = None


GONE = Told()

# -- what a registry may say

texts = st.text(st.characters(), max_size=9)  # surrogates too, which JSON can write
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
untils = st.just(0) | st.floats(4e9, FOREVER) | st.integers(4 * 10**9, int(FOREVER))
known_options = st.sampled_from([(name, value) for name, values in OPTIONS.items() for value in values])
options = st.tuples(known_options, untils).map(lambda drawn: {"name": drawn[0][0], "value": drawn[0][1], "until": drawn[1]})
of_tomorrow = st.builds(lambda name, value: {"name": f"of_tomorrow_{name}", "value": value}, texts, texts)
listed = st.lists(options, max_size=3, unique_by=lambda one: one["name"])
any_listed = listed | st.tuples(listed, of_tomorrow).map(lambda drawn: [*drawn[0], drawn[1]])
letters = st.sampled_from([*string.ascii_letters, *string.digits, *"_.+*/:@-éß字٣²"])  # what Python's \w takes, and Ganeti's check of tags
tags = st.lists(st.text(letters, min_size=1, max_size=128), max_size=4) | st.lists(st.text(letters, min_size=1, max_size=2), max_size=100)
fields = st.dictionaries(st.sampled_from(sorted(OF_NODE - {"tags", "index"})), json_values, max_size=4)
nics = st.fixed_dictionaries(
    {"master": st.sampled_from(MASTERS), "options": any_listed, "network": st.sampled_from(["", *NETWORKS])},
    optional={
        "tags": tags,
        "addresses": st.lists(st.just("10.0.0.9"), max_size=1),
        "index": st.none() | st.integers(0, 65535),
        "ip": st.sampled_from(["", "10.0.0.8", "fd00::8"]),
    },
)
own = st.tuples(fields, nics).map(lambda drawn: Told("nic", {**drawn[0], **drawn[1]}))
beside = any_listed.map(lambda drawn: Told("options", drawn))
ipv4 = st.integers(0x0A000000, 0x0AFFFFFF).map(lambda number: str(IPv4Address(number)))
ipv6 = st.integers(0xFD << 120, (0xFE << 120) - 1).map(lambda number: str(IPv6Address(number)))
prefixes = st.integers(0, 0xFFFF).map(lambda number: f"10.{number >> 8}.{number & 0xFF}.0/24")
labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20)
domains = st.lists(labels, min_size=1, max_size=3).map(".".join)
routes = st.lists(st.fixed_dictionaries({"prefix": prefixes, "via": ipv4}), max_size=16, unique_by=lambda one: one["prefix"])
network = st.fixed_dictionaries(
    {"master": st.sampled_from(MASTERS)},
    optional={
        "name": st.text(letters, max_size=40),
        "gateway": ipv4 | st.just(""),
        "gateway6": ipv6 | st.just(""),
        "resolvers": st.lists(ipv4 | ipv6, max_size=16, unique=True),
        "search": st.lists(domains, max_size=4, unique=True).filter(lambda found: sum(len(one) + 2 for one in found) <= 255),
        "routes": routes,
        "mtu": st.just(0) | st.integers(68, 65535),
        "tags": tags,
        "a field of tomorrow": json_values,
    },
).map(lambda drawn: Told("network", drawn))
commits = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(NICS, own | beside | st.just(GONE)) | dict.fromkeys(NETWORKS, network | st.just(GONE))
)
epochs = st.from_regex(r"\A[!-~]{1,64}\Z")

# -- the agent, and the registry that it is told by


class Disk:
    """A node on which agents run one after the other: what is on its disk, and what its registry says."""

    def __init__(self, folder: str, epoch: str, number: int) -> None:
        self.sim = Sim(folder)
        self.epoch, self.number = epoch, number
        self.told = dict.fromkeys(KINDS, GONE)
        self.revisions = dict[str, str]()
        self.done = list[Any]()
        self.lines = list[Mapping[str, Any]]()

    @property
    def revision(self) -> str:
        return f"{self.epoch}:{self.number}"

    @contextmanager
    def agent(self) -> Iterator[Sync]:
        """Run an agent that nothing is told until it turns."""
        sim, failures = self.sim, list[Exception]()
        loop, metrics = Loop(lambda: 0.0, failures.append), Metrics()
        around = Around(
            loop, Clock(lambda: 0.0), sim.log, Alarms(sim.log, metrics), metrics, lambda *_job: None, lambda _worker: sim.call()
        )
        sync = Sync(NODE, f"{sim.paths.state}/none", Rules(), around, f"{sim.paths.state}/agent", sim.paths.lib, random.Random(0))
        try:
            yield sync
        finally:
            sync.close(5.0)
            loop.close()
        assert failures == []

    def commit(self, changes: Mapping[str, Told]) -> None:
        """Let the registry have something else to say."""
        self.number += 1
        for uuid, after in changes.items():
            before, self.told[uuid] = self.told[uuid], after
            self.revisions[uuid] = self.revision
            if before.what not in ("", after.what):
                self.lines.append({"event": "leave", "what": before.what, "uuid": uuid, "revision": self.revision})
            if after.what:
                value = {"uuid": uuid, **after.value} if after.what != "options" else after.value
                event = "change" if before.what == after.what else "enter"
                self.lines.append(
                    {"event": event, "what": after.what, "uuid": uuid, "value": value, "revision": self.revision, "beside": {}}
                )
        self.lines.append({"event": "ready", "revision": self.revision})

    def turn(self, sync: Sync) -> str:
        """Answer what the agent asks, until it asks for nothing more; give where its stream begins."""
        machine, node, start = sync.machine, self.sim.node, ""
        while asked := [each for each in machine.turn(0.0) if not isinstance(each, Alarm | Save)]:
            for request in asked:
                if isinstance(request, Watch):
                    start, lines = request.start, self._since(request.start)
                    for line in lines:
                        machine.take(Line(json.loads(json.dumps(line)), 100), 0.0)
                    continue
                event = self._answered(request, machine.outbox.after) or hands.done(node, request, self.sim.call())
                machine.take(event, 0.0)
        assert machine.inbox.complete and not machine.jobs
        return start

    def _since(self, start: str) -> Iterable[Mapping[str, Any]]:
        if not start:
            return self.lines
        (index,) = [number for number, line in enumerate(self.lines) if line == {"event": "ready", "revision": start}]
        return [*self.lines[index + 1 :], self.lines[-1]]

    def _answered(self, request: Any, after: str) -> Any:
        """Give the answer of the registry, or of a look at the node; None to what is to be done there."""
        if isinstance(request, Hello):
            return Answered({"epoch": self.epoch, "abilities": ["watch"], "actions": []})
        if isinstance(request, AskNode):
            return Answered({"reports": after or self.revision})
        if isinstance(request, List):  # it has reported all of them, so it may be told them
            return Answered([{"node": NODE, "report": {"nic": uuid, "state": "stopped"}} for uuid in NICS])
        if isinstance(request, Look):
            return Looked({}, frozenset(), About(version="1") if request.about else None, 5.0)
        if isinstance(request, Survey):
            return Surveyed({})
        return Answered({}, self.revision) if isinstance(request, Send) else None

    # -- what is on disk

    def of(self, what: str) -> dict[str, str]:
        """Give the revisions of all that the registry tells of a sort."""
        return {uuid: self.revisions[uuid] for uuid, told in self.told.items() if told.what == what}

    def files(self) -> dict[str, bytes]:
        """Give all files that are kept, but for what is known: that is read by the agent."""
        return {str(path): path.read_bytes() for path in Path(self.sim.paths.wanted).rglob("*") if path.is_file()}

    def expect(self) -> None:
        """Hold what is on disk against what was told, each NIC and network by itself."""
        paths, problems = self.sim.paths, list[str]()
        for uuid, told in self.told.items():
            if KINDS[uuid] == "network":
                found = networks.read(paths, uuid, problems)
                assert (found is None) is (told is GONE)
                if found is not None:
                    self._is_network(found, uuid)
            else:
                self._is_nic(wanted.read(paths, uuid, problems), uuid)
        assert problems == [] and self.sim.lines == []

    def _is_nic(self, found: wanted.Wanted, uuid: str) -> None:
        what, value = self.told[uuid]
        said = value if what == "nic" else {"options": value or []}
        asked = {each["name"]: (each["value"], each.get("until", 0)) for each in said["options"]}
        if any(name.startswith("of_tomorrow") for name in asked):
            return  # an older revision of it holds, or none: it is refused
        asked |= {"addresses": (",".join(said["addresses"]), 0)} if said.get("addresses") and "addresses" not in asked else {}
        if what:
            assert {each.option: (each.value, until_of(each)) for each in found.registry} == asked
            assert (found.revision, found.network) == (self.revisions[uuid], said.get("network", ""))
            assert (found.tags, found.ip) == (_tags(said), said.get("ip", ""))
            assert found.position == (said.get("index") if said.get("master", "").startswith("ganeti:") else None)
        else:
            assert found == NOTHING
        if all(not until for _value, until in asked.values()):  # then a hook reads it alone
            assert kept.plain(self.sim.paths, uuid) == kept.Plain(found.whole, found.revision, found.network)

    def _is_network(self, found: Any, uuid: str) -> None:
        value = self.told[uuid].value
        for name, said in found._asdict().items():
            if name == "routes":
                assert said == tuple((one["prefix"], one["via"]) for one in value.get("routes", ()))
            elif name in ("resolvers", "search"):
                assert said == tuple(value.get(name, ()))
            elif name == "tags":
                assert said == _tags(value)
            else:
                assert said == {"uuid": uuid, "revision": self.revisions[uuid], "mtu": 0, **value}.get(name, ""), name


def _tags(said: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(said.get("tags", ())) if said.get("master", "").startswith("ganeti:") and "tags" in said else None


def picture(inbox: Inbox) -> tuple[Any, ...]:
    """Give all that an inbox knows, its types too: 1, 1.0 and True are the same to Python."""
    return inbox.ready, repr(inbox.nics), inbox.nics, inbox.networks


#: One of everything, and then less of it.
MUCH = {"name": "isolated", "value": "yes", "until": 5e9}, {"name": "rate_in", "value": "8mbit"}
IN_GANETI = {"master": "ganeti:é", "options": MUCH, "network": NETWORKS[0], "tags": ["é", "b", "a"], "addresses": ["10.0.0.9"]}
OF_NODE_HERE = {"master": f"node:{NODE}", "options": [], "instance": "\ud800", "index": 1.0, "network": ""}
BLUE = {
    "master": "ganeti:é",
    "name": "blue",
    "gateway": "10.0.0.1",
    "gateway6": "fd00::1",
    "resolvers": ["fd00::53", "10.0.0.53"],
    "search": ["b.example.com", "a.example.com"],
    "routes": [{"prefix": "10.2.0.0/24", "via": "10.0.0.2"}, {"prefix": "10.1.0.0/24", "via": "10.0.0.3"}],
    "mtu": 1400,
    "tags": ["b", "a"],
}
FIRST = {
    NICS[0]: Told("nic", IN_GANETI),
    NICS[1]: Told("nic", OF_NODE_HERE),
    NICS[2]: Told("options", MUCH),
    NETWORKS[0]: Told("network", BLUE),
    NETWORKS[1]: Told("network", {"master": "registry", "tags": ["a"]}),
}
THEN = {NICS[0]: GONE, NICS[1]: Told("options", MUCH[:1]), NICS[2]: Told("nic", {**IN_GANETI, "tags": []}), NETWORKS[1]: GONE}


@example("e", 6, [FIRST, THEN, {NETWORKS[0]: Told("network", {**BLUE, "tags": []})}, dict.fromkeys(KINDS, GONE)])
@given(epochs, st.integers(0, 10**17), st.lists(commits, min_size=1, max_size=4))
def test_an_agent_that_is_restarted_knows_what_it_knew(epoch: str, number: int, changes: list[dict[str, Told]]) -> None:
    """And is told no more than what is new: the stream goes on where it was, and nothing is done again."""
    with TemporaryDirectory(prefix="nc-") as folder:
        disk, before, start = Disk(folder, epoch, number), None, ""
        for each in changes:
            disk.commit(each)
            with disk.agent() as sync:
                assert before is None or picture(sync.machine.inbox) == before
                assert disk.turn(sync) == start
                before, start = picture(sync.machine.inbox), disk.revision
                assert {uuid: own.wanted.revision for uuid, own in sync.machine.inbox.nics.items()} == disk.of("nic")
                assert {uuid: network.revision for uuid, network in sync.machine.inbox.networks.items()} == disk.of("network")
            assert json.loads(Path(disk.sim.paths.lib, FOLDER, KNOWN).read_bytes())["ready"] == start
            disk.expect()
        files = disk.files()
        with disk.agent() as sync:
            assert picture(sync.machine.inbox) == before and disk.turn(sync) == start
        assert disk.files() == files
