"""What the service answers, as it comes over its socket."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from netregistry.client import Client, Problem
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, Response, made, new_id
from netregistry.service import queries
from netregistry.service.identity import peer
from netregistry.service.limits import Limits
from netregistry.service.serve import ENDING
from netregistry.stores.base import Delete, Expect, Listing, Put, Unavailable
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused
from tests.support.registry import NODES
from tests.support.service import SECONDS, Said, Served, served

NOW = 1_790_000_000


def refused(said: Said, status: int, kind: str, *words: str) -> dict[str, Any]:
    """Give the problem that a request must have been refused with."""
    assert (said.status, said.headers["Content-Type"]) == (status, "application/problem+json"), said
    problem: dict[str, Any] = said.body
    assert problem["status"] == status and problem["type"] == f"/v1/problems/{kind}"
    assert all(word in problem["detail"] for word in words), problem["detail"]
    return problem


def add(service: Served, **fields: Any) -> dict[str, Any]:
    said = service.say("POST", "/v1/nics", fields)
    assert said.status == 201, said
    found: dict[str, Any] = said.body
    return found


def network(service: Served, **fields: Any) -> str:
    said = service.say("POST", "/v1/networks", {"name": "blue", "subnet": "192.0.2.0/24", **fields})
    assert said.status == 201, said
    return str(said.body["uuid"])


def test_a_network_and_its_nic_from_beginning_to_end(service: Served) -> None:
    blue = network(service)
    nic = add(service, network=blue, instance="web1", index=0, allocate=["ipv4"])
    assert nic["ip"] == "192.0.2.1" and nic["mac"].startswith("02:6e:63:")
    shown = service.say("GET", f"/v1/nics/{nic['uuid']}")
    assert shown.body["nic"] == nic and shown.body["shown"]["state"] == "provisioning"
    assert shown.headers["ETag"] == f'"{shown.body["revision"]}"'
    changed = service.say("PATCH", f"/v1/nics/{nic['uuid']}", {"name": "net0"}, If_Match=shown.headers["ETag"])
    assert changed.status == 200 and changed.headers["ETag"] != shown.headers["ETag"]
    (item,) = service.say("GET", "/v1/nics?address=192.0.2.1&instance=web1").body["items"]
    assert item["nic"]["name"] == "net0" and item["label"] == "web1/0"
    problem = refused(service.say("DELETE", f"/v1/networks/{blue}", If_Match="*"), 409, "in-use", "web1/0")
    assert problem["nics"] == [nic["uuid"]]
    assert service.say("DELETE", f"/v1/nics/{nic['uuid']}", If_Match=changed.headers["ETag"]).status == 200
    assert service.say("DELETE", f"/v1/networks/{blue}", If_Match="*").status == 200
    actions = [item["entry"]["action"] for item in service.say("GET", "/v1/history").body["items"]]
    assert actions == ["network.add", "nic.add", "nic.set", "nic.delete", "network.delete"]
    (last,) = service.say("GET", f"/v1/history?target={blue}&action=network.delete").body["items"]
    assert last["entry"]["who"] == {"role": "operator", "name": "root", "origin": "unix"}


def test_the_history_since_a_time_goes_by_when_it_was_done(service: Served) -> None:
    now = time.time()
    add = {"instance": "web1", "mac": "aa:00:00:00:00:07"}
    answer = service.say("POST", "/v1/nics", add, Idempotency_Key=new_id(now - 80000, 5))
    assert answer.status == 201
    (item,) = service.say("GET", f"/v1/history?since={now - 3600}").body["items"]
    assert item["entry"]["request"] == answer.headers["Idempotency-Key"] and item["entry"]["time"] >= now
    assert service.say("GET", f"/v1/history?since={now + 3600}").body["items"] == []


def test_what_bad_input_gets(service: Served) -> None:
    blue = network(service)
    nic = add(service, network=blue, instance="web1", ip="192.0.2.7", mac="aa:00:00:00:00:07")
    place, before = f"/v1/nics/{nic['uuid']}", service.everything()
    assert refused(service.say("GET", "/v1/nics?adress=1"), 400, "invalid", "adress", "address")["field"] == "adress"
    assert refused(service.say("GET", "/v1/nics?%EF%AB%9A=1"), 400, "invalid")["detail"].isprintable()
    assert refused(service.say("POST", "/v1/nics", {"\ufada": 1}), 400, "invalid")["detail"].isprintable()
    refused(service.say("GET", "/v1/nics?address=1&address=2"), 400, "invalid", "address")
    refused(service.say("GET", "/v1/nics?limit=100000"), 400, "invalid", "limit")
    refused(service.say("GET", "/v1/nics?primary=maybe"), 400, "invalid", "primary", "true or false")
    refused(service.say("GET", "/v1/find"), 400, "invalid", "text", "missing")
    refused(service.say("GET", "/v1/history?since=NaN"), 400, "invalid", "since")
    assert refused(service.say("POST", "/v1/nics", {"adress": 1}), 400, "invalid")["field"] == "adress"
    refused(service.say("GET", "/v2/nics"), 404, "missing", "/v2/nics")
    refused(service.say("GET", f"/v1/nics/{NODES[0]}"), 404, "missing", NODES[0])
    refused(service.say("GET", "/v1/nics/..%2Fsettings"), 404, "missing")
    assert service.say("PUT", "/v1/nics", {}).headers["Allow"] == "GET,POST"
    refused(service.say("POST", "/v1/nics", b"{"), 400, "invalid", "JSON")
    refused(service.say("POST", "/v1/nics", b'{"ip": NaN}'), 400, "invalid", "NaN")
    refused(service.say("POST", "/v1/nics", b'{"ip": "", "ip": ""}'), 400, "invalid", "twice")
    refused(service.say("POST", "/v1/nics", b"[" * 100_000), 400, "invalid")
    refused(service.say("POST", "/v1/nics", b"[" * 500 + b"]" * 500), 400, "invalid")
    refused(service.say("POST", "/v1/nics", b"{}", Content_Type="text/xml"), 415, "media", "text/xml")
    refused(service.say("POST", "/v1/nics", b'"' + b"a" * (1 << 20) + b'"'), 413, "too-large")
    refused(service.say("DELETE", place, {"force": True}, If_Match="*"), 400, "invalid", "no body")
    problem = refused(service.say("POST", "/v1/nics", {"network": blue, "ip": "192.0.2.7"}), 409, "taken", "web1")
    assert problem["holder"] == nic["uuid"]
    refused(service.say("PATCH", place, {"name": "x"}), 428, "match")
    refused(service.say("PATCH", place, {"name": "x"}, If_Match="first:1"), 412, "stale", "first:")
    refused(service.say("PATCH", place, {"name": "x"}, If_Match='"second:1"'), 412, "epoch", "first")
    refused(service.say("PATCH", place, {"mtu": 1400}, If_Match="*"), 403, "forbidden", "netcommon registry network set blue mtu=")
    refused(service.say("POST", "/v1/nics", {}, Idempotency_Key="x"), 400, "invalid")
    refused(service.say("GET", "/v1/nics", None, Netcommon_Role="leader"), 400, "invalid", "Netcommon-Role")
    refused(service.say("GET", "/v1/nics", None, Netcommon_Role="node:here"), 400, "invalid")
    refused(service.say("POST", "/v1/nics", {}, Netcommon_Role="reader"), 403, "forbidden")
    refused(service.say("POST", "/v1/batch", {"parts": [{"action": "nic.add", "body": {}}, {"action": "fly"}]}), 400, "invalid", "parts[1]")
    assert service.everything() == before and service.service.figures.faults == 0


@pytest.mark.parametrize("name", ["Netcommon-Role", "Idempotency-Key", "If-Match", "netcommon-role"])
def test_a_header_that_comes_twice_says_nothing(service: Served, name: str) -> None:
    """Whoever stands in between may read the other one."""
    connection = service.connect()
    connection.putrequest("GET", "/v1/status")
    for text in ("reader", "operator:root"):
        connection.putheader(name, text)
    connection.endheaders()
    response = connection.getresponse()
    said = response.read()
    connection.close()
    assert response.status == 400 and b"more than once" in said


def test_somebody_elses_field_names_its_master_and_command(service: Served) -> None:
    nic = service.say("POST", "/v1/nics", {"instance": "web1", "index": 0}, Netcommon_Role="importer:gnt.example.com").body
    problem = refused(service.say("PATCH", f"/v1/nics/{nic['uuid']}", {"mac": "aa:00:00:00:00:01"}, If_Match="*"), 403, "forbidden")
    assert problem["master"] == "ganeti:gnt.example.com" and problem["command"].startswith("gnt-instance modify --net 0:modify,mac=")


def test_the_same_request_is_done_once(service: Served) -> None:
    blue = network(service)
    refused(service.say("POST", "/v1/nics", {"network": blue}, Idempotency_Key=new_id(NOW * 2, 1)), 409, "outdated", "clocks")
    made = service.say("GET", "/v1/history").body["items"][0]["entry"]["request"]
    key = made[:-1] + ("1" if made[-1] == "0" else "0")  # another one, of now
    first = service.say("POST", "/v1/nics", {"network": blue, "allocate": ["ipv4"]}, Idempotency_Key=key)
    again = service.say("POST", "/v1/nics", {"network": blue, "allocate": ["ipv4"]}, Idempotency_Key=f'"{key}"')
    assert first.status == again.status == 201 and first.body == again.body and first.headers["ETag"] == again.headers["ETag"]
    assert len(service.say("GET", "/v1/nics").body["items"]) == 1


def test_a_rehearsal_and_a_batch(service: Served) -> None:
    before = service.everything()
    said = service.say("POST", "/v1/networks?dry_run=true", {"name": "blue"})
    assert said.status == 201 and said.body["changes"][0]["after"]["name"] == "blue" and service.everything() == before
    parts = [{"action": "network.add", "body": {"name": name}} for name in ("a", "b")]
    said = service.say("POST", "/v1/batch", {"parts": parts})
    assert said.status == 200 and [each["name"] for each in said.body] == ["a", "b"]
    refused(service.say("POST", "/v1/batch", {"parts": [*parts, {"action": "network.add", "body": {"name": "c"}}]}), 409, "exists")
    assert len(service.say("GET", "/v1/networks").body["items"]) == 2


def test_a_list_is_of_one_revision_whatever_happens_between_its_parts(service: Served) -> None:
    uuids = sorted(add(service, instance=f"web{number}")["uuid"] for number in range(5))
    first = service.say("GET", "/v1/nics?limit=2").body
    service.say("DELETE", f"/v1/nics/{uuids[2]}", If_Match="*")
    service.say("PATCH", f"/v1/nics/{uuids[3]}", {"name": "later"}, If_Match="*")
    add(service, uuid="ffffffff-0000-4000-8000-000000000000")
    second = service.say("GET", f"/v1/nics?limit=2&cursor={first['next']}").body
    third = service.say("GET", f"/v1/nics?limit=2&cursor={second['next']}").body
    items = [*first["items"], *second["items"], *third["items"]]
    assert [item["nic"]["uuid"] for item in items] == uuids and items[3]["nic"]["name"] == "" and third["next"] == ""
    assert {page["revision"] for page in (first, second, third)} == {first["revision"]}
    refused(service.say("GET", f"/v1/nics?instance=web1&cursor={first['next']}"), 400, "invalid", "another list")
    refused(service.say("GET", "/v1/nics?cursor=none.2"), 410, "compacted", "anew")
    history = service.say("GET", "/v1/history?limit=3").body
    add(service)
    rest = service.say("GET", f"/v1/history?cursor={history['next']}").body
    assert sorted(item["entry"]["number"] for item in [*history["items"], *rest["items"]]) == list(range(1, 9))
    assert rest["revision"] == history["revision"] and rest["next"] == ""
    refused(service.say("GET", "/v1/history?cursor=second:1~x"), 412, "epoch")
    refused(service.say("GET", "/v1/history?cursor=first:x~x"), 400, "invalid", "cursor")
    refused(service.say("GET", "/v1/history?cursor=first:999999~x"), 400, "invalid", "cursor")


def test_each_list_is_of_its_kind_alone(service: Served) -> None:
    """A cluster has networks, NICs and nodes."""
    cluster = "gnt.example.com"
    ganeti = service.client(f"importer:{cluster}")
    blue = ganeti.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24", "mac_prefix": ""}).body["uuid"]
    nic = ganeti.change("POST", "nics", {"instance": "web1", "mac": "aa:00:00:00:00:01", "network": blue, "ip": "192.0.2.1"}).body["uuid"]
    service.join(0, cluster)
    for kind, uuid in (("network", blue), ("nic", nic), ("node", NODES[0])):
        said = service.say("GET", f"/v1/{kind}s?cluster={cluster}")
        assert said.status == 200 and [item[kind]["uuid"] for item in said.body["items"]] == [uuid]
    for query in (
        "state=provisioning",
        f"network={blue}",
        f"cluster={cluster}&state=provisioning&network={blue}",
        f"master=ganeti:{cluster}",
    ):
        assert [item["nic"]["uuid"] for item in service.say("GET", f"/v1/nics?{query}").body["items"]] == [nic]
    assert service.say("GET", f"/v1/nics?cluster={cluster}&state=running").body["items"] == []


def test_find_by_any_part(service: Served) -> None:
    blue = network(service)
    nic = add(service, network=blue, instance="web1.example.com", ip="192.0.2.77", mac="aa:00:00:12:34:56")
    for part in ("web1.EX", "12:34", "2.77", nic["uuid"][3:12]):
        (item,) = service.say("GET", f"/v1/find?text={part}").body["items"]
        assert (item["kind"], item["uuid"]) == ("nics", nic["uuid"])
    assert [item["kind"] for item in service.say("GET", "/v1/find?text=192.0.2").body["items"]] == ["networks", "nics"]
    service.say("DELETE", f"/v1/nics/{nic['uuid']}", If_Match="*")
    (freed,) = service.say("GET", "/v1/find?text=12:34").body["items"]
    assert (freed["kind"], freed["uuid"], freed["text"]) == ("macs", nic["uuid"], "aa:00:00:12:34:56")
    assert freed["label"].startswith("in quarantine until 2")
    service.say("PATCH", f"/v1/networks/{blue}", {"gateway": "192.0.2.254"}, If_Match="*")
    (gateway,) = service.say("GET", "/v1/find?text=192.0.2.254").body["items"]
    assert (gateway["kind"], gateway["uuid"]) == ("networks", blue)


def test_reservations_and_settings(service: Served) -> None:
    blue = network(service)
    assert service.say("PUT", f"/v1/claims/addresses/{blue}/192.0.2.1", {"reason": "router"}).status == 200
    assert add(service, network=blue, allocate=["ipv4"])["ip"] == "192.0.2.2"
    (item,) = service.say("GET", "/v1/claims?standing=reserved").body["items"]
    assert item["claim"]["reserved"] == "router" and item["key"] == f"addresses/{blue}/192.0.2.1"
    assert service.say("DELETE", f"/v1/claims/addresses/{blue}/192.0.2.1").status == 200
    shown = service.say("GET", "/v1/settings")
    said = service.say("PATCH", "/v1/settings", {"mac_prefix": "aa:00:00"}, If_Match=shown.headers["ETag"])
    assert said.status == 200 and add(service)["mac"].startswith("aa:00:00")


def test_reports_of_another_node_are_refused_and_counted(service: Served) -> None:
    service.join(0)
    service.join(1)
    body = {"after": "first:0", "nics": []}
    refused(service.say("POST", f"/v1/nodes/{NODES[1]}/reports", body, Netcommon_Role=f"node:{NODES[0]}"), 403, "forbidden")
    refused(service.say("POST", f"/v1/nodes/{NODES[1]}/reports", body), 403, "forbidden")
    assert service.say("POST", f"/v1/nodes/{NODES[0]}/reports", body, Netcommon_Role=f"node:{NODES[0]}").status == 200
    assert b"netregistry_reports_misplaced_total 1\n" in service.say("GET", "/metrics").body
    said = service.say("POST", f"/v1/nodes/{NODES[0]}/heartbeat", {"incarnation": NODES[3]}, Netcommon_Role=f"node:{NODES[0]}")
    assert said.status == 200 and said.body["seconds"] > 0
    twin = service.say("POST", f"/v1/nodes/{NODES[0]}/heartbeat", {"incarnation": NODES[4]}, Netcommon_Role=f"node:{NODES[0]}")
    refused(twin, 409, "twin", "new identity")
    (node,) = service.say("GET", "/v1/nodes?alive=true").body["items"]
    assert node["node"]["uuid"] == NODES[0] and node["reported"] > 0


def test_too_many_are_told_when_to_come_again(tmp_path: Path) -> None:
    with served(tmp_path, Limits(rate=0.001, burst=3, beat=60)) as service:
        answers = [service.say("GET", "/v1") for _ in range(5)]
        assert [said.status for said in answers] == [200, 200, 200, 429, 429]
        assert refused(answers[4], 429, "too-many")["retry_after"] == 1 and answers[4].headers["Retry-After"] == "1"
        assert service.say("GET", "/v1", None, Netcommon_Role="reader").status == 200, "each identity has its own"
    with served(tmp_path, Limits(streams=0, beat=60)) as service:
        service.join(0)
        refused(service.say("GET", f"/v1/watch?node={NODES[0]}"), 429, "too-many", "streams")
    with served(tmp_path, Limits(waiting=0, beat=60)) as service:
        refused(service.say("GET", "/v1/nics"), 429, "too-many", "waiting")


def test_who_asks_for_much_takes_little_of_the_others_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep few requests of one identity in line: another one's comes behind these, and before the rest."""
    order: list[str] = []
    held = threading.Event()
    with served(tmp_path, Limits(beat=60, each=4)) as service, ThreadPoolExecutor(30) as pool:
        answer = service.service.registry.answer

        def noted(call: Call, who: Identity, *more: Any) -> Response:
            order.append(who.name)
            held.wait(SECONDS)
            return answer(call, who, *more)

        monkeypatch.setattr(service.service.registry, "answer", noted)

        def add(name: str, number: int) -> Said:
            return service.say("POST", "/v1/networks", {"name": f"{name}{number}"}, Netcommon_Role=f"operator:{name}")

        def waiting(in_line: int, all_of_them: int) -> bool:
            at_the_gate = service.service._gate._doors.values()
            return service.service.waiting == in_line and sum(map(len, at_the_gate)) == all_of_them

        begun = [pool.submit(add, "ann", number) for number in range(20)]
        service.until(lambda: waiting(4, 20))
        begun.append(pool.submit(add, "bob", 0))
        service.until(lambda: waiting(5, 21))
        held.set()
        assert [each.result(SECONDS).status for each in begun] == [201] * 21
    assert sorted(order) == ["ann"] * 20 + ["bob"] and order.index("bob") <= 4


def test_a_store_that_cannot_be_used_is_503_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as service:
        nic = add(service, instance="web1")

        def full(self: SqliteStore, tests: list[Expect], changes: list[Put | Delete]) -> int:
            raise Unavailable("the disk is full")

        monkeypatch.setattr(SqliteStore, "commit", full)
        said = service.say("POST", "/v1/nics", {})
        refused(said, 503, "unavailable", "full")
        assert said.headers["Retry-After"] == "1"
        assert service.say("GET", f"/v1/nics/{nic['uuid']}").status == 200
        monkeypatch.undo()
        assert service.say("POST", "/v1/nics", {}).status == 201


def test_the_socket_is_for_root_alone(service: Served) -> None:
    found = os.stat(service.path)
    assert stat.S_IMODE(found.st_mode) == 0o600 and found.st_uid == os.geteuid()


def test_who_is_at_the_other_end_is_the_kernels_word() -> None:
    class Other:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
            return struct.pack("3i", 1, 65534, 0)[:size]

    with pytest.raises(Refused, match="for root alone"):
        peer(Other())
    one, other = socket.socketpair()
    with one, other:
        assert peer(one) == os.geteuid()


def test_a_second_service_and_no_service(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        with pytest.raises(HostRefused, match="another process listens"), served(tmp_path):
            pass
        assert service.say("GET", "/v1").status == 200
    assert not os.path.exists(service.path), "a clean stop takes its socket away"
    with pytest.raises(HostRefused, match="no registry is served"):
        Client(service.path).get("nics")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(service.path)
    with pytest.raises(HostRefused, match="nobody listens"):
        Client(service.path).get("nics")
    with served(tmp_path) as again:
        assert again.client().get("nics").body["items"] == []


def test_a_backup_is_a_registry(tmp_path: Path) -> None:
    store = SqliteStore.create(str(tmp_path / "registry.sqlite"), "first")
    with served(tmp_path, store=store) as service:
        nic = add(service, instance="web1")
        (tmp_path / "copy").write_bytes(b"".join(service.client().backup()))
        assert sorted(path.name for path in tmp_path.glob(".backup*")) == []
        refused(service.say("GET", "/v1/backup", None, Netcommon_Role="reader"), 403, "forbidden")
    with served(tmp_path, store=SqliteStore(str(tmp_path / "copy"))) as service:
        assert service.say("GET", f"/v1/nics/{nic['uuid']}").status == 200
    with served(tmp_path) as service, pytest.raises(Problem, match="of its own kind"):
        list(service.client().backup())


def test_the_history_is_filtered_as_each_entry_says(service: Served) -> None:
    client, importer = service.client("operator:alice"), service.client("importer:gnt.example.com")
    network = client.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"}).body["uuid"]
    nics = [importer.change("POST", "nics", {"network": network, "ip": f"192.0.2.{number}"}).body["uuid"] for number in (1, 2)]
    client.change("PATCH", f"nics/{nics[0]}", {"options": [{"name": "isolated", "value": "yes"}]})
    client.change("POST", "batch", {"parts": [{"action": "nic.set", "target": nics[1], "body": {"primary": False}, "match": "*"}]})
    client.change("PUT", f"claims/addresses/{network}/192.0.2.9", {"reason": "printer"})
    everything = [item["entry"] for item in client.all("history")]
    assert len(everything) == 6

    def touched(entry: dict[str, Any], uuid: str) -> bool:
        return entry["target"].endswith(uuid) or any(change["key"].endswith(uuid) for change in entry["changes"])

    wanted: list[tuple[dict[str, str], Any]] = [
        ({"target": uuid}, lambda entry, uuid=uuid: touched(entry, uuid)) for uuid in (network, *nics)
    ]
    wanted += [({"action": action}, lambda entry, action=action: entry["action"] == action) for action in ("nic.add", "batch", "nothing")]
    wanted += [({"role": role}, lambda entry, role=role: entry["who"]["role"] == role) for role in ("operator", "importer", "node")]
    wanted += [({"by": "alice"}, lambda entry: entry["who"]["name"] == "alice")]
    wanted += [({"role": "importer", "target": nics[0]}, lambda entry: entry["who"]["role"] == "importer" and touched(entry, nics[0]))]
    for query, fits in wanted:
        assert [item["entry"] for item in client.all("history", **query)] == [entry for entry in everything if fits(entry)], query


def test_a_registry_whose_clock_was_fast_is_asked_by_its_time(service: Served) -> None:
    """Until the clock has come there: whoever does not say an id has one made, and our client learns it by the refusal."""
    blue, client = network(service), service.client()
    item = service.store.get("ledger")
    assert item is not None
    floor = int(time.time() + 86400) * 1000
    ledger = json.loads(item.value) | {"floor": floor}
    service.store.commit([], [Put("ledger", json.dumps(ledger).encode())])
    for mtu in (1400, 1500):
        assert client.change("PATCH", f"networks/{blue}", {"mtu": mtu}).body["mtu"] == mtu
    key = new_id(time.time(), 1)
    with pytest.raises(Problem, match="not remembered"):
        client.change("PATCH", f"networks/{blue}", {"mtu": 1300}, key=key)
    assert client.moment * 1000 > floor, "who chooses the ids knows"
    said = service.say("PATCH", f"/v1/networks/{blue}", {"mtu": 1300}, If_Match="*")
    assert said.status == 200 and made(said.headers["Idempotency-Key"]) > floor


def test_who_has_asked_while_the_registrys_clock_was_fast_is_heard_when_it_is_right_again(service: Served) -> None:
    """It was told a time that is not yet, and made each request behind that: until it was begun anew nothing that it asked for was done."""
    blue, client, core = network(service), service.client(), service.service.registry.local.core
    core.now = lambda: time.time() + 10 * 86400
    assert client.change("PATCH", f"networks/{blue}", {"mtu": 1400}).body["mtu"] == 1400
    assert client.moment > time.time() + 86400
    core.now = time.time
    with pytest.raises(Problem) as refused:
        client.change("PATCH", f"networks/{blue}", {"mtu": 1300}, key=new_id(client.moment, 1))
    assert refused.value.kind == "outdated" and client.moment < time.time() + 1, "who chooses the ids knows"
    client.change("PATCH", f"networks/{blue}", {"mtu": 1500})
    core.now = lambda: time.time() + 10 * 86400
    client.change("PATCH", f"networks/{blue}", {"mtu": 1400})
    core.now = time.time
    assert client.change("PATCH", f"networks/{blue}", {"mtu": 1500}).body["mtu"] == 1500, "and asks anew by itself"


def test_an_entry_of_the_history_that_cannot_be_read_hides_no_other(service: Served) -> None:
    blue = network(service)
    said = service.say("PATCH", f"/v1/networks/{blue}", {"mtu": 1400}, If_Match="*")
    key = said.headers["Idempotency-Key"]
    service.say("PATCH", f"/v1/networks/{blue}", {"mtu": 1500}, If_Match="*")
    service.store.commit([], [Put(f"history/{key}", b'{"number":"x"')])
    items = service.say("GET", "/v1/history").body["items"]
    assert [item["entry"]["number"] for item in items] == [1, 3]
    again = service.say("PATCH", f"/v1/networks/{blue}", {"mtu": 1400}, If_Match="*", Idempotency_Key=key)
    refused(again, 503, "unavailable", "cannot be read")


def test_a_part_of_the_history_is_bounded_by_its_bytes(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry may have a megabyte: a thousand of them kept everybody waiting for seconds, and five thousand were read for one."""
    read: list[int] = []
    real = SqliteStore.list

    def seen(self: SqliteStore, prefix: str, after: str = "", limit: int = 0, revision: int = 0) -> Listing:
        found = real(self, prefix, after, limit, revision)
        read.append(len(found.items))
        return found

    parts = [{"action": "network.add", "body": {"name": f"{'x' * 200}{number}"}} for number in range(20)]
    for place in range(12):
        body = [{**part, "body": {"name": f"{part['body']['name']}-{place}"}} for part in parts]  # type: ignore[index]
        assert service.say("POST", "/v1/batch", {"parts": body}).status == 200
    monkeypatch.setattr(SqliteStore, "list", seen)
    monkeypatch.setattr(queries, "LARGEST", 50_000)
    monkeypatch.setattr(queries, "AT_ONCE", 5)
    pages = list(service.client().pages("history", limit=1000))
    assert [item["entry"]["number"] for page in pages for item in page["items"]] == list(range(1, 13))
    assert len(pages) > 2 and all(page["items"] for page in pages) and len({page["revision"] for page in pages}) == 1
    assert max(len(json.dumps(page)) for page in pages) < 200_000 and max(read) <= 5
    read.clear()
    assert len(service.say("GET", "/v1/history?limit=1").body["items"]) == 1 and sum(read) <= 5
    assert len(list(service.client().all("history", by="nobody"))) == 0


def test_what_is_looked_at_while_the_store_is_away_says_how_old_it_is(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    service.client().change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/24"})
    assert "Age" not in service.say("GET", "/v1/networks").headers

    def away() -> None:
        raise Unavailable("no majority")

    monkeypatch.setattr(service.service.registry.local, "catch_up", away)
    said = service.say("GET", "/v1/networks")
    assert said.status == 200 and len(said.body["items"]) == 1 and int(said.headers["Age"]) >= 1
    monkeypatch.undo()
    assert "Age" not in service.say("GET", "/v1/networks").headers


def test_whoever_asks_nothing_is_not_waited_for_at_the_end(tmp_path: Path) -> None:
    """A browser keeps its connections open between two pages."""
    with served(tmp_path) as service:
        connection = service.connect()
        connection.request("GET", "/v1")
        assert connection.getresponse().read()
        begun = time.monotonic()
    assert time.monotonic() - begun < ENDING / 2
    connection.close()
