"""netcommon registry: a registry is made, served, asked, copied and brought back as an operator types it."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import get_type_hints

import aiohttp
import pytest

from netcommon.cli.registry_client import TIMES
from netregistry.model import kinds
from netregistry.model.claim import Claim
from netregistry.model.history import Entry
from netregistry.model.nic import Nic, Option, Report
from netregistry.model.node import About, Alive, Node, Reports
from netregistry.service.answers import NodeItem
from netregistry.stores.base import Unavailable
from netregistry.stores.sqlite import SqliteStore
from tests.support.cli import Cli
from tests.support.netns import wait_until
from tests.support.registry import NODES
from tests.support.service import Served, served


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "run/netregistry").mkdir(parents=True)
    return Cli(tmp_path)


@contextlib.contextmanager
def running(cli: Cli) -> Iterator[Served]:
    """Serve what `init` has made."""
    with served(cli.root / "run/netregistry", store=SqliteStore(str(cli.root / "var/lib/netregistry/registry.sqlite"))) as service:
        yield service


@pytest.fixture
def service(cli: Cli) -> Iterator[Served]:
    cli("registry", "init")
    with running(cli) as found:
        yield found


def test_networks_and_nics_as_an_operator_types_them(cli: Cli, service: Served) -> None:
    cli(
        *["registry", "network", "add", "blue", "subnet=192.0.2.0/24", "gateway=192.0.2.1", "ranges=192.0.2.10-192.0.2.12"],
        "routes=10.0.0.0/8 via 192.0.2.2",
    )
    made = cli(*["registry", "nic", "add", "network=blue", "instance=web1", "index=0", "allocate=ipv4", "options.isolated=yes"]).stdout
    assert "192.0.2.10" in made
    cli(*["registry", "nic", "set", "web1/0", "options.rate_in=8mbit", "owner=alice", "--for", "2h"])
    (nic,) = cli.json("registry", "nic", "show", "192.0.2.10")["items"]
    assert nic["nic"]["owner"] == "alice"
    assert [(each["name"], each["value"], each["until"] > 0) for each in nic["nic"]["options"]] == [
        ("isolated", "yes", False),
        ("rate_in", "8mbit", True),
    ]
    cli(*["registry", "nic", "unset", "web1/0", "options.isolated", "owner"])
    shown = cli("registry", "nic", "show", nic["nic"]["mac"]).stdout
    assert "isolated" not in shown and "alice" not in shown and "rate_in=8mbit" in shown and "provisioning" in shown
    assert cli("registry", "nic", "list", "network=blue").stdout.splitlines()[1].split()[:2] == ["web1/0", "provisioning"]
    assert cli("registry", "nic", "list", "instance=web9").stdout == "no nics\n"
    cli("registry", "network", "reserve", "blue", "192.0.2.11", "--reason", "printer")
    cli("registry", "nic", "allocate", "web1/0", "ipv4")
    (nic,) = cli.json("registry", "nic", "show", "web1/0")["items"]
    assert nic["nic"]["addresses"] == ["192.0.2.12"]
    assert "web1/0" in cli("registry", "find", "2.12").stdout
    assert "no conflicts" in cli("registry", "conflicts").stdout
    for name in ("web1/0", "192.0.2.12", nic["nic"]["uuid"]):
        said = cli("registry", "history", name).stdout
        assert "nic.add" in said and "network.add" not in said
    assert "network.add" in cli("registry", "history", "blue", "--by", "root").stdout
    assert cli("registry", "history", "--by", "alice").stdout == "nothing was changed\n"
    assert "find looks for a part" in cli("registry", "history", "web", status=64).stderr
    cli("registry", "nic", "delete", "web1/0")
    cli("registry", "network", "delete", "blue")
    history = cli("registry", "history").stdout
    assert "network.delete" in history and "operator root" in history
    assert cli("registry", "network", "list").stdout == "no networks\n"


def test_a_nic_is_added_once_to_a_place_of_its_instance(cli: Cli, service: Served) -> None:
    """Two were made, and web1/0 named none of them from then on."""
    cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    add = "registry", "nic", "add", "network=blue", "instance=web1"
    cli(*add, "index=0", "allocate=ipv4")
    for more in ((), ("--dry-run",)):
        assert "NIC web1/0 is there already (" in (said := cli(*add, "index=0", "allocate=ipv4", *more, status=69).stderr)
        assert "netcommon registry nic set web1/0 changes it" in said
    cli(*add, "index=1")
    cli(*add, "index=0", "cluster=other")
    cli("registry", "nic", "add", "network=blue", "instance=web10", "index=0")
    cli(*add, "name=own")
    cli(*add)
    assert len(cli.json("registry", "nic", "list")["items"]) == 6


def test_what_is_reserved_is_for_its_instance_alone(cli: Cli, service: Served) -> None:
    cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    cli("registry", "network", "reserve", "blue", "192.0.2.9", "--reason", "moves here", "--instance", "web1")
    refused = cli("registry", "nic", "add", "network=blue", "instance=web2", "ip=192.0.2.9", status=69).stderr
    assert "reserved for web1: moves here" in refused
    cli("registry", "nic", "add", "network=blue", "instance=web1", "index=0", "ip=192.0.2.9")
    cli("registry", "nic", "add", "network=blue", "instance=web3", "index=0", "ip=192.0.2.7")
    cli("registry", "nic", "reserve", "web3/0")
    cli("registry", "nic", "delete", "web3/0")
    assert "web3/0 had it" in cli("registry", "nic", "add", "network=blue", "ip=192.0.2.7", status=69).stderr
    cli("registry", "nic", "add", "network=blue", "instance=web3", "ip=192.0.2.7")


def test_times_are_said_as_people_read_them(cli: Cli, service: Served) -> None:
    """In a refusal, of an option that ends, since when, and of what would be."""
    when = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")
    cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    cli("registry", "nic", "add", "network=blue", "instance=web1", "index=0", "ip=192.0.2.9")
    cli("registry", "nic", "set", "web1/0", "options.rate_in=8mbit", "--for", "2h")
    (nic,) = cli.json("registry", "nic", "show", "web1/0")["items"]
    shown = dict(line.split(maxsplit=1) for line in cli("registry", "nic", "show", "web1/0").stdout.splitlines())
    assert datetime.fromisoformat(shown["since"]).timestamp() == int(nic["shown"]["since"])
    option, until = shown["options"].split(" until ")
    assert (option, datetime.fromisoformat(until).timestamp()) == ("rate_in=8mbit", int(nic["nic"]["options"][0]["until"]))
    would = cli("registry", "nic", "delete", "web1/0", "--dry-run").stdout
    assert len(when.findall(would)) == 4, f"since when its MAC and its address would be free, and until when in quarantine: {would}"
    cli("registry", "nic", "delete", "web1/0")
    refused = cli("registry", "nic", "add", "network=blue", "ip=192.0.2.9", status=69).stderr
    (claim,) = service.client().all("claims", kind="addresses")
    (said,) = when.findall(refused)
    assert datetime.fromisoformat(said).timestamp() == int(claim["claim"]["until"])


def test_what_is_not_given_out_is_found(cli: Cli, service: Served) -> None:
    """By its address, and by why; as long as that is so."""
    cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
    cli("registry", "network", "reserve", "blue", "192.0.2.10", "--reason", "the printer")
    for part in ("192.0.2.10", "Printer"):
        assert cli("registry", "find", part).stdout.splitlines()[1].split(maxsplit=1) == ["address", "reserved: the printer  192.0.2.10  -"]
    cli("registry", "nic", "add", "network=blue", "instance=web1", "index=0", "ip=192.0.2.9")
    assert len(cli("registry", "find", "192.0.2.9").stdout.splitlines()) == 2
    cli("registry", "nic", "delete", "web1/0")
    assert "in quarantine until 2" in cli("registry", "find", "192.0.2.9").stdout
    cli("registry", "network", "release", "blue", "192.0.2.9")
    cli("registry", "network", "release", "blue", "192.0.2.10")
    for part in ("192.0.2.10", "192.0.2.9"):
        (line,) = cli("registry", "find", part).stdout.splitlines()[1:]
        assert line.split()[:3] == ["network", "blue", "192.0.2.0/24"], "it is free"
    assert cli("registry", "find", "198.51.100.1").stdout == "nothing has that\n"


@pytest.mark.parametrize("model", [Claim, Nic, Option, Report, Node, About, Reports, Alive, NodeItem, Entry])
def test_every_time_of_the_model_is_known_as_one(model: type) -> None:
    """They are said as times; a number of seconds since 1970 tells nobody anything."""
    hints = get_type_hints(model, include_extras=True)
    times = {name for name, hint in hints.items() if hint in (kinds.Time, float)}
    assert times <= TIMES


def test_settings_are_shown_and_changed(cli: Cli, service: Served) -> None:
    assert "02:6e:63" in cli("registry", "settings").stdout
    cli("registry", "settings", "mac_prefix=aa:00:00", "quarantine=60")
    assert "MAC aa:00:00:" in cli("registry", "nic", "add").stdout.replace("made: ", "MAC ")
    assert "three to five octets" in cli("registry", "settings", "mac_prefix=x", status=64).stderr


def test_who_it_was_is_who_called_sudo(cli: Cli, service: Served) -> None:
    cli.environ = {"SUDO_USER": "alice"}
    cli("registry", "network", "add", "blue")
    assert "operator alice" in cli("registry", "history", "--action", "network.add").stdout


def test_a_rehearsal_changes_nothing(cli: Cli, service: Served) -> None:
    before = service.everything()
    said = cli("registry", "network", "add", "blue", "--dry-run").stdout
    assert said.startswith("would be network blue made") and service.everything() == before
    cli("registry", "network", "add", "blue")
    assert "mtu - -> 1400" in cli("registry", "network", "set", "blue", "mtu=1400", "--dry-run").stdout
    assert cli.json("registry", "network", "set", "blue", "mtu=1400", "--dry-run")["done"] is False
    assert cli.json("registry", "network", "list")["items"][0]["network"]["mtu"] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("network set red mtu=1400", 64, "netcommon registry network list"),
        ("network add green mtu=many", 64, "a number"),
        ("network add green mtu", 64, "FIELD=VALUE"),
        ("network add green colour=red", 64, "no such field"),
        ("network add green routes=10.0.0.0/8", 64, "via ADDRESS"),
        ("nic show web9/0", 64, "netcommon registry nic list"),
        ("nic set web1 mtu=1400", 69, "netcommon registry network set blue mtu="),
        ("nic set web1 primary=perhaps", 64, "yes or no"),
        ("nic set web1 options.rate_in=8mbit --for ever", 64, "90s"),
        ("nic unset web1 uuid", 64, "may be unset"),
        ("nic unset web1 options.rate_in", 64, "an option that is set"),
        ("nic add network=blue ip=192.0.2.7", 69, "web1"),
        ("nic list colour=red", 64, "no such parameter"),
        ("network delete blue", 69, "web1"),
        ("node show node9", 64, "netcommon registry node list"),
        ("history --since never", 64, "--since"),
        ("init", 69, "is there already"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(cli: Cli, service: Served, arguments: str, status: int, words: str) -> None:
    cli(*["registry", "network", "add", "blue", "subnet=192.0.2.0/24"])
    cli(*["registry", "nic", "add", "network=blue", "instance=web1", "ip=192.0.2.7"])
    before = service.everything()
    result = cli("registry", *arguments.split(), status=status)
    assert words in result.stderr and service.everything() == before


def test_nodes(cli: Cli, service: Served) -> None:
    service.join(0)
    cli("registry", "node", "set", "node0", "provides=blue,green", "cluster=gnt.example.com")
    (row,) = cli("registry", "node", "list").stdout.splitlines()[1:]
    assert row.split()[:3] == ["node0", "gnt.example.com", "gone"] and "blue, green" in row
    assert NODES[0] in cli("registry", "node", "show", "node0").stdout
    nic = service.client().change("POST", "nics", {}).body["uuid"]
    service.client(f"node:{NODES[0]}").change(
        "POST", f"nodes/{NODES[0]}/reports", {"after": f"{service.store.epoch}:0", "nics": [{"nic": nic, "state": "running"}]}
    )
    assert " unknown " in cli("registry", "nic", "list", "node=node0").stdout
    assert "would be node node0 fenced: 1 NICs" in cli("registry", "node", "fence", "node0", "--dry-run").stdout
    assert "node node0 fenced: 1 NICs" in cli("registry", "node", "fence", "node0").stdout
    assert cli("registry", "nic", "list", "node=node0").stdout == "no nics\n"
    assert " provisioning " in cli("registry", "nic", "list").stdout
    cli("registry", "node", "forget", "node0")
    assert cli("registry", "node", "list").stdout == "no nodes\n"
    said = cli.json("registry", "status")
    assert said["nodes"] == 0 and said["epoch"] == service.store.epoch


def test_without_a_service_the_remedy_is_named(cli: Cli) -> None:
    assert "systemctl start netcommon-registry" in cli("registry", "status", status=69).stderr
    for command in (("backup", str(cli.root / "copy")), ("compact",), ("compact", "--dry-run")):
        said = cli("registry", *command, status=69).stderr  # one that is made for it would be empty
        assert "registry.sqlite is not there" in said and "token create operator NAME" in said and "registry init" not in said
    cli.uid = 1000
    for command in ("init", "serve", "backup x", "restore x"):
        assert "root" in cli("registry", *command.split(), status=69).stderr


def test_a_socket_that_a_killed_service_has_left_is_in_nobodys_way(cli: Cli) -> None:
    cli("registry", "init")
    place = cli.root / "run/netregistry/socket"
    place.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))
    cli("registry", "backup", str(cli.root / "copy"))
    assert cli.json("registry", "compact", "--dry-run")["done"] is False
    assert cli.json("registry", "compact")["done"] is True
    cli("registry", "restore", str(cli.root / "copy"))
    assert "nobody listens" in cli("registry", "export", status=69).stderr


def test_a_copy_is_brought_back_in_a_new_epoch(cli: Cli) -> None:
    cli("registry", "init")
    copies = [str(cli.root / name) for name in ("running", "stopped")]
    with running(cli) as service:
        cli("registry", "network", "add", "blue")
        cli("registry", "backup", copies[0])
        cli("registry", "backup", copies[0], status=69)
        cli("registry", "network", "add", "green")
        assert "stop the service first" in cli("registry", "restore", copies[0], status=75).stderr
        first = service.store.epoch
    cli("registry", "backup", copies[1])
    cli("registry", "restore", copies[0])
    with running(cli) as service:
        assert [item["network"]["name"] for item in cli.json("registry", "network", "list")["items"]] == ["blue"]
        assert service.store.epoch != first
    Path(copies[1]).write_bytes(b"not a registry" * 1000)
    before = {path.name: path.read_bytes() for path in (cli.root / "var/lib/netregistry").glob("*.*")}
    assert "damaged" in cli("registry", "restore", copies[1], status=69).stderr
    assert {path.name: path.read_bytes() for path in (cli.root / "var/lib/netregistry").glob("*.*")} == before
    damaged = cli.root / "var/lib/netregistry/registry.sqlite"
    damaged.write_bytes(b"not a registry" * 1000)
    cli("registry", "restore", copies[0])
    with running(cli):
        assert cli.json("registry", "network", "list")["items"][0]["network"]["name"] == "blue"


def test_what_a_node_is_told_is_printed(cli: Cli) -> None:
    cli("registry", "init")
    with ThreadPoolExecutor(1) as pool:
        with running(cli) as service:
            service.join(0)
            printed = pool.submit(cli, "registry", "watch", "node0")
            wait_until(lambda: service.client().get("status").body["streams"] == 1)
        lines = printed.result(20).stdout.splitlines()
    assert lines and all(json.loads(line)["event"] == "ready" for line in lines)


def test_what_was_exported_is_brought_into_another_registry(cli: Cli, tmp_path: Path) -> None:
    file, other = str(cli.root / "lines"), Cli(tmp_path / "other")
    (other.root / "run/netregistry").mkdir(parents=True)
    for each in (cli, other):
        each("registry", "init")
    with running(cli) as service:
        service.join(0)
        cli(*["registry", "network", "add", "blue", "subnet=192.0.2.0/24"])
        for number in range(3):
            cli(*["registry", "nic", "add", "network=blue", f"instance=web{number}", "index=0", "allocate=ipv4", "options.isolated=yes"])
        assert [line.split()[0] for line in cli("registry", "nic", "list").stdout.splitlines()] == ["NIC", "web0/0", "web1/0", "web2/0"]
        cli("registry", "export", file)
        assert "name another file" in cli("registry", "export", file, status=69).stderr
        assert cli("registry", "export").stdout == Path(file).read_text()
    with running(other) as service:
        before = service.everything()
        assert other("registry", "import", file, "--dry-run").stdout == "5 would be made, 1 there already, 0 would be refused\n"
        assert service.everything() == before
        cli_answer = other.json("registry", "import", file)
        assert (cli_answer["made"], cli_answer["there"], cli_answer["refused"]) == (5, 1, [])
        assert other("registry", "nic", "show", "web2/0").stdout.count("isolated=yes") == 1
        assert other("registry", "import", file).stdout == "0 made, 6 there already, 0 refused\n"
        other("registry", "nic", "set", "web1/0", "owner=alice")
        before = service.everything()
        rehearsed = other("registry", "import", file, "--dry-run", status=69)
        assert service.everything() == before
        refused = other("registry", "import", file, status=69)
        assert "there is a NIC" in refused.stderr and refused.stdout == "0 made, 5 there already, 1 refused\n"
        assert rehearsed.stderr == refused.stderr
        assert rehearsed.stdout == "0 would be made, 5 there already, 1 would be refused\n"
        Path(file).write_text(Path(file).read_text() + "x\n")
        assert "line 8" in other("registry", "import", file, status=64).stderr


def test_nics_of_a_forgotten_node_are_brought_into_another_registry(cli: Cli, tmp_path: Path) -> None:
    file, other = str(cli.root / "lines"), Cli(tmp_path / "other")
    (other.root / "run/netregistry").mkdir(parents=True)
    for each in (cli, other):
        each("registry", "init")
    with running(cli) as service:
        node = service.join(0)
        added = {"action": "nic.add", "body": {"mac": "02:00:00:00:00:09", "instance": "old", "index": 0, "found": True}}
        node.change("POST", "batch", {"parts": [added]})
        cli("registry", "network", "add", "blue", "subnet=192.0.2.0/24")
        cli("registry", "nic", "add", "network=blue", "instance=web1", "index=0", "allocate=ipv4")
        cli("registry", "network", "set", "blue", "owners=bob")
        cli("registry", "node", "forget", "node0")
        cli("registry", "export", file)
    with running(other):
        assert other("registry", "import", file, "--dry-run").stdout == "3 would be made, 1 there already, 0 would be refused\n"
        assert other("registry", "import", file).stdout == "3 made, 1 there already, 0 refused\n"
        assert other("registry", "import", file).stdout == "0 made, 4 there already, 0 refused\n"
        assert not json.loads(other("registry", "node", "list", "--json").stdout)["items"]
        assert other("registry", "nic", "show", "old/0").stdout.count(NODES[0])


def test_nothing_stays_of_what_there_is_no_room_for(cli: Cli, service: Served) -> None:
    cli("registry", "network", "add", "blue")
    file, limits = cli.root / "lines", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        refused = cli("registry", "export", str(file), status=69).stderr
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write" in refused and "room" in refused and not file.exists()
    cli("registry", "export", str(file))


def test_a_registry_is_compacted_running_or_not(cli: Cli) -> None:
    cli("registry", "init")
    with running(cli) as service:
        cli("registry", "network", "add", "blue")
        for number in range(300):
            service.client().change("PATCH", "settings", {"history_seconds": 86400.0 + number})
        before = service.everything()
        rehearsed = cli.json("registry", "compact", "--dry-run")
        assert service.everything() == before
        said = cli.json("registry", "compact")
        assert said["after"] < said["before"]
        assert rehearsed == {**said, "done": False} and said["done"]
        assert cli.json("registry", "network", "list")["items"][0]["network"]["name"] == "blue"
        cli("registry", "network", "add", "green")
    file = cli.root / "var/lib/netregistry/registry.sqlite"
    kept = file.read_bytes()
    would = cli("registry", "compact", "--dry-run").stdout
    assert file.read_bytes() == kept
    assert cli("registry", "compact").stdout == would.replace(" has ", " had ").replace(" would have ", " has ")
    with running(cli):
        assert [item["network"]["name"] for item in cli.json("registry", "network", "list")["items"]] != []


def test_how_a_browser_reaches_the_pages_is_said(cli: Cli) -> None:
    """By ssh always, by TLS where there is an address."""
    said = cli("registry", "pages").stdout
    assert f":{cli.root}/run/netregistry/pages root@" in said and "https" not in said
    (cli.root / "etc/netcommon").mkdir(parents=True, exist_ok=True)
    config = '[registry]\nlisten = ["192.0.2.1:8931"]\nnames = ["registry.example.com"]\n'
    (cli.root / "etc/netcommon/config.toml").write_text(config)
    told = cli.json("registry", "pages")
    assert told["addresses"] == ["https://registry.example.com:8931/"] and told["url"] == "http://localhost:8080/"
    said = cli("registry", "pages").stdout
    assert told["command"] in said and f"{told['identity']}/identity.pem" in said
    assert "https://registry.example.com:8931/" in said and "certificates/reader/identity.pem" in said


@pytest.mark.parametrize(("version", "words"), [("3.7.4.post0", "3.7.4.post0 is here"), ("", "needs aiohttp 3.8")])
def test_which_aiohttp_the_service_needs(cli: Cli, monkeypatch: pytest.MonkeyPatch, version: str, words: str) -> None:
    """That of Debian 12 is enough; an older one is no reason for a traceback in the middle of work."""
    if version:
        monkeypatch.setattr(aiohttp, "__version__", version)
    else:
        monkeypatch.setitem(sys.modules, "aiohttp", None)
    cli("registry", "init")
    said = cli("registry", "serve", status=69).stderr
    assert words in said and "aiohttp 3.8 or later" in said and "python3-aiohttp" in said


def test_what_is_old_is_said_to_be(cli: Cli, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store answers nobody, what was known last is shown: with status 0, and the age on stderr, once."""
    cli("registry", "network", "add", "blue")
    looks = [each.split() for each in ("network list", "network list --json", "nic list", "find blue", "conflicts", "status", "export")]
    words = "the registry's store has not answered for"
    for look in looks:
        assert words not in cli("registry", *look).stderr

    def away() -> None:
        raise Unavailable("no majority")

    monkeypatch.setattr(service.service.registry.local, "catch_up", away)
    for look in looks:
        said = cli("registry", *look)
        assert said.stderr.count(words) == 1 and words not in said.stdout, look


def test_no_registry_is_made_in_an_etcd_beside_one_in_a_file(cli: Cli) -> None:
    cli("registry", "init")
    folder = cli.root / "etc/netcommon"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text('[registry]\nstore = "etcd://127.0.0.1:1"\n')
    assert "move --to the same etcd" in cli("registry", "init", status=69).stderr
    assert "store names" in cli("registry", "move", "--to", "etcd://127.0.0.1:2", status=69).stderr
    assert (cli.root / "var/lib/netregistry/registry.sqlite").exists()
