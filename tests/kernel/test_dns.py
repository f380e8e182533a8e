"""The DNS hook against a real server (Knot): after each operation the zones hold exactly what they should, by a transfer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.dns import key
from netcommon.dns.server import Servers
from runtime.errors import CONFIG, TEMPORARY, UNAVAILABLE, USAGE, HostRefused
from tests.support.ganeti_event import CLUSTER, event, nic, run_hook
from tests.support.nameserver import ADDRESS, PORT, SHARED, NameServer, settings
from tests.support.netns import mounted_over, run, slowness
from tests.support.node import Node
from tests.support.rundoor import Outcome

pytestmark = pytest.mark.sampled(2)

FORWARD, IPV4, IPV6 = "example.com", "2.0.192.in-addr.arpa", "8.b.d.0.1.0.0.2.ip6.arpa"
STORE = Path("/var/lib/netcommon/dns")

#: What was there before us and has to stay, a wildcard among it.
FOREIGN = {
    FORWARD: 'mail A 192.0.2.9\ntaken TXT "not an address"\n*.wild A 192.0.2.99\n*.wild TXT "anything"\n',
    IPV4: "9 PTR mail.example.com.\n",
    IPV6: "",
}
AAAA = "2001:db8::10"
NIBBLES = ".".join("0100" + "0" * 20)


@pytest.fixture
def server(node: Node) -> Iterator[NameServer]:
    with mounted_over("/var/lib", "tmpfs", "mode=0755"), NameServer.started(FOREIGN) as made:
        configure(made)
        yield made


def configure(server: NameServer, timeout: float = 5.0) -> None:
    Path("/etc/netcommon/config.toml").write_text(settings(server, timeout=timeout))


def fine(outcome: Outcome) -> None:
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")


def mark(name: str, instance: str) -> str:
    return f'_netcommon.{name} 3600 TXT "netcommon" "cluster={CLUSTER}" "instance={instance}"'


def holds(server: NameServer, *wanted: str) -> None:
    """The zones hold the foreign records and ``wanted``, lines of all zones, and nothing else."""
    foreign = [
        "mail 3600 A 192.0.2.9",
        'taken 3600 TXT "not an address"',
        "*.wild 3600 A 192.0.2.99",
        '*.wild 3600 TXT "anything"',
        "9 3600 PTR mail.example.com.",
    ]
    assert sorted(line for zone in server.zones for line in server.content(zone)) == sorted([*foreign, *wanted])


def records(name: str, instance: str, *values: str) -> list[str]:
    """The lines of a name of ours."""
    return [*(f"{name} 3600 {value}" for value in values), mark(name, instance)]


def of_web(instance: str = "web.example.com") -> list[str]:
    """Everything of the instance with one NIC, 192.0.2.10."""
    return [*records("web", instance, "A 192.0.2.10"), *records("10", instance, "PTR web.example.com.")]


def test_an_instances_life(server: NameServer) -> None:
    """Add, rename, modify (address changed, NIC added, NIC removed), remove: exactly the right records each time, others untouched."""
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10"), nic(AAAA)])))
    six = [*records("web-eth1", "web.example.com", f"AAAA {AAAA}"), *records(NIBBLES, "web.example.com", "PTR web-eth1.example.com.")]
    holds(server, *of_web(), *six)
    before = server.serials(), server.updates()
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.10"), nic(AAAA)])))
    assert (server.serials(), server.updates()) == before, "a second run changes nothing, and tries to change nothing"

    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.11"), nic(AAAA)])))
    eleven = [*records("web", "web.example.com", "A 192.0.2.11"), *records("11", "web.example.com", "PTR web.example.com.")]
    holds(server, *eleven, *six)

    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.11"), nic(AAAA), nic("192.0.2.12"), nic()])))
    twelve = [*records("web-eth2", "web.example.com", "A 192.0.2.12"), *records("12", "web.example.com", "PTR web-eth2.example.com.")]
    holds(server, *eleven, *six, *twelve)

    # The second of three goes: the third moves up.
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.11"), nic("192.0.2.12")])))
    moved = [*records("web-eth1", "web.example.com", "A 192.0.2.12"), *records("12", "web.example.com", "PTR web-eth1.example.com.")]
    holds(server, *eleven, *moved)

    fine(run_hook(event("rename", "web.example.com", [nic("192.0.2.11"), nic("192.0.2.12")], INSTANCE_NEW_NAME="www.example.com")))
    holds(
        server,
        *records("www", "www.example.com", "A 192.0.2.11"),
        *records("11", "www.example.com", "PTR www.example.com."),
        *records("www-eth1", "www.example.com", "A 192.0.2.12"),
        *records("12", "www.example.com", "PTR www-eth1.example.com."),
    )
    assert [path.name for path in STORE.glob("*.json")] == ["www.example.com.json"]

    fine(run_hook(event("remove", "www.example.com", [nic("192.0.2.11"), nic("192.0.2.12")])))
    holds(server)
    assert list(STORE.glob("*.json")) == []


def test_nothing_is_needed_from_the_store(server: NameServer) -> None:
    """After a master failover nothing is on record: the marks in the zones say what is ours."""
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10"), nic(AAAA)])))
    forget()
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.10")])))
    holds(server, *of_web())
    forget()
    fine(run_hook(event("rename", "web.example.com", [nic("192.0.2.10")], INSTANCE_NEW_NAME="www.example.com")))
    holds(server, *records("www", "www.example.com", "A 192.0.2.10"), *records("10", "www.example.com", "PTR www.example.com."))
    forget()
    fine(run_hook(event("export", "www.example.com", [nic("192.0.2.10")], REMOVE_INSTANCE="False")))
    holds(server, *records("www", "www.example.com", "A 192.0.2.10"), *records("10", "www.example.com", "PTR www.example.com."))
    fine(run_hook(event("export", "www.example.com", [nic("192.0.2.10")], REMOVE_INSTANCE="True")))
    holds(server)


def forget() -> None:
    for path in STORE.glob("*.json"):
        path.unlink()


def test_what_is_not_ours_is_in_the_way(server: NameServer) -> None:
    """The error names the record; no PTR leads to it, the rest of the instance's records are made all the same; removal leaves it alone."""
    before = server.serial(FORWARD)
    done = run_hook(event("add", "mail.example.com", [nic("192.0.2.10"), nic("192.0.2.11")]))
    assert done.status == UNAVAILABLE
    assert "mail.example.com should be A 192.0.2.10, but is in use and bears no mark of ours: A 192.0.2.9" in done.stderr
    assert server.serial(FORWARD) == before + 1
    holds(
        server,
        *records("mail-eth1", "mail.example.com", "A 192.0.2.11"),
        *records("11", "mail.example.com", "PTR mail-eth1.example.com."),
    )
    fine(run_hook(event("remove", "mail.example.com", [nic("192.0.2.10")])))
    holds(server)
    done = run_hook(event("add", "taken.example.com", []))
    fine(done)
    done = run_hook(event("modify", "taken.example.com", [nic("198.51.100.1")]))
    assert done.status == UNAVAILABLE
    assert "records of other types" in done.stderr
    holds(server)


def test_what_is_already_right_and_not_ours_stays_so(server: NameServer) -> None:
    fine(run_hook(event("add", "mail.example.com", [nic("192.0.2.9")])))
    holds(server)
    fine(run_hook(event("remove", "mail.example.com", [nic("192.0.2.9")])))
    holds(server)


def test_a_wildcard_is_no_record_of_the_name(server: NameServer) -> None:
    fine(run_hook(event("add", "a.wild.example.com", [nic("192.0.2.10")])))
    holds(server, *records("a.wild", "a.wild.example.com", "A 192.0.2.10"), *records("10", "a.wild.example.com", "PTR a.wild.example.com."))
    fine(run_hook(event("remove", "a.wild.example.com", [nic("192.0.2.10")])))
    holds(server)


def test_other_types_at_a_name_of_ours_stay(server: NameServer) -> None:
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10")])))
    server.update(FORWARD, 'add web 300 TXT "v=spf1 -all"')
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.10")])))
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.11")])))
    spf = 'web 300 TXT "v=spf1 -all"'
    eleven = [*records("web", "web.example.com", "A 192.0.2.11"), *records("11", "web.example.com", "PTR web.example.com.")]
    holds(server, *eleven, spf)
    fine(run_hook(event("remove", "web.example.com", [nic("192.0.2.11")])))
    holds(server, spf)


def test_drift_by_hand_is_repaired(server: NameServer) -> None:
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10")])))
    server.update(FORWARD, "del web A", "add web 60 A 192.0.2.66", "add web 60 AAAA 2001:db8::66")
    server.update(IPV4, "del 10 PTR")
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.10")])))
    holds(server, *of_web())
    server.update(FORWARD, "del web A", "add web 60 CNAME mail.example.com.")
    done = run_hook(event("modify", "web.example.com", [nic("192.0.2.10")]))
    assert (done.status, "CNAME" in done.stderr) == (UNAVAILABLE, True)


def test_two_clusters_and_two_instances(server: NameServer) -> None:
    """An address moves from one instance to another in the wrong order: an error, then the other lets go and both are right."""
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10")])))
    done = run_hook(event("add", "db.example.com", [nic("192.0.2.10")]))
    assert done.status == UNAVAILABLE
    assert f"10.2.0.192.in-addr.arpa belongs to instance web.example.com of cluster {CLUSTER}" in done.stderr
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.11")])))
    holds(
        server,
        *records("web", "web.example.com", "A 192.0.2.11"),
        *records("11", "web.example.com", "PTR web.example.com."),
        *records("db", "db.example.com", "A 192.0.2.10"),
        *records("10", "db.example.com", "PTR db.example.com."),
    )
    other = {**event("remove", "db.example.com"), "GANETI_CLUSTER": "other.example.net"}
    before = server.serials()
    fine(run_hook(other))
    assert server.serials() == before


def test_a_name_that_another_cluster_has(server: NameServer) -> None:
    """Its second owner's address must not lead to the first one's host; a PTR that did so before goes, and comes with the name."""
    mine = event("add", "web.example.com", [nic("192.0.2.10")])
    theirs = {**event("add", "web.example.com", [nic("192.0.2.20")]), "GANETI_CLUSTER": "other.example.net"}
    fine(run_hook(mine))
    forget()
    done = run_hook(theirs)
    assert (done.status, f"web.example.com belongs to instance web.example.com of cluster {CLUSTER}" in done.stderr) == (UNAVAILABLE, True)
    holds(server, *of_web())
    mark = '"netcommon" "cluster=other.example.net" "instance=web.example.com"'
    server.update(IPV4, "add 20 3600 PTR web.example.com.", f"add _netcommon.20 3600 TXT {mark}")
    assert run_hook(theirs).status == UNAVAILABLE
    holds(server, *of_web())
    server.update(FORWARD, "del web", "del _netcommon.web")
    fine(run_hook(theirs))
    assert "20 3600 PTR web.example.com." in server.content(IPV4)


def test_server_down_then_back(server: NameServer) -> None:
    """An error within the time limit; the next run of any event repairs, whatever has piled up."""
    fine(run_hook(event("add", "old.example.com", [nic("192.0.2.20")])))
    server.stop()
    for told in (
        event("add", "web.example.com", [nic("192.0.2.12")]),
        event("modify", "web.example.com", [nic("192.0.2.10")]),
        event("rename", "old.example.com", [nic("192.0.2.20")], INSTANCE_NEW_NAME="older.example.com"),
        event("rename", "older.example.com", [nic("192.0.2.20")], INSTANCE_NEW_NAME="oldest.example.com"),
    ):
        done = run_hook(told)
        assert done.status == TEMPORARY
        assert "no DNS server answers: 127.0.0.1:53: Connection refused" in done.stderr
        assert done.seconds < 5 * slowness()
    server.start()
    fine(run_hook(event("start", "another.example.com")))
    old = [*records("oldest", "oldest.example.com", "A 192.0.2.20"), *records("20", "oldest.example.com", "PTR oldest.example.com.")]
    holds(server, *of_web(), *old)
    assert [json.loads(path.read_text())["done"] for path in STORE.glob("*.json")] == [True, True]


def test_a_frozen_server_costs_one_time_limit(server: NameServer) -> None:
    configure(server, timeout=1.0)
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10")])))
    server.freeze()
    try:
        for _ in range(2):
            done = run_hook(event("modify", "web.example.com", [nic("192.0.2.11"), nic("192.0.2.12")]))
            assert (done.status, "no answer in time" in done.stderr) == (TEMPORARY, True)
            assert done.seconds < 1 + 4 * slowness()
    finally:
        server.thaw()
    fine(run_hook(event("remove", "web.example.com", [nic("192.0.2.11")])))
    holds(server)


def test_the_next_server_serves(server: NameServer) -> None:
    text = settings(server, timeout=1.0).replace("servers = [", 'servers = ["127.0.0.1:5399", ')
    Path("/etc/netcommon/config.toml").write_text(text)
    fine(run_hook(event("add", "web.example.com", [nic("192.0.2.10")])))
    holds(server, *of_web())


@pytest.mark.parametrize(
    ("what", "status", "text"),
    [
        ("secret", CONFIG, "another secret or algorithm for the TSIG key netcommon-updates"),
        ("name", CONFIG, "does not know the TSIG key wrong"),
        ("zone", CONFIG, "authority"),
        ("mode", CONFIG, "can be read by others than root"),
    ],
)
def test_what_the_server_or_the_settings_refuse(server: NameServer, what: str, status: int, text: str) -> None:
    """Each is told apart; once it is put right, the next run repairs."""
    environment = event("add", "web.example.com", [nic("192.0.2.10")])
    if what == "secret":
        server.write_key("d3Jvbmc=")
    elif what == "name":
        server.write_key("d3Jvbmc=", "wrong")
    elif what == "zone":
        Path("/etc/netcommon/config.toml").write_text(settings(server, [FORWARD, IPV4, "web.example.com"]))
    elif what == "mode":
        server.key_file.chmod(0o640)
    before = server.serials()
    done = run_hook(environment)
    assert (done.status, text in done.stderr) == (status, True), done.stderr
    assert server.serials() == before or what == "zone"
    assert "d3Jvbmc" not in done.stderr
    server.write_key(SHARED)
    configure(server)
    fine(run_hook(event("modify", "web.example.com", [nic("192.0.2.10")])))
    holds(server, *of_web())


def test_clocks_that_differ(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """TSIG allows five minutes (RFC 8945, 10)."""
    servers = Servers([f"{ADDRESS}:{PORT}"], key.read(str(server.key_file)), 5, time.monotonic() + 10, time.monotonic)
    assert servers.query(FORWARD, "mail.example.com", "A") is not None
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() - 3600)
    with pytest.raises(HostRefused, match="the clocks of DNS server"):
        servers.query(FORWARD, "mail.example.com", "A")
    servers.close()


def test_only_the_master_acts(server: NameServer) -> None:
    environment = event("add", "web.example.com", [nic("192.0.2.10")])
    ganeti = Path("/var/lib/ganeti")
    ganeti.mkdir()
    (ganeti / "ssconf_node_primary_ips").write_text("node1.example 127.0.0.1\nnode2.example 203.0.113.7\n")
    run("ip", "route", "add", "203.0.113.0/24", "dev", "lo")  # node2's address can be reached
    before = server.serials()
    fine(run_hook({**environment, "GANETI_MASTER": "node2.example"}))
    fine(run_hook({**environment, "GANETI_MASTER": "node3.example"}))
    fine(run_hook({**environment, "GANETI_HOOKS_PHASE": "pre"}))
    assert server.serials() == before
    assert not STORE.exists()
    fine(run_hook({**environment, "GANETI_MASTER": "node1.example"}))
    holds(server, *of_web())


@pytest.mark.parametrize(
    "name", ["web_1.example.com", "-web.example.com", "a" * 64 + ".example.com", "web.example.com\n", "../../etc/x", ""]
)
def test_what_is_no_host_name_is_refused(server: NameServer, name: str) -> None:
    before = server.serials()
    assert run_hook(event("add", name, [nic("192.0.2.10")])).status == USAGE
    assert server.serials() == before
    assert not STORE.exists() or list(STORE.glob("*.json")) == []


def test_what_is_outside_of_the_zones_is_left_to_others(server: NameServer) -> None:
    fine(run_hook(event("add", "web.elsewhere.net", [nic("192.0.2.10")])))
    holds(server, *records("10", "web.elsewhere.net", "PTR web.elsewhere.net."))
    fine(run_hook(event("add", "web.example.com", [nic("198.51.100.1")])))
    assert server.content(FORWARD)[-1] == "web 3600 A 198.51.100.1"


def test_hooks_at_the_same_time(server: NameServer) -> None:
    """Ganeti runs jobs in parallel: each instance comes out right, and so does one whose events meet another's retry."""
    names = [f"vm{number}.example.com" for number in range(6)]
    outcomes: list[Outcome] = []

    def one(name: str, number: int) -> None:
        for last in (100 + number, 200 + number):
            outcomes.append(run_hook(event("modify", name, [nic(f"192.0.2.{last}")])))

    threads = [threading.Thread(target=one, args=(name, number)) for number, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.status for outcome in outcomes] == [0] * 12
    wanted = [line for number in range(6) for line in records(f"vm{number}", names[number], f"A 192.0.2.{200 + number}")]
    wanted += [line for number in range(6) for line in records(str(200 + number), names[number], f"PTR {names[number]}.")]
    holds(server, *wanted)
