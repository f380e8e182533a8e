"""mockcloud import and rehearse as commands: what they print, and what bad input gets."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from mockcloud.cli.group import mockcloud as group
from mockcloud.rehearsal.command import COMMANDS
from mockcloud.rehearsal.copied import CLUSTER, REST, lines_of
from netcommon import __version__
from tests.support.bootstrap import ROOT
from tests.support.ganeti_configuration import MASTERS, NETWORKS, NICS, Cluster
from tests.support.rehearsing import NODES, RealNode, copy, nic
from tests.support.rehearsing import UUIDS as NIC_UUIDS

SCHEMAS = {name: json.loads((ROOT / "docs" / "schemas" / f"mockcloud-{name}.json").read_text()) for name in COMMANDS}
EXPORT = b"".join(lines_of(copy()))


class Mockcloud:
    """``mockcloud("import", ...)`` runs the command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, data: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def __call__(self, *words: str, status: int = 0, stdin: bytes | None = None) -> Any:
        """Give what it has printed on stdout; where it fails, the lines on stderr."""
        result = CliRunner().invoke(group, words, input=stdin, prog_name="mockcloud", catch_exceptions=False)
        assert result.exit_code == status, f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result.stdout if status == 0 or not result.stderr else result.stderr

    def json(self, *words: str, status: int = 0) -> Any:
        said = json.loads(self(*words, "--json", status=status))
        Draft202012Validator(SCHEMAS[words[0]]).validate(said)
        assert (said["schema"], said["version"]) == (f"mockcloud-{words[0]}", 1)
        assert set(said) == set(SCHEMAS[words[0]]["properties"])
        return said


@pytest.fixture
def mockcloud(tmp_path: Path) -> Mockcloud:
    return Mockcloud(tmp_path)


@pytest.fixture
def copied(mockcloud: Mockcloud) -> str:
    """A copy of a Ganeti cluster: one instance on each node, one of them stopped."""
    return made(mockcloud, "copy")


def configuration() -> Cluster:
    cluster = Cluster()
    cluster.network(NETWORKS[0], "blue", gateway="192.0.2.1")
    for number, (name, uuid) in enumerate(MASTERS.items()):
        cluster.nic(NICS[number], instance=f"web{number}", ip=f"192.0.2.{number + 5}", network=NETWORKS[0])
        instance = cluster.instance(f"web{number}")
        instance |= {"primary_node": uuid, "admin_state": "up" if name.startswith("node1") else "down"}
    return cluster


def made(mockcloud: Mockcloud, folder: str, *words: str) -> str:
    path = str(mockcloud.folder / folder)
    mockcloud("import", path, mockcloud.write("config.data", configuration().data), *words)
    return path


RATE = '[nic]\nrate_in = "8mbit"\n'


def test_a_ganeti_cluster_is_copied_and_rehearsed(mockcloud: Mockcloud, copied: str) -> None:
    said = mockcloud.json("rehearse", copied, "--settings", mockcloud.write("new.toml", RATE))
    assert (said["nics"], said["nodes"], said["unplaced"], said["change"], said["refused"]) == (2, 2, 0, 2, 0)
    assert [(one["nic"], one["node"], one["needs"]) for one in said["results"]] == [
        ("web0/0", "node1.example.com", []),
        ("web1/0", "node2.example.com", ["start"]),
    ]
    assert [one["kind"] for one in said["results"][0]["done"]] == ["shaper"]
    assert said["settings"] == [{"node": "", "key": "nic.rate_in", "before": "0", "after": "8000000", "source": "new.toml:2", "needs": ""}]
    assert said["requests"] > 0 and said["seconds"] > 0


def test_it_is_said_in_a_table_and_in_words(mockcloud: Mockcloud, copied: str) -> None:
    new = mockcloud.write("new.toml", RATE)
    table = mockcloud("rehearse", copied, "--settings", new)
    assert "2 NICs on 2 nodes: 2 would change, 0 would be refused, 0 stay as they are" in table
    row = next(line for line in table.splitlines() if line.startswith("2 "))
    assert "rate_in = 8mbit, is none" in table and "shaper" in table, row
    words = mockcloud("rehearse", copied, "--settings", new, "--each")
    assert "web0/0 on node1.example.com: would change" in words and "  done: tc qdisc" in words


def test_settings_that_are_the_same_change_nothing(mockcloud: Mockcloud) -> None:
    old = mockcloud.write("old.toml", RATE)
    folder = made(mockcloud, "copy", "--settings", old)
    said = mockcloud.json("rehearse", folder, "--settings", old)
    assert (said["change"], said["settings"], said["requests"]) == (0, [], 0)


def test_a_node_keeps_its_own_settings(mockcloud: Mockcloud) -> None:
    own = mockcloud.write("own.toml", '[nic]\nrate_in = "1mbit"\n')
    folder = made(mockcloud, "copy", "--settings", f"node2.example.com={own}")
    said = mockcloud.json("rehearse", folder, "--settings", mockcloud.write("new.toml", RATE))
    assert [(one["nic"], one["changed"]) for one in said["results"]] == [("web0/0", True), ("web1/0", False)]
    assert any("node2.example.com" in note for note in said["notes"])
    both = mockcloud.json("rehearse", folder, "--settings", f"node2.example.com={mockcloud.write('new.toml', RATE)}")
    assert [(one["nic"], one["changed"]) for one in both["results"]] == [("web0/0", False), ("web1/0", True)]


def test_what_else_takes_a_setting_is_said(mockcloud: Mockcloud, copied: str) -> None:
    new = mockcloud.write("new.toml", "[agent]\nresync = 5\n[registry]\nlisten = ['192.0.2.1:8443']\n")
    needs = {one["key"]: one["needs"] for one in mockcloud.json("rehearse", copied, "--settings", new)["settings"]}
    assert needs == {"agent.resync": "systemctl reload netcommon-agent", "registry.listen": "systemctl restart netcommon-registry"}


def test_what_the_agent_alone_takes_is_said(mockcloud: Mockcloud, copied: str) -> None:
    """`change --all` makes no NIC anew by them, or the registry is told of what a guest has by the agent's last reload."""
    text = '[underlay]\ndevice = "dummy0"\n[nic]\nendpoints = ["console"]\nrate_in = "1mbit"\n[networks.blue]\nendpoints = ["exporter"]\n'
    needs = {
        one["key"]: one["needs"] for one in mockcloud.json("rehearse", copied, "--settings", mockcloud.write("new.toml", text))["settings"]
    }
    reload = "systemctl reload netcommon-agent"
    assert needs == {"underlay.device": reload, "nic.endpoints": reload, "nic.rate_in": "", "networks.blue.endpoints": reload}


def test_extensions_are_left_out_and_named(mockcloud: Mockcloud, copied: str) -> None:
    new = mockcloud.write("new.toml", '[extensions.vpn]\nadds = "feature"\n')
    assert any("vpn" in note for note in mockcloud.json("rehearse", copied, "--settings", new)["notes"])


def test_an_export_is_copied_whole(mockcloud: Mockcloud) -> None:
    folder = str(mockcloud.folder / "copy")
    said = mockcloud.json("import", folder, mockcloud.write("export", EXPORT))
    assert (said["origin"], said["nics"], said["networks"], said["nodes"], said["placed"]) == ("registry", 5, 1, 2, 0)
    assert Path(folder, CLUSTER).read_bytes() == EXPORT
    found = mockcloud.json("rehearse", folder, "--settings", mockcloud.write("new.toml", RATE))
    assert (found["unplaced"], found["nodes"], found["change"]) == (5, 0, 5)


def test_what_is_seen_says_where_a_nic_is(mockcloud: Mockcloud) -> None:
    lines = [json.loads(line) for line in EXPORT.splitlines()]
    nics = [line["value"] for line in lines if line["kind"] == "nic"]
    shown = [
        {"state": "running", "nodes": [NODES[0].uuid]},
        {"state": "stopped", "nodes": [NODES[1].uuid]},
    ]
    items = [{"revision": "a:1", "nic": nic, "shown": one, "label": "x"} for nic, one in zip(nics, shown, strict=False)]
    nodes = [{"node": line["value"], "about": {"bridges": ["br7"]}} for line in lines if line["kind"] == "node"]
    seen = [
        mockcloud.write(name, json.dumps({"schema": "netcommon-registry", "version": 1, "items": each}))
        for name, each in (("nics", items), ("nodes", nodes))
    ]
    folder = str(mockcloud.folder / "copy")
    said = mockcloud.json("import", folder, mockcloud.write("export", EXPORT), "--seen", seen[0], "--seen", seen[1])
    assert said["placed"] == 2
    found = mockcloud.json("rehearse", folder, "--settings", mockcloud.write("new.toml", RATE), status=69)
    rows = {one["nic"]: one for one in found["results"]}
    assert (rows["web1/0"]["node"], rows["web2/0"]["running"], rows["web3/0"]["node"]) == ("node1", False, "")
    assert "br0" in rows["web1/0"]["refused"]["text"]  # that node says that it has br7 alone
    assert rows["web3/0"]["changed"]


def test_tags_are_rehearsed(mockcloud: Mockcloud, copied: str) -> None:
    said = mockcloud.json("rehearse", copied, "--tags", "web0=netcommon:0:rate_in:8mbit,other")
    assert [(one["nic"], one["changed"]) for one in said["results"]] == [("web0/0", True), ("web1/0", False)]
    found = mockcloud.json("rehearse", copied, "--tags", "web0=netcommon:0:rate_in:fast", status=64)
    why = found["results"][0]["refused"]
    assert (why["variable"], why["value"]) == ("TAGS", "netcommon:0:rate_in:fast") and "rate_in" in why["expected"]


def test_tags_that_nothing_follows_from_are_on_record_alone(mockcloud: Mockcloud, copied: str) -> None:
    words = ("rehearse", copied, "--tags", "web0=other")
    said = mockcloud.json(*words)
    assert (said["change"], said["recorded"], said["requests"]) == (0, 1, 0)
    assert [(one["nic"], one["changed"], one["recorded"]) for one in said["results"]] == [("web0/0", False, True), ("web1/0", False, False)]
    table = mockcloud(*words)
    assert "0 would change, 1 would be on record alone, 0 would be refused, 1 stay as they are" in table
    assert [line.split() for line in table.splitlines() if line.startswith("1 ")] == [["1", "web0/0", "on", "record", "alone", *"----"]]
    lines = mockcloud(*words, "--each").splitlines()
    assert "web0/0 on node1.example.com: would be on record, and change nothing" in lines
    assert not any("CPU" in line for line in (*lines, *table.splitlines())), "nothing was changed on a host"


def of_ganeti(**fields: Any) -> bytes:
    """Give a configuration whose instances have these fields."""
    document = json.loads(configuration().data)
    for instance in document["instances"].values():
        instance.update(fields)
    return json.dumps(document).encode()


Wrong = Callable[[Mockcloud, str], tuple[str, ...]]

#: What is wrong, the exit status, and what the one line names.
WRONG: dict[str, tuple[Wrong, int, tuple[str, ...]]] = {
    "config.data cut off": (lambda m, _c: ("import", f"{m.folder}/x", m.write("c", configuration().data[:-9])), 69, ("not whole",)),
    "config.data of a newer version": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("c", configuration().data.replace(b"3000000", b"3990000"))),
        69,
        ("'3990000'", "3.2"),
    ),
    "config.data with an instance that has no name": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("c", of_ganeti(name=None))),
        69,
        ("no name",),
    ),
    "config.data with a node that is none": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("c", of_ganeti(primary_node=["node1"]))),
        69,
        ("primary_node is", "not as Ganeti 3 writes it"),
    ),
    "an export of a newer version": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT.replace(b'"version":1', b'"version":2', 1))),
        64,
        ("line 1", "version 1"),
    ),
    "an export cut off": (lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT[:-9])), 64, ("line 9", "cut off")),
    "nothing": (lambda m, _c: ("import", f"{m.folder}/x", m.write("e", b"")), 64, ("line 1",)),
    "an export with one NIC twice": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT + EXPORT.splitlines(keepends=True)[-1])),
        64,
        ("line 10", "once"),
    ),
    "no file": (lambda m, _c: ("import", f"{m.folder}/x", f"{m.folder}/none"), 69, ("none",)),
    "a folder that is there": (lambda m, c: ("import", c, m.write("e", EXPORT)), 69, ("is there already",)),
    "settings of the copy": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT), "--settings", m.write("old.toml", "[nic]\nrate_in = 'x'\n")),
        78,
        ("old.toml:2", "nic.rate_in", "expected"),
    ),
    "what is seen": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT), "--seen", m.write("seen", "[]")),
        64,
        ("seen", "nic list --json"),
    ),
    "new settings": (lambda m, c: ("rehearse", c, "--settings", m.write("new.toml", "[nic]\nfirewall = 'x'\n")), 78, ("new.toml:2", "'x'")),
    "no TOML": (lambda m, c: ("rehearse", c, "--settings", m.write("new.toml", "[nic]\nfirewall = \n")), 78, ("new.toml:2",)),
    "a node that is none": (lambda m, c: ("rehearse", c, "--settings", f"node9={m.write('new.toml', RATE)}"), 64, ("'node9'", "node1")),
    "two files for one": (
        lambda m, c: ("rehearse", c, "--settings", m.write("a.toml", RATE), "--settings", m.write("b.toml", RATE)),
        64,
        ("all nodes",),
    ),
    "no tags": (lambda _m, c: ("rehearse", c, "--tags", "web0"), 64, ("INSTANCE=TAG",)),
    "tags that are none": (lambda _m, c: ("rehearse", c, "--tags", "web0=a\x1b[31mb"), 64, ("\\x1b", "letters")),
    "tags of nobody": (lambda _m, c: ("rehearse", c, "--tags", "web9=a"), 64, ("'web9'", "an instance of the copy")),
    "records of a node that is none": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT), "--records", f"node9={m.folder}"),
        64,
        ("--records", "'node9'"),
    ),
    "records that are none": (
        lambda m, _c: ("import", f"{m.folder}/x", m.write("e", EXPORT), "--records", f"node1={m.folder}/none"),
        69,
        ("cannot read",),
    ),
    "no copy": (lambda m, _c: ("rehearse", str(m.folder), "--tags", "web0="), 69, (REST,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_refused_in_one_line(mockcloud: Mockcloud, copied: str, name: str) -> None:
    words, status, named = WRONG[name]
    before = sorted(path.name for path in mockcloud.folder.iterdir())
    line, *more = mockcloud(*words(mockcloud, copied), status=status).splitlines()
    assert [text for text in named if text not in line] == [] and "\x1b" not in line
    assert all(each.startswith("mockcloud: next: ") for each in more) and len(more) <= 1
    assert not (mockcloud.folder / "x").exists()
    assert [name for name in sorted(path.name for path in mockcloud.folder.iterdir()) if name.startswith(".") and name not in before] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "mockcloud-copy", "version": 2}', '{"schema": "mockcloud-copy", "version": 1}'])
def test_a_copy_that_somebody_has_edited_is_refused(mockcloud: Mockcloud, copied: str, text: str) -> None:
    Path(copied, REST).write_text(text)
    assert REST in mockcloud("rehearse", copied, "--tags", "web0=", status=64).splitlines()[0]


def test_a_settings_file_outside_of_the_copy_is_not_read(mockcloud: Mockcloud) -> None:
    folder = made(mockcloud, "copy", "--settings", mockcloud.write("old.toml", RATE))
    said = json.loads(Path(folder, REST).read_text())
    said["settings"][0][2] = "../../secret"
    Path(folder, REST).write_text(json.dumps(said))
    mockcloud("rehearse", folder, "--tags", "web0=", status=64)


@pytest.fixture
def recorded(mockcloud: Mockcloud) -> Path:
    """The records of a node on which the copy's NICs are up."""
    node = RealNode(mockcloud.folder / "node", copy(), RATE)
    return Path(node.cli.paths.state, "nics")


def upgraded(mockcloud: Mockcloud, recorded: Path, status: int = 0) -> Any:
    folder, old = str(mockcloud.folder / "copy"), mockcloud.write("old.toml", RATE)
    export = mockcloud.write("export", EXPORT)
    mockcloud("import", folder, export, "--settings", old, "--records", f"node1={recorded.parent}")
    mockcloud("rehearse", folder, "--upgrade", __version__, "--each", status=status)
    found = mockcloud.json("rehearse", folder, "--upgrade", __version__, status=status)
    return {one["nic"]: one for one in found["upgrade"]}


def edited(path: Path, **fields: Any) -> None:
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, **fields}))


def test_an_upgrade_to_the_version_that_was_there_changes_nothing(mockcloud: Mockcloud, recorded: Path) -> None:
    found = upgraded(mockcloud, recorded)
    assert sorted(found) == [f"web{number}/0" for number in range(1, 6)]
    assert [one for one in found.values() if one["also"] or one["no_more"] or one["unknown"] or one["refused"] or one["rewritten"]] == []


def test_what_an_earlier_version_has_not_done_is_said(mockcloud: Mockcloud, recorded: Path) -> None:
    path = recorded / f"{NIC_UUIDS[1]}.json"
    operations = json.loads(path.read_text())["operations"]
    less = [each for each in operations if each["kind"] != "shaper"]
    edited(path, operations=[*less, {"kind": "quantum-leap", "depth": 3}])
    found = upgraded(mockcloud, recorded)
    assert [one["kind"] for one in found["web1/0"]["also"]] == ["shaper"] and found["web1/0"]["no_more"] == []
    assert found["web1/0"]["unknown"] == ["quantum-leap"]
    assert found["web3/0"]["also"] == []


def test_a_record_that_cannot_be_read_is_named(mockcloud: Mockcloud, recorded: Path) -> None:
    edited(recorded / f"{NIC_UUIDS[1]}.json", schema=99)
    (recorded / f"{NIC_UUIDS[2]}.json").write_text("{")
    found = upgraded(mockcloud, recorded, status=69)
    assert found[""]["refused"]["status"] == 69 and len(found) == 4


def test_another_version_is_rehearsed_by_its_own_mockcloud(mockcloud: Mockcloud, copied: str) -> None:
    line = mockcloud("rehearse", copied, "--upgrade", "9.9\x1b", status=69).splitlines()[0]
    assert "'9.9\\x1b'" in line and __version__ in line
    assert "--records" in mockcloud("rehearse", copied, "--upgrade", __version__, status=69)


def test_nics_that_no_hypervisor_brings_up_are_counted(mockcloud: Mockcloud) -> None:
    folder, export = str(mockcloud.folder / "copy"), b"".join(lines_of(copy([nic(1, "", ""), nic(2, "bridged", "br0")])))
    mockcloud("import", folder, mockcloud.write("export", export))
    said = mockcloud.json("rehearse", folder, "--settings", mockcloud.write("new.toml", RATE))
    assert said["nics"] == 1 and any(note.startswith("1 NICs have no mode") for note in said["notes"])


def test_something_must_change(mockcloud: Mockcloud, copied: str) -> None:
    assert "--settings, --tags or --upgrade" in mockcloud("rehearse", copied, status=2)
