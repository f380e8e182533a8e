"""What every command prints with --json is as its schema in docs/schemas says, and the schemas are as the types say."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

import netagent.observe.control
from netagent.observe.status import document
from netcommon.cli.group import netcommon
from netcommon.dns.guest import Guest
from netcommon.dns.guest import Nic as DnsNic
from netcommon.dns.store import FOLDER, Intent, Store
from netregistry.authority import key_files, x509
from netregistry.stores.sqlite import SqliteStore
from runtime import membership
from runtime.locks import Locks
from tests.support.bootstrap import ROOT
from tests.support.cli import BRIDGED, UUIDS, Cli, equipped, with_two
from tests.support.ganeti_configuration import NICS, Cluster, GanetiNode
from tests.support.registry import NODES
from tests.support.service import served
from tests.support.standing import AGENT, standing

FOLDER_OF_SCHEMAS = ROOT / "docs" / "schemas"
SCHEMAS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER_OF_SCHEMAS.glob("*.json"))}
NIC = ("--interface", "tap7", "--mode", "bridged", "--link", "br0", "--mac", "aa:00:00:00:00:07", "--tag", "netcommon:*:rate_in:8mbit")

#: Arguments, exit status, and the schema, of two NICs that are up on a node; each command at least once.
CASES: tuple[tuple[tuple[str, ...], int | None, str], ...] = (
    (("define", "--interface", "tap7", "--mode", "ext", "--tag", "a"), 0, "define"),
    (("define", "--remove", "--interface", "tap1"), 0, "define"),
    (("define", "--interface", "a/b", "--mode", "ext"), 64, "error"),
    (("plan", "tap0"), 0, "plan"),
    (("plan", *NIC), 0, "plan"),
    (("plan", "tap0", "--resolve"), 0, "plan"),
    (("up", "--all"), 0, "outcomes"),
    (("up", "tap9"), 64, "error"),
    (("down", "--all", "--force"), 0, "outcomes"),
    (("down", "tap9"), 0, "outcomes"),
    (("change", "tap0", "rate_in=8mbit"), 0, "outcomes"),
    (("change", "--all", "isolated=yes", "--dry-run"), 0, "change"),
    (("change", "tap0", "rate_in=fast"), 64, "error"),
    (("list",), 0, "list"),
    (("list", "--cluster"), 69, "error"),
    (("show", "tap0", "tap1"), 0, "show"),
    (("tree",), 0, "tree"),
    (("graph",), 0, "tree"),
    (("explain", "web1"), 0, "explain"),
    (("trace", "tap0"), 0, "trace"),
    (("top", "--once"), 0, "top"),
    (("events",), 0, "event"),
    (("check",), 0, "check"),
    (("repair", "--all"), 0, "outcomes"),
    (("repair", "--all", "--dry-run"), 0, "check"),
    (("gc",), 0, "gc"),
    (("adopt", "--all"), 0, "adopt"),
    (("agent", "status"), 1, "agent"),
    (("dns", "list"), 0, "dns-list"),
    (("dns", "sync", "--all"), 0, "dns-sync"),
    (("config",), 0, "config"),
    (("upgrade",), 0, "outcomes"),
    (("doctor",), None, "doctor"),
    (("install", "--qemu"), 0, "install"),
    (("install", "--qemu", "--dry-run"), 0, "install"),
    (("registry", "init"), 69, "error"),
    (("registry", "backup", "copy"), 0, "registry-file"),
    (("registry", "pages"), 0, "registry-pages"),
    (("registry", "restore", "none"), 69, "error"),
    (("registry", "move", "--to", "etcd://192.0.2.1"), 69, "error"),
    (("registry", "import", "none"), 69, "error"),
    (("registry", "import", "/dev/null"), 64, "error"),
    (("registry", "import", "lines"), 69, "registry-import"),
    (("registry", "import", "--ganeti"), 0, "registry-import-ganeti"),
    (("registry", "compact"), 0, "registry-compact"),
    (("registry", "node", "fence", "node0"), 0, "registry-change"),
    (("registry", "node", "join", "node7", "--dry-run"), 0, "registry-change"),
    (("registry", "authority", "list"), 0, "registry"),
    (("registry", "authority", "rotate"), 0, "registry-change"),
    (("registry", "authority", "retire", "00000000"), 64, "error"),
    (("registry", "token", "list"), 0, "registry"),
    (("registry", "token", "create", "node", "node0"), 0, "registry-change"),
    (("registry", "token", "revoke", "11111111"), 0, "registry-change"),
    (("registry", "certificate", "list"), 0, "registry"),
    (("registry", "certificate", "revoke", "node", "node0"), 0, "registry-change"),
    (("registry", "join", "https://localhost", "token"), 64, "error"),
    (("registry", "status"), 0, "registry-status"),
    (("registry", "find", "web"), 0, "registry"),
    (("registry", "conflicts"), 0, "registry"),
    (("registry", "history"), 0, "registry"),
    (("registry", "network", "add", "green", "mtu=1400"), 0, "registry-change"),
    (("registry", "network", "set", "blue", "mtu=1400", "--dry-run"), 0, "registry-change"),
    (("registry", "network", "set", "red", "mtu=1400"), 64, "error"),
    (("registry", "network", "delete", "blue"), 69, "error"),
    (("registry", "network", "list"), 0, "registry"),
    (("registry", "network", "show", "blue"), 0, "registry"),
    (("registry", "network", "reserve", "blue", "192.0.2.9", "--reason", "router"), 0, "registry-change"),
    (("registry", "network", "release", "blue", "192.0.2.8", "--dry-run"), 0, "registry-change"),
    (("registry", "nic", "add", "instance=web2", "allocate=mac"), 0, "registry-change"),
    (("registry", "nic", "set", "web1/0", "name=x"), 0, "registry-change"),
    (("registry", "nic", "unset", "web1/0", "name"), 0, "registry-change"),
    (("registry", "nic", "allocate", "web1/0", "ipv4"), 0, "registry-change"),
    (("registry", "nic", "reserve", "web1/0"), 0, "registry-change"),
    (("registry", "nic", "delete", "web1/0"), 0, "registry-change"),
    (("registry", "settings"), 0, "registry"),
    (("registry", "settings", "quarantine=60"), 0, "registry-change"),
    (("registry", "underlay", "show"), 64, "error"),
    (("registry", "underlay", "init", "fd12::/48", "--dry-run"), 0, "registry-change"),
    (("registry", "underlay", "init", "fd12::/48"), 0, "registry-change"),
    (("registry", "underlay", "where", "web1"), 64, "error"),
    (("registry", "underlay", "quarantine"), 0, "registry"),
    (("registry", "underlay", "quarantine", "--release", "fd12::1"), 64, "error"),
    (("registry", "underlay", "fence", "node0", "--yes"), 0, "registry-change"),
    (("registry", "nic", "list", "network=blue"), 0, "registry"),
    (("registry", "nic", "show", "web1/0"), 0, "registry"),
    (("registry", "node", "list"), 0, "registry"),
    (("registry", "node", "show", "node0"), 0, "registry"),
    (("registry", "node", "set", "node0", "provides=blue"), 0, "registry-change"),
    (("registry", "node", "forget", "node0", "--dry-run"), 0, "registry-change"),
    (("registry", "node", "reap", "--dry-run"), 0, "registry"),
)
#: Commands that are groups of others.
GROUPS = ("agent", "dns", "registry")
INNER = tuple(("registry", kind) for kind in ("network", "nic", "node", "authority", "token", "certificate", "underlay"))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    made = with_two(equipped(tmp_path))
    made.features = {"bridge": ""}
    (tmp_path / "etc").mkdir(exist_ok=True)
    said = document(standing(), 1100.0, {"inventory": "it failed"}, AGENT)
    monkeypatch.setattr(netagent.observe.control, "ask", lambda *_: said)
    return made


@pytest.fixture
def names(node: Cli) -> None:
    """One instance whose records wait for a server."""
    store = Store(str(node.root) + FOLDER, lambda folder: Locks(folder, time.monotonic() + 5, time.monotonic, time.sleep))
    store.write(Intent(Guest("web.example.com", "c", (DnsNic("192.0.2.10"),)), ("web.example.com",)))
    store.close()
    Path(node.paths.config).write_text(f'[dns]\nservers = ["127.0.0.1:1"]\nzones = ["example.com"]\nkey_file = "{node.root}/key"\n')
    key = Path(node.root, "key")
    key.write_text('key "gnt." {\n\talgorithm hmac-sha512;\n\tsecret "YS8vYg==";\n};\n')
    key.chmod(0o600)


@pytest.fixture
def registry(node: Cli, request: pytest.FixtureRequest) -> Iterator[None]:
    """A service with a network, a NIC and a node, for the commands that ask one."""
    if "registry" not in request.node.name:
        yield
        return
    folder, run = node.root / "var/lib/netregistry", node.root / "run/netregistry"
    folder.mkdir(parents=True)
    run.mkdir(parents=True)
    with served(run, store=SqliteStore.create(str(folder / "registry.sqlite"), "first")) as service:
        asked = service.client()
        network = asked.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"}).body["uuid"]
        asked.change("POST", "nics", {"network": network, "instance": "web1", "index": 0, "allocate": ["ipv4"]})
        asked.change("PUT", f"claims/addresses/{network}/192.0.2.8", {"reason": "router"})
        service.join(0)
        authority = x509.make_authority(1.7e9)
        key_files.keep(str(folder / "authority"), authority)
        asked.change("POST", "authorities", {"certificate": authority.authority.certificate})
        asked.change("POST", "tokens", {"id": "11111111", "proof": "0" * 64, "role": "reader", "name": "ann"})
        asked.change("POST", "certificates/revoke", {"role": "reader", "name": "bob"})
        if "reap" in request.node.name:
            membership.write(node.paths, membership.Membership(NODES[0], "node0"))
        (node.root / "lines").write_text(
            '{"kind":"registry","value":{"version":1}}\n{"kind":"reservation","key":"x","value":{"reason":"y"}}\n'
        )
        ganeti, cluster = GanetiNode(node.root), Cluster()
        cluster.nic(NICS[0])
        ganeti.write(cluster)
        ganeti.start()
        with contextlib.chdir(node.root):
            yield
        ganeti.stop()


def errors(schema: dict[str, Any], value: object, strict: bool) -> list[str]:
    """What of ``value`` is not as ``schema`` says. ``strict``: fields that no schema names are errors too."""
    validator = Draft202012Validator(closed(schema) if strict else schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def closed(schema: Any) -> Any:
    """The schema, with no other fields than those that it names wherever it names any."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(one) for name, one in schema.items()}
    return made if not isinstance(schema.get("properties"), dict) else {"additionalProperties": False, **made}


def checked(node: Cli, arguments: tuple[str, ...], status: int | None) -> tuple[str, list[str]]:
    """The schema's name, and what is wrong with what was printed."""
    text = node(*arguments, "--json", status=status).stdout
    said = [json.loads(line) for line in text.splitlines()] if arguments[0] in LINES else [json.loads(text)]
    name = said[0]["schema"]
    return name, [wrong for one in said for wrong in errors(SCHEMAS[name], one, strict=name not in LOOSE)]


#: Commands that print one document a line.
LINES = ("events",)
#: Documents with the fields of a definition, or of a kind of operation, beside their own.
LOOSE = ("netcommon-define", "netcommon-plan")


@pytest.mark.parametrize(("arguments", "status", "name"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_a_command_prints_what_its_schema_says(
    node: Cli, names: None, registry: None, arguments: tuple[str, ...], status: int | None, name: str
) -> None:
    if arguments[:2] == ("dns", "sync"):
        status = None  # no server answers: which status that is is another test's
    assert checked(node, arguments, status) == (f"netcommon-{name}", [])


def drifted(node: Cli) -> None:
    link = node.host.kernel.named("tap0")
    assert link
    node.host.kernel.links[link.index] = link._replace(mtu=1500, master=0)


def gone(node: Cli) -> None:
    node.host.remove_link("tap1")


def strange(node: Cli) -> None:
    path = Path(node.paths.state, "nics", f"{UUIDS[0]}.json")
    stored = json.loads(path.read_text())
    stored["operations"].append({"kind": "quantum-leap", "depth": 3})
    path.write_text(json.dumps(stored))


def defined(node: Cli) -> None:
    node("down", "--all", "--force")


def damaged(node: Cli) -> None:
    Path(node.paths.state, "nics", f"{UUIDS[0]}.json").write_text("{")


LOOKING = [("list",), ("show", "tap1"), ("tree",), ("explain", "tap1"), ("check",), ("repair", "--all", "--dry-run"), ("gc", "--dry-run")]
LOOKING += [("gc",), ("top", "--once"), ("doctor",), ("up", "--all")]


@pytest.mark.parametrize("change", [drifted, gone, strange, defined, damaged])
@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_also_where_something_is_wrong(node: Cli, change: Callable[[Cli], None], arguments: tuple[str, ...]) -> None:
    change(node)
    assert checked(node, arguments, None)[1] == []


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is no group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*above, name))
        else:
            yield (*above, name), found


def test_every_command_with_json_is_tried_and_has_a_schema_that_names_it() -> None:
    answering = {names for names, one in commands(netcommon) if any("--json" in each.opts for each in one.params)}
    tried = {case[0][: 3 if case[0][:2] in INNER else 2 if case[0][0] in GROUPS else 1] for case in CASES}
    assert answering == tried
    said = " ".join(schema["description"] for schema in SCHEMAS.values())
    assert [names for names in answering if f"netcommon {' '.join(names)} --json" not in said] == []
    assert {f"netcommon-{case[2]}" for case in CASES} == {name for name in SCHEMAS if name.startswith("netcommon-")}


def test_the_schemas_are_as_the_types_say() -> None:
    made = [sys.executable, str(ROOT / "packaging" / "make-schemas")]
    done = subprocess.run([*made, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_schema_that_is_out_of_date_is_seen(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging", ignore=shutil.ignore_patterns("deb", "__pycache__"))
    for name in ("netcommon", "runtime", "netagent", "netregistry"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(FOLDER_OF_SCHEMAS, tmp_path / "docs" / "schemas")
    path = tmp_path / "docs" / "schemas" / "netcommon-gc.json"
    path.write_text(path.read_text().replace('"kept"', '"left"'))
    (path.parent / "netcommon-nobody.json").write_text("{}")
    made = [sys.executable, str(tmp_path / "packaging" / "make-schemas")]
    done = subprocess.run([*made, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "netcommon-gc.json is out of date" in done.stderr and "netcommon-nobody.json" in done.stderr
    subprocess.run(made, check=True, capture_output=True)
    subprocess.run([*made, "--check"], check=True)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_a_field_that_no_schema_names_is_seen() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {}}}}}}
    assert errors(schema, {"a": [{"b": 1}]}, strict=True) == []
    assert "'c'" in errors(schema, {"a": [{"c": 1}]}, strict=True)[0] and "'d'" in errors(schema, {"d": 1}, strict=True)[0]
    assert errors(schema, {"a": [{"c": 1}], "d": 1}, strict=False) == []


def test_an_error_is_a_document_too(node: Cli) -> None:
    node(*BRIDGED)
    said = json.loads(node("show", "nobody", "--json", status=64).stdout)
    assert said["status"] == 64 and errors(SCHEMAS["netcommon-error"], said, strict=True) == []
