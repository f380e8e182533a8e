"""The pages as they come over the service's socket: what each says, to whom, with which headers, and when there is none."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from netregistry.pages import live
from netregistry.pages.front import HEADERS
from netregistry.service.limits import Limits
from netregistry.stores.base import Unavailable
from tests.support.pages import ATTRIBUTES, HOSTILE, TAGS, Page, hostile, page, seen
from tests.support.registry import NODES
from tests.support.service import Said, Served, served

LISTS = ("/", "/nics", "/nodes", "/networks", "/conflicts", "/history", "/find", "/find?text=web")


def look(service: Served, path: str, status: int = 200, **headers: str) -> Page:
    """Give a page, which must be one."""
    said = service.say("GET", path, None, **{"Accept": "text/html", **headers})
    assert (said.status, said.headers["Content-Type"]) == (status, "text/html; charset=utf-8"), said
    assert all(said.headers[name] == text for name, text in HEADERS.items()) and said.headers["Cache-Control"] == "no-store"
    found = page(said.body)
    assert found.tags <= TAGS and found.attributes <= ATTRIBUTES, (found.tags - TAGS, found.attributes - ATTRIBUTES)
    assert all(re.fullmatch(r"/[\w%./?=&:~+-]*", link, re.ASCII) for link in found.links), found.links
    return found


@pytest.fixture
def filled(service: Served) -> dict[str, str]:
    """Give UUIDs of a network, a NIC in it that a node has, and that node."""
    client = service.client()
    blue = client.change("POST", "networks", {"name": "blue", "subnet": "192.0.2.0/29", "gateway": "192.0.2.1", "tag": "prod"}).body["uuid"]
    body = {"network": blue, "instance": "web1", "index": 0, "allocate": ["ipv4"], "mac": "aa:00:00:00:00:01", "owner": "ann"}
    nic = client.change("POST", "nics", body).body
    node = service.join(0)
    client.change("PATCH", f"nodes/{NODES[0]}", {"provides": ["prod"]})
    node.change("POST", f"nodes/{NODES[0]}/heartbeat", {"incarnation": nic["uuid"]})
    reports = [{"nic": nic["uuid"], "state": "running", "tap": "tap0", "mac": nic["mac"], "ip": nic["ip"], "applied": "first:3"}]
    about = {"version": "1.2", "bridges": ["br0"], "interfaces": [{"uuid": nic["uuid"], "name": "eth0", "mac": "aa:00:00:00:00:99"}]}
    node.change("POST", f"nodes/{NODES[0]}/reports", {"after": "first:0", "nics": reports, "about": about})
    return {"network": blue, "nic": nic["uuid"], "node": NODES[0]}


def test_what_each_page_says(service: Served, filled: dict[str, str]) -> None:
    nic, node, blue = (filled[name] for name in ("nic", "node", "network"))
    assert "1 networks 1 NICs 1 of 1 nodes alive 0 MACs and addresses" in look(service, "/").text
    row = "web1/0 running node0 blue aa:00:00:00:00:01 192.0.2.2"
    assert row in look(service, "/nics").text
    assert "node0 alive" in look(service, "/nodes").text and "prod 1.2" in look(service, "/nodes").text
    assert "blue 192.0.2.0/29 1 of 5 1" in look(service, "/networks").text
    shown = look(service, f"/nics/{nic}")
    assert shown.text.startswith("NIC web1/0 · registry") and "running on node0" in shown.text and "Tap tap0" in shown.text
    assert shown.live == f"nics/{nic}" and {f"/nics/{nic}/history", f"/nodes/{node}", f"/networks/{blue}"} <= {*shown.links}
    shown = look(service, f"/nodes/{node}")
    assert "It should provide, and does not: prod" in shown.text and "eth0 down aa:00:00:00:00:99" in shown.text
    shown = look(service, f"/networks/{blue}")
    assert "Can be given out 5 NICs have 1 Reserved 0 In quarantine 0 Not wanted, and in use 0 Free 4" in shown.text
    assert "operator root nic.add nic web1/0 made" in look(service, "/history").text
    shown = look(service, f"/nics/{nic}/history")
    assert "nic.add" in shown.text and "network.add" not in shown.text and "network blue" in shown.text
    assert look(service, "/conflicts").text.count("There is none.") == 2
    assert "network blue" in look(service, "/find?text=blu").text
    assert service.service.figures.faults == 0


def test_a_node_of_a_mock_cloud_is_nowhere_without_its_flag(service: Served, filled: dict[str, str]) -> None:
    nic, node = filled["nic"], filled["node"]
    lists = ("/nodes", f"/nodes/{node}", "/nics", f"/nics/{nic}", f"/nics?node={node}")
    paths = (*lists, f"/nodes/{node}/history", "/history", "/find?text=node0")
    texts = {path: look(service, path).text for path in paths}
    assert all("node0" in text and "node0 virtual" not in text for text in texts.values()), texts
    service.client(f"node:{node}").change("PATCH", f"nodes/{node}", {"kind": "virtual"})
    for path in paths:
        text = look(service, path).text.partition(" \N{MIDDLE DOT} registry")[2]
        assert "node0 virtual" in text, (path, text)
        assert path not in lists or not re.search("node0(?! virtual)", text), (path, text)


@pytest.mark.parametrize("typed", ["web1/0", "WEB", "aa-00-00-00-00-01", "AA:00:00", "192.0.2.2", " web1 "])
def test_a_nic_is_found_as_somebody_types_it(service: Served, filled: dict[str, str], typed: str) -> None:
    assert f"/nics/{filled['nic']}" in look(service, f"/find?text={typed.replace(' ', '%20')}").links


def test_a_list_is_filtered_as_its_links_say(service: Served, filled: dict[str, str]) -> None:
    service.client().change("POST", "nics", {"instance": "db1", "index": 0})
    for query in (f"network={filled['network']}", f"node={filled['node']}", "state=running", "instance=web1", "owner=ann"):
        shown = look(service, f"/nics?{query}")
        assert "web1/0" in shown.text and "db1/0" not in shown.text
    assert "web1/0" in look(service, "/nics?state=&network=").text, "a field of a form that is left empty says nothing"
    assert "There is none." in look(service, "/nodes?alive=false").text


def test_what_several_want_is_seen_where_it_is(service: Served, filled: dict[str, str]) -> None:
    importer = service.client("importer:gnt.example.com")
    body = {"uuid": NODES[1], "instance": "web2", "index": 0, "mac": "aa:00:00:00:00:01", "network": filled["network"]}
    twin = importer.change("POST", "nics", body).body["uuid"]
    shown = look(service, "/conflicts").text
    assert "aa:00:00:00:00:01 blue web1/0 web2/0" in shown
    assert "Wanted by others too" in look(service, f"/nics/{twin}").text
    assert "1 MACs and addresses that several want" in look(service, "/").text


def test_what_changed_is_told_with_names_and_what_is_deleted_has_a_history(service: Served, filled: dict[str, str]) -> None:
    client, nic = service.client(), filled["nic"]
    client.change("PATCH", f"nics/{nic}", {"owner": "bob", "network": ""})
    assert "nic web1/0 changed owner ann → bob; network blue → \N{EN DASH}" in look(service, f"/nics/{nic}/history").text
    client.change("DELETE", f"nics/{nic}")
    shown = look(service, f"/nics/{nic}/history")
    assert "nic web1/0 deleted" in shown.text and "nic.add" in shown.text
    assert f"/nics/{nic}/history" in look(service, "/history").links
    assert "there is no NIC" in look(service, f"/nics/{nic}", 404).text


# -- hostile values


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_something_is_called_is_text(service: Served, text: str) -> None:
    """No element, attribute or link of a page is made of it, nothing of it is invisible; and it is there to be read."""
    for path in hostile(service, text):
        said = service.say("GET", path, None, Accept="text/html")
        assert said.status in (200, 400, 404) and service.service.figures.faults == 0, (path, said, service.log.lines)
        found = look(service, path, said.status)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\ud800-\udfff]", found.text)
        if said.status == 200 and not path.startswith(("/find", "/nics?")):
            assert path == "/" or seen(text) in found.text, (path, found.text)


def test_a_search_that_is_hostile_is_text(service: Served) -> None:
    shown = look(service, "/find?text=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert 'Nothing has "><script>alert(1)</script> in its name' in shown.text
    assert "text is '\\u202e'" in look(service, "/find?text=%E2%80%AE", 400).text


@pytest.mark.parametrize("path", ["/", "/nics", "/nodes", "/networks", "/conflicts", "/history", "/find", f"/nics/{NODES[0]}/history"])
def test_no_query_is_a_fault(service: Served, filled: dict[str, str], path: str) -> None:
    """Whatever is asked for: a page, or one that says what is wrong with it."""
    names = ("after", "before", "state", "network", "node", "cluster", "instance", "owner", "alive", "text", "x")
    for text in (*HOSTILE.values(), ":", f"{NODES[0]}:", "a" * 1300 + ":", "%", "01900000-0000-7000-8000-000000000000", "true"):
        for name in names:
            said = service.say("GET", f"{path}?{name}={quote(text.encode('utf-8', 'surrogatepass'), safe='')}", None, Accept="text/html")
            assert said.status in (200, 400), (name, text, said)
            assert page(said.body).tags <= TAGS
    assert service.service.figures.faults == 0, service.log.lines


# -- paging


@pytest.mark.parametrize("kind", ["nics", "nodes", "networks"])
def test_a_long_list_has_pages_forth_and_back(service: Served, kind: str) -> None:
    """By name, web2 before web10; each once, though some come and go on the way."""
    client = service.client()
    for number in range(230):
        if kind == "nics":
            client.change("POST", "nics", {"instance": f"web{number}"})
        elif kind == "networks":
            client.change("POST", "networks", {"name": f"web{number}"})
        else:
            client.change("POST", "nodes", {"uuid": f"{number:08x}-0000-4000-8000-000000000000", "name": f"web{number}"})

    def names(shown: Page) -> list[str]:
        return re.findall(r"\bweb\d+\b", shown.text)

    def turned(shown: Page, way: str) -> str:
        return next((link for link in shown.links if f"{way}=" in link), "")

    first = look(service, f"/{kind}")
    second = look(service, turned(first, "after"))
    third = look(service, turned(second, "after"))
    assert [*names(first), *names(second), *names(third)] == [f"web{number}" for number in range(230)]
    assert not turned(first, "before") and not turned(third, "after")
    assert names(look(service, turned(third, "before"))) == names(second)
    assert names(look(service, turned(look(service, turned(third, "before")), "before"))) == names(first)
    if kind == "nics":
        gone = client.get("nics", instance="web99").body["items"][0]["nic"]["uuid"]
        client.change("DELETE", f"nics/{gone}")
        assert names(look(service, turned(first, "after"))) == names(second), "what the link was made of may be gone"
        assert names(look(service, "/nics?state=provisioning"))[:100] == [f"web{number}" for number in range(99)] + ["web100"]


def test_the_history_is_turned_back(service: Served) -> None:
    client = service.client()
    for number in range(130):
        client.change("POST", "networks", {"name": f"net{number}"})
    first = look(service, "/history")
    (further,) = [link for link in first.links if "before=" in link]
    second = look(service, further)
    shown = [[*dict.fromkeys(int(each) for each in re.findall(r"\bnet(\d+)", page.text))] for page in (first, second)]
    assert [len(each) for each in shown] == [100, 30] and shown == [sorted(each, reverse=True) for each in shown]
    assert sorted([*shown[0], *shown[1]]) == [*range(130)] and (first.live, second.live) == ("history", "")


# -- who may, and what there is not


def test_who_may_look(service: Served, filled: dict[str, str]) -> None:
    for path in (*LISTS, f"/nics/{filled['nic']}", "/static/pages.css"):
        for role, status in (("reader", 200), ("operator:ann", 200), (f"node:{NODES[0]}", 403), ("importer:gnt.example.com", 403)):
            said = service.say("GET", path, None, Netcommon_Role=role)
            assert said.status == status, (path, role, said)
            assert status == 200 or page(said.body).text.startswith("Somebody else decides that · registry")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nics/x", 404),
        ("/nics/ffffffff-0000-4000-8000-000000000000", 404),
        ("/nodes/..%2F..%2Fetc", 404),
        ("/nothing", 404),
        ("/static/..%2Ffront.py", 404),
        ("/static/front.py", 404),
        ("/nics?state=dead", 400),
        ("/nics?colour=red", 400),
        ("/nics?state=running&state=stopped", 400),
        ("/history?before=x", 400),
        ("/nics/x/history", 404),
        ("/live?about=x", 400),
        ("/live", 400),
    ],
)
def test_what_is_not_there_is_a_plain_page(service: Served, path: str, status: int) -> None:
    assert f"{status}: " in look(service, path, status).text
    assert service.service.figures.faults == 0


def test_the_api_stays_as_it_is_for_whoever_asks(service: Served) -> None:
    for path in ("/v1/nothing", "/v1/nics/x", "/v1/nics?x=1"):
        said = service.say("GET", path, None, Accept="text/html")
        assert said.headers["Content-Type"] == "application/problem+json" and said.body["status"] == said.status
    assert service.say("GET", "/nothing").headers["Content-Type"] == "application/problem+json", "who has asked for no page"
    assert service.say("POST", "/nics", {}).status == 405 and service.say("GET", "/healthz", None, Accept="text/html").body == b"ok\n"


def test_what_pages_refer_to_is_kept_by_a_browser_as_long_as_it_is_so(service: Served) -> None:
    for name, kind in (("pages.css", "text/css"), ("pages.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        said = service.say("GET", f"/static/{name}")
        assert said.status == 200 and said.headers["Content-Type"].startswith(kind) and said.headers["X-Content-Type-Options"] == "nosniff"
        assert service.say("GET", f"/static/{name}", None, If_None_Match=said.headers["ETag"]).status == 304
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", said.body), "nothing is asked for elsewhere"


def test_the_socket_for_pages_has_nothing_else(service: Served, filled: dict[str, str]) -> None:
    """Whoever is let in there, by whatever program, changes nothing and takes nothing away."""
    path, before = str(Path(service.path).parent / "pages"), service.everything()
    assert Path(path).stat().st_mode & 0o777 == 0o600
    for target in (*LISTS, f"/nics/{filled['nic']}", f"/nics/{filled['nic']}/history", "/static/pages.js"):
        assert service.say("GET", target, path=path).status == 200
    for method in ("GET", "POST", "PATCH", "DELETE", "PUT"):
        for target in ("/v1", "/v1/nics", f"/v1/nics/{filled['nic']}", "/v1/backup", "/v1/compact", "/v1/tokens", "/metrics", "/healthz"):
            said = service.say(method, target, path=path, Netcommon_Role="operator:ann", If_Match="*")
            assert said.status in (403, 405), (method, target, said)
        assert method == "GET" or service.say(method, "/nics", path=path).status == 405
    assert service.say("GET", "/nics", path=path, Host="evil.example").status == 403
    assert service.say("GET", "/nothing", path=path, Accept="text/html").status == 404
    assert service.everything() == before


# -- a store that does not answer


def test_a_page_says_how_old_it_is_where_the_store_does_not_answer(
    service: Served, filled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: Any) -> Any:
        raise Unavailable("no majority answers")

    monkeypatch.setattr(service.service.registry.local, "catch_up", away)
    monkeypatch.setattr(service.service.registry.store, "list", away)
    said = service.say("GET", f"/nics/{filled['nic']}", None, Accept="text/html")
    assert said.status == 200 and int(said.headers["Age"]) >= 1 and "web1/0" in page(said.body).text
    assert f"The store has not answered for {said.headers['Age']} seconds" in page(said.body).text
    shown = look(service, "/history", 503)
    assert "no majority answers" in shown.text


# -- live


class Listening:
    """An open stream of a page, read in a thread."""

    def __init__(self, service: Served, query: str) -> None:
        self._connection = service.connect()
        self._connection.request("GET", f"/live?{query}")
        self.response = self._connection.getresponse()
        self._events: list[str] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            for line in self.response:
                if line.startswith(b"event: "):
                    self._events.append(line[7:].decode().strip())

    def count(self, name: str = "changed") -> int:
        return self._events.count(name)

    @property
    def ended(self) -> bool:
        self._thread.join(5)
        return not self._thread.is_alive()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._connection.sock is not None:  # of a refusal all is read already
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        assert self.ended
        self.response.close()
        self._connection.close()


Listen = Callable[[Served, str], Listening]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Give what opens streams, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def begun(service: Served, query: str) -> Listening:
            made = Listening(service, query)
            stack.callback(made.close)
            return made

        yield begun


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams have no patience."""
    monkeypatch.setattr("netregistry.pages.front.BEAT", 0.1)
    monkeypatch.setattr("netregistry.pages.front.PACE", 0.05)


@pytest.mark.usefixtures("quickly")
def test_an_open_page_is_told_of_what_it_shows_and_of_nothing_else(service: Served, listen: Listen, filled: dict[str, str]) -> None:
    client, nic = service.client(), filled["nic"]
    at = client.get("status").revision
    topics = {name: listen(service, f"about={name}&at={at}") for name in ("nics", "nodes", "networks", "history", "all", f"nics/{nic}")}
    service.until(lambda: all(each.count("beat") for each in topics.values()))
    told = {name: each.count() for name, each in topics.items()}
    other = client.change("POST", "nics", {"instance": "db1"}).body["uuid"]
    service.until(lambda: all(topics[name].count() > told[name] for name in ("nics", "networks", "history", "all")))
    beats = topics[f"nics/{nic}"].count("beat")
    service.until(lambda: topics[f"nics/{nic}"].count("beat") > beats + 1)
    assert topics[f"nics/{nic}"].count() == told[f"nics/{nic}"] and topics["nodes"].count() == told["nodes"]
    client.change("PATCH", f"nics/{nic}", {"owner": "bob"})
    service.until(lambda: topics[f"nics/{nic}"].count() > told[f"nics/{nic}"])
    assert other != nic


@pytest.mark.usefixtures("quickly")
def test_a_page_that_is_behind_is_told_so_at_once(service: Served, listen: Listen) -> None:
    service.client().change("POST", "networks", {"name": "blue"})
    behind = listen(service, "about=nodes&at=first:1")
    service.until(lambda: behind.count() == 1)


@pytest.mark.usefixtures("quickly")
def test_a_thousand_changes_are_few_words(service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netregistry.pages.front.PACE", 0.5)
    one, client, begun = listen(service, "about=networks"), service.client(), time.monotonic()
    for number in range(200):
        client.change("POST", "networks", {"name": f"net{number}"})
    service.until(lambda: one.count() >= 2)
    assert one.count() <= 3 + (time.monotonic() - begun) / 0.5


def test_open_pages_are_bounded_and_a_place_comes_free(service: Served, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netregistry.pages.front.MOST", 3)
    monkeypatch.setattr("netregistry.pages.front.BEAT", 0.1)
    several = [listen(service, "about=all") for _ in range(3)]
    said = listen(service, "about=all").response
    assert said.status == 429 and said.headers["Retry-After"] == "10"
    assert service.say("GET", "/nics").status == 200, "pages themselves are looked at"
    several[0].close()
    service.until(lambda: listen(service, "about=all").response.status == 200)


def test_the_service_ends_soon_under_open_pages(tmp_path: Path, listen: Listen) -> None:
    with served(tmp_path) as service:
        several = [listen(service, "about=all") for _ in range(5)]
        service.until(lambda: all(each.count("beat") for each in several))
        begun = time.monotonic()
    assert time.monotonic() - begun < live.BEAT and all(each.ended for each in several)


def test_every_page_is_counted(service: Served) -> None:
    look(service, "/nics")
    look(service, "/nothing", 404)
    text = service.say("GET", "/metrics").body.decode()
    assert 'netregistry_answers_total{endpoint="page.nics",status="200"} 1' in text


def test_an_endless_number_of_names_costs_no_page(tmp_path: Path) -> None:
    """A page has as many rows as any other, whatever there is."""
    sizes: list[Callable[[], Said]] = []
    with served(tmp_path, Limits(rate=1e9, burst=1e9)) as service:
        client = service.client()
        for number in range(150):
            client.change("POST", "nics", {"instance": "x" * 240 + str(number)})
        sizes.append(lambda: service.say("GET", "/nics"))
        assert len(sizes[0]().body) < 200_000
