"""Scenario files: what they hold is read, written and read again; what is wrong is refused with its line and what was expected."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from mockcloud.networks import network_uuid
from mockcloud.scenarios.file import Scenario, ScenarioInvalid, Step, parsed, read
from mockcloud.scenarios.writing import text
from mockcloud.sysinfo import node_uuid
from runtime.errors import HostRefused

WHOLE = '''nodes = 4
profile = "plain"
settings = """
[agent]
resync = 20  # "often"
"""
settle = 30

[networks.blue]
subnet = "192.0.2.0/24"

[[steps]]
at = 1
task = "create"
name = "web1"
node = "mock?"
nics = [{ network = "blue" }, { mode = "routed" }]
start = true

[[steps]]
step = 100
fault = "partition"
nodes = "mock[12]"
chance = 0.5
count = 1
way = "answers"
for = 12.5

[[steps]]
fault = "backup"
'''


def test_a_file_says_nodes_networks_and_steps(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WHOLE)
    found = read(str(tmp_path / "a.toml"))
    assert (found.nodes, found.settle, found.networks) == (4, 30.0, {"blue": {"subnet": "192.0.2.0/24"}})
    assert found.settings == '[agent]\nresync = 20  # "often"\n'
    create = {"name": "web1", "node": "mock?", "nics": [{"network": "blue"}, {"mode": "routed"}], "start": True}
    assert found.steps == (
        Step("create", at=1.0, given=create),
        Step("partition", step=100, given={"way": "answers"}, nodes="mock[12]", chance=0.5, number=1, lasts=12.5),
        Step("backup"),
    )
    assert [each.is_fault for each in found.steps] == [False, True, True]


def test_what_is_written_is_read_as_the_same() -> None:
    odd = Scenario(2, "single", '# "ü\U0001f600"\n', 1.5, {"a b": {"subnet": "10.0.0.0/8"}}, (Step("stop", given={"name": "we\\b"}),))
    for each in (parsed(WHOLE), odd, Scenario(), Scenario(etcd=3, steps=(Step("etcd", given={"lose": "kill 1", "back": "a 'b c'"}),))):
        assert parsed(text(each)) == each
    assert tomllib.loads(text(Scenario(settings="\x7f")))["settings"] == "\x7f"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("nodes = 4", "nodes = 0", 1, "nodes = '0': expected a whole number from 1 to 1000"),
        ("nodes = 4", "nodes = true", 1, "expected a whole number"),
        ('"plain"', '"huge"', 2, "expected one of plain, single"),
        ("settle = 30", "etcd = 7", 7, "etcd = '7': expected a whole number from 1 to 5"),
        ('fault = "backup"', 'fault = "etcd"\nmembers = 9', 31, "members = '9': expected a whole number from 1 to 5"),
        ('fault = "backup"', 'fault = "etcd"\nlose = 9', 31, "lose = '9': expected a text"),
        ("settle = 30", "settle = -1", 7, "expected a number from 0"),
        ("settle = 30", "settle = nan", 7, "expected a number from 0"),
        ("settle = 30", "colour = 1", 7, "unknown setting colour; known: etcd, networks, nodes"),
        ("subnet = ", "subnets = ", 10, "unknown setting subnets; known: gateway"),
        ("[networks.blue]\nsubnet", "[networks]\nsubnet", 10, "expected a table [networks.NAME]"),
        ('task = "create"', 'task = "paint"', 14, "task = 'paint': expected one of create, start"),
        ('task = "create"', "", 12, "expected task = NAME or fault = NAME"),
        ('name = "web1"', "", 12, "create: expected name = a text"),
        ('name = "web1"', "name = 1", 15, "name = '1': expected a text"),
        ("start = true", "start = 1", 18, "start = '1': expected true or false"),
        ("start = true", "way = 1", 18, "unknown setting way; known: at, chance, count, name, nics"),
        ("step = 100", "step = 100\nat = 1", 21, "expected at = SECONDS or step = NUMBER, one of the two"),
        ("chance = 0.5", "chance = 2", 24, "chance = '2': expected a number from 0 to 1"),
        ('"answers"', '"sideways"', 26, "way = 'sideways': expected one of both, answers, requests"),
        ('fault = "backup"', 'fault = "backup"\nfor = 3', 31, "unknown setting for; known: at"),
        ('fault = "backup"', 'fault = "restore"\ntask = "stop"', 29, "one of the two"),
        ("[[steps]]\nfault", "[steps]\nfault", 29, "Cannot declare"),
        ("settle = 30", "settle = ", 7, "Invalid value in 'settle ='"),
        ("settle = 30", "settle = 1" + "0" * 5000, 1, "a number of thousands of digits"),
        ("settle = 30", "settle = " + "[" * 5000, 1, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert WHOLE.count(old) == 1
    (tmp_path / "a.toml").write_text(WHOLE.replace(old, new))
    with pytest.raises(ScenarioInvalid) as refused:
        read(str(tmp_path / "a.toml"))
    told = [each for each in str(refused.value).split("\n") if each.startswith(f"a.toml:{line}: ")]
    assert any(says in each for each in told), refused.value


@pytest.mark.parametrize(
    ("etcd", "fault", "line", "says"),
    [
        ("", 'fault = "etcd"', 3, "etcd needs a registry in an etcd: expected etcd = NUMBER"),
        ("", 'fault = "etcd"\nlose = "a"\nback = "b"', 3, "etcd needs a registry in an etcd: expected etcd = NUMBER"),
        ("etcd = 3", 'fault = "etcd"\nlose = "a"', 2, "back='': expected a program and its arguments, as lose has"),
        ("etcd = 3", 'fault = "etcd"\nlose = "a \'b"\nback = "b"', 4, "expected a program and its arguments, with quotes that end"),
        ("etcd = 3", 'fault = "etcd"\nmembers = 4', 4, "members = 4: expected at most 3, as the etcd has"),
        ("etcd = 1", 'fault = "slow"', 3, "slow needs a registry in this process: expected no etcd = 1"),
        ("etcd = 1", 'fault = "restore"', 3, "restore needs a registry in this process: expected no etcd = 1"),
    ],
)
def test_a_fault_that_the_registry_cannot_have_is_refused(etcd: str, fault: str, line: int, says: str) -> None:
    """It was noted when it should have struck, and the run found nothing wrong."""
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(f"{etcd}\n[[steps]]\n{fault}\n")
    assert len(str(refused.value).split("\n")) == 1 and says in str(refused.value)
    assert str(refused.value).startswith(f"scenario:{line}: ")


UPDATE = 'task = "update"\nname = "web1"\n'


@pytest.mark.parametrize(
    ("step", "line", "says"),
    [
        ('fault = "slow"\nnodes = "mock1"', 3, "nodes = 'mock1': expected none: slow strikes the registry, and no node"),
        ('fault = "registry"\nchance = 0.0', 3, "chance = '0.0': expected none: registry strikes the registry"),
        ('fault = "copies"\nfor = 1\ncount = 2', 4, "count = '2': expected none: copies strikes the registry"),
        ('task = "stop"\nname = "web1"\nchance = 0.5', 4, "chance = '0.5': expected a name that is a pattern, among whose instances"),
        (f'{UPDATE}fields = {{ ip = "192.0.2.9" }}', 4, "update: expected nic = a whole number from 0 to 65535, whose fields these are"),
    ],
)
def test_what_nobody_would_heed_is_refused(step: str, line: int, says: str) -> None:
    """Refuse a field that its step would ignore: the step was taken all the same, or nothing was done, and the run did not say so."""
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(f"[[steps]]\n{step}\n")
    assert str(refused.value).startswith(f"scenario:{line}: {says}") and len(str(refused.value).split("\n")) == 1
    parsed(f'[[steps]]\n{UPDATE}fields = {{}}\n[[steps]]\ntask = "stop"\nname = "web*"\nchance = 0.5\nnodes = "mock1"\n')


CREATE = 'nodes = 2\n[networks.blue]\nsubnet = "192.0.2.0/24"\n[[steps]]\ntask = "create"\nname = "web1"\nnode = "mock1"\n'
SETTINGS = 'settings = """\n[nic]\nbogus = 1\nrate_in = "fast"\n"""\n'


@pytest.mark.parametrize(
    ("said", "line", "says"),
    [
        ('[networks.blue]\nsubnet = "192.0.2.0/33"', 2, "subnet = '192.0.2.0/33': expected an IPv4 prefix of /30 or wider"),
        ('[networks.blue]\nsubnet = "192.0.2.0/24"\ngateway = "10.0.0.1"', 3, "gateway = '10.0.0.1': expected an address in the network's"),
        ('[networks.blue]\ngateway6 = "2001:db8::x"', 2, "gateway6 = '2001:db8::x': expected an IPv6 address"),
        ('[networks.""]\nsubnet = "192.0.2.0/24"', 1, "name = '': expected a printable name"),
        ('[networks.mock-admin]\nsubnet = "192.0.2.0/24"', 2, "subnet = '192.0.2.0/24': expected 100.64.0.0/14: it is the network of"),
        ('[networks.mock-admin]\ngateway = "100.64.0.1"', 2, "gateway = '100.64.0.1': expected nothing: it is the network of"),
        (SETTINGS, 1, "settings, line 2: unknown setting nic.bogus"),
        (SETTINGS, 1, "settings, line 3: "),
        ("settings = '[[['", 1, "settings, line 1: "),
        (CREATE + 'nics = [{ netwrok = "blue" }]', 8, "unknown field 'netwrok' of a NIC; known: ip, link"),
        (CREATE + 'nics = [{ network = "blue" }, { network = "red" }]', 8, "network = 'red': expected a network of this file"),
        (CREATE.replace("mock1", "mock3"), 7, "node = 'mock3': expected one of mock1 to mock2"),
        (CREATE.replace("web1", "WEB 1"), 6, "name = 'WEB 1': expected 1 to 63 of a-z"),
        ('[[steps]]\ntask = "plug"\nname = "web*"\nfields = { modus = "routed" }', 4, "unknown field 'modus' of a NIC"),
        ('[[steps]]\ntask = "migrate"\nname = "web*"\nnode = "mok*"', 4, "node = 'mok*': expected one of mock1 to mock3"),
    ],
)
def test_what_its_cloud_would_refuse_is_said_with_its_line(said: str, line: int, says: str) -> None:
    """Name the line of a mistake that the cloud would refuse: it was an outcome of the run at most, or had neither a file nor a line."""
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(said)
    told = [each for each in str(refused.value).split("\n") if each.startswith(f"scenario:{line}: ")]
    assert any(says in each for each in told), refused.value
    assert len(told) == len({*told})


def test_what_its_cloud_can_have_is_taken() -> None:
    """Take a network by its name or UUID, the network of all nodes, and a node by its UUID."""
    for nics in (f'[{{ network = "{network_uuid("blue")}" }}, {{ network = "mock-admin", link = "br1" }}, {{ network = "" }}]', "[{}]"):
        parsed(f"{CREATE}nics = {nics}")
    parsed(CREATE.replace("mock1", node_uuid(2)))
    parsed('[networks.six]\nsubnet6 = "2001:DB8::/64"\ngateway6 = "fe80::1"\n[networks.none]\n')


def test_every_mistake_is_said_at_once() -> None:
    with pytest.raises(ScenarioInvalid) as refused:
        parsed(WHOLE.replace("nodes = 4", "nodes = 0").replace("chance = 0.5", "chance = 2"))
    assert [each.partition(": ")[0] for each in str(refused.value).split("\n")] == ["scenario:1", "scenario:24"]


@pytest.mark.parametrize("said", ["steps = 1", "steps = [1]", "networks = 1", "[steps]\na = 1"])
def test_what_is_no_table_is_refused(said: str) -> None:
    with pytest.raises(ScenarioInvalid, match=r"^scenario:1: (steps|networks).*expected tables"):
        parsed(said)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostRefused, match=r"cannot read .*: No such file or directory"):
        read(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"nodes = 3\n# \xff\n")
    with pytest.raises(ScenarioInvalid, match=r"bytes\.toml:2: is not UTF-8"):
        read(str(tmp_path / "bytes.toml"))
    (tmp_path / "large.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ScenarioInvalid, match="is larger than 1048576 bytes"):
        read(str(tmp_path / "large.toml"))
