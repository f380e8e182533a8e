"""An underlay in the mock cloud: names follow guests over real agents and simulated hosts, and what must not be is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mockcloud import in_underlay
from mockcloud.cloud import MockCloud
from mockcloud.commits import Commits
from mockcloud.explore.drawing import Drawing, draw
from mockcloud.explore.histories import history
from mockcloud.explore.underlaid import WRONG, has_one
from mockcloud.instances.table import perform
from mockcloud.invariants import settled
from mockcloud.name_server import MockNameServer
from mockcloud.scenarios.faults import FAULTS
from mockcloud.scenarios.file import Scenario, ScenarioInvalid, Step, parsed
from mockcloud.scenarios.running import play
from mockcloud.scenarios.writing import text
from mockcloud.sysinfo import node_uuid
from mockcloud.underlay import forgotten, led, replaced, set_up
from mockcloud.underlay_commits import UnderlayCommits
from netcommon.host.api.facts import AF_INET6, Address
from netregistry.zone.plan import Entry
from tests.support.mockcloud import Mockcloud
from tests.support.sample import drawn

FIRST, SECOND = node_uuid(1), node_uuid(2)
SITE, ZONE = "fd12:3456:789a::/60", "hosts.example.com"
RESTS = 6.0
UNDERLAY = {"prefix": SITE, "zone": ZONE, "minimum_age": RESTS, "ttl": 2, "servers": 2}
WEB1 = f"web1.console.{ZONE}"
ONE, TWO = "fd12:3456:789a::1:0", "fd12:3456:789a:1::1:0"
SPOKEN = {"tags": ["netcommon:*:endpoints:console"]}


class World:
    """A cloud of two nodes with an underlay; web1 runs on the first."""

    def __init__(self, root: Path) -> None:
        self.cloud = MockCloud(str(root), 1)
        self.cloud.create(2)
        set_up(self.cloud, UNDERLAY)
        self.commits = Commits(lambda: self.cloud.registry.now, lambda address: led(self.cloud, address))
        self.cloud.own.listen(lambda registry: self.commits.begin(registry.items()))
        self.cloud.network("blue", {"subnet": "192.0.2.0/24"})
        perform(self.cloud, "create", {"name": "web1", "node": "mock1", "nics": [{"network": "blue"}], "start": True, **SPOKEN})
        self.cloud.ready([FIRST, SECOND], 30.0)
        self.cloud.scheduler.passes(5.0)

    @property
    def servers(self) -> list[MockNameServer]:
        assert self.cloud.own.names is not None
        return list(self.cloud.own.names.servers.values())

    def names(self) -> dict[str, str]:
        stored = self.commits.underlay.state
        return {key.split("/", 2)[2]: name["address"] for key, name in stored.items() if key.startswith("names/")}

    def wrong(self) -> list[str]:
        """Give all that is wrong, now and as if all were quiet."""
        return [*in_underlay.always(self.cloud, self.commits.underlay), *in_underlay.settled(self.cloud, self.commits.underlay)]

    def prefixes(self) -> dict[str, str]:
        return {each["node"]: each["prefix"]["prefix"] for each in self.cloud.registry.client().all("prefixes")}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "cloud")
    yield made
    made.cloud.close()


# -- what is so


def test_a_name_follows_its_guest(world: World) -> None:
    assert world.names() == {WEB1: ONE} and world.wrong() == []
    assert [each.names for each in world.servers] == [{WEB1: ONE}] * 2
    perform(world.cloud, "migrate", {"name": "web1", "node": "mock2"})
    world.cloud.scheduler.passes(3.0)
    assert world.names() == {WEB1: TWO} and [each.names for each in world.servers] == [{WEB1: TWO}] * 2
    world.cloud.scheduler.passes(4 * RESTS)
    assert world.wrong() == [] and world.commits.found == []
    (placement,) = (value for key, value in world.commits.underlay.state.items() if key.startswith("endpoints/"))
    assert [each["address"] for each in placement["endpoints"]] == [TWO], "the address on the source is forgotten"


def test_a_server_that_is_away_keeps_an_address_where_it_is(world: World) -> None:
    world.servers[1].away = True
    perform(world.cloud, "migrate", {"name": "web1", "node": "mock2"})
    world.cloud.scheduler.passes(10 * RESTS)
    assert [each.names for each in world.servers] == [{WEB1: TWO}, {WEB1: ONE}]
    assert in_underlay.always(world.cloud, world.commits.underlay) == [] and world.commits.found == []
    world.servers[1].away = False
    world.cloud.scheduler.passes(4 * RESTS)
    assert world.wrong() == [] and world.commits.found == []


def test_prefixes_that_were_given_back_are_given_to_others(world: World) -> None:
    set_up(world.cloud, {**UNDERLAY, "others": 14})
    before = world.prefixes()
    assert len(set(before.values())) == 16
    for node in (FIRST, SECOND):
        forgotten(world.cloud, node)
    world.cloud.scheduler.passes(6 * RESTS)
    for node in (SECOND, FIRST):
        replaced(world.cloud, node)
    world.cloud.scheduler.passes(30.0)
    after = world.prefixes()
    assert (after[FIRST], after[SECOND]) == (before[SECOND], before[FIRST])
    perform(world.cloud, "start", {"name": "web1"})
    world.cloud.scheduler.passes(5.0)
    assert world.names() == {WEB1: TWO} and world.wrong() == [] and world.commits.found == []
    assert settled(world.cloud) == []


@pytest.mark.parametrize("again", [False, True], ids=["in time", "when the registry is back"])
def test_a_node_that_was_forgotten_has_its_prefix_again_in_time(world: World, again: bool) -> None:
    before = world.prefixes()
    forgotten(world.cloud, FIRST)
    if again:
        world.cloud.registry.halt()
    replaced(world.cloud, FIRST)
    world.cloud.scheduler.passes(3.0)
    assert (FIRST in world.cloud.off) == again
    world.cloud.registry.again()
    world.cloud.scheduler.passes(5.0)
    assert world.prefixes() == before and FIRST in world.cloud.nodes and not world.cloud.forgotten
    assert world.commits.found == []


def test_a_node_that_joins_when_all_prefixes_are_given_out_has_none(world: World) -> None:
    """docs/registry.md: it joins without one. As soon as one is free, it has to have it."""
    set_up(world.cloud, {**UNDERLAY, "others": 14})
    (third,) = world.cloud.create(1)
    world.cloud.ready([third.uuid], 30.0)
    world.cloud.scheduler.passes(5.0)
    assert third.uuid not in world.prefixes() and world.wrong() == []
    perform(world.cloud, "migrate", {"name": "web1", "node": "mock3"})
    world.cloud.scheduler.passes(4 * RESTS)
    assert world.names() == {} and world.wrong() == [] and world.commits.found == []
    world.cloud.nodes[third.uuid].host.kernel.addresses.append(Address(AF_INET6, ONE, 128, 1))
    assert world.wrong() == [f"{ONE} is left on mock3"]
    state = world.commits.underlay.state
    del state[next(key for key in state if key.startswith("prefixes/") and key.partition("/")[2] not in world.cloud.nodes)]
    assert world.wrong() == ["mock3 has no prefix"]


KINDS = r"""
nodes = 2
settings = "[nic]\nendpoints = [\"console\", \"exporter\"]"
settle = 60
[underlay]
prefix = "fd12:3456:789a::/48"
zone = "h.example.com"
minimum_age = 2
ttl = 1
[networks.blue]
subnet = "192.0.2.0/24"
"""


def _step(at: int, **fields: Any) -> str:
    return f"[[steps]]\nat = {at}\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())


def _made(name: str, node: str) -> str:
    return _step(0, task="create", name=name, node=node, start=True) + 'nics = [{ network = "blue" }]\n'


@pytest.mark.parametrize(
    "steps",
    [
        (_made("web", "mock1"), '[[steps]]\nat = 10\ntask = "change"\nname = "web"\nindex = 0\noptions = { endpoints = "console" }\n'),
        (_made("web-migrating", "mock2"), _made("web", "mock1"), _step(10, task="migrate", name="web", node="mock2")),
    ],
    ids=["a kind of endpoints is taken away", "an instance is called as a migration"],
)
def test_what_may_be_is_no_violation(tmp_path: Path, steps: tuple[str, ...]) -> None:
    result = play(parsed(KINDS + "".join(steps)), str(tmp_path / "cloud"), 1)
    assert result.violations == () and all(": " not in each.text for each in result.outcomes), result


# -- what must not be is seen

Harm = Callable[[World], object]


def _without(world: World, address: str) -> None:
    kernel = world.cloud.nodes[FIRST].host.kernel
    kernel.addresses = [each for each in kernel.addresses if each.address != address]


def _with(world: World, address: str) -> None:
    world.cloud.nodes[SECOND].host.kernel.addresses.append(Address(AF_INET6, address, 128, 1))


def _no_route(world: World) -> None:
    kernel = world.cloud.nodes[FIRST].host.kernel
    kernel.routes = [each for each in kernel.routes if each.type == 1]


def _edited(world: World, address: str, **fields: Any) -> None:
    """Let an address of the first node's be otherwise."""
    kernel = world.cloud.nodes[FIRST].host.kernel
    kernel.addresses = [each._replace(**fields) if each.address == address else each for each in kernel.addresses]


def _other_route(world: World, **fields: Any) -> None:
    kernel = world.cloud.nodes[FIRST].host.kernel
    kernel.routes = [each._replace(**fields) if each.type == 7 else each for each in kernel.routes]


def _told(world: World, *place: str | int, value: Any) -> None:
    """Let the file of the first node's underlay say something else in a place."""
    path = Path(world.cloud.nodes[FIRST].paths.lib, "underlay.json")
    said = found = json.loads(path.read_bytes())
    for each in place[:-1]:
        found = found[each]
    found[place[-1]] = value
    path.write_text(json.dumps(said))


def _answers(world: World, name: str, address: str) -> None:
    world.servers[0].entries[name] = Entry(address, 2)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda world: _without(world, ONE), f"leads to {ONE} by the registry, which is not there on mock1"),
        (lambda world: _without(world, ONE), f"leads to {ONE} by names2, which is not there on mock1"),
        (lambda world: _without(world, "fd12:3456:789a::1"), "fd12:3456:789a::1 is not there on mock1"),
        (lambda world: _with(world, ONE), f"{ONE} is there on mock1 and mock2"),
        (lambda world: _with(world, TWO), f"{TWO} is left on mock2"),
        (_no_route, "mock1 has unreachable routes to []"),
        (lambda world: _edited(world, ONE, deprecated=False), f"{ONE} on mock1 is not deprecated, and is to be otherwise"),
        (lambda world: _edited(world, "fd12:3456:789a::1", deprecated=True), "fd12:3456:789a::1 on mock1 is deprecated"),
        (lambda world: _other_route(world, metric=1), "mock1 has unreachable routes to [('fd12:3456:789a::/64', 1, 174, 254)]"),
        (lambda world: _other_route(world, protocol=3), "mock1 has unreachable routes to [('fd12:3456:789a::/64', 2147483647, 3, 254)]"),
        (lambda world: _told(world, "endpoints", 0, "name", value=""), "underlay.json of mock1 has {"),
        (lambda world: _told(world, "endpoints", 0, "instance", value="web9"), "underlay.json of mock1 lacks {"),
        (lambda world: _told(world, "endpoints", value=[]), "underlay.json of mock1 lacks {"),
        (lambda world: _told(world, "prefix", value="fd12:3456:789a:9::/64"), "has the prefix 'fd12:3456:789a:9::/64', and the node 'fd12"),
        (lambda world: _told(world, "endpoints", value=7), "underlay.json of mock1 cannot be read"),
        (lambda world: Path(world.cloud.nodes[FIRST].paths.lib, "underlay.json").unlink(), "underlay.json of mock1 has the prefix ''"),
        (lambda world: _answers(world, WEB1, TWO), f"leads to {TWO} by names1, which is not there on mock2"),
        (lambda world: _answers(world, f"web9.console.{ZONE}", ONE), "names1 has [('web9.console"),
    ],
)
def test_what_somebody_has_edited_is_seen(world: World, harm: Harm, says: str) -> None:
    harm(world)
    assert any(says in each for each in world.wrong()), world.wrong()


BEFORE: dict[str, Any] = {
    "underlay": {"prefix": SITE, "zone": "z", "minimum_age": 100.0, "ttl": 10},
    "nodes/a": {},
    "nodes/b": {},
    "prefixes/a": {"number": 0, "prefix": "fd12:3456:789a::/64", "next": 0x10002, "generation": 3},
    "prefixes/b": {"number": 1, "prefix": "fd12:3456:789a:1::/64", "next": 0x10001, "generation": 3},
    "prefixes/gone": {"number": 2, "prefix": "fd12:3456:789a:2::/64", "generation": 3, "freed": 950.0, "until": 1050.0},
    "confirmed/a": {"epoch": "e", "there": {"generation": 3, "addresses": [ONE]}},
    "endpoints/none/web1": {
        "instance": "web1",
        "generation": 3,
        "leads": "a",
        "endpoints": [
            {"kind": "console", "node": "a", "address": ONE, "state": "there"},
            {"kind": "console", "node": "b", "address": TWO, "state": "wanted"},
        ],
    },
    "endpoints/none/web2": {
        "instance": "web2",
        "generation": 3,
        "endpoints": [{"kind": "console", "node": "a", "address": "fd12:3456:789a::1:1", "state": "retired", "since": 950.0}],
    },
    "endpoints/none/web3": {
        "instance": "web3",
        "generation": 3,
        "endpoints": [{"kind": "console", "node": "a", "address": "fd12:3456:789a::1:2", "state": "leaving", "generation": 4}],
    },
    "names/z/web1.console.z": {"address": ONE, "node": "a", "generation": 5, "cluster": "", "instance": "web1"},
    "zones/z": {"generation": 5},
}
WEB = "endpoints/none/web1"
NAME, NEXT = "names/z/web1.console.z", {"zones/z": {"generation": 6}}


def _placed(name: str, place: int, **fields: Any) -> dict[str, Any]:
    """Give a placement of BEFORE, one of whose endpoints has other fields."""
    was = BEFORE[f"endpoints/none/{name}"]
    endpoints = [{**each, **fields} if number == place else each for number, each in enumerate(was["endpoints"])]
    return {f"endpoints/none/{name}": {**was, "generation": 4, "endpoints": endpoints}}


def _given(address: str) -> dict[str, Any]:
    return {
        "endpoints/none/web9": {"instance": "web9", "generation": 1, "endpoints": [{"kind": "console", "node": "b", "address": address}]}
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"confirmed/b": {"epoch": "e", "there": {"generation": 3, "addresses": [TWO]}}, **_placed("web1", 1, state="there")}, ""),
        (_placed("web1", 1, state="there"), "node b has not confirmed it"),
        ({"prefixes/c": {"number": 1, "prefix": "fd12:3456:789a:1::/64"}}, "fd12:3456:789a:1::/64 is of b and c"),
        ({"prefixes/c": {"number": 1, "prefix": "fd99::/64"}}, "is no /64 of"),
        ({"prefixes/a": {**BEFORE["prefixes/a"], "next": 0x10001, "generation": 4}}, "the counter of fd12:3456:789a::/64 goes back"),
        ({"prefixes/a": {**BEFORE["prefixes/a"], "next": 0x10003}}, "does not advance"),
        ({"prefixes/a": None}, "the prefix of node a is taken from it"),
        ({"prefixes/gone": None}, "is free 50 s after it was given back"),
        ({"prefixes/a": {**BEFORE["prefixes/a"], "prefix": "fd12:3456:789a:3::/64", "generation": 4}}, "node a has another prefix"),
        (_given("fd12:3456:789a:1::1:1"), ""),
        (_given(TWO), f"{TWO} is given a second time"),
        (_given("fd12:3456:789a:1::7"), "is reserved, or not of"),
        (_given("fd12:3456:789a::1:9"), "is reserved, or not of"),
        (_placed("web2", 0, state="leaving"), "is told to go before its time"),
        (_placed("web2", 0, state="there"), "which was retired, counts as there"),
        (_placed("web3", 0, state="retired"), "was leaving, and is retired"),
        ({"endpoints/none/web2": None}, "is forgotten, and its node was not told"),
        ({"endpoints/none/web3": None}, "is forgotten by what node a said before it was told"),
        ({"nodes/a": None, "endpoints/none/web2": None}, "is forgotten with its node before its time"),
        (_placed("web1", 0, state="retired"), f"{NAME} leads to {ONE}, which is not there"),
        ({NAME: None, **NEXT}, f"{NAME} goes, and its guest is somewhere"),
        ({**_placed("web1", 0, kind="exporter"), NAME: None, **NEXT}, ""),
        ({NAME: {**BEFORE[NAME], "generation": 6}}, "changes without a generation of its zone"),
        ({NAME: {**BEFORE[NAME], "address": TWO, "node": "b", "generation": 6}, **NEXT}, f"{NAME} leads to {TWO}, which is not there"),
        ({"names/z/other.z": {**BEFORE[NAME], "generation": 6}, **NEXT}, f"lead to one address, {ONE}"),
        (
            {"endpoints/none/web1": {**BEFORE["endpoints/none/web1"], "generation": 4, "leads": "b"}},
            "leads to another node than its guest's",
        ),
        ({"zones/z": {"generation": 4}}, "the generation of zones/z goes back"),
    ],
)
def test_what_no_commit_may_leave_behind_is_seen(changes: dict[str, Any], says: str) -> None:
    commits = UnderlayCommits(lambda: 1000.0)
    commits.begin((key, json.dumps(value).encode()) for key, value in BEFORE.items())
    found = commits.commit((key, None if value is None else json.dumps(value).encode()) for key, value in changes.items())
    assert any(says in each for each in found) if says else found == [], found


def test_an_address_that_resolvers_may_know_does_not_go() -> None:
    times = {"fd12:3456:789a::1:1": 1095.0}
    commits = UnderlayCommits(lambda: 1100.0, lambda address: times.get(address, 0.0))
    commits.begin((key, json.dumps(value).encode()) for key, value in BEFORE.items())
    (said,) = commits.commit((key, json.dumps(value).encode()) for key, value in _placed("web2", 0, state="leaving").items())
    assert "a name server led to it within the last 10 s" in said


# -- scenarios

SETTINGS = """
[agent]
resync = 20
start_delay = 2
reap_interval = 3
reap_grace = 2
[registry]
compare_delay = 20
compare_interval = 60
[nic]
endpoints = ["console"]
"""


@pytest.mark.parametrize(
    ("fault", "given"), [("names", {"servers": 2}), ("names", {"servers": 0, "lost": 3}), ("fence", {}), ("forget", {}), ("agent", {})]
)
def test_whatever_goes_wrong_heals(tmp_path: Path, fault: str, given: dict[str, Any]) -> None:
    steps = [Step("create", given={"name": "web1", "node": "mock1", "nics": [{"network": "blue"}], "start": True})]
    for at in (5.0, 12.0, 40.0):
        steps.append(Step(fault, at=at, given=given, nodes="mock[12]" if FAULTS[fault].of_node else "*", lasts=9.0))
        steps.append(Step("migrate", at=at + 1.0, given={"name": "web1", "node": "mock*", "blind": True}))
        steps.append(Step("start", at=at + 15.0, given={"name": "web1"}))
    scenario = Scenario(3, "plain", SETTINGS, 90.0, {"blue": {"subnet": "192.0.2.0/24"}}, tuple(steps), 0, {**UNDERLAY, "others": 13})
    assert parsed(text(scenario)) == scenario
    result = play(scenario, str(tmp_path / "cloud"), 1)
    assert result.violations == (), result.outcomes
    assert any(each.text.startswith(f"{fault} of ") for each in result.outcomes)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ('zone = "hosts.example.com"', "scenario:1: underlay: expected prefix = a text"),
        ('prefix = "fd12::/64"', "scenario:2: prefix = 'fd12::/64': expected an IPv6 prefix of /48 to /60"),
        (f'prefix = "{SITE}"\nservers = 9', "scenario:3: servers = '9': expected a whole number from 1 to 4"),
        ("", "scenario:1: underlay: expected prefix = a text"),
        (
            f'prefix = "{SITE}"\n[networks.blue]\nsubnet6 = "fd12:3456:789a:7::/64"',
            "scenario:2: prefix = 'fd12:3456:789a::/60': expected a prefix beside",
        ),
        (f'prefix = "{SITE}"\ncolour = 9', "scenario:3: unknown setting colour; known: minimum_age, others, prefix"),
    ],
)
def test_an_underlay_that_is_none_is_refused(said: str, says: str) -> None:
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(f"[underlay]\n{said}\n")
    assert says in str(refused.value)
    with pytest.raises(ScenarioInvalid, match=r"expected a table \[underlay\]"):
        parsed("underlay = 1\n")


@pytest.mark.parametrize(
    ("before", "said", "says"),
    [
        (
            "nodes = 17\n",
            f'prefix = "{SITE}"',
            "scenario:3: prefix = 'fd12:3456:789a::/60': expected a shorter one: there are 17 nodes, and 16",
        ),
        ("etcd = 3\n", f'prefix = "{SITE}"\nservers = 2', "scenario:4: servers needs a registry in this process: expected no etcd = 3"),
        ("etcd = 3\n", f'prefix = "{SITE}"\n[[steps]]\nfault = "names"', "scenario:5: names needs a registry in this process"),
    ],
)
def test_what_its_registry_cannot_have_is_refused_with_its_line(before: str, said: str, says: str) -> None:
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(f"{before}[underlay]\n{said}\n")
    assert str(refused.value).startswith(says)
    with pytest.raises(ScenarioInvalid, match=r"scenario:2: names needs name servers: expected a table \[underlay\]"):
        parsed('[[steps]]\nfault = "names"\n')
    assert parsed(f'[underlay]\nprefix = "{SITE}"\n[[steps]]\nfault = "names"\n').steps[0].what == "names"


# -- what is drawn


def test_some_seeds_have_an_underlay_and_all_have_the_steps_that_they_had() -> None:
    having = 0
    for seed in range(100):
        there, before = draw(seed), Drawing(seed).scenario()
        having += bool(there.underlay)
        assert bool(there.underlay) == has_one(seed)
        assert tuple(step for step in there.steps if step.what not in WRONG) == before.steps
        assert there == before or (there.settings.startswith(before.settings) and there.networks == before.networks)
        assert parsed(text(there)) == there
    assert 20 <= having <= 40


@pytest.mark.parametrize("seed", range(1, 1 + drawn(1, 20, 200)))
def test_histories_violate_nothing(tmp_path: Path, seed: int) -> None:
    """Play 10,000 steps in a full run, and 100,000 of all that are drawn."""
    scenario = history(seed, drawn(60, 500, 500))
    assert parsed(text(scenario)) == scenario == history(seed, drawn(60, 500, 500))
    result = play(scenario, str(tmp_path / "cloud"), seed, hasty=True)
    assert result.violations == (), f"seed {seed}: {result.violations}"


# -- the commands


@pytest.fixture
def run(tmp_path: Path) -> Mockcloud:
    return Mockcloud(tmp_path / "cloud")


def test_a_cloud_is_made_with_an_underlay(run: Mockcloud) -> None:
    run("create", "2", "--underlay", "fd12:3456:789a::/48", "--zone", ZONE)
    run("network", "blue", "--subnet", "192.0.2.0/24")
    run("instance", "create", "web1", "--node", "mock1", "--nic", "network=blue", "--start")
    run("instance", "change", "web1", "0", "endpoints=console")
    run("instance", "migrate", "web1", "mock2")
    run("status", "--seconds", "10")
    run("create", "1", "--underlay", "fd12:3456:789a::/48")
    cloud = MockCloud(str(run.folder))
    try:
        cloud.start(10.0)
        assert [each["name"] for each in cloud.registry.client().all("names")] == [WEB1]
        assert cloud.own.names is not None
        assert [each.names for each in cloud.own.names.servers.values()] == [{WEB1: TWO}]
        assert len(list(cloud.registry.client().all("prefixes"))) == 3
    finally:
        cloud.close()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--underlay", "192.0.2.0/24"), 64, "expected an IPv6 prefix of /48 to /60"),
        (("--underlay", SITE, "--zone", "a b"), 64, "zone"),
        (("--zone", ZONE), 2, "give both"),
        (("--underlay", ""), 64, "--underlay='': expected PREFIX, or no such option"),
        (("--underlay", SITE, "--zone", ""), 64, "--zone='': expected ZONE, or no such option"),
        (("--registry", ""), 64, "--registry='': expected SOCKET|URL|etcd:N, or no such option"),
    ],
)
def test_bad_input_is_refused_and_begins_no_cloud(run: Mockcloud, words: tuple[str, ...], status: int, says: str) -> None:
    assert says in run("create", "2", *words, status=status)
    assert not run.folder.exists()
