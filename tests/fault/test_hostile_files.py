"""Hostile environments, records, hypervisors' files, settings, definitions and tags: a typed error or a valid NIC each, nothing else.

A million of them together with tests/fault/test_hostile_replies.py in a full run, a hundredth of that otherwise.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.lifecycle import execute
from netcommon.operations.link import orphan
from netcommon.options.schema import OPTIONS
from netcommon.options.sources import options_of
from netcommon.plan.planner import plan
from netcommon.scripts import site as custom
from netcommon.settings import parse as settings_file
from netcommon.settings.model import Settings
from runtime import definitions, ganeti, xen
from runtime.environment import down_hint, environment_of, nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.record import SCHEMA, Record, from_json, to_json
from tests.support import figures
from tests.support.hostile import Target, attempt, sweep
from tests.support.mutate import TEXTS, Mutator
from tests.support.sim import MODES, Sim
from tests.support.sim import nic as sim_nic
from tests.support.watch import WATCH

FIXTURES = Path(__file__).parents[1] / "fixtures/ganeti"
UUID = "13264fb6-0667-415f-9a43-786dc01cbf24"
HOSTNAME = "inst1.gnt.example"
VARIABLES = (
    "INTERFACE", "MODE", "LINK", "BRIDGE", "MAC", "IP", "VLAN", "INSTANCE", "INTERFACE_INDEX", "INTERFACE_UUID", "INTERFACE_NAME", "TAGS",
    "NETWORK_NAME", "NETWORK_UUID", "NETWORK_SUBNET", "NETWORK_SUBNET6", "NETWORK_GATEWAY", "NETWORK_GATEWAY6", "NETWORK_MAC_PREFIX",
    "NETWORK_TAGS", "PATH", "ACTION",
)  # fmt: skip


def real_environments() -> list[dict[str, str]]:
    """What Ganeti gave its scripts, and one for each thing that a NIC can ask for."""
    found = []
    for path in sorted(FIXTURES.rglob("*.environ")):
        pairs = [os.fsdecode(pair).partition("=") for pair in path.read_bytes().replace(b"\n", b"\0").split(b"\0") if b"=" in pair]
        found.append({name: value for name, _, value in pairs})
    return [one for one in found if one.get("MODE")] + [environment_of(sim_nic(mode)) for mode in MODES]


ENVIRONMENTS = real_environments()


def as_given(text: str) -> str:
    """What a process finds in its environment of any text: bytes without a NUL, decoded as os.environ does."""
    return os.fsdecode(text.encode("utf-8", "surrogatepass").replace(b"\0", b""))


def environment(mutator: Mutator) -> tuple[dict[str, str], list[str]]:
    """A real environment with up to four variables changed, exchanged or added, and an argument now and then."""
    random = mutator.random
    made = dict(random.choice(ENVIRONMENTS))
    for _ in range(random.choice((1, 1, 2, 4))):
        name = random.choice(VARIABLES)
        match random.randrange(4):
            case 0:
                made[name] = made.get(random.choice(VARIABLES), "")
            case 1:
                made.pop(name, None)
            case _:
                made[name] = as_given(mutator.text(made.get(name, "")))
    device = made.get("INTERFACE", "tap0")
    return made, random.choice(([], [], [device], [f"b'{device}'"], [as_given(mutator.text(device))], [""]))


def sane(nic: Nic) -> None:
    """What nothing else may ever have to check again: no value leads out of a folder, starts an option, or splits a line."""
    for name in (nic.interface, nic.instance, nic.uuid, nic.mac):
        assert "/" not in name and name not in (".", "..") and name.isprintable() and not name.startswith("-"), name
    assert nic.interface and len(nic.interface.encode()) <= 15 and " " not in nic.interface
    for text in (nic.link, nic.name, nic.ip, *nic.tags, *nic.network[:-1], *nic.network.tags):
        assert text.isprintable() and "\n" not in text, text
    assert nic.mode == "ext" or "/" not in nic.link, nic.link
    again = nic_from_environment(environment_of(nic))
    assert again._replace(environment={}) == nic._replace(environment={})


def read_environment(made: tuple[dict[str, str], list[str]]) -> None:
    variables, argv = made
    problem: NetcommonError | None = None
    try:
        hint = down_hint(variables, argv)
        assert "/" not in hint.device + hint.instance + hint.uuid
    except NetcommonError as error:
        problem = error
    nic = nic_from_environment(variables, argv)
    assert problem is None, problem
    sane(nic)
    record = Record(nic, 7, "boot", 1)
    assert from_json(to_json(record)) == record._replace(schema=SCHEMA)  # it is written as we write them now
    custom.environment(custom.Call(nic.interface, "up", nic.environment, nic.uuid))
    options_of(nic, Settings())
    for operation in plan(nic, Settings()):
        assert operation.describe().isprintable() or nic.mode == "ext", operation


def a_tag(mutator: Mutator) -> str:
    """A tag of ours with a value, or nearly."""
    random = mutator.random
    option = random.choice(OPTIONS).name
    values = ("yes", "no", "100mbit", "fe80::1", "10.0.0.0/24", "aa:00:00:00:00:01", "none", "1", "", "strict")
    selector = random.choice(("0", "*", UUID, "", "eth0", "1"))
    tag = ":".join(filter(None, ("netcommon", selector, option, random.choice(values))))
    return as_given(mutator.text(tag)) if random.randrange(2) else tag


def tagged(mutator: Mutator) -> dict[str, str]:
    tags = " ".join(a_tag(mutator) for _ in range(mutator.random.choice((1, 2, 5))))
    network = " ".join(a_tag(mutator) for _ in range(mutator.random.choice((0, 1))))
    return {**mutator.random.choice(ENVIRONMENTS), "INTERFACE_UUID": UUID, "TAGS": tags, "NETWORK_TAGS": network}


def read_tags(variables: dict[str, str]) -> None:
    nic = nic_from_environment(variables)
    options_of(nic, Settings())
    plan(nic, Settings())


def real_records(folder: str) -> list[Any]:
    """The record of one NIC of each kind, as an up writes it."""
    found = []
    for number, mode in enumerate(MODES):
        sim = Sim(f"{folder}/{number}")
        one = sim_nic(mode)
        sim.up(one)
        found.append(json.loads(to_json(sim.record(one.uuid))))
        sim.node.store.close()
    sim = Sim(f"{folder}/waiting")
    sim.host.remove_link("eth-brv")
    sim.up(sim_nic("bridged, access"))
    found.append(json.loads(to_json(sim.record())))
    return found


def read_record(data: bytes, view: Any) -> None:
    """And all that is asked of its operations without a net below."""
    record = from_json(data)
    sane(record.nic)
    assert from_json(to_json(record)) == record._replace(schema=SCHEMA)  # it is written as we write them now
    custom.environment(custom.Call(record.device, "up", record.nic.environment, record.uuid))
    known, unknown = execute.decode(record)
    assert len(known) + len(unknown) == len(record.operations)
    for operation in known:
        for each in (operation, orphan(operation)):
            each.describe(), each.undo(), each.place(), each.identity(), each.exclusive(), each.unmarked(), each.effects()
            assert all(isinstance(key, str) and key for key in each.shared())
    drifted = [operation for operation, _text in execute.drift(view, known)]
    assert all(isinstance(operation.idle(view), str) for operation in known if operation not in drifted)


def runtimes() -> list[Any]:
    return [json.loads(path.read_bytes()) for path in sorted(FIXTURES.rglob("*.runtime"))]


def read_runtime(data: bytes) -> None:
    """The file's problems are values; its NICs are judged like any environment."""
    runtime = ganeti.parse_runtime(data, HOSTNAME)
    assert all(problem.isprintable() for problem in runtime.problems)
    for nic in runtime.nics:
        identity = nic.identity(HOSTNAME)
        assert not identity or (runtime.by_uuid(identity) is not None and len(identity) == 36)
        attempted = attempt(nic_from_environment, nic.environment(HOSTNAME, "tap0"))
        assert not attempted, attempted


class NicFiles:
    """Ganeti's run folder with one file of hostile name and content at a time."""

    NAMES = ("0", "1", "00", "65536", UUID, UUID.upper(), "-1", "\u0660", ".hidden", "..x", "a b", "0\n", "\udcff")
    TARGETS = (UUID, "0", "../inst2/0", "/etc/passwd", "../../../../etc/passwd", ".", "0/..", "\udcff")

    def __init__(self, root: str) -> None:
        self.paths = Paths.under(root)
        self.folder = f"{self.paths.kvm_run}/nic/{HOSTNAME}"
        self.pid = f"{self.paths.kvm_run}/pid"
        os.makedirs(self.folder)
        os.makedirs(self.pid)

    def make(self, mutator: Mutator) -> tuple[str, str, bytes]:
        random = mutator.random
        return random.choice(self.NAMES), random.choice(("", "", *self.TARGETS)), mutator.blob()

    def read(self, made: tuple[str, str, bytes]) -> None:
        name, target, data = made
        path = os.fsencode(f"{self.folder}/{name}")
        with WATCH.aside():
            for place in (path, os.fsencode(f"{self.pid}/{HOSTNAME}")):
                with open(place, "wb") as file:
                    file.write(data)
            if target:
                os.unlink(path)
                os.symlink(os.fsencode(target), path)
        try:
            found = ganeti.nic_files(self.paths, HOSTNAME)
            for tap in found.values():
                assert "/" not in tap and len(tap.encode()) <= 15
                assert ganeti.instances_with_tap(self.paths, tap) == [HOSTNAME]
            assert 0 <= ganeti.instance_pid(self.paths, HOSTNAME) < 1 << 31
        finally:
            os.unlink(path)


def read_xen(data: bytes) -> None:
    variables = xen.parse(data)
    assert all("\n" not in value for value in variables.values())
    sane(nic_from_environment({**variables, "INSTANCE": HOSTNAME, "INTERFACE": "vif1.0"}))


class SettingsFile:
    """One settings file, written anew for each input."""

    def __init__(self, root: str) -> None:
        self.path = f"{root}/config.toml"

    def read(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        loaded = settings_file.read(descriptor, self.path)
        assert all(line.source and line.key for line in settings_file.effective(loaded))
        attempted = attempt(lambda nic: plan(nic, loaded.settings), sim_nic("routed"))
        assert not attempted, attempted


def real_settings() -> tuple[bytes, ...]:
    """The example sites' files, and one with every setting there is, as the defaults have it."""
    examples = [path.read_bytes() for path in sorted((FIXTURES.parents[2] / "examples").rglob("*.toml"))]
    every = [f"{line.key} = {_toml(line.value)}" for line in settings_file.effective(settings_file.Loaded())]
    whole = [("\n".join(each for each in every if "None" not in each) + "\n").encode()]
    made = b'[nic]\nspoof_guard = false\nrate_in = "10mbit"\n[networks."net one"]\nisolated = true\n[bridges.br0]\nuplinks = ["eth0"]\n'
    good = [one for one in (*examples, *whole, made) if _is_toml(one)]
    assert len(good) > 2
    return tuple(good)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _is_toml(data: bytes) -> bool:
    tomllib.loads(data.decode())
    return True


def read_definition(data: bytes) -> None:
    nic = definitions.parse(data, UUID, f"/etc/netcommon/nics.d/{UUID}.toml")
    sane(nic)
    assert definitions.parse(definitions.render(nic), UUID, "x")._replace(environment={}) == nic._replace(environment={})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the readers may look, below watched/; simulated nodes have their files beside it."""
    made = tmp_path_factory.mktemp("hostile")
    (made / "watched").mkdir()
    return made


@pytest.fixture(scope="module")
def targets(place: Path) -> dict[str, Target]:
    """Every reader of something that others write, by name."""
    root = str(place / "watched")
    records = real_records(str(place / "sims"))
    sim = Sim(str(place / "sim"))
    view = sim.host.view()
    files, settings = NicFiles(root), SettingsFile(root)
    made = [nic_from_environment(one) for one in ENVIRONMENTS if attempt(nic_from_environment, one) is None]
    xens = tuple(path.read_bytes() for path in sorted((FIXTURES / "xen-nic-files").rglob("*")) if path.is_file())
    every_runtime = runtimes()
    found = [
        Target("environment", 200_000, environment, read_environment),
        Target("tags", 150_000, tagged, read_tags),
        Target(
            "record",
            120_000,
            lambda mutator: mutator.json(mutator.random.choice(records)),
            lambda data: read_record(data, view),
            tuple(json.dumps(one).encode() for one in records),
        ),
        Target("runtime file", 90_000, lambda mutator: mutator.json(mutator.random.choice(every_runtime)), read_runtime),
        Target("nic file", 10_000, files.make, files.read, (b"tap0", b"tap1\n", b"123", b"")),
        Target("xen nic file", 150_000, Mutator.blob, read_xen, xens),
        Target("settings", 10_000, Mutator.blob, settings.read, real_settings()),
        Target("definition", 80_000, Mutator.blob, read_definition, tuple(definitions.render(nic) for nic in made)),
    ]
    return {target.name: target for target in found}


NAMES = ("environment", "tags", "record", "runtime file", "nic file", "xen nic file", "settings", "definition")


@pytest.mark.parametrize("name", NAMES)
def test_a_typed_error_or_a_valid_value(targets: dict[str, Target], place: Path, name: str) -> None:
    report = sweep(targets[name], str(place / "watched"))
    figures.add("hostile-input", report.tried, len(report.failures), len(report.failures))
    assert not report.failures, "\n".join(report.failures)
    assert report.good > report.tried // 200, report  # else nothing but the first check was ever tried


def bombs() -> dict[str, list[bytes]]:
    """Small or as large as is read, and dear to take apart: deep, long, or square."""
    megabyte = 1 << 20
    deep = [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 900 + b"]" * 900, b'{"a":' * 900 + b"1" + b"}" * 900]
    numbers = [b"[" + b"9" * 5000 + b"]", b"[" + (b"9" * 4299 + b",") * 900 + b"0]"]
    nics = [b"[[], [" + b"{}," * (4 * megabyte // 3) + b"{}], {}]", b"[[], [" + b"1," * (2 * megabyte) + b"1], {}]"]
    texts = [b"x" * (4 * megabyte), b"\xff" * (4 * megabyte), b"=" * megabyte, b"\n" * megabyte, b"A=\n" * (megabyte // 3)]
    quoted = [b'TAGS="' + b"a\\ " * (megabyte // 3) + b'"', b'TAGS="' + b"\\" * megabyte, b"INTERFACE_NAME=" + b"x" * megabyte]
    toml = [
        b"x = " + b"[" * 2000 + b"]" * 2000,
        b"x = " + b"{a=" * 400 + b"1" + b"}" * 400,
        b".".join([b"a"] * 3000) + b" = 1",
        b"[" + b".".join([b"a"] * 3000) + b"]",
        b"[hook]\n" + b"".join(b"k%d = 1\n" % number for number in range(20_000)),
        b"[dns]\nzones = [\n" + b'"example.com",\n' * 10_000 + b"]\n",
        b'[hook]\nx = """' + b"\n" * 100_000 + b'"""\n',
        b"x = " + b"9" * 100_000,
        b"x = 1." + b"9" * 100_000,
    ]
    return {
        "record": [*deep, *numbers, *texts],
        "runtime file": [*deep, *numbers, *nics, *texts],
        "xen nic file": [*texts, *quoted, *deep],
        "settings": [*toml, *texts],
        "definition": [*toml, *texts],
    }


@pytest.mark.parametrize("name", list(bombs()))
def test_what_is_dear_to_take_apart(targets: dict[str, Target], place: Path, name: str) -> None:
    """In no time, and with no memory to speak of."""
    dear = iter(bombs()[name])
    target = targets[name]._replace(make=lambda mutator: next(dear))
    report = sweep(target, str(place / "watched"), len(bombs()[name]))
    figures.add("hostile-input", report.tried, len(report.failures), len(report.failures))
    assert not report.failures, "\n".join(report.failures)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=20,
)
NAMED = st.dictionaries(st.sampled_from(VARIABLES) | st.text(max_size=8), st.text() | st.sampled_from(TEXTS), max_size=12)


@given(NAMED, st.sampled_from(ENVIRONMENTS), st.lists(st.text(), max_size=2))
def test_any_environment(changes: dict[str, str], base: dict[str, str], argv: list[str]) -> None:
    """Hypothesis shrinks what it finds to the least."""
    variables = {name: as_given(value) for name, value in {**base, **changes}.items()}
    assert not attempt(read_environment, (variables, [as_given(word) for word in argv]))


@given(JSON, st.data())
def test_any_json(place: Path, targets: dict[str, Target], value: Any, data: st.DataObject) -> None:
    """Alone, and in the place of a field of a real record."""
    whole = json.loads(targets["record"].seeds[0])
    name = data.draw(st.sampled_from(sorted(whole)))
    for document in (value, [[], [value], {}], {**whole, name: value}):
        text = json.dumps(document).encode()
        assert not attempt(targets["record"].read, text)
        assert not attempt(read_runtime, text)


@given(st.binary(max_size=200), st.text(max_size=200))
def test_any_bytes(targets: dict[str, Target], data: bytes, text: str) -> None:
    for name in ("record", "runtime file", "xen nic file", "settings", "definition"):
        for each in (data, text.encode("utf-8", "surrogatepass")):
            assert not attempt(targets[name].read, each)
