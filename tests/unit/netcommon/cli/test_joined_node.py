"""A node that has joined a registry, as its administrator types: joining, defining by the registry, and what is said of all that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netcommon.lifecycle.push import keep_network, push
from netregistry.stores.sqlite import SqliteStore
from runtime import definitions, membership, networks, wanted
from runtime.networks import network_of
from runtime.registry_wanted import RegistryOption, RegistryWanted
from tests.support.cli import UUIDS, Cli, equipped
from tests.support.service import Served, served

TAP0 = ("define", "--interface", "tap0", "--mode", "bridged", "--link", "br0", "--instance", "web1", "--index", "0")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    for folder in ("run/netregistry", "var/lib/netregistry"):
        (tmp_path / folder).mkdir(parents=True)
    return equipped(tmp_path)


@pytest.fixture
def service(cli: Cli) -> Iterator[Served]:
    with served(
        cli.root / "run/netregistry", store=SqliteStore.create(str(cli.root / "var/lib/netregistry/registry.sqlite"), "e")
    ) as found:
        cli(
            "registry",
            "network",
            "add",
            "blue",
            "subnet=192.0.2.0/24",
            "gateway=192.0.2.1",
            "resolvers=192.0.2.53",
            "subnet6=2001:db8::/64",
        )
        cli("registry", "settings", "mac_prefix=aa:00:00")
        yield found


@pytest.fixture
def joined(cli: Cli, service: Served) -> Cli:
    cli("registry", "node", "join", "node1", "cluster=prod")
    return cli


def known(cli: Cli, name: str = "web1/0") -> Any:
    (item,) = cli.json("registry", "nic", "show", name)["items"]
    return item["nic"]


def test_a_node_joins_once(cli: Cli, service: Served) -> None:
    assert "would be" in cli("registry", "node", "join", "node1", "--dry-run").stdout and membership.read(cli.paths) is None
    said = cli("registry", "node", "join", "node1", "cluster=prod").stdout
    me = membership.read(cli.paths)
    assert me is not None and me.name == "node1" and me.uuid in said
    assert "has joined already" in cli("registry", "node", "join", "node1", status=69).stderr
    assert membership.read(cli.paths) == me
    cli("registry", "node", "forget", "node1")
    cli("registry", "node", "join", "node2")
    assert membership.read(cli.paths) == me._replace(name="node2")


def test_a_name_that_another_node_has_makes_no_member(cli: Cli, service: Served) -> None:
    service.join(0)
    assert "already" in cli("registry", "node", "join", "node0", status=69).stderr and membership.read(cli.paths) is None


# -- options


def test_a_change_is_for_a_while_alone(joined: Cli) -> None:
    joined(*TAP0)
    joined("up", "tap0")
    before = joined.json("show", "tap0")
    for more in ((), ("--dry-run",)):
        said = joined("change", "tap0", "rate_in=8mbit", "isolated=yes", *more, status=69).stderr
        assert "netcommon registry nic set NIC options.rate_in=8mbit options.isolated=yes" in said and "--for 2h" in said
    assert joined.json("show", "tap0") == before
    assert joined("change", "tap0", "rate_in=8mbit", "--for", "2h").exit_code == 0
    assert joined("change", "tap0", "--unset", "rate_in").exit_code == 0
    assert joined("change", "--all").exit_code == 0


def test_where_options_and_networks_values_come_from(cli: Cli) -> None:
    """plan, explain and show name the registry, the revision and the end; of a NIC that is only defined too."""
    blue = "b1b1b1b1-0667-415f-9a43-786dc01cbf24"
    cli(*TAP0, "--network-name", "blue", "--network-uuid", blue)
    app = cli.app()
    node = app.node()
    keep_network(node, network_of(blue, "e:8", {"resolvers": ["192.0.2.53"], "routes": [{"prefix": "10.0.0.0/8", "via": "192.0.2.2"}]}))
    options = RegistryOption("rate_in", "8mbit"), RegistryOption("isolated", "yes", 1.7e9 + 3600)
    push(node, UUIDS[0], RegistryWanted("e:9", options), app.call())
    for state in ("defined", "up"):
        plan, explained = cli("plan", "tap0").stdout, " ".join(cli("explain", "tap0").stdout.split())
        shown = cli("show", "tap0").stdout
        assert (
            "rate_in = 8mbit, set by the registry, revision e:9\n" in plan
            and "rate_in = 8mbit, set by the registry, revision e:9\n" in shown
        )
        assert "isolated = true, set by the registry, revision e:9, until 20" in plan
        assert "isolated = true, set by the registry, revision e:9, until 20" in shown
        assert "rate_in = 8mbit set by the registry, revision e:9 " in explained
        for text in (plan, shown):
            assert "resolvers = 192.0.2.53, set by the registry, revision e:8" in text
            assert "routes = 10.0.0.0/8 by 192.0.2.2, set by the registry, revision e:8" in text
        assert "network resolvers = 192.0.2.53 set by the registry, revision e:8" in explained
        (document,) = cli.json("show", "tap0")
        assert document["state"] == state
        assert [each["origin"] for each in document["network"]] == ["set by the registry, revision e:8"] * 2
        cli("up", "tap0")
    cli("change", "tap0", "rate_in=9mbit")
    assert "(rate_in = 8mbit, set by the registry, revision e:9, is overruled)" in cli("plan", "tap0").stdout


# -- definitions


def test_define_in_a_network(joined: Cli) -> None:
    """MAC and addresses are given out, the definition has them, and so does the first up, whatever the agent has done by then."""
    me = membership.read(joined.paths)
    said = joined(*TAP0, "--network", "blue", "--tag", "netcommon:*:dhcp:none").stdout
    nic = known(joined)
    assert me is not None and nic["master"] == f"node:{me.uuid}" and nic["cluster"] == "prod" and nic["tags"] == ["netcommon:*:dhcp:none"]
    assert (nic["ip"], nic["addresses"]) == ("192.0.2.2", ["2001:db8::1"]) and nic["mac"].startswith("aa:00:00")
    there = definitions.read(joined.paths, nic["uuid"])
    assert there is not None and (there.mac, there.ip) == (nic["mac"], "192.0.2.2") and nic["mac"] in said
    assert (there.network.name, there.network.subnet, there.network.subnet6) == ("blue", "192.0.2.0/24", "2001:db8::/64")
    assert there.network.gateway == "", "the registry says it, and may say another one tomorrow"
    joined("up", "tap0")
    plan = joined("plan", "tap0").stdout
    assert "addresses = 2001:db8::1, set by the registry, revision e:" in plan and "gateway = 192.0.2.1, set by the registry" in plan
    assert networks.uuids(joined.paths) == [nic["network"]]


def test_define_in_a_network_of_ganeti_names_what_its_pool_may_give_out_too(joined: Cli, service: Served) -> None:
    held = {"uuid": "dddf8c12-f2d8-4718-a35b-7804daf12a3f", "master": "60c5bd2c-7f0e-4a7c-9d38-1b1cfb1e5b01", "node": "n", "serial": 1}
    green = {"name": "green", "subnet": "198.51.100.0/24", "uuid": "11111111-0000-4000-8000-00000000000e"}
    parts = [
        {"action": "importer.hold", "target": "prod", "body": held, "match": "*"},
        {"action": "network.add", "target": "", "body": green, "match": "*"},
    ]
    service.client("importer:prod").change("POST", "batch", {"parts": parts})
    command = "gnt-network modify --add-reserved-ips={} green"
    assert command.format(joined_ip := "198.51.100.1") in joined(*TAP0, "--network", "green").stderr
    assert known(joined)["ip"] == joined_ip
    assert command.format("198.51.100.9") in joined(*TAP0, "--ip", "198.51.100.9").stderr
    assert joined(*TAP0, "--name", "first").stderr == ""
    assert joined(*TAP0, "--network", "blue").stderr == ""


@pytest.mark.parametrize(
    ("typed", "expected"), [(("--link", "br1"), ("bridged", "br1")), (("--mode", "routed", "--link", "main"), ("routed", "main"))]
)
def test_a_link_is_changed_with_the_registry(joined: Cli, typed: tuple[str, ...], expected: tuple[str, str]) -> None:
    """LINK and BRIDGE both say the bridge that it was on: neither stays beside another link."""
    joined(*TAP0, "--network", "blue")
    before = known(joined)
    joined("define", "--interface", "tap0", *typed)
    there, now = definitions.find(joined.paths, "tap0"), known(joined)
    assert there is not None and (there.mode, there.link) == expected == (now["mode"], now["link"])
    assert {name for name in now if now[name] != before[name]} <= {"mode", "link"} and there.mac == before["mac"]


def test_an_address_is_changed_in_the_registry_where_the_definition_names_no_network(joined: Cli, service: Served) -> None:
    """Change what the agent has made known, and what the operator has put into a network since; away, the agent brings it there."""
    given = (*TAP0, "--mac", "aa:00:00:00:00:01")
    joined(*given, "--ip", "192.0.2.10")
    there, me = definitions.find(joined.paths, "tap0"), membership.read(joined.paths)
    assert there is not None and me is not None
    body = {"uuid": there.uuid, "instance": "web1", "index": 0, "mac": there.mac, "ip": "192.0.2.10", "found": True}
    service.client(f"node:{me.uuid}").change("POST", "nics", body)
    joined(*given, "--ip", "192.0.2.99/24")
    there = definitions.find(joined.paths, "tap0")
    assert there is not None and there.ip == "192.0.2.99/24", "the length stays: the registry has none"
    assert known(joined)["ip"] == "192.0.2.99" and known(joined)["link"] == "br0"
    joined("registry", "nic", "add", "instance=db", "index=0", "cluster=prod", "ip=192.0.2.50")
    assert "192.0.2.50 belongs to db/0" in joined(*given, "--ip", "192.0.2.50", status=69).stderr
    assert definitions.find(joined.paths, "tap0") == there
    joined("registry", "nic", "set", "web1/0", "network=blue")
    joined(*given, "--ip", "192.0.2.77")
    assert known(joined)["ip"] == "192.0.2.77"
    there = definitions.find(joined.paths, "tap0")
    assert there is not None and there.network.name == "blue"


def test_a_definition_without_a_network_is_changed_while_the_registry_is_away(joined: Cli, service: Served) -> None:
    joined(*TAP0, "--ip", "192.0.2.10")
    Path(service.path).unlink()
    said = joined(*TAP0, "--ip", "192.0.2.99").stdout
    there = definitions.find(joined.paths, "tap0")
    assert there is not None and there.ip == "192.0.2.99" and "the agent tells the registry" in said


def test_an_address_is_changed_in_the_registry(joined: Cli) -> None:
    """Keep what is not given; a NIC that is up has the new address from its next start on."""
    joined(*TAP0, "--network", "blue")
    first = known(joined)
    joined("up", "tap0")
    said = joined("define", "--interface", "tap0", "--ip", "192.0.2.9").stdout
    nic = known(joined)
    assert nic == {**first, "ip": "192.0.2.9"} and "from its next start on: ip" in said
    there = definitions.read(joined.paths, nic["uuid"])
    assert there is not None and (there.ip, there.link, there.label, there.mac) == ("192.0.2.9", "br0", "web1/0", first["mac"])
    joined("registry", "network", "reserve", "blue", "192.0.2.8", "--reason", "printer")
    path = Path(joined.paths.definitions, f"{nic['uuid']}.toml")
    before = path.read_bytes()
    assert "printer" in joined("define", "--interface", "tap0", "--ip", "192.0.2.8", status=69).stderr
    joined("define", "--interface", "tap0", "--ip", "198.51.100.8", status=64)
    assert path.read_bytes() == before and known(joined) == nic
    history = joined("registry", "history", "web1/0").stdout.count("nic.set")
    joined("define", "--interface", "tap0", "--ip", "192.0.2.9")
    assert path.read_bytes() == before and joined("registry", "history", "web1/0").stdout.count("nic.set") == history


def test_another_network(joined: Cli) -> None:
    joined("registry", "network", "add", "red", "subnet=198.51.100.0/24")
    joined(*TAP0, "--network", "blue")
    joined("define", "--interface", "tap0", "--network", "red")
    nic = known(joined)
    assert (nic["ip"], nic["addresses"]) == ("198.51.100.1", [])
    there = definitions.read(joined.paths, nic["uuid"])
    assert there is not None and (there.ip, there.network.name, there.network.subnet6) == ("198.51.100.1", "red", "")
    joined("define", "--interface", "tap0", "--network", "blue", "--ip", "192.0.2.77")
    assert known(joined)["ip"] == "192.0.2.77"


def test_a_nic_that_the_operator_has_made(joined: Cli) -> None:
    """The definition has what it was given; what the operator decides is refused with the command."""
    joined("registry", "nic", "add", "network=blue", "instance=web1", "index=0", "ip=192.0.2.50", "options.isolated=yes")
    uuid = known(joined)["uuid"]
    before = known(joined)
    joined(*TAP0, "--uuid", uuid, "--network", "blue")
    there = definitions.read(joined.paths, uuid)
    assert there is not None and (there.ip, there.mac) == ("192.0.2.50", before["mac"]) and known(joined) == before
    assert "isolated = true, set by the registry" in joined("plan", "tap0").stdout
    assert "netcommon registry nic set" in joined("define", "--interface", "tap0", "--ip", "192.0.2.51", status=69).stderr
    joined("define", "--remove", "--interface", "tap0")
    assert known(joined) == before, "it is not this node's to give back"


def test_a_definition_that_cannot_be_written_gives_back(joined: Cli) -> None:
    joined(*TAP0)
    other = ("define", "--uuid", UUIDS[5], "--interface", "tap0", "--mode", "bridged", "--link", "br0")
    assert "no other definition has" in joined(*other, "--network", "blue", status=64).stderr
    joined(
        "define",
        "--interface",
        "tap1",
        "--mode",
        "bridged",
        "--link",
        "br0",
        "--network",
        "blue",
        "--tag",
        "netcommon:*:nonsense",
        status=64,
    )
    assert joined("registry", "nic", "list").stdout == "no nics\n"
    joined("define", "--interface", "tap1", "--mode", "bridged", "--link", "br0", "--network", "green", status=64)
    assert definitions.find(joined.paths, "tap1") is None


def test_remove_gives_back(joined: Cli) -> None:
    joined(*TAP0, "--network", "blue")
    uuid = known(joined)["uuid"]
    said = joined("define", "--remove", "--interface", "tap0").stdout
    assert "removed the definition" in said and "the registry has back" in said
    assert joined("registry", "nic", "list").stdout == "no nics\n" and wanted.all_of(joined.paths, []) == {}
    assert "nothing to remove" in joined("define", "--remove", "--uuid", uuid).stdout


def test_a_nic_of_another_node_is_said_to_be_that(joined: Cli, service: Served) -> None:
    """As of one that was forgotten, and joined under another UUID: nothing that is done here changes it there."""
    (blue,) = joined.json("registry", "network", "list")["items"]
    body = {"uuid": UUIDS[3], "network": blue["network"]["uuid"], "mac": "aa:00:00:00:00:09", "ip": "192.0.2.9"}
    service.join(0).change("POST", "nics", body)
    given = ("--interface", "tap3", "--mode", "bridged", "--link", "br0", "--network", "blue", "--uuid", UUIDS[3])
    master = known(joined, UUIDS[3])["master"]
    for command in (("define", *given), ("define", "--remove", "--uuid", UUIDS[3])):
        said = joined(*command).stdout
        assert f"its master is {master}, and not this node" in said and f"netcommon registry nic delete {UUIDS[3]}" in said
    assert known(joined, UUIDS[3])["master"] == master


def test_remove_of_a_nic_that_is_reported_as_running(joined: Cli, service: Served) -> None:
    """Its guest has the address still: the agent gives it back later; not the last one's, which the same command does."""
    me = membership.read(joined.paths)
    joined("define", "--interface", "tap1", "--mode", "bridged", "--link", "br0", "--uuid", UUIDS[1])
    joined(*TAP0, "--network", "blue")
    nic = known(joined)
    assert me is not None
    agent = service.client(f"node:{me.uuid}")
    report = {"nic": nic["uuid"], "state": "running", "mac": nic["mac"], "ip": nic["ip"]}
    agent.change("POST", f"nodes/{me.uuid}/reports", {"after": "e:0", "nics": [report], "removed": [], "about": {}})
    said = joined("define", "--remove", "--interface", "tap0").stdout
    assert "the agent gives back" in said and known(joined) == nic
    assert definitions.read(joined.paths, nic["uuid"]) is None
    joined("define", "--remove", "--uuid", UUIDS[1])
    again = ("define", "--remove", "--uuid", nic["uuid"])
    said = joined(*again).stdout
    assert "the agent gives back nothing" in said and f"netcommon {' '.join(again)}" in said and known(joined) == nic
    after = agent.get(f"nodes/{me.uuid}").body["reports"]
    stopped = {"nic": nic["uuid"], "state": "stopped"}
    agent.change("POST", f"nodes/{me.uuid}/reports", {"after": after, "nics": [stopped], "removed": []})
    assert "the registry has back" in joined(*again).stdout
    assert joined("registry", "nic", "list").stdout == "no nics\n"


def test_without_a_registry(cli: Cli) -> None:
    """A node that has joined none has no networks; one that has cannot change an address while the registry is away."""
    assert "has joined no registry" in cli(*TAP0, "--network", "blue", status=69).stderr
    assert definitions.all_of(cli.paths) == ([], [])
    cli(*TAP0)
    membership.write(cli.paths, membership.Membership(UUIDS[9], "node1"))
    cli(*TAP0, "--ip", "192.0.2.5")
    said = cli("define", "--remove", "--interface", "tap0").stdout
    assert "removed the definition" in said and "the agent gives back nothing" in said
    cli(*TAP0, "--network", "blue", status=69)
    assert definitions.all_of(cli.paths) == ([], [])


# -- the cluster


def test_the_nics_of_the_cluster(joined: Cli, service: Served) -> None:
    me = membership.read(joined.paths)
    assert me is not None
    assert joined("list", "--cluster").stdout == "the registry knows no NIC of this cluster\n"
    joined(*TAP0, "--network", "blue")
    joined("registry", "nic", "add", "instance=elsewhere", "index=0", "cluster=other")
    nic = known(joined)
    agent = service.client(f"node:{me.uuid}")
    report = {"nic": nic["uuid"], "state": "running", "mac": nic["mac"], "ip": "192.0.2.99", "applied": "e:7", "refused": "no such bridge"}
    agent.change("POST", f"nodes/{me.uuid}/heartbeat", {"incarnation": UUIDS[8]})
    agent.change("POST", f"nodes/{me.uuid}/reports", {"after": "e:0", "nics": [report], "removed": [], "about": {}})
    said = joined("list", "--cluster").stdout
    assert "elsewhere" not in said
    (line,) = said.splitlines()[1:]
    assert line.startswith("web1/0") and "pending restart" in line and "node1" in line and nic["mac"] in line and " 7 " in line
    assert "needs a restart for ip; refused: no such bridge" in line
    document = json.loads(joined("list", "--cluster", "--json").stdout)
    assert document["schema"] == "netcommon-registry" and [item["nic"]["uuid"] for item in document["items"]] == [nic["uuid"]]
